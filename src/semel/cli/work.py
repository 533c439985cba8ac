"""`semel worker`: the supervisor, and the process that it starts again and again."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from semel.cli.reach import check_module, closing, load_app
from semel.errors import Misuse
from semel.supervise import RESTART_VARIABLE, SUPERVISOR_VARIABLE, die_with_parent, supervise

COMMAND = "worker-process"
log = logging.getLogger("semel")


def queues_of(text: str | None) -> list[str] | None:
    """The queues of --queues a,b. Raises `Misuse`."""
    if text is None:
        return None
    queues = [name.strip() for name in text.split(",")]
    if not all(queues):
        raise Misuse(f"--queues {text!r} has an empty name; write --queues billing,mail")
    return queues


def start(target: str, *, processes: int, queues: str | None, concurrency: int, until_idle: bool) -> int:
    """Supervise so many worker processes; the exit code. Imports nothing of the app: that may start threads."""
    check_module(target)
    queues_of(queues)
    argv = [sys.executable, "-m", "semel", COMMAND, target, "--concurrency", str(concurrency)]
    argv += ["--queues", queues] if queues is not None else []
    argv += ["--until-idle"] if until_idle else []
    return supervise(argv, processes)


def run(target: str, *, queues: Sequence[str] | None, concurrency: int, until_idle: bool) -> None:
    """One worker process. It dies with its supervisor. Raises `StoreUnavailable` if it is fenced, `Misuse`."""
    supervisor = os.environ.get(SUPERVISOR_VARIABLE, "")
    if not supervisor.isdigit():
        raise Misuse(f"{COMMAND} is started by its supervisor alone; write: semel worker {target}")
    die_with_parent(int(supervisor))
    app = load_app(target)
    to_stderr()
    if os.environ.get(RESTART_VARIABLE, "0") != "0":
        app.expect_store()  # a new one, in the place of one that was removed, would do everything a second time
    with closing(app):
        log.info("semel: worker %d works for %s", os.getpid(), target)
        app.run_worker(queues=list(queues) if queues else None, concurrency=concurrency, until_idle=until_idle)
        log.info("semel: worker %d has stopped", os.getpid())


def to_stderr() -> None:
    """Logs of semel on standard error, unless the app's own module has said where logs go."""
    log.setLevel(logging.INFO if log.level == logging.NOTSET else log.level)
    if log.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    log.addHandler(handler)

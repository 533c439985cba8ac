"""Forks the laboratory's children: each imports an app, is watched, works until it is idle, and may kill itself on cue."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx  # noqa: F401  what the apps need is imported once
import uuid_utils  # noqa: F401

import semel
from semel import app as apps
from semel import worker  # noqa: F401
from semel.engine.acting import Acting
from semel.engine.attempt import Attempt
from semel.engine.declare import is_async
from semel.engine.perform import Doing
from semel.machine.journal import told_by
from semel.supervise import die_with_parent
from semel.testing import provider_client  # noqa: F401
from semel.testing.crashtest import watch

STUCK = 3


def die_behind(name: str) -> None:
    """This process dies when the first call of that effect has returned, and nothing of it is on record yet."""
    shipped: Any = apps.Runtime  # type: ignore[attr-defined]

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    class Killing(shipped):  # type: ignore[misc]
        def guarded(self, fn: Callable[..., Any], attempt: Attempt, doing: Doing, acting: Acting) -> Callable[..., Any]:
            real = super().guarded(fn, attempt, doing, acting)
            known = attempt.ledger.effect(doing.key)
            if known is None or known.name != name:
                return real

            async def acts_async(*args: Any, **kwargs: Any) -> Any:
                await real(*args, **kwargs)
                die()

            def acts(*args: Any, **kwargs: Any) -> Any:
                real(*args, **kwargs)
                die()

            return acts_async if is_async(fn) else acts

    apps.Runtime = Killing  # type: ignore[attr-defined]


def load(file: Path) -> Any:
    """The module of an app's file."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def work(order: dict[str, Any]) -> int:
    """The child: 0 if the task has ended."""
    folder = Path(order["folder"])
    os.chdir(folder)
    os.environ["PROVIDER"] = order["provider"]
    os.environ["SEMEL_STORE"] = f"sqlite:///{folder}/agent.db"
    file = Path(order["app"])
    sys.path.insert(0, str(file.parent))
    random.uniform = lambda a, b: 0.01  # the examples' models think for seconds
    module = load(Path(order["app"]))
    app: semel.App = module.app
    if not order["tasks"]:  # a script, which runs by itself, with a provider of its own
        watch.install(app, Path(order["log"]))
        with getattr(module, "provider", None) or getattr(module, "shop", None) or contextlib.nullcontext():
            module.main()
        return 0
    if order["kill"]:
        die_behind(order["kill"])
    watch.install(app, Path(order["log"]), order["lose"])
    refs = [getattr(module, task).enqueue(*order["args"]) for task in order["tasks"].split()]
    app.run_worker(until_idle=True)
    rows = [vars_of(row) for ref in refs for row in app.runtime.desk.store.rows(ref.tenant, ref.id)]
    (folder / "journal.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = all(app.tasks.get(ref).delivery in (semel.Delivery.ACKNOWLEDGED, semel.Delivery.DEAD_LETTERED) for ref in refs)
    app.close()
    return 0 if ended else STUCK


def vars_of(row: Any) -> dict[str, Any]:
    """A row as `records.Run` wants it."""
    names = ("tenant", "stream", "seq", "kind", "actor", "token", "at")
    return {**{name: getattr(row, name) for name in names}, "body": told_by(row)}


def main() -> None:
    nursery = os.getpid()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                die_with_parent(nursery)
                sys.stdin.close()
                os.dup2(2, 1)  # what it prints is no answer
                code = work(json.loads(line))
            except BaseException:
                import traceback

                traceback.print_exc()
                code = 70
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()

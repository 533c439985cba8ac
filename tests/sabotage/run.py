"""Every guard has its sabotage: take it out, and a named test fails. Prints the table; exit 1 if a guard is watched by nobody.

Each guard is a small edit of the source. It is made in a copy, the named tests run against the copy, and one of them must
fail. `python tests/sabotage/run.py NAME` runs those whose name holds NAME; `--quick` leaves out those that need a server or
real worker processes; `--table` only writes docs/explanation/sabotage.md, which a whole run does as well. This process
imports what the tests need, but nothing of semel, and forks for each guard: most of a test run would else be imports.
"""

from __future__ import annotations

import compileall
import contextlib
import gc
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import table
from guards import GUARDS, Guard

ROOT = Path(__file__).resolve().parents[2]
JOBS = int(os.environ.get("JOBS", "4"))
SECONDS = 180
LONG_SECONDS = 900  # of a search, which must find it: that it runs on proves nothing
NEEDED = (
    "pytest", "pytest_timeout", "_pytest.assertion.rewrite", "hypothesis", "pydantic", "apsw", "immutables", "rfc8785",
    "uuid_utils", "typer.testing", "rich.console", "rich.table", "rich.progress", "psycopg", "psycopg.rows", "psycopg_pool",
    "cryptography.hazmat.primitives.asymmetric.ed25519", "greenlet", "prometheus_client", "opentelemetry.sdk.trace.export",
)  # fmt: skip
PLAIN = ("-x", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout", "--timeout", "20")
SERVER = """
import sys
from semel.testing import postgres
with postgres.server() as url:
    print(postgres.GIVEN, url, flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Found:
    """What came of one guard's removal."""

    guard: Guard
    test: str  # the test that failed; "" if none did
    said: str = ""
    seconds: float = 0.0


@dataclass
class Run:
    """One guard's tests, under way in a process of their own."""

    guard: Guard
    folder: Path
    pid: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def output(self) -> Path:
        return self.folder / "output"


def sabotaged(guard: Guard, folder: Path) -> None:
    """A copy of the source without the guard; with what is compiled of it, which holds but for the one file."""
    shutil.copytree(ROOT / "src", folder / "src", symlinks=False, ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("tests", "examples"):
        (folder / name).symlink_to(ROOT / name)
    file = folder / "src" / "semel" / guard.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(guard.old, guard.new), encoding="utf-8")


def start(guard: Guard) -> Run:
    """Remove one guard, and begin its tests."""
    run = Run(guard, Path(tempfile.mkdtemp(prefix="semel-sabotage-")))
    sabotaged(guard, run.folder)
    run.pid = os.fork()
    if not run.pid:
        os._exit(_child(run))
    return run


def _child(run: Run) -> int:
    code = 3
    with contextlib.suppress(BaseException):
        os.setpgid(0, 0)
        output = os.open(run.output, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(ROOT)
        source = str(run.folder / "src")
        os.environ.update(
            PYTHONPATH=source, PYTHONDONTWRITEBYTECODE="1", SEMEL_SABOTAGE=run.guard.name, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"
        )
        sys.path.insert(0, source)
        sys.dont_write_bytecode = True
        hypothesis = importlib.import_module("hypothesis")  # that there is a counterexample is enough: it need not be small
        found = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("sabotage", phases=found, database=None)
        hypothesis.settings.load_profile("sabotage")
        code = int(importlib.import_module("pytest").main([*PLAIN, *run.guard.tests]))
        sys.stdout.flush()
    return code


def ended(run: Run) -> Found | None:
    """What came of it; None: it still runs."""
    pid, status = os.waitpid(run.pid, os.WNOHANG)
    hung = not pid and time.monotonic() - run.began > (LONG_SECONDS if run.guard.searched else SECONDS)
    if not pid and not hung:
        return None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)  # and what it has left behind
    if hung:
        os.waitpid(run.pid, 0)
    said = run.output.read_text(encoding="utf-8", errors="replace") if run.output.exists() else ""
    shutil.rmtree(run.folder, ignore_errors=True)
    if hung and run.guard.searched:
        return Found(run.guard, "", f"the search was not over in {LONG_SECONDS} s")
    if hung:
        return Found(run.guard, f"{run.guard.tests[0]} (hung)")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    if os.waitstatus_to_exitcode(status) == 1 and failed:
        return Found(run.guard, failed[1], seconds=time.monotonic() - run.began)
    return Found(run.guard, "", said[-1200:])


def removed(guards: list[Guard]) -> Iterator[Found]:
    """Each guard's removal, some at a time."""
    left, running = list(guards), list[Run]()
    while left or running:
        while left and len(running) < JOBS:
            running.append(start(left.pop(0)))
        for run in list(running):
            if (found := ended(run)) is not None:
                running.remove(run)
                yield found
        time.sleep(0.01)


@contextlib.contextmanager
def server() -> Iterator[None]:
    """One server for all, in a process of its own; each run has a database of its own."""
    keeper = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert keeper.stdin is not None and keeper.stdout is not None
    try:
        name, url = keeper.stdout.readline().split()
        os.environ[name] = url
        yield
    finally:
        keeper.stdin.close()
        keeper.wait(60)


def main() -> int:
    """The table."""
    if "--table" in sys.argv[1:]:
        table.write()
        return 0
    quick, names = "--quick" in sys.argv[1:], [name for name in sys.argv[1:] if name != "--quick"]
    wanted = [guard for guard in GUARDS if not names or any(name in guard.name for name in names)]
    wanted = [guard for guard in wanted if not (quick and guard.slow)]
    if wrong := [said for guard in GUARDS if (said := table.out_of_date(guard))]:
        print("\n".join(wrong))
        return 1
    compileall.compile_dir(ROOT / "src", quiet=1)
    for name in NEEDED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in importlib.import_module("_pytest.config").default_plugins:
        importlib.import_module(f"_pytest.{name}")
    assert "semel" not in sys.modules, "each run imports its own"
    gc.collect()
    gc.freeze()  # each run's pytest collects garbage ten times at its end: there is none in what was imported here
    with server():
        by_name = {one.guard.name: one for one in removed(wanted)}
    found = [by_name[guard.name] for guard in wanted]
    for one in found:
        print(f"{one.guard.name:<58} {one.test or 'NOBODY NOTICED'}")
        if not one.test:
            print(one.said)
    longest = sorted(found, key=lambda one: -one.seconds)[:5]
    print("the longest: " + ", ".join(f"{one.guard.name} ({one.seconds:.1f} s)" for one in longest))
    caught = sum(1 for one in found if one.test)
    print(f"{len(found)} guards removed, one at a time; {caught} caught")
    print(f"{caught} passed, {len(found) - caught} failed")
    if len(found) == len(GUARDS):
        table.write()
    return 0 if caught == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())

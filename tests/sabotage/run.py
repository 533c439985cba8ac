"""Every guard has its sabotage: take it out, and a named test fails. Prints the table; exit 1 if a guard is watched by nobody.

Each guard is a small edit of the source. It is made in a copy, the named tests run against the copy, and one of them must
fail. `python tests/sabotage/run.py NAME` runs those whose name holds NAME; `--quick` leaves out those that need a server or
real worker processes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from guards import GUARDS, Guard

from semel.testing import postgres

ROOT = Path(__file__).resolve().parents[2]
JOBS = int(os.environ.get("JOBS", "4"))
SECONDS = 180


@dataclass(frozen=True)
class Found:
    """What came of one guard's removal."""

    guard: Guard
    test: str  # the test that failed; "" if none did
    said: str = ""


def out_of_date(guard: Guard) -> str:
    """What is wrong with a row of the table: its text must stand in the source exactly once."""
    count = (ROOT / "src" / "semel" / guard.file).read_text(encoding="utf-8").count(guard.old)
    return "" if count == 1 else f"{guard.name}: its text stands {count} times in {guard.file}; mend tests/sabotage/guards.py"


def sabotaged(guard: Guard, folder: Path) -> None:
    """A copy of the source without the guard."""
    shutil.copytree(ROOT / "src", folder / "src", symlinks=False, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("tests", "examples"):
        (folder / name).symlink_to(ROOT / name)
    file = folder / "src" / "semel" / guard.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(guard.old, guard.new), encoding="utf-8")


def run(guard: Guard) -> Found:
    """Remove one guard, and run its tests."""
    with tempfile.TemporaryDirectory(prefix="semel-sabotage-") as name:
        folder = Path(name)
        sabotaged(guard, folder)
        env = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1", "SEMEL_SABOTAGE": guard.name,
               "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # fmt: skip  # some take longer to import than the tests to run
        plain = ["-x", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout", "--timeout", "60"]
        command = [sys.executable, "-m", "pytest", *plain, *guard.tests]
        try:
            done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return Found(guard, f"{guard.tests[0]} (hung)")
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        if done.returncode == 1 and failed:
            return Found(guard, failed[1])
        return Found(guard, "", done.stdout[-600:] + done.stderr[-600:])


def main() -> int:
    """The table."""
    quick, names = "--quick" in sys.argv[1:], [name for name in sys.argv[1:] if name != "--quick"]
    wanted = [guard for guard in GUARDS if not names or any(name in guard.name for name in names)]
    wanted = [guard for guard in wanted if not (quick and guard.slow)]
    if wrong := [said for guard in GUARDS if (said := out_of_date(guard))]:
        print("\n".join(wrong))
        return 1
    with postgres.server() as url, ThreadPoolExecutor(JOBS) as pool:  # one server for all: each run has a database of its own
        os.environ[postgres.GIVEN] = url
        found = list(pool.map(run, wanted))
    for one in found:
        print(f"{one.guard.name:<58} {one.test or 'NOBODY NOTICED'}")
        if not one.test:
            print(one.said)
    caught = sum(1 for one in found if one.test)
    print(f"{len(found)} guards removed, one at a time; {caught} caught")
    print(f"{caught} passed, {len(found) - caught} failed")
    return 0 if caught == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())

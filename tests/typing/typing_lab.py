"""Run mypy and pyright, both strict, over tests/typing/cases against the package as it is in src."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
CASES = HERE / "cases"
SOURCE = HERE.parent.parent / "src"
CACHE = HERE.parent.parent / ".mypy_cache" / "cases"
SECONDS = 280  # a cold mypy reads pydantic, SQLAlchemy and three agent frameworks

Errors = dict[str, dict[int, list[str]]]  # by file, by line


def mypy() -> Errors:
    """mypy --strict. Errors of semel's own files are another test's."""
    files = sorted(path.name for path in CASES.glob("*.py"))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--follow-imports", "silent",
               "--python-version", "3.11", "--cache-dir", str(CACHE), "--output", "json", *files]  # fmt: skip
    done = _run(command, cwd=CASES, env={**os.environ, "MYPYPATH": str(SOURCE)})
    found: Errors = defaultdict(lambda: defaultdict(list))
    for line in done.stdout.splitlines():
        told = json.loads(line)
        if told["severity"] == "error":
            found[Path(told["file"]).name][told["line"]].append(told["message"])
    return found


def pyright() -> Errors:
    """pyright strict, on the node that comes as a wheel."""
    command = [sys.executable, "-m", "pyright", "--project", str(HERE), "--pythonpath", sys.executable, "--outputjson"]
    done = _run(command, cwd=HERE, env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] == len(list(CASES.glob("*.py"))), told["summary"]
    found: Errors = defaultdict(lambda: defaultdict(list))
    for said in told["generalDiagnostics"]:
        if said["severity"] == "error":
            found[Path(said["file"]).name][said["range"]["start"]["line"] + 1].append(said["message"])
    return found


def _run(command: list[str], *, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode in (0, 1), f"{command} did not check anything:\n{done.stdout}\n{done.stderr}"
    return done


def numbered(file: str) -> dict[int, int]:
    """The line of each numbered mistake, by its number."""
    found = {}
    for at, line in enumerate((CASES / file).read_text().splitlines(), 1):
        if number := re.search(r"  # (\d+)(?: |$)", line):
            found[int(number[1])] = at
    return found

"""The guards of the machine that keep an effect from happening twice, each with the world that notices when it is gone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "sabotage"))
from explored import EXPLORED, FURTHER  # noqa: E402
from guards import GUARDS, Guard  # noqa: E402

FOUND = {**EXPLORED, **FURTHER}

LONGEST = 30  # steps of a trace


def guard_of(name: str) -> Guard:
    """The guard of that name."""
    return next(guard for guard in GUARDS if guard.name == name)


def explored_without(guard: Guard, world: str, folder: Path, most: int) -> str:
    """What the explorer says of `world` with the machine's `guard` taken out."""
    source = folder / "src" / "semel"
    if not source.exists():
        shutil.copytree(ROOT / "src" / "semel", source, ignore=shutil.ignore_patterns("__pycache__"))
    file = source / guard.file
    text = file.read_text(encoding="utf-8")
    assert text.count(guard.old) == 1, f"{guard.name}: what it takes out is no more in {guard.file}"
    file.write_text(text.replace(guard.old, guard.new), encoding="utf-8")
    try:
        ran = subprocess.run(
            [sys.executable, "-B", str(ROOT / "tests" / "explore" / "explore_search.py"), world],
            text=True, capture_output=True, timeout=600,
            env={**os.environ, "PYTHONPATH": str(folder / "src"), "MOST": str(most)}, check=False,
        )  # fmt: skip
    finally:
        file.write_text(text, encoding="utf-8")
    return ran.stdout + ran.stderr[-3000:]


def steps_in(said: str) -> int:
    """How long the trace is; 0: there is none."""
    found = re.search(r"after (\d+) steps", said)
    return int(found[1]) if found else 0


__all__ = ["EXPLORED", "FOUND", "explored_without", "guard_of", "steps_in"]

"""Each deliberately wrong example, crash-tested by the very command that stands in it: it fails, and names fault and line."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

WRONG = Path(__file__).resolve().parents[2] / "examples" / "wrong"
QUICK = {
    "effect_outside": ("killed before the call",)
}  # points that suffice to see it; the others take all of theirs, in make proof


@pytest.mark.parametrize(
    "name",
    [pytest.param(file.stem, marks=[] if file.stem in QUICK else [pytest.mark.proof]) for file in sorted(WRONG.glob("*.py"))],
)
def test_a_wrong_example_fails_with_its_fault_and_line(name: str, tmp_path: Path) -> None:
    text = (WRONG / f"{name}.py").read_text(encoding="utf-8")
    command = re.search(r"`semel (crashtest [^`]+)`", text)
    assert command is not None, "its first words say how to run it"
    only = [word for point in QUICK.get(name, ()) for word in ("--only", point)]
    ran = subprocess.run(
        [sys.executable, "-m", "semel", *shlex.split(command[1]), *only, "--json"],
        cwd=WRONG, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    told = json.loads(ran.stdout)
    marked = [f"{name}.py:{n}" for n, line in enumerate(text.splitlines(), 1) if "# WRONG" in line]
    assert [fault["where"] for fault in told["faults"]] == marked, told
    assert all(fault["name"] and fault["mend"] for fault in told["faults"])
    assert ran.returncode == 1, ran.stderr

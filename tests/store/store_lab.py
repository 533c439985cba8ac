"""What the store's tests share: roles played by processes of their own (scripts/roles.py), and waiting."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOUND = find_spec("semel")  # not imported: scripts that need no more than a part of it import this, too
assert FOUND is not None and FOUND.origin is not None
SOURCE = Path(FOUND.origin).parents[1]  # the source under test, which may be a sabotaged copy
ENV = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE}", "PYTHONDONTWRITEBYTECODE": "1"}


def play(role: str, processes: int, *args: object, timeout: float = 90) -> list[Any]:
    """Play a role in so many processes at once; what each returned."""
    command = [sys.executable, str(HERE / "scripts" / "roles.py"), role, str(processes), *map(str, args)]
    done = subprocess.run(command, env=ENV, stdout=subprocess.PIPE, timeout=timeout, check=True, text=True)
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_python(code: str, *args: object) -> str:
    """What a few lines say in a process of their own."""
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, env=ENV, stdout=subprocess.PIPE, timeout=60, check=True, text=True).stdout.strip()


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait for something to become true, and return it."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.002)
    return value

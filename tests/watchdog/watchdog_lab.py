"""What the watchdog's tests share: scripts run in processes of their own, since they fork, freeze and kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOUND = find_spec("semel")  # not imported: scripts that need no more than a part of it import this, too
assert FOUND is not None and FOUND.origin is not None
SOURCE = Path(FOUND.origin).parents[1]  # the source under test, which may be a sabotaged copy
ENV = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE}", "PYTHONDONTWRITEBYTECODE": "1"}


def command(script: str, *args: object) -> list[str]:
    return [sys.executable, str(HERE / "scripts" / script), *map(str, args)]


def run(script: str, *args: object, prefix: tuple[str, ...] = ()) -> Any:
    """Run a script to its end; its last line of output is JSON."""
    done = subprocess.run([*prefix, *command(script, *args)], env=ENV, stdout=subprocess.PIPE, timeout=60, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def start(script: str, *args: object, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen([*prefix, *command(script, *args)], env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait for something to become true, and return it."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.005)
    return value


@cache
def can_unshare() -> bool:
    """May we make a PID namespace here?"""
    try:
        return subprocess.run(["unshare", "-pf", "true"], capture_output=True, timeout=20).returncode == 0
    except OSError:
        return False


class Forked:
    """In a script: `body(write)` in a forked child; what it writes, and how it ends."""

    def __init__(self, body: Callable[[Callable[[bytes], None]], None]) -> None:
        self._read, write = os.pipe()
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._read)
                body(lambda data: (os.write(write, data), None)[1])
                os._exit(0)
            finally:
                os._exit(99)
        os.close(write)

    def read(self, length: int = 1) -> bytes:
        return os.read(self._read, length)

    def end(self) -> dict[str, Any]:
        """Wait for the end: {"said": everything not read yet, "code": exit code, negative for a signal}."""
        said = b""
        while chunk := os.read(self._read, 4096):
            said += chunk
        os.close(self._read)
        _, status = os.waitpid(self.pid, 0)
        return {"said": said.decode(), "code": os.waitstatus_to_exitcode(status)}

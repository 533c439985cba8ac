"""A person at a terminal: one bash in a fresh folder, in which the commands of a page are typed one after the other."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from acceptance_postgres import ADDRESS_IN_PAGES

from semel.testing.postgres import GIVEN

PORT_IN_PAGES = "8025"  # pages name a port, since people like to see one; here it is any free one
MARK = "--acceptance-end-of-command--"
END = re.compile(rf"\n{MARK} (\d+)\n")


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    """What a user's shell has: the environment's commands first in PATH, and no settings of semel's but for tests' server."""
    foreign = ("SEMEL", "PYTEST", "PROVIDER")
    kept = {name: value for name, value in os.environ.items() if name == GIVEN or not name.startswith(foreign)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**kept, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}


class Shell:
    """`with Shell(folder) as shell:` at the end everything that was started in it is killed.

    postgres: the address of a server, and the folder of its programs.
    """

    def __init__(self, folder: Path, postgres: tuple[str, str] = ("", "")) -> None:
        self._folder = folder
        self._port = str(free_port())
        self._postgres, programs = postgres
        env = environment()
        env["PATH"] = os.pathsep.join([*([programs] * bool(programs)), env["PATH"]])
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"], cwd=folder, env=env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def here(self, text: str) -> str:
        """A page's text as it is typed here."""
        text = text.replace(ADDRESS_IN_PAGES, self._postgres) if self._postgres else text
        return text.replace(PORT_IN_PAGES, self._port)

    def write(self, name: str, text: str, *, more: bool = False) -> None:
        """Save a file in the folder."""
        file = self._folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a" if more else "w", encoding="utf-8") as out:
            out.write(self.here(text))

    def run(self, command: str, seconds: float = 90.0) -> tuple[int, str]:
        """Type a command; its exit status, and what was printed until it ended."""
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{self.here(command)}\nstatus=$?; echo; echo {MARK} $status\n".encode())
        self._bash.stdin.flush()
        text, deadline = "", time.monotonic() + seconds
        while (end := END.search(text)) is None:
            text += self._read(deadline, command, text)
        return int(end[1]), text[: end.start()]

    def _read(self, deadline: float, command: str, so_far: str) -> str:
        assert self._bash.stdout is not None
        out = self._bash.stdout.fileno()
        ready, _, _ = select.select([out], [], [], max(0.0, deadline - time.monotonic()))
        got = os.read(out, 65536) if ready else b""
        assert got, f"{command!r} did not end in time; it printed:\n{so_far}"
        return got.decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        for stream in (self._bash.stdin, self._bash.stdout):
            assert stream is not None
            stream.close()

"""`semel crashtest` as a user runs it, on the apps of these tests; and how many of its processes are left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import semel

SOURCE = Path(semel.__file__).parents[1]
ROOT = Path(__file__).parents[2]
APPS = Path(__file__).parent / "apps"
INVOICING = ROOT / "examples" / "invoicing"


@dataclass
class Bench:
    """folder: where it may write. apps: where it runs."""

    folder: Path
    apps: Path = APPS
    env: dict[str, str] = field(default_factory=dict)
    pid: int = 0  # of the last command

    def environment(self) -> dict[str, str]:
        """Of the command; `SHELF` is the resource of shelf.py, and marks all its processes."""
        shelf = self.folder / "shelf"
        shelf.mkdir(exist_ok=True)
        path = os.pathsep.join([str(SOURCE), str(self.apps)])
        return {**os.environ, "PYTHONPATH": path, "SHELF": str(shelf), "COLUMNS": "100", "TMPDIR": str(self.folder), **self.env}

    def start(self, *args: str) -> subprocess.Popen[str]:
        """The command, begun. Its apps' own resource is a folder of the test's, so they may really be called."""
        really = [] if "--sandbox" in args else ["--really"]
        return subprocess.Popen(
            [sys.executable, "-m", "semel", "crashtest", *args, *really], env=self.environment(), cwd=self.folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def run(self, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """The command, to its end, with this exit code."""
        process = self.start(*args)
        self.pid = process.pid
        try:
            out, err = process.communicate(timeout=300)
        finally:
            process.kill()
        assert process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def data(self, *args: str, code: int = 0) -> dict[str, Any]:
        """What it says as JSON."""
        found: dict[str, Any] = json.loads(self.run(*args, "--json", code=code).stdout)
        return found

    def processes(self) -> dict[int, str]:
        """Every process that bears this bench's mark in its environment, and its command line."""
        mark = f"SHELF={self.folder / 'shelf'}".encode()
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
        return found

    def left(self, seconds: float = 10) -> dict[int, str]:
        """Those that are still there after so long at most."""
        end = time.monotonic() + seconds
        while (found := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        return found


def verdicts(data: dict[str, Any]) -> dict[str, str]:
    """By injection point."""
    return {f"{run['of']}: {run['point']}" if run["of"] else run["point"]: run["verdict"] for run in data["runs"]}

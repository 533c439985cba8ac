"""The faults' laboratory: real worker processes, watched; killed by themselves where a test says; and the provider's record.

The children are forked from one process that has imported what they need and has no threads: a fresh interpreter for each
would take most of the time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import semel
from semel.testing.crashtest.records import Run
from semel.testing.provider import Provider

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCE = Path(semel.__file__).parents[1]  # the one under test, which may be a sabotaged copy
SECONDS = 60.0


class Nursery:
    """The process that forks the children."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "child.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def child(self, **order: Any) -> int:
        """Run a child to its end; its exit code, or minus the signal that killed it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], SECONDS)
        assert ready, f"a child did not end within {SECONDS:g} s: {order}"
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it, and a child that runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass
class Lab:
    """Runs tasks of example apps."""

    nursery: Nursery
    provider: Provider
    folder: Path
    _runs: int = 0
    codes: list[int] = field(default_factory=list)

    def run(
        self,
        app: Path,
        task: str,
        *args: str,
        kill: str = "",
        lose: str = "",
        fault: str = "",
        children: int = 3,
        point: str = "",
    ) -> Run:
        """One run: a child with the kill, the loss or the fault, and others until the task has ended or is stuck.

        kill: "EFFECT" (when its first call has returned), "EFFECT before" or "EFFECT, SUBMISSIONS" of the first child. lose: see
        `watch.install`. fault: a kind of the provider's, once.
        """
        self._runs += 1
        folder = self.folder / f"run{self._runs}"
        folder.mkdir()
        before = len(self.provider.acts())
        if fault:
            kind, _, action = fault.partition(" ")
            self.provider.fault(kind, action=action or None)  # type: ignore[arg-type]
        order = {"folder": str(folder), "app": str(app), "task": task, "args": args, "provider": self.provider.url}
        logs, self.codes = [], []
        for n in range(children):
            log = folder / f"log{n}.jsonl"
            logs.append(log)
            code = self.nursery.child(**order, log=str(log), kill=kill if n == 0 else "", lose=lose if n == 0 else "")
            self.codes.append(code)
            if kill and n == 0:
                assert code == -signal.SIGKILL, f"it was to be killed at {kill}, and ended with {code}"
            elif code == 0:
                break
        counted: dict[str, int] = {}
        for act in self.provider.acts()[before:]:
            name = act.key or act.marker
            if name:
                counted[name] = counted.get(name, 0) + 1
        journal = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
        return Run(point or (f"killed at {kill}" if kill else "dry run"), logs, counted, journal)

    def acts(self) -> int:
        """How many acts there are at the provider."""
        return len(self.provider.acts())

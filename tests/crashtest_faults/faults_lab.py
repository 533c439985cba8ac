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
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import semel
from semel.testing.crashtest.records import Run
from semel.testing.provider import Provider

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCE = Path(semel.__file__).parents[1]  # the one under test, which may be a sabotaged copy
SECONDS = 60.0
STUCK = 3  # a child's exit code: a task waits for a person


class Nursery:
    """The process that forks the children."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "faults_child.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def child(self, **order: Any) -> int:
        """Run a child to its end; its exit code, or minus the signal that killed it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], SECONDS)
        if not ready:
            self._process.kill()  # and the kernel kills the child
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

    def script(self, file: Path) -> Run:
        """An example that runs by itself, in one child."""
        log = self.folder / f"{file.stem}.jsonl"
        order = {"folder": str(self.folder), "app": str(file), "tasks": "", "provider": self.provider.url, "log": str(log)}
        code = self.nursery.child(**order)
        assert code == 0, f"{file.name} broke: {code}"
        return Run(file.name, [log])

    def run(self, app: Path, tasks: str, *args: str, kill: str = "", lose: str = "", most: int = 3, provider: str = "") -> Run:
        """One run: children one after the other until the tasks have ended; at most so many, since some wait for a person.

        kill: the first child dies when a call of that effect has returned. lose: see `watch.install`, in the first child.
        """
        self._runs += 1
        folder = self.folder / f"run{self._runs}"
        folder.mkdir()
        before = len(self.provider.acts())
        order = {"folder": str(folder), "app": str(app), "tasks": tasks, "args": args, "provider": provider or self.provider.url}
        logs: list[Path] = []
        for n in range(most):
            logs.append(folder / f"log{n}.jsonl")
            code = self.nursery.child(**order, log=str(logs[-1]), kill="" if n else kill, lose="" if n else lose)
            if kill and not n:
                assert code == -signal.SIGKILL, f"it was to die behind {kill}, and ended with {code}"
            elif code != STUCK:
                assert code == 0, f"the child broke: {code}"
                break
        acts = self.provider.acts()[before:]
        counted = Counter(name for act in acts if (name := act.key or act.marker))
        journal = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
        return Run(f"{kill} killed" if kill else f"{lose} unanswered" if lose else "dry run", logs, dict(counted), journal)

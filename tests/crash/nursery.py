"""Worker processes by fork: to start one costs a few milliseconds, and not the second of CPU that its imports take.

They are real processes, killed and frozen by real signals; `apps/zygote.py` says what they share. `make proof` repeats the
crash tests with processes that were started by exec.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ZYGOTE = Path(__file__).parent / "apps" / "zygote.py"
POLL_SECONDS = 0.005


class Child:
    """What a lab uses of `subprocess.Popen`. Its pid is its own until its end has been asked for."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery, self.pid = nursery, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, minus the signal's number if one killed it; None while it lives."""
        with self._nursery.lock:
            if self.returncode is None:
                self.returncode = self._nursery.told({"pid": self.pid})
            return self.returncode

    def wait(self, timeout: float) -> int:
        """The same, once it has ended. Raises `subprocess.TimeoutExpired`."""
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, number: int) -> bool:
        """Whether it was sent. After its end it is not: the pid may be another's."""
        with self._nursery.lock:
            lives = self.poll() is None
            if lives:
                os.kill(self.pid, number)
            return lives

    def kill(self) -> bool:
        """SIGKILL."""
        return self.send_signal(signal.SIGKILL)


class Nursery:
    """modules: imported before the first fork, by the environment env."""

    def __init__(self, env: Mapping[str, str], *modules: str) -> None:
        self.lock = threading.RLock()
        self._zygote = subprocess.Popen(
            [sys.executable, str(ZYGOTE), *modules], env={**env, "NURSERY_PARENT": str(os.getpid())},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def fork(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> Child:
        """A process that runs this script, by this environment. It dies with the zygote, and so with this process."""
        own = {**env, "CRASH_PARENT": str(self._zygote.pid)}
        log.touch()  # whoever reads it need not wait for the child to have opened it
        with self.lock:
            pid = self.told({"argv": list(argv), "env": own, "log": str(log)})
        assert pid is not None
        return Child(self, pid)

    def told(self, task: object) -> int | None:
        """The zygote's answer."""
        assert self._zygote.stdin is not None and self._zygote.stdout is not None
        self._zygote.stdin.write(f"{json.dumps(task)}\n")
        self._zygote.stdin.flush()
        answer = self._zygote.stdout.readline()
        assert answer, f"the zygote has ended: {self._zygote.wait(10)}"
        found: int | None = json.loads(answer)
        return found

    def close(self) -> None:
        """End it, and what it has forked."""
        self._zygote.kill()
        self._zygote.wait()
        for pipe in (self._zygote.stdin, self._zygote.stdout):
            assert pipe is not None
            pipe.close()


@functools.cache
def of_this_process(source: str) -> Nursery:
    """The one that all labs of this process share. source: the folder of the package under test."""
    return Nursery({**os.environ, "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"})

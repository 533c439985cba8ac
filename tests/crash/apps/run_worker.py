"""`run_worker.py MODULE CONCURRENCY`: a worker process of a crash test. It dies with the test."""

import faulthandler
import importlib
import os
import signal
import sys
import time
from pathlib import Path

import semel.worker
from semel.engine import clock, recover
from semel.supervise import die_with_parent


def shift_clock(file: str) -> None:
    """This machine's wall clock is off by the seconds that a file names."""
    clock.Clock.raw_ms = lambda self: time.time_ns() // 1_000_000 + int(float(Path(file).read_text() or 0) * 1000)  # type: ignore[method-assign]


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # a test that finds it stuck asks where
    die_with_parent(int(os.environ.get("SEMEL_SUPERVISOR") or os.environ["CRASH_PARENT"]))
    semel.worker.GRACE_SECONDS = float(os.environ.get("CRASH_GRACE", semel.worker.GRACE_SECONDS))
    recover.HOLD_SECONDS = float(os.environ.get("CRASH_HOLD", recover.HOLD_SECONDS))
    if "CRASH_SHIFT" in os.environ:
        shift_clock(os.environ["CRASH_SHIFT"])
    importlib.import_module(sys.argv[1]).app.run_worker(concurrency=int(sys.argv[2]))

"""`run_worker.py MODULE CONCURRENCY`: a worker process of a crash test. It dies with the test."""

import faulthandler
import importlib
import os
import signal
import sys

import semel.worker
from semel.engine import recover
from semel.supervise import die_with_parent

if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # a test that finds it stuck asks where
    die_with_parent(int(os.environ.get("SEMEL_SUPERVISOR") or os.environ["CRASH_PARENT"]))
    semel.worker.GRACE_SECONDS = float(os.environ.get("CRASH_GRACE", semel.worker.GRACE_SECONDS))
    recover.HOLD_SECONDS = float(os.environ.get("CRASH_HOLD", recover.HOLD_SECONDS))
    importlib.import_module(sys.argv[1]).app.run_worker(concurrency=int(sys.argv[2]))

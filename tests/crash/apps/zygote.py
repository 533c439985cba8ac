"""`zygote.py MODULE`: forks worker processes. It has imported everything and opened nothing.

A worker is a process of its own, whose session, store connections, threads and kernel timer are made after the fork; only
the second of CPU that its imports would take is spared. Commands on standard input, answers on standard output:
`fork CONCURRENCY` → the worker's pid; `bury PID` → waits for its end, and gives its exit code (minus the signal's number).
Until it is buried its pid is nobody else's. All end with the test.
"""

import faulthandler
import gc
import importlib
import os
import signal
import sys
import traceback
from typing import Any, NoReturn

import semel.store.postgres
import semel.store.sqlite
import semel.worker  # noqa: F401
from semel.supervise import die_with_parent


def become_worker(app: Any, concurrency: int, zygote: int) -> NoReturn:
    """In the child: a worker until its end."""
    code = 1
    try:
        die_with_parent(zygote)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        app.run_worker(concurrency=concurrency)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main(module: str) -> None:
    """Serve until standard input ends."""
    faulthandler.register(signal.SIGUSR1)
    die_with_parent(int(os.environ["CRASH_PARENT"]))
    app = importlib.import_module(module).app
    gc.freeze()  # the pages stay shared
    me = os.getpid()
    for line in sys.stdin:
        verb, number = line.split()
        if verb == "fork":
            child = os.fork()
            if not child:
                become_worker(app, int(number), me)
            print(child, flush=True)
        else:
            print(os.waitstatus_to_exitcode(os.waitpid(int(number), 0)[1]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

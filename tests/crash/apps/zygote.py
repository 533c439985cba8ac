"""`zygote.py MODULE...`: forks worker processes. It has imported what they need, and opened nothing. See `nursery.py`.

A worker is a process of its own, whose environment, session, store connections, threads and kernel timer are made after the
fork; only what its imports would cost is spared. A line of JSON on standard input, an answer on standard output:
{"argv": [...], "env": {...}, "log": file} → the pid of a process that runs this script; {"pid": n} → its exit code as
subprocess gives it, or null while it lives. Until then its pid is nobody else's. All end with this process's parent.
"""

import gc
import importlib
import json
import os
import runpy
import sys

import httpx  # noqa: F401

import semel.store.postgres
import semel.store.sqlite
import semel.testing.provider
import semel.worker  # noqa: F401
from semel.supervise import die_with_parent


def become(task: dict) -> list[str]:
    """In the child: its own environment, and its own standard files. The arguments of the script to run."""
    nothing, log = os.open(os.devnull, os.O_RDONLY), os.open(task["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for own, standard in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(own, standard)
    os.close(nothing)
    os.close(log)
    os.environ.clear()
    os.environ.update(task["env"])
    argv = task["argv"]
    sys.path[0:1] = [os.path.dirname(argv[0]), *task["env"].get("PYTHONPATH", "").split(os.pathsep)]  # noqa: PTH120
    return argv


def serve() -> list[str]:
    """Until standard input ends. In a child: the arguments of its script."""
    for line in sys.stdin:
        task = json.loads(line)
        if "argv" in task:
            answer = os.fork()
            if not answer:
                return become(task)
        else:
            pid, status = os.waitpid(task["pid"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        print(json.dumps(answer), flush=True)
    return []


if __name__ == "__main__":
    die_with_parent(int(os.environ["NURSERY_PARENT"]))
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()  # the pages stay shared
    if argv := serve():
        sys.argv = argv
        runpy.run_path(argv[0], run_name="__main__")

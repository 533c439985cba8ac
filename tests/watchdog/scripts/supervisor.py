"""`supervisor.py MODE DIRECTORY PROCESSES`: supervises worker.py, or as noted."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from semel.errors import Misuse
from semel.supervise import die_with_parent, supervise
from semel.watchdog import Watchdog, read_stat

WORKER = Path(__file__).with_name("worker.py")


def callable_worker() -> int:
    if not Path("first").exists():
        Path("first").write_text(os.environ["SEMEL_SUPERVISOR"])
        raise ValueError("the first one fails")
    Path("second").write_text(f"{os.getppid()} {os.getpgrp() == os.getpid()} {os.environ['EXTRA']}")
    raise SystemExit(0)


def with_children_before() -> int:
    """A child that the caller had, and a zombie of the caller's, are no business of ours."""
    mine = subprocess.Popen(["sleep", "60"])
    dead = subprocess.Popen(["true"])
    time.sleep(0.1)
    code = supervise([sys.executable, "-S", str(WORKER), "ending", "."], 1)
    alive = mine.poll() is None
    mine.kill()
    flag = ctypes.c_int(7)
    ctypes.CDLL(None).prctl(37, ctypes.byref(flag), 0, 0, 0)
    restored = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and flag.value == 0
    return code if alive and dead.wait() == 0 and restored else 50


def raising_report() -> int:
    """One worker dies, and telling so raises; the other one is not to outlive the supervision."""

    def work() -> int:
        try:
            Path("taken").mkdir()
        except FileExistsError:
            return 1
        time.sleep(60)
        return 0

    def report(line: str) -> None:
        if "exited with" in line:
            raise RuntimeError("report failed")

    try:
        supervise(work, 2, report=report)
    except RuntimeError:
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 42
    return 0


def chain() -> int:
    """The first worker leaves ten sessions, each the parent of the next: the kernel hands us one after the other."""

    def work() -> int:
        if Path("pids").exists():
            states = [read_stat(int(pid)) for pid in Path("pids").read_text().split()]
            Path("second").write_text(repr([stat.state for stat in states if stat and stat.state not in "ZX"]))
            return 0
        read, write = os.pipe()
        for _ in range(10):
            if os.fork():
                break
            os.setsid()
            os.write(write, f"{os.getpid()} ".encode())
        else:
            os.write(write, b"end")
        if os.getppid() == int(os.environ["SEMEL_SUPERVISOR"]):
            said = b""
            while not said.endswith(b"end"):
                said += os.read(read, 100)
            Path("pids").write_text(said.removesuffix(b"end").decode())
            return 1
        time.sleep(60)
        return 0

    return supervise(work, 1)


def parent_and_worker() -> int:
    """die_with_parent alone, in a process that forks and then waits."""
    expected = os.getpid()
    pid = os.fork()
    if pid == 0:
        die_with_parent(expected)
        Path("pid").write_text(str(os.getpid()))
        time.sleep(60)
    time.sleep(60)
    return 0


def wrong_parent() -> int:
    die_with_parent(os.getppid() + 1)
    return 50


def first_process() -> int:
    """As PID 1 of a namespace, where a worker is not PID 1 and so can be killed by its timer."""

    def work() -> int:
        Path("seen").write_text(f"{os.getppid()} {Watchdog(True).available}")
        return 0

    try:
        return supervise(work, 1)
    except Misuse:
        return 42


if __name__ == "__main__":
    mode, directory, processes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.chdir(directory)
    if mode in globals():
        sys.exit(supervise(callable_worker, processes, env={"EXTRA": "yes"}) if mode == "callable_worker" else globals()[mode]())
    argv = ["semel-no-such-command"] if mode == "missing" else [sys.executable, "-S", str(WORKER), mode, "."]
    sys.exit(supervise(argv, processes))

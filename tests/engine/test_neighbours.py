"""The end of another process of this machine: a hint, told once."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from semel.engine.neighbours import Neighbours
from semel.store.contract import SessionRow
from semel.watchdog import Identity


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def row(pid: int, session: str) -> SessionRow:
    own = Identity.own()
    return SessionRow(session, 0, "n", 1000, 0, own.host, own.boot_id, own.pid_ns, own.time_ns, pid, 1, "", 0)


def test_an_end_is_told_once_also_of_a_zombie_and_nothing_is_left_open() -> None:
    before = descriptors()
    process, known = subprocess.Popen(["sleep", "600"]), Neighbours()
    try:
        rows = [row(process.pid, "a")]
        known.know(rows, Identity.own())
        assert not known.has_lost_one()
        process.kill()
        end = time.monotonic() + 20
        while not known.has_lost_one():
            assert time.monotonic() < end
            time.sleep(0.01)
        for _ in range(3):  # not waited for, so its number still stands
            known.know(rows, Identity.own())
            assert not known.has_lost_one()
        known.know([row(os.getpid(), "b")], Identity.own())
        assert descriptors() == before + 1
    finally:
        process.kill()
        process.wait()
    del known
    assert descriptors() == before


def test_processes_of_another_world_are_not_asked_after() -> None:
    known, before = Neighbours(), descriptors()
    known.know([row(os.getpid(), "a")._replace(host="elsewhere"), row(0, "b"), row(2**22 + 1, "c")], Identity.own())
    assert descriptors() == before and not known.has_lost_one()


def test_a_fork_that_lets_go_of_them_closes_nothing_that_is_not_theirs() -> None:
    known = Neighbours()
    known.know([row(os.getppid(), "a")], Identity.own())
    (fd,) = known._fds.values()
    pid = os.fork()
    if pid == 0:
        other = os.open("/dev/null", os.O_RDONLY)
        os.dup2(other, fd)  # as a daemon that closed all, and opened files of its own
        del known
        try:
            os.fstat(fd)
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0

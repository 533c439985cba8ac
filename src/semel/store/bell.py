"""Hints between the processes of one SQLite file: who has queued something touches its log, and the kernel tells the others.

Nothing depends on them. Where there is no inotify, or a ring is lost, a worker finds the work at its next poll.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from semel.store.batch import queues
from semel.store.contract import Unit

COALESCE_SECONDS = 0.002
_IN_ATTRIB, _IN_CLOEXEC, _IN_NONBLOCK = 0x4, 0o2000000, 0o4000


class Bell:
    """Of one handle. Neither ringing nor hearing opens the file: closing another descriptor would drop SQLite's locks."""

    def __init__(self, log: Path | None) -> None:
        self._log = log
        self._told: Callable[[], None] | None = None
        self._ends: tuple[int, int] | None = None  # of inotify, and what ends the thread
        self._pid = os.getpid()
        self._rang = 0.0

    def ring(self, units: Iterable[Unit]) -> None:
        """These are committed: tell it if they have queued something."""
        if self._log is not None and any(map(queues, units)):
            self._rang = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self._log)

    def hear(self, told: Callable[[], None] | None) -> bool:
        """Have this called at each ring, one's own included; None: no more. False: nothing rings here."""
        self._told = told
        if told is None or self._log is None:
            return False
        if self._ends is None:
            fd = _watch(self._log)
            if fd < 0:
                return False
            self._ends = fd, os.eventfd(0, os.EFD_CLOEXEC)
            threading.Thread(target=self._listen, args=self._ends, name="semel-bell", daemon=True).start()
        return True

    def close(self) -> None:
        """Hear no more."""
        self._told, ends, self._ends = None, self._ends, None
        if ends is None:
            return
        if os.getpid() == self._pid:
            os.eventfd_write(ends[1], 1)  # the thread closes them
        else:
            for fd in ends:
                os.close(fd)

    def _listen(self, fd: int, end: int) -> None:
        poll = select.poll()
        for one in (fd, end):
            poll.register(one, select.POLLIN)
        try:
            while all(ready != end for ready, _ in poll.poll()):
                if time.monotonic() - self._rang < COALESCE_SECONDS:
                    time.sleep(COALESCE_SECONDS)  # most likely one's own: no hurry
                os.read(fd, 4096)
                if (told := self._told) is not None:
                    told()
                time.sleep(COALESCE_SECONDS)
        finally:
            for one in (fd, end):
                os.close(one)


def _watch(path: Path) -> int:
    """A descriptor on which the kernel tells when this file is touched; -1 where it cannot."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = int(libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK))
    except (OSError, AttributeError):
        return -1
    if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(path), _IN_ATTRIB) < 0:
        os.close(fd)
        return -1
    return fd

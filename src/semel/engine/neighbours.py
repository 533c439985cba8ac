"""The other processes of this machine that have a session: their end is a hint to look after them at once.

A hint and nothing more: what is fenced, and why, is decided by R14. Where the kernel has no pidfd, the next beat finds them.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import weakref
from collections.abc import Iterable

from semel.store.contract import SessionRow
from semel.watchdog import Identity

MOST = 256  # descriptors; who comes after these is found at a beat


class Neighbours:
    """A descriptor for each; one system call asks them all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fds: dict[str, int] = {}
        self._told: set[str] = set()  # whose end was told: if it cannot be proved, the beats decide
        self._poll = select.poll()
        weakref.finalize(self, _close, self._fds, os.getpid())

    def know(self, rows: Iterable[SessionRow], own: Identity) -> None:
        """These are all the sessions that live, but for our own."""
        here = {row.id: row.pid for row in rows if (row.boot_id, row.pid_ns, row.host) == (own.boot_id, own.pid_ns, own.host)}
        with self._lock:
            for session in self._fds.keys() - here.keys():
                self._forget(session)
            self._told &= here.keys()
            for session in here.keys() - self._fds.keys() - self._told:
                if len(self._fds) < MOST and own.pid_ns and here[session] > 0:
                    with contextlib.suppress(OSError, AttributeError, OverflowError):
                        self._fds[session] = fd = os.pidfd_open(here[session])
                        self._poll.register(fd, select.POLLIN)

    def has_lost_one(self) -> bool:
        """Whether one of them has ended since they were last made known; told once of each."""
        with self._lock:
            ended = {fd for fd, _ in self._poll.poll(0)} if self._fds else set()
            for session in [session for session, fd in self._fds.items() if fd in ended]:
                self._forget(session)
                self._told.add(session)
        return bool(ended)

    def close(self) -> None:
        """Know nobody any more."""
        with self._lock:
            for session in list(self._fds):
                self._forget(session)

    def _forget(self, session: str) -> None:
        fd = self._fds.pop(session)
        self._poll.unregister(fd)
        os.close(fd)


def _close(fds: dict[str, int], pid: int) -> None:
    if os.getpid() == pid:  # a fork may have given these numbers to other files by now
        for fd in fds.values():
            os.close(fd)

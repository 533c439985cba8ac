"""Hints that another process has written: LISTEN and NOTIFY on a connection of their own, outside every transaction.

Who queues something says so in the very trip that commits it, behind the COMMIT (within the transaction, all who notify would
commit one after the other). What is to be said besides, or too soon after the last hint, a thread says.

Nothing depends on them. A hint that is lost, or a listener that is dead, delays work by one poll of the worker at most.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable

import psycopg

from semel.errors import StoreUnavailable
from semel.store.pglink import Link, Raw

COALESCE_SECONDS = 0.02  # between two hints; and so long after a write that queued nothing: nobody waits for that
QUIET_SECONDS = 30.0
RETRY_SECONDS = 1.0
QUEUED = "queued"
FOR_EVER = float("inf")
FIRST_SECONDS = 1.0  # that the first question waits for the listener to come up
log = logging.getLogger("semel")


class Hints:
    """A thread that tells the others that this process wrote, and counts what it is told."""

    def __init__(self, link: Link | None) -> None:
        self._link = link  # None: a pool is in between, and LISTEN would hear nothing
        self._count = 0
        self._heard: Callable[[], None] | None = None
        self._pending = self._queued = False
        self._stopping = False
        self._last = self._since = 0.0  # when a hint was given, and when there was something to say
        self._rider, self._ride_after = 0, 0.0  # the server's process that says what rides with a commit; when it may again
        self._up_at = FOR_EVER  # when the thread looks by itself whether there is something to say
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake: tuple[socket.socket, socket.socket] | None = None
        self.listening = threading.Event()
        self._complained = False

    def changed(self) -> int:
        """Moves when another process has written. Without a listener it moves with time: look now and then."""
        if self._start():
            self.listening.wait(FIRST_SECONDS)
        return self._count if self.listening.is_set() else -1 - int(time.monotonic() * 4)

    def hear(self, told: Callable[[], None] | None) -> bool:
        """Have this called when another process says that it has queued something; False: nobody will say."""
        self._heard = told
        return told is not None and self._link is not None

    def tell(self, *, queued: bool) -> None:
        """This process has written, and maybe queued something; said soon, once for many."""
        urgent, self._queued = queued and not self._queued, self._queued or queued
        if self._pending and self.listening.is_set() and not urgent:
            return  # the thread has not said it yet, and will
        if not self._pending:
            self._since, self._pending = time.monotonic(), True
        self._start()
        if urgent or self._up_at > self._since + COALESCE_SECONDS:
            self._rouse()

    def riding(self, pid: int) -> str:
        """What says that something is queued, for whoever commits that on this process of the server to send behind the COMMIT;
        "": it is too soon."""
        self._rider = pid
        now = time.monotonic()
        quiet = now >= max(self._last + COALESCE_SECONDS, self._ride_after)
        return "notify_queued" if quiet and self._link is not None and not self._stopping else ""

    def rode(self, error: psycopg.Error | None) -> None:
        """It was sent, and so is said all that was to be said before; or it failed, and the thread says it."""
        if error is not None:  # somebody's NOTIFY is in the way, say: no commit waits for that again soon
            self._ride_after = time.monotonic() + RETRY_SECONDS
            self.tell(queued=True)
        else:
            self._pending, self._queued, self._last = False, False, time.monotonic()

    def close(self) -> None:
        """Say what has not been said, if that is possible, and end the thread."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        self._rouse()
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def _rouse(self) -> None:
        wake = self._wake
        if wake is not None:
            with contextlib.suppress(OSError):  # full: it will wake anyhow; closed: it has gone
                wake[1].send(b".")

    def abandon(self) -> None:
        """In a forked child, where the thread does not run."""
        self._stopping, self._thread, self._wake = True, None, None
        self.listening.clear()

    def _start(self) -> bool:
        """Whether it was started just now."""
        if self._thread is not None or self._stopping or self._link is None:
            return False
        with self._lock:
            if self._thread is not None or self._stopping:
                return False
            self._wake = socket.socketpair()
            for end in self._wake:
                end.setblocking(False)
            self._thread = threading.Thread(target=self._run, args=(self._link,), name="semel-hints", daemon=True)
            self._thread.start()
            return True

    def _run(self, link: Link) -> None:
        try:
            while not self._stopping:
                try:
                    self._listen(link)
                except (psycopg.Error, OSError, StoreUnavailable) as error:
                    if not self._complained and not self._stopping:
                        log.warning("semel: no hints from the store for now, polling alone: %s", error)
                        self._complained = True
                self.listening.clear()
                self._up_at = FOR_EVER
                link.drop()
                if not self._stopping:
                    self._await(None, RETRY_SECONDS)
        finally:
            self.listening.clear()
            wake, self._wake = self._wake, None
            for end in wake or ():
                end.close()

    def _listen(self, link: Link) -> None:
        link.pipe(("listen", None))
        raw = link._raw
        assert raw is not None
        own = raw.info.backend_pid
        raw.add_notify_handler(lambda told: self._told(told.pid not in (own, self._rider), told.payload))
        self._rider = 0  # a server that was started anew may have given its number to somebody else
        self._count += 1  # what was said before is lost
        self.listening.set()
        self._complained = False
        quiet = False
        while not self._stopping:
            quiet = not self._await(raw, self._rest(quiet))
            self._take(raw)
            if self._pending and (self._stopping or self._pause() <= 0):
                self._pending, self._last = False, time.monotonic()
                queued, self._queued = self._queued, False
                self._notify(link, "notify_queued" if queued else "notify")
                self._take(raw)

    def _rest(self, quiet: bool) -> float:
        """How long to wait for what comes. After anything did, not long: who hears of work writes soon, and need wake nobody."""
        self._up_at = FOR_EVER  # first: who has something to say from here on finds the time that holds, or wakes the thread
        seconds = self._pause()
        if seconds == QUIET_SECONDS and quiet:
            return seconds
        seconds = min(seconds, COALESCE_SECONDS)
        self._up_at = time.monotonic() + seconds
        return seconds

    def _pause(self) -> float:
        """For how long there is nothing to say."""
        if not self._pending:
            return QUIET_SECONDS
        said = self._last if self._queued else max(self._last, self._since)
        return max(0.0, said + COALESCE_SECONDS - time.monotonic())

    def _notify(self, link: Link, name: str) -> None:
        try:
            link.pipe((name, None))
        except psycopg.Error as error:
            if link.pid == 0:
                raise
            log.warning("semel: a hint could not be given (%s); others will poll", error)

    def _take(self, raw: Raw) -> None:
        raw.pgconn.consume_input()
        while told := raw.pgconn.notifies():
            self._told(told.be_pid not in (raw.info.backend_pid, self._rider), told.extra.decode(errors="replace"))

    def _told(self, by_another: bool, what: str) -> None:
        self._count += by_another
        if by_another and what == QUEUED and (heard := self._heard) is not None:
            heard()

    def _await(self, raw: Raw | None, seconds: float) -> bool:
        """Whether anything came."""
        wake = self._wake
        assert wake is not None
        watched = [wake[0].fileno()] if raw is None else [wake[0].fileno(), raw.fileno()]
        poll = select.poll()
        for end in watched:
            poll.register(end, select.POLLIN)
        ready = poll.poll(seconds * 1000)
        with contextlib.suppress(BlockingIOError):
            while wake[0].recv(4096):
                pass
        return bool(ready)

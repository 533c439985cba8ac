"""Hands records to observers, on a thread of its own: nothing of the work waits for them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from semel.observe import Commit, Observer, Record

MOST = 10_000  # records that wait
log = logging.getLogger("semel")


class Watch:
    """The queue and its thread. A record may be given as a function that makes it, which runs on that thread."""

    def __init__(self, observers: Sequence[Observer], most: int = MOST) -> None:
        self._observers = tuple(observers)
        self._waiting: deque[Callable[[], Record]] = deque()
        self._most = most
        self._wake = threading.Condition(threading.Lock())
        self._dropped, self._closing, self._busy = 0, False, False
        self._failed: set[int] = set()
        self._thread: threading.Thread | None = None

    def note(self, make: Callable[[], Record]) -> None:
        """Give a record; never waits."""
        with self._wake:
            if self._closing:
                return
            if len(self._waiting) >= self._most:
                self._dropped += 1
                return
            self._waiting.append(make)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="semel-observe", daemon=True)
                self._thread.start()
            self._wake.notify()

    def close(self, seconds: float = 2.0) -> None:
        """Hand over what waits, for so long at most, and stop."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def flush(self, seconds: float = 2.0) -> bool:
        """Wait until all that was given by now has been handed over; False: the time was over first."""
        until = time.monotonic() + seconds
        with self._wake:
            while self._waiting or self._busy:
                if not self._wake.wait(until - time.monotonic()):
                    return False
        return True

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            make, dropped = taken
            try:
                record = make()
            except Exception:
                log.exception("semel: a record for observers could not be made")
                continue
            if dropped and isinstance(record, Commit):
                record = replace(record, dropped=dropped)
            for n, observer in enumerate(self._observers):
                self._hand(n, observer, record)

    def _take(self) -> tuple[Callable[[], Record], int] | None:
        with self._wake:
            self._busy = False
            self._wake.notify_all()
            while not self._waiting:
                if self._closing:
                    return None
                self._wake.wait()
            self._busy = True
            dropped, self._dropped = self._dropped, 0
            return self._waiting.popleft(), dropped

    def _hand(self, n: int, observer: Observer, record: Record) -> None:
        try:
            observer(record)
        except Exception:  # said once for each: a broken observer must not fill the log
            if n not in self._failed:
                self._failed.add(n)
                log.exception("semel: an observer failed; it is called on, and its further errors are not logged")

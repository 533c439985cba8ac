"""The store's epoch as this process last read it, read again now and then: a person may have closed the window, or lifted
the doubt. And what people have paused, read before each claim."""

from __future__ import annotations

import logging
import threading
import time

from semel.errors import StoreUnavailable
from semel.machine import epochs, pauses
from semel.machine.journal import GENESIS
from semel.machine.pauses import Pause, Pauses
from semel.store.contract import Head, Store

AGAIN_SECONDS = 30.0
WINDOW_SECONDS = 1.0  # the same, while the window is open
log = logging.getLogger("semel")


class Standing:
    """What is known of the store's epoch. It may be behind: then more is in doubt than must be, and never less."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: tuple[Head, epochs.Epoch] | None = None  # where its stream stood, and what it said: put down at once
        self._read_at = 0.0
        self._reading = threading.Lock()

    @property
    def epoch(self) -> epochs.Epoch:
        """As last read."""
        return self._known[1] if self._known is not None else self.read()

    def read(self) -> epochs.Epoch:
        """As it is now."""
        rows = self._store.rows(epochs.TENANT, epochs.STREAM)
        found = epochs.fold(rows)
        self._read_at = time.monotonic()
        self._known = Head(rows[-1].seq, rows[-1].hash) if rows else Head(0, GENESIS), found
        return found

    def stands(self, head: Head) -> None:
        """The stream stands there now: read it, unless it stood there when it was read (each hash covers all before it)."""
        if self._known is not None and self._known[0] == head:
            self._read_at = time.monotonic()
        else:
            self.read()

    def keep_up(self) -> epochs.Epoch:
        """As last read; read again soon, on another thread, if that was long ago."""
        found = self.epoch
        age = time.monotonic() - self._read_at
        if age > (WINDOW_SECONDS if found.window else AGAIN_SECONDS) and self._reading.acquire(blocking=False):
            threading.Thread(target=self._read_soon, name="semel-standing", daemon=True).start()
        return found

    def _read_soon(self) -> None:
        try:
            self.read()
        except StoreUnavailable:
            self._read_at = time.monotonic()  # later
        except Exception:
            log.exception("semel: the store's epoch cannot be read")
        finally:
            self._reading.release()


class Paused:
    """As this process knows it; one read of a head tells whether there is more to read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._state = Pauses()
        self._lock = threading.Lock()

    def since_now(self, seconds: float) -> Since:
        """For a claim: what is paused, read when it is first asked, and again when it is asked later than that."""
        return Since(self, seconds)

    def at(self, version: int) -> Pauses | None:
        """What is paused if the stream stands there; None: it must be read."""
        known = self._state
        return known if known.version == version else None

    def now(self) -> Pauses:
        """What is paused now."""
        with self._lock:
            if self._store.head(pauses.TENANT, pauses.STREAM).seq != self._state.version:
                self._state = pauses.fold(self._store.rows(pauses.TENANT, pauses.STREAM))
            return self._state


class Since:
    """What is paused, for the tasks that one claim asks for."""

    def __init__(self, paused: Paused, seconds: float) -> None:
        self._paused, self._seconds = paused, seconds
        self._state, self._at = Pauses(), float("-inf")

    def stood(self, version: int, at: float) -> None:
        """The store has told where the stream stood, unasked, once the tasks had been found. If that is news, it is read."""
        known = self._paused.at(version)
        self._state, self._at = (known, at) if known is not None else (self._state, float("-inf"))

    def of(self, queue: str, *kinds: str) -> Pause | None:
        """Why a task of that queue and kind is not to be claimed."""
        now = time.monotonic()
        if now - self._at > self._seconds:
            self._state, self._at = self._paused.now(), now
        return self._state.of(queue, *kinds)

"""A forked child closes the SQLite connections that it inherited, before it opens its own.

SQLite keeps one book of locks for each file and process, and a child inherits the book but not the locks: its own new
connections would believe in locks that the kernel never gave it. It was tried: once the parent was gone, another process
that came and went deleted the log under the child, and what the child had been acknowledged was lost. Closing is safe if
no transaction is under way, so a fork waits for a quiet moment. A child that execs another program is not concerned.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from semel.errors import StoreUnavailable

PATIENCE_SECONDS = 30.0
log = logging.getLogger("semel")


class Forkable(Protocol):
    """A store that a fork may meet. locks: held while a transaction is under way. file: device and inode."""

    @property
    def locks(self) -> Sequence[Any]: ...
    @property
    def file(self) -> tuple[int, int] | None: ...
    def close(self) -> None: ...


lock = threading.RLock()  # held while a store opens or closes, and during a fork
_open: weakref.WeakSet[Forkable] = weakref.WeakSet()
_holding: list[Any] = []
_restless: list[Forkable] = []
_left_behind: list[Forkable] = []  # inherited in the middle of a transaction: neither used nor closed


def opened(store: Forkable) -> None:
    """From now on a fork takes heed of it."""
    with lock:
        _open.add(store)


def closed(store: Forkable) -> None:
    """It holds no connection any more."""
    with lock:
        _open.discard(store)


def check(path: Path) -> None:
    """Raise `StoreUnavailable` where this process, a forked child, cannot open the file without losing commits."""
    try:
        named = path.stat()
    except OSError:
        return
    if any(store.file == (named.st_dev, named.st_ino) for store in _left_behind):
        raise StoreUnavailable(
            f"this process was forked while its parent wrote to {path}, and cannot open it again; start it by exec or spawn"
        )


def _before() -> None:
    lock.acquire()
    for store in list(_open):
        for held in store.locks:
            if held.acquire(timeout=PATIENCE_SECONDS):
                _holding.append(held)
            else:
                _restless.append(store)
                break


def _after() -> None:
    while _holding:
        _holding.pop().release()
    _restless.clear()
    lock.release()


def _after_in_child() -> None:
    _left_behind.extend(_restless)
    for store in list(_open):
        if store in _restless:
            continue
        try:
            store.close()
        except Exception:
            log.exception("semel: a connection inherited by a fork could not be closed")
            _left_behind.append(store)
    _open.clear()
    _after()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)

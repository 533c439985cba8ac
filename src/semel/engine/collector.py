"""The garbage collector beside many attempts: it looks through the same living objects less often."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

OWN = (700, 2000)  # the first thresholds that a Python comes with; who has set another has their reasons
EACH = 100  # about so many objects are held for an attempt under way, and let go of without the collector
MOST = 1_000_000  # a concurrency without measure says nothing of what is held, and what lies in cycles must not fill the memory

Thresholds = tuple[int, int, int]
_lock = threading.RLock()  # the collector itself may end one that was left in the middle, on the thread that holds it
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
_asked: list[int] = []  # by each who is at it now
_raised: list[tuple[Thresholds, Thresholds]] = []  # what was there, and what we have set; one at most
_unseen: list[int] = []  # changes of `_asked` that are not seen to yet
os.register_at_fork(after_in_child=_unseen.clear)


@contextlib.contextmanager
def beside(attempts: int) -> Iterator[None]:
    """While so many attempts may run at a time, the collector waits for so many more objects than died.

    Else what hundreds of attempts hold is walked again and again, and nothing of it is garbage: that was up to a third of
    the work. What the user's code leaves in cycles is still found, in the same measure for each attempt. Of several who are
    at it the one that asks for most counts, and what was there before comes back when the last of them ends.
    """
    wanted = min(EACH * attempts, MOST)
    with _lock:
        _asked.append(wanted)
        _adjust()
    try:
        yield
    finally:
        with _lock:
            _asked.remove(wanted)
            _adjust()


def _adjust() -> None:
    """See to what is asked for now; who comes in between, on the same thread, leaves it to whoever is at it."""
    if _unseen:
        _unseen.append(1)
        return
    _unseen.append(1)
    try:
        while _unseen:
            seen = len(_unseen)
            _set()
            del _unseen[:seen]
    finally:
        _unseen.clear()


def _set() -> None:
    now: Thresholds = gc.get_threshold()
    if _raised and _raised[0][1] != now:  # somebody has set another meanwhile
        _raised.clear()
    if not _raised and (not gc.isenabled() or now[0] not in OWN):
        return
    before = _raised[0][0] if _raised else now
    most = max(_asked, default=0)
    after = (max(most, before[0]), *before[1:])
    _raised[:] = [(before, after)] if after != before else []
    if after != now:
        gc.set_threshold(*after)

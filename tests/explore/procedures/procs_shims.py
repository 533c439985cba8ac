"""What the engine takes from outside of itself (ids, random bytes, threads, other processes), played so that runs repeat.

Nothing of the engine's own is replaced. `playing()` puts the shims in place, and takes them away again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from semel.watchdog import Identity

if TYPE_CHECKING:
    from procs_world import World

_here: list[World] = []  # the world that is being played now


def here() -> World:
    """The world that is being played."""
    return _here[-1]


def enter(world: World) -> None:
    """From now on this one is."""
    _here[:] = [world]


class NoThread:
    """A thread that never runs: the explorer decides when a session beats and looks after others."""

    def __init__(self, **_: Any) -> None: ...

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...


class LifeIdentity(Identity):
    """A process of the world: its number is the life's."""

    @classmethod
    def own(cls) -> Identity:
        return Identity("boot", 1, 1, here().opening_pid, 1, "host")


def _proved_dead(other: Identity, own: Identity) -> bool:
    return here().proved_dead(other.pid)


def _bytes(count: int) -> bytes:
    return here().number().to_bytes(count, "big")


@contextlib.contextmanager
def playing() -> Iterator[None]:
    """The engine under the shims."""
    threads = SimpleNamespace(
        Lock=threading.Lock,
        RLock=threading.RLock,
        Event=threading.Event,
        Thread=NoThread,
        current_thread=threading.current_thread,
    )
    shims: dict[str, Any] = {
        "semel.engine.session.threading": threads,
        "semel.engine.session.uuid_utils": SimpleNamespace(uuid7=lambda: here().opening_name),
        "semel.engine.session.os": SimpleNamespace(urandom=_bytes),
        "semel.engine.session.Identity": LifeIdentity,
        "semel.engine.session.proof_of_death": _proved_dead,
        "semel.engine.arrival.Identity": LifeIdentity,
        "semel.engine.arrival.proof_of_death": _proved_dead,
        "semel.engine.queue.uuid_utils": SimpleNamespace(uuid7=lambda: here().opening_name),
        "semel.engine.ledger._random": SimpleNamespace(eight=lambda: _bytes(8)),
        "semel.engine.attempt.random": SimpleNamespace(random=lambda: 0.0),
    }
    log = logging.getLogger("semel")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        with contextlib.ExitStack() as stack:
            for name, shim in shims.items():
                stack.enter_context(patch(name, shim))
            yield
    finally:
        log.setLevel(before)
        _here.clear()

"""Machines that come to a store: a witness file of their own, and a clock that stands still until the test moves it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from going_back import TTL_MS, Place

from semel.engine import declare
from semel.engine.clock import Clock
from semel.engine.queue import Order, accepted, enqueue
from semel.engine.runtime import Runtime
from semel.errors import StoreUnavailable
from semel.machine import epochs
from semel.machine import journal as j
from semel.store import witness
from semel.store.places import open_store

TTL = TTL_MS / 1000


class StillClock(Clock):
    """What is measured moves when the test says so; what is written down is the real time."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__()

    def boot(self) -> float:
        return self.now


class Machine:
    """One machine: processes of it share a folder of witnesses (None: the usual place). Time passes when its clock is moved."""

    def __init__(self, place: Place, folder: Path | None, patch: pytest.MonkeyPatch) -> None:
        self.place, self.folder, self._patch = place, folder, patch
        self.clock = StillClock()
        self.processes: list[Runtime] = []

    def process(self, *, url: str = "") -> Runtime:
        """Start one; it has come to the store, and opened no session yet."""
        self._patch.delenv(witness.VARIABLE, raising=False)
        if self.folder is not None:
            self._patch.setenv(witness.VARIABLE, str(self.folder))
        effects: declare.Registry[declare.Effect] = declare.Registry("effect")
        made = Runtime(open_store(url or self.place.url), effects, ttl=TTL, kernel_timer=False, clock=self.clock)
        self.processes.append(made)
        return made

    @property
    def file(self) -> Path:
        """Its witness file."""
        assert self.folder is not None
        (found,) = self.folder.glob("*.json")
        return found

    def end(self) -> None:
        """All its processes end."""
        for process in self.processes:
            process.close()
        self.processes.clear()


def says(process: Runtime) -> str:
    """Ask for a session: "" if there is one, else why not."""
    try:
        process.session()
    except StoreUnavailable as error:
        return str(error)
    return ""


def watched(process: Runtime, most: float = 60.0, step: float = 0.5) -> float:
    """Seconds that the process had to watch until it had its session."""
    clock = process.desk.clock
    assert isinstance(clock, StillClock)
    began = clock.now
    while said := says(process):
        assert "restore --old-is-down" not in said, said
        assert clock.now - began < most, said
        clock.now += step
    return clock.now - began


def accept(process: Runtime, key: str) -> str:
    """Enqueue a task; its id."""
    task, ticket = enqueue(process.desk, Order("default", "bill", key, {}, "default"))
    ticket.wait(10)
    return accepted(task, ticket.value)


def epoch_of(process: Runtime) -> epochs.Epoch:
    """As the store tells."""
    return epochs.fold(process.desk.store.rows(epochs.TENANT, epochs.STREAM))


def began(process: Runtime) -> list[j.Row]:
    """The rows of the store's own stream that began an epoch."""
    return [row for row in process.desk.store.rows(epochs.TENANT, epochs.STREAM) if row.kind == j.EpochBegan.kind]


def until(what: str, true: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait for what other threads do."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)
    return found

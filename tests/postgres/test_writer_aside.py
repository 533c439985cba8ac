"""The writer sets aside what waits for a lock, and what stands behind it in its streams: in order, and nobody waits with it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from rivals import Rival, until

from semel.errors import StoreUnavailable
from semel.store.contract import Busy, Change, Landed, Outcome, Unit
from semel.store.postgres import Postgres
from semel.store.writer import Writer
from semel.testing.conformance_kit import TENANT, Stream, task


class Locked:
    """Enough of a store: everything in the streams `held` is busy, until they are let go."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.landed: list[str] = []
        self.tries = 0
        self.lock = threading.Lock()

    def commit(self, units: Sequence[Unit]) -> list[Outcome]:
        with self.lock:
            outcomes: list[Outcome] = []
            for unit in units:
                assert isinstance(unit, Change)
                busy = any(part.stream in self.held for part in unit.parts)
                self.tries += busy
                outcomes.append(Busy() if busy else Landed())
                self.landed += [] if busy else [unit.id]
            return outcomes


def test_what_is_busy_is_tried_again_and_keeps_its_order() -> None:
    store = Locked()
    store.held = {"s"}
    writer = Writer(store)  # type: ignore[arg-type]
    first, s = Stream("s").then()
    held = [writer.submit(first)]
    until(lambda: store.tries, "it was tried")
    for _ in range(3):
        change, s = s.then()
        held.append(writer.submit(change))
    free = [writer.submit(Stream(f"t{n}").then()[0]) for n in range(5)]
    assert all(ticket.wait(10) and ticket.value == Landed() for ticket in free)
    barrier = writer.barrier()
    assert writer.submit(Stream("t9").then()[0]).wait(10), "nobody else waits behind a barrier"
    assert not barrier.is_set, "what was submitted before it has not been answered"
    assert not any(ticket.is_set for ticket in held)
    tries = store.tries
    until(lambda: store.tries > tries, "it is tried again, with nobody else to commit")
    with store.lock:
        store.held, store.landed = set(), []
    assert all(ticket.wait(10) and ticket.value == Landed() for ticket in held)
    assert barrier.wait(10)
    assert [id for id in store.landed if id] == [ticket.unit.id for ticket in held]  # type: ignore[union-attr]
    writer.close()


@pytest.mark.parametrize("closes", [True, False])
def test_nobody_waits_for_ever(closes: bool) -> None:
    store = Locked()
    store.held = {"s"}
    writer = Writer(store, patience=60.0 if closes else 0.3)  # type: ignore[arg-type]
    ticket = writer.submit(Stream("s").then()[0])
    until(lambda: store.tries, "it was tried")
    if closes:
        writer.close()
    assert ticket.wait(10)
    assert isinstance(ticket.value, StoreUnavailable)
    assert "another transaction" in str(ticket.value)
    if not closes:
        assert writer.submit(Stream("t").then()[0]).wait(10), "the writer goes on"
        writer.close()


def test_an_enqueue_of_a_key_that_a_user_holds_delays_itself_alone(database: str, rival: Rival) -> None:
    store = Postgres(database)
    writer = Writer(store)
    change, known = task("held")
    assert change.create is not None
    rival.raw.execute("INSERT INTO semel.task_key VALUES (%s, %s, %s, 'theirs')", change.create[:3])
    held = writer.submit(change)
    others = [writer.submit(task(f"k{n}")[0]) for n in range(50)]
    assert all(ticket.wait(20) and ticket.value == Landed() for ticket in others)
    assert not held.is_set
    rival.raw.rollback()
    assert held.wait(20)
    assert held.value == Landed()
    assert store.find_task(TENANT, known.state.kind, "held") == known.state.id
    writer.close()
    store.close()

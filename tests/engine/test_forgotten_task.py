"""A store that went back beneath an open task, and holds nothing of it any more."""

from __future__ import annotations

import pytest

from semel.engine import drive
from semel.engine.clock import Clock
from semel.engine.ledger import Desk, Ledger
from semel.engine.queue import Order, enqueue
from semel.engine.standing import Standing
from semel.errors import StoreUnavailable
from semel.machine import tasks
from semel.store.sqlite import SQLite
from semel.store.writer import Writer


def test_a_task_of_which_the_store_holds_nothing_any_more_is_told_of_as_such() -> None:
    store = SQLite(":memory:")
    empty = store._writer.raw.serialize("main")
    desk = Desk(store, Writer(store), Clock(), Standing(store))
    try:
        task, ticket = enqueue(desk, Order("acme", "job", "k", None, "default"))
        assert ticket.wait(10)
        ledger = Ledger.read(desk, "acme", task, "test")
        assert ledger is not None
        store._writer.raw.deserialize("main", empty)
        with pytest.raises(StoreUnavailable, match="went back: it holds nothing of task"):
            drive.run(ledger.commit(tasks.Cancel("no more", desk.clock.wall_ms())))
    finally:
        desk.writer.close()
        store.close()

"""A store that went back beneath an open task, and holds nothing of it any more."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from semel.engine import drive
from semel.engine.clock import Clock
from semel.engine.ledger import Desk, Ledger
from semel.engine.queue import Order, enqueue
from semel.engine.retention import prune
from semel.engine.standing import Standing
from semel.errors import StoreUnavailable
from semel.machine import effects as e
from semel.machine import tasks
from semel.store.sqlite import SQLite
from semel.store.witness import Witness
from semel.store.writer import Writer


def put_in_place(store: SQLite, image: bytes) -> None:
    """As another connection would."""
    store._writer.raw.deserialize("main", image)
    store._writing._version = None


def test_a_task_of_which_the_store_holds_nothing_any_more_is_told_of_as_such() -> None:
    store = SQLite(":memory:")
    empty = store._writer.raw.serialize("main")
    desk = Desk(store, Writer(store), Clock(), Standing(store))
    try:
        task, ticket = enqueue(desk, Order("acme", "job", "k", None, "default"))
        assert ticket.wait(10)
        ledger = Ledger.read(desk, "acme", task, "test")
        assert ledger is not None
        put_in_place(store, empty)
        with pytest.raises(StoreUnavailable, match="went back: it holds nothing of task"):
            drive.run(ledger.commit(tasks.Cancel("no more", desk.clock.wall_ms())))
    finally:
        desk.writer.close()
        store.close()


@pytest.mark.parametrize("scope", ["task", "tenant"])
def test_a_row_that_was_acknowledged_and_is_gone_shows_that_the_store_went_back(
    scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMEL_WITNESS", str(tmp_path))
    store = SQLite(":memory:")
    witness = Witness(store.info._replace(place="agent.db"), store.missing)
    witness.trusted = True
    desk = Desk(store, Writer(store, committed=witness.committed), Clock(), Standing(store), None, witness.lost)
    try:
        task, ticket = enqueue(desk, Order("acme", "job", "k", None, "default"))
        assert ticket.wait(10)
        ledger = Ledger.read(desk, "acme", task, "test")
        assert ledger is not None
        drive.run(ledger.commit(tasks.Claim("s", 1, desk.clock.wall_ms(), direct=True)))
        token = ledger.state.token
        images = [store._writer.raw.serialize("main")]
        intend = e.Intend("key", "pay", {}, "d", "m", task, 1, token, "s", recovery=("ask",), timeout_ms=1000)
        assert isinstance(drive.run(ledger.commit(intend, scope=scope)), e.Decision)
        effect = ledger.effect("key")
        assert effect is not None
        token = effect.open[0].token
        images.append(store._writer.raw.serialize("main"))
        assert isinstance(drive.run(ledger.commit(e.Lose("key", 1, token, "no answer", ended=False), scope=scope)), e.Decision)
        put_in_place(store, images[1] if scope == "tenant" else images[0])  # the key's stream alone is short, or the task's is
        with pytest.raises(StoreUnavailable, match="went back: it does not hold row"):
            drive.run(ledger.commit(e.Confirm("key", 1, token, "done"), scope=scope))
        assert store.missing(witness.seen) and witness.gone
        held = store.rows("acme", task)
        with pytest.raises(StoreUnavailable, match="went back"):
            drive.run(ledger.commit(tasks.Suspend(token, "nobody but a person can tell", "key")))
        ledger.post(tasks.Suspend(token, "?", "key"))
        desk.writer.barrier().wait(10)
        assert store.rows("acme", task) == held, "on what was known here nothing more is decided"
        enqueue(desk, Order("acme", "job", "other", None, "default"))[1].wait(10)
        assert store.missing(witness.seen), "what lands since does not take its place"
    finally:
        desk.writer.close()
        store.close()


def test_a_row_that_was_acknowledged_and_then_pruned_is_no_sign_that_the_store_went_back(tmp_path: Path) -> None:
    """As when code that hung says at last how it ended, and a person has settled and pruned its task meanwhile."""
    store = SQLite(":memory:")
    told: list[object] = []
    desk = Desk(store, Writer(store), Clock(), Standing(store), None, lambda row, epoch: told.append(row))
    try:
        task, ticket = enqueue(desk, Order("acme", "job", "k", None, "default"))
        assert ticket.wait(10)
        hangs = Ledger.read(desk, "acme", task, "test")
        assert hangs is not None
        drive.run(hangs.commit(tasks.Claim("s", 1, desk.clock.wall_ms(), direct=True)))
        token = hangs.state.token
        drive.run(hangs.commit(e.Intend("key", "pay", {}, "d", "m", task, 1, token, "s", recovery=("ask",), timeout_ms=1000)))
        others = Ledger.read(desk, "acme", task, "test")
        assert others is not None
        drive.run(others.commit(e.Confirm("key", 1, others.state.effects["key"].open[0].token, "done")))
        drive.run(others.commit(tasks.Finish(token)))
        assert prune(desk, None, older_than=timedelta(0), export=tmp_path / "rows.jsonl", by="ann").tasks == 1
        drive.run(hangs.commit(e.Confirm("key", 1, token, "done")))
        assert not told and store.rows("acme", task)[0].kind == "pruned"
    finally:
        desk.writer.close()
        store.close()


def test_what_another_process_has_pruned_is_not_lost() -> None:
    store = SQLite(":memory:")
    lost: list[object] = []
    desk = Desk(store, Writer(store), Clock(), Standing(store), None, lambda row, epoch: lost.append(row))
    try:
        task, ticket = enqueue(desk, Order("acme", "job", "k", None, "default"))
        assert ticket.wait(10)
        ledger = Ledger.read(desk, "acme", task, "test")
        assert ledger is not None
        drive.run(ledger.commit(tasks.Cancel("no more", desk.clock.wall_ms())))
        rows = store.rows("acme", task)
        other = Ledger.read(desk, "acme", task, "another")
        assert other is not None
        drive.run(other.commit(tasks.Prune(len(rows), rows[-1].hash.hex(), "old", True)))
        assert [row.kind for row in store.rows("acme", task)] == ["pruned"]
        ledger.refresh()
        assert ledger.state.delivery == "acknowledged" and lost == []
    finally:
        desk.writer.close()
        store.close()

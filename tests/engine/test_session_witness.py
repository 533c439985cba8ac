"""A session whose store went back, as another process of its machine has put on file (R19)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from semel.engine.clock import Clock
from semel.engine.ledger import Desk
from semel.engine.session import Learnt, Session
from semel.engine.standing import Standing
from semel.store.contract import Witnessed
from semel.store.sqlite import SQLite
from semel.store.witness import Witness
from semel.store.writer import Writer
from semel.watchdog import Watchdog


def test_no_beat_waits_for_a_long_read(tmp_path: Path) -> None:
    store = SQLite(str(tmp_path / "agent.db"))
    answered: list[str] = []
    asking = threading.Thread(target=lambda: answered.append(store.missing(Witnessed(store.info.epoch, None, ("s", 1)))))
    try:
        with store._reader.lock:
            asking.start()
            asking.join(5)
            assert answered == ["beat 1 of session s"]
    finally:
        asking.join()
        store.close()


def test_who_learns_from_anothers_witness_that_the_store_went_back_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMEL_WITNESS", str(tmp_path))
    store = SQLite(":memory:")
    store.info = store.info._replace(place="agent.db")
    fenced: list[str] = []
    witness = Witness(store.info, store.missing)
    witness.trusted = True
    desk = Desk(store, Writer(store), Clock(), Standing(store))
    session = Session(
        desk, ttl=8.0, watchdog=Watchdog(False), on_fenced=fenced.append, learnt=Learnt(desk.clock), witness=witness
    )
    session._run = lambda: None  # type: ignore[method-assign]
    session._tend_on = lambda: None  # type: ignore[method-assign]
    monkeypatch.setattr(store, "reread", lambda: store.info)
    try:
        session.start()
        assert session._beat()
        session.tend()
        assert fenced == []
        other = Witness(store.info, lambda seen: "row 7 of t9")
        other.trusted = True
        other.adopt(Witnessed(store.info.epoch, ("acme", "t9", 7, bytes(32)), None, 10))
        other.testify()
        before = session._deadline
        assert session._beat()
        assert session._deadline == before, "its lease does not go on"
        assert fenced == ["the store went back: it does not hold row 7 of t9, which another process here saw acknowledged"]
    finally:
        session.stop(leave=False)
        desk.writer.close()
        store.close()


def test_a_session_whose_process_knows_that_the_store_went_back_does_not_live_on() -> None:
    store = SQLite(":memory:")
    fenced: list[str] = []
    witness = Witness(store.info, store.missing)
    desk = Desk(store, Writer(store), Clock(), Standing(store))
    session = Session(
        desk, ttl=8.0, watchdog=Watchdog(False), on_fenced=fenced.append, learnt=Learnt(desk.clock), witness=witness
    )
    session._run = lambda: None  # type: ignore[method-assign]
    try:
        session.start()
        witness.gone = "row 3 of t1"
        assert session._beat()
        assert fenced == ["the store went back: it does not hold row 3 of t1, which it had acknowledged"]
    finally:
        session.stop(leave=False)
        desk.writer.close()
        store.close()

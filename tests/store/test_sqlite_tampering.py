"""What the schema itself refuses, and what is found when somebody went past it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from semel.machine import journal as j
from semel.machine.projection import Tables
from semel.store.contract import Broken, Fenced, Landed
from semel.store.sqlite import SQLite
from semel.testing.conformance_kit import TENANT, Stream, commit, one, session
from semel.testing.conformance_tables import ALL, HELD, READY, TASK, UNKNOWN, sizes, write


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLite]:
    store = SQLite(str(tmp_path / "store.db"))
    write(store, ALL)
    yield store
    store.close()


@pytest.fixture
def raw(store: SQLite) -> Iterator[apsw.Connection]:
    """Somebody else's connection to the file."""
    raw = apsw.Connection(store.place)
    yield raw
    raw.close()


COLUMNS = "tenant, stream, seq, kind, actor, token, at, body, id, hash"


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE journal SET body = '{}'",
        "UPDATE journal SET seq = seq + 1",
        "UPDATE OR IGNORE journal SET actor = 'x'",
        "DELETE FROM journal",
        f"INSERT OR REPLACE INTO journal SELECT {COLUMNS} FROM journal",
        "REPLACE INTO journal SELECT tenant, stream, seq, 'void', actor, token, at, '', id, hash FROM journal",
        f"INSERT INTO journal SELECT {COLUMNS} FROM journal WHERE true ON CONFLICT DO UPDATE SET body = '{{}}'",
        f"INSERT INTO journal SELECT {COLUMNS} FROM journal",
    ],
)
@pytest.mark.parametrize("recursive", ["ON", "OFF"])
def test_the_journal_is_insert_only(store: SQLite, raw: apsw.Connection, sql: str, recursive: str) -> None:
    before = store.rows(TENANT, "tables")
    raw.execute(f"PRAGMA recursive_triggers={recursive}")
    with pytest.raises(apsw.ConstraintError, match=r"insert only|UNIQUE"):
        raw.execute(sql)
    assert store.rows(TENANT, "tables") == before


def test_columns_take_their_types_alone(raw: apsw.Connection) -> None:
    for sql in (
        "UPDATE task SET token = 'x'", "UPDATE ready SET due = NULL", "UPDATE effect SET version = 1.5",
        "UPDATE session SET beat = 'x'", "INSERT INTO inflight VALUES (NULL, 'a', 'b')",
        "INSERT INTO journal VALUES ('t', 's', 'one', 'void', 'x', 0, 0, '{}', 'x', x'00')",
        "INSERT INTO journal VALUES ('t', 's', 1, 'void', 'x', 0, 0, '{}', 'x', 'text')",
    ):  # fmt: skip
        raw.execute("INSERT OR IGNORE INTO session VALUES ('s', 0, 'n', 1, 1, '', '', 0, 0, 0, 0, '', 0)")
        with pytest.raises(apsw.ConstraintError):
            raw.execute(sql)


def without_triggers(raw: apsw.Connection) -> None:
    for name in ("updated", "deleted", "replaced"):
        raw.execute(f"DROP TRIGGER journal_is_never_{name}")


def test_a_row_changed_behind_the_triggers_breaks_the_chain(store: SQLite, raw: apsw.Connection) -> None:
    assert one(store, Stream("s").then(j.Void(), j.Void(), j.Void())[0]) == Landed()
    assert j.broken(store.rows(TENANT, "s")) is None
    without_triggers(raw)
    raw.execute("UPDATE journal SET actor = 'nobody' WHERE stream = 's' AND seq = 2")
    assert "row 2 (void) was changed" in str(j.broken(store.rows(TENANT, "s")))
    raw.execute("UPDATE journal SET actor = 'kit' WHERE stream = 's' AND seq = 2")
    assert j.broken(store.rows(TENANT, "s")) is None
    raw.execute("DELETE FROM journal WHERE stream = 's' AND seq = 2")
    assert "row 2 is missing" in str(j.broken(store.rows(TENANT, "s")))


def test_a_change_does_not_land_on_a_row_that_was_changed(store: SQLite, raw: apsw.Connection) -> None:
    change, stream = Stream("s").then()
    assert one(store, change) == Landed()
    without_triggers(raw)
    raw.execute("UPDATE journal SET hash = zeroblob(32) WHERE stream = 's'")
    assert one(store, stream.then()[0]) != Landed()


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("UPDATE task SET delivery = 'acknowledged'", "task row is"),
        ("UPDATE task SET unknown = 0", "task row is"),
        ("DELETE FROM task", "task row is None"),
        ("DELETE FROM ready", "ready row is missing"),
        ("UPDATE ready SET due = due + 1", "ready row is missing"),
        ("DELETE FROM inflight", "inflight row is missing"),
        ("UPDATE effect SET state = 'confirmed'", "effect row is"),
        ("DELETE FROM effect", "effect row is None"),
        ("UPDATE unknown SET since = 1", "unknown row is"),
        ("DELETE FROM unknown", "unknown row is None"),
    ],
)
def test_a_projection_that_was_changed_is_told(store: SQLite, raw: apsw.Connection, sql: str, told: str) -> None:
    assert store.holds(ALL) == []
    raw.execute(sql)
    (wrong,) = store.holds(ALL)
    assert wrong.startswith(told)


def test_a_pointer_too_many_shows_in_the_sizes(store: SQLite, raw: apsw.Connection) -> None:
    assert sizes(store, task=1, ready=1, inflight=1, effect=1, unknown=1)
    raw.execute("INSERT INTO ready VALUES ('q', 'k', 0, 0, 't', 'ghost')")
    raw.execute("INSERT INTO unknown VALUES ('t', 'ghost', 't', 'n', 0)")
    assert store.holds(ALL) == []
    assert sizes(store, task=1, ready=2, inflight=1, effect=1, unknown=2)


@pytest.mark.parametrize("tables", [Tables(ready=READY), Tables(inflight=HELD), Tables(unknown=(UNKNOWN,))])
def test_a_pointer_that_is_there_already_breaks_its_own_change_alone(store: SQLite, tables: Tables) -> None:
    good, bad, more = (Stream(name).then(tables=t)[0] for name, t in (("a", Tables()), ("b", tables), ("c", Tables())))
    outcomes = commit(store, good, bad, more)
    assert [type(outcome) for outcome in outcomes] == [Landed, Broken, Landed]
    assert isinstance(one(store, bad), Broken)
    assert not store._writer.raw.in_transaction, "nobody else would get the lock"
    assert store.head(TENANT, "b").seq == 0
    assert store.holds(ALL) == []


@pytest.mark.parametrize("token", [1 << 63, "nine", None, 1.5, "\ud800"])
def test_a_value_that_the_database_cannot_hold_breaks_its_own_change_alone(store: SQLite, token: object) -> None:
    row = TASK._replace(token=token)  # type: ignore[arg-type]
    changes = [Stream(f"s{n}").then(tables=Tables(task=row) if n == 3 else Tables())[0] for n in range(8)]
    outcomes = commit(store, *changes)
    assert [type(outcome) for outcome in outcomes] == [Landed if n != 3 else Broken for n in range(8)]
    assert store.task(TENANT, "t1") == TASK


def test_a_beat_ends_with_its_epoch(store: SQLite, raw: apsw.Connection) -> None:
    guard = session(store)
    assert store.beat(guard.session, ["n0"], "n1", 1)
    raw.execute("UPDATE meta SET value = value + 1 WHERE name = 'epoch'")
    assert not store.beat(guard.session, ["n1"], "n2", 2)
    assert one(store, Stream("s").then(guard=guard)[0]) != Landed()


def test_a_store_that_went_back_fences_those_who_remember_more(store: SQLite, raw: apsw.Connection) -> None:
    guard = session(store)
    assert store.beat(guard.session, ["n0"], "n1", 1)
    raw.execute("UPDATE session SET beat = 0, nonce = 'n0'")
    outcome = one(store, Stream("s").then(guard=replace(guard, beat=1))[0])
    assert isinstance(outcome, Fenced)
    assert "went back" in outcome.why
    assert not store.beat(guard.session, ["n1"], "n2", 2)


def test_only_what_stands_before_a_tombstone_may_be_deleted(store: SQLite, raw: apsw.Connection) -> None:
    change, stream = Stream("s").then(j.Void(), j.Void())
    other, _ = Stream("s2").then(j.Void(), j.Void())
    assert one(store, change) == one(store, other) == Landed()
    stone, after = stream.then(j.Pruned(2, stream.head.hash.hex()))
    assert one(store, stone) == Landed()
    assert one(store, after.then()[0]) == Landed()
    before = store.rows(TENANT, "s"), store.rows(TENANT, "s2")
    assert [row.seq for row in before[0]] == [3, 4]
    for where in ("stream = 's' AND seq = 3", "stream = 's' AND seq = 4", "stream = 's2'"):
        with pytest.raises(apsw.ConstraintError, match="insert only"):
            raw.execute(f"DELETE FROM journal WHERE {where}")
    assert (store.rows(TENANT, "s"), store.rows(TENANT, "s2")) == before

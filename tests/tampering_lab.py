"""A store with some work in it, and somebody who may write to its tables past semel; the same on both databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import semel
from semel.machine import journal as j
from semel.machine.journal import Row

Execute = Callable[..., list[Any]]  # SQL with {s} before each table, and values for its {v}
COLUMNS = "tenant, stream, seq, kind, actor, token, at, body, id, hash"
MIXED = ("journal", "task", "task_key", "ready", "inflight", "effect", "unknown")


def shop(url: str) -> tuple[semel.App, Any]:
    """An app and its task."""
    app = semel.App(url, watchdog="never")

    @app.effect(intent=("ref",))
    def pay(submission: semel.Submission, ref: str, cents: int) -> str:
        if ref == "cut":
            raise TimeoutError("no answer")
        return f"paid {ref}"

    @app.effect(intent=("who",), scope="tenant")
    def greet(submission: semel.Submission, who: str) -> None: ...

    @app.task()
    def bill(ref: str) -> str:
        greet("bob")
        return str(pay(ref, 1200))

    return app, bill


def work_on(url: str) -> None:
    """One task more, and the first is run once more."""
    app, bill = shop(url)
    assert bill.using(key="k5").run("r5") == "paid r5"
    app.review.replay(app.tasks.list(kind="bill", limit=10)[-1].id, by="ann")
    app.close()


def work(url: str) -> None:
    """Tasks that are done (k1, k2), blocked on an unknown (k3), and not due yet (k4); and one key of the tenant's."""
    app, bill = shop(url)
    try:
        for key, ref in (("k1", "r1"), ("k2", "r2")):
            assert bill.using(key=key).run(ref) == f"paid {ref}"
        try:
            bill.using(key="k3").run("cut")
            raise AssertionError("it was cut")
        except semel.Unsettled:
            pass
        bill.using(key="k4", run_at=datetime.now(UTC) + timedelta(days=1)).enqueue("r4")
    finally:
        app.close()


def stream_of(run: Execute, key: str) -> str:
    """The stream of a task, by its key."""
    ((task,),) = run("SELECT task FROM {s}task_key WHERE key = {v}", key)
    return str(task)


def rows_of(run: Execute, stream: str) -> list[Row]:
    """As they stand."""
    found = run(f"SELECT {COLUMNS} FROM {{s}}journal WHERE stream = {{v}} ORDER BY seq", stream)
    return [Row(*row[:9], bytes(row[9])) for row in found]


def put(run: Execute, row: Row) -> None:
    """Insert it as it is."""
    values = [getattr(row, name) for name in COLUMNS.split(", ")]
    run(f"INSERT INTO {{s}}journal ({COLUMNS}) VALUES ({', '.join(['{v}'] * 10)})", *values)


def write_anew(run: Execute, stream: str, old: str, new: str) -> None:
    """The whole history, with other words in it, and every hash made anew: nothing inside of the store can show that."""
    rows = rows_of(run, stream)
    assert any(old in row.body for row in rows)
    run("DELETE FROM {s}journal WHERE stream = {v}", stream)
    previous = j.GENESIS
    for row in rows:
        columns = {name: getattr(row, name) for name in COLUMNS.split(", ")[:9]} | {"body": row.body.replace(old, new)}
        previous = j.chain(previous, **columns)
        put(run, Row(**columns, hash=previous))


def append(run: Execute, stream: str, *events: j.Happened, at: int | None = None) -> None:
    """Rows that are chained as they should be, by somebody who knows how; of tables nothing is told."""
    rows = rows_of(run, stream)
    seq, previous = (rows[-1].seq, rows[-1].hash) if rows else (0, j.GENESIS)
    when = at if at is not None else rows[-1].at
    for row in j.seal(events, tenant="default", stream=stream, seq=seq, previous=previous, actor="eve", token=0, at=when, id="x"):
        put(run, row)


def swap(run: Execute, stream: str) -> None:
    for old, new in ((2, -1), (3, 2), (-1, 3)):
        run("UPDATE {s}journal SET seq = {v} WHERE stream = {v} AND seq = {v}", new, stream, old)


def insert(run: Execute, stream: str) -> None:
    """A row in the middle; those after it move on by one."""
    copy = rows_of(run, stream)[1]
    run("UPDATE {s}journal SET seq = seq + 1000 WHERE stream = {v} AND seq >= 3", stream)
    run("UPDATE {s}journal SET seq = seq - 999 WHERE stream = {v} AND seq >= 1000", stream)
    columns = {name: getattr(copy, name) for name in COLUMNS.split(", ")[:9]} | {"seq": 3}
    put(run, Row(**columns, hash=j.chain(copy.hash, **columns)))


def erase(run: Execute, stream: str) -> None:
    """A task as if it had never been, in every table: its tenant's key stays, which has a stream of its own."""
    run("DELETE FROM {s}journal WHERE stream = {v}", stream)
    for table in ("task", "task_key", "effect", "unknown"):
        run(f"DELETE FROM {{s}}{table} WHERE task = {{v}}" + (f" AND stream = '{stream}'" if table == "effect" else ""), stream)


@dataclass(frozen=True)
class Tampering:
    """name. do: it, to the stream of k1. what, words: as it is named by `audit verify`. signed: only signed heads show it."""

    name: str
    do: Callable[[Execute, str], object]
    what: str
    words: str
    signed: bool = False


def by(sql: str) -> Callable[[Execute, str], object]:
    """One statement; {b}: the stream of k1."""
    return lambda run, stream: run(sql.replace("{b}", f"'{stream}'"))


TAMPERINGS = (
    Tampering("a changed row", by("UPDATE {s}journal SET body = replace(body, 'r1', 'r9') WHERE stream = {b} AND seq = 1"),
              "changed", "row 1 (enqueued) was changed"),
    Tampering("another actor", by("UPDATE {s}journal SET actor = 'person:eve' WHERE stream = {b} AND seq = 2"),
              "changed", "row 2 (claimed) was changed"),
    Tampering("a removed row", by("DELETE FROM {s}journal WHERE stream = {b} AND seq = 3"), "removed", "row 3 is missing"),
    Tampering("rows in another order", swap, "moved", "was written as row 3"),
    Tampering("an inserted row", insert, "inserted", "row 3 (claimed) was inserted"),
    Tampering("a truncated stream", by("DELETE FROM {s}journal WHERE stream = {b} AND kind = 'finished'"),
              "truncated", "the last rows are missing"),
    Tampering("rows added past semel", lambda run, stream: append(run, stream, j.Cancelled("by eve")),
              "added", "its table knows nothing after row"),
    Tampering("a stream that tells of another's task",
              lambda run, stream: append(run, "elsewhere", j.Enqueued("another", "bill", "k9", {}), at=1),
              "fold", "the stream tells of task 'another'"),
    Tampering("an edited task", by("UPDATE {s}task SET delivery = 'queued' WHERE task = {b}"),
              "table", "delivery is 'queued', the journal says 'acknowledged'"),
    Tampering("an edited effect", by("UPDATE {s}effect SET state = 'not_attempted' WHERE stream = {b}"),
              "table", "state is 'not_attempted', the journal says 'confirmed'"),
    Tampering("a key given to another task", by("UPDATE {s}task_key SET task = 'another' WHERE task = {b}"),
              "key", "the key 'k1' of bill belongs to another"),
    Tampering("a key taken", by("INSERT INTO {s}task_key VALUES ('default', 'bill', 'k9', 't')"), "size", "table task_key has 5"),
    Tampering("a task hidden from workers", by("DELETE FROM {s}ready"), "table", "so nobody claims it"),
    Tampering("a task offered again", by("INSERT INTO {s}ready VALUES ('default', 'bill', 0, 1, 'default', {b})"),
              "size", "table ready has 2 rows, the journal tells of 1"),
    Tampering("a lease out of nothing", by("INSERT INTO {s}inflight VALUES ('s', 'default', {b})"),
              "size", "table inflight has 1 rows"),
    Tampering("an unknown taken from the queue", by("DELETE FROM {s}unknown"), "table", "and the queue does not say so"),
    Tampering("an unknown out of nothing", by("INSERT INTO {s}unknown VALUES ('default', 'sml_x', 't', 'theft', 1)"),
              "table", "this theft is not unknown"),
    Tampering("a history written anew", lambda run, stream: write_anew(run, stream, '"r1"', '"r9"'),
              "rewritten", "is not the one that was signed", signed=True),
    Tampering("a task as if it had never been", erase, "removed", "the whole stream is missing", signed=True),
    Tampering("a stream of another place, and of before", lambda run, stream: append(run, "elsewhere", j.Void(), at=1),
              "foreign", "the stream is not among them", signed=True),
    Tampering("another store in its place", by("UPDATE {s}meta SET value = 'b5c1' WHERE name = 'id'"),
              "replaced", "another store is in its place", signed=True),
)  # fmt: skip

"""Accepting a task inside a transaction that is the caller's own: `task.using(transaction=...).enqueue(...)`.

Nothing here begins, commits or rolls back, and no savepoint is made: what is asked before anything is written raises no
error in the database (the caller's transaction would be lost with it), and the key is inserted with ON CONFLICT DO NOTHING.
What is written, and on what condition, is decided by `Batch` and said by `statements_of`, as for the writer's own commits.
No row is locked that others write; an uncommitted key makes others wait who enqueue that very key. No NOTIFY: it would
take a lock of the whole database at the caller's commit, and fail it when the queue is full; workers look every second.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from semel.errors import Misuse, StoreUnavailable
from semel.store.batch import Batch, Facts
from semel.store.contract import Change, Exists, Landed, Outcome, StoreInfo
from semel.store.pglink import SQL, Call
from semel.store.pgwrite import statements_of

TRIES = 3  # of which each means that the key was taken, and then was not there to be read
TAKES = "a psycopg connection, or a SQLAlchemy Connection or Session (async ones too) over postgresql+psycopg"
Rows = list[tuple[Any, ...]]


def accept(info: StoreInfo, change: Change, transaction: Any) -> Outcome:
    """Accept a task in the transaction that is open on a connection, or begins there now.

    Landed: it will be real with the caller's commit. Exists: its key is that task's. Raises `Misuse` where nothing was
    asked of the database, and psycopg's errors, which end the caller's transaction as any failed statement does.
    """
    if isinstance(transaction, psycopg.AsyncConnection) or hasattr(transaction, "run_sync"):
        raise Misuse(f"transaction= is a {_kind(transaction)}, whose statements are awaited; write: await ...aenqueue(...)")
    raw = _raw(transaction)
    if not isinstance(raw, psycopg.Connection):
        raise _no_connection(transaction)
    _check(raw)
    procedure, rows = accepting(info, change), None
    with _Cursor(raw, row_factory=tuple_row) as cursor:
        while True:
            try:
                name, params = procedure.send(rows)  # type: ignore[arg-type]
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            cursor.execute(SQL[name], params, prepare=False)
            rows = cursor.fetchall() if cursor.description else []


async def aaccept(info: StoreInfo, change: Change, transaction: Any) -> Outcome:
    """The awaitable twin of `accept`."""
    if hasattr(transaction, "run_sync"):
        raw = await transaction.run_sync(_raw)
    else:
        raw = transaction
    if not isinstance(raw, psycopg.AsyncConnection):
        if isinstance(_raw(transaction), psycopg.Connection):
            raise Misuse(
                f"transaction= is a {_kind(transaction)}, whose statements would hold up the event loop; hand over an async "
                f"one, or write enqueue(...) in code that runs in a thread"
            )
        raise _no_connection(transaction)
    _check(raw)
    procedure, rows = accepting(info, change), None
    async with _AsyncCursor(raw, row_factory=tuple_row) as cursor:
        while True:
            try:
                name, params = procedure.send(rows)  # type: ignore[arg-type]
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            await cursor.execute(SQL[name], params, prepare=False)
            rows = await cursor.fetchall() if cursor.description else []


def accepting(info: StoreInfo, change: Change) -> Generator[Call, Rows, Outcome]:
    """What is asked and written, a statement at a time. It asks for rows, and knows no colour."""
    assert change.create is not None
    there, open_to_us = (yield ("borrowed_schema", None))[0]
    if not there:
        raise _elsewhere(info)
    if not open_to_us:
        raise Misuse(
            f"this connection's role may not use the schema semel in {info.place}; grant it to that role: "
            f"GRANT USAGE ON SCHEMA semel, and SELECT, INSERT and UPDATE on its tables"
        )
    tenant, kind, key, _ = change.create
    for _ in range(TRIES):
        found = (yield ("borrowed_key", {"tenant": tenant, "kind": kind, "key": key}))[0]
        store, taken = (value.decode() if isinstance(value, bytes) else value for value in found)  # of SQL_ASCII
        if store != info.id:
            raise _elsewhere(info)
        batch = Batch(Facts(keys={(tenant, kind, key): taken} if taken else {}))
        outcome = batch.change(change)
        writes = batch.writes()
        if isinstance(outcome, Exists) or writes is None:
            return outcome
        first, *rest = statements_of(writes)
        assert first[0] == "insert_key", "a task that is new gives up no place in the queue"
        if (yield ("borrowed_insert_key", first[1])):
            for call in rest:  # noqa: UP028 - a list takes no answers
                yield call
            return Landed()
    raise StoreUnavailable(f"the key {key!r} is taken, and whoever took it cannot be read; roll back, and enqueue it again")


# --- whose connection it is ---


def _raw(transaction: Any) -> Any:
    """The driver's connection under a psycopg or SQLAlchemy one, whose transaction has begun in SQLAlchemy's eyes too.

    SQLAlchemy commits nothing on a connection of which it does not know that something was done there.
    """
    if callable(getattr(transaction, "connection", None)):  # a Session
        transaction = transaction.connection()
    if callable(begun := getattr(transaction, "in_transaction", None)) and not begun():
        transaction.begin()
    pooled = getattr(transaction, "connection", None)
    return getattr(pooled, "driver_connection", transaction)


def _check(raw: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    status = raw.info.transaction_status
    if raw.closed or status is TransactionStatus.UNKNOWN:
        raise Misuse("transaction= is a connection that is closed; enqueue before it is, or without transaction=")
    if status is TransactionStatus.INERROR:
        raise Misuse("a statement of this transaction has failed, and it can only be rolled back; roll back, and begin again")
    if status is TransactionStatus.ACTIVE:
        raise Misuse("this connection is in the middle of something (a COPY, a pipeline); enqueue when that has ended")
    if raw.autocommit and status is TransactionStatus.IDLE:
        raise Misuse(
            "this connection is in autocommit mode and no transaction is open, so a part of a task could be committed; "
            "enqueue within: with connection.transaction():"
        )


def _kind(transaction: Any) -> str:
    return f"{type(transaction).__module__.partition('.')[0]} {type(transaction).__name__}"


def _no_connection(transaction: Any) -> Misuse:
    return Misuse(f"transaction= is a {_kind(transaction)}, in which this store cannot write; hand over {TAKES}")


def _elsewhere(info: StoreInfo) -> Misuse:
    return Misuse(
        f"this connection is to another database than the store, {info.place}: they would not commit together; connect "
        f"it to that database, or enqueue after your commit, with a key"
    )


# --- a cursor on which the caller's adapters and factories change nothing ---


class _Plain:
    """Values are read and written as psycopg does by itself, whatever the connection's owner has registered."""

    def __init__(self, connection: Any, *, row_factory: Any) -> None:
        super().__init__(connection, row_factory=row_factory)  # type: ignore[call-arg]
        self._adapters = AdaptersMap(psycopg.adapters)


class _Cursor(_Plain, psycopg.Cursor[tuple[Any, ...]]):
    """Of a psycopg.Connection."""


class _AsyncCursor(_Plain, psycopg.AsyncCursor[tuple[Any, ...]]):
    """Of a psycopg.AsyncConnection."""

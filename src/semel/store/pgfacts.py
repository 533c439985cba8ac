"""Asking a PostgreSQL server how it is. Nothing is changed, and nothing is made."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from psycopg import errors

from semel.errors import StoreUnavailable
from semel.store.health import PostgresFacts, Slot, Snapshot, Standby, StoreFacts, TableFacts
from semel.store.pglink import Link, Target, target, text_array

SETTINGS = (
    "server_version", "server_version_num", "server_encoding", "fsync", "full_page_writes", "synchronous_commit",
    "synchronous_standby_names", "wal_level", "autovacuum", "max_connections", "superuser_reserved_connections",
    "transaction_read_only", "max_prepared_transactions",
)  # fmt: skip
ASKED = 5  # times for the clock: the quickest answer is the most exact one
PATIENCE_SECONDS = 15.0


def examine(url: str) -> PostgresFacts:
    """Ask the server that a URL names. Raises `StoreUnavailable` if it does not answer, `Misuse` for what is no URL."""
    where = target(url)
    link = _reached(where, "target_session_attrs" not in url)
    try:
        with link.answered():
            return _facts(link, where)
    finally:
        link.close()


def _reached(where: Target, anywhere: bool) -> Link:
    """A connection that keeps no state, as if a pool were in between; to a server that only reads, if there is no other."""
    link = Link(replace(where, pgbouncer=True), "doctor", patience=PATIENCE_SECONDS, settings={})
    try:
        with link.answered():
            link.pipe(("doctor_now", None))
        return link
    except StoreUnavailable:
        link.close()
        if not anywhere:
            raise
    params = {**where.params, "target_session_attrs": "any"}
    return Link(replace(where, pgbouncer=True, params=params), "doctor", patience=PATIENCE_SECONDS, settings={})


def _facts(link: Link, where: Target) -> PostgresFacts:
    ((backend, role, in_recovery, sees_all, there, frozen_age, size),) = _rows(link, "doctor_here")
    ahead, round_trip = _clock(link)
    (connections,) = _rows(link, "doctor_connections")[0]
    found = PostgresFacts(
        place=where.place,
        now=time.time_ns() // 1_000_000,
        settings=dict(_rows(link, "doctor_settings", {"names": text_array(SETTINGS)})),
        role=role,
        sees_all=sees_all,
        in_recovery=in_recovery,
        ahead_ms=ahead,
        round_trip_ms=round_trip,
        pooled=backend != link.pid,
        says_pooled=where.pgbouncer,
        frozen_age=frozen_age,
        size_bytes=size,
        connections=connections,
        standbys=tuple(Standby(*row) for row in _rows(link, "doctor_standbys")),
        snapshot=next((Snapshot(*row) for row in _rows(link, "doctor_snapshot")), None),
        prepared=next(((str(gid), int(age)) for gid, age in _rows(link, "doctor_prepared")), None),
        slots=tuple(Slot(*row) for row in _rows(link, "doctor_slots")),
        tables=tuple(TableFacts(*row) for row in _rows(link, "doctor_tables")),
    )
    return _with_store(link, found) if there else found


def _rows(link: Link, name: str, params: Any = None) -> list[Any]:
    return link.pipe((name, params))[0].rows


def _clock(link: Link) -> tuple[int, int]:
    """How far the server's clock is ahead, by the middle of the quickest round trip, and how long that took."""
    best: tuple[int, int] | None = None
    for _ in range(ASKED):
        sent = time.time_ns()
        began = time.monotonic_ns()
        ((theirs,),) = _rows(link, "doctor_now")
        took = (time.monotonic_ns() - began) // 1_000_000
        if best is None or took < best[1]:
            best = theirs - (sent // 1_000_000 + took // 2), took
    assert best is not None
    return best


def _with_store(link: Link, found: PostgresFacts) -> PostgresFacts:
    try:
        meta = dict(_rows(link, "meta"))
        store = StoreFacts(int(meta.get("schema", "0")), int(meta.get("epoch", "0")), *_rows(link, "doctor_store")[0])
        tenant = _rows(link, "whose")[0][1] if store.schema > 1 else None
    except (errors.InsufficientPrivilege, errors.UndefinedTable, errors.UndefinedFunction, errors.UndefinedColumn) as error:
        return replace(found, why_no_store=str(error).splitlines()[0])
    return replace(found, store=store, tenant=tenant)

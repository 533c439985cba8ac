"""Pruning on PostgreSQL: the trigger's one exception, and the roles of tenants, who have no part in it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import errors
from tenant_roles import role_of

import semel
from semel.machine import journal as j
from semel.store.contract import Landed
from semel.store.pglink import target
from semel.store.postgres import Postgres
from semel.testing.conformance_kit import TENANT, Stream, one

COUNT = "SELECT count(*) FROM semel.journal"


def plain_url(url: str) -> str:
    return psycopg.conninfo.make_conninfo("", **{k: v for k, v in target(url).params.items() if k != "target_session_attrs"})


def filled(store: Postgres) -> None:
    """One stream with a tombstone and a row behind it, one without."""
    for name in ("s", "s2"):
        change, stream = Stream(name).then(j.Void(), j.Void())
        assert one(store, change) == Landed()
        if name == "s":
            stone, stream = stream.then(j.Pruned(2, stream.head.hash.hex()))
            assert one(store, stone) == Landed()
            assert one(store, stream.then()[0]) == Landed()


def test_only_what_stands_before_a_tombstone_may_be_deleted(make_store: Callable[[], Postgres], database: str) -> None:
    filled(make_store())
    with psycopg.connect(database, autocommit=True) as raw:
        assert raw.execute(COUNT).fetchone() == (4,)
        for sql in (
            "DELETE FROM semel.journal WHERE stream = 's' AND seq = 3",
            "DELETE FROM semel.journal WHERE stream = 's' AND seq = 4",
            "DELETE FROM semel.journal WHERE stream = 's2'",
            "TRUNCATE semel.journal",
            "UPDATE semel.journal SET seq = seq + 10",
        ):
            with pytest.raises(errors.IntegrityConstraintViolation, match="insert only"):
                raw.execute(sql.encode())
        assert raw.execute(COUNT).fetchone() == (4,)


def test_a_tenants_role_deletes_nothing_not_even_behind_a_tombstone_of_its_own(database: str, tmp_path: Path) -> None:
    Postgres(database).close()
    with role_of(database, TENANT) as url:
        store = Postgres(url)
        change, stream = Stream("s").then(j.Void(), j.Void())
        assert one(store, change) == Landed()
        assert one(store, stream.then(j.Void())[0]) == Landed()
        with psycopg.connect(plain_url(url), autocommit=True) as raw:
            columns = "tenant, stream, 9, 'pruned', actor, 0, 0, '{}', 'x', hash"
            raw.execute(f"INSERT INTO semel.journal SELECT {columns} FROM semel.journal WHERE seq = 1".encode())
            with pytest.raises(errors.InsufficientPrivilege):
                raw.execute("DELETE FROM semel.journal WHERE seq < 9")
        store.close()
        app = semel.App(url, tenant=TENANT)
        with pytest.raises(semel.Misuse, match="take nothing out of it"):
            app.review.prune(older_than=timedelta(0), export=tmp_path / "x", by="ann")
        app.close()
    assert not (tmp_path / "x").exists()

"""A store of an older schema becomes one of this, with its work in it, whoever comes first."""

from __future__ import annotations

import threading

import psycopg
import pytest
from psycopg import sql
from rivals import Doing
from tenant_roles import role_of

from semel.cli.verify import verify
from semel.errors import Misuse
from semel.store import pgschema
from semel.store.contract import Landed, SessionRow
from semel.store.pgclaims import Floors
from semel.store.pglink import Link, target
from semel.store.pgwrite import Transaction
from semel.store.postgres import Postgres
from semel.store.sqlfile import text
from semel.testing.conformance_kit import AT, TENANT, claimed, claiming, one, session, task

MINE, THEIRS = TENANT, "globex"


def version_one(url: str) -> None:
    """A store as version 1 made it, with work in it."""
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("CREATE SCHEMA semel")
        raw.execute('CREATE TABLE semel.meta (name text COLLATE "C" PRIMARY KEY, value text NOT NULL)')
        raw.execute(text(pgschema.MIGRATIONS[1]).encode())
        for pair in (("schema", "1"), ("id", "a"), ("application", "b"), ("epoch", "1700000000")):
            raw.execute("INSERT INTO semel.meta VALUES (%s, %s)", pair)
    link = Link(target(url), "old", patience=10, settings={})
    row = SessionRow("old", 0, "n0", 15_000, 1_700_000_000, "host", "boot", 1, 2, 3, 4, "", AT)
    link.transaction(("open_session", tuple(row)))
    changes = [task(f"k{n}", tenant=name, id=f"{name}-{n}")[0] for n in range(20) for name in (MINE, THEIRS)]
    Transaction(link, Floors(), doubt=False, wait_ms=0).run(changes)
    link.close()


def test_a_store_of_version_one_is_upgraded_with_its_work_by_ten_at_once(empty_database: str) -> None:
    version_one(empty_database)
    together = threading.Barrier(10)

    def start() -> Postgres:
        together.wait()
        return Postgres(empty_database)

    handles = [doing.result(60) for doing in [Doing(start) for _ in range(10)]]
    store = handles[0]
    assert {handle.info[:3] for handle in handles} == {("a", "b", 1_700_000_000)}
    assert store.sizes()["task"] == store.sizes()["ready"] == 40 and verify(store).wrong == []
    assert [row.id for row in store.sessions()] == ["old"]
    assert store.beat("old", ["n0"], "n1", 1) and len(claimed(one(store, claiming(session(store), limit=100)))) == 40
    with psycopg.connect(empty_database) as raw:
        assert raw.execute("SELECT value FROM semel.meta WHERE name = 'schema'").fetchone() == (str(pgschema.SCHEMA),)
        assert raw.execute("SELECT DISTINCT tenant FROM semel.session").fetchall() == [("",)]
        room = "SELECT relname::text FROM pg_class WHERE reloptions @> '{fillfactor=50}' ORDER BY 1"
        assert raw.execute(room).fetchall() == [("effect",), ("session",), ("task",)]
    with role_of(empty_database, MINE) as mine:
        own = Postgres(mine)
        assert own.sizes()["task"] == 20
        assert {row.id for row in own.sessions()} == {row.id for row in store.sessions()}, "they work for all"
        own.close()
    for handle in handles:
        handle.close()


def test_an_owner_of_the_schema_needs_no_right_to_make_one(empty_database: str) -> None:
    with role_of(empty_database, None) as owner, psycopg.connect(empty_database, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE SCHEMA semel AUTHORIZATION {}").format(sql.Identifier(target(owner).params["user"])))
        store = Postgres(owner)
        assert one(store, task("k")[0]) == Landed() and store.info.tenant is None
        store.close()
        admin.execute("DROP SCHEMA semel CASCADE")


def test_a_role_that_may_not_upgrade_is_told_of_semel_migrate(empty_database: str) -> None:
    version_one(empty_database)
    with role_of(empty_database, None) as nobody, psycopg.connect(empty_database, autocommit=True) as admin:
        role = sql.Identifier(target(nobody).params["user"])
        admin.execute(sql.SQL("GRANT USAGE ON SCHEMA semel TO {}").format(role))
        admin.execute(sql.SQL("GRANT ALL ON ALL TABLES IN SCHEMA semel TO {}").format(role))
        with pytest.raises(Misuse, match="run once with an owner's URL: semel migrate"):
            Postgres(nobody)
        assert admin.execute("SELECT value FROM semel.meta WHERE name = 'schema'").fetchone() == ("1",)
        admin.execute("DROP SCHEMA semel CASCADE")

"""Enqueueing in the caller's own transaction: it is real with the caller's commit, and a rollback leaves nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.adapt import Dumper
from psycopg.rows import dict_row
from rivals import Doing, until
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tenant_roles import role_of

import semel
from semel.machine import journal as j
from semel.store.postgres import Postgres
from semel.store.writer import Writer
from semel.testing.conformance_kit import claimed, claiming, one, session
from semel.testing.conformance_kit import task as new_task


@pytest.fixture(autouse=True)
def kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process saw of a store is kept in a file (R19): here, with the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def app(database: str) -> Iterator[semel.App]:
    made = semel.App(database)
    assert made.tasks.list() == []  # the schema is there
    yield made
    made.close()


@pytest.fixture
def bill(app: semel.App) -> Any:
    @app.task(intent=("invoice",), queue="q", name="bill")
    def bill(invoice: str) -> str:
        return invoice

    return bill


@pytest.fixture
def own(database: str) -> Iterator[psycopg.Connection[Any]]:
    """The caller's own connection, with a table of the caller's own."""
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("DROP TABLE IF EXISTS public.orders; CREATE TABLE public.orders (id text PRIMARY KEY)")
    found = psycopg.connect(database)
    yield found
    found.close()


def sqlalchemy_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def orders(app: semel.App, own: psycopg.Connection[Any]) -> list[tuple[str, ...]]:
    found = psycopg.Cursor(own).execute("SELECT id FROM public.orders").fetchall()
    own.rollback()
    return found


def keys(app: semel.App) -> list[str]:
    return sorted(view.key for view in app.tasks.list())


# --- what lands, and when ---------------------------------------------------------------------------------------------


def test_it_is_real_with_the_callers_commit_and_a_rollback_leaves_nothing(app: semel.App, bill: Any, own: Any) -> None:
    own.execute("INSERT INTO public.orders VALUES ('o1')")
    ref = bill.using(transaction=own).enqueue("o1")
    assert app.tasks.list() == []
    assert own.info.transaction_status.name == "INTRANS", "nothing was committed or rolled back"
    own.commit()
    assert app.tasks.get(ref).key == "o1"
    own.execute("INSERT INTO public.orders VALUES ('o2')")
    bill.using(transaction=own).enqueue("o2")
    own.rollback()
    assert keys(app) == ["o1"] and orders(app, own) == [("o1",)]
    assert app.runtime.desk.store.sizes() == {"task": 1, "ready": 1, "inflight": 0, "effect": 0, "unknown": 0, "task_key": 1}


def test_many_are_real_with_the_callers_commit_all_or_none(app: semel.App, bill: Any, own: Any) -> None:
    mine = bill.using(transaction=own)
    with pytest.raises(semel.Misuse, match=r"write bill\.using\(transaction=\.\.\.\)\.enqueue_many"):
        mine.call("o1")
    mine.enqueue_many([bill.call("o1"), bill.call("o2")])
    own.rollback()
    assert app.tasks.list() == []
    refs = mine.enqueue_many([bill.call("o1"), bill.using(key="o3").call("o2"), bill.call("o1")])
    assert app.tasks.list() == []
    own.commit()
    assert keys(app) == ["o1", "o3"] and refs[2] == refs[0] != refs[1]


def test_of_many_all_are_checked_before_any_is_written_in_the_callers_transaction(app: semel.App, bill: Any, own: Any) -> None:
    with pytest.raises(semel.Misuse, match="at most 200"):
        bill.using(transaction=own).enqueue_many([bill.call("o1"), bill.using(key="k" * 201).call("o2")])
    own.commit()
    assert app.tasks.list() == []


def test_it_is_the_same_record_as_any_enqueue_makes(app: semel.App, bill: Any, own: Any) -> None:
    here = bill.using(transaction=own, key="here", priority=3).enqueue("o1")
    own.commit()
    there = bill.using(key="there", priority=3).enqueue("o1")
    store = app.runtime.desk.store
    (mine,), (other,) = store.rows("default", here.id), store.rows("default", there.id)
    assert j.broken([mine]) is None
    changing = {"stream", "at", "body", "id", "hash", "event"}
    same = [f for f in ("tenant", "seq", "kind", "actor", "token") if getattr(mine, f) == getattr(other, f)]
    assert {*same, *changing} == set(mine.__dataclass_fields__)
    row, twin = store.task("default", here.id), store.task("default", there.id)
    assert row is not None and twin is not None
    assert row._replace(task="", key="", due=0) == twin._replace(task="", key="", due=0)
    assert store.next_due(["q"], ["bill"]) == row.due


def test_a_worker_finds_it_after_the_commit(empty_database: str) -> None:
    app = semel.App(empty_database)

    @app.task(intent=("invoice",))
    def bill(invoice: str) -> str:
        return invoice

    with psycopg.connect(empty_database) as own:
        ref = bill.using(transaction=own).enqueue("o1")
        app.run_worker(until_idle=True)
        assert app.tasks.list() == [], "it is nobody's business before"
        own.commit()
        app.run_worker(until_idle=True)
    assert ref.result() == "o1"
    app.close()


def test_the_same_key_is_the_same_task(app: semel.App, bill: Any, own: Any) -> None:
    first = bill.using(transaction=own).enqueue("o1")
    assert bill.using(transaction=own).enqueue("o1") == first, "in one transaction"
    own.commit()
    assert bill.using(transaction=own).enqueue("o1") == first, "in another"
    assert bill.enqueue("o1") == first
    assert own.info.transaction_status.name == "INTRANS", "finding it has failed nothing"
    own.commit()
    assert len(app.tasks.list()) == 1


@pytest.mark.parametrize("commits", [True, False])
def test_a_key_that_another_transaction_has_in_hand_is_waited_for(
    app: semel.App, bill: Any, own: Any, database: str, commits: bool
) -> None:
    with psycopg.connect(database) as other:
        theirs = bill.using(transaction=other).enqueue("o1")
        waits = Doing(lambda: bill.using(transaction=own).enqueue("o1"))
        watching = psycopg.connect(database, autocommit=True)
        sql = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        until(lambda: watching.execute(sql, (other.info.backend_pid,)).fetchone() == (1,), "it waits for that one")
        watching.close()
        (other.commit if commits else other.rollback)()
        mine = waits.result()
    own.commit()
    assert (mine == theirs) is commits
    assert [view.ref for view in app.tasks.list()] == [mine]


def test_an_open_transaction_that_holds_a_key_delays_that_key_alone(app: semel.App, bill: Any, own: Any, database: str) -> None:
    """The writer sets it aside: other enqueues, claims, outcomes and beats go on."""
    theirs = bill.using(transaction=own).enqueue("held")
    store = Postgres(database)
    writer = Writer(store)
    try:
        guard = session(store, nonce="n0")
        waits = Doing(lambda: bill.enqueue("held"))
        until(lambda: app.runtime.desk.writer._aside, "it waits")
        for n in range(20):
            assert bill.enqueue(f"free{n}").id
            assert store.beat(guard.session, [f"n{n}"], f"n{n + 1}", n + 1)
        created, _ = new_task("mine")
        assert writer.submit(created).wait(5)
        assert len(claimed(one(store, claiming(guard, limit=50)))) >= 1
        assert not waits.done
        own.commit()
        assert waits.result().id == theirs.id
    finally:
        writer.close()
        store.close()
    assert len([key for key in keys(app) if key == "held"]) == 1


def test_an_open_transaction_that_is_rolled_back_lets_the_other_land(app: semel.App, bill: Any, own: Any) -> None:
    theirs = bill.using(transaction=own).enqueue("held")
    waits = Doing(lambda: bill.enqueue("held"))
    until(lambda: app.runtime.desk.writer._aside, "it waits")
    own.rollback()
    mine = waits.result()
    assert mine.id != theirs.id and app.tasks.get(mine).key == "held"


# --- whatever the connection is set to --------------------------------------------------------------------------------


class Loud(Dumper):
    """An adapter of the caller's own."""

    def dump(self, obj: Any) -> bytes:
        return str(obj).upper().encode()


@pytest.mark.parametrize(
    "setting",
    ["SET search_path = ''", "SET search_path = nowhere", "SET jit = on; SET jit_above_cost = 0", "SET enable_nestloop = off",
     "SET default_transaction_isolation = 'repeatable read'", "SET default_transaction_isolation = 'serializable'",
     "SET bytea_output = 'escape'", "SET client_encoding = 'SQL_ASCII'", "SET standard_conforming_strings = off"],
)  # fmt: skip
def test_no_setting_of_the_connection_is_relied_on(app: semel.App, bill: Any, own: Any, setting: str) -> None:
    own.execute(setting)
    own.commit()
    first = bill.using(transaction=own).enqueue('ä "quoted" \\ key')
    again = bill.using(transaction=own).enqueue('ä "quoted" \\ key')
    assert first == again and isinstance(again.id, str)
    own.commit()
    assert [view.key for view in app.tasks.list()] == ['ä "quoted" \\ key']


def test_factories_and_adapters_of_the_callers_change_nothing(app: semel.App, bill: Any, own: Any) -> None:
    own.row_factory = dict_row
    own.cursor_factory = psycopg.ClientCursor
    own.prepare_threshold = None
    own.adapters.register_dumper(str, Loud)
    first = bill.using(transaction=own, key="lower").enqueue("o1")
    assert bill.using(transaction=own, key="lower").enqueue("o1") == first
    own.commit()
    assert keys(app) == ["lower"]
    with pytest.raises(psycopg.errors.SyntaxError):
        own.execute("nonsense")


def test_nothing_is_prepared_so_that_a_pool_in_transaction_mode_may_be_between(bill: Any, own: Any) -> None:
    own.prepare_threshold = 0
    for n in range(3):
        bill.using(transaction=own).enqueue(f"o{n}")
    assert own.execute("SELECT statement FROM pg_prepared_statements", prepare=False).fetchall() == []


def test_under_repeatable_read_a_key_taken_since_is_a_serialization_failure(app: semel.App, bill: Any, own: Any) -> None:
    """As for any unique key: roll back and do it all again, and it is found."""
    own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    own.execute("SELECT 1 FROM public.orders")
    theirs = bill.enqueue("o1")
    with pytest.raises(psycopg.errors.SerializationFailure):
        bill.using(transaction=own).enqueue("o1")
    own.rollback()
    assert bill.using(transaction=own).enqueue("o1") == theirs


def test_many_in_one_transaction_make_no_part_of_one(app: semel.App, bill: Any, own: Any) -> None:
    before = own.execute("SELECT pg_current_xact_id()::text").fetchone()
    for n in range(100):
        bill.using(transaction=own).enqueue(f"o{n}")
    own.execute("INSERT INTO public.orders VALUES ('last')")
    sql = "SELECT DISTINCT xmin::text FROM semel.task UNION SELECT xmin::text FROM public.orders"
    assert own.execute(sql).fetchall() == [before], "one transaction, and no part of one"
    own.commit()
    assert len(app.tasks.list(limit=200)) == 100


# --- the connections that are taken -----------------------------------------------------------------------------------


def test_an_async_connection(app: semel.App, bill: Any, database: str, own: Any) -> None:
    async def main() -> list[semel.Ref[str]]:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            connection.row_factory = dict_row  # type: ignore[assignment]
            first = await bill.using(transaction=connection).aenqueue("o1")
            again = await bill.using(transaction=connection).aenqueue("o1")
            await connection.commit()
            await bill.using(transaction=connection).aenqueue("o2")
            await connection.rollback()
            return [first, again]

    first, again = asyncio.run(main())
    assert first == again and keys(app) == ["o1"]


def test_a_transaction_block_on_an_autocommit_connection(app: semel.App, bill: Any, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        with pytest.raises(semel.Misuse, match=r"with connection.transaction\(\)"):
            bill.using(transaction=connection).enqueue("o1")
        with connection.transaction():
            bill.using(transaction=connection).enqueue("o1")
    assert keys(app) == ["o1"]


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_sqlalchemy(app: semel.App, bill: Any, database: str, own: Any, kind: str) -> None:
    engine = create_engine(sqlalchemy_url(database))
    make: Callable[[], Any] = engine.connect if kind == "connection" else lambda: Session(engine)
    try:
        with make() as transaction:
            ref = bill.using(transaction=transaction).enqueue("o1")  # first of all: SQLAlchemy must know that it began
            transaction.execute(text("INSERT INTO public.orders VALUES ('o1')"))
            transaction.commit()
            bill.using(transaction=transaction).enqueue("o2")
            transaction.rollback()
            bill.using(transaction=transaction).enqueue("o3")
            transaction.commit()
            bill.using(transaction=transaction).enqueue("left open")
    finally:
        engine.dispose()
    assert app.tasks.get(ref).key == "o1" and keys(app) == ["o1", "o3"] and orders(app, own) == [("o1",)]


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_sqlalchemy_async(app: semel.App, bill: Any, database: str, own: Any, kind: str) -> None:
    async def main() -> None:
        engine = create_async_engine(sqlalchemy_url(database))
        make: Callable[[], Any] = engine.connect if kind == "connection" else lambda: AsyncSession(engine)
        async with make() as transaction:
            await bill.using(transaction=transaction).aenqueue("o1")
            await transaction.execute(text("INSERT INTO public.orders VALUES ('o1')"))
            await transaction.commit()
            await bill.using(transaction=transaction).aenqueue("o2")
            await transaction.rollback()
            await bill.using(transaction=transaction).aenqueue("o3")
            await transaction.commit()
            with pytest.raises(semel.Misuse, match="aenqueue"):
                await asyncio.to_thread(bill.using(transaction=transaction).enqueue, "o4")
        await engine.dispose()

    asyncio.run(main())
    assert keys(app) == ["o1", "o3"] and orders(app, own) == [("o1",)]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_cannot_be_written_in_is_refused_and_changes_nothing(app: semel.App, bill: Any, database: str, own: Any) -> None:
    for stranger in (object(), sqlite3.connect(":memory:")):
        with pytest.raises(semel.Misuse, match="hand over a psycopg connection"):
            bill.using(transaction=stranger).enqueue("o1")
    with pytest.raises(semel.Misuse, match="only after your commit"):
        bill.using(transaction=own).run("o1")
    own.close()
    with pytest.raises(semel.Misuse, match="closed"):
        bill.using(transaction=own).enqueue("o1")
    with psycopg.connect(database) as failed:
        with pytest.raises(psycopg.errors.SyntaxError):
            failed.execute("nonsense")
        with pytest.raises(semel.Misuse, match="roll back"):
            bill.using(transaction=failed).enqueue("o1")
        failed.rollback()
        with failed.cursor().copy("COPY public.orders FROM STDIN"), pytest.raises(semel.Misuse, match="in the middle"):
            bill.using(transaction=failed).enqueue("o1")
    assert keys(app) == []


def test_each_colour_names_the_other(bill: Any, database: str, own: Any) -> None:
    async def main() -> None:
        with pytest.raises(semel.Misuse, match=r"aenqueue\(\.\.\.\)"):
            bill.using(transaction=own).enqueue("o1")
        with pytest.raises(semel.Misuse, match="hand over an async one"):
            await bill.using(transaction=own).aenqueue("o1")
        with pytest.raises(semel.Misuse, match="hand over a psycopg connection"):
            await bill.using(transaction=object()).aenqueue("o1")
        async with await psycopg.AsyncConnection.connect(database) as connection:
            with pytest.raises(semel.Misuse, match="aenqueue"):
                await asyncio.to_thread(bill.using(transaction=connection).enqueue, "o1")

    asyncio.run(main())


def test_another_database_is_refused_and_its_transaction_lives_on(
    app: semel.App, bill: Any, database: str, server_url: str, make_database: Callable[[str], str]
) -> None:
    assert bill.enqueue("o0").id
    without = server_url
    with psycopg.connect(without) as other:
        with pytest.raises(semel.Misuse, match="another database"):
            bill.using(transaction=other).enqueue("o1")
        assert other.execute("SELECT 1").fetchone() == (1,), "its transaction has not failed"
    elsewhere = make_database("elsewhere")
    Postgres(elsewhere).close()
    with psycopg.connect(elsewhere) as other:
        with pytest.raises(semel.Misuse, match="another database"):
            bill.using(transaction=other).enqueue("o1")
        assert other.execute("SELECT count(*) FROM semel.task").fetchone() == (0,)


def test_a_role_without_rights_is_told_which(bill: Any, database: str, own: Any) -> None:
    own.execute("DROP ROLE IF EXISTS semel_stranger; CREATE ROLE semel_stranger")
    own.execute("SET LOCAL ROLE semel_stranger")
    with pytest.raises(semel.Misuse, match="GRANT USAGE"):
        bill.using(transaction=own).enqueue("o1")
    assert own.execute("SELECT 1").fetchone() == (1,)


def test_a_tenants_role_enqueues_for_its_tenant_alone(app: semel.App, bill: Any, database: str) -> None:
    with role_of(database, "acme") as url, psycopg.connect(url) as connection:
        ref = bill.using(transaction=connection, tenant="acme").enqueue("o1")
        connection.commit()
        assert app.tasks.get(ref).key == "o1"
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            bill.using(transaction=connection, tenant="globex").enqueue("o1")
    assert [view.ref.tenant for view in app.tasks.list(tenant="acme")] == ["acme"]


def test_an_app_on_sqlite_says_what_to_do(tmp_path: Any) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/a.db")

    @app.task(intent=("invoice",))
    def bill(invoice: str) -> str:
        return invoice

    with pytest.raises(semel.Misuse, match="enqueue after your commit"):
        bill.using(transaction=sqlite3.connect(":memory:"))  # type: ignore[arg-type]

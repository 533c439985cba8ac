"""Throw-away databases are made where the user's URL leads, whatever it looks like; and the user's own is left alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import semel
from semel.engine.queue import Order
from semel.errors import Misuse
from semel.store.pglink import target
from semel.testing.crashtest import stores
from semel.testing.crashtest.proxy import Proxy
from semel.testing.crashtest.stores import Databases, at, stores_at


def made(url: str) -> list[str]:
    """By this very process."""
    with psycopg.connect(url) as own:
        found = own.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", (f"semel_crashtest_{os.getpid()}_%",))
        return [name for (name,) in found]


def database_of(url: str) -> str:
    with stores.connected(url) as there:
        row = there.execute("SELECT current_database()").fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.proof
@pytest.mark.timeout(60)
def test_a_database_that_the_query_names_is_not_the_one_that_is_emptied(
    own_database: str, make_database: Callable[[str], str], tmp_path: Path
) -> None:
    """libpq lets ?dbname= override the path."""
    prod = make_database("prod")
    app = semel.App(prod)
    ref = app.accept(Order("default", "mine", "1", {}, "default"))
    name = str(conninfo_to_dict(prod)["dbname"])
    asked = f"{own_database}{'&' if '?' in own_database else '?'}dbname={name}"
    with pytest.raises(Misuse, match="holds tasks"), stores_at(asked):
        raise AssertionError("it let us in")
    databases = Databases(asked)
    try:
        url = databases.new(tmp_path)
        assert database_of(url).startswith("semel_crashtest_")
        assert "dbname=" not in url
    finally:
        databases.close()
    assert app.tasks.get(ref).version == 1
    app.close()


def test_where_every_name_leads_to_one_database_nothing_is_dropped(
    own_database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As behind a pooler that maps all of them to one."""
    app = semel.App(own_database)
    ref = app.accept(Order("default", "mine", "2", {}, "default"))
    databases, real = Databases(own_database), stores.connected
    monkeypatch.setattr(stores, "connected", lambda url: real(url if "/postgres" in url else own_database))
    with pytest.raises(Misuse, match="and not to the one that was made for a run, so nothing was removed there"):
        databases.new(tmp_path)
    monkeypatch.undo()
    assert app.tasks.get(ref).version == 1
    app.close()
    databases.close()
    assert made(own_database) == []


def test_databases_that_nobody_dropped_go_with_the_test_and_names_of_two_tests_differ(own_database: str, tmp_path: Path) -> None:
    with stores_at(own_database.rpartition("/")[0] + "/template1") as one, stores_at("") as files:
        assert isinstance(one, Databases)
        url = one.new(tmp_path)
        assert database_of(url) in made(own_database)
        assert files.new(tmp_path).startswith("sqlite:///")
    assert made(own_database) == []
    assert Databases(own_database)._mark != Databases(own_database)._mark


@pytest.fixture
def proxied(own_database: str) -> Iterator[Proxy]:
    given = target(own_database).params
    with stores.connected(own_database) as own:
        row = own.execute("SHOW unix_socket_directories").fetchone()
    assert row is not None
    folder = str(row[0]).split(",")[0].strip()
    proxy = Proxy(f"postgresql://{given['user']}@/{given['dbname']}?host={folder}&port={given['port']}")
    yield proxy
    proxy.close()


def test_a_server_behind_a_unix_socket_is_reached_through_the_proxy(proxied: Proxy, own_database: str) -> None:
    assert "127.0.0.1" in proxied.url
    assert proxied._socket
    with stores.connected(proxied.url) as there:
        proxied.lose_answer()
        with pytest.raises(psycopg.OperationalError):
            there.execute("BEGIN; SELECT 1; COMMIT")
    assert proxied.cuts == 1


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://ann:p%40ss@db:5433/prod", "postgresql://ann:p%40ss@db:5433/mine"),
        ("postgresql://ann@db/other?dbname=prod", "postgresql://ann@db/mine"),
        ("postgres://db/prod?user=ann&sslmode=require", "postgresql://ann@db/mine?sslmode=require"),
        ("postgresql://ann@/prod?host=/run/pg&port=5433", "postgresql://ann@/mine?host=%2Frun%2Fpg&port=5433"),
        ("postgresql://ann@[::1]:5433/prod", "postgresql://ann@/mine?host=%3A%3A1&port=5433"),
        ("postgresql://a:1,b:2/prod?pgbouncer=1", "postgresql:///mine?host=a%2Cb&port=1%2C2&pgbouncer=1"),
    ],
)
def test_a_urls_database_is_replaced_wherever_it_stands(url: str, told: str) -> None:
    assert sorted(at(url, dbname="mine").replace("?", "&").split("&")) == sorted(told.replace("?", "&").split("&"))
    assert target(at(url, dbname="mine")).params == {**target(url).params, "dbname": "mine"}

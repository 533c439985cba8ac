"""A schema for each test, made anew; the server is started once for a test run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import cluster as clusters
import psycopg
import pytest
from rivals import Proxy, Rival

from semel.store.postgres import Postgres


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """A superuser's URL of a server for the whole run."""
    given = os.environ.get("SEMEL_TEST_POSTGRES")
    if given:
        yield given
        return
    server = clusters.Cluster()
    try:
        yield server.url
    finally:
        server.close()


def _named(url: str, database: str) -> str:
    before, _, query = url.partition("?")
    base = before.rsplit("/", 1)[0] if before.count("/") >= 3 else before
    return f"{base}/{database}" + (f"?{query}" if query else "")


@pytest.fixture(scope="session")
def make_database(server_url: str) -> Iterator[Callable[[str], str]]:
    """Makes a database for this test process, and gives its URL; it is dropped at the end."""
    made: list[str] = []
    with psycopg.connect(server_url, autocommit=True) as admin:

        def make(purpose: str) -> str:
            made.append(f"semel_{purpose}_{os.getpid()}")
            admin.execute(f"CREATE DATABASE {made[-1]} TEMPLATE template0 ENCODING 'UTF8'")
            return _named(server_url, made[-1])

        yield make
        for name in made:
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def own_database(make_database: Callable[[str], str]) -> str:
    """The URL of a database that the tests of this process use one after the other."""
    return make_database("test")


ALONE = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""
TABLES = ("journal", "task", "task_key", "ready", "inflight", "effect", "unknown", "session", "living")


@pytest.fixture
def empty_database(own_database: str) -> str:
    """The URL of a database without a schema, to which nobody is connected (making a database anew takes a second)."""
    with psycopg.connect(own_database, autocommit=True) as admin:
        admin.execute(ALONE)
        admin.execute("DROP SCHEMA IF EXISTS semel CASCADE")
    return own_database


@pytest.fixture
def database(own_database: str) -> str:
    """The URL of a database of the test's own: its schema has been made, and its tables are empty."""
    with psycopg.connect(own_database) as admin:
        admin.execute(ALONE)
        if admin.execute("SELECT to_regclass('semel.meta') IS NOT NULL").fetchone() != (True,):
            Postgres(own_database).close()
        admin.execute("SET LOCAL session_replication_role = replica")  # the journal's triggers sleep
        for table in TABLES:
            admin.execute(f"DELETE FROM semel.{table}")
        admin.execute("UPDATE semel.meta SET value = gen_random_uuid()::text WHERE name = 'id'")
    return own_database


@pytest.fixture
def make_store(database: str) -> Iterator[Callable[[], Postgres]]:
    """Opens one more handle on the test's own store."""
    opened: list[Postgres] = []

    def make() -> Postgres:
        opened.append(Postgres(database))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def rival(database: str) -> Iterator[Rival]:
    """Another connection to the test's own store."""
    found = Rival(database)
    yield found
    found.close()


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    """A proxy in front of the test's own store."""
    found = Proxy(database)
    yield found
    found.close()

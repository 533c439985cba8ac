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
def own_database(server_url: str) -> Iterator[str]:
    """The URL of a database for this test process."""
    name = f"semel_test_{os.getpid()}"
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
        yield _named(server_url, name)
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def empty_database(own_database: str) -> Iterator[str]:
    """The URL of a database without a schema, to which nobody is connected (making a database anew takes a second)."""
    with psycopg.connect(own_database, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        admin.execute("DROP SCHEMA IF EXISTS semel CASCADE")
    yield own_database


@pytest.fixture
def database(empty_database: str) -> str:
    """The URL of a database of the test's own, with a schema."""
    Postgres(empty_database).close()
    return empty_database


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

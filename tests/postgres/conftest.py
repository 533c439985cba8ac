"""Handles on the test's own store, rivals, and a proxy in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from rivals import Rival

from pgproxy import Proxy
from semel.store.postgres import Postgres


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

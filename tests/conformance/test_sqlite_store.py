"""The conformance kit on SQLite: a file, and a store in memory, which has one handle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from semel.store.contract import Store
from semel.store.sqlite import SQLite
from semel.testing.conformance import StoreConformance


class TestSQLiteFile(StoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> Iterator[Callable[[], Store]]:
        opened: list[SQLite] = []

        def make() -> Store:
            opened.append(SQLite(str(tmp_path / "store.db")))
            return opened[-1]

        yield make
        for store in opened:
            store.close()


class TestSQLiteMemory(StoreConformance):
    @pytest.fixture
    def make_store(self) -> Iterator[Callable[[], Store]]:
        store = SQLite(":memory:")
        yield lambda: store
        store.close()

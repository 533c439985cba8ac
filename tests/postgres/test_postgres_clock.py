"""The database's clock decides nothing (R14): semel never asks for it."""

from __future__ import annotations

import re

import pytest

from semel.store.pglink import SQL
from semel.store.sqlfile import text

CLOCKS = re.compile(
    r"\b(now|(clock|statement|transaction)_timestamp|timeofday|age|pg_sleep\w*|localtime\w*|current_(date|time\w*)|interval"
    r"|timestamp\w*|timetz|date_trunc|extract)\b",
    re.IGNORECASE,
)


def test_the_comparison_can_fail() -> None:
    for asks in ("SELECT now()", "x < CURRENT_TIMESTAMP", "clock_timestamp()", "at timestamptz DEFAULT x"):
        assert CLOCKS.search(asks)


@pytest.mark.parametrize("name", sorted(name for name in SQL if not name.startswith("doctor_")))  # those look at the clocks
def test_no_statement_asks_for_the_time(name: str) -> None:
    code = re.sub(r"--.*|'[^']*'", "", SQL[name].decode())
    assert not CLOCKS.search(code), CLOCKS.search(code)


def test_no_column_trigger_or_default_asks_for_the_time() -> None:
    code = re.sub(r"--.*", "", text("postgres_schema.sql"))
    assert not CLOCKS.search(code), CLOCKS.search(code)

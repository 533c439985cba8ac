"""The database's clock decides nothing (R14): semel never asks for it."""

from __future__ import annotations

import re

import pytest

from semel.store import pgschema
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


@pytest.mark.parametrize("file", sorted(pgschema.MIGRATIONS.values()))
def test_no_column_trigger_or_default_asks_for_the_time(file: str) -> None:
    code = re.sub(r"--.*", "", text(file))
    assert not CLOCKS.search(code), CLOCKS.search(code)


def chooses_what_it_writes(code: str) -> bool:
    """Whether rows that are locked or written are chosen by a LIMIT which the planner may run twice."""
    writes = re.match(r"\s*(UPDATE|DELETE)\b", code) and re.search(r"\bLIMIT\b", code)
    locks = re.search(r"\bSKIP LOCKED\b", code) and not re.match(r"\s*WITH \w+ AS MATERIALIZED \(", code)
    return bool(writes or locks)


def test_no_statement_writes_or_locks_what_a_limit_may_choose_twice() -> None:
    """A LIMIT subquery may be planned into a nested loop and give other rows each time; a materialised one is run once."""
    for name, sql in SQL.items():
        assert not chooses_what_it_writes(re.sub(r"--.*", "", sql.decode())), name
    for wrong in (
        "UPDATE t SET x = 1 WHERE id IN (SELECT id FROM t LIMIT 1)", "SELECT * FROM t LIMIT 1 FOR UPDATE SKIP LOCKED",
        "WITH f AS (SELECT 1 FROM t LIMIT 1 FOR UPDATE SKIP LOCKED) SELECT 1",
    ):  # fmt: skip
        assert chooses_what_it_writes(wrong)

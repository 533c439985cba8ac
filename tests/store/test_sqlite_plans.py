"""Whatever is asked while tasks run uses a key or an index, and costs the same however much waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import apsw
import pytest

from semel.machine.projection import InflightRow
from semel.store.contract import Landed
from semel.store.sqlfile import statements
from semel.store.sqlite import SQLite
from semel.testing.conformance_claims import accept
from semel.testing.conformance_kit import AT, KIND, QUEUE, TENANT, Stream, claimed, claiming, one, session, task

MANY = 100_000
SQL = statements("sqlite.sql")
HOT = (
    "head", "rows", "id_at", "guard", "find_task", "task", "effect", "unknown_row", "has_ready", "has_inflight", "ranks",
    "candidates", "kinds", "queues", "held", "orphans", "session", "beat", "fence", "living", "put_task",
    "put_effect", "delete_ready", "delete_inflight", "delete_unknown", "insert_journal", "streams",
    "next_line", "in_turn",
    "tasks_of", "tasks_after", "effects_of", "effects_after", "tenants", "nth_task", "last_task", "unfinished",
)  # fmt: skip

FILL = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
INSERT INTO {} SELECT {} FROM n
"""
ROWS = {
    "ready": "'default', 'bill', i % 7, 1700000000000 + i, 'acme', 'ghost-' || i",
    "journal": "'acme', 'ghost-' || (i / 5), i % 5 + 1, 'void', 'x', 0, 0, '{}', 'x', x'00'",
    "task": "'acme', 'ghost-' || i, 'bill', 'g' || i, 'default', 0, 0, 'queued', '', 0, 0, '', 0, 0, 0, 1, ''",
    "task_key": "'acme', 'bill', 'g' || i, 'ghost-' || i",
    "effect": "'acme', 'e' || i, 't', 't', 'charge', 'confirmed', 1",
    "inflight": "'living', 'acme', 'ghost-' || i",
    "session": "'s' || i, 0, 'n', 1, 1, '', '', 0, 0, 0, 0, 'left', 0",
}


def filled(many: int) -> SQLite:
    """A store in which a lot waits, and a lot is over."""
    store = SQLite(":memory:")
    for table, row in ROWS.items():
        store._writer.raw.execute(FILL.format(table, row), (many,))
    store._writer.raw.execute("INSERT INTO session VALUES ('living', 0, 'n', 1, 1, '', '', 0, 0, 0, 0, '', 0)")
    return store


@pytest.fixture(scope="module")
def stores() -> Iterator[tuple[SQLite, SQLite]]:
    small, large = filled(100), filled(MANY)
    yield small, large
    small.close()
    large.close()


def plan(raw: apsw.Connection, name: str) -> list[str]:
    sql = "EXPLAIN QUERY PLAN " + SQL[name]
    numbered = max((int(n) for n in "123456789" if f"?{n}" in SQL[name]), default=0)
    return [row[3] for row in raw.execute(sql, ("x",) * (numbered or SQL[name].count("?")))]


@pytest.mark.parametrize("analyzed", [False, True])
def test_no_hot_statement_walks_a_table(stores: tuple[SQLite, SQLite], analyzed: bool) -> None:
    raw = stores[1]._writer.raw
    if analyzed:
        raw.execute("ANALYZE")
    for name in HOT:
        for line in plan(raw, name):
            walks = line.startswith("SCAN") and not line.startswith(("SCAN jump", "SCAN CONSTANT ROW", "SCAN json_each"))
            allowed = name == "living" and line == "SCAN session USING INDEX session_living"  # which holds the living alone
            assert allowed or not walks, f"{name}: {line}"
            assert "AUTOMATIC" not in line, f"{name}: {line}"
            assert "TEMP B-TREE" not in line, f"{name}: {line}"


def test_this_test_sees_a_walk(stores: tuple[SQLite, SQLite]) -> None:
    assert any(line.startswith("SCAN effect") for line in plan(stores[0]._writer.raw, "effect_of_any_tenant"))


def steps(store: SQLite, call: Callable[[], Any]) -> int:
    """How many steps SQLite's machine takes for it: no clock."""
    taken = 0

    def look(event: dict[str, Any]) -> None:
        nonlocal taken
        taken += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    raw = store._writer.raw
    raw.trace_v2(apsw.SQLITE_TRACE_PROFILE, look)
    try:
        call()
    finally:
        raw.trace_v2(0)
    return taken


def test_a_statement_is_planned_once_whatever_it_is_given(stores: tuple[SQLite, SQLite]) -> None:
    store, planned = stores[0], []
    stream, raw = Stream("planned"), store._writer.raw
    for at in range(6):
        if at == 3:  # each has run by now
            raw.trace_v2(
                apsw.SQLITE_TRACE_PROFILE, lambda event: planned.append(event["stmt_status"]["SQLITE_STMTSTATUS_REPREPARE"])
            )
        change, stream = stream.then(guard=session(store))
        assert one(store, change) == Landed()
        claimed(one(store, claiming(session(store), limit=3)))
    raw.trace_v2(0)
    assert planned
    assert not any(planned), "it was planned anew for other values"


def asked(store: SQLite) -> dict[str, int]:
    """What each question costs, of a store that holds a few things beside the many."""
    guard = session(store)
    for at in range(3):
        accept(store, task(f"k{at}", priority=9, due=AT - 100 + at))
    change, stream = Stream("s").then()
    assert one(store, change) == Landed()
    store._writing._passed.turns.wanted = False  # they are by chance
    cost = {
        "next_line": steps(store, lambda: store._writer.raw.execute(SQL["next_line"], (QUEUE, KIND, TENANT, 3)).fetchall()),
        "in_turn": steps(
            store, lambda: store._writer.raw.execute(SQL["in_turn"], (QUEUE, KIND, TENANT, 3, AT * 2, 0, "", 2)).fetchall()
        ),
        "next_due": steps(store, lambda: store.next_due([QUEUE], [KIND])),
        "foreign": steps(store, lambda: store.foreign([QUEUE], [KIND])),
        "claim": steps(store, lambda: claimed(one(store, claiming(guard, limit=3)))),
        "commit": steps(store, lambda: one(store, stream.then(guard=guard)[0])),
        "enqueue": steps(store, lambda: accept(store, task("new", priority=9))),
        "enqueue again": steps(store, lambda: one(store, task("new")[0])),
        "head": steps(store, lambda: store.head(TENANT, "s")),
        "rows": steps(store, lambda: store.rows(TENANT, "s")),
        "held": steps(store, lambda: store.held(guard.session)),
        "effect": steps(store, lambda: store.effect(TENANT, "e50")),
        "task": steps(store, lambda: store.task(TENANT, "ghost-50")),
        "tasks": steps(store, lambda: store.tasks(None, limit=20)),
        "tasks after": steps(store, lambda: store.tasks(TENANT, delivery="queued", after="ghost-70", limit=20)),
        "unfinished": steps(store, lambda: store.unfinished(None, [KIND], [], ("", ""), 20)),
        "unfinished of a tenant": steps(store, lambda: store.unfinished(TENANT, [KIND], [], (TENANT, "ghost-30"), 20)),
        "beat": steps(store, lambda: store.beat(guard.session, ["n0"], "n1", 1)),
        "sessions": steps(store, store.sessions),
    }
    assert len(store.held(guard.session)) == 3
    assert store.fence(guard.session, None, "left")
    cost["orphans"] = steps(store, lambda: store.orphans(None, 10))
    cost["orphans after"] = steps(store, lambda: store.orphans(InflightRow(guard.session, TENANT, ""), 10))
    return cost


def test_cost_is_flat(stores: tuple[SQLite, SQLite]) -> None:
    few, many = (asked(store) for store in stores)
    assert min(few.values()) > 0
    dear = {name: (few[name], many[name]) for name in few if many[name] > 1.2 * few[name] + 20}
    assert not dear, "(at 10^2 rows, at 10^5 rows)"

"""What a batch costs: one round trip, or two; as many statements for a hundred changes as for one, and no plan that grows.

The tables hold 10^5 rows each that nobody has analyzed (10^6 in `make proof`): a plan must be right without statistics.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer
from rivals import Rival, until
from tenant_roles import role_of

from semel.machine import journal as j
from semel.machine.journal import Row
from semel.machine.projection import EffectRow, InflightRow, ReadyRow, TaskRow, UnknownRow
from semel.store.batch import Writes
from semel.store.contract import Landed
from semel.store.pgclaims import Floors, Group
from semel.store.pglink import SETTINGS, SQL, bytes_array, int_array, text_array
from semel.store.pgwrite import statements_of
from semel.store.postgres import BEATS, READER, WRITER, Postgres
from semel.testing.conformance_kit import Stream, claimed, claiming, one, session, task

Make = Callable[[], Postgres]
FEW, MANY = 100_000, 1_000_000
FILL = """
INSERT INTO semel.journal SELECT 't', 's' || n / 10, n % 10, 'k', 'a', 1, 1, '{{}}', 'i', '\\x00'
    FROM generate_series(1, {rows}) n;
INSERT INTO semel.task SELECT 't', 's' || n, 'k', 'k' || n, 'q', 0, 1, 'queued', 'not_started', 0, 0, '', 0, 0, 0, 1, ''
    FROM generate_series(1, {rows}) n;
INSERT INTO semel.task_key SELECT 't', 'k', 'k' || n, 's' || n FROM generate_series(1, {rows}) n;
INSERT INTO semel.effect SELECT 't', 'e' || n, 's' || n, 's' || n, 'charge', 'confirmed', 1 FROM generate_series(1, {rows}) n;
INSERT INTO semel.ready SELECT 'q', 'k' || n % 3, n % 5, n, 't', 's' || n FROM generate_series(1, {rows}) n;
INSERT INTO semel.inflight SELECT 'x' || n % 100, 't', 's' || n FROM generate_series(1, {rows}) n;
INSERT INTO semel.inflight SELECT 'few', 't', 's' || n FROM generate_series(1, 3) n;
INSERT INTO semel.unknown SELECT 't', 'e' || n, 's' || n, 'charge', n FROM generate_series(1, {rows}) n;
INSERT INTO semel.session SELECT 'x' || n, 1, 'n', 1, 1, 'h', 'b', 1, 1, 1, 1, '', 1 FROM generate_series(1, 1000) n;
INSERT INTO semel.session SELECT 'few', 1, 'n', 1, 1, 'h', 'b', 1, 1, 1, 1, 'dead', 1;
INSERT INTO semel.living SELECT 'x' || n FROM generate_series(1, 100) n;
UPDATE semel.meta SET value = '1' WHERE name = 'epoch';
"""

PAGES = {
    "few": 90,
    "orphans": 1200,
    "around": 1500,
}  # of five ranks; of a hundred sessions that hold a thousand tasks each, and one that is gone
ROWS = {"orphans": 110, "around": 110}

S = {"tenants": text_array("tt"), "streams": text_array(["s1", "s2"])}
READY = {
    "queue": text_array("q"), "kind": text_array(["k1"]), "rank": int_array([1]), "due": int_array([1]),
    "tenant": text_array("t"), "task": text_array(["s1"]),
}  # fmt: skip
PLACES = {
    "queues": text_array("q"), "kinds": text_array(["k1"]), "ranks": int_array([1]), "floors": int_array([0]), "tenant": None,
}  # fmt: skip
BEHIND = {
    "queues": text_array("q"), "kinds": text_array(["k1"]), "ranks": int_array([1]), "dues": int_array([0]),
    "tenants": text_array(["t"]), "tasks": text_array(["s1"]), "tenant": None,
}  # fmt: skip
WRITES: dict[str, Any] = {
    "lock_living": {"ids": text_array(["x1"])},
    "guards": {"ids": text_array(["x1"])},
    "lock_tasks": S,
    "lock_tasks_to_write": S,
    "lock_effects": S,
    "lock_effects_to_write": S,
    "heads": S,
    "keys": {"tenants": text_array("t"), "kinds": text_array("k"), "keys": text_array(["k1"])},
    "hashes": {**S, "seqs": int_array([1, 12]), "hashes": bytes_array([b"x", b"y"])},
    "as_expected": {
        **S,
        "seqs": int_array([9, 9]),
        "hashes": bytes_array([b"\0", None]),
        "ids": text_array(["x1"]),
        "beats": int_array([1]),
        "epoch": 1,
        "seen_tenants": text_array("t"),
        "seen_streams": text_array(["s1"]),
        "seen_seqs": int_array([5]),
        "seen_hashes": bytes_array([b"\0"]),
    },
    "ids": {**S, "seqs": int_array([1, 2])},
    "rows_of": S,
    "delete_ready": READY,
    "delete_inflight": {"session": text_array(["x1"]), "tenant": text_array("t"), "task": text_array(["s1"])},
    "delete_unknown": {"tenant": text_array("t"), "key": text_array(["e1"])},
    "look": {"queues": text_array("q"), "kinds": text_array(["k1"])},
    "candidates": {**BEHIND, "at": 10, "limit": 5},
    "few": {"queues": text_array("q"), "kinds": text_array(["k1"]), "tenant": None, "at": 10, "limit": 5},
    "longest_waiting": {**BEHIND, "at": 10, "limit": 5},
    "lines": {"queues": text_array("qq"), "kinds": text_array(["k0", "k1"]), "tenant": "t", "rank": 1, "most": 10},
    "in_turn": {
        **{name: BEHIND[name] for name in ("queues", "kinds", "ranks", "dues", "tasks")},
        "tenants": text_array("t"),
        "at": 10,
        "each": 5,
    },
}
BEATING: dict[str, Any] = {"beat": {"id": "x1", "known": text_array("n"), "nonce": "m", "number": 2}}
READS: dict[str, Any] = {
    "dues": PLACES,
    "look": {"queues": text_array("q"), "kinds": text_array(["k1"])},
    "kinds": {"queues": text_array("q"), "tenant": None},
    "orphans": {"session": "a", "after": "", "task": "", "limit": 10, "tenant": None},
    "head": ("t", "s1"),
    "rows": ("t", "s1", 0),
    "task": ("t", "s1"),
    "find_task": ("t", "k", "k1"),
    "effect": ("t", "e1"),
    "around": {"epochs": "", "standing": "store", "own": "few", "tenant": None, "most": 10},
    "witnessed": {"tenant": "t", "stream": "s1", "seq": 12, "hash": b"x", "session": "x1"},
    "rows_of": S,
    "ages": {"tenant": None, "owner": "t", "after": "s5", "limit": 5},
    "key_ages": {"tenant": None, "owner": "t", "after": "e5", "limit": 5},
    "effects_of": {"tenant": "t", "after": "e5", "state": "confirmed", "task": "", "limit": 5},
    "effects_after": ("t", "e5", 5),
    "tasks_after": ("t", "s5", 5),
    "tasks_of": {
        "tenant": "t",
        "after": "s5",
        "delivery": "queued",
        "execution": "",
        "kind": "",
        "queue": "",
        "limit": 10,
    },
    "tenants": None,
    "unfinished": {
        "tenant": None,
        "owner": "t",
        "after": "s5",
        "visits": 10,
        "begun": text_array("k"),
        "every": text_array([]),
    },
    "held": ("few",),
    "lock_to_fence": {"id": "x1"},
    "session": ("x1",),
    "fence": {"id": "x1", "nonce": None, "how": "dead"},
    "unknown": {"tenant": None, "limit": 10},
    "has_ready": ("q", "k1", 1, 1, "t", "s1"),
}


NEW = ReadyRow("q", "k1", 1, 5, "t", "new")
KNOWN = TaskRow("t", "s7", "k", "k7", "q", 0, 1, "leased", "running", 1, 1, "x1", 0, 0, 0, 2, "")
EFFECT = EffectRow("t", "e7", "s7", "s7", "charge", "submitted", 2)
ADDING = Writes(
    ready_gone=[ReadyRow("q", "k1", 1, 1, "t", "s1")],
    keys=[("t", "k", "new", "new")],
    rows=[Row("t", stream, 11, "k", "a", 1, 1, "{}", "i", b"0") for stream in ("new", "s7")],
    tasks=[KNOWN._replace(task="new", key="new"), KNOWN],
    ready=[NEW],
    inflight_gone=[InflightRow("x7", "t", "s7")],
    inflight=[InflightRow("x8", "t", "s7")],
    effects=[EFFECT._replace(key="new"), EFFECT],
    unknown_gone=[("t", "e7")],
    unknown=[UnknownRow("t", "new", "s7", "charge", 5)],
)
ADDED = dict([*statements_of(ADDING), *statements_of(ADDING, singly=True)])


@contextlib.contextmanager
def filled(url: str, rows: int) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a large store, on which nothing is ever written."""
    Postgres(url).close()
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("SET synchronous_commit = off")
        raw.execute(FILL.format(rows=rows))
        yield raw


@pytest.fixture(scope="module")
def planner(make_database: Callable[[str], str]) -> Iterator[psycopg.Connection[Any]]:
    with filled(make_database("plans"), FEW) as raw:
        yield raw


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def generic_plan(
    raw: psycopg.Connection[Any], name: str, params: Any, settings: dict[str, str], explain: str = ""
) -> dict[str, Any]:
    """The plan that the store's own connection uses once the statement is prepared. explain: "ANALYZE, ": what it came to."""
    raw.execute("RESET ALL")
    for setting, value in {**SETTINGS, **settings}.items():
        raw.execute("SELECT set_config(%s, %s, false)", (setting, value))
    query = PostgresQuery(Transformer(raw))
    query.convert(SQL[name], params)
    values = params if isinstance(params, tuple) else [params[n] for n in query._order or ()]
    raw.execute("DEALLOCATE ALL")
    raw.execute(b"PREPARE p AS " + query.query)
    given = psycopg.sql.SQL(", ").join(psycopg.sql.Literal(value) for value in values)
    given = psycopg.sql.SQL("({})").format(given) if values else psycopg.sql.SQL("")
    sql = psycopg.sql.SQL("EXPLAIN ({} FORMAT JSON) EXECUTE p {}").format(psycopg.sql.SQL(explain), given)  # type: ignore[arg-type]
    with raw.transaction(force_rollback=True):
        row = raw.execute(sql, prepare=False).fetchone()
    assert row is not None
    return (row[0] if isinstance(row[0], list) else json.loads(row[0]))[0]["Plan"]


@pytest.fixture(scope="module")
def tenants_planner(planner: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """The same, as a role of the tenant whose rows these are: policies stand between it and the tables."""
    url = _url_of(planner)
    with role_of(url, "t") as mine, psycopg.connect(mine, autocommit=True) as raw:
        yield raw


ALL = [
    *((name, params, WRITER) for name, params in {**WRITES, **ADDED}.items()),
    *((name, params, BEATS) for name, params in BEATING.items()),
    *((name, params, READER) for name, params in READS.items()),
    *((name, params, {**READER, "plan_cache_mode": "force_generic_plan"}) for name, params in READS.items()),  # from the 6th time
]


@pytest.mark.parametrize(("name", "params", "settings"), ALL)
def test_no_plan_reads_a_whole_table(planner: psycopg.Connection[Any], name: str, params: Any, settings: dict[str, str]) -> None:
    looks_things_up(generic_plan(planner, name, params, settings), name)


@pytest.mark.parametrize(("name", "params", "settings"), ALL)
def test_nor_does_one_of_a_tenants_role(
    tenants_planner: psycopg.Connection[Any], name: str, params: Any, settings: dict[str, str]
) -> None:
    plan = generic_plan(tenants_planner, name, params, settings)
    assert name in ADDED or any(node.get("Parent Relationship") == "InitPlan" for node in nodes(plan)), "no policy is asked"
    looks_things_up(plan, name)


@pytest.mark.parametrize(("name", "params", "settings"), ALL)
def test_a_statement_touches_a_few_pages_whatever_the_tables_hold(
    planner: psycopg.Connection[Any], name: str, params: Any, settings: dict[str, str]
) -> None:
    touches_a_few_pages(planner, name, params, settings)


@pytest.mark.proof
def test_the_same_at_a_million_rows(make_database: Callable[[str], str]) -> None:
    with filled(make_database("million"), MANY) as raw:
        assert raw.execute("SELECT count(*) FROM pg_stats WHERE schemaname = 'semel'").fetchone() == (0,), "nobody has analyzed"
        for name, params, settings in ALL:
            looks_things_up(generic_plan(raw, name, params, settings), name)
            touches_a_few_pages(raw, name, params, settings)


def touches_a_few_pages(raw: psycopg.Connection[Any], name: str, params: Any, settings: dict[str, str]) -> None:
    """Two or three keys are looked for: a path down the index and a row each."""
    plan = generic_plan(raw, name, params, settings, "ANALYZE, BUFFERS, TIMING OFF,")
    pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert pages <= PAGES.get(name, 60), f"{name}: {pages} pages"
    rows = max(node["Actual Rows"] * node["Actual Loops"] for node in nodes(plan))
    assert rows <= ROWS.get(name, 40), f"{name}: {rows} rows"


def looks_things_up(plan: dict[str, Any], name: str) -> None:
    """Every table that may be large is looked into by a condition on an index."""
    small = ("meta", "living", "session")
    for node in nodes(plan):
        if node["Node Type"] in ("Seq Scan", "Hash Join", "Merge Join"):
            assert node.get("Relation Name") in small, json.dumps(node)[:400]
        if node["Node Type"] in ("Index Scan", "Index Only Scan"):
            oldest = node.get("Index Name") == "unknown_oldest"  # from its begin, up to a limit
            assert "Index Cond" in node or oldest, f"walks the whole index: {json.dumps(node)[:400]}"


def test_nor_does_what_takes_pruned_rows_away(planner: psycopg.Connection[Any]) -> None:
    """It is the owner's alone; and what stands in these tables, the trigger keeps."""
    params = {"tenant": text_array("t"), "stream": text_array(["s1"]), "seq": int_array([3])}
    looks_things_up(generic_plan(planner, "take_away", params, WRITER), "take_away")


def test_the_check_of_plans_can_fail(planner: psycopg.Connection[Any]) -> None:
    settings = {"enable_indexscan": "off", "enable_bitmapscan": "off", "enable_seqscan": "on"}
    try:
        found = list(nodes(generic_plan(planner, "delete_unknown", WRITES["delete_unknown"], settings)))
    finally:
        planner.execute("RESET ALL")
    assert any(node["Node Type"] == "Seq Scan" for node in found)


@pytest.mark.parametrize("careful", [False, True])
def test_a_batch_is_no_more_statements_for_a_hundred_than_for_one(make_store: Make, careful: bool) -> None:
    store = make_store()
    store._careful_until = math.inf if careful else 0.0
    store._hints._ride_after = math.inf  # a hint that rides with one of the two is one more
    guard = session(store)
    link, cost = store._writer, {}
    for size in (1, 100):
        store.commit([Stream(f"warm{size}").then()[0]])
        before = link.trips, link.statements
        changes = [task(f"k{size}-{n}")[0] for n in range(size)]
        intents = [Stream(f"s{size}-{n}").then(guard=guard)[0] for n in range(size)]
        assert store.commit([*changes, *intents]) == [Landed()] * size * 2
        cost[size] = link.trips - before[0], link.statements - before[1]
    assert cost[1][0] == cost[100][0] == (2 if careful else 1)
    assert cost[100][1] <= cost[1][1] <= cost[100][1] + 1, "of the two rows of the journal each is written by itself"
    assert cost[100][1] <= (12 if careful else 9)


def test_a_claim_of_a_hundred_costs_as_many_round_trips_as_of_one(make_store: Make) -> None:
    store = make_store()
    guard = session(store)
    link, cost = store._writer, {}
    store.commit([task(f"k{n}")[0] for n in range(102)])
    for size in (1, 1, 100):
        before = link.trips
        assert len(claimed(one(store, claiming(guard, limit=size)))) == size
        cost[size] = link.trips - before
    assert cost[1] == cost[100] <= 3


def test_rows_are_updated_in_place(make_database: Callable[[str], str]) -> None:
    """HOT: nothing that changes is in an index, and pages keep room.

    As much as that room holds without cleaning: a transaction that is open, in whatever database of the server, hinders that.
    """
    url = make_database("hot")
    store, rival = Postgres(url), Rival(url)
    rival.raw.execute("SELECT pg_current_xact_id()")
    made = [task(f"k{n}", queue="") for n in range(120)]
    store.commit([change for change, _ in made])
    assert store.commit([known.then(j.Stepped("x", "x"))[0] for _, known in made]) == [Landed()] * 120
    guard = session(store)
    for n in range(25):
        assert store.beat(guard.session, [f"n{n}"], f"n{n + 1}", n + 1)
    if rival.admin.info.server_version >= 150000:
        for link in (store._writer, store._beats):
            assert link._raw is not None
            link._raw.execute("SELECT pg_stat_force_next_flush()")
    sql = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'semel' AND relname = %s"

    def counted(table: str, updates: int) -> Any:
        row = rival.admin.execute(sql, (table,)).fetchone()
        return row if row and row[0] >= updates else None

    for table, updates in (("task", 120), ("session", 25)):
        done, hot = until(lambda t=table, u=updates: counted(t, u), f"statistics of {table}")  # type: ignore[misc]
        assert hot == done, f"{hot} of {done} updates of {table} were in place"
    rival.close()
    store.close()


class TestFloors:
    """Where to look: full looks while they are cheap, then a tenth of the time."""

    def floors(self, cost: float) -> tuple[Floors, list[float], list[int]]:
        now, looks = [0.0], [0]

        def look(pairs: Any) -> list[Group]:
            looks[0] += 1
            now[0] += cost
            return [Group("q", "k", 0, 500)]

        found = Floors(lambda: now[0])
        found_look = look
        self.look = lambda: found.groups([("q", "k")], found_look)
        return found, now, looks

    def test_cheap_looks_are_all_full(self) -> None:
        _, _, looks = self.floors(0.001)
        for _ in range(10):
            assert self.look() == [Group("q", "k", 0, 500)]
        assert looks == [10]

    def test_one_that_is_slow_by_chance_keeps_none_from_being_made(self) -> None:
        now, looks, cost = [0.0], [0], [0.001]

        def look(pairs: Any) -> list[Group]:
            looks[0] += 1
            now[0] += cost[0]
            return [Group("q", "k", 0, 500)]

        floors = Floors(lambda: now[0])
        for n in range(100):
            cost[0] = 0.05 if n % 10 == 5 else 0.001
            floors.groups([("q", "k")], look)
        assert looks == [100]

    def test_what_has_run_empty_keeps_its_ranks(self) -> None:
        """So that what comes is seen even if the look that found nothing took long, and the next one is not made at once."""
        now, cost, there = [0.0], [0.001], [Group("q", "k", 0, 500)]

        def look(pairs: Any) -> list[Group]:
            now[0] += cost[0]
            return there

        floors = Floors(lambda: now[0])
        assert floors.groups([("q", "k")], look) == there
        there = []
        floors.groups([("q", "k")], look)
        cost[0] = 0.5
        assert floors.groups([("q", "k")], look) == [Group("q", "k", 0, 500)]
        assert (floors.groups([("q", "k")], look), floors.full_looks) == ([Group("q", "k", 0, 500)], 3)

    def test_dear_ones_take_a_tenth_of_the_time(self) -> None:
        _, now, looks = self.floors(0.1)
        for _ in range(1000):
            assert self.look() == [Group("q", "k", 0, 500)]
            now[0] += 0.01
        assert 7 <= looks[0] <= 12

    def test_so_do_those_that_are_slow_again_and_again(self) -> None:
        _, now, looks = self.floors(0.01)
        for _ in range(1000):
            assert self.look() == [Group("q", "k", 0, 500)]
            now[0] += 0.01
        assert 15 <= looks[0] <= 25

    def test_and_so_do_those_of_many_priorities(self) -> None:
        now, looks = [0.0], [0]

        def look(pairs: Any) -> list[Group]:
            looks[0] += 1
            now[0] += 0.003
            return [Group("q", "k", rank, 500) for rank in range(200)]

        floors = Floors(lambda: now[0])
        for _ in range(1000):
            assert len(floors.groups([("q", "k")], look)) == 200
            now[0] += 0.003
        assert 15 <= looks[0] <= 25

    def test_a_priority_that_has_run_empty_is_looked_at_all_the_same(self) -> None:
        """While full looks are dear: what another process puts in there waits for none."""
        now, there = [0.0], [Group("q", "k", 0, 500)]

        def look(pairs: Any) -> list[Group]:
            now[0] += 0.1
            return there

        floors = Floors(lambda: now[0])
        floors.groups([("q", "k")], look)
        there, now[0] = [], now[0] + 10
        assert floors.groups([("q", "k")], look) == [Group("q", "k", 0, 500)]
        assert floors.full_looks == 2

    def test_and_are_made_at_last(self) -> None:
        _, now, looks = self.floors(100.0)
        self.look()
        now[0] += 5.1
        self.look()
        assert looks == [2]

    def test_what_this_process_puts_in_is_not_missed(self) -> None:
        floors, _, _ = self.floors(1.0)
        self.look()
        floors.lower(
            [ReadyRow("q", "k", 0, 7, "t", "x"), ReadyRow("q", "k", -3, 9, "t", "y"), ReadyRow("r", "k", 0, 1, "t", "z")]
        )
        assert self.look() == [Group("q", "k", -3, 9), Group("q", "k", 0, 7)]

    def test_nor_if_a_look_under_way_did_not_see_it(self) -> None:
        floors, now, _ = self.floors(0.0)
        floors.lower([ReadyRow("q", "k", 0, 7, "t", "x")])
        now[0] += 0.5
        assert self.look() == [Group("q", "k", 0, 7)]
        now[0] += 10
        assert self.look() == [Group("q", "k", 0, 500)]


def test_dead_entries_under_a_held_snapshot_are_walked_once(make_store: Make, rival: Rival) -> None:
    store = make_store()
    store.commit([task("last", due=30_000)[0]])
    rival.admin.execute(
        "INSERT INTO semel.ready SELECT 'default', 'bill', 0, n, 'acme', 's' || n FROM generate_series(1, 20000) n"
    )
    rival.raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    rival.raw.execute("SELECT 1")  # the snapshot is held from here
    rival.admin.execute("DELETE FROM semel.ready WHERE due <= 20000")

    def touched(floor: int) -> int:
        params = {
            "queues": text_array(["default"]), "kinds": text_array(["bill"]), "ranks": int_array([0]),
            "dues": int_array([floor]), "tenants": text_array([""]), "tasks": text_array([""]), "at": 10**9, "limit": 10,
            "tenant": None,
        }  # fmt: skip
        with psycopg.connect(_url(rival)) as raw:
            for setting, value in WRITER.items():
                raw.execute("SELECT set_config(%s, %s, true)", (setting, value))
            row = raw.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + SQL["candidates"], params).fetchone()
            assert row is not None
            plan = row[0][0]["Plan"]
            raw.rollback()
            return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    groups = store._floors.groups([("default", "bill")], store._look)
    assert groups == [Group("default", "bill", 0, 30_000)]
    assert touched(groups[0].floor) * 10 < touched(0)
    assert claimed(one(store, claiming(session(store), limit=10))) == ["last"]


def _url(rival: Rival) -> str:
    return _url_of(rival.raw)


def _url_of(raw: psycopg.Connection[Any]) -> str:
    info = raw.info
    return f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"

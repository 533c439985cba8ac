"""What a worker makes of a store that holds a lot: its first thousand tasks, its fairness, a snapshot that somebody holds."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from fill import filler, task_of
from kit import Kit, child, do, told

COUNT, BESIDE = 1000, 100  # tasks that are timed, and how many run at a time
SLACK = 200  # what a worker may have claimed beyond them
SMALL = 100  # tenants with one task each, behind one with everything
ANALYZED_OLD = "ANALYZE semel.journal, semel.task, semel.task_key, semel.ready, semel.effect"
NEVER_ANALYZED = (
    "DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'semel'::regnamespace)",
    "UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE relnamespace = 'semel'::regnamespace AND relkind IN ('r', 'i')",
)


@dataclass(frozen=True)
class Case:
    """rows: queued behind the first thousand, of a full run. tenant: SQL, of n; more: what is said of it."""

    rows: int
    tenant: str = "{was}"
    more: str = ""

    def name(self, kit: Kit) -> str:
        """By what is really there."""
        rows = kit.n(self.rows)
        power = len(str(rows)) - 1
        return f"{f'10^{power}' if rows == 10**power else f'{rows:,}'} queued{self.more}"


CASES = (Case(10**6), Case(10**6, "'tenant-' || (n % 10000)", ", 10,000 tenants"))
LARGEST = Case(10**7)


def first_thousand(kit: Kit, rounds: int, *, largest: bool) -> None:
    """How fast its first 1,000 tasks are with many behind them, against 1,000 in all; statistics stale, then absent."""
    for case in (*CASES, LARGEST) if largest else CASES:
        with kit.store() as few, kit.store() as many:
            _begin(kit, few)
            began = time.monotonic()
            _begin(kit, many)
            task = task_of(kit.dialect, many)
            do("enqueue", many, "empty", 2 * rounds * (COUNT + BESIDE + SLACK), 1, 500, "first")
            with filler(kit.dialect, many) as fill:
                fill.copy(task, kit.n(case.rows), tenant=case.tenant, due="{was} + n / 100000")
            took = time.monotonic() - began
            stale = "statistics stale" if kit.dialect == "postgres" else ""
            _compare(kit, case, stale, few, many, rounds, took)
            if kit.dialect == "postgres":
                with psycopg.connect(many, autocommit=True) as db:
                    for statement in NEVER_ANALYZED:
                        db.execute(statement)
                _compare(kit, case, "statistics absent", few, many, rounds, took)


def _begin(kit: Kit, url: str) -> None:
    """One task; workers' code has been here before; the statistics say that there is next to nothing."""
    do("worker", url, "empty", 0, 1)
    do("enqueue", url, "empty", 1)
    if kit.dialect == "postgres":
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(ANALYZED_OLD)


def _compare(kit: Kit, case: Case, statistics_are: str, few: str, many: str, rounds: int, took: float) -> None:
    """In turns; before each round as many are put into the small store."""
    seconds: dict[str, list[float]] = {few: [], many: []}
    for n in range(rounds):
        do("enqueue", few, "empty", COUNT + BESIDE, time.monotonic_ns(), 500, "first")
        for url in (few, many) if n % 2 else (many, few):
            ran = do("first", url, COUNT, BESIDE)
            if not ran["seconds"]:
                raise SystemExit(f"{case.name(kit)}: only {ran['began']} tasks began")
            seconds[url].append(ran["seconds"])
    rates = {url: COUNT / statistics.median(found) for url, found in seconds.items()}
    figure = f"first 1,000 tasks, {case.name(kit)}" + (f", {statistics_are}" if statistics_are else "")
    kit.note(
        figure,
        per_second=rates[many],
        with_1000=rates[few],
        ratio=rates[many] / rates[few],
        rows=kit.n(case.rows),
        fill_seconds=took,
    )


def fairness(kit: Kit) -> None:
    """One tenant has queued everything before 100 others came with a task each: how many tasks begin until theirs have?"""
    rows = kit.n(20_000, least=2000)
    with kit.store() as url:
        do("enqueue", url, "empty", rows)
        do("few", url, SMALL)
        ran = do("first", url, rows // 2, BESIDE)
    found = sorted(ran["few"])
    after = found[-1] + 1 if len(found) == SMALL else ran["began"]
    kit.note("one tenant with everything", rows=rows, others=SMALL, begun=len(found), after=after)


def after_a_deploy(kit: Kit) -> None:
    """How long a worker takes until its first handler begins: with code that has not been here before, and once more."""
    rows = kit.n(100_000)
    with kit.store() as url:
        do("enqueue", url, "empty", 1)
        task = task_of(kit.dialect, url)
        do("enqueue", url, "empty", 20 * BESIDE, 1, 500, "first")
        with filler(kit.dialect, url) as fill:
            fill.copy(task, rows, due="{was} + n / 100000")
        new, known = (do("first", url, BESIDE, BESIDE)["start"] for _ in range(2))
    kit.note("start of a worker", rows=rows, new_code_seconds=new, known_code_seconds=known)


def held(kit: Kit, seconds: int) -> None:
    """Two stores under the same load at the same time; a snapshot of one of them is held from the beginning."""
    with kit.store() as free, kit.store() as kept:
        for url in (free, kept):
            do("enqueue", url, "empty", 500)
        with _snapshot(kit, kept):
            flows = [child("flow", url, seconds, 1000) for url in (free, kept)]
            without, with_it = (told(flow)["each"] for flow in flows)
    part = max(1, seconds // 6)
    changed = [sum(each[-part:]) / max(1, sum(each[part : 2 * part])) for each in (without, with_it)]  # the first part starts up
    kit.note(
        "a snapshot is held", seconds=seconds, each=with_it, each_without=without, last_to_first=changed[1],
        last_to_first_without=changed[0], ratio=sum(with_it[-part:]) / max(1, sum(without[-part:])),
    )  # fmt: skip


@contextlib.contextmanager
def _snapshot(kit: Kit, url: str) -> Iterator[None]:
    """Somebody reads, and does not come to an end: nothing that is deleted meanwhile can be cleared away."""
    if kit.dialect == "sqlite":
        import apsw

        db = apsw.Connection(url.removeprefix("sqlite:///"))
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM ready").fetchall()
        try:
            yield
        finally:
            db.close()
        return
    with psycopg.connect(url) as server:
        server.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        server.execute("SELECT count(*) FROM semel.ready")
        yield
        server.rollback()

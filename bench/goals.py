"""What it must show: each goal, where its figure is found, and what it is a part of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from figures import effects_at_a_time

Results = dict[str, dict[str, Any]]  # part -> {"run": ..., "figures": {figure: {value: number}}}
MANY, ONE = effects_at_a_time(200), effects_at_a_time(1)
PG, LITE = "postgres", "sqlite"
TTL_SECONDS = 15.0  # of a session, by default
STEPPED, HELD = "a task of 10,000 steps", "a snapshot is held"
STEPS = "effects (recorded steps): "


@dataclass(frozen=True)
class Goal:
    """number: at least so much, or at most. over: what it is divided by first, found in the same part (figure, value)."""

    what: str
    part: str
    figure: str
    value: str
    number: float
    unit: str = ""
    over: tuple[str, str] | None = None
    most: bool = False


def _most(what: str, part: str, figure: str, value: str, number: float, unit: str) -> Goal:
    return Goal(what, part, figure, value, number, unit, most=True)


GOALS = (
    Goal("effects/s, PostgreSQL, 200 tasks at a time", PG, MANY, "per_second", 0.7, "L8", ("limits", "L8")),
    Goal("the same, against Absurd", "peers.postgres", f"{STEPS}semel", "per_second", 10, "x", (f"{STEPS}absurd", "per_second")),
    Goal("the same, against DBOS", "peers.postgres", f"{STEPS}semel", "per_second", 20, "x", (f"{STEPS}dbos", "per_second")),
    Goal("effects/s, PostgreSQL, one task at a time", PG, ONE, "per_second", 0.4, "L1", ("limits", "L1")),
    Goal("effects/s, SQLite, 200 tasks at a time", LITE, MANY, "per_second", 2.5, "S1", ("limits", "S1")),
    Goal("effects/s, SQLite, one task at a time", LITE, ONE, "per_second", 0.65, "S1", ("limits", "S1")),
    Goal("empty tasks/s, PostgreSQL", PG, "empty tasks", "per_second", 0.8, "L8", ("limits", "L8")),
    Goal("empty tasks/s, SQLite", LITE, "empty tasks", "per_second", 2.0, "S1", ("limits", "S1")),
    Goal("enqueue_many/s, by 500, PostgreSQL", PG, "enqueue_many, 500 at once", "per_second", 40_000, "/s"),
    Goal("enqueue/s, from 50 callers, PostgreSQL", PG, "enqueue, 50 callers", "per_second", 0.9, "L8", ("limits", "L8")),
    _most("latency p50, PostgreSQL, across processes", PG, "latency, across processes", "p50_ms", 3, "ms"),
    _most("latency p99, PostgreSQL, across processes", PG, "latency, across processes", "p99_ms", 6, "ms"),
    _most("latency p50, SQLite, one process", LITE, "latency, in one process", "p50_ms", 3, "ms"),
    _most("latency p99, SQLite, one process", LITE, "latency, in one process", "p99_ms", 8, "ms"),
    _most("latency p50, SQLite, across processes", LITE, "latency, across processes", "p50_ms", 15, "ms"),
    *(
        Goal(f"{first} with {rows} queued, {name}{are}", f"growth.{part}", f"{first}, {rows} queued{are}", "ratio", least)
        for first in ("first 1,000 tasks",)
        for rows, least in (("10^6", 0.9), ("10^7", 0.8))
        for part, name, are in (
            (PG, "PostgreSQL", ", statistics absent"), (PG, "PostgreSQL", ", statistics stale"), (LITE, "SQLite", ""),
        )
    ),
    _most("takeover, same host, 1,000 running tasks, PostgreSQL", PG, "takeover, same host", "seconds", 1, "s"),
    _most("takeover, same host, 1,000 running tasks, SQLite", LITE, "takeover, same host", "seconds", 1, "s"),
    _most("takeover, another host, PostgreSQL", PG, "takeover, another host", "seconds", TTL_SECONDS + 3, "s"),
    _most("WAL per effect, 200 at a time", PG, MANY, "wal_bytes", 1000, "B"),
    _most("syncs per effect, 200 at a time", PG, MANY, "syncs", 0.3, ""),
    _most("statements per effect, 200 at a time", PG, MANY, "statements", 2, ""),
    _most("CPU of the worker per effect, PostgreSQL", PG, MANY, "cpu_ms", 0.15, "ms"),
    _most("CPU of the worker per effect, SQLite", LITE, MANY, "cpu_ms", 0.15, "ms"),
    _most("idle worker, PostgreSQL: CPU", PG, "idle worker", "cpu_percent", 1, "%"),
    _most("idle worker, SQLite: CPU", LITE, "idle worker", "cpu_percent", 1, "%"),
    _most("idle worker, PostgreSQL: statements/s besides beats", PG, "idle worker", "besides_beats_per_second", 0.5, ""),
    _most("worker with 1,000 running tasks, PostgreSQL: memory", PG, "worker with 1,000 running tasks", "rss", 200, "MiB"),
    _most("worker with 1,000 running tasks, SQLite: memory", LITE, "worker with 1,000 running tasks", "rss", 200, "MiB"),
    Goal("10,000 steps: rate at the end to the beginning, PostgreSQL", PG, STEPPED, "last_to_first", 0.8),
    Goal("10,000 steps: rate at the end to the beginning, SQLite", LITE, STEPPED, "last_to_first", 0.8),
    Goal("a snapshot is held: rate to that without, PostgreSQL", "growth.postgres", HELD, "ratio", 0.8),
    Goal("a snapshot is held: rate to that without, SQLite", "growth.sqlite", HELD, "ratio", 0.8),
    _most("200 sessions beat: fenced by mistake, PostgreSQL", PG, "200 sessions beat", "fenced", 0, ""),
)  # fmt: skip


def judged(results: Results) -> Iterator[tuple[str, str, str, str, bool | None]]:
    """Of each goal: what, the goal, what was measured, its ratio to the goal (above 1 is better), and whether it is met."""
    for goal in GOALS:
        bound = f"{'at most' if goal.most else 'at least'} {goal.number:,g} {goal.unit}".strip()
        figures = results.get(goal.part, {}).get("figures", {})
        found = figures.get(goal.figure, {}).get(goal.value)
        base = figures.get(goal.over[0], {}).get(goal.over[1]) if goal.over else 1.0
        if found is None or not base:
            yield goal.what, bound, "not measured", "", None
            continue
        value = found / base
        better = (goal.number / value if value else 99.0) if goal.most else value / goal.number
        shown = f"{short(value)} {goal.unit}".strip() + (
            f" ({short(found)}/s)" if goal.over and goal.value == "per_second" else ""
        )
        yield (
            goal.what,
            bound,
            shown,
            f"{better:.2f}" if goal.number else "",
            value <= goal.number if goal.most else value >= goal.number,
        )


def short(value: float) -> str:
    """A number as people read it."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"

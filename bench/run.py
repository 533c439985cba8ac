"""`make bench`: semel on SQLite and PostgreSQL beside the raw limits of this machine, in one run. The ratios count.

QUICK=1: a tenth of it, once. ONLY=sqlite or ONLY=postgres: one store. PAGE=file: write the tables there, as Markdown.
Rounds are interleaved with the limits; the best of each counts. `bench/growth.py` measures what a store that holds a lot
costs.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import figures
import limits
from figures import EFFECTS, Kit
from rich.console import Console
from rich.table import Table

from semel.testing import postgres

QUICK = bool(os.environ.get("QUICK"))
ROUNDS = 1 if QUICK else 3
SECONDS = 1.0 if QUICK else 3.0
SETTINGS = "shared_buffers = '512MB'\nmax_wal_size = '4GB'\n"
CONCURRENT = (1, 10, 50, 200)

GOALS: dict[str, dict[str, tuple[str, float]]] = {  # figure: the limit that it is a part of, and the part that is asked for
    "sqlite": {
        "effects, 200 tasks at a time": ("S1", 2.5),
        "effects, 1 task at a time": ("S1", 0.65),
        "empty tasks": ("S1", 2.0),
    },
    "postgres": {
        "effects, 200 tasks at a time": ("L8", 0.7),
        "effects, 1 task at a time": ("L1", 0.4),
        "empty tasks": ("L8", 0.8),
        "enqueue, 50 callers": ("L8", 0.9),
    },
}


@contextmanager
def stores(dialect: str) -> Iterator[tuple[Callable[[], str], Callable[[], dict[str, float]]]]:
    """Makes fresh stores of a dialect, and measures the machine's limits for it."""
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        if dialect == "sqlite":
            yield lambda: f"sqlite:///{folder}/{time.monotonic_ns()}.db", lambda: {"S1": limits.sqlite(folder, SECONDS)}
            return
        cluster = postgres.Cluster(SETTINGS)
        ends.callback(cluster.close)
        cluster.start()
        scratch = ends.enter_context(postgres.database(cluster.url, "limits"))

        def fresh() -> str:
            return ends.enter_context(postgres.database(cluster.url, f"bench_{time.monotonic_ns()}"))

        yield fresh, lambda: {f"L{n}": limits.server(scratch, n, SECONDS) for n in (1, 8)}


def measure(dialect: str, console: Console) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """All figures of a store: the best of the rounds."""
    raw: dict[str, float] = {}
    best: dict[str, dict[str, float]] = {}
    with stores(dialect) as (fresh, limit):
        for n in range(ROUNDS):
            for name, value in limit().items():
                raw[name] = max(raw.get(name, 0.0), value)
            kit = Kit(dialect, fresh, 0.1 if QUICK else 1.0)
            for concurrency in CONCURRENT:
                plural = "task" if concurrency == 1 else "tasks"
                count = kit.n(300 if concurrency == 1 else 2000)
                figures.throughput(kit, "five", count, concurrency, f"effects, {concurrency} {plural} at a time", EFFECTS)
            figures.throughput(kit, "empty", kit.n(5000), 200, "empty tasks")
            figures.enqueue_by_callers(kit)
            if n == 0:
                figures.latency(kit)
                figures.takeover(kit)
                figures.idle(kit)
            for figure, values in kit.found.items():
                known = best.get(figure)
                if known is None or values.get("per_second", 0) > known.get("per_second", 0):
                    best[figure] = values
            console.print(f"{dialect}: round {n + 1} of {ROUNDS}", style="dim")
    return raw, best


UNITS = {
    "cpu_ms": ("{:.3f}", " ms CPU"), "commits": ("{:.2f}", " commits"), "syncs": ("{:.2f}", " syncs"),
    "wal_bytes": ("{:,.0f}", " B WAL"), "rss": ("{:.0f}", " MiB"), "p50_ms": ("{:.1f}", " ms p50"),
    "p99_ms": ("{:.1f}", " ms p99"), "seconds": ("{:.2f}", " s"), "cpu_percent": ("{:.1f}", " % CPU"),
    "commits_per_second": ("{:.2f}", " transactions/s"), "tasks": ("{:,.0f}", " tasks"),
}  # fmt: skip


def rows(dialect: str, raw: dict[str, float], best: dict[str, dict[str, float]]) -> Iterator[tuple[str, str, str, str]]:
    """What, the rate, its part of the limit (and the goal), and what else was seen."""
    for name, value in raw.items():
        yield f"{name}, the machine's own", f"{value:,.0f}/s", "1", ""
    for figure, values in best.items():
        rate = f"{values['per_second']:,.0f}/s" if "per_second" in values else ""
        goal = GOALS[dialect].get(figure)
        part = f"{values['per_second'] / raw[goal[0]]:.2f} {goal[0]} (goal {goal[1]})" if goal else ""
        rest = [UNITS[key][0].format(value) + UNITS[key][1] for key, value in values.items() if key != "per_second"]
        yield figure, rate, part, ", ".join(rest)


def main() -> None:
    """Measure, print, and write the page if one is asked for."""
    console = Console(width=130)
    page: list[str] = []
    for dialect in os.environ.get("ONLY", "sqlite,postgres").split(","):
        raw, best = measure(dialect, console)
        title = "SQLite, synchronous=FULL" if dialect == "sqlite" else "PostgreSQL, synchronous_commit=on"
        table = Table(title=title)
        head = ("what", "rate", "of the limit", "and each (of it) takes")
        for column in head:
            table.add_column(column, justify="right" if column == "rate" else "left")
        page += [f"## {title}", "", "| " + " | ".join(head) + " |", "|---|--:|---|---|"]
        for row in rows(dialect, raw, best):
            table.add_row(*row)
            page.append("| " + " | ".join(row) + " |")
        page.append("")
        console.print(table)
    if file := os.environ.get("PAGE"):
        Path(file).write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()

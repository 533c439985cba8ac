"""`make bench`: semel on SQLite and PostgreSQL beside the raw limits of this machine, in one run. The ratios count.

QUICK=1: a tenth of it, once. FULL=1: 10^7 queued and finished too, and a snapshot held for five minutes. PEERS=absurd,dbos or
PEERS=all: others on the same work. ONLY=sqlite,postgres,growth,peers: some parts (growth.sqlite: of one store). The results go
to bench/results.json, tables and plots into docs/performance.md; those of a quick run to build/bench. What was not measured stays
as it was; ONLY=none writes the page anew and measures nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import backlog
import figures
import growth
import page
import peers
from goals import Results, judged
from kit import HERE, Figures, Kit, commit, kits, machine
from rich.console import Console
from rich.table import Table

ROOT = HERE.parent
DIALECTS = ("sqlite", "postgres")
CLEANED = "autovacuum = on\nautovacuum_naptime = 5\n"


class Run:
    """Options, and what was found so far."""

    def __init__(self) -> None:
        self.quick, self.full = bool(os.environ.get("QUICK")), bool(os.environ.get("FULL"))
        self.scale = float(os.environ.get("SCALE") or (0.1 if self.quick else 1.0))
        self.rounds, self.seconds = (1, 1.0) if self.quick else (2, 3.0)
        self.peers = peers.chosen(os.environ.get("PEERS", ""))
        self.console = Console(width=130)
        self.took: dict[str, float] = {}
        folder = Path(os.environ.get("OUT") or (ROOT / "build" / "bench" if self.quick else ROOT / "docs")).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self.page, self.images = folder / "performance.md", folder / "images"
        self.results_file = HERE / "results.json" if folder == ROOT / "docs" else folder / "results.json"
        if not self.page.exists():
            shutil.copy(ROOT / "docs" / "performance.md", self.page)
        known = self.results_file.exists() and folder == ROOT / "docs"
        self.results: Results = json.loads(self.results_file.read_text(encoding="utf-8")) if known else {}

    @contextmanager
    def part(self, name: str, dialect: str, settings: str = "") -> Iterator[Kit]:
        """Measure a part, and keep what was found."""
        began = time.monotonic()
        with kits(dialect, self.scale, settings) as kit:
            about = machine(kit.admin)
            yield kit
        self.took[name] = took = self.took.get(name, 0.0) + time.monotonic() - began  # of all that is kept under this name
        at = time.strftime("%Y-%m-%d", time.gmtime())
        run = {"at": at, "commit": commit(), "quick": self.quick, "machine": about, "took": f"{took:.0f} s"}
        self.results[name] = {"run": run, "figures": kit.found}
        self.results_file.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
        page.write(self.page, self.images, self.results)
        self.console.print(f"{name}: {took:.0f} s", style="dim")


def store(run: Run, dialect: str) -> None:
    """Rates in rounds, interleaved with the limits (the best counts); then what is measured once."""
    with run.part(dialect, dialect) as kit:
        best: Figures = {}
        for _ in range(run.rounds):
            trial = Kit(dialect, kit.store, kit.limit, kit.scale, kit.admin, kit.counts)
            trial.note("limits", **trial.limit(run.seconds))
            figures.rates(trial)
            _keep_best(best, trial.found)
        kit.found.update(best)
        once: list[Callable[[Kit], None]] = [
            figures.where_it_goes, figures.latency, figures.takeover, figures.idle, figures.steps, figures.processes,
        ]  # fmt: skip
        if dialect == "postgres":
            once += [figures.takeover_from_afar, figures.beating]
        for measure in once:
            measure(kit)


def _keep_best(best: Figures, found: Figures) -> None:
    for figure, values in found.items():
        known = best.setdefault(figure, {})
        if figure == "limits":
            known.update({name: max(rate, known.get(name, 0)) for name, rate in values.items()})
        elif values["per_second"] > known.get("per_second", 0):
            best[figure] = values


def grown(run: Run, dialect: str) -> None:
    """Stores that hold a lot."""
    with run.part(f"growth.{dialect}", dialect, CLEANED if dialect == "postgres" else "") as kit:
        backlog.held(kit, 15 if run.quick else 300 if run.full else 60)
        backlog.fairness(kit)
        backlog.after_a_deploy(kit)
    with run.part(f"growth.{dialect}", dialect) as again:
        again.found.update(kit.found)
        backlog.first_thousand(again, 2 if run.quick else 5, largest=run.full)
    if not run.quick:
        with run.part(f"growth.{dialect}", dialect) as last:  # what was found is kept by now: the largest take an hour
            last.found.update(again.found)
            for name, cost in growth.costs(dialect, largest=run.full):
                last.note(f"cost: {name}", **cost)


def beside(run: Run, dialect: str) -> None:
    """Others on the same work, in turns."""
    if any(peers.PEERS[name].dialect == dialect for name in run.peers):
        with run.part(f"peers.{dialect}", dialect) as kit:
            peers.measure(kit, run.peers, 1 if run.quick else 2)


def told(run: Run) -> None:
    """Print what was asked for, and what was found."""
    table = Table(title="It must show")
    for column in ("figure", "goal", "measured", "of the goal", ""):
        table.add_column(column)
    for what, goal, found, ratio, met in judged(run.results):
        table.add_row(what, goal, found, ratio, {True: "met", False: "[bold]missed", None: ""}[met])
    run.console.print(table)
    run.console.print(f"tables and plots: {run.page.relative_to(ROOT) if run.page.is_relative_to(ROOT) else run.page}")


def main() -> None:
    """Measure, print, write the page."""
    run = Run()
    only = set(os.environ.get("ONLY", "sqlite,postgres,growth,peers").split(","))
    for dialect in DIALECTS:
        if dialect in only:
            store(run, dialect)
        if only & {"growth", f"growth.{dialect}"}:
            grown(run, dialect)
        if only & {"peers", f"peers.{dialect}"}:
            beside(run, dialect)
    page.write(run.page, run.images, run.results)
    told(run)


if __name__ == "__main__":
    main()

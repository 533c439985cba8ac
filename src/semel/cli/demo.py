"""`semel demo`: an invoicing agent, two workers, and a loop that kills and freezes them the whole time."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from semel.app import App
from semel.model import Delivery
from semel.store.places import place_of
from semel.testing.provider import FaultKind, Provider

LEASE_SECONDS = 2.0
WORKERS = 2
EFFECTS = ("charge", "mail", "post")  # what each invoice must cause, as the provider names it
PATIENCE_SECONDS = 120.0
THROWAWAY = "postgres"  # as a store: a PostgreSQL that is started for the demo, and ends with it
FAULTS: dict[FaultKind, float] = {"cut_after": 0.03, "cut_before": 0.03, "error_after": 0.03, "late": 0.5}  # how often


@dataclass
class Chaos:
    """The workers, and what is done to them."""

    dice: random.Random
    env: dict[str, str]
    log: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    frozen: dict[int, tuple[subprocess.Popen[bytes], float]] = field(default_factory=dict)
    kills: int = 0
    freezes: int = 0
    by_kernel: int = 0
    killed: set[int] = field(default_factory=set)
    next_at: float = 0.0

    def start(self) -> None:
        """One more worker."""
        with self.log.open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "semel.cli.demo"], env=self.env, stdout=log, stderr=log, start_new_session=True
            )
        self.workers.append(worker)

    def step(self, now: float) -> None:
        """Replace the dead, wake the frozen, and do harm when its time has come."""
        for pid, (worker, until) in list(self.frozen.items()):
            if now >= until:
                del self.frozen[pid]
                _signal(worker, signal.SIGCONT)
        for worker in [w for w in self.workers if w.poll() is not None]:
            self.workers.remove(worker)
            self.by_kernel += worker.returncode == -signal.SIGKILL and worker.pid not in self.killed
            self.frozen.pop(worker.pid, None)
            self.start()
        if now >= self.next_at and len(self.workers) == WORKERS:
            self.next_at = now + self.dice.uniform(0.4, 1.8)
            self._harm(now)

    def _harm(self, now: float) -> None:
        worker = self.dice.choice(self.workers)
        if worker.pid in self.frozen:
            return
        if self.dice.random() < 0.6:
            _signal(worker, signal.SIGKILL)
            self.killed.add(worker.pid)
            self.kills += 1
        else:
            _signal(worker, signal.SIGSTOP)
            self.frozen[worker.pid] = (worker, now + self.dice.uniform(0.3, 1.8 * LEASE_SECONDS))
            self.freezes += 1

    def reap(self) -> None:
        """End them all."""
        for worker in self.workers:
            _signal(worker, signal.SIGCONT)
            _signal(worker, signal.SIGTERM)
        until = time.monotonic() + 5
        for worker in self.workers:
            try:
                worker.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def _signal(worker: subprocess.Popen[bytes], number: int) -> None:
    if worker.poll() is None:
        os.kill(worker.pid, number)


@dataclass
class Counted:
    """What the provider's own record says, against what was wanted."""

    wanted: int
    found: int
    duplicated: int
    lost: int
    waiting: int
    done: int
    unfinished: int

    @property
    def good(self) -> bool:
        """Whether nothing was duplicated or lost, and nothing is left but what a person must decide."""
        return not self.duplicated and not self.lost and not self.unfinished


def run(*, seed: int | None = None, tasks: int = 40, store: str | None = None, seconds: float = PATIENCE_SECONDS) -> int:
    """Run the demo. The exit code: 0 only if nothing was duplicated or lost."""
    folder = Path(tempfile.mkdtemp(prefix="semel-demo-"))
    with contextlib.ExitStack() as until_the_end:
        if store == THROWAWAY:
            from semel.testing import postgres

            server = until_the_end.enter_context(postgres.server())
            url = until_the_end.enter_context(postgres.database(server, f"semel_demo_{os.getpid()}"))
        else:
            url = store or f"sqlite:///{folder / 'agent.db'}"
        return _run(seed, tasks, url, seconds, folder, temporary=store == THROWAWAY)


def _run(seed: int | None, tasks: int, url: str, seconds: float, folder: Path, *, temporary: bool) -> int:
    console = Console()
    seed = seed if seed is not None else random.SystemRandom().randrange(10_000)
    shown = place_of(url).shown
    os.environ["SEMEL_STORE"] = url
    os.environ["SEMEL_DEMO_LEASE"] = str(LEASE_SECONDS)
    from semel.cli.invoicing import agent

    ids = [invoice.invoice_id for invoice in agent.invoices()][:tasks]
    console.print(
        f"[bold]semel demo[/bold]  {len(ids)} invoices, {WORKERS} worker processes, seed {seed}\n"
        "Workers are killed (SIGKILL) and frozen (SIGSTOP) at random moments; the\n"
        "provider cuts connections, answers 503 after acting, and answers late.\n"
        "What really happened is counted on the provider's own record."
    )
    console.print(f"Store: {shown}{', until the demo ends' if temporary else ''}\n", highlight=False, soft_wrap=True)
    with Provider.start(folder / "provider.db") as provider:
        for number, (kind, often) in enumerate(FAULTS.items()):
            provider.fault(kind, seconds=0.4, times=10**6, probability=often, seed=seed + number)
        for invoice_id in ids:
            agent.bill.enqueue(invoice_id)
        env = {**os.environ, "PROVIDER": provider.url}
        chaos = Chaos(random.Random(seed), env, folder / "workers.log")
        try:
            _watch(console, chaos, agent.app, len(ids), seconds)
        finally:
            chaos.reap()
        counted = _count(provider, agent.app, ids)
    _report(console, counted, chaos, len(ids))
    _next(console, counted, "" if temporary else url, agent.app, folder)
    agent.app.close()
    return 0 if counted.good else 1


def _watch(console: Console, chaos: Chaos, app: App, tasks: int, seconds: float) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[story]}"), TimeElapsedColumn())
    for _ in range(WORKERS):
        chaos.start()
    began = time.monotonic()
    chaos.next_at = began + 1.0
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("billing", total=tasks, story="")
        while time.monotonic() - began < seconds:
            chaos.step(time.monotonic())
            if _show(progress, bar, chaos, app, tasks):
                return
            time.sleep(0.05)


def _show(progress: Progress, bar: TaskID, chaos: Chaos, app: App, tasks: int) -> bool:
    counts = app.runtime.desk.store.counts(None)
    done = counts["delivery"].get(Delivery.ACKNOWLEDGED, 0)
    waiting = counts["delivery"].get(Delivery.BLOCKED, 0)
    story = f"{done + waiting}/{tasks} tasks  {chaos.kills} killed  {chaos.freezes} frozen  {waiting} for a person"
    progress.update(bar, completed=done + waiting, story=story)
    return done + waiting + counts["delivery"].get(Delivery.DEAD_LETTERED, 0) >= tasks


def _count(provider: Provider, app: App, ids: list[str]) -> Counted:
    """One task at a time: what it should have caused, and how often the provider was made to do it."""
    acts = Counter((act.action, act.body["invoice_id"]) for act in provider.acts())
    by_key = {task.key: task for task in app.tasks.list(limit=len(ids) + 1)}
    lost = waiting = unfinished = done = 0
    for invoice_id in ids:
        task = by_key[invoice_id]
        missing = sum(1 for action in EFFECTS if not acts[action, invoice_id])
        if task.delivery is Delivery.ACKNOWLEDGED:
            done, lost = done + 1, lost + missing
        elif task.delivery is Delivery.BLOCKED:
            waiting += 1
        else:
            unfinished += 1
    duplicated = sum(n - 1 for n in acts.values() if n > 1)
    return Counted(len(ids) * len(EFFECTS), sum(1 for n in acts.values() if n), duplicated, lost, waiting, done, unfinished)


def _report(console: Console, c: Counted, chaos: Chaos, tasks: int) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(justify="right", style="bold")
    table.add_column()
    table.add_row(f"{c.done} of {tasks}", "tasks done" + (f", {c.waiting} waiting for a person" if c.waiting else ""))
    table.add_row(str(chaos.kills), "workers killed, without warning")
    overslept = f", {chaos.by_kernel} of them killed by the kernel timer" if chaos.by_kernel else ""
    table.add_row(str(chaos.freezes), f"workers frozen and woken{overslept}")
    table.add_row(str(c.wanted), "effects wanted: charge, mail and post for each invoice")
    table.add_row(str(c.found), "effects found at the provider")
    table.add_row(f"[{'red' if c.duplicated else 'green'}]{c.duplicated}[/]", "duplicated")
    table.add_row(f"[{'red' if c.lost else 'green'}]{c.lost}[/]", "lost")
    if c.unfinished:
        table.add_row(f"[red]{c.unfinished}[/]", "tasks neither done nor waiting for a person")
    console.print()
    console.print(table)


def _next(console: Console, c: Counted, url: str, app: App, folder: Path) -> None:
    """What to type next; url: "" if the store ends with the demo."""
    if not url:
        console.print("\nThis PostgreSQL ends with the demo. On one that stays, you can look around afterwards:")
        console.print("  semel demo --store postgresql://user@host/database", highlight=False)
        console.print(f"  ls {folder}   # provider's record, workers' log", highlight=False, soft_wrap=True)
        return
    console.print("\nWhere to look next:")
    console.print(f"  export SEMEL_STORE={url}", highlight=False, soft_wrap=True)
    console.print("  semel tasks")
    if c.waiting:
        unknown = app.effects.list(state="ambiguous", limit=1)
        console.print("  semel unknown           # what only a person can decide")
        if unknown:
            console.print(f"  semel why {unknown[0].key}")
            console.print(f"  semel resolve {unknown[0].key} --confirmed null --by you")
    else:
        effects = app.effects.list(limit=1000)
        told = max(effects, key=lambda effect: effect.submissions, default=None)
        if told:
            console.print(f"  semel why {told.key}")
    console.print(f"  ls {folder}   # store, provider's record, workers' log", highlight=False, soft_wrap=True)


def work() -> None:
    """One of the demo's workers."""
    import logging

    from semel.cli.invoicing import agent

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    agent.app.run_worker(queues=["billing"], concurrency=4)


if __name__ == "__main__":
    work()

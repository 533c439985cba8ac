"""`make bench`: semel on SQLite against a raw apsw loop of one-row FULL commits, in one run. The ratios count.

QUICK=1 runs a tenth. Each figure is the best of three rounds, interleaved with the raw loop.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import apsw
from rich.console import Console
from rich.table import Table

import semel

QUICK = bool(os.environ.get("QUICK"))
SCALE = 0.1 if QUICK else 1.0


def build(folder: Path) -> semel.App:
    """An app whose effects do nothing, in a file of its own."""
    app = semel.App(f"sqlite:///{folder}/bench.db")

    @app.effect(intent=("n",))
    async def touch(submission: semel.Submission, n: str) -> str:
        return n

    @app.step()
    async def think(n: int) -> str:
        return "x" * 200

    @app.task(intent=("n",))
    async def empty(n: str) -> None: ...

    @app.task(intent=("n",))
    async def five(n: str, effects: int = 5) -> None:
        for i in range(effects):
            await touch(f"{n}/{i}")

    @app.task(intent=("n",))
    async def steps(n: str, count: int) -> None:
        for i in range(count):
            await think(i)

    app.bench = {"empty": empty, "five": five, "steps": steps}  # type: ignore[attr-defined]
    return app


def raw_commits(folder: Path, n: int) -> float:
    """S1: one-row FULL commits a second, in a loop, nothing else."""
    db = apsw.Connection(str(folder / "raw.db"))
    db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)").fetchall()
    began = time.perf_counter()
    for _ in range(n):
        db.execute("BEGIN IMMEDIATE; INSERT INTO t (v) VALUES ('x'); COMMIT")
    rate = n / (time.perf_counter() - began)
    db.close()
    return rate


def rate(n: int, work: Callable[[], object]) -> float:
    """So many a second."""
    began = time.perf_counter()
    work()
    return n / (time.perf_counter() - began)


def round_of(folder: Path) -> dict[str, float]:
    """One round: every figure once, on a fresh file."""
    app = build(folder)
    tasks = app.bench  # type: ignore[attr-defined]
    app.runtime.desk.store.counts(None)
    found = {"S1 raw commits": raw_commits(folder, int(3000 * SCALE))}
    n = int(5000 * SCALE)

    async def by_callers() -> None:
        todo = iter(range(n))

        async def caller() -> None:
            for i in todo:
                await tasks["empty"].aenqueue(f"e{i}")

        await asyncio.gather(*(caller() for _ in range(50)))

    found["enqueue, 50 callers"] = rate(n, lambda: asyncio.run(by_callers()))
    found["empty tasks"] = rate(n, lambda: app.run_worker(until_idle=True, concurrency=200))
    for concurrency, count in ((1, int(300 * SCALE)), (10, int(600 * SCALE)), (200, int(2000 * SCALE))):
        for i in range(count):
            tasks["five"].enqueue(f"c{concurrency}-{i}")
        found[f"effects, {concurrency} at a time"] = rate(
            count * 5, lambda concurrency=concurrency: app.run_worker(until_idle=True, concurrency=concurrency)
        )
    for count in (1000, 10_000):
        tasks["steps"].enqueue(f"s{count}", count)
        found[f"steps, a task of {count}"] = rate(count, lambda: app.run_worker(until_idle=True))
    app.close()
    return found


def idle(seconds: float = 10.0) -> tuple[float, float]:
    """An idle worker process: its CPU in percent, its memory in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        code = (
            "import semel, pathlib, sys\n"
            f"app = semel.App('sqlite:///{folder}/idle.db')\n"
            "@app.task(intent=('n',))\nasync def t(n: str) -> None: ...\n"
            "app.run_worker()\n"
        )
        worker = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        try:
            time.sleep(2)
            before = cpu_seconds(worker.pid)
            time.sleep(seconds)
            used = cpu_seconds(worker.pid) - before
            status = Path(f"/proc/{worker.pid}/status").read_text(encoding="utf-8")
            memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
        finally:
            worker.terminate()
            worker.wait()
    return 100 * used / seconds, memory


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the table."""
    rounds = []
    for _ in range(1 if QUICK else 3):
        with tempfile.TemporaryDirectory() as folder:
            rounds.append(round_of(Path(folder)))
    best = {name: max(found[name] for found in rounds) for name in rounds[0]}
    raw = best["S1 raw commits"]
    table = Table(title="semel on SQLite, synchronous=FULL")
    for column in ("what", "per second", "of S1"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, value in best.items():
        table.add_row(name, f"{value:,.0f}", f"{value / raw:.2f}")
    console = Console(width=80)
    console.print(table)
    cpu, memory = idle(3 if QUICK else 10)
    console.print(
        f"idle worker: {cpu:.1f} % CPU, {memory:.0f} MiB; this process at its most: "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    main()

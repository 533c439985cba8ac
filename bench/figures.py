"""The figures, each measured in processes of its own on a store of its own."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

HERE = Path(__file__).parent
EFFECTS = 5


@dataclass
class Kit:
    """Where to measure: a fresh store each time, and how large."""

    dialect: str
    fresh: Callable[[], str]
    scale: float
    found: dict[str, dict[str, float]] = field(default_factory=dict)

    def note(self, figure: str, **values: float) -> None:
        """The better of what the rounds have found."""
        self.found.setdefault(figure, {}).update(values)

    def n(self, full: int) -> int:
        """So many, or a tenth in a quick run."""
        return max(20, int(full * self.scale))


def child(*words: object, **env: str) -> subprocess.Popen[str]:
    """A piece of the work, in a process."""
    command = [sys.executable, str(HERE / "work.py"), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **env})


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it says at its end."""
    out, _ = process.communicate(timeout=900)
    if process.returncode:
        raise SystemExit(f"{process.args} ended with {process.returncode}")
    return json.loads(out.splitlines()[-1])  # type: ignore[no-any-return]


def do(*words: object) -> dict[str, Any]:
    """A piece of the work, from its start to its end."""
    return told(child(*words))


class Server:
    """What a PostgreSQL did in between: commits, syncs, bytes of WAL."""

    def __init__(self, url: str) -> None:
        self.url, self.before = url, self._now(url)

    def _now(self, url: str) -> tuple[float, float, float]:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("SELECT pg_stat_force_next_flush()")
            name = db.info.dbname
            row = db.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = %s", (name,)).fetchone()
            wal = db.execute("SELECT wal_sync, pg_current_wal_insert_lsn() - '0/0'::pg_lsn FROM pg_stat_wal").fetchone()
        assert row is not None and wal is not None
        return float(row[0]), float(wal[0]), float(wal[1])

    def since(self, n: int) -> dict[str, float]:
        """By each of n."""
        time.sleep(1.2)  # a backend tells its statistics once a second
        commits, syncs, wal = (after - before for after, before in zip(self._now(self.url), self.before, strict=True))
        return {"commits": commits / n, "syncs": syncs / n, "wal_bytes": wal / n}


def throughput(kit: Kit, kind: str, count: int, concurrency: int, figure: str, each: int = 1) -> None:
    """Tasks that wait, and one worker process: so many a second, and what each cost."""
    url = kit.fresh()
    put = do("enqueue", url, kind, count)
    server = Server(url) if kit.dialect == "postgres" else None
    ran = do("worker", url, kind, count, concurrency)
    n = count * each
    kit.note(figure, per_second=n / ran["seconds"], cpu_ms=1000 * ran["cpu"] / n, rss=ran["rss"])
    if server is not None:
        kit.note(figure, **server.since(n))
    if kind == "empty":
        kit.note("enqueue, 500 in a call", per_second=count / put["seconds"])


def enqueue_by_callers(kit: Kit) -> None:
    """One call at a time, from 50 callers."""
    n = kit.n(5000)
    put = do("callers", kit.fresh(), n, 50)
    kit.note("enqueue, 50 callers", per_second=n / put["seconds"])


def latency(kit: Kit) -> None:
    """An idle system: from the call of enqueue to the start of the handler."""
    n = kit.n(200)
    url = kit.fresh()
    do("enqueue", url, "timed", 0)  # the schema is there
    process = child("serve", url, 100)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(2.0)
    do("paced", url, n, 0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    _quantiles(kit, "latency, across processes", told(process)["delays"], n)
    _quantiles(kit, "latency, in one process", do("alone", kit.fresh(), n, 0.05)["delays"], n)


def _quantiles(kit: Kit, figure: str, seconds: list[float], n: int) -> None:
    assert len(seconds) == n, f"{figure}: {len(seconds)} of {n} began"
    cuts = statistics.quantiles(seconds, n=100)
    kit.note(figure, p50_ms=1000 * cuts[49], p99_ms=1000 * cuts[98])


@contextmanager
def serving(url: str, concurrency: int) -> Iterator[subprocess.Popen[str]]:
    """A worker that works until the block ends."""
    process = child("serve", url, concurrency)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def takeover(kit: Kit) -> None:
    """A worker with 1,000 running tasks is killed; how long until another one on this host runs them all. Its memory."""
    n = kit.n(1000)
    url = kit.fresh()
    do("enqueue", url, "long", n)
    from work import Work

    work = Work(url)

    def holds(worker: int) -> int:
        held = {s.pid: s.id for s in work.app.runtime.desk.store.sessions() if not s.fenced}
        return len(work.app.runtime.desk.store.held(held[worker])) if worker in held else -1

    with serving(url, n) as has:
        _until(lambda: holds(has.pid) == n)
        with serving(url, n) as other:
            _until(lambda: holds(other.pid) == 0)
            time.sleep(1.0)
            memory = _memory(has.pid)
            began = time.monotonic()
            has.kill()
            _until(lambda: holds(other.pid) == n)
            kit.note("takeover, same host", seconds=time.monotonic() - began, tasks=n)
    kit.note("worker with so many running tasks", rss=memory, tasks=n)
    work.app.close()


def _until(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("nothing happens any more")
        time.sleep(0.005)


def idle(kit: Kit) -> None:
    """A worker with nothing to do: CPU, memory, and the transactions that a server sees."""
    url = kit.fresh()
    do("enqueue", url, "empty", 0)
    seconds = 20.0 if kit.scale == 1 else 6.0
    with serving(url, 100) as process:
        time.sleep(3.0)
        server = Server(url) if kit.dialect == "postgres" else None
        before = _cpu(process.pid)
        time.sleep(seconds)
        kit.note("idle worker", cpu_percent=100 * (_cpu(process.pid) - before) / seconds, rss=_memory(process.pid))
        if server is not None:
            kit.note("idle worker", commits_per_second=server.since(1)["commits"] / (seconds + 1.2))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

"""What every measurement stands on: fresh stores, pieces of the work in processes of their own, the server's own counters."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import limits
import psycopg

from semel.testing import postgres

HERE = Path(__file__).resolve().parent
SETTINGS = """
shared_buffers = '512MB'
max_wal_size = '4GB'
max_connections = 1000
"""
COUNTING = "shared_preload_libraries = 'pg_stat_statements'\npg_stat_statements.track = 'top'\npg_stat_statements.max = 2000\n"
BEATS = ("semel.session", "semel.living")  # what beats, and looking after others, read and write
Figures = dict[str, dict[str, Any]]


@dataclass
class Kit:
    """One kind of store. store(): a fresh one, gone at the end of the block. scale: how much work, 1 for a full run."""

    dialect: str
    store: Callable[[], AbstractContextManager[str]]
    limit: Callable[[float], dict[str, float]]
    scale: float
    admin: str = ""  # the superuser's URL, on PostgreSQL
    counts: bool = False  # the server counts statements
    found: Figures = field(default_factory=dict)

    def note(self, figure: str, **values: Any) -> None:
        """What was found."""
        self.found.setdefault(figure, {}).update({name: value for name, value in values.items() if value is not None})

    def n(self, full: int, least: int = 20) -> int:
        """So many in a full run, fewer in a quick one."""
        return max(least, int(full * self.scale))

    def server(self, url: str) -> Server | None:
        """The counters of the server, for one database on it; None on SQLite."""
        return Server(self.admin, url.rpartition("/")[2], self.counts) if self.admin else None


@contextmanager
def kits(dialect: str, scale: float, settings: str = "") -> Iterator[Kit]:
    """The kit of a dialect; for PostgreSQL a server is started, and ends with the block. settings: further lines of its own."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        os.environ["XDG_STATE_HOME"] = folder  # where witnesses of databases are left
        if dialect == "sqlite":
            yield Kit(dialect, lambda: _file(place), lambda seconds: {"S1": limits.sqlite(place, seconds)}, scale)
            return
        with _cluster(settings) as (server, counts), postgres.database(server, "limits") as scratch:

            def limit(seconds: float) -> dict[str, float]:
                return {f"L{n}": limits.server(scratch, n, seconds) for n in (1, 8)}

            yield Kit(dialect, lambda: _database(server), limit, scale, server, counts)


@contextmanager
def _cluster(settings: str) -> Iterator[tuple[str, bool]]:
    """The URL of a server, and whether it counts statements."""
    counts = any(any(folder.glob("**/pg_stat_statements.so")) for folder in postgres.binaries().parent.glob("lib*"))
    cluster = postgres.Cluster(SETTINGS + settings + (COUNTING if counts else ""))
    try:
        if counts:
            with psycopg.connect(cluster.url, autocommit=True) as db:
                db.execute("CREATE EXTENSION pg_stat_statements")
        yield cluster.url, counts
    finally:
        cluster.close()


@contextmanager
def _file(folder: Path) -> Iterator[str]:
    path = folder / f"{time.monotonic_ns()}.db"
    try:
        yield f"sqlite:///{path}"
    finally:
        for left in folder.glob(f"{path.name}*"):
            left.unlink()


def _database(server: str) -> AbstractContextManager[str]:
    return postgres.database(server, f"bench_{time.monotonic_ns()}")


# --- pieces of the work ---


def child(*words: object, code: str = "work.py") -> subprocess.Popen[str]:
    """A piece of the work, in a process."""
    command = [sys.executable, str(HERE / code), *map(str, words)]
    quiet = None if os.environ.get("LOUD") else subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, text=True)


def ready(process: subprocess.Popen[str]) -> None:
    """Wait until it says that it is."""
    assert process.stdout is not None
    if not process.stdout.readline():
        raise SystemExit(f"{process.args} did not start; LOUD=1 shows what it says")


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it says at its end."""
    out, _ = process.communicate(timeout=1800)
    if process.returncode:
        raise SystemExit(f"{process.args} ended with {process.returncode}; LOUD=1 shows what it says")
    return json.loads(out.splitlines()[-1])  # type: ignore[no-any-return]


def do(*words: object) -> dict[str, Any]:
    """A piece of the work, from its start to its end."""
    return told(child(*words))


@contextmanager
def serving(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A process that has said that it is ready, until the block ends."""
    process = child(*words)
    try:
        ready(process)
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("nothing happens any more")
        time.sleep(0.005)


def cpu(pid: int) -> float:
    """Seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    """What it has in memory now, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


# --- the server's counters ---


class Server:
    """What a PostgreSQL did for one database in between: commits, syncs, bytes of WAL, statements."""

    def __init__(self, admin: str, name: str, counts: bool) -> None:
        self.admin, self.name, self.counts = admin, name, counts
        if counts:
            with psycopg.connect(admin, autocommit=True) as db:
                db.execute("SELECT pg_stat_statements_reset()")
        self.before = self._now()

    def _now(self) -> dict[str, float]:
        with psycopg.connect(self.admin, autocommit=True) as db:
            (commits,) = one(db, "SELECT xact_commit FROM pg_stat_database WHERE datname = %s", self.name)
            (wal,) = one(db, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
            synced = "SELECT wal_sync FROM pg_stat_wal"
            if db.info.server_version >= 180000:
                synced = "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'"
            (syncs,) = one(db, synced)
        return {"commits": float(commits), "wal_bytes": float(wal), "syncs": float(syncs)}

    def since(self, n: int = 1) -> dict[str, float]:
        """By each of n. statements: all of them, BEGIN and COMMIT too; besides_beats: without those of beats."""
        time.sleep(1.2)  # a backend tells its statistics once a second
        found = {name: (value - self.before[name]) / n for name, value in self._now().items()}
        if self.counts:
            ask = """SELECT coalesce(sum(calls), 0), coalesce(sum(calls) FILTER (WHERE NOT query LIKE ANY (%s)), 0)
            FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = %s"""
            with psycopg.connect(self.admin, autocommit=True) as db:
                calls, besides = one(db, ask, [f"%{name}%" for name in BEATS], self.name)
            found |= {"statements": float(calls) / n, "besides_beats": float(besides) / n}
        return found

    def asked(self, n: float) -> dict[str, float]:
        """Each statement besides beats, by each of n; empty where the server does not count them."""
        if not self.counts:
            return {}
        ask = """SELECT left(regexp_replace(query, '\\s+', ' ', 'g'), 60), sum(calls) FROM pg_stat_statements s
        JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = %s
        AND NOT query LIKE ANY (%s) GROUP BY 1 ORDER BY 2 DESC LIMIT 8"""
        with psycopg.connect(self.admin, autocommit=True) as db:
            rows = db.execute(ask, [self.name, [f"%{name}%" for name in BEATS]]).fetchall()
        return {query: float(calls) / n for query, calls in rows}


def one(db: psycopg.Connection[Any], query: str, *values: object) -> tuple[Any, ...]:
    """The one row."""
    row = db.execute(query, values or None).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return row  # type: ignore[no-any-return]


# --- where it was measured ---


def machine(admin: str = "") -> dict[str, str]:
    """What the figures depend on."""
    about = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in about if line.startswith("model name")), platform.machine())
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = {
        "processor": f"{os.cpu_count()} cores, {model}",
        "memory": f"{memory_gib:.0f} GiB",
        "system": f"Linux {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "sqlite": f"{apsw.sqlite_lib_version()} (apsw)",
        "load": f"{os.getloadavg()[0]:.1f} at the start",
    }
    if admin:
        with psycopg.connect(admin) as db:
            found["postgresql"] = one(db, "SHOW server_version")[0].partition(" ")[0] + f", psycopg {psycopg.__version__}"
    return found


def commit() -> str:
    """Which semel this is: the commit, and whether its sources have been changed since."""

    def git(*words: str) -> str:
        asked = subprocess.run(["git", *words], cwd=HERE.parent, capture_output=True, text=True, check=False)
        return asked.stdout.strip()

    changed = git("status", "--porcelain", "--", "src")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (", changed" if changed else "")

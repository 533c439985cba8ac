"""What the machine could do at most, measured in the same run: the raw commits of SQLite, and pgbench's of PostgreSQL."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from pathlib import Path

import apsw
import psycopg

from semel.testing import postgres

ROW = '{"r": "' + "x" * 191 + '"}'


def sqlite(folder: Path, seconds: float) -> float:
    """S1: one-row FULL commits a second in a loop, nothing else."""
    db = apsw.Connection(str(folder / f"raw-{time.monotonic_ns()}.db"))
    db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)").fetchall()
    began, n = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        db.execute("BEGIN IMMEDIATE; INSERT INTO t (v) VALUES (?); COMMIT", (ROW,))
        n += 1
    rate = n / (time.perf_counter() - began)
    db.close()
    return rate


def pgbench() -> Path | None:
    """The program, beside the server's; None: this installation has none."""
    for folder in (postgres.binaries(), Path("/usr/bin")):
        if (folder / "pgbench").exists():
            return folder / "pgbench"
    return None


def server(url: str, clients: int, seconds: float) -> float:
    """L1, L8: one-row commits a second of so many clients. Without pgbench: by as many threads of psycopg, which is slower."""
    program = pgbench()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE IF NOT EXISTS lim (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body jsonb)")
    if program is None:
        raise SystemExit("there is no pgbench beside this PostgreSQL; install it (Debian: postgresql-contrib), or ONLY=sqlite")
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(f"INSERT INTO lim (body) VALUES ('{ROW}');")
        file.flush()
        threads, time_up = str(min(clients, 2)), str(max(1, round(seconds)))
        told = subprocess.run(
            [program, "-n", "-M", "prepared", "-f", file.name, "-c", str(clients), "-j", threads, "-T", time_up, url],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    found = re.search(r"tps = ([\d.]+) \(without", told.stdout)
    assert found is not None, told.stdout
    return float(found.group(1))

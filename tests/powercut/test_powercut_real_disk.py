"""A real disk that is full, as far as the kernel lets a process write: the shipped store with all its connections."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from semel.store.sqlite import SQLite

SCRIPT = """
import json, os, resource, signal, sys
from semel.errors import StoreUnavailable
from semel.store.contract import Landed
from semel.store.sqlite import SQLite
from semel.store.writer import Writer
from semel.testing.conformance_kit import session, task

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = SQLite(sys.argv[1])
guard = session(store, "ours")
writer = Writer(store, patience=0.1)
acked, told = [], []

def enqueue(n):
    change, known = task(f"key-{n}")
    ticket = writer.submit(change)
    ticket.wait()
    if isinstance(ticket.value, Landed):
        acked.append([known.state.id, known.head.hash.hex()])
    else:
        told.append(f"{type(ticket.value).__name__}: {ticket.value}")

for n in range(5):
    enqueue(n)
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(sys.argv[1] + "-wal") + 50_000, most))
for n in range(5, 20):
    enqueue(n)
full = len(acked)
try:
    store.beat("ours", ["n0"], "n1", 1)
except StoreUnavailable as error:
    told.append(f"StoreUnavailable: {error}")
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
assert store.beat("ours", ["n0", "n1"], "n2", 1)
for n in range(20, 25):
    enqueue(n)
writer.close()
print(json.dumps({"acked": acked, "told": told, "full": full}))
"""


def test_a_store_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    place = tmp_path / "agent.db"
    source = str(Path(__file__).parents[2] / "src")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(place)], env=env, stdout=subprocess.PIPE, timeout=60, check=True, text=True
    )
    said = json.loads(done.stdout)
    assert len(said["told"]) > 3 and all(told.startswith("StoreUnavailable: the store did not answer: ") for told in said["told"])
    assert 5 < said["full"] < 20 and len(said["acked"]) == said["full"] + 5
    store = SQLite(str(place))  # the process ended without closing it
    try:
        heads = {stream: head.hex() for _, stream, _, head in store.heads(("", ""), 100)}
        assert heads == dict(said["acked"])
        assert store._writer.raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        store.close()

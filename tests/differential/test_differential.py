"""One random history on both stores: the same answers to every batch, and in the end the same tables, row for row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import psycopg
import pytest
from history import History, snapshot

from pgserver import emptied
from semel.store.postgres import Postgres
from semel.store.sqlite import SQLite

SEEDS = 8
BATCHES = 160
# Each must have landed at least once, over all seeds: else the comparison says nothing of it.
WANTED = {
    "enqueue:Landed", "enqueue:Exists", "again:Landed", "claim:taken", "claim_one:taken", "claim:Fenced", "rival:Landed",
    "rival:Stale", "beat:True", "beat:False", "fence", "Finish:Landed", "Fail:Landed", "Park:Landed", "Suspend:Landed",
    "Block:Landed", "Unblock:Landed", "Conclude:Landed", "Decline:Landed", "LoseLease:Landed", "Cancel:Landed", "Step:Landed",
    "Replay:Landed",
    "Intend_task:Landed", "Intend_task:Fenced", "Intend_tenant:Landed", "Intend_tenant:Stale",
    *(f"{what}_{scope}:Landed" for what in ("Confirm", "Disprove", "Lose", "MarkUnfenced") for scope in ("task", "tenant")),
    *(f"Settle_{verdict}:Landed" for verdict in ("confirmed", "not_found", "conflict", "unavailable")),
    "Approve_task:Landed", "Deny_task:Landed", "Block_task:Landed", "Approve_tenant:Landed", "Deny_tenant:Landed",
    "Answer_confirmed:Landed", "Answer_not_found:Landed",
}  # fmt: skip


def compare(seed: int, place: str, url: str) -> Counter[str]:
    """Run one history, and compare. What it did."""
    postgres, sqlite = Postgres(url), SQLite(place)
    with psycopg.connect(url) as admin:  # one epoch: tokens are made of it
        admin.execute("UPDATE semel.meta SET value = %s WHERE name = 'epoch'", (str(sqlite.info.epoch),))
    try:
        history = History([sqlite, postgres], seed)
        history.run(BATCHES)
        one, other = snapshot(sqlite), snapshot(postgres)
        for name in one:
            assert one[name] == other[name], f"seed {seed}: {name}"
        return history.done
    finally:
        postgres.close()
        sqlite.close()


def histories(first: int, count: int, folder: Path, own_database: str) -> Counter[str]:
    """Compare so many."""
    done: Counter[str] = Counter()
    for seed in range(first, first + count):
        done.update(compare(seed, str(folder / f"{seed}.db"), emptied(own_database)))
    return done


def test_one_history_on_both_stores(tmp_path: Path, own_database: str) -> None:
    done = histories(0, SEEDS, tmp_path, own_database)
    assert not WANTED - done.keys(), f"{sorted(WANTED - done.keys())} never happened; there were {sorted(done)}"


@pytest.mark.proof
def test_many_histories(tmp_path: Path, own_database: str) -> None:
    assert histories(1000, 60, tmp_path, own_database)["Finish:Landed"] > 30

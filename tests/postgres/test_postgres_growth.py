"""What grows, and what does not: a snapshot that is held for two minutes under load, and stores that hold a lot."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from semel.machine import journal as j
from semel.store.contract import Claims, Landed
from semel.store.postgres import Postgres
from semel.testing.conformance_kit import Known, claiming, session, task
from semel.testing.postgres import Cluster

RATE, AT_ONCE = 500, 50  # tasks a second, enqueued and claimed so many at a time
HELD, LAST = 120.0, 30.0  # seconds
CONTROL = 4  # one of so many rounds is also made in a database without the snapshot: the machine is not ours alone

pytestmark = pytest.mark.proof


@pytest.fixture
def two_clusters() -> Iterator[tuple[Cluster, Cluster]]:
    """Two that clean up after themselves, as they do."""
    with contextlib.ExitStack() as ends:
        found = [Cluster("autovacuum = on\nautovacuum_naptime = 5") for _ in range(2)]
        for cluster in found:
            ends.callback(cluster.close)
        yield found[0], found[1]


class Flow:
    """Tasks that are enqueued, claimed and finished; how long a claim took."""

    def __init__(self, store: Postgres) -> None:
        self.store, self.guard, self.count = store, session(store), 0

    def tick(self) -> float:
        now = time.time_ns() // 1_000_000
        made = [task(f"k{self.count + n}", due=now)[0] for n in range(AT_ONCE)]
        self.count += AT_ONCE
        assert self.store.commit(made) == [Landed()] * AT_ONCE
        began = time.monotonic()
        (outcome,) = self.store.commit([claiming(self.guard, limit=AT_ONCE, at=now)])
        took = time.monotonic() - began
        assert isinstance(outcome, Claims)
        assert len(outcome.tasks) == AT_ONCE
        done = [Known(taken.task, taken.head).then(j.Finished("ok"))[0] for taken in outcome.tasks]
        assert self.store.commit(done) == [Landed()] * AT_ONCE
        return took


@pytest.mark.timeout(400)
def test_a_snapshot_that_is_held_for_two_minutes_does_not_double_what_a_claim_takes(
    two_clusters: tuple[Cluster, Cluster],
) -> None:
    stores = [Postgres(cluster.url) for cluster in two_clusters]
    held, control = (Flow(store) for store in stores)
    took: list[tuple[Flow, float, float]] = []
    with psycopg.connect(two_clusters[0].url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM semel.ready")
        began, late = time.monotonic(), 0.0
        for n in range(int(HELD * RATE / AT_ONCE)):
            due = n * AT_ONCE / RATE
            time.sleep(max(0.0, began + due - time.monotonic()))
            late = max(0.0, time.monotonic() - began - due)
            took.extend((flow, due, flow.tick()) for flow in ((held, control) if n % CONTROL == 0 else (held,)))
        assert late < 1.0, f"{late:.1f} s behind {RATE} tasks a second"
        holder.rollback()
    for store in stores:
        store.close()
    for what, of in (("median", statistics.median), ("mean", statistics.mean)):
        with_it, without = (of([s for f, at, s in took if f is flow and at > HELD - LAST]) * 1000 for flow in (held, control))
        print(f"{what} of a claim of {AT_ONCE}: {with_it:.1f} ms under it, {without:.1f} ms without ({with_it / without:.2f})")
        assert with_it <= 2 * without


@pytest.mark.timeout(900)
@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_what_a_store_holds_slows_nothing_down(dialect: str) -> None:
    bench = Path(__file__).parents[2] / "bench" / "growth.py"
    done = subprocess.run([sys.executable, str(bench), dialect], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr

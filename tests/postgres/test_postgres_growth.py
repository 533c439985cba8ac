"""What grows, and what does not: a snapshot that is held for two minutes under load, and stores that hold a lot."""

from __future__ import annotations

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
ALONE, HELD, LAST = 15.0, 120.0, 20.0  # seconds

pytestmark = pytest.mark.proof


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """One that cleans up after itself, as they do."""
    found = Cluster("autovacuum = on\nautovacuum_naptime = 5")
    yield found
    found.close()


class Flow:
    """Tasks that are enqueued, claimed and finished at an even rate; how long each claim took."""

    def __init__(self, store: Postgres) -> None:
        self.store, self.guard, self.count = store, session(store), 0
        self.late = 0.0  # seconds behind the rate

    def run(self, seconds: float) -> list[float]:
        took: list[float] = []
        began = time.monotonic()
        for tick in range(int(seconds * RATE / AT_ONCE)):
            due = began + tick * AT_ONCE / RATE
            time.sleep(max(0.0, due - time.monotonic()))
            self.late = max(0.0, time.monotonic() - due)
            took.append(self.tick())
        return took

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
def test_a_snapshot_that_is_held_for_two_minutes_does_not_double_what_a_claim_takes(own_cluster: Cluster) -> None:
    store = Postgres(own_cluster.url)
    flow = Flow(store)
    flow.run(3.0)  # warm
    alone = flow.run(ALONE)
    with psycopg.connect(own_cluster.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM semel.ready")
        flow.run(HELD - LAST)
        held = flow.run(LAST)
        assert flow.late < 1.0, f"{flow.late:.1f} s behind {RATE} tasks a second"
        (dead,) = holder.execute("SELECT count(*) FROM semel.ready").fetchone() or (-1,)
        assert dead >= 0
        holder.rollback()
    store.close()
    for what, of in (("median", statistics.median), ("mean", statistics.mean)):
        before, after = of(alone) * 1000, of(held) * 1000
        print(f"{what} of a claim of {AT_ONCE}: {before:.1f} ms alone, {after:.1f} ms under the snapshot ({after / before:.2f})")
        assert after <= 2 * before


@pytest.mark.timeout(900)
@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_what_a_store_holds_slows_nothing_down(dialect: str) -> None:
    bench = Path(__file__).parents[2] / "bench" / "growth.py"
    done = subprocess.run([sys.executable, str(bench), dialect], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr

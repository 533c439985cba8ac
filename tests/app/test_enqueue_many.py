"""Many tasks in one call: each is accepted as `enqueue` accepts it, in the order given; or an error says how many are."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.engine import queue
from semel.machine.events import Enqueued
from semel.store.contract import Change, Outcome, Unit


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[semel.App]:
    url = f"sqlite:///{tmp_path}/a.db" if request.param == "sqlite" else request.getfixturevalue("database")
    app = semel.App(url)
    yield app
    app.close()


@pytest.fixture
def bill(app: semel.App) -> semel.Task[[str, int], str]:
    @app.task(intent=("invoice",))
    async def bill(invoice: str, cents: int = 0) -> str:
        return f"{invoice}: {cents}"

    return bill


def said(app: semel.App, ref: semel.Ref[Any]) -> dict[str, Any]:
    """What is on record of one that was accepted, without what chance and the clock gave it."""
    event = app.journal(ref)[0]
    return {"kind": event.kind, "actor": event.actor} | {k: v for k, v in event.body.items() if k not in ("task", "due")}


def test_each_is_on_record_as_enqueue_alone_puts_it_there(app: semel.App, bill: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "SLICE", 3)
    many = bill.enqueue_many(bill.call(f"many {n}", n) for n in range(10))
    for n, ref in enumerate(many):
        alone = said(app, bill.enqueue(f"alone {n}", n))
        assert said(app, ref) == {**alone, "key": f"many {n}", "args": {"invoice": f"many {n}", "cents": n}}
        assert app.tasks.get(ref).queue == "default"
    app.run_worker(until_idle=True)
    assert [ref.result() for ref in many] == [f"many {n}: {n}" for n in range(10)]


def test_a_key_that_is_there_is_the_task_that_it_was(app: semel.App, bill: Any) -> None:
    first = bill.enqueue("b", 1)
    a, b, again, c = bill.enqueue_many([bill.call("a"), bill.call("b", 2), bill.call("a", 3), bill.call("c")])
    assert (b, again) == (first, a)
    assert len({a, b, c}) == 3
    assert [said(app, ref)["args"]["cents"] for ref in (a, b)] == [0, 1]
    assert bill.enqueue_many([bill.call("a"), bill.call("b"), bill.call("c")]) == [a, b, c]
    assert bill.enqueue_many([]) == []


def test_what_using_says_of_a_call_goes_before_what_it_says_of_all(app: semel.App, bill: Any) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    own = bill.using(tenant="acme", key="own", run_at=later)
    keyed = bill.using(key="only a key", priority=3)
    refs = bill.using(priority=7, tenant="bolt").enqueue_many([bill.call("a"), own.call("b"), keyed.call("c")])
    views = [app.tasks.get(ref) for ref in refs]
    assert [(v.ref.tenant, v.key) for v in views] == [("bolt", "a"), ("acme", "own"), ("bolt", "only a key")]
    assert [said(app, ref)["priority"] for ref in refs] == [7, 7, 3]
    assert views[1].due == int(later.timestamp() * 1000)


def test_a_wrong_call_says_so_where_it_is_made_and_nothing_is_accepted(app: semel.App, bill: Any) -> None:
    @app.task()
    async def other(invoice: str) -> str:
        return invoice

    with pytest.raises(semel.Misuse, match="cents is not a int"):
        bill.call("a", "much")
    with pytest.raises(semel.Misuse, match="nothing says which work this is"):
        other.call("a")
    wrong: Sequence[tuple[Any, str]] = (
        (other.using(key="k").call("a"), "takes calls of this task, and not <call of task other, key 'k'>"),
        ("a", "takes calls of this task, and not a str"),
        (bill.using(key="\n").call("a"), "key must be at most 200 printable characters"),
        (bill.using(tenant="").call("a"), "tenant must be text that is not empty"),
    )
    for call, why in wrong:
        with pytest.raises(semel.Misuse, match=why):
            bill.enqueue_many([bill.call("a"), call])
    with pytest.raises(semel.Misuse, match=r"write bill\.using\(key=\.\.\.\)\.call\(\.\.\.\) for each"):
        bill.using(key="k").enqueue_many([bill.call("a")])
    assert not app.tasks.list()


def test_in_a_running_loop_it_is_awaited(app: semel.App, bill: Any) -> None:
    async def scene() -> None:
        with pytest.raises(semel.Misuse, match=r"await bill\.aenqueue_many"):
            bill.enqueue_many([bill.call("a")])
        refs = await bill.aenqueue_many([bill.call(f"{n}") for n in range(600)])
        assert [(await app.tasks.aget(ref)).key for ref in refs[::100]] == [f"{n}" for n in range(0, 600, 100)]

    asyncio.run(scene())


def of_key(unit: Unit) -> str:
    event = unit.parts[0].rows[0].event if isinstance(unit, Change) and unit.parts else None
    return event.key if isinstance(event, Enqueued) else ""


def test_others_wait_behind_four_slices_at_most(app: semel.App, bill: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "SLICE", 4)
    store, began, go = app.runtime.desk.store, threading.Event(), threading.Event()
    commit: Callable[[Sequence[Unit]], list[Outcome]] = store.commit
    written: list[str] = []

    def slow(units: Sequence[Unit]) -> list[Outcome]:
        began.set()
        go.wait(20)
        written.extend(map(of_key, units))
        return commit(units)

    monkeypatch.setattr(store, "commit", slow)
    many = threading.Thread(target=bill.enqueue_many, args=([bill.call(f"{n}") for n in range(40)],))
    one = threading.Thread(target=bill.enqueue, args=("one",))
    many.start()
    assert began.wait(20)
    one.start()
    end = time.monotonic() + 20
    while not any(of_key(t.unit) == "one" for t in list(app.runtime.desk.writer._queue)):
        assert time.monotonic() < end, "it was never given"
        time.sleep(0.001)
    go.set()
    many.join()
    one.join()
    assert written.index("one") <= queue.SLICES * queue.SLICE
    assert len(written) == 41


def test_cut_off_in_the_middle_the_error_says_how_many_and_the_same_calls_accept_the_rest(
    app: semel.App, bill: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "SLICE", 2)
    writer, given = app.runtime.desk.writer, []
    submit_all = writer.submit_all

    def until_two_slices(units: Sequence[Change], **more: Any) -> Any:
        given.append(units)
        if len(given) == 3:
            writer.close()
            raise semel.StoreUnavailable("the app is closed")
        return submit_all(units, **more)

    calls = [bill.call(f"{n}") for n in range(10)]
    with monkeypatch.context() as patch:
        patch.setattr(writer, "submit_all", until_two_slices)
        with pytest.raises(semel.StoreUnavailable, match="of 10 tasks 4 are accepted, and of the others it is not known"):
            bill.enqueue_many(calls)
    app.close()
    there = {view.id for view in app.tasks.list()}
    assert len(there) == 4
    refs = bill.enqueue_many(calls)
    assert {ref.id for ref in refs[:4]} == there
    assert len({ref.id for ref in refs}) == len(app.tasks.list()) == 10

"""Pausing: what is paused is not begun, what runs goes on, and nothing is forgotten; on both stores."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import semel
from semel.machine import pauses
from semel.machine.pauses import Pauses, Scope

AWHILE = 0.4  # seconds in which a worker would have claimed many times


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[semel.App]:
    url = f"sqlite:///{tmp_path}/agent.db" if request.param == "sqlite" else request.getfixturevalue("database")
    app = semel.App(url)
    app.began = threading.Event()  # type: ignore[attr-defined]
    app.free = threading.Event()  # type: ignore[attr-defined]

    @app.task(intent=("n",), queue="billing")
    def bill(n: int) -> int:
        app.began.set()  # type: ignore[attr-defined]
        assert app.free.wait(20)  # type: ignore[attr-defined]
        return n

    @app.task(intent=("n",), queue="mail")
    def send(n: int) -> int:
        return n

    app.bill, app.send = bill, send  # type: ignore[attr-defined]
    yield app
    app.free.set()  # type: ignore[attr-defined]
    app.close()


def live(app: semel.App, script: Callable[[], Awaitable[None]]) -> None:
    """Run a worker while `script` runs."""

    async def both() -> None:
        worker = asyncio.ensure_future(app.arun_worker())
        try:
            await script()
            assert not worker.done()
        finally:
            app.free.set()  # type: ignore[attr-defined]
            worker.cancel()
            await asyncio.wait([worker])

    asyncio.run(both())


async def delivery(app: semel.App, ref: semel.Ref[int]) -> str:
    return str((await app.tasks.aget(ref)).delivery)


async def ended(app: semel.App, ref: semel.Ref[int]) -> None:
    for _ in range(400):
        if await delivery(app, ref) == "acknowledged":
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{ref} did not end")


@pytest.mark.parametrize("what", [{"queue": "billing"}, {"kind": "bill"}])
def test_what_is_paused_waits_and_the_rest_goes_on(app: semel.App, what: dict[str, str]) -> None:
    app.review.pause(by="ann", reason="the bank is down", **what)
    app.free.set()  # type: ignore[attr-defined]

    async def script() -> None:
        held, free = await app.bill.aenqueue(1), await app.send.aenqueue(1)  # type: ignore[attr-defined]
        await ended(app, free)
        await asyncio.sleep(AWHILE)
        assert await delivery(app, held) == "queued"
        (one,) = await app.review.apaused()
        assert (dict([one.scope]), one.by, one.why) == (what, "person:ann", "the bank is down")
        await app.review.aresume(by="bob", **what)
        await ended(app, held)

    live(app, script)


def test_all_is_paused_while_it_runs_and_what_runs_goes_on(app: semel.App) -> None:
    async def script() -> None:
        running = await app.bill.aenqueue(1)  # type: ignore[attr-defined]
        assert await asyncio.to_thread(app.began.wait, 10)  # type: ignore[attr-defined]
        await app.review.apause(by="ann", everything=True)
        waiting = await app.send.aenqueue(1)  # type: ignore[attr-defined]
        app.free.set()  # type: ignore[attr-defined]
        await ended(app, running)
        await asyncio.sleep(AWHILE)
        assert await delivery(app, waiting) == "queued"
        await app.review.aresume(by="ann", everything=True)
        await ended(app, waiting)

    live(app, script)


def test_direct_mode_does_not_begin_what_is_paused(app: semel.App) -> None:
    app.free.set()  # type: ignore[attr-defined]
    app.review.pause(by="ann", kind="bill", reason="the bank is down")
    with pytest.raises(
        semel.Unsettled, match=r"is not begun: kind bill is paused by ann: the bank is down; .*semel resume"
    ) as no:
        app.bill.using(wait=timedelta(0)).run(1)  # type: ignore[attr-defined]
    assert no.value.why == "queued"
    assert app.send.run(1) == 1  # type: ignore[attr-defined]
    resume = threading.Timer(0.3, lambda: app.review.resume(by="ann", kind="bill"))
    resume.start()
    assert app.bill.using(wait=timedelta(seconds=20)).run(1) == 1, "it waited until it was resumed"  # type: ignore[attr-defined]
    resume.join()


def test_who_and_what_must_be_said_and_the_same_twice_is_refused(app: semel.App) -> None:
    for call in (app.review.pause, app.review.resume):
        with pytest.raises(semel.Misuse, match="one thing"):
            call(by="ann")
        with pytest.raises(semel.Misuse, match="one thing"):
            call(by="ann", queue="billing", everything=True)
        with pytest.raises(semel.Misuse, match="by='alice'"):
            call(by=" ", everything=True)
        with pytest.raises(semel.Misuse, match="queue must be text"):
            call(by="ann", queue="")
    app.review.pause(by="ann", queue="billing")
    with pytest.raises(semel.Refused, match="queue billing is paused already, by ann") as twice:
        app.review.pause(by="bob", queue="billing")
    with pytest.raises(semel.Refused, match="kind bill is not paused"):
        app.review.resume(by="bob", kind="bill")
    assert twice.value.code == "stale_view"
    assert [one.scope for one in app.review.paused()] == [Scope("queue", "billing")]


def test_one_tenants_app_cannot_pause_for_all(tmp_path: Path) -> None:
    bound = semel.App(f"sqlite:///{tmp_path}/agent.db", tenant="acme")
    with pytest.raises(semel.Misuse, match="holds for all tenants, and this app is of 'acme' alone"):
        bound.review.pause(by="ann", everything=True)
    assert bound.review.paused() == []
    bound.close()


def test_an_agent_cannot_pause(app: semel.App) -> None:
    with app.work("w", kind="agent"), pytest.raises(semel.Misuse, match="inside the work of an agent"):
        app.review.pause(by="ann", everything=True)


def test_a_kind_is_paused_by_any_name_that_it_has_or_had(tmp_path: Path) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")

    @app.task(intent=("n",), name="bill2", formerly=("bill",))
    def bill(n: int) -> int:
        return n

    for name in ("bill", "bill2"):
        ref = bill.enqueue(len(name))
        app.review.pause(by="ann", kind=name)
        app.run_worker(until_idle=True)
        with pytest.raises(semel.Unsettled, match="is paused by ann"):
            bill.using(wait=timedelta(0)).run(len(name))
        assert app.tasks.get(ref).delivery == "queued", name
        assert [task.id for task in app.tasks.list(kind=name, delivery="queued")] == [ref.id]
        app.review.resume(by="ann", kind=name)
        app.run_worker(until_idle=True)
        assert app.tasks.get(ref).delivery == "acknowledged"
    app.close()


def test_a_queue_that_is_paused_is_not_run_in_this_process_either(app: semel.App) -> None:
    app.free.set()  # type: ignore[attr-defined]
    app.review.pause(by="ann", queue="billing")
    with pytest.raises(semel.Unsettled, match="queue billing is paused by ann"):
        app.bill.using(wait=timedelta(0)).run(1)  # type: ignore[attr-defined]
    with app.work("w", kind="bill"):
        pass  # it stands in no queue


def test_nothing_is_claimed_that_came_when_it_was_paused_already(tmp_path: Path) -> None:
    """The worker looked before the pause, and claims after it: what it finds then is looked at once more."""
    app = semel.App(f"sqlite:///{tmp_path}/agent.db", watchdog="never")

    @app.task(intent=("n",))
    def send(n: int) -> int:
        return n

    app.review.pause(by="ann", everything=True)
    ref = send.enqueue(1)

    class Before:
        since_now = app.runtime.paused.since_now

        def now(self) -> Pauses:
            return Pauses()

    async def awhile() -> None:
        worker = asyncio.ensure_future(app.arun_worker())
        await asyncio.sleep(AWHILE)
        worker.cancel()
        await asyncio.wait([worker])

    app.runtime.paused = Before()  # type: ignore[assignment]
    asyncio.run(awhile())
    assert app.tasks.get(ref).delivery == "queued"
    app.close()


def test_what_a_claim_is_told_of_pauses_is_read_though_it_asked_a_moment_ago(app: semel.App) -> None:
    """It asks twice, if more is due than it takes: what came in between may have come when it was paused already."""
    paused = app.runtime.paused
    since = paused.since_now(60.0)
    since.stood(0, time.monotonic())
    assert since.of("billing", "bill") is None
    app.review.pause(by="ann", queue="billing")
    store = app.runtime.desk.store
    since.stood(store.head(pauses.TENANT, pauses.STREAM).seq, time.monotonic())
    assert since.of("billing", "bill") is not None

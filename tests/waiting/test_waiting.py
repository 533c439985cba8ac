"""semel.sleep, semel.wait_for and app.signal: durable, holding no worker; what comes early is not lost, and twice is once."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.testing import Harness

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
app = semel.App("sqlite:///never-made.db")
seen: list[str] = []


@app.effect(intent=("what",), recovery=semel.Resend(within=DAY))
def act(submission: semel.Submission, what: str) -> str:
    return what


@app.step()
def read(what: str) -> str:
    seen.append(what)
    return what


@app.task()
def naps(hours: int) -> str:
    read("before")
    act("before")
    semel.sleep(timedelta(hours=hours))
    return act("after")


@app.task()
async def anaps(hours: int) -> str:
    await asyncio.to_thread(read, "before")
    await asyncio.to_thread(act, "before")
    semel.sleep(timedelta(hours=hours))
    return await asyncio.to_thread(act, "after")


@app.task()
def sells(order: str) -> Any:
    act(f"offer {order}")
    paid = semel.wait_for("paid")
    act(f"ship {order}")
    return paid


@app.task(retry=semel.Retry(max_attempts=3, backoff=timedelta(seconds=1)))
def chases(order: str, then_fail: bool) -> str:
    try:
        semel.wait_for("paid", timeout=HOUR)
    except TimeoutError:
        act(f"remind {order}")
        if then_fail and len(seen) < 2:
            seen.append("failed")
            raise RuntimeError("the first time") from None
        return "reminded"
    act(f"ship {order}")
    return "shipped"


@app.task()
def swallows(order: str) -> str:
    try:
        semel.wait_for("paid")
    except BaseException:
        act(f"ship {order}")
    return "never"


@app.task()
def twice() -> list[Any]:
    first = semel.wait_for("go")
    semel.sleep(HOUR)
    semel.sleep(HOUR)
    return [first, semel.wait_for("go")]


@pytest.fixture
def h() -> Any:
    seen.clear()
    with Harness(app) as harness:
        yield harness


def acts(h: Harness) -> list[str]:
    return [sent.arguments["what"] for sent in h.sent(act)]


@pytest.mark.parametrize("task", [naps, anaps])
def test_it_sleeps_without_a_worker_and_goes_on_behind_it(h: Harness, task: Any) -> None:
    ref = task.using(key="k").enqueue(2)
    h.run()
    view = app.tasks.get(ref)
    assert (view.delivery, view.execution, view.why) == ("queued", "not_started", "sleeps")
    h.advance(timedelta(hours=1, minutes=59))
    h.run()
    assert acts(h) == ["before"]
    h.advance(timedelta(minutes=1))
    h.run()
    assert ref.result() == "after" and acts(h) == ["before", "after"] and seen == ["before"]
    assert [event.kind for event in app.journal(ref)].count("waits") == 1


def test_how_long_is_on_record_from_the_first_time_on(h: Harness) -> None:
    ref = twice.using(key="k").enqueue()
    app.signal(ref, "go", 1)
    h.run()
    h.advance(HOUR)
    h.run()
    assert app.tasks.get(ref).delivery == "queued", "the second is another, and begins when the first is over"
    h.advance(HOUR)
    h.run()
    assert ref.result() == [1, 1]


def test_it_waits_for_a_signal_and_gets_its_payload(h: Harness) -> None:
    ref = sells.using(key="k").enqueue("o1")
    h.run()
    view = app.tasks.get(ref)
    assert (view.delivery, view.why) == ("blocked", "waits for paid") and acts(h) == ["offer o1"]
    h.advance(timedelta(days=400))
    h.run()
    assert app.tasks.get(ref).delivery == "blocked"
    app.signal(ref, "shipped", "of another name")
    h.run()
    assert app.tasks.get(ref).delivery == "blocked"
    app.signal(ref, "paid", {"cents": 42})
    h.run()
    assert ref.result() == {"cents": 42} and acts(h) == ["offer o1", "ship o1"]


def test_a_signal_that_comes_early_is_not_lost_and_the_second_of_a_name_is_none(h: Harness) -> None:
    ref = sells.using(key="k").enqueue("o1")
    app.signal(ref, "paid", "first")
    app.signal(ref, "paid", "second")
    h.run()
    assert ref.result() == "first"
    assert [event.kind for event in app.journal(ref)].count("signalled") == 1
    app.signal(ref, "paid", "third")  # it counts for nothing, and says so by doing nothing
    with pytest.raises(semel.Refused) as refused:
        app.signal(ref, "shipped")
    assert refused.value.code == "stale_view"


@pytest.mark.parametrize("then_fail", [False, True])
def test_what_does_not_come_in_time_is_a_timeout_in_every_replay(h: Harness, then_fail: bool) -> None:
    """A signal that comes after the handler has taken the other way must not turn it round."""
    ref = chases.using(key="k").enqueue("o1", then_fail)
    h.run()
    assert app.tasks.get(ref).why == "waits for paid"
    h.advance(HOUR)
    h.run()
    if then_fail:
        app.signal(ref, "paid")
    for _ in range(3):
        h.advance(timedelta(minutes=1))
        h.run()
    assert ref.result() == "reminded" and acts(h) == ["remind o1"]


def test_a_signal_in_time_ends_a_wait_that_has_an_end(h: Harness) -> None:
    ref = chases.using(key="k").enqueue("o1", False)
    h.run()
    app.signal(ref, "paid")
    h.run()
    assert ref.result() == "shipped"


def test_a_handler_that_swallows_the_suspension_starts_nothing(h: Harness) -> None:
    ref = swallows.using(key="k").enqueue("o1")
    h.run()
    assert acts(h) == [] and app.tasks.get(ref).delivery != "acknowledged"


def test_a_task_that_waits_can_be_cancelled(h: Harness) -> None:
    for task, args in ((sells, ("o1",)), (naps, (5,))):
        ref = task.using(key="k").enqueue(*args)
        h.run()
        app.review.cancel(ref, by="ann")
        assert app.tasks.get(ref).execution == "cancelled"
        with pytest.raises(semel.Refused):
            app.signal(ref, "paid")


def test_a_replay_from_the_start_sleeps_again_and_keeps_what_was_signalled(h: Harness) -> None:
    ref = twice.using(key="k").enqueue()
    app.signal(ref, "go", 1)
    for _ in range(3):
        h.run()
        h.advance(HOUR)
    assert ref.result() == [1, 1]
    app.review.replay(ref, by="ann")
    h.run()
    assert app.tasks.get(ref).why == "sleeps"


def test_an_unknown_effect_is_looked_into_before_the_wait_and_not_after(h: Harness) -> None:
    @app.effect(intent=(), recovery=semel.Resend(within=DAY), name=f"cut{len(app.declared_effects.names())}")
    def cut(submission: semel.Submission) -> str:
        if submission.number == 1:
            raise ConnectionResetError
        return "sent"

    @app.task(name=f"cuts{len(app.declared_tasks.names())}")
    async def cuts() -> str:
        sending = asyncio.ensure_future(asyncio.to_thread(cut))
        await asyncio.sleep(0.05)
        semel.sleep(DAY)
        return await sending

    ref = cuts.using(key="k").enqueue()
    h.run()
    (effect,) = app.effects.list(task=ref)
    assert effect.state == "confirmed", "though the task sleeps for a day"
    assert app.tasks.get(ref).why == "sleeps"


def test_your_own_loop_is_told_that_it_must_come_back(tmp_path: Path) -> None:
    own = semel.App(f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(semel.Unsettled) as unsettled, own.work("k", kind="loop"):
        semel.wait_for("go")
    assert unsettled.value.why == "blocked"
    own.signal(unsettled.value.ref, "go", "now")
    with own.work("k", kind="loop"):
        assert semel.wait_for("go") == "now"
    own.close()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: semel.sleep(3), "takes a duration"),  # type: ignore[arg-type]
        (lambda: semel.sleep(-HOUR), "takes a duration"),
        (lambda: semel.wait_for("paid", timeout=5), "timeout= is a duration"),  # type: ignore[arg-type]
        (lambda: semel.wait_for(""), "event must be text"),
        (lambda: semel.sleep(timedelta.max), "more than 100 years"),
        (lambda: semel.wait_for("paid", timeout=timedelta.max), "more than 100 years"),
    ],
)
def test_bad_waits_are_misuse_and_change_nothing(tmp_path: Path, call: Any, words: str) -> None:
    own = semel.App(f"sqlite:///{tmp_path}/a.db")
    with own.work("k", kind="loop") as work, pytest.raises(semel.Misuse, match=words):
        call()
    assert "waits" not in [event.kind for event in own.journal(work.ref)]
    own.close()


def test_a_hundred_years_can_be_recorded_and_a_timeout_below_nothing_is_over_at_once(tmp_path: Path) -> None:
    own = semel.App(f"sqlite:///{tmp_path}/a.db")
    with own.work("k", kind="loop") as work, pytest.raises(TimeoutError):
        semel.wait_for("paid", timeout=timedelta.min)
    with pytest.raises(semel.Unsettled), own.work("l", kind="loop") as later:
        semel.sleep(timedelta(days=36525))
    assert "waits" in [event.kind for event in own.journal(work.ref)] and "waits" in [
        event.kind for event in own.journal(later.ref)
    ]
    own.close()


def test_outside_any_work_and_inside_an_effect_it_is_misuse(h: Harness) -> None:
    with pytest.raises(semel.Misuse, match="outside any work"):
        semel.sleep(HOUR)
    h.fake(act, lambda what: semel.wait_for("paid"))
    ref = sells.using(key="k").enqueue("o1")
    h.run()
    assert "semel.wait_for was called inside an effect" in str([event.body for event in app.journal(ref)])


@pytest.mark.parametrize(
    ("event", "payload", "words"),
    [
        ("", 1, "event must be text"),
        ("paid", math.nan, "cannot be recorded"),
        ("paid", {1, 2}, ""),
        ("paid", object(), "cannot be"),
    ],
)
def test_bad_signals_are_misuse_and_change_nothing(h: Harness, event: str, payload: object, words: str) -> None:
    ref = sells.using(key="k").enqueue("o1")
    if words:
        with pytest.raises(semel.Misuse, match=words):
            app.signal(ref, event, payload)
    else:
        app.signal(ref, event, payload)  # a set is a list, on record
    assert [e.kind for e in app.journal(ref)] == ["enqueued", *(["signalled"] if not words else [])]
    with pytest.raises(semel.Misuse, match="there is no task"):
        app.signal("nobody", "paid")

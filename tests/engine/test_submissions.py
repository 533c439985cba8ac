"""What goes out with a submission, and when it may go out (R12, R13, R18)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import semel


@pytest.fixture
def app(tmp_path: Path) -> Iterator[semel.App]:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    yield app
    app.close()


def on_record(app: semel.App) -> list[int]:
    (task,) = app.tasks.list()
    return [event.token for event in app.journal(task.ref) if event.kind == "intended"]


def test_r18_the_token_on_record_goes_out_with_every_submission(app: semel.App) -> None:
    sent: list[int] = []

    @app.effect(intent=(), recovery=semel.Resend(within=timedelta(hours=24)))
    def send(submission: semel.Submission) -> str:
        sent.append(submission.token)
        if len(sent) < 3:
            raise ConnectionResetError
        return "sent"

    with app.work("k", kind="loop"):
        assert send() == "sent"
    assert sent == on_record(app) and len(sent) == 3 and sent[0] > 0


def test_r18_a_lookup_is_told_the_token_of_what_it_looks_for(app: semel.App) -> None:
    sent: list[int] = []
    asked: list[tuple[int, int]] = []

    def find(submission: semel.Submission) -> semel.Verdict:
        asked.append((submission.number, submission.token))
        return semel.Confirmed("sent")

    @app.effect(intent=(), recovery=semel.Lookup(find, settle=timedelta(0)))
    def send(submission: semel.Submission) -> str:
        sent.append(submission.token)
        raise ConnectionResetError

    with app.work("k", kind="loop"):
        assert send() == "sent"
    assert asked == [(1, sent[0])] and sent == on_record(app)


def test_r12_a_submission_is_one_call_whatever_comes_of_it(app: semel.App) -> None:
    calls: list[int] = []

    @app.effect(intent=(), recovery=semel.Resend(within=timedelta(hours=24)))
    def send(submission: semel.Submission) -> str:
        calls.append(submission.number)
        if len(calls) < 4:
            raise TimeoutError
        return "sent"

    with app.work("k", kind="loop"):
        send()
    assert calls == [1, 2, 3, 4]


def test_r13_a_submission_whose_time_went_by_before_its_call_is_not_sent(app: semel.App) -> None:
    """Its time counts from before its intent's commit, however long that or the arming took: the retention does not wait."""
    calls: list[int] = []

    @app.effect(intent=(), timeout=timedelta(seconds=0.2), tries=1)
    def send(submission: semel.Submission) -> str:
        calls.append(1)
        return "sent"

    arm = app.runtime.entering

    def slow(*args: Any) -> Any:
        time.sleep(0.3)
        return arm(*args)

    app.runtime.entering = slow  # type: ignore[method-assign]
    with app.work("k", kind="loop"), pytest.raises(semel.NotDone, match="its time was over"):
        send()
    assert calls == [] and [effect.state for effect in app.effects.list()] == ["not_attempted"]


def test_r13_a_resend_whose_code_could_outlive_the_retention_is_not_sent(app: semel.App) -> None:
    """Two leases (30 s) and a margin do not fit into what the provider remembers: a person decides."""
    calls: list[int] = []

    @app.effect(intent=(), recovery=semel.Resend(within=timedelta(seconds=32)))
    def send(submission: semel.Submission) -> str:
        calls.append(1)
        raise ConnectionResetError

    with pytest.raises(semel.Unsettled) as caught, app.work("k", kind="loop"):
        send()
    assert caught.value.why == "blocked" and calls == [1]


def test_r13_nothing_is_sent_beside_a_try_that_could_act_when_its_key_is_forgotten(app: semel.App) -> None:
    """The coroutine has given up, its thread has not, and may take ten minutes; the provider remembers a key for five."""
    go, calls = threading.Event(), list[int]()

    @app.effect(intent=(), recovery=semel.Resend(within=timedelta(minutes=5)), timeout=timedelta(minutes=10))
    async def send(submission: semel.Submission) -> None:
        calls.append(submission.number)
        await asyncio.wait_for(asyncio.to_thread(go.wait, 60), 0.1)

    async def main() -> None:
        with pytest.raises(semel.Unsettled) as caught:
            async with app.work("k", kind="loop"):
                await send()
        go.set()
        assert caught.value.why == "blocked" and calls == [1]

    asyncio.run(main())


def unfenced(app: semel.App) -> list[object]:
    (task,) = app.tasks.list()
    return [event.body.get("unfenced") for event in app.journal(task.ref) if event.kind == "intended"]


@pytest.mark.parametrize(("watchdog", "recorded"), [("never", "process"), ("always", None)])
def test_r4_a_submission_that_nothing_can_stop_is_recorded_so(tmp_path: Path, watchdog: Any, recorded: str | None) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db", watchdog=watchdog)

    @app.effect(intent=())
    def send(submission: semel.Submission) -> str:
        return "sent"

    with app.work("k", kind="loop"):
        send()
    assert [why or None for why in unfenced(app)] == [recorded]
    app.close()


class Stuck:
    """An effect whose code outlives its timeout, in a process with the kernel timer."""

    def __init__(self, app: semel.App) -> None:
        self.app, self.go, self.begun = app, threading.Event(), threading.Event()

        @app.effect(intent=(), timeout=timedelta(seconds=0.2))
        def send(submission: semel.Submission) -> str:
            self.begun.set()
            self.go.wait(60)
            return "sent"

        with pytest.raises(semel.Unsettled), app.work("k", kind="loop"):
            send()
        assert self.begun.is_set()


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Stuck]:
    stuck = Stuck(semel.App(f"sqlite:///{tmp_path}/agent.db", watchdog="always"))
    yield stuck
    stuck.go.set()
    assert until(lambda: not stuck.app.runtime.codes)
    stuck.app.close()


def until(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def test_r16_code_that_outlives_its_timeout_keeps_the_timer_armed(stuck: Stuck) -> None:
    runtime = stuck.app.runtime
    assert len(runtime.codes) == 1 and runtime.watchdog.armed and runtime.watchdog.running == 1
    stuck.go.set()
    assert until(lambda: not runtime.watchdog.armed) and not runtime.codes


def test_r16_what_an_effect_leaves_behind_keeps_the_timer_armed(tmp_path: Path) -> None:
    app, go = semel.App(f"sqlite:///{tmp_path}/agent.db", watchdog="always"), threading.Event()
    pool = ThreadPoolExecutor(1)

    @app.effect(intent=())
    def send(submission: semel.Submission) -> str:
        pool.submit(go.wait, 60)
        return "sent"

    with app.work("k", kind="loop"):
        assert send() == "sent"
        watchdog = app.runtime.watchdog
        assert watchdog.armed and watchdog.running == 1
        go.set()
        assert until(lambda: not watchdog.armed)
    pool.shutdown()
    app.close()


def test_r4_a_process_whose_code_may_still_act_does_not_say_goodbye(tmp_path: Path) -> None:
    """That would be taken for a fence; it is left to be watched, for the whole lease."""
    stuck = Stuck(semel.App(f"sqlite:///{tmp_path}/agent.db", watchdog="always"))
    runtime = stuck.app.runtime
    session = runtime.session().id
    stuck.app.close()
    other = semel.App(f"sqlite:///{tmp_path}/agent.db")
    row = other.runtime.desk.store.session(session)
    assert row is not None and row.fenced == ""
    stuck.go.set()
    assert until(lambda: not runtime.codes)
    other.close()

"""Performing: intent first, outcomes recorded, nothing guessed (section 5; R6, R9, R11, R16, R17)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import semel


@pytest.fixture
def app(tmp_path: Path) -> Iterator[semel.App]:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    yield app
    app.close()


def kinds(app: semel.App, ref: semel.Ref[Any]) -> list[str]:
    return [event.kind for event in app.journal(ref)]


def test_r6_the_intent_is_durable_before_the_call(app: semel.App, tmp_path: Path) -> None:
    """Read, in the call, by another connection: what it sees is committed."""
    seen: list[list[str]] = []

    @app.effect(intent=("n",))
    def send(submission: semel.Submission, n: int) -> str:
        with apsw.Connection(str(tmp_path / "agent.db"), flags=apsw.SQLITE_OPEN_READONLY) as other:
            rows = other.execute("SELECT kind FROM journal WHERE stream = ? ORDER BY seq", (submission.task_id,)).fetchall()
        seen.append([str(kind) for (kind,) in rows])
        return "sent"

    with app.work("k", kind="loop"):
        send(1)
        send(2)
    assert seen[0] == ["enqueued", "claimed", "intended"]
    assert seen[1][-1] == "intended"


def test_r6_a_sequential_agent_pays_about_one_commit_per_effect(app: semel.App) -> None:
    @app.effect(intent=("n",))
    def send(submission: semel.Submission, n: int) -> None: ...

    with app.work("k", kind="loop"):
        before = app.runtime.desk.writer.commits
        for n in range(50):
            send(n)
        assert app.runtime.desk.writer.commits - before <= 55


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), ValueError("?"), KeyboardInterrupt(), SystemExit(1)])
def test_whatever_is_raised_proves_nothing(app: semel.App, error: BaseException) -> None:
    calls = []

    @app.effect(intent=())
    def send(submission: semel.Submission) -> str:
        calls.append(1)
        raise error

    for _ in range(2):
        with pytest.raises(semel.Unsettled) as caught, app.work("k", kind="loop"):
            send()
        assert caught.value.why == "blocked"
    (effect,) = app.effects.list()
    assert (effect.state, len(calls)) == ("ambiguous", 1)


def test_declared_proof_is_believed_and_tried_again(app: semel.App) -> None:
    calls = []

    @app.effect(intent=(), not_done=(ConnectionRefusedError,), tries=3)
    def send(submission: semel.Submission) -> str:
        calls.append(submission.token)
        if len(calls) < 3:
            raise ConnectionRefusedError
        return "sent"

    with app.work("k", kind="loop"):
        assert send() == "sent"
    assert len(calls) == 3 and app.effects.list()[0].submissions == 3


def test_a_definite_no_is_recorded_and_raised_again(app: semel.App) -> None:
    calls = []

    @app.effect(intent=())
    def send(submission: semel.Submission) -> str:
        calls.append(1)
        raise semel.NotDone("card declined", retry=False, detail={"code": 51})

    for _ in range(2):
        with app.work("k", kind="loop"), pytest.raises(semel.NotDone, match="card declined") as caught:
            send()
        assert caught.value.detail == {"code": 51}
    assert len(calls) == 1


def test_already_done_is_the_result(app: semel.App) -> None:
    @app.effect(intent=())
    def send(submission: semel.Submission) -> str:
        raise semel.AlreadyDone("msg-7")

    with app.work("k", kind="loop"):
        assert send() == send() == "msg-7"


def test_r9_parallel_calls_of_one_key_are_one_effect_async(app: semel.App) -> None:
    calls = []

    @app.effect(intent=("n",))
    async def send(submission: semel.Submission, n: int, words: str = "") -> str:
        calls.append(n)
        await asyncio.sleep(0.05)
        return f"sent {n}"

    async def main() -> list[Any]:
        async with app.work("k", kind="loop"):
            return await asyncio.gather(*(send(1) for _ in range(5)), send(1, "other"), return_exceptions=True)

    *same, other = asyncio.run(main())
    assert same == ["sent 1"] * 5 and calls == [1]
    assert isinstance(other, semel.Refused) and (other.code, other.result) == ("already_done", "sent 1")


def test_r9_parallel_calls_of_one_key_are_one_effect_in_threads(app: semel.App) -> None:
    calls = []

    @app.effect(intent=("n",))
    def send(submission: semel.Submission, n: int) -> str:
        calls.append(n)
        time.sleep(0.05)
        return f"sent {n}"

    with app.work("k", kind="loop"), ThreadPoolExecutor(8) as pool:
        found = [pool.submit(copy_context().run, send, i % 2) for i in range(8)]
        assert [one.result() for one in found] == ["sent 0", "sent 1"] * 4
    assert sorted(calls) == [0, 1]


@pytest.mark.parametrize("catch", [Exception, BaseException])
def test_r11_a_swallowed_suspension_starts_nothing_more(app: semel.App, catch: type[BaseException]) -> None:
    calls = []

    @app.effect(intent=("n",))
    async def send(submission: semel.Submission, n: int) -> str:
        calls.append(n)
        raise ConnectionResetError

    @app.task(intent=("key",))
    async def agent(key: str) -> str:
        for n in range(3):
            try:
                await send(n)
            except catch:  # the agent's own, which knows no better
                pass
        return "all done"

    with pytest.raises(semel.Unsettled) as caught:
        agent.run("a")
    assert caught.value.why == "blocked" and calls == [0]
    assert "finished" not in kinds(app, caught.value.ref)


def test_r11_cancelling_the_handler_does_not_cancel_a_call_that_is_under_way(app: semel.App) -> None:
    sent, started = [], threading.Event()

    @app.effect(intent=())
    async def send(submission: semel.Submission) -> str:
        started.set()
        await asyncio.sleep(0.3)
        sent.append(1)
        return "sent"

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            async with app.work("k", kind="loop"):
                call = asyncio.ensure_future(send())
                await asyncio.to_thread(started.wait, 10)
                call.cancel()
                await call

    asyncio.run(main())
    (effect,) = app.effects.list()
    assert sent == [1] and (effect.state, effect.result) == ("confirmed", "sent")


def test_r16_past_the_local_deadline_nothing_is_called(app: semel.App) -> None:
    calls = []

    @app.effect(intent=())
    def send(submission: semel.Submission) -> str:
        calls.append(1)
        return "sent"

    with pytest.raises(semel.Unsettled), app.work("k", kind="loop"):
        app.runtime.session().alive = lambda: False  # type: ignore[method-assign]
        send()
    (effect,) = app.effects.list()
    assert calls == [] and effect.state == "not_attempted"
    (task,) = app.tasks.list()
    assert "disproved" in kinds(app, task.ref)


def test_r16_the_deadline_is_checked_after_arming(app: semel.App) -> None:
    """Checked before only, a process that stood still in between would call past its deadline."""
    calls = []

    @app.effect(intent=())
    def send(submission: semel.Submission) -> str:
        calls.append(1)
        return "sent"

    runtime = app.runtime
    arm = runtime.entering

    def slow(*args: Any) -> Any:
        runtime.session().alive = lambda: False  # type: ignore[method-assign]
        return arm(*args)

    runtime.entering = slow  # type: ignore[method-assign]
    with pytest.raises(semel.Unsettled), app.work("k", kind="loop"):
        send()
    assert calls == [] and [effect.state for effect in app.effects.list()] == ["not_attempted"]


def test_r17_a_caller_that_is_gone_before_its_call_is_disproved(app: semel.App) -> None:
    """The awaiting coroutine dies between the intent's commit and the call: the intent must not hang in flight."""
    from semel.engine.perform import called, perform
    from semel.engine.requests import Await
    from semel.engine.runtime import current

    @app.effect(intent=())
    def send(submission: semel.Submission) -> str:
        raise AssertionError("never called")

    with app.work("k", kind="loop"):
        attempt = current.get()
        assert attempt is not None
        procedure = perform(attempt, called(attempt, send.semel_effect, (), {}))  # type: ignore[attr-defined]
        request = procedure.send(None)
        assert isinstance(request, Await)
        procedure.close()
        end = time.monotonic() + 10
        while app.effects.list(state="not_attempted") == [] and time.monotonic() < end:
            time.sleep(0.01)
        assert [x.state for x in app.effects.list()] == ["not_attempted"]


def test_o6_steps_and_effects_are_returned_and_not_repeated(app: semel.App) -> None:
    ran = {"step": 0, "effect": 0, "handler": 0}

    @app.step()
    def think(n: int) -> int:
        ran["step"] += 1
        return n * 2

    @app.effect(intent=("n",))
    def send(submission: semel.Submission, n: int) -> int:
        ran["effect"] += 1
        return n + 1

    @app.task(intent=("key",), retry=semel.Retry(backoff=timedelta(0)))
    def agent(key: str) -> int:
        ran["handler"] += 1
        total = think(1) + think(1) + send(3)
        if ran["handler"] == 1:
            raise RuntimeError("once")
        return total

    with pytest.raises(semel.Unsettled) as caught:
        agent.run("a")
    assert caught.value.why == "queued"
    assert agent.run("a") == 8 == agent.run("a")
    assert ran == {"step": 2, "effect": 1, "handler": 2}


def test_entering_work_again_is_the_next_attempt(app: semel.App) -> None:
    with app.work("k", kind="loop") as first:
        assert first.attempt == 1 and semel.current().ref == first.ref
    with app.work("k", kind="loop") as second:
        assert (second.ref, second.attempt) == (first.ref, 2)
    with pytest.raises(semel.Misuse):
        semel.current()


def test_work_that_another_has_is_leased(app: semel.App) -> None:
    with app.work("k", kind="loop") as mine:
        with pytest.raises(semel.Unsettled) as caught, app.work("k", kind="loop", wait=timedelta(0)):
            pass
        assert caught.value.why == "leased" and caught.value.ref == mine.ref

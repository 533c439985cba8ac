"""Callers that go away at a bad moment: interrupts, cancellations, forks, and a rival who is faster meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

import semel
from semel.engine.perform import called, perform
from semel.engine.requests import Await
from semel.engine.runtime import current


@pytest.fixture
def app(tmp_path: Path) -> Iterator[semel.App]:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    yield app
    app.close()


def until(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.01)
    return False


def test_r8_an_abandoned_intent_disproves_no_rivals_submission(app: semel.App) -> None:
    """A meant to submit a tenant's key and is gone; B, faster, submits it under the same token and is in mid-call."""
    in_call, go_on = threading.Event(), threading.Event()

    @app.effect(intent=(), scope="tenant")
    def send(submission: semel.Submission) -> str:
        in_call.set()
        go_on.wait(20)
        return "sent"

    def rival() -> None:
        with app.work("b", kind="loop"):
            send()

    with pytest.raises(semel.Unsettled), app.work("a", kind="loop"):  # its caller was gone: the task is given back
        attempt = current.get()
        assert attempt is not None
        writer = attempt.desk.writer
        procedure = perform(attempt, called(attempt, send.semel_effect, (), {}))  # type: ignore[attr-defined]
        held: list[Any] = []
        submit = writer.submit
        writer.submit = lambda unit, **how: held.append((unit, how)) or _ticket(unit)  # type: ignore[method-assign, func-returns-value]
        assert isinstance(procedure.send(None), Await)  # its intent is on its way, and arrives late
        writer.submit = submit  # type: ignore[method-assign]
        other = threading.Thread(target=rival)
        other.start()
        assert in_call.wait(10)
        procedure.close()
        writer.submit(held[0][0]).wait(10)  # stale
        writer.barrier().wait(10)
        (effect,) = app.effects.list()
        assert effect.state == "submitted", "the rival's submission is in mid-call, and nobody may call it disproved"
        go_on.set()
        other.join(20)
    assert app.effects.list()[0].state == "confirmed"


def _ticket(unit: Any) -> Any:
    from semel.store.writer import Ticket

    return Ticket(unit)


INTERRUPTED = """
import os, signal, sys, threading, time
import semel

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with it ignored
app = semel.App(sys.argv[1])
over = threading.Event()

@app.effect(intent=())
def send(submission: semel.Submission) -> str:
    os.kill(os.getpid(), signal.SIGINT)
    over.wait(20)
    return "sent"

try:
    with app.work("k", kind="loop"):
        send()
except KeyboardInterrupt:
    print("interrupted")
print(app.effects.list()[0].state)
over.set()
end = time.monotonic() + 10
while not app.effects.list()[0].evidence and time.monotonic() < end:
    time.sleep(0.01)
with app.work("k", kind="loop"):
    print(send())
app.close()
"""


def test_an_interrupt_in_a_call_leaves_the_block_and_the_effect_unknown(tmp_path: Path) -> None:
    """In a process of its own, whose main thread gets the signal: Ctrl-C must not hang, and what came late is evidence."""
    url = f"sqlite:///{tmp_path}/agent.db"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, url], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["interrupted", "ambiguous", "sent"], done.stderr


def test_a_resend_that_is_cancelled_with_its_caller_still_tells_its_end(app: semel.App) -> None:
    """The attempt's own task is cancelled while the ladder sends again: the session must not be left overdue for ever."""
    again = asyncio.Event()

    @app.effect(intent=(), recovery=semel.Resend(within=timedelta(hours=1)))
    async def send(submission: semel.Submission) -> str:
        if submission.number == 1:
            raise ConnectionResetError
        again.set()
        await asyncio.sleep(0.3)
        return "sent"

    @app.task(intent=("n",))
    async def bill(n: str) -> str:
        return await send()

    async def main() -> None:
        works = asyncio.ensure_future(bill.arun("a"))
        async with asyncio.timeout(30):
            await again.wait()
            works.cancel()
            with pytest.raises(asyncio.CancelledError):
                await works
            while app.runtime.codes:  # else its code has ended, and is waited for all the same: the timeout tells
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_forked_child_has_threads_of_its_own(app: semel.App) -> None:
    @app.effect(intent=("n",), timeout=timedelta(seconds=5))
    def send(submission: semel.Submission, n: int) -> str:
        return f"sent {n}"

    with app.work("a", kind="loop"):
        send(1)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with app.work("b", kind="loop"):
                code = 0 if send(2) == "sent 2" else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert {effect.state for effect in app.effects.list()} == {"confirmed"}


def test_a_suspension_does_not_leave_even_if_another_has_finished_the_task(app: semel.App) -> None:
    @app.effect(intent=())
    def send(submission: semel.Submission) -> str:
        return "sent"

    with pytest.raises(semel.Unsettled), app.work("k", kind="loop"):
        session = app.runtime.session()
        app.runtime.desk.store.fence(session.id, None, "watched")
        other = semel.App(app._url)
        with other.work("k", kind="loop", wait=timedelta(seconds=10)):
            pass
        other.close()
        send()


@pytest.mark.parametrize("how", ["anyio", "threadsafe"])
def test_r4_pools_and_loops_of_others_are_followed(app: semel.App, how: str) -> None:
    go, acts, asked = threading.Event(), [], []
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def post() -> str:
        go.wait(20)
        acts.append(1)
        return "sent"

    async def later() -> str:
        return await asyncio.to_thread(post)

    def find(submission: semel.Submission) -> semel.Verdict:
        asked.append(1)
        return semel.Confirmed("sent") if acts else semel.NotFound()

    @app.effect(intent=(), recovery=semel.Lookup(find, settle=timedelta(0)), timeout=timedelta(seconds=0.3))
    async def send(submission: semel.Submission) -> str:
        if how == "anyio":
            return await anyio.to_thread.run_sync(post, abandon_on_cancel=True)
        return asyncio.run_coroutine_threadsafe(later(), loop).result(0.1)

    async def main() -> str:
        async with app.work("k", kind="loop", wait=timedelta(seconds=30)):
            work = asyncio.ensure_future(send())
            await asyncio.to_thread(until, lambda: len(asked) >= 1)
            await asyncio.sleep(0.8)
            assert not acts and not work.done(), "a sender may still act: nothing is believed"
            go.set()
            return await work

    try:
        assert asyncio.run(main()) == "sent" and acts == [1]
    finally:
        go.set()
        loop.call_soon_threadsafe(loop.stop)

"""R4: code has ended only when what it left behind has, too."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

import semel


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


def lost_rows(app: semel.App, key: str = "k") -> list[tuple[str, object]]:
    (task,) = app.tasks.list()
    return [(event.kind, event.body.get("ended")) for event in app.journal(task.ref) if event.kind in ("lost", "late")]


class Provider:
    """Acts when the test lets it; a lookup that sees only what has been done."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.acts = 0
        self.asked = 0

    def post(self) -> str:
        self.go.wait(20)
        self.acts += 1
        return "sent"

    def find(self, submission: semel.Submission) -> semel.Verdict:
        self.asked += 1
        return semel.Confirmed("sent") if self.acts else semel.NotFound()


def enters_and_sees_one_act(app: semel.App, provider: Provider, kind: str, send: Callable[[], object]) -> None:
    """While the leftover thread may act, not_found is not believed; once it has, the lookup finds the one act."""

    async def main() -> str:
        async with app.work("k", kind=kind, wait=timedelta(seconds=30)):
            work = asyncio.ensure_future(send())  # type: ignore[arg-type]
            await asyncio.to_thread(until, lambda: provider.asked >= 1)
            await asyncio.sleep(0.8)  # settle (0) would be over long ago
            assert provider.acts == 0 and not work.done()
            provider.go.set()
            return str(await work)

    assert asyncio.run(main()) == "sent"
    assert provider.acts == 1
    (effect,) = app.effects.list()
    assert (effect.state, effect.submissions) == ("confirmed", 1)


def test_a_thread_outlives_its_cancelled_coroutine(app: semel.App) -> None:
    provider = Provider()

    @app.effect(intent=(), recovery=semel.Lookup(provider.find, settle=timedelta(0)), timeout=timedelta(seconds=0.2))
    async def send(submission: semel.Submission) -> str:
        return await asyncio.to_thread(provider.post)

    enters_and_sees_one_act(app, provider, "thread", send)


def test_a_thread_outlives_a_timeout_inside_the_effect(app: semel.App) -> None:
    provider = Provider()

    @app.effect(intent=(), recovery=semel.Lookup(provider.find, settle=timedelta(0)))
    async def send(submission: semel.Submission) -> str:
        return await asyncio.wait_for(asyncio.to_thread(provider.post), 0.1)

    enters_and_sees_one_act(app, provider, "inner", send)


def test_a_task_that_the_effect_started_goes_on(app: semel.App) -> None:
    provider = Provider()

    @app.effect(intent=(), recovery=semel.Lookup(provider.find, settle=timedelta(0)))
    async def send(submission: semel.Submission) -> str:
        async def later() -> str:
            while not provider.go.is_set():
                await asyncio.sleep(0.01)
            return provider.post()

        async def fails() -> str:
            raise ConnectionResetError

        return "".join(await asyncio.gather(fails(), later()))

    enters_and_sees_one_act(app, provider, "gather", send)


def test_a_pool_that_a_sync_effect_uses(app: semel.App) -> None:
    provider = Provider()
    pool = ThreadPoolExecutor(1)

    @app.effect(intent=(), recovery=semel.Lookup(provider.find, settle=timedelta(0)))
    def send(submission: semel.Submission) -> str:
        return pool.submit(provider.post).result(timeout=0.1)

    async def in_thread() -> str:
        return await asyncio.to_thread(send)

    enters_and_sees_one_act(app, provider, "pool", in_thread)


def test_a_plain_coroutine_ends_when_it_is_cancelled(app: semel.App) -> None:
    provider = Provider()

    @app.effect(intent=(), recovery=semel.Lookup(provider.find, settle=timedelta(0)), timeout=timedelta(seconds=0.1), tries=1)
    async def send(submission: semel.Submission) -> str:
        await asyncio.sleep(60)
        return "never"

    async def main() -> None:
        with pytest.raises(semel.NotDone):
            async with app.work("k", kind="plain"):
                await send()

    asyncio.run(main())
    assert lost_rows(app) == [("lost", True)]


def test_a_sync_call_that_outlives_its_timeout(app: semel.App) -> None:
    provider = Provider()

    @app.effect(intent=(), recovery=semel.Lookup(provider.find, settle=timedelta(0)), timeout=timedelta(seconds=0.2))
    def send(submission: semel.Submission) -> str:
        return provider.post()

    async def in_thread() -> str:
        return await asyncio.to_thread(send)

    enters_and_sees_one_act(app, provider, "sync", in_thread)
    assert ("lost", False) in lost_rows(app)


def test_what_arrives_while_a_slow_lookup_runs_was_not_looked_for(app: semel.App) -> None:
    """R4: settle is over only if it was over before the provider was asked."""
    acts: list[int] = []

    def find(submission: semel.Submission) -> semel.Verdict:
        there = list(acts)  # the provider answers from what it has now ...
        time.sleep(1.2)  # ... and the answer takes longer than settle
        return semel.Confirmed("sent") if there else semel.NotFound()

    @app.effect(intent=(), recovery=semel.Lookup(find, settle=timedelta(seconds=1)))
    def send(submission: semel.Submission) -> str:
        threading.Timer(0.6, acts.append, [submission.number]).start()  # a proxy's queue: within settle
        if submission.number == 1:
            raise ConnectionResetError
        return "sent"

    with app.work("k", kind="slow", wait=timedelta(seconds=30)):
        assert send() == "sent"
    time.sleep(0.7)
    assert acts == [1]


def test_a_child_that_outlives_the_code_that_made_it_goes_to_a_person(app: semel.App, tmp_path: Path) -> None:
    """R4: the code raised, and what it made acts on; nothing but a person can say that it has stopped."""
    done = tmp_path / "pushed"

    def find(submission: semel.Submission) -> semel.Verdict:
        return semel.Confirmed("pushed") if done.exists() else semel.NotFound()

    @app.effect(intent=(), recovery=semel.Lookup(find, settle=timedelta(0)))
    def push(submission: semel.Submission) -> str:
        child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep(1); open({str(done)!r}, 'a').write('x')"])
        child.communicate(timeout=0.1)
        return "pushed"

    with pytest.raises(semel.Unsettled) as caught, app.work("k", kind="child"):
        push()
    assert caught.value.why == "blocked" and "nothing can prove that its sender has stopped" in str(caught.value)
    assert until(done.exists)
    app.review.resolve(app.effects.list()[0].key, semel.Confirmed("pushed"), by="ann")
    with app.work("k", kind="child"):
        assert push() == "pushed"
    assert done.read_text() == "x"


def test_a_sender_beyond_proof_does_not_keep_the_next_rung_from_being_tried(app: semel.App) -> None:
    def find(submission: semel.Submission) -> semel.Verdict:
        return semel.NotFound()

    ladder: list[semel.Recovery] = [semel.Lookup(find, settle=timedelta(0)), semel.Resend(within=timedelta(hours=1))]

    @app.effect(intent=(), recovery=ladder)
    def push(submission: semel.Submission) -> str:
        subprocess.run([sys.executable, "-c", ""], check=True)
        if submission.number == 1:
            raise ConnectionResetError
        return "pushed"

    with app.work("k", kind="child"):
        assert push() == "pushed"

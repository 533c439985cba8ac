"""What a worker makes of a hint: it looks at once, and if that was in vain once more, and claims no more often than it looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import semel
from semel import worker
from semel.store.contract import ClaimUnit
from semel.worker import Worker

FAR = 3600.0  # seconds: nobody looks by himself within a test


class Steps:
    """A worker whose sleeps end when the test says so, and what it asks its store."""

    def __init__(self, app: semel.App, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("LOOK_SECONDS", "IDLE_LOOK_SECONDS"):
            monkeypatch.setattr(worker, name, FAR)
        store: Any = type(app.runtime.desk.store)  # of which the worker makes another
        self.looks = self.claims = 0
        self.rests = False  # whether it may not ask at once for what it sees
        next_due, commit = store.next_due, store.commit

        def looked(*args: Any) -> int | None:
            self.looks += 1
            return next_due(*args)

        def committed(it: Any, units: Any) -> Any:
            self.claims += sum(isinstance(unit, ClaimUnit) for unit in units)
            return commit(it, units)

        monkeypatch.setattr(store, "next_due", looked)
        monkeypatch.setattr(store, "commit", committed)
        monkeypatch.setattr(store, "changed", lambda it: 1)
        monkeypatch.setattr(store, "hear", lambda it, told: told is not None)
        self.worker = Worker(app, queues=None, concurrency=1, until_idle=False)
        monkeypatch.setattr(self.worker, "_sleep", self._sleep)
        self._asleep, self._go = asyncio.Event(), asyncio.Semaphore(0)

    async def _sleep(self) -> None:
        self.rests = self.worker._not_before > asyncio.get_running_loop().time()
        self._asleep.set()
        await self._go.acquire()

    async def until_it_sleeps(self) -> None:
        async with asyncio.timeout(20):
            await self._asleep.wait()

    async def round(self) -> tuple[int, int]:
        """Wake it; how often it has looked, and claimed, when it sleeps again."""
        self._asleep.clear()
        before = self.looks, self.claims
        self._go.release()
        await self.until_it_sleeps()
        return self.looks - before[0], self.claims - before[1]


def runs(app: semel.App, monkeypatch: pytest.MonkeyPatch, scene: Callable[[Steps], Any]) -> None:
    """The scene, beside a worker that sleeps."""

    async def both() -> None:
        steps = Steps(app, monkeypatch)
        works = asyncio.ensure_future(steps.worker.run())
        await steps.until_it_sleeps()
        assert await steps.round() == (0, 0), "it does nothing by itself"
        await scene(steps)
        works.cancel()
        await asyncio.gather(works, return_exceptions=True)

    asyncio.run(both())
    app.close()


def app_of(url: str) -> tuple[semel.App, Any]:
    app = semel.App(url)

    @app.task(intent=("n",))
    async def work(n: str) -> str:
        return n

    return app, work


@contextmanager
def rival(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Who has all that is queued in his hands, until the end."""
    with psycopg.connect(url) as held:
        assert held.execute("SELECT 1 FROM semel.ready FOR UPDATE").fetchall() == [(1,)]
        yield held


@pytest.mark.parametrize(("dialect", "at_once"), [("sqlite", 0), ("postgres", 1)])
def test_a_hint_in_vain_is_followed_by_one_more_look(
    dialect: str, at_once: int, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was queued may stand where the first look did not go, on a store where full looks are dear."""
    app, _ = app_of(f"sqlite:///{tmp_path}/a.db" if dialect == "sqlite" else request.getfixturevalue("database"))

    async def scene(steps: Steps) -> None:
        steps.worker._hear()
        assert await steps.round() == (1, at_once), "over a network it is claimed without a look"
        assert await steps.round() == (1, 0), "once more, and as nothing is due it is not claimed"
        assert await steps.round() == (0, 0), "and no more"

    runs(app, monkeypatch, scene)


def test_what_a_rival_has_in_hand_is_asked_for_again_after_a_poll(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = app_of(database)
    other, others_work = app_of(database)

    async def scene(steps: Steps) -> None:
        ref = await others_work.aenqueue("a")
        with rival(database):
            steps.worker._hear()
            assert await steps.round() == (1, 1), "it was claimed in vain, and is seen, and is not claimed at once again"
            assert steps.rests
        assert await steps.round() == (1, 1), "the rival let go of it"
        async with asyncio.timeout(20):
            assert await ref.aresult() == "a"

    runs(app, monkeypatch, scene)
    other.close()

"""What this very process puts into the queue is begun at once: no poll, no other process's hint is waited for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import semel
from semel import worker

FAR = 3600.0  # seconds: nobody looks by himself within a test


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_what_this_process_enqueues_or_frees_is_begun_at_once(
    dialect: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/a.db" if dialect == "sqlite" else request.getfixturevalue("database")
    app = semel.App(url)

    @app.task(intent=("n",))
    async def bill(n: str) -> str:
        return n + semel.wait_for("paid")

    async def scene() -> None:
        works = asyncio.ensure_future(app.arun_worker())
        ref = bill.using(key="first").enqueue
        before = await asyncio.to_thread(ref, "a")
        async with asyncio.timeout(20):
            while (await app.tasks.aget(before)).delivery is not semel.Delivery.BLOCKED:
                await asyncio.sleep(0.01)
        for name in ("POLL_SECONDS", "IDLE_POLL_SECONDS", "LOOK_SECONDS"):
            monkeypatch.setattr(worker, name, FAR)
        await asyncio.sleep(0.2)  # it goes to sleep with these
        async with asyncio.timeout(20):
            await app.asignal(before, "paid", "!")
            assert await before.aresult() == "a!"
            after = await bill.aenqueue("b")
            await app.asignal(after, "paid", "?")
            assert await after.aresult() == "b?"
        works.cancel()
        await asyncio.gather(works, return_exceptions=True)

    asyncio.run(scene())
    app.close()

"""A task that is due and that nobody can claim neither keeps others from their turn nor keeps the worker busy."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import semel
from semel.store.sqlite import SQLite


def test_what_cannot_be_claimed_is_asked_for_less_and_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    commits: list[float] = []
    commit = SQLite.commit

    @app.task(intent=("n",))
    async def work(n: str) -> str:
        return n

    store = app.runtime.desk.store
    assert isinstance(store, SQLite)
    store._writer.raw.execute("INSERT INTO ready VALUES ('default', 'work', 0, 0, 'default', 'no such task')")
    monkeypatch.setattr(SQLite, "commit", lambda self, units: commits.append(time.monotonic()) or commit(self, units))  # type: ignore[func-returns-value]

    async def live() -> int:
        worker = asyncio.ensure_future(app.arun_worker())
        await asyncio.sleep(1.0)
        quiet = len(commits)
        ref = await work.aenqueue("a")
        while (await app.tasks.aget(ref)).delivery != "acknowledged":
            assert not worker.done()
            await asyncio.sleep(0.02)
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker
        return quiet

    began = time.monotonic()
    quiet = asyncio.run(live())
    app.close()
    assert quiet < 15, "claims in a second"
    assert time.monotonic() - began < 10

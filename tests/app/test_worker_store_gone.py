"""A worker whose store was replaced before it had a session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

import semel


def test_a_worker_whose_store_was_replaced_before_it_came_in_ends_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    file, copy = tmp_path / "agent.db", tmp_path / "copy.db"
    app = semel.App(f"sqlite:///{file}", watchdog="never")

    @app.task(intent=("n",))
    async def job(n: int) -> int:
        return n

    job.enqueue(1)
    source, target = apsw.Connection(str(file)), apsw.Connection(str(copy))
    with target.backup("main", source, "main") as backup:
        backup.step()
    target.close()
    source.close()
    copy.rename(file)
    app.runtime.desk.writer._patience = 0.2
    try:
        with pytest.raises(semel.StoreUnavailable, match=r"replaced while it was open.*start it again"):
            asyncio.run(asyncio.wait_for(app.arun_worker(until_idle=True), 10))
    finally:
        app.close()

"""What an attempt has held in memory is gone with its end: no cycle keeps it until Python's collector comes by."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import semel
from semel.engine.attempt import Attempt
from semel.worker import Running


def test_what_has_ended_needs_no_collector(tmp_path: Path) -> None:
    app, held = semel.App(f"sqlite:///{tmp_path}/agent.db"), []

    def alive() -> int:
        return sum(type(x) in (Attempt, Running) for x in gc.get_objects())

    @app.effect(intent=("n",))
    def charge(submission: semel.Submission, n: int) -> str:
        held.append(alive())
        return "receipt"

    @app.effect(intent=("n",))
    async def mail(submission: semel.Submission, n: int) -> str:
        held.append(alive())
        return "sent"

    @app.task(intent=("n",))
    def bill(n: int) -> str:
        return charge(n)

    @app.task(intent=("n",), retry=semel.Retry(max_attempts=1))
    async def greet(n: int) -> str:
        if n == 3:
            raise ValueError("nobody is there")
        return await mail(n)

    for n in range(6):
        bill.enqueue(n)
        greet.enqueue(n)
    gc.collect()
    before = alive()
    gc.disable()
    try:
        app.run_worker(until_idle=True)
        assert len(held) == 11 and min(held) > before
        end = time.monotonic() + 10
        while alive() > before and time.monotonic() < end:
            time.sleep(0.01)  # a thread may not quite have ended
        assert alive() == before
    finally:
        gc.enable()
        app.close()

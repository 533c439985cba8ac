"""A thousand attempts at once, each in the middle of an effect, until the test has counted."""

from __future__ import annotations

import asyncio
import os

from agent import KEYED, RETRY, app
from wire import ROOM, is_open

import semel

SIZE = int(os.environ.get("CRASH_CROWD", "1000"))


class Crowd:
    """Who stands here; one looks for all whether the gate is open."""

    def __init__(self) -> None:
        self.here = 0
        self.opened = asyncio.Event()
        self.watch = asyncio.ensure_future(self.look())

    async def look(self) -> None:
        while not is_open("crowd"):
            await asyncio.sleep(0.02)
        self.opened.set()


crowd: list[Crowd] = []


@app.effect(intent=("ref",), recovery=KEYED)
async def stand(submission: semel.Submission, ref: str) -> str:
    crowd[0].here += 1
    if crowd[0].here == SIZE:
        (ROOM / "crowded").touch()
    await crowd[0].opened.wait()
    return ref


@app.task(intent=("ref",), retry=RETRY)
async def stands(ref: str) -> str:
    if not crowd:
        crowd.append(Crowd())
    return await stand(ref)

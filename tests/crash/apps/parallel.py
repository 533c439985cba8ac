"""A model that calls the same tool several times in parallel."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor

from agent import ASYNC, RETRY, SYNC, acharge, amail, app
from wire import is_open

import semel


@app.task(intent=("ref",), retry=RETRY)
async def gathered(action: str, ref: str) -> list[str]:
    return list(await asyncio.gather(*(ASYNC[action](ref, "good day") for _ in range(5))))


@app.task(intent=("ref",), retry=RETRY)
def threaded(action: str, ref: str) -> list[str]:
    """Threads, each with this context."""
    with ThreadPoolExecutor(5) as pool:
        calls = [pool.submit(contextvars.copy_context().run, SYNC[action], ref, "good day") for _ in range(5)]
        return [call.result() for call in calls]


@app.task(intent=("ref",), retry=RETRY)
async def two_voices(ref: str) -> list[str]:
    """Two wordings at once: the later one waits, and then reads what was done."""
    answers = await asyncio.gather(amail(ref, "good day"), amail(ref, "good night"), return_exceptions=True)
    return [f"{a.code} {a.result}" if isinstance(a, semel.Refused) else str(a) for a in answers]


@app.task(intent=("ref",), retry=RETRY)
async def two_tools(ref: str) -> list[str]:
    """The second is started when the test says so."""

    async def second() -> str:
        while not is_open("second"):
            await asyncio.sleep(0.005)
        return await acharge(ref, "good day")

    return list(await asyncio.gather(amail(ref, "good day"), second()))

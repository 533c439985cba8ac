"""The work that is measured: empty tasks, tasks of five effects of 200 bytes, tasks that note when they began.

`python bench/work.py VERB ...` does one piece of it in a process of its own, and prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import semel

EFFECTS = 5
RESULT = "x" * 198  # 200 bytes as JSON


class Work:
    """The app on one store, and what its handlers noted."""

    def __init__(self, url: str) -> None:
        self.app = app = semel.App(url)
        self.began: float | None = None
        self.delays: list[float] = []
        self.waiting = 0

        @app.effect(intent=("n",), recovery=semel.Resend(within=timedelta(hours=24)))
        async def touch(submission: semel.Submission, n: int) -> str:
            return RESULT

        @app.task(intent=("n",))
        async def empty(n: int) -> None:
            self._note()

        @app.task(intent=("n",))
        async def five(n: int) -> None:
            self._note()
            for i in range(EFFECTS):
                await touch(i)

        @app.task(intent=("n",))
        async def timed(n: int, enqueued: float) -> None:
            self.delays.append(time.monotonic() - enqueued)

        @app.task(intent=("n",))
        async def long(n: int) -> None:
            self.waiting += 1
            await asyncio.sleep(3600)

        self.empty, self.five, self.timed, self.long = empty, five, timed, long

    def _note(self) -> None:
        if self.began is None:
            self.began = time.monotonic()
            self.cpu = time.process_time()


def worker(url: str, kind: str, n: str, concurrency: str) -> dict[str, Any]:
    """Run what is queued of one kind; seconds from the first handler until the last task is durably done."""
    work = Work(url)
    work.app.run_worker(until_idle=True, concurrency=int(concurrency))
    ended, cpu = time.monotonic(), time.process_time()
    assert work.began is not None
    return {"seconds": ended - work.began, "cpu": cpu - work.cpu, "n": int(n), "rss": rss()}


def serve(url: str, concurrency: str) -> dict[str, Any]:
    """Run whatever comes, until SIGTERM; say first that it works."""
    work = Work(url)
    print("{}", flush=True)
    work.app.run_worker(concurrency=int(concurrency))
    return {"delays": work.delays, "rss": rss()}


def enqueue(url: str, kind: str, n: str, start: str = "0", at_once: str = "500") -> dict[str, Any]:
    """Enqueue so many, by that many in one call of the API."""
    work = Work(url)
    task = getattr(work, kind)
    work.app.tasks.list(limit=1)  # the store is open
    first, count, size = int(start), int(n), int(at_once)
    began = time.monotonic()

    async def go() -> None:
        for low in range(first, first + count, size):
            await asyncio.gather(*(task.aenqueue(i) for i in range(low, min(first + count, low + size))))

    asyncio.run(go())
    return {"seconds": time.monotonic() - began, "n": count}


def callers(url: str, n: str, concurrency: str) -> dict[str, Any]:
    """Enqueue one at a time from so many callers."""
    work = Work(url)
    work.app.tasks.list(limit=1)
    todo = iter(range(10**6, 10**6 + int(n)))

    async def go() -> None:
        async def caller() -> None:
            for i in todo:
                await work.empty.aenqueue(i)

        await asyncio.gather(*(caller() for _ in range(int(concurrency))))

    began = time.monotonic()
    asyncio.run(go())
    return {"seconds": time.monotonic() - began, "n": int(n)}


def paced(url: str, n: str, gap: str) -> dict[str, Any]:
    """Enqueue one each `gap` seconds, with the time at which the call began."""
    work = Work(url)
    work.app.tasks.list(limit=1)
    for i in range(int(n)):
        work.timed.enqueue(i, time.monotonic())
        time.sleep(float(gap))
    return {}


def alone(url: str, n: str, gap: str) -> dict[str, Any]:
    """Worker and caller in one process: the delays from the call to the start of the handler."""
    work = Work(url)

    async def go() -> None:
        running = asyncio.ensure_future(work.app.arun_worker())
        await asyncio.sleep(1.0)
        for i in range(int(n)):
            await work.timed.aenqueue(i, time.monotonic())
            await asyncio.sleep(float(gap))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(go())
    return {"delays": work.delays}


def rss() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


VERBS: dict[str, Callable[..., dict[str, Any]]] = {
    "worker": worker, "serve": serve, "enqueue": enqueue, "callers": callers, "paced": paced, "alone": alone,
}  # fmt: skip

if __name__ == "__main__":
    print(json.dumps(VERBS[sys.argv[1]](*sys.argv[2:])), flush=True)

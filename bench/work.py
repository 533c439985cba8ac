"""The work that is measured: empty tasks, tasks of five effects of 200 bytes, tasks that note when they began.

`python bench/work.py VERB ...` does one piece of it in a process of its own, and prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import resource
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from sampler import Sampler, threads_cpu

import semel
from semel.errors import StoreUnavailable

EFFECTS = 5
FEW = 10**9  # tasks with such numbers are the few, of other tenants
RESULT = "x" * 198  # 200 bytes as JSON


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Work:
    """The app on one store, and what its handlers noted."""

    def __init__(self, url: str) -> None:
        self.app = app = semel.App(url)
        self.began: list[float] = []  # when each handler did
        self.few: list[int] = []  # which of them, in their order, were of the few
        self.delays: list[float] = []
        self.cpu, self.trips = 0.0, 0

        @app.effect(intent=("n",), recovery=semel.Resend(within=timedelta(hours=24)))
        async def touch(submission: semel.Submission, n: int) -> str:
            return RESULT

        @app.step()
        async def mark(n: int) -> str:
            return RESULT

        @app.task(intent=("n",))
        async def empty(n: int) -> None:
            self._note(n)

        @app.task(intent=("n",))
        async def five(n: int) -> None:
            self._note(n)
            for i in range(EFFECTS):
                await touch(i)

        @app.task(intent=("n",))
        async def timed(n: int, enqueued: float) -> None:
            self.delays.append(time.monotonic() - enqueued)

        @app.task(intent=("n",))
        async def long(n: int) -> None:
            await asyncio.sleep(3600)

        @app.task(intent=("n",))
        async def many(n: int) -> None:
            for i in range(n):
                self.began.append(time.monotonic())
                await mark(i)
            self.began.append(time.monotonic())
            semel.sleep(timedelta(milliseconds=1))  # it is claimed once more, and what is on record is read

        self.empty, self.five, self.timed, self.long, self.many = empty, five, timed, long, many

    def _note(self, n: int) -> None:
        if not self.began:
            self.cpu, self.trips = time.process_time(), trips()
        if n >= FEW:
            self.few.append(len(self.began))
        self.began.append(time.monotonic())


def trips() -> int:
    """How often this process has waited for a PostgreSQL: its connections count it."""
    with contextlib.suppress(ImportError):
        from semel.store.pglink import Link

        return sum(found.trips for found in gc.get_objects() if isinstance(found, Link))
    return 0


def worker(url: str, kind: str, n: str, concurrency: str) -> dict[str, Any]:
    """Run what is queued of one kind; from the first handler until the last task is durably done."""
    work = Work(url)
    work.app.tasks.list(limit=1)
    work.app.run_worker(until_idle=True, concurrency=int(concurrency))
    ended, cpu = time.monotonic(), time.process_time()
    began = work.began[0] if work.began else ended
    return {
        "began": began, "ended": ended, "seconds": ended - began, "cpu": cpu - work.cpu if work.began else 0.0, "n": int(n),
        "ran": len(work.began), "trips": trips() - work.trips, "rss": rss(),
    }  # fmt: skip


def sampled(url: str, concurrency: str) -> dict[str, Any]:
    """Run what is queued, and look where the time goes: CPU of each thread, shares of the files."""
    work, sampler = Work(url), Sampler()
    work.app.tasks.list(limit=1)
    before = threads_cpu()

    async def go() -> None:
        running = asyncio.ensure_future(work.app.arun_worker(until_idle=True, concurrency=int(concurrency)))
        while not work.began and not running.done():
            await asyncio.sleep(0.01)
        sampler.start()
        await running

    asyncio.run(go())
    used = {name: seconds - before.get(name, 0.0) for name, seconds in threads_cpu().items() if name != "sampler"}
    return {"threads": used, "files": sampler.stop(), "ran": len(work.began)}


def first(url: str, n: str, concurrency: str, most: str = "900") -> dict[str, Any]:
    """Run the first n tasks of many: until so many have ended, since one more than fit beside each other has begun."""
    work, count, beside, came = Work(url), int(n), int(concurrency), time.monotonic()

    async def go() -> None:
        running = asyncio.ensure_future(work.app.arun_worker(concurrency=beside))
        end = time.monotonic() + float(most)
        while len(work.began) < count + beside and time.monotonic() < end and not running.done():
            await asyncio.sleep(0.01)
        await _stop(running)

    asyncio.run(go())
    seconds = work.began[count + beside - 1] - work.began[0] if len(work.began) >= count + beside else 0.0
    return {"seconds": seconds, "start": work.began[0] - came, "began": len(work.began), "few": work.few}


def flow(url: str, seconds: str, waiting: str) -> dict[str, Any]:
    """Enqueue and work at once, as fast as it goes, with so many tasks waiting: how many began in each second."""
    work, count = Work(url), 0
    work.app.tasks.list(limit=1)

    async def go() -> None:
        nonlocal count
        running = asyncio.ensure_future(work.app.arun_worker(concurrency=100))
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            if count - len(work.began) < int(waiting):
                await asyncio.gather(*(work.empty.aenqueue(count + i) for i in range(200)))
                count += 200
            await asyncio.sleep(0.005)
        await _stop(running)

    began = time.monotonic()
    asyncio.run(go())
    each = [0] * int(float(seconds))
    for at in work.began:
        if at - began < len(each):
            each[int(at - began)] += 1
    return {"each": each}


def steps(url: str, n: str) -> dict[str, Any]:
    """A task of so many steps: seconds for each thousandth part, and for reading all of it again in a second attempt."""
    work, count = Work(url), int(n)
    work.many.enqueue(count)
    work.app.run_worker(until_idle=True)
    taken, again = work.began[: count + 1], work.began[count + 1 :]
    assert len(again) == count + 1
    part = count // 10
    return {
        "parts": [taken[(i + 1) * part] - taken[i * part] for i in range(10)], "again": again[-1] - again[0], "rss": rss(),
    }  # fmt: skip


def sessions(url: str, n: str) -> dict[str, Any]:
    """So many sessions that hold nothing, in one process; they beat until it is told to end."""
    works = [Work(url) for _ in range(int(n))]

    def come(work: Work) -> None:
        while True:
            try:
                work.app.runtime.session()
                return
            except StoreUnavailable:  # it watches for a while whether the store went back
                time.sleep(0.5)

    with ThreadPoolExecutor(len(works)) as threads:
        list(threads.map(come, works))
    print("{}", flush=True)
    sys.stdin.readline()
    return {"fenced": sum(bool(work.app.runtime.session().fenced) for work in works)}


def serve(url: str, concurrency: str) -> dict[str, Any]:
    """Run whatever comes, until SIGTERM; say first that it works."""
    work = Work(url)
    print("{}", flush=True)
    work.app.run_worker(concurrency=int(concurrency))
    return {"delays": work.delays, "rss": rss()}


def enqueue(url: str, kind: str, n: str, start: str = "0", at_once: str = "500", due: str = "") -> dict[str, Any]:
    """Enqueue so many, that many at once. due: seconds from now; or "first": before everything else."""
    work = Work(url)
    task = getattr(work, kind)
    work.app.tasks.list(limit=1)  # the store is open
    if due:
        task = task.using(run_at=LONG_AGO if due == "first" else datetime.now(UTC) + timedelta(seconds=float(due)))
    low, high, size = int(start), int(start) + int(n), int(at_once)
    began = time.monotonic()

    async def go() -> None:
        for n in range(low, high, size):
            await asyncio.gather(*(task.aenqueue(i) for i in range(n, min(high, n + size))))

    asyncio.run(go())
    return {"seconds": time.monotonic() - began, "n": high - low}


def enqueue_many(url: str, kind: str, n: str, at_once: str = "500") -> dict[str, Any]:
    """The same by `aenqueue_many`."""
    work = Work(url)
    task = getattr(work, kind)
    work.app.tasks.list(limit=1)
    count, size = int(n), int(at_once)
    began = time.monotonic()

    async def go() -> None:
        for n in range(0, count, size):
            await task.aenqueue_many(task.call(i) for i in range(n, min(count, n + size)))

    asyncio.run(go())
    return {"seconds": time.monotonic() - began, "n": count}


def few(url: str, n: str) -> dict[str, Any]:
    """Enqueue one task for each of so many tenants."""
    work = Work(url)
    for i in range(int(n)):
        work.empty.using(tenant=f"small-{i}").enqueue(FEW + i)
    return {}


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


async def _stop(running: asyncio.Future[None]) -> None:
    """As SIGTERM does: what runs ends, and nothing more is claimed."""
    if not running.done():
        signal.raise_signal(signal.SIGTERM)
    await running


def rss() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


VERBS: dict[str, Callable[..., dict[str, Any]]] = {
    verb.__name__: verb for verb in (
        worker, sampled, first, flow, steps, sessions, serve, enqueue, enqueue_many, few, callers, paced, alone,
    )
}  # fmt: skip

if __name__ == "__main__":
    print(json.dumps(VERBS[sys.argv[1]](*sys.argv[2:])), flush=True)

"""PgQueuer: a queue without steps; completions are buffered, so an answer may come before it is durable."""

from __future__ import annotations

import asyncio

import asyncpg
from common import BATCH, Count, run
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries


async def _queries(url: str) -> Queries:
    return Queries(AsyncpgDriver(await asyncpg.connect(url)))


def prepare(url: str) -> None:
    """Its tables."""

    async def go() -> None:
        await (await _queries(url)).install()

    asyncio.run(go())


def enqueue(url: str, kind: str, n: int) -> None:
    """By its call for many."""

    async def go() -> None:
        queries = await _queries(url)
        for low in range(0, n, BATCH):
            size = min(BATCH, n - low)
            await queries.enqueue([kind] * size, [b"%d" % i for i in range(low, low + size)], [0] * size)

    asyncio.run(go())


def work(url: str, kind: str, count: Count) -> None:
    """One process, on one connection."""

    async def go() -> None:
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

        @queuer.entrypoint(kind)
        async def handler(job: object) -> None:
            count.began()
            count.ended()

        await queuer.run(batch_size=BATCH)

    asyncio.run(go())


run(prepare, enqueue, work)

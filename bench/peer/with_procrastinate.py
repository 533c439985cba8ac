"""Procrastinate: a queue without steps, told by NOTIFY."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import Any

import procrastinate
from common import BATCH, Count, run

AT_ONCE = 10
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=sys.argv[1], min_size=4, max_size=AT_ONCE))


@asynccontextmanager
async def _open() -> Any:
    async with app.open_async():
        yield app


def prepare(url: str) -> None:
    """Its tables."""

    async def go() -> None:
        async with _open():
            await app.schema_manager.apply_schema_async()

    asyncio.run(go())


def enqueue(url: str, kind: str, n: int) -> None:
    """By its call for many."""

    async def go() -> None:
        task = app.configure_task(kind, queue="q")
        async with _open():
            for low in range(0, n, BATCH):
                await task.batch_defer_async(*({"n": i} for i in range(low, min(n, low + BATCH))))

    asyncio.run(go())


def work(url: str, kind: str, count: Count) -> None:
    """One process."""

    @app.task(name=kind, queue="q")
    async def handler(n: int) -> None:
        count.began()
        count.ended()

    async def go() -> None:
        async with _open():
            await app.run_worker_async(queues=["q"], concurrency=AT_ONCE, install_signal_handlers=False)

    asyncio.run(go())


run(prepare, enqueue, work)

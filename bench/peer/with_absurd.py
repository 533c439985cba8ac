"""Absurd: tasks and steps kept by PL/pgSQL functions in the database; its asyncio worker, polling every 20 ms."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd
from common import BATCH, RESULT, STEPS, Count, run

QUEUE = "q"
AT_ONCE, POLL_SECONDS = 50, 0.02


def prepare(url: str) -> None:
    """Its own tool makes the schema; it needs psql."""
    tool = Path(sys.executable).parent / "absurdctl"
    subprocess.run(
        [tool, "init"], env={**os.environ, "ABSURD_DATABASE_URL": url, "PGDATABASE": url}, check=True, capture_output=True
    )
    Absurd(url, queue_name=QUEUE).create_queue()


def enqueue(url: str, kind: str, n: int) -> None:
    """It has no call for many: many in a transaction."""
    with psycopg.connect(url, autocommit=True) as db:
        client = Absurd(db, queue_name=QUEUE)
        for low in range(0, n, BATCH):
            with db.transaction():
                for i in range(low, min(n, low + BATCH)):
                    client.spawn(kind, {"n": i}, queue=QUEUE)


def work(url: str, kind: str, count: Count) -> None:
    """One worker."""

    async def result() -> str:
        return RESULT

    async def go() -> None:
        client = AsyncAbsurd(url, queue_name=QUEUE)

        @client.register_task(kind)
        async def handler(params: object, context: object) -> None:
            count.began()
            for i in range(STEPS if kind == "five" else 0):
                await context.step(f"step-{i}", result)
            count.ended()

        await client.start_worker(concurrency=AT_ONCE, poll_interval=POLL_SECONDS)

    asyncio.run(go())


run(prepare, enqueue, work)

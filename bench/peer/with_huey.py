"""Huey: a queue without steps; a task is off the queue before it runs, so a crash loses it."""

from __future__ import annotations

import sys

from common import Count, run
from huey import PostgresHuey, SqliteHuey

url = sys.argv[1]
THREADS = 4 if url.startswith("postgresql") else 1
huey = PostgresHuey(dsn=url, results=False) if THREADS > 1 else SqliteHuey(filename=url.removeprefix("sqlite:///"), results=False)
counts: list[Count] = []


@huey.task()
def empty(n: int) -> None:
    """The task."""
    counts[0].began()
    counts[0].ended()


def enqueue(url: str, kind: str, n: int) -> None:
    """One by one: it has no call for many."""
    for i in range(n):
        empty(i)


def work(url: str, kind: str, count: Count) -> None:
    """One process, with threads."""
    counts.append(count)
    huey.create_consumer(workers=THREADS, worker_type="thread", periodic=False).run()


run(lambda url: None, enqueue, work)

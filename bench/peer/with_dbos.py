"""DBOS: workflows on a queue, steps recorded; polling every 20 ms instead of its second."""

from __future__ import annotations

import threading

import sqlalchemy
from common import BATCH, RESULT, STEPS, Count, run
from dbos import DBOS, DBOSClient

QUEUE = "q"
AT_ONCE, POLL_SECONDS = {"five": 20, "empty": 0}, 0.02


counts: list[Count] = []


@DBOS.step()
def step(n: int, i: int) -> str:
    """A step."""
    return RESULT


@DBOS.workflow()
def five(n: int) -> None:
    """Five steps."""
    counts[0].began()
    for i in range(STEPS):
        step(n, i)
    counts[0].ended()


@DBOS.workflow()
def empty(n: int) -> None:
    """Nothing."""
    counts[0].began()
    counts[0].ended()


def prepare(url: str) -> None:
    """It makes its tables when it is launched."""
    _launch(url)
    DBOS.register_queue(QUEUE, polling_interval_sec=POLL_SECONDS)
    DBOS.destroy()


def _where(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def _launch(url: str) -> None:
    DBOS(config={"name": "bench", "system_database_url": _where(url), "log_level": "ERROR", "console_log_level": "ERROR"})
    DBOS.launch()


def enqueue(url: str, kind: str, n: int) -> None:
    """Many in a transaction."""
    client, engine = DBOSClient(system_database_url=_where(url)), sqlalchemy.create_engine(_where(url))
    for low in range(0, n, BATCH):
        with engine.begin() as db:
            for i in range(low, min(n, low + BATCH)):
                client.enqueue_in_transaction(db, {"queue_name": QUEUE, "workflow_name": kind}, i)


def work(url: str, kind: str, count: Count) -> None:
    """One process."""
    counts.append(count)
    _launch(url)
    beside = {"worker_concurrency": AT_ONCE[kind]} if AT_ONCE[kind] else {}
    DBOS.register_queue(QUEUE, polling_interval_sec=POLL_SECONDS, **beside)
    threading.Event().wait()


run(prepare, enqueue, work)

"""kill -9 of a server process in mid-commit, and of the whole server, under load: nothing acknowledged is missing, none twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from rivals import until

from semel.errors import StoreUnavailable
from semel.machine import journal as j
from semel.store.contract import Landed
from semel.store.postgres import Postgres
from semel.store.writer import Writer
from semel.testing.conformance_kit import TENANT, Stream, session, task
from semel.testing.postgres import Cluster

STREAMS = 6


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A server that may be killed."""
    found = Cluster()
    yield found
    found.close()


class Load:
    """Callers that each write one stream, and enqueue; what was acknowledged is remembered."""

    def __init__(self, url: str) -> None:
        self.store = Postgres(url)
        self.writer = Writer(self.store)
        self.guard = session(self.store)
        self.heads: dict[str, Stream] = {}
        self.ids: dict[str, list[str]] = {}
        self.tasks: list[tuple[str, str]] = []
        self.stop = threading.Event()
        self.trouble: list[object] = []
        self.threads = [threading.Thread(target=self.work, args=(f"s{n}",)) for n in range(STREAMS)]
        for thread in self.threads:
            thread.start()

    def work(self, name: str) -> None:
        stream, n = Stream(name), 0
        while not self.stop.is_set():
            change, after = stream.then(guard=self.guard)
            created, known = task(f"{name}-{n}")
            first, second = self.writer.submit(change), self.writer.submit(created)
            if not (first.wait(60) and second.wait(60)) or (first.value, second.value) != (Landed(), Landed()):
                self.trouble.append((first.value, second.value))
                return
            stream, n = after, n + 1
            self.heads[name] = stream
            self.ids.setdefault(name, []).append(change.id)
            self.tasks.append((f"{name}-{n - 1}", known.state.id))

    @property
    def acknowledged(self) -> int:
        return len(self.tasks)

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
        self.writer.close()


def test_no_acknowledged_change_is_missing_and_none_is_there_twice(own_cluster: Cluster) -> None:
    load = Load(own_cluster.url)
    try:
        for n in range(4):
            seen = load.acknowledged
            until(lambda s=seen: load.acknowledged > s + 20 or load.trouble, "work goes on")  # type: ignore[misc]
            time.sleep(random.random() * 0.02)  # anywhere in a transaction
            if n == 2:
                own_cluster.kill()
                own_cluster.start()
            elif pid := load.store._writer.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # the server then restarts all of its processes
        seen = load.acknowledged
        until(lambda: load.acknowledged > seen + 20 or load.trouble, "work goes on")
    finally:
        load.end()
    assert load.trouble == []
    store = Postgres(own_cluster.url)
    for name, stream in load.heads.items():
        rows = store.rows(TENANT, name)
        assert j.broken(rows) is None
        assert [row.id for row in rows] == load.ids[name], "in order, each once"
        assert store.head(TENANT, name) == stream.head
    assert len(load.tasks) == store.sizes()["task"] == store.sizes()["ready"]
    for key, id in load.tasks:
        assert store.find_task(TENANT, "bill", key) == id
    store.close()
    with pytest.raises(StoreUnavailable):
        store.head(TENANT, "s0")
    load.store.close()

"""Prometheus: counters and latencies of this process, and the three ledgers of its store. Needs `prometheus-client`.

metrics = Metrics()                       # counters and histograms; in the usual multi-process mode too
app.observers.append(metrics)
REGISTRY.register(Ledgers(app))           # gauges, read from the store: in one process for each store is enough
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    from semel.errors import Misuse

    raise Misuse(f"{error}; write: pip install 'semel[prometheus]'") from error

from semel.observe import Fenced, Record, Stats

SHARE = 50  # reading the ledgers takes a fiftieth of the time at most
LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # seconds
LATE = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 7200, 43200)  # seconds


class Metrics:
    """An observer that counts what this process commits, claims and fences, and how long it takes."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._events = Counter("semel_events", "Events that this process put on record.", ["kind"], registry=registry)
        self._refused = Counter("semel_refused_changes", "Changes that a rival was faster with.", registry=registry)
        self._dropped = Counter("semel_dropped_records", "Records that observers were too slow for.", registry=registry)
        self._fences = Counter("semel_fences", "Sessions fenced, by this process or its own.", ["own"], registry=registry)
        self._commit = Histogram("semel_commit_seconds", "How long a transaction took.", registry=registry, buckets=LATENCIES)
        self._waited = Histogram(
            "semel_commit_wait_seconds", "From asking for a change until it was durable.", registry=registry, buckets=LATENCIES
        )
        self._late = Histogram(
            "semel_claim_latency_seconds", "How long a task had been due when it was claimed.", ["queue"], registry=registry,
            buckets=LATE,
        )  # fmt: skip

    def __call__(self, record: Record) -> None:
        """Count one record."""
        if isinstance(record, Fenced):
            self._fences.labels(own=str(record.own).lower()).inc()
            return
        self._commit.observe(record.seconds)
        self._waited.observe(record.waited)
        self._refused.inc(record.refused)
        self._dropped.inc(record.dropped)
        for row in record.rows:
            self._events.labels(kind=row.kind).inc()
        for claimed in record.claimed:
            self._events.labels(kind="claimed").inc()
            self._late.labels(queue=claimed.queue).observe(claimed.late_ms / 1000)


class Counts(Protocol):
    """What has ledgers; an `App`."""

    def stats(self) -> Stats: ...


class Ledgers(Collector):
    """A collector of gauges: the three ledgers, what is unknown, who waits. It reads the store when it is scraped.

    Counting all tasks takes the longer the more there are; so what was read is given again until fifty times as long has
    passed as it took to read.
    """

    def __init__(self, app: Counts, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._clock = app, clock
        self._lock = threading.Lock()
        self._stats: Stats | None = None
        self._again_at = 0.0

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not ask the store."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The gauges, as last read."""
        stats = self._read()
        yield _gauge("semel_tasks_delivery", "Tasks by state of delivery.", ["state"], stats.delivery.items())
        yield _gauge("semel_tasks_execution", "Tasks by state of execution.", ["state"], stats.execution.items())
        yield _gauge("semel_effects", "Effects by state.", ["state"], stats.effects.items())
        yield GaugeMetricFamily("semel_unknown", "Effects whose outcome nobody knows.", stats.unknown)
        age = stats.oldest_unknown_ms / 1000
        yield GaugeMetricFamily("semel_unknown_oldest_seconds", "The age of the oldest unknown effect.", age)
        yield GaugeMetricFamily("semel_dead_letters", "Dead letters.", stats.dead)
        yield GaugeMetricFamily("semel_approvals_waiting", "Tasks that wait for people to approve.", stats.approvals)
        yield GaugeMetricFamily("semel_at_work", "Attempts under way.", stats.at_work)
        yield GaugeMetricFamily("semel_sessions", "Living worker processes.", stats.sessions)
        yield _gauge("semel_sessions_fenced", "Sessions that were fenced, by how.", ["how"], stats.fenced.items())
        yield GaugeMetricFamily("semel_paused", "How much is paused: queues, kinds, everything.", len(stats.paused))
        rows = [(w.queue, w.kind, w.waiting, w.late_ms / 1000) for w in stats.waiting]
        yield _gauge("semel_waiting", "Tasks that wait in a queue.", ["queue", "kind"], (row[:3] for row in rows))
        late = ((queue, kind, seconds) for queue, kind, _, seconds in rows)
        yield _gauge("semel_waiting_late_seconds", "How long the first has been due.", ["queue", "kind"], late)

    def _read(self) -> Stats:
        with self._lock:
            began = self._clock()
            if self._stats is None or began >= self._again_at:
                self._stats = self._app.stats()
                ended = self._clock()
                self._again_at = ended + (ended - began) * SHARE
            return self._stats


def _gauge(name: str, words: str, labels: list[str], values: Iterable[tuple[str | float, ...]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, words, labels=labels)
    for *label, value in values:
        family.add_metric([str(one) for one in label], float(value))
    return family

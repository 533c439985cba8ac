"""Observers: one record for each commit, for logs, Prometheus and OpenTelemetry; nothing of the work waits for them."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

import semel
from semel.observe import Commit, Record, Stats
from semel.observe.logs import Logs
from semel.observe.otel import Spans
from semel.observe.prometheus import Ledgers, Metrics
from semel.observe.watch import Watch

CARD, SECRET_KEY, WORDS = "4242-card", "ada@example.org", "the-providers-words"


class Office:
    """An app that does one of each: a success, a failure, an unknown, a refusal for good."""

    def __init__(self, url: str) -> None:
        self.app = app = semel.App(url)
        self.records: list[Record] = []
        app.observers.append(self.records.append)

        @app.effect(intent=("ref",), recovery=semel.Ask())
        def pay(submission: semel.Submission, ref: str, card: str) -> str:
            if ref == "cut":
                raise ConnectionResetError(WORDS)
            if ref == "never":
                raise semel.NotDone(WORDS, retry=False)
            return f"receipt for {card}"

        @app.task(intent=("email",), retry=semel.Retry(max_attempts=2, backoff=timedelta(0)))
        def bill(email: str, ref: str) -> str:
            pay(ref, CARD)
            if ref == "broken":
                raise ValueError(WORDS)
            return ref

        self.bill = bill

    def work(self) -> dict[str, str]:
        """One task of each; their ids by what became of them."""
        refs = {ref: self.bill.enqueue(f"{ref}-{SECRET_KEY}", ref).id for ref in ("fine", "cut", "never", "broken")}
        self.app.run_worker(until_idle=True, concurrency=1)
        return refs

    def rows(self) -> Counter[str]:
        """What is in the journal, by kind."""
        store = self.app.runtime.desk.store
        return Counter(row.kind for stream in store.streams(("", ""), 100) for row in store.rows(*stream))


@pytest.fixture(params=["sqlite", "postgres"])
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Office]:
    url = f"sqlite:///{tmp_path}/agent.db" if request.param == "sqlite" else request.getfixturevalue("database")
    office = Office(url)
    yield office
    office.app.close()


def test_every_row_is_told_once_and_metrics_are_what_the_store_holds(office: Office) -> None:
    registry = CollectorRegistry()
    office.app.observers.append(Metrics(registry))
    refs = office.work()
    store_rows = office.rows()
    office.app.close()  # all is handed over before it returns
    commits = [record for record in office.records if isinstance(record, Commit)]
    told = Counter(row.kind for commit in commits for row in commit.rows)
    told["claimed"] += sum(len(commit.claimed) for commit in commits)
    assert told == store_rows
    assert {c.task for commit in commits for c in commit.claimed} == set(refs.values())
    assert all(0 < commit.seconds <= commit.waited < 60 and commit.dropped == 0 for commit in commits)
    assert all(0 <= c.late_ms < 60_000 for commit in commits for c in commit.claimed)
    registry.register(Ledgers(office.app))
    value = registry.get_sample_value
    for kind, many in store_rows.items():
        assert value("semel_events_total", {"kind": kind}) == many
    assert value("semel_commit_seconds_count") == len(commits)
    assert value("semel_claim_latency_seconds_count", {"queue": "default"}) == store_rows["claimed"]
    assert (value("semel_unknown"), value("semel_dead_letters"), value("semel_approvals_waiting")) == (1, 2, 0)
    assert 0 < (value("semel_unknown_oldest_seconds") or 0) < 60
    assert value("semel_effects", {"state": "ambiguous"}) == 1 and value("semel_effects", {"state": "confirmed"}) == 2
    assert value("semel_tasks_delivery", {"state": "dead_lettered"}) == 2 == value("semel_tasks_execution", {"state": "failed"})
    assert value("semel_sessions") == 0 and value("semel_sessions_fenced", {"how": "left"}) == 1


def test_logs_hold_nothing_of_the_callers_above_debug(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    office.app.observers += [Logs(), Logs(as_json=True, logger=logging.getLogger("semel.events.json"))]
    with caplog.at_level(logging.INFO, "semel.events"):
        office.work()
        office.app.close()
    ours = [record for record in caplog.records if "semel" in record.__dict__]
    told = [(record.levelno, record.getMessage(), record.__dict__["semel"]) for record in ours]
    text = "\n".join(f"{message} {fields}" for _, message, fields in told)
    for hidden in (CARD, SECRET_KEY, WORDS, "receipt"):
        assert hidden not in text
    loud = Counter(fields["what"] for level, _, fields in told if level >= logging.WARNING)
    assert {"lost", "failed", "dead_lettered", "blocked"} <= loud.keys() and "finished" not in loud
    assert any(fields["what"] == "confirmed" and fields["key"].startswith("sml_") for _, _, fields in told)
    as_json = [json.loads(r.getMessage()) for r in caplog.records if r.name == "semel.events.json"]
    assert {line["what"] for line in as_json} == {fields["what"] for _, _, fields in told}


def test_at_debug_the_arguments_are_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    office = Office(f"sqlite:///{tmp_path}/agent.db")
    office.app.observers.append(Logs())
    with caplog.at_level(logging.DEBUG, "semel.events"):
        office.work()
        office.app.close()
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert CARD in text and SECRET_KEY in text and WORDS in text


def test_spans_tell_of_attempts_and_of_submissions_below_them(office: Office) -> None:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    office.app.observers.append(Spans(provider.get_tracer("test")))
    refs = office.work()
    office.app.close()
    spans = kept.get_finished_spans()
    assert all(span.attributes is not None and span.context is not None and span.end_time is not None for span in spans)
    attempts = {span.context.span_id: span for span in spans if span.name == "invoke_agent bill"}  # type: ignore[union-attr]
    calls = [span for span in spans if span.name == "execute_tool pay"]
    outcomes = Counter(span.attributes["semel.outcome"] for span in attempts.values())  # type: ignore[index]
    assert outcomes == {"succeeded": 1, "blocked": 1, "failed": 4}
    states = Counter(span.attributes["semel.effect.state"] for span in calls)  # type: ignore[index]
    assert states == {"confirmed": 2, "ambiguous": 1, "not_attempted": 1}
    for span in calls:
        assert span.parent is not None and span.attributes is not None and span.context is not None
        under = attempts[span.parent.span_id]
        assert under.attributes is not None and under.attributes["semel.task.id"] == span.attributes["semel.task.id"]
        assert span.attributes["gen_ai.operation.name"] == "execute_tool" and span.attributes["gen_ai.tool.name"] == "pay"
        assert str(span.attributes["gen_ai.tool.call.id"]).startswith("sml_")
        assert UUID(int=span.context.trace_id) == UUID(str(span.attributes["semel.task.id"])), "one trace for each task"
    assert {UUID(int=span.context.trace_id) for span in spans if span.context} == {UUID(id) for id in refs.values()}
    assert not any(hidden in span.to_json() for span in spans for hidden in (CARD, SECRET_KEY, WORDS))


def test_what_an_observer_raises_is_said_once_and_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    office = Office(f"sqlite:///{tmp_path}/agent.db")
    calls: list[Record] = []

    def broken(record: Record) -> None:
        calls.append(record)
        raise ValueError("broken")

    office.app.observers.insert(0, broken)
    refs = office.work()
    office.app.close()
    assert len(calls) == len(office.records) > len(refs)
    assert caplog.text.count("an observer failed") == 2, "once by the caller, and once by the worker, which opened the app anew"


def test_a_slow_observer_keeps_nobody_waiting_and_what_is_dropped_is_told() -> None:
    free, told = threading.Event(), []

    def slow(record: Record) -> None:
        free.wait(20)
        told.append(record)

    watch = Watch([slow], most=3)
    one = Commit((), (), 0, 0.1, 0.1)
    for _ in range(10):
        watch.note(lambda: one)  # returns at once, though nobody takes any
    free.set()
    assert watch.flush(10)
    watch.note(lambda: one)
    watch.close(10)
    assert all(isinstance(record, Commit) for record in told)
    assert sum(record.dropped for record in told if isinstance(record, Commit)) + len(told) == 11
    assert 4 <= len(told) <= 5, "those that fit, and the one that came later"
    watch.note(lambda: one)
    assert len(told) <= 5, "closed"


def test_ledgers_are_read_seldom_if_reading_takes_long() -> None:
    now, reads = [0.0], []

    class App:
        def stats(self) -> Stats:
            reads.append(now[0])
            now[0] += 2.0
            return Stats(0, 0, 0, 0, {}, {}, {}, 0, 0, {}, (), ())

    registry = CollectorRegistry()
    registry.register(Ledgers(App(), clock=lambda: now[0]))
    assert reads == [], "registering asks nothing"
    for _ in range(300):
        registry.get_sample_value("semel_unknown")
        now[0] += 1.0
    assert reads == [0.0, 102.0, 204.0]

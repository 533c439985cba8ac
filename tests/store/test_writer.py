"""Group commit: who is written with whom, in which order, and what happens when the store does not answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from store_lab import until

from semel.errors import StoreUnavailable
from semel.store import writer as module
from semel.store.contract import Broken, Change, Claims, Landed, Outcome, Stale, Unit
from semel.store.sqlite import SQLite
from semel.store.writer import MOST, Ticket, Writer
from semel.testing.conformance_claims import accept
from semel.testing.conformance_kit import TENANT, Stream, claimed, claiming, session, task

FOR_EVER = 60.0


class Paper:
    """A store that keeps what it is given. `gate`: closed, it does not answer. `wrongs`: what the next to come raise."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.given: list[list[Unit]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.wrongs: list[Exception] = []
        self.outcomes: dict[str, Outcome] = {}

    def commit(self, units: Sequence[Unit]) -> list[Outcome]:
        self.given.append(list(units))
        wrong = self.wrongs.pop(0) if self.wrongs else None
        self.entered.release()
        assert self.gate.wait(FOR_EVER)
        if wrong is not None:
            raise wrong
        names = [unit.id for unit in units if isinstance(unit, Change)]
        self.batches.append(names)
        return [self.outcomes.get(name, Landed()) for name in names]


def unit(name: object) -> Change:
    return Change(str(name), ())


def busy(writer: Writer, paper: Paper) -> Ticket:
    """The writer is in the middle of a commit, and stays there until the gate opens."""
    paper.gate.clear()
    ticket = writer.submit(unit("first"))
    assert paper.entered.acquire(timeout=FOR_EVER)
    return ticket


@pytest.fixture
def paper() -> Paper:
    return Paper()


@pytest.fixture
def writer(paper: Paper) -> Iterator[Writer]:
    writer = Writer(paper, patience=FOR_EVER)  # type: ignore[arg-type]
    yield writer
    paper.gate.set()
    writer.close()


@pytest.fixture
def long_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", FOR_EVER)


# --- who is written with whom ---


def test_whatever_waits_is_one_transaction(writer: Writer, paper: Paper) -> None:
    busy(writer, paper)
    tickets = [writer.submit(unit(n)) for n in range(100)]
    paper.gate.set()
    assert all(ticket.wait(FOR_EVER) for ticket in tickets)
    assert paper.batches == [["first"], [str(n) for n in range(100)]]
    assert (writer.commits, writer.units) == (2, 101)
    assert [ticket.value for ticket in tickets] == [Landed()] * 100


def test_a_transaction_has_its_limit(writer: Writer, paper: Paper) -> None:
    busy(writer, paper)
    tickets = [writer.submit(unit(n)) for n in range(2 * MOST + 3)]
    paper.gate.set()
    assert all(ticket.wait(FOR_EVER) for ticket in tickets)
    assert [len(batch) for batch in paper.batches] == [1, MOST, MOST, 3]
    assert [name for batch in paper.batches[1:] for name in batch] == [str(n) for n in range(2 * MOST + 3)]


def test_a_lone_caller_does_not_wait_for_company(writer: Writer, paper: Paper, long_linger: None) -> None:
    for n in range(20):
        assert writer.submit(unit(n)).wait(FOR_EVER / 2)
    assert paper.batches == [[str(n)] for n in range(20)]


def test_an_outcome_that_nobody_waits_for_rides_with_the_next_intent(writer: Writer, paper: Paper, long_linger: None) -> None:
    """R6: a sequential agent pays one commit for each effect."""
    for n in range(20):
        outcome = writer.submit(unit(f"outcome {n}"), waited_for=False)
        assert not outcome.wait(0.005)
        assert writer.submit(unit(f"intent {n}")).wait(FOR_EVER / 2)
        assert outcome.is_set
    assert paper.batches == [[f"outcome {n}", f"intent {n}"] for n in range(20)]


def test_an_outcome_is_written_alone_when_nobody_comes(writer: Writer, paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.05)
    for n in range(3):
        began = time.monotonic()
        assert writer.submit(unit(n), waited_for=False).wait(FOR_EVER)
        assert time.monotonic() - began >= 0.045
    assert paper.batches == [["0"], ["1"], ["2"]]


def test_outcomes_do_not_put_each_other_off(writer: Writer, paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.05)
    first = writer.submit(unit("first"), waited_for=False)
    end = time.monotonic() + FOR_EVER
    while not first.is_set and time.monotonic() < end:
        writer.submit(unit("another"), waited_for=False)
        time.sleep(0.001)
    assert first.is_set
    assert len(paper.batches[0]) < MOST, "its time was over, though there was always a newer one"


def test_an_outcome_wakes_the_thread_only_if_it_would_oversleep(
    writer: Writer, paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.01)
    assert writer.submit(unit("intent")).wait(FOR_EVER)
    until(lambda: writer._wakes_at == float("inf"))
    assert writer.submit(unit("late outcome"), waited_for=False).wait(5.0), "nobody else would wake it"
    monkeypatch.setattr(module, "LINGER_SECONDS", FOR_EVER)
    assert writer.submit(unit("intent")).wait(FOR_EVER)
    until(lambda: time.monotonic() < writer._wakes_at < float("inf"))
    woken: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(writer._wake, "notify", lambda: woken.append("in vain"))
        outcome = writer.submit(unit("outcome"), waited_for=False)
    assert not woken
    assert writer.submit(unit("next intent")).wait(FOR_EVER)
    assert outcome.is_set


def test_a_full_batch_of_outcomes_waits_for_nobody(writer: Writer, paper: Paper, long_linger: None) -> None:
    tickets = [writer.submit(unit(n), waited_for=False) for n in range(MOST)]
    assert tickets[-1].wait(FOR_EVER / 2)
    assert [len(batch) for batch in paper.batches] == [MOST]


def test_a_barrier_happens_after_all_before_it(writer: Writer, paper: Paper, long_linger: None) -> None:
    tickets = [writer.submit(unit(n), waited_for=False) for n in range(10)]
    assert writer.barrier().wait(FOR_EVER / 2)
    assert all(ticket.is_set for ticket in tickets)


def test_many_threads_are_all_answered_and_each_in_its_order(writer: Writer, paper: Paper) -> None:
    def work(name: int) -> None:
        for n in range(100):
            writer.submit(unit(f"{name}.{n}"), waited_for=bool(n % 3)).then(lambda: None)
        assert writer.barrier().wait(FOR_EVER)

    crew = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    written = [name for batch in paper.batches for name in batch]
    for name in range(4):
        assert [w for w in written if w.startswith(f"{name}.")] == [f"{name}.{n}" for n in range(100)]


# --- when it goes wrong ---


def test_the_same_units_are_given_until_the_store_answers(writer: Writer, paper: Paper) -> None:
    busy(writer, paper)
    tickets = [writer.submit(unit(n)) for n in range(3)]
    paper.wrongs = [StoreUnavailable("away")] * 3
    paper.gate.set()
    assert all(ticket.wait(FOR_EVER) for ticket in tickets)
    assert paper.batches == [["first"], ["0", "1", "2"]]
    assert len(paper.given) == 5
    for given in paper.given[1:]:
        assert [id(unit) for unit in given] == [id(ticket.unit) for ticket in tickets], "so that what landed finds itself"
    assert writer.commits == 2


def test_patience_ends(paper: Paper) -> None:
    writer = Writer(paper, patience=0.1)  # type: ignore[arg-type]
    paper.wrongs = [StoreUnavailable("away")] * 1000
    ticket = writer.submit(unit(1))
    assert ticket.wait(FOR_EVER)
    assert isinstance(ticket.value, StoreUnavailable)
    assert len(paper.given) >= 2, "it was tried again"
    paper.wrongs = []
    again = writer.submit(unit(2))
    assert again.wait(FOR_EVER)
    assert again.value == Landed()
    writer.close()


def test_an_exception_is_answered_to_all(writer: Writer, paper: Paper) -> None:
    busy(writer, paper)
    tickets = [writer.submit(unit(n)) for n in range(3)]
    bug = ZeroDivisionError("a bug")
    paper.wrongs = [bug]
    paper.gate.set()
    assert all(ticket.wait(FOR_EVER) for ticket in tickets)
    for ticket in tickets:
        assert isinstance(ticket.value, StoreUnavailable)
        assert ticket.value.__cause__ is bug
        assert "a bug" in str(ticket.value)
    assert writer.submit(unit("next")).wait(FOR_EVER)
    assert paper.batches == [["first"], ["next"]]


def test_what_breaks_a_rule_is_answered_to_its_caller_alone(writer: Writer, paper: Paper) -> None:
    busy(writer, paper)
    paper.outcomes = {"1": Broken("NOT NULL"), "2": Stale("s")}
    tickets = [writer.submit(unit(n)) for n in range(3)]
    paper.gate.set()
    assert all(ticket.wait(FOR_EVER) for ticket in tickets)
    assert tickets[0].value == Landed()
    assert isinstance(tickets[1].value, StoreUnavailable)
    assert "NOT NULL" in str(tickets[1].value)
    assert tickets[2].value == Stale("s")


def test_a_store_that_answers_too_little_leaves_nobody_waiting(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer._store, "commit", lambda units: [])
    ticket = writer.submit(unit(1))
    assert ticket.wait(FOR_EVER)
    assert isinstance(ticket.value, StoreUnavailable)


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), asyncio.CancelledError(), GeneratorExit()])
def test_a_callback_that_raises_stops_nobody(writer: Writer, paper: Paper, error: BaseException) -> None:
    def raises() -> None:
        raise error

    busy(writer, paper)
    called: list[str] = []
    for name in ("a", "b"):
        ticket = writer.submit(unit(name))
        ticket.then(raises)
        ticket.then(lambda name=name: called.append(name))  # type: ignore[misc]
    paper.gate.set()
    assert writer.submit(unit("next")).wait(FOR_EVER)
    assert called == ["a", "b"]


def test_a_callback_may_submit_more(writer: Writer, paper: Paper) -> None:
    done = threading.Event()
    writer.submit(unit(1)).then(lambda: writer.submit(unit(2)).then(done.set))
    assert done.wait(FOR_EVER)
    assert paper.batches == [["1"], ["2"]]


def test_a_thread_that_could_not_be_started_is_started_later(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(RuntimeError):
            writer.submit(unit(1))
    assert writer.submit(unit(2)).wait(FOR_EVER)


# --- the end ---


def test_closing_writes_what_waits(paper: Paper, long_linger: None) -> None:
    writer = Writer(paper)  # type: ignore[arg-type]
    busy(writer, paper)
    tickets = [writer.submit(unit(n), waited_for=False) for n in range(MOST + 50)]
    closing = threading.Thread(target=writer.close)
    closing.start()
    until(lambda: writer._closing)
    paper.gate.set()
    closing.join(FOR_EVER)
    assert not closing.is_alive()
    assert all(ticket.value == Landed() for ticket in tickets)
    with pytest.raises(StoreUnavailable, match="closed"):
        writer.submit(unit("late"))
    writer.close()


def test_closing_what_was_never_used(paper: Paper) -> None:
    writer = Writer(paper)  # type: ignore[arg-type]
    writer.close()
    with pytest.raises(StoreUnavailable):
        writer.submit(unit(1))


def test_closing_from_a_callback_does_not_wait_for_itself(paper: Paper) -> None:
    writer = Writer(paper)  # type: ignore[arg-type]
    closed = threading.Event()

    def close() -> None:
        writer.close()
        closed.set()

    writer.submit(unit(1)).then(close)
    assert closed.wait(FOR_EVER)


def test_closing_has_no_patience(paper: Paper) -> None:
    writer = Writer(paper, patience=FOR_EVER)  # type: ignore[arg-type]
    paper.wrongs = [StoreUnavailable("away")] * 1000
    ticket = writer.submit(unit(1))
    until(lambda: paper.given)
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < FOR_EVER / 2
    assert isinstance(ticket.value, StoreUnavailable)


# --- on SQLite ---


class LostReplies(SQLite):
    """Commits, and does not say so, every second time."""

    turn = 0

    def commit(self, units: Sequence[Unit]) -> list[Outcome]:
        outcomes = super().commit(units)
        self.turn += 1
        if self.turn % 2:
            raise StoreUnavailable("the reply was lost")
        return outcomes


def test_a_lost_reply_is_no_second_write(tmp_path: Path) -> None:
    store = LostReplies(str(tmp_path / "store.db"))
    writer = Writer(store)
    stream = Stream("s")
    for n in range(5):
        change, stream = stream.then()
        made, _ = task(f"k{n}")
        tickets = [writer.submit(unit) for unit in (change, made)]
        assert all(ticket.wait(FOR_EVER) for ticket in tickets)
        assert [ticket.value for ticket in tickets] == [Landed(), Landed()]
    writer.close()
    assert store.turn >= 10
    assert store.head(TENANT, "s") == stream.head
    assert store.sizes()["task"] == store.sizes()["ready"] == 5
    store.close()


def test_a_claim_whose_reply_was_lost_claims_anew_and_the_store_holds_both(tmp_path: Path) -> None:
    """The session finds what it does not know of among what it holds, and gives it back (R17)."""
    store = LostReplies(str(tmp_path / "store.db"))
    other = SQLite(store.place)
    accept(other, *(task(f"k{n}") for n in range(4)))
    guard, writer = session(other), Writer(store)
    ticket = writer.submit(claiming(guard, limit=2))
    assert ticket.wait(FOR_EVER)
    assert isinstance(ticket.value, Claims)
    assert len(claimed(ticket.value)) == 2
    assert len(other.held(guard.session)) == 4
    writer.close()
    other.close()
    store.close()


def test_sqlite_commits_as_one_what_comes_while_it_writes(tmp_path: Path) -> None:
    store = SQLite(str(tmp_path / "store.db"))
    writer = Writer(store)
    with store.locks[0]:
        first = writer.submit(Stream("first").then()[0])
        until(lambda: not writer._queue)
        tickets = [writer.submit(Stream(f"s{n}").then()[0]) for n in range(300)]
    assert first.wait(FOR_EVER)
    assert all(ticket.wait(FOR_EVER) for ticket in tickets)
    assert writer.commits == 2
    assert len(store.streams(("", ""), 1000)) == 301
    writer.close()
    store.close()


def test_a_worker_that_cannot_be_woken_leaves_the_commit_answered_and_the_writer_at_work(tmp_path: Path) -> None:
    store = SQLite(str(tmp_path / "a.db"))
    writer = Writer(store)
    try:

        def closed() -> None:
            raise TypeError("the loop is gone")

        for queued in (closed, None):
            writer.queued = queued
            change, _ = task(f"t{queued is None}")
            ticket = writer.submit(change)
            assert ticket.wait(FOR_EVER) and ticket.value == Landed()
    finally:
        writer.close()
        store.close()


def test_a_loop_is_woken_before_anybody_reads_again_what_was_stale(writer: Writer, paper: Paper) -> None:
    told: list[str] = []

    class Box:
        def put(self, call: object) -> None:
            told.append("put")

        def ring(self) -> None:
            told.append("rung")

    paper.outcomes["stale"] = Stale("s")
    first = busy(writer, paper)
    landed, stale = writer.submit(unit("landed")), writer.submit(unit("stale"))
    landed.hand(Box(), lambda: None)
    stale.then(lambda: told.append("reads"))
    paper.gate.set()
    assert first.wait(FOR_EVER) and stale.wait(FOR_EVER)
    assert told[:3] == ["put", "rung", "reads"]

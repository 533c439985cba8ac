"""What was claimed and cannot be started goes back, keeps nothing else from being started, and holds up no event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.engine.ledger import Desk
from semel.engine.queue import claim_one
from semel.engine.session import Session, begin_taking_back
from semel.errors import StoreUnavailable
from semel.machine.projection import InflightRow
from semel.store.contract import Claims
from semel.store.sqlite import SQLite
from semel.worker import Worker

LEASE = timedelta(seconds=1)


class Office:
    """An app whose tasks use a key of the tenant and then sleep: claimed again, the key's stream is read first."""

    def __init__(self, url: str) -> None:
        self.app = semel.App(url, lease=LEASE)

        @self.app.effect(intent=("n",), scope="tenant", recovery=semel.Repeat())
        async def pay(submission: semel.Submission, n: str) -> str:
            return n

        @self.app.task(intent=("n",))
        async def bill(n: str) -> str:
            paid = await pay(n)
            semel.sleep(timedelta(seconds=0.3))
            return paid

        self.bill = bill

    async def all_end(self, refs: list[semel.Ref[Any]]) -> None:
        """Run a worker until they have; it must not end before."""
        worker = asyncio.ensure_future(self.app.arun_worker())
        try:
            async with asyncio.timeout(10):
                while any([(await self.app.tasks.aget(ref)).delivery != "acknowledged" for ref in refs]):
                    assert not worker.done(), worker.result()
                    await asyncio.sleep(0.02)
        finally:
            worker.cancel()
            with pytest.raises(asyncio.CancelledError):
                await worker


def when_read(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    """Do this whenever the stream of a key is read."""
    rows = SQLite.rows

    def reading(self: SQLite, tenant: str, stream: str, after: int = 0) -> Any:
        if stream.startswith("sml_"):
            do()
        return rows(self, tenant, stream, after)

    monkeypatch.setattr(SQLite, "rows", reading)


@pytest.mark.parametrize("error", [StoreUnavailable("cut"), ValueError("a row of a later version")])
def test_claimed_tasks_that_cannot_be_read_go_back_and_the_worker_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    office = Office(f"sqlite:///{tmp_path}/agent.db")
    refs = [office.bill.enqueue(f"t{n}") for n in range(4)]
    commit, armed, failed = SQLite.commit, [0], [0]

    def committing(self: SQLite, units: Any) -> Any:
        outcomes = commit(self, units)
        again = [taken for one in outcomes if isinstance(one, Claims) for taken in one.tasks if taken.task.joined]
        if again and not failed[0]:
            armed[0] = 1  # the connection is cut just now
        return outcomes

    def fails() -> None:
        if armed[0]:
            armed[0], failed[0] = 0, failed[0] + 1
            raise error

    monkeypatch.setattr(SQLite, "commit", committing)
    when_read(monkeypatch, fails)
    asyncio.run(office.all_end(refs))
    assert failed == [1]
    office.app.close()


def test_a_task_taken_here_that_cannot_be_read_is_held_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office(f"sqlite:///{tmp_path}/agent.db")
    with pytest.raises(semel.Unsettled):
        asyncio.run(office.bill.arun("one"))

    def fails() -> None:
        raise StoreUnavailable("cut")

    with monkeypatch.context() as patched:
        when_read(patched, fails)
        with pytest.raises(StoreUnavailable, match="cut"):
            asyncio.run(office.bill.arun("one"))
    session = office.app.runtime.session()
    assert not session.held
    (task,) = office.app.tasks.list()
    assert task.delivery == "leased"
    for _ in range(2):
        session.check_own()
    assert office.app.tasks.get(task.ref).delivery == "queued"
    office.app.close()


def test_what_ends_while_the_store_is_asked_is_looked_at_again_before_a_worker_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Desk, "remote", True)
    monkeypatch.setattr(Worker, "_hear", lambda self: None)  # a hint that it sleeps may be lost
    office = Office(f"sqlite:///{tmp_path}/agent.db")
    ref = office.bill.enqueue("one")
    asked = SQLite.next_due

    def slowly(self: SQLite, *args: Any) -> int | None:
        due = asked(self, *args)
        if due is None:
            time.sleep(0.15)  # the attempt ends meanwhile, and its task sleeps from then on
        return due

    monkeypatch.setattr(SQLite, "next_due", slowly)
    office.app.run_worker(until_idle=True)
    assert office.app.tasks.get(ref).delivery == "acknowledged"
    office.app.close()


def test_no_event_loop_waits_for_a_store_over_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "remote", True)
    office = Office(f"sqlite:///{tmp_path}/agent.db")
    read: list[threading.Thread] = []
    when_read(monkeypatch, lambda: read.append(threading.current_thread()))

    async def live() -> semel.Ref[Any]:
        ref = await office.bill.aenqueue("one")
        worker = asyncio.ensure_future(office.app.arun_worker(until_idle=True))
        await worker
        return ref

    ref = asyncio.run(live())
    assert office.app.tasks.get(ref).delivery == "acknowledged"
    assert read and threading.main_thread() not in read
    office.app.close()


def test_an_app_that_is_open_asks_nothing_to_accept_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office(f"sqlite:///{tmp_path}/agent.db")
    office.app.tasks.list()
    asked: list[str] = []
    rows = SQLite.rows
    monkeypatch.setattr(SQLite, "rows", lambda self, *args: asked.append(args[1]) or rows(self, *args))  # type: ignore[func-returns-value]
    asyncio.run(office.bill.aenqueue("one"))
    assert asked == []
    office.app.close()


def test_a_worker_that_is_fenced_while_it_comes_in_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office(f"sqlite:///{tmp_path}/agent.db")
    fenced: list[bool] = []
    orphans = SQLite.orphans

    def away(self: SQLite, *args: Any) -> Any:
        if not fenced:  # others saw its beat stand still while the store was away
            fenced.append(self.fence(self.sessions()[0].id, None, "watched"))
        session = office.app.runtime.open_session
        if session is None or not session.fenced:
            raise StoreUnavailable("away")
        return orphans(self, *args)

    monkeypatch.setattr(SQLite, "orphans", away)
    monkeypatch.setattr("semel.worker.AWAY_SECONDS", 0.1)
    with pytest.raises(StoreUnavailable, match="this worker was fenced"):
        office.app.run_worker()
    assert fenced == [True]
    office.app.close()


def test_a_store_answers_again_when_a_question_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    office = Office(f"sqlite:///{tmp_path}/agent.db")
    asked: list[float] = []
    next_due = SQLite.next_due

    def away(self: SQLite, *args: Any) -> Any:
        asked.append(time.monotonic())
        if len(asked) < 3:
            raise StoreUnavailable("away")
        return next_due(self, *args)

    monkeypatch.setattr(SQLite, "next_due", away)  # changed() goes on answering: it asks no server
    monkeypatch.setattr("semel.worker.AWAY_SECONDS", 0.1)
    with caplog.at_level(logging.WARNING, "semel"):
        office.app.run_worker(until_idle=True)
    said = [record.getMessage() for record in caplog.records]
    assert [sum(word in line for line in said) for word in ("does not answer", "answers again")] == [1, 1]
    office.app.close()


def test_what_runs_alone_has_no_neighbour_that_comes_later(tmp_path: Path) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    here: set[str] = set()
    beside: list[set[str]] = []

    @app.task(intent=("n",), retry=semel.Retry(max_crashes=2))
    async def job(n: str) -> None:
        here.add(n)
        for _ in range(4):
            beside.append(set(here))
            await asyncio.sleep(0.03)
        here.discard(n)

    deadly, session = job.enqueue("deadly"), app.runtime.session()
    ticket, _ = claim_one(app.runtime.desk, session, "default", deadly.id, semel.Retry(max_crashes=2), [])
    assert ticket.wait(10)
    held = InflightRow(session.id, "default", deadly.id)
    begin_taking_back(app.runtime.desk, held, "dead", "session:another")[2].ticket.wait()  # it has killed its worker once
    session.held.clear()
    for n in range(6):
        job.enqueue(f"n{n}")
    app.run_worker(concurrency=5, until_idle=True)
    assert {"deadly"} in beside and {"deadly"} == set().union(*(many for many in beside if "deadly" in many))
    assert max(len(many) for many in beside) > 1, "others do run beside each other"
    app.close()


def test_a_worker_that_may_start_nothing_for_a_moment_is_not_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after its machine has slept, until a beat is answered."""
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    alive, asked, ran = Session.alive, [], []

    @app.task(intent=("n",))
    async def job(n: int) -> None:
        ran.append(n)

    def not_at_first(self: Session) -> bool:
        asked.append(1)
        return len(asked) > 5 and alive(self)

    job.enqueue(1)
    monkeypatch.setattr(Session, "alive", not_at_first)
    app.run_worker(until_idle=True)
    assert ran == [1]
    app.close()


def test_what_is_queued_while_the_store_is_asked_is_run_before_a_worker_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another thread of its own process, or by its session, which takes back what the dead held."""
    monkeypatch.setattr(Desk, "remote", True)
    office = Office(f"sqlite:///{tmp_path}/agent.db")
    refs: list[Any] = []
    asked = SQLite.next_due

    def meanwhile(self: SQLite, *args: Any) -> int | None:
        due = asked(self, *args)
        if not refs:  # nothing was due when it asked
            refs.append(office.bill.enqueue("one"))
        return due

    monkeypatch.setattr(SQLite, "next_due", meanwhile)
    monkeypatch.setattr(SQLite, "changed", lambda self: 0)  # told by the hint alone
    office.app.run_worker(until_idle=True)
    assert office.app.tasks.get(refs[0]).delivery == "acknowledged"
    office.app.close()

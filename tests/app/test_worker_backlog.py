"""A worker on a backlog: one transaction can write down how an attempt ended and what is claimed next; nothing else is asked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import semel
from semel import worker
from semel.engine.clock import Clock
from semel.engine.ledger import Desk, Ledger
from semel.engine.session import Session
from semel.store.contract import Change, ClaimedTask, Claims, ClaimUnit, Outcome, Unit
from semel.store.sqlite import SQLite
from semel.store.writer import Ticket, Writer
from semel.worker import Asked, Worker

TASKS = 20


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every app that a test has made is closed."""
    made, init = list[semel.App](), semel.App.__init__

    def making(app: semel.App, *args: Any, **kwargs: Any) -> None:
        init(app, *args, **kwargs)
        made.append(app)

    monkeypatch.setattr(semel.App, "__init__", making)
    yield
    for app in made:
        app.close()


class Office:
    """An app with a backlog. looks: how often it was asked when something falls due; commits: what each transaction was given."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch, tasks: int = TASKS) -> None:
        self.app = semel.App(url)
        self.ran: list[int] = []

        @self.app.task(intent=("n",))
        async def work(n: int) -> None:
            self.ran.append(n)

        self.work = work
        work.enqueue_many([work.call(n) for n in range(tasks)])
        self.looks = 0
        self.commits: list[tuple[Sequence[Unit], Sequence[Outcome]]] = []
        next_due, commit = SQLite.next_due, SQLite.commit

        def looking(store: SQLite, *args: Any) -> int | None:
            self.looks += 1
            return next_due(store, *args)

        def committing(store: SQLite, units: Sequence[Unit]) -> list[Outcome]:
            outcomes = commit(store, units)
            self.commits.append((units, outcomes))
            return outcomes

        monkeypatch.setattr(SQLite, "next_due", looking)
        monkeypatch.setattr(SQLite, "commit", committing)


def had(outcome: Outcome) -> bool:
    return isinstance(outcome, Claims) and bool(outcome.tasks)


def looks_take(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store takes so long to say when something falls due."""
    next_due = SQLite.next_due

    def slowly(store: SQLite, *args: Any) -> int | None:
        time.sleep(seconds)
        return next_due(store, *args)

    monkeypatch.setattr(SQLite, "next_due", slowly)


def ends_a_task(unit: Unit) -> bool:
    return isinstance(unit, Change) and any(row.kind == "finished" for part in unit.parts for row in part.rows)


def test_the_end_of_one_and_the_claim_of_the_next_go_to_the_writer_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one turn of the loop, that is: its thread is woken by the first, and finds both when the loop next waits."""
    office = Office(f"sqlite:///{tmp_path}/agent.db", monkeypatch)
    turns, given = [0], list[tuple[int, Unit]]()
    submit = Writer.submit

    def submitting(writer: Writer, unit: Unit, *, waited_for: bool = True) -> Ticket:
        given.append((turns[0], unit))
        return submit(writer, unit, waited_for=waited_for)

    async def live() -> None:
        selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        select = selector.select

        def selecting(timeout: float | None = None) -> Any:
            turns[0] += 1
            return select(timeout)

        selector.select = selecting
        await office.app.arun_worker(until_idle=True, concurrency=1)

    monkeypatch.setattr(Writer, "submit", submitting)
    asyncio.run(live())
    assert sorted(office.ran) == list(range(TASKS))
    ends = {turn for turn, unit in given if ends_a_task(unit)}
    claims = {turn for turn, unit in given if isinstance(unit, ClaimUnit)}
    assert len(ends) == TASKS
    assert ends <= claims


def test_nobody_is_asked_what_is_due_while_claims_get_all_they_ask_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office(f"sqlite:///{tmp_path}/agent.db", monkeypatch)
    office.app.run_worker(until_idle=True, concurrency=1)
    assert sorted(office.ran) == list(range(TASKS))
    assert office.looks < TASKS / 2, "at the beginning, at the end, and now and then"


def test_a_worker_until_idle_hears_of_what_is_resumed_before_it_says_that_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office(f"sqlite:///{tmp_path}/agent.db", monkeypatch, tasks=1)

    @office.app.task(intent=("n",), queue="other")
    async def later(n: int) -> None:
        office.ran.append(n)

    later.enqueue(1)
    office.app.review.pause(queue="other", by="ann")

    @office.app.task(intent=("n",), queue="first")
    def while_a_person_resumes(n: int) -> None:
        person = threading.Thread(target=lambda: office.app.review.resume(queue="other", by="ann"))
        person.start()
        person.join()

    while_a_person_resumes.enqueue(2)
    office.app.run_worker(until_idle=True)
    assert sorted(office.ran) == [0, 1]


def test_a_claim_in_vain_behind_a_backlog_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office(f"sqlite:///{tmp_path}/agent.db", monkeypatch, tasks=3)
    office.app.run_worker(until_idle=True, concurrency=1)
    asked = [unit for units, _ in office.commits for unit in units if isinstance(unit, ClaimUnit)]
    vain = len(asked) - sum(had(outcome) for _, outcomes in office.commits for outcome in outcomes)
    assert vain <= 1, "the one behind the last"
    assert [row.delivery for row in office.app.tasks.list()] == ["acknowledged"] * 3


@pytest.mark.parametrize("concurrency", [2, 16])
def test_what_was_asked_ahead_takes_its_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, concurrency: int) -> None:
    """However long the store takes to say what is due: no more run at a time than there are to be, and none is forgotten."""
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    running, most = 0, 0
    commit = SQLite.commit

    @app.task(intent=("n",))
    async def work(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002 * (n % 3))
        running -= 1

    def committing(store: SQLite, units: Sequence[Unit]) -> list[Outcome]:
        time.sleep(0.002)
        return commit(store, units)

    work.enqueue_many([work.call(n) for n in range(200)])
    monkeypatch.setattr(Desk, "remote", property(lambda desk: True))
    looks_take(0.005, monkeypatch)
    monkeypatch.setattr(SQLite, "commit", committing)
    app.run_worker(until_idle=True, concurrency=concurrency)
    assert [row.delivery for row in app.tasks.list(limit=300)] == ["acknowledged"] * 200
    assert most == concurrency


def test_what_was_asked_ahead_of_a_stop_is_nobody_elses_to_take_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office(f"sqlite:///{tmp_path}/agent.db", monkeypatch)
    ask_ahead = Worker._ask_ahead

    def asking(worker: Worker) -> None:
        ask_ahead(worker)
        if len(office.ran) >= 3 and worker._ahead is not None:
            worker.stop()

    monkeypatch.setattr(Worker, "_ask_ahead", asking)
    office.app.run_worker(until_idle=True, concurrency=1)
    assert len(office.ran) < TASKS, "it was stopped"
    found = [row.delivery for row in office.app.tasks.list()]
    assert sorted(set(found)) == ["acknowledged", "queued"]
    assert found.count("acknowledged") == len(office.ran)


def test_what_is_claimed_takes_its_room_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to read what a task has joined."""
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    running, most = 0, 0
    ledger = Worker._ledger

    @app.task(intent=("n",))
    async def work(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.03 * (n % 3))
        running -= 1

    async def slowly(one: Worker, taken: ClaimedTask) -> Ledger:
        await asyncio.sleep(0.003)
        return await ledger(one, taken)

    work.enqueue_many([work.call(n) for n in range(60)])
    monkeypatch.setattr(Worker, "_ledger", slowly)
    app.run_worker(until_idle=True, concurrency=4)
    assert [row.delivery for row in app.tasks.list(limit=300)] == ["acknowledged"] * 60
    assert most == 4


def test_a_task_that_is_claimed_again_with_its_end_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R17: else its own session would give it back while it runs, and it would run beside itself."""
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    tries = 0

    @app.task(intent=("n",), retry=semel.Retry(max_attempts=5, backoff=timedelta(0)))
    async def work(n: int) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ValueError("again")
        await asyncio.sleep(0.02)
        session = app.runtime.session()
        for _ in range(2):
            await asyncio.to_thread(session.check_own)

    task = work.enqueue(1)
    now = app.runtime.desk.clock.wall_ms()
    monkeypatch.setattr(Clock, "wall_ms", lambda clock: now)
    app.run_worker(until_idle=True, concurrency=1)
    assert tries == 3
    assert "parked" not in [row.kind for row in app.runtime.desk.store.rows("default", task.id)]
    assert not app.runtime.session().held


@pytest.mark.parametrize("concurrency", [3, 16])
def test_no_claim_is_asked_beside_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, concurrency: int) -> None:
    """However long the store takes to say what is due: what must run alone would begin beside what the other has brought."""
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    asked: list[Asked] = []
    most = 0
    ask_for, not_taken = Worker._ask_for, worker.not_taken

    @app.task(intent=("n",))
    async def work(n: int) -> None:
        await asyncio.sleep(0.002 * (n % 3))

    def asking(one: Worker, queues: Sequence[str], kinds: Sequence[str]) -> Asked:
        nonlocal most
        asked.append(ask_for(one, queues, kinds))
        most = max(most, len(asked))
        return asked[-1]

    def answered(session: Session, registered: set[tuple[str, str]], outcome: Outcome) -> None:
        asked[:] = [one for one in asked if one.registered is not registered]
        not_taken(session, registered, outcome)

    work.enqueue_many([work.call(n) for n in range(200)])
    monkeypatch.setattr(Desk, "remote", property(lambda desk: True))
    looks_take(0.005, monkeypatch)
    monkeypatch.setattr(Worker, "_ask_for", asking)
    monkeypatch.setattr(worker, "not_taken", answered)
    app.run_worker(until_idle=True, concurrency=concurrency)
    assert [row.delivery for row in app.tasks.list(limit=300)] == ["acknowledged"] * 200
    assert most == 1


def test_a_backlog_hides_nothing_that_a_person_has_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it lasts there may never be room to look, and what a claim goes by was read long ago."""
    monkeypatch.setattr(worker, "LOOK_SECONDS", 0.05)
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    ran: list[int] = []

    @app.task(intent=("n",), queue="other")
    async def other(n: int) -> None:
        ran.append(n)

    @app.task(intent=("n",))
    async def work(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0.005)
        if n == 10:
            threading.Thread(target=lambda: app.review.resume(queue="other", by="ann")).start()

    other.enqueue(-1)
    work.enqueue_many([work.call(n) for n in range(100)])
    app.review.pause(queue="other", by="ann")
    app.run_worker(until_idle=True, concurrency=1)
    assert sorted(ran) == list(range(-1, 100))
    assert ran.index(-1) < 90


@pytest.mark.parametrize("ahead", [False, True])
def test_what_a_worker_that_is_cancelled_was_about_to_get_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    """R17: the process lives on, and so does its session."""
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    commit = SQLite.commit
    asked, go_on = threading.Event(), threading.Event()

    @app.task(intent=("n",))
    async def work(n: int) -> None:
        await asyncio.sleep(0)

    def committing(store: SQLite, units: Sequence[Unit]) -> list[Outcome]:
        if any(isinstance(unit, ClaimUnit) for unit in units) and store.next_due(["default"], ["work"]) is not None:
            asked.set()
            go_on.wait(10)
        return commit(store, units)

    async def live() -> None:
        running = asyncio.ensure_future(app.arun_worker(concurrency=1))
        if ahead:
            monkeypatch.setattr(Worker, "_claim_at_once", never)
        monkeypatch.setattr(SQLite, "commit", committing)
        await asyncio.to_thread(asked.wait, 10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def never(one: Worker, heard: bool) -> int | None:
        if one._ahead is None and heard is not None and not one._running:
            one._ahead = one._ask_for(*one._open_to())
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    work.enqueue(1)
    asyncio.run(live())
    go_on.set()
    app.runtime.desk.writer.barrier().wait(10)
    session = app.runtime.session()
    assert [row.delivery for row in app.tasks.list()] == ["leased"]
    for _ in range(2):
        session.check_own()
    assert [row.delivery for row in app.tasks.list()] == ["queued"] and not session.held

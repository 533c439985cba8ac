"""Running work in the caller's own process: `with app.work(...)`, and `task.run(...)`."""

from __future__ import annotations

import contextvars
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from semel.decorated import not_in_loop
from semel.engine import attempt as attempts
from semel.engine import drive
from semel.engine.arrival import NotYet
from semel.engine.attempt import Attempt
from semel.engine.declare import Work as Declared
from semel.engine.ledger import Desk, Ledger
from semel.engine.queue import Order, accepted, claim_one, enqueue, not_taken
from semel.engine.requests import Await, Raised, Request, Returned
from semel.engine.runtime import Runtime, current
from semel.engine.session import Session
from semel.engine.views import state_of
from semel.errors import Suspended, Unsettled, Why
from semel.machine import tasks
from semel.model import Delivery, Execution, Limits, Ref, Refusal, Retry
from semel.store.contract import ClaimedTask, Claims, Fenced

if TYPE_CHECKING:
    from semel.app import App

FOR_EVER = Retry(max_attempts=1_000_000_000, max_crashes=1_000_000_000)  # a loop of your own is entered as often as you like
LOOK_SECONDS = 0.1


def why_of(state: tasks.Task) -> Why:
    """Why a task has no result yet."""
    if state.delivery is Delivery.DEAD_LETTERED or (state.delivery, state.execution) == (Delivery.ACKNOWLEDGED, Execution.FAILED):
        return "dead_lettered"  # the second was purged
    if state.execution is Execution.CANCELLED:
        return "cancelled"
    if state.delivery is Delivery.BLOCKED:
        return "blocked"
    if state.execution is Execution.UNKNOWN:
        return "unknown"
    return "queued" if state.delivery is Delivery.QUEUED else "leased"  # finished, too: another attempt has it


def unsettled(ref: Ref[Any], state: tasks.Task, cause: BaseException | None = None) -> NoReturn:
    """Raise `Unsettled` with what is on record, and the line to type next."""
    why = why_of(state)
    said = f": {state.why}" if state.why else ""
    raise Unsettled(ref, why, f"task {ref.id} ({state.kind} {state.key}) is {why}{said}; see: semel why {ref.id}") from cause


def state_now(desk: Desk, ref: Ref[Any]) -> Generator[Request, Any, tasks.Task]:
    """A task as the store has it at this moment."""
    return (yield from desk.off_loop(lambda: state_of(desk, ref.tenant, ref.id)))


def arrived(runtime: Runtime, ref: Ref[Any], until: float) -> Generator[Request, Any, Session]:
    """This process's session; waits while it must be watched whether the store went back. Raises `Unsettled`."""
    while True:
        try:
            return (yield from runtime.desk.off_loop(runtime.session))
        except NotYet as error:
            if runtime.desk.clock.boot() > until:
                unsettled(ref, (yield from state_now(runtime.desk, ref)), error)
        yield runtime.desk.clock.pause(min(LOOK_SECONDS, runtime.ttl / 4))


def _ledger(runtime: Runtime, session: Session, taken: ClaimedTask) -> Generator[Request, Any, Ledger]:
    """The ledger of what was claimed; the streams of its joined keys are read. If they cannot be, it goes back (R17)."""
    actor = f"session:{session.id}"
    try:
        return (yield from runtime.desk.off_loop(lambda: Ledger(runtime.desk, taken.tenant, taken.task, taken.head, actor)))
    except BaseException:
        session.held.drop(taken.tenant, taken.task.id, taken.task.token)
        raise


def take(
    runtime: Runtime, ref: Ref[Any], retry: Retry, limits: Limits, wait: timedelta, names: tuple[str, ...] = ()
) -> Generator[Request, Any, Ledger]:
    """Claim this very task for this process, waiting for one who has it. Raises `Unsettled`."""
    clock = runtime.desk.clock
    until = clock.boot() + wait.total_seconds()
    session = yield from arrived(runtime, ref, until)
    while True:
        yield from _not_paused(runtime, ref, until, names)
        refused: list[Refusal] = []
        ticket, registered = claim_one(runtime.desk, session, ref.tenant, ref.id, retry, refused, limits)
        outcome = yield Await(ticket)
        not_taken(session, registered, outcome)
        if isinstance(outcome, BaseException):
            raise outcome
        if isinstance(outcome, Claims) and outcome.tasks:
            return (yield from _ledger(runtime, session, outcome.tasks[0]))
        if isinstance(outcome, Fenced):
            session.fence_self(outcome.why)
        state = yield from state_now(runtime.desk, ref)
        if state.delivery is not Delivery.LEASED or clock.boot() > until:
            unsettled(ref, state)
        yield from runtime.desk.off_loop(session.tend)  # whoever has it may be dead, and then it is free at once
        yield clock.pause(LOOK_SECONDS)


def _not_paused(runtime: Runtime, ref: Ref[Any], until: float, names: tuple[str, ...]) -> Generator[Request, Any, None]:
    """Wait until people have not paused what it is. Raises `Unsettled`."""
    while True:
        paused = yield from runtime.desk.off_loop(runtime.paused.now)
        if not paused.held:
            return
        state = yield from state_now(runtime.desk, ref)
        there = paused.of(state.queue, state.kind, *names)
        if there is None:
            return
        if runtime.desk.clock.boot() > until:
            said = f": {there.why}" if there.why else ""
            raise Unsettled(
                ref, why_of(state), f"task {ref.id} ({state.kind} {state.key}) is not begun: {there.scope} is paused by "
                f"{there.by.removeprefix('person:')}{said}; to go on: semel resume"
            )  # fmt: skip
        yield runtime.desk.clock.pause(LOOK_SECONDS)


class Work(AbstractContextManager["Work"], AbstractAsyncContextManager["Work"]):
    """Your own loop as an attempt. Leaving ends the attempt; entering again is the next one.

    ref: the task. attempt: its number, from 1. Raises `Unsettled` on entering while another has it or something is
    unknown that only time or a person can settle; and on leaving, if it could not be finished.
    """

    ref: Ref[Any]
    attempt: int

    def __init__(self, app: App, order: Order, limits: Limits, wait: timedelta) -> None:
        self._app, self._order, self._limits, self._wait = app, order, limits, wait
        self._attempt: Attempt | None = None
        self._token: contextvars.Token[Attempt | None] | None = None
        self.attempt = 0

    # --- entering ---

    def __enter__(self) -> Work:
        """Begin an attempt."""
        not_in_loop("with app.work(...)", "async with app.work(...)")
        drive.run(self._enter())
        return self._entered()

    async def __aenter__(self) -> Work:
        """Begin an attempt."""
        await drive.arun(self._enter())
        return self._entered()

    def _enter(self) -> Generator[Request, Any, None]:
        runtime = yield from self._app.opened()
        task, ticket = enqueue(runtime.desk, self._order)
        self.ref = Ref(accepted(task, (yield Await(ticket))), self._order.tenant, app=self._app)
        ledger = yield from take(runtime, self.ref, FOR_EVER, self._limits, self._wait)
        session = yield from runtime.desk.off_loop(runtime.session)
        attempt = Attempt(
            runtime, session, ledger, unfenced=runtime.unfenced, limits=self._limits, hold_seconds=self._wait.total_seconds()
        )
        try:
            ready = yield from attempts.prepare_direct(attempt)
        except BaseException:
            session.held.drop(self.ref.tenant, self.ref.id, attempt.token)
            raise
        if not ready:
            session.held.drop(self.ref.tenant, self.ref.id, attempt.token)
            unsettled(self.ref, ledger.state)
        self._attempt, self.attempt = attempt, attempt.number

    def _entered(self) -> Work:
        self._token = current.set(self._attempt)
        return self

    # --- leaving ---

    def __exit__(self, *exc: object) -> None:
        """End the attempt: finished, unless an exception leaves."""
        self._left()
        drive.run(self._leave(exc[1]))

    async def __aexit__(self, *exc: object) -> None:
        """End the attempt: finished, unless an exception leaves."""
        self._left()
        await drive.arun(self._leave(exc[1]))

    def _left(self) -> None:
        if self._token is not None:
            current.reset(self._token)
            self._token = None

    def _leave(self, error: object) -> Generator[Request, Any, None]:
        attempt = self._attempt
        assert attempt is not None
        self._attempt = None
        if attempt.runtime.forked:
            return  # the task is the parent's, which ends it
        failed = error if isinstance(error, BaseException) else None
        try:
            yield from attempt.end(Raised(failed) if failed else Returned(None), lambda value: value)
        finally:
            attempt.session.held.drop(self.ref.tenant, self.ref.id, attempt.token)
        if failed is not None and not isinstance(failed, Suspended):
            return
        state = yield from state_now(attempt.desk, self.ref)
        if failed is not None or state.delivery is not Delivery.ACKNOWLEDGED or state.execution is Execution.CANCELLED:
            unsettled(self.ref, state, failed)  # a suspension never leaves (R11), not even if another has finished the task


def run_here(app: App, work: Declared, order: Order, wait: timedelta) -> Generator[Request, Any, Any]:
    """Accept a task and make one attempt in this process; its recorded result if it is done; else `Unsettled`."""
    runtime = yield from app.opened()
    task, ticket = enqueue(runtime.desk, order)
    ref: Ref[Any] = Ref(accepted(task, (yield Await(ticket))), order.tenant, app=app)
    state = yield from state_now(runtime.desk, ref)
    if state.execution is not Execution.SUCCEEDED:
        try:
            ledger = yield from take(runtime, ref, work.retry, work.limits, wait, work.names)
        except Unsettled:
            state = yield from state_now(runtime.desk, ref)
            if state.execution is not Execution.SUCCEEDED:
                raise
        else:
            state = yield from _attempt(runtime, work, ledger, wait)
    if state.delivery is Delivery.ACKNOWLEDGED and state.execution is Execution.SUCCEEDED:
        return work.result.decode(state.result)
    unsettled(ref, state)


def _attempt(runtime: Runtime, work: Declared, ledger: Ledger, wait: timedelta) -> Generator[Request, Any, tasks.Task]:
    session = yield from runtime.desk.off_loop(runtime.session)
    attempt = Attempt(
        runtime,
        session,
        ledger,
        unfenced=runtime.unfenced,
        limits=work.limits,
        timeout_ms=work.timeout_ms,
        hold_seconds=wait.total_seconds(),
    )
    try:
        yield from attempts.run(attempt, work)
    finally:
        session.held.drop(ledger.tenant, ledger.state.id, attempt.token)
    return (yield from state_now(runtime.desk, Ref(ledger.state.id, ledger.tenant)))


def as_work(attempt: Attempt) -> Work:
    """The attempt that runs here, as the work it is part of."""
    work = Work.__new__(Work)
    work.ref = Ref(attempt.ledger.state.id, attempt.ledger.tenant, app=attempt.runtime.app)
    work.attempt = attempt.number
    work._attempt = None
    return work

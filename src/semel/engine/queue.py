"""Accepting tasks and claiming them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

import uuid_utils

from semel.engine import collector
from semel.engine.declare import Registry, Work
from semel.engine.held import Registered
from semel.engine.ledger import START, Desk, change_id, part_of_task
from semel.engine.requests import Await, Request
from semel.engine.session import Session
from semel.engine.standing import Paused
from semel.errors import Misuse, StoreUnavailable
from semel.machine import journal as j
from semel.machine import limits, pauses, projection, tasks
from semel.machine.epochs import Epoch
from semel.machine.journal import Row
from semel.machine.records import record
from semel.model import Json, Limits, Refusal, Retry
from semel.store.contract import Birth, Change, Claims, ClaimUnit, Exists, Guard, Outcome, Part
from semel.store.writer import Ticket

MAX_NAME = 200
SLICE, SLICE_CHARACTERS = 128, 1 << 21  # of many tasks so many are given to the writer together
SLICES = 4  # so often before it has answered
FEWER = 4  # so many tasks that are accepted hold about as many objects as an attempt
AT_ONCE_SECONDS = 0.01  # tasks that one claim takes are looked at within so long, or it is asked anew what is paused
UNLIMITED = Limits()
log = logging.getLogger("semel")


@record
class Order:
    """A task to be accepted. due: milliseconds since the Unix epoch. queue "": direct mode, which no worker claims."""

    tenant: str
    kind: str
    key: str
    args: Json
    queue: str
    priority: int = 0
    due: int = 0
    actor: str = "caller"


def check_name(value: object, field: str) -> None:
    """A tenant, key, kind or queue: text that a person can read out."""
    if not isinstance(value, str) or not value:
        raise Misuse(f"{field} must be text that is not empty, not {value!r}; write {field}='...'")
    if len(value) > MAX_NAME or not value.isprintable():
        raise Misuse(f"{field} must be at most {MAX_NAME} printable characters; shorten it, or use a digest of it")


def enqueue(desk: Desk, order: Order) -> tuple[str, Ticket]:
    """The id the task gets if its key is new, and the ticket that tells: Landed, or Exists with the id it has."""
    task, change = birth(desk, order)
    return task, desk.writer.submit(change)


def enqueue_many(desk: Desk, orders: Sequence[Order]) -> Generator[Request, Any, list[str]]:
    """The ids of many tasks, in the order given, when all are durable; each is a change of its own.

    They are given to the writer slice by slice, and four slices are under way at a time: what others write waits behind so
    many at most, and the next is made while the last is written. Raises `Misuse`, and then nothing is accepted; and what the
    store raised, when it has answered all that it was given: no further slice is, and what is accepted stays so.
    """
    check_orders(orders)
    with collector.beside(len(orders) // FEWER):
        return (yield from _accepted(desk, orders))


def _accepted(desk: Desk, orders: Sequence[Order]) -> Generator[Request, Any, list[str]]:
    ids: list[str] = []
    given = 0
    under_way: deque[list[Ticket]] = deque()
    wrong: BaseException | None = None
    while given < len(orders) and wrong is None:
        try:
            under_way.append(_submitted(desk, orders, given))
        except StoreUnavailable as error:
            wrong = error
            break
        given += len(under_way[-1])
        if len(under_way) == SLICES:
            wrong = yield from _answered(under_way.popleft(), ids)
    while under_way:
        wrong = (yield from _answered(under_way.popleft(), ids)) or wrong
    if wrong is not None:
        raise StoreUnavailable(
            f"{wrong}; of {len(orders)} tasks {len(ids)} are accepted, and of the others it is not known: the same calls again "
            f"accept the rest"
        ) from wrong
    return ids


def _submitted(desk: Desk, orders: Sequence[Order], start: int) -> list[Ticket]:
    """Give the writer so many, from `start` on, that one transaction may hold them beside others."""
    births: list[Birth] = []
    size, at, store = 0, desk.clock.wall_ms(), desk.standing.keep_up()
    for order in orders[start : start + SLICE]:
        birth = _birth(order, at, store)
        births.append(birth)
        size += len(birth.parts[0].rows[0].body)
        if size >= SLICE_CHARACTERS:
            break
    return desk.writer.submit_all(births, begin=start + len(births) < len(orders))


def _answered(given: Sequence[Ticket], ids: list[str]) -> Generator[Request, Any, BaseException | None]:
    """Wait for all of these; `ids` gets those of what was accepted. What the store raised of one that was not."""
    for ticket in reversed(given):  # the last is mostly answered last
        if not ticket.is_set:
            yield Await(ticket)
    wrong: BaseException | None = None
    for ticket in given:
        outcome = ticket.value
        if isinstance(outcome, BaseException):
            wrong = wrong or outcome
        else:
            ids.append(outcome.task if isinstance(outcome, Exists) else ticket.unit.parts[0].stream)  # type: ignore[union-attr]
    return wrong


def birth(desk: Desk, order: Order) -> tuple[str, Change]:
    """The change that brings a task into being if its key is new, and the id it gets then."""
    check_order(order)
    change = _birth(order, desk.clock.wall_ms(), desk.standing.keep_up())
    return change.parts[0].stream, change


def check_order(order: Order) -> None:
    """Raise `Misuse` for a name that nobody could read out."""
    check_name(order.tenant, "tenant")
    check_name(order.kind, "kind")
    check_name(order.key, "key")


def check_orders(orders: Sequence[Order]) -> None:
    """Raise `Misuse` for one of many before any of them is accepted."""
    for order in orders:
        check_order(order)


def _birth(order: Order, at: int, store: Epoch) -> Birth:
    task, identity = str(uuid_utils.uuid7()), change_id()
    event = j.Enqueued(
        task, order.kind, order.key, order.args, order.queue, order.priority, order.due or at, store.epoch, store.window
    )
    tenant = order.tenant
    row = j.born(event, tenant=tenant, actor=order.actor, at=at, id=identity)
    part = Part(tenant, task, START, (row,), projection.of_birth(tenant, event))
    return Birth(identity, (part,), None, (), (tenant, order.kind, order.key, task))


def accepted(task: str, outcome: Outcome) -> str:
    """The id of the task, new or old. Raises what the store raised."""
    if isinstance(outcome, Exists):
        return outcome.task
    if isinstance(outcome, BaseException):
        raise outcome
    return task


def backoff_of(retry: Retry) -> int:
    """A retry's backoff in milliseconds."""
    return int(retry.backoff.total_seconds() * 1000)


def claim(
    desk: Desk,
    session: Session,
    works: Registry[Work],
    *,
    queues: Sequence[str],
    kinds: Sequence[str],
    limit: int,
    told: set[tuple[str, str]],
    paused: Paused,
) -> tuple[Ticket, set[Registered]]:
    """Ask for up to `limit` tasks; and the set of the claims that were registered as held before they landed (R17).

    told: the tasks of which it was said already that they cannot be read. paused: what is asked once more when they have been
    found, so that nothing is claimed which came when it was paused already.
    """
    registered: set[Registered] = set()
    at = desk.clock.wall_ms()
    held = paused.since_now(AT_ONCE_SECONDS)
    guard = session.guard()  # one for all of it: what the store is asked about is what each claim rests on

    def decide(tenant: str, rows: list[Row]) -> tuple[Change, tasks.Task] | None:
        try:
            state = tasks.fold(rows)
        except ValueError as error:  # nothing can be decided about it here, so it is left as it is; others go on
            if (tenant, rows[0].stream) not in told:
                told.add((tenant, rows[0].stream))
                log.warning("semel: task %s is left for a newer semel: %s; upgrade: pip install -U semel", rows[0].stream, error)
            return None
        desk.clock.seen(rows[-1].at)
        work = works.get(state.kind)
        if work is None or held.of(state.queue, *work.names) is not None:
            return None
        return _claimed(desk, session, guard, registered, tenant, state, rows, work.retry, work.limits, at, direct=False)

    beside = pauses.TENANT, pauses.STREAM
    unit = ClaimUnit(guard, at, limit, decide, tuple(queues), tuple(kinds), tenant=desk.tenant, beside=beside, told=held.stood)
    return desk.writer.submit(unit), registered


def claim_one(
    desk: Desk, session: Session, tenant: str, task: str, retry: Retry, refused: list[Refusal], may: Limits = UNLIMITED
) -> tuple[Ticket, set[Registered]]:
    """Ask for this very task, in the caller's own process; `refused` gets the machine's no."""
    registered: set[Registered] = set()
    at, guard = desk.clock.wall_ms(), session.guard()

    def decide(tenant: str, rows: list[Row]) -> tuple[Change, tasks.Task] | None:
        if not rows:
            return None
        desk.clock.seen(rows[-1].at)
        state = tasks.fold(rows)
        return _claimed(desk, session, guard, registered, tenant, state, rows, retry, may, at, direct=True, refused=refused)

    return desk.writer.submit(ClaimUnit(guard, at, 1, decide, task=(tenant, task))), registered


def _claimed(
    desk: Desk,
    session: Session,
    guard: Guard,
    registered: set[Registered],
    tenant: str,
    state: tasks.Task,
    rows: list[Row],
    retry: Retry,
    may: Limits,
    at: int,
    *,
    direct: bool,
    refused: list[Refusal] | None = None,
) -> tuple[Change, tasks.Task] | None:
    budget = limits.budget_of(may)
    command = tasks.Claim(session.id, session.epoch, at, retry.max_attempts, retry.max_crashes, backoff_of(retry), direct, budget)
    decided = tasks.decide(state, command)
    if isinstance(decided, Refusal):
        if refused is not None:
            refused.append(decided)
        return None
    claimed = decided.events[0]
    assert isinstance(claimed, j.Claimed)
    session.held.add(tenant, state.id, claimed.token)
    registered.add((tenant, state.id, claimed.token))
    identity = change_id()
    head = START._replace(seq=rows[-1].seq, hash=rows[-1].hash)
    part, after, _ = part_of_task(
        tenant, state, head, decided.events, actor=f"session:{session.id}", token=claimed.token, at=at, id=identity
    )
    return Change(identity, (part,), guard), after


def not_taken(session: Session, registered: set[Registered], outcome: Outcome) -> None:
    """What was registered and is not in the answer is not ours: if it landed all the same, the beat's check gives it back."""
    taken = {(t.tenant, t.task.id, t.task.token) for t in outcome.tasks} if isinstance(outcome, Claims) else set()
    session.held.drop_all(registered - taken)

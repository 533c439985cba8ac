"""What the conformance kit makes its changes with: streams as a caller knows them, tasks by the shipped machine, sessions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from semel.engine.ledger import START, part_of_task
from semel.errors import StoreUnavailable
from semel.machine import journal as j
from semel.machine import tasks
from semel.machine.journal import Row
from semel.machine.projection import Tables
from semel.model import Refusal
from semel.store.contract import Birth, Change, Claims, ClaimUnit, Guard, Head, Outcome, Part, SessionRow, Store, Unit
from semel.store.writer import Writer

AT = 1_700_000_000_000  # "now", in milliseconds since the Unix epoch
TENANT, KIND, QUEUE = "acme", "bill", "default"
SECONDS = 60.0
NOTHING = Tables()


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as one caller knows it. `then` gives the change that appends to it, and the stream as it will be."""

    name: str
    tenant: str = TENANT
    head: Head = START

    def then(
        self,
        *events: j.Happened,
        tables: Tables = NOTHING,
        guard: Guard | None = None,
        checks: tuple[tuple[str, str, int], ...] = (),
        id: str = "",
    ) -> tuple[Change, Stream]:
        """Append `events` (none given: one that says nothing)."""
        identity = id or change_id()
        rows = j.seal(
            events or (j.Void(),),
            tenant=self.tenant, stream=self.name, seq=self.head.seq, previous=self.head.hash, actor="kit", token=0, at=AT,
            id=identity,
        )  # fmt: skip
        part = Part(self.tenant, self.name, self.head, rows, tables)
        return Change(identity, (part,), guard, checks), replace(self, head=Head(rows[-1].seq, rows[-1].hash))


@dataclass(frozen=True, slots=True)
class Known:
    """A task as one caller knows it: what the machine folds, and where its stream stands."""

    state: tasks.Task
    head: Head
    tenant: str = TENANT

    def then(self, *events: j.Happened, guard: Guard | None = None) -> tuple[Change, Known]:
        """The change that appends `events`, and the task as it will be."""
        identity = change_id()
        part, state, head = part_of_task(
            self.tenant, self.state, self.head, events, actor="kit", token=self.state.token, at=AT, id=identity
        )
        return Change(identity, (part,), guard), Known(state, head, self.tenant)


def change_id() -> str:
    """A random id."""
    return os.urandom(8).hex()


def task(
    key: str,
    *,
    tenant: str = TENANT,
    kind: str = KIND,
    queue: str = QUEUE,
    priority: int = 0,
    due: int = AT,
    id: str = "",
) -> tuple[Change, Known]:
    """The change that brings a task into being."""
    identity, name = change_id(), id or f"task-{change_id()}"
    event = j.Enqueued(name, kind, key, {"key": key}, queue, priority, due)
    part, state, head = part_of_task(tenant, None, START, (event,), actor="kit", token=0, at=AT, id=identity)
    return Birth(identity, (part,), create=(tenant, kind, key, name)), Known(state, head, tenant)


def bad(stream: Stream) -> Change:
    """A change that no database takes: a column that may not be empty is."""
    change, _ = stream.then()
    part = change.parts[0]
    row = replace(part.rows[0], kind=None)  # type: ignore[arg-type]
    return replace(change, parts=(replace(part, rows=(row,)),))


def together(*changes: Change) -> Change:
    """One change of all their parts. They must have been made under one id."""
    return Change(changes[0].id, tuple(part for change in changes for part in change.parts), changes[0].guard, changes[0].checks)


def session(store: Store, name: str = "", *, beat: int = 0, nonce: str = "n0", epoch: int | None = None) -> Guard:
    """Open a session, and give the guard under which it writes."""
    name = name or f"session-{change_id()}"
    epoch = store.info.epoch if epoch is None else epoch
    store.open_session(SessionRow(name, beat, nonce, 15_000, epoch, "host", "boot", 1, 2, 3, 4, "", AT))
    return Guard(name, epoch, beat)


def broken_guards(store: Store) -> list[Guard]:
    """Every way in which a guard does not hold: unknown, fenced, of another epoch (its own, the session's), its beat behind."""
    fenced, behind, epoch = session(store), session(store), store.info.epoch
    assert store.fence(fenced.session, None, "watched")
    other = session(store, epoch=epoch + 1)
    return [
        Guard("nobody", epoch, 0), fenced, other, replace(other, epoch=epoch), replace(behind, epoch=epoch + 1),
        replace(behind, beat=1),
    ]  # fmt: skip


def claiming(
    guard: Guard,
    *,
    limit: int = 10,
    at: int = AT,
    queues: Sequence[str] = (QUEUE,),
    kinds: Sequence[str] = (KIND,),
    task: tuple[str, str] | None = None,
    tenant: str | None = None,
    refuse: Callable[[tasks.Task], bool] = lambda state: False,
) -> ClaimUnit:
    """A claim that the shipped machine decides; `refuse`: the tasks to which it says no."""

    def decide(owner: str, rows: list[Row]) -> tuple[Change, tasks.Task] | None:
        state = tasks.fold(rows)
        decided = tasks.decide(state, tasks.Claim(guard.session, guard.epoch, at, direct=task is not None))
        if refuse(state) or isinstance(decided, Refusal):
            return None
        known = Known(state, Head(rows[-1].seq, rows[-1].hash), owner)
        change, after = known.then(*decided.events, guard=guard)
        return change, after.state

    return ClaimUnit(guard, at, limit, decide, tuple(queues), tuple(kinds), task, tenant)


def commit(store: Store, *units: Unit) -> list[Outcome]:
    """One transaction, given again while the store does not answer, as the writer does."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            return store.commit(units)
        except StoreUnavailable:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def one(store: Store, unit: Unit) -> Outcome:
    """The outcome of a unit that is alone in its transaction."""
    return commit(store, unit)[0]


def claimed(outcome: Outcome) -> list[str]:
    """The keys of the tasks that were claimed, in their order."""
    assert isinstance(outcome, Claims), outcome
    return [taken.task.key for taken in outcome.tasks]


class Writers:
    """One writer for each handle: of two that are the same (a store in memory), one."""

    def __init__(self, *stores: Store) -> None:
        self._writers = {id(store): Writer(store) for store in stores}

    def give(self, store: Store, unit: Unit) -> Outcome:
        """Commit through the handle's writer."""
        ticket = self._writers[id(store)].submit(unit)
        assert ticket.wait(SECONDS), "the writer did not answer"
        assert not isinstance(ticket.value, BaseException), ticket.value
        return ticket.value  # type: ignore[no-any-return]

    def close(self) -> None:
        """Stop them."""
        for writer in self._writers.values():
            writer.close()


def wrong(call: Callable[[], object], error: type[BaseException]) -> None:
    """Fail unless `call` raises `error`."""
    try:
        call()
    except error:
        return
    raise AssertionError(f"did not raise {error.__name__}")

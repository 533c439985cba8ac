"""The tables beside the journal, as a pure function of what the journal tells: written with it, rebuilt from it, proved by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from semel.machine import tasks
from semel.machine.effect_state import Effect
from semel.machine.events import Enqueued
from semel.machine.task_state import Key, Task
from semel.model import Delivery, EffectState


class TaskRow(NamedTuple):
    """`task`: one narrow row a task. version: the seq of the last event that changed it; the submissions and confirmations of an
    attempt that goes on come after it, and stand in the versions of their effects' rows."""

    tenant: str
    task: str
    kind: str
    key: str
    queue: str
    priority: int
    due: int
    delivery: str
    execution: str
    attempt: int
    token: int
    session: str
    failures: int
    crashes: int
    unknown: int
    version: int
    why: str


class ReadyRow(NamedTuple):
    """`ready`: a pointer, inserted when queued, deleted when claimed. rank: the priority, negated: least is first."""

    queue: str
    kind: str
    rank: int
    due: int
    tenant: str
    task: str


class InflightRow(NamedTuple):
    """`inflight`: a pointer, inserted at claim, deleted when the attempt ends."""

    session: str
    tenant: str
    task: str


class EffectRow(NamedTuple):
    """`effect`: one row a key. stream: where its events stand."""

    tenant: str
    key: str
    task: str
    stream: str
    name: str
    state: str
    version: int


class UnknownRow(NamedTuple):
    """`unknown`: a pointer, the unknown-work queue. since: when it was first lost, milliseconds since the Unix epoch."""

    tenant: str
    key: str
    task: str
    name: str
    since: int


class Tables(NamedTuple):
    """What one change does to the tables."""

    task: TaskRow | None = None
    ready_gone: ReadyRow | None = None
    ready: ReadyRow | None = None
    inflight_gone: InflightRow | None = None
    inflight: InflightRow | None = None
    effects: tuple[EffectRow, ...] = ()
    unknown_gone: tuple[tuple[str, str], ...] = ()
    unknown: tuple[UnknownRow, ...] = ()


T = TypeVar("T")
_made = tuple.__new__  # what the class of a named tuple does, after it has sorted out its arguments
WHY_LENGTH = 300


def task_row(tenant: str, t: Task) -> TaskRow:
    """The task's row."""
    return TaskRow(
        tenant,
        t.id,
        t.kind,
        t.key,
        t.queue,
        t.priority,
        t.due,
        t.delivery._value_,  # what `.value` gives, which is found by two calls in Python
        t.execution._value_,
        t.attempt,
        t.token,
        t.session,
        t.failures,
        t.crashes,
        len(t.unknown),
        t.version - t.behind,
        t.why and t.why[:WHY_LENGTH].encode(errors="replace").decode(),  # half a character, of an error, has no place in a table
    )


_AS_BORN = task_row("", tasks.apply(Task(), Enqueued("t", "kind", "key", None, "", 0, 0, 0, False), 0))[7:]  # from delivery on


def ready_row(tenant: str, t: Task) -> ReadyRow | None:
    """The pointer by which workers find it. A task of direct mode has no queue: only its own caller enters it."""
    if t.delivery is not Delivery.QUEUED or not t.queue:
        return None
    return ReadyRow(t.queue, t.kind, -t.priority, t.due, tenant, t.id)


def inflight_row(tenant: str, t: Task) -> InflightRow | None:
    """The pointer by which a sweep finds it."""
    return InflightRow(t.session, tenant, t.id) if t.delivery is Delivery.LEASED else None


def effect_row(tenant: str, stream: str, x: Effect) -> EffectRow:
    """The effect's row."""
    return EffectRow(tenant, x.key, x.task, stream, x.name, x.state._value_, x.version)


def unknown_row(tenant: str, x: Effect | None) -> UnknownRow | None:
    """The effect's place in the unknown-work queue, if it has one."""
    if x is None or x.state is not EffectState.AMBIGUOUS:
        return None
    return UnknownRow(tenant, x.key, x.task, x.name, x.lost_at)


def of_task(tenant: str, before: Task | None, after: Task, keys: Iterable[str]) -> Tables:
    """What has to be written when a task moves from `before` to `after`; `keys`: the effects that were touched."""
    pairs = [(before.effects.get(key) if before else None, after.effects.get(key)) for key in dict.fromkeys(keys)]
    effects = _of_effects(tenant, after.id, pairs)
    row = None if before and before.version - before.behind == after.version - after.behind else task_row(tenant, after)
    if before and before.delivery is after.delivery is Delivery.LEASED and before.session == after.session:
        return Tables(row, None, None, None, None, *effects)  # its owner goes on: the pointer stays
    ready_gone, ready = _moved(ready_row(tenant, before) if before else None, ready_row(tenant, after))
    held_gone, held = _moved(inflight_row(tenant, before) if before else None, inflight_row(tenant, after))
    return Tables(row, ready_gone, ready, held_gone, held, *effects)


def of_birth(tenant: str, event: Enqueued) -> Tables:
    """What `of_task` says of a task of which nothing but this event is on record, without folding it. A test compares them."""
    task, kind, queue, priority, due = event.task, event.name, event.queue, event.priority, event.due
    row = _made(TaskRow, (tenant, task, kind, event.key, queue, priority, due, *_AS_BORN))
    if not queue:
        return Tables(row)
    return Tables(row, None, _made(ReadyRow, (queue, kind, -priority, due, tenant, task)))


def _moved(was: T | None, now: T | None) -> tuple[T | None, T | None]:
    """A pointer to be deleted, and one to be inserted."""
    return (None, None) if was == now else (was, now)


def of_key(tenant: str, stream: str, before: Key, after: Key) -> Tables:
    """The same for a tenant-scoped key."""
    return Tables(None, None, None, None, None, *_of_effects(tenant, stream, [(before.effect, after.effect)]))


def _of_effects(
    tenant: str, stream: str, pairs: list[tuple[Effect | None, Effect | None]]
) -> tuple[tuple[EffectRow, ...], tuple[tuple[str, str], ...], tuple[UnknownRow, ...]]:
    """The rows of effects, and the pointers to be deleted and to be inserted."""
    effects, gone, unknown = [], [], []
    for old, new in pairs:
        if new is None:
            continue
        row = effect_row(tenant, stream, new)
        effects.append(row)
        was, now = unknown_row(tenant, old), unknown_row(tenant, new) if row.state == EffectState.AMBIGUOUS else None
        if was != now:
            if was:
                gone.append((tenant, new.key))
            if now:
                unknown.append(now)
    return tuple(effects), tuple(gone), tuple(unknown)

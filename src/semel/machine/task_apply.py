"""What an event does to what is on record of a task, or of a tenant-scoped key; folding rows. Pure; the table is in `tasks`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from immutables import Map

from semel.machine import effect_apply as e
from semel.machine import foreseen, limits, replays, retention
from semel.machine import journal as j
from semel.machine.records import replace
from semel.machine.task_state import Key, Task, Waiting
from semel.model import Delivery, Execution

# What an owner that goes on writes most. It moves the version of the effect's row, and by itself nothing of the task's row: what
# others decide about a task (whose it is, what is unknown, whether it ended) rests on what does.
_QUIET = (j.Intended, j.Confirmed)


def apply(task: Task, event: j.Happened, at: int) -> Task:
    """The task after `event`, written at `at` (milliseconds since the Unix epoch). Pure."""
    seq, seen = task.version + 1, limits.last_seen(task.seen, event, at)
    if isinstance(event, j.OfEffect):
        return _apply_effect(task, event, seq, seen, at)
    if isinstance(event, j.Pruned):
        return retention.back(Task, event.task)
    change, used = _APPLY.get(type(event)), limits.after(task.used, event, seen)
    return replace(change(task, event) if change else task, version=seq, behind=0, seen=seen, used=used)


def _apply_effect(task: Task, event: j.OfEffect, seq: int, seen: int, at: int) -> Task:
    before = task.effects.get(event.key)
    after = e.apply(before, event, seq, at)
    if after is None:
        return replace(task, version=seq, behind=0, seen=seen, ahead=foreseen.kept(task.ahead, event))
    names = task.names
    if before is None:
        names = names.set(after.name, names.get(after.name, 0) + (after.generation == 0))
        task = replays.came(task, event.key, after.name, after.generation)
        if event.key in task.ahead:
            task = replace(task, ahead=task.ahead.delete(event.key))
    key = {event.key}
    lost = [s.lost for s in after.sent if s.open]
    waits = isinstance(event, j.Reversed) and task.delivery in (Delivery.BLOCKED, Delivery.QUEUED)
    unknown = task.unknown | key if True in lost else task.unknown - key
    quiet = isinstance(event, _QUIET) and task.delivery is Delivery.LEASED and len(unknown) == len(task.unknown)
    return replace(
        task, version=seq, behind=task.behind + 1 if quiet else 0, seen=seen,
        execution=Execution.UNKNOWN if waits else task.execution, names=names, effects=task.effects.set(event.key, after),
        submitted=task.submitted | key if False in lost else task.submitted - key, unknown=unknown,
    )  # fmt: skip


def _apply_enqueued(t: Task, c: j.Enqueued) -> Task:
    return replace(
        t, id=c.task, kind=c.name, key=c.key, args=c.args, queue=c.queue, priority=c.priority, due=c.due, epoch=c.epoch,
        doubt=c.doubt,
    )  # fmt: skip


def _apply_claimed(t: Task, c: j.Claimed) -> Task:
    return replace(
        t, delivery=Delivery.LEASED, execution=Execution.RUNNING, attempt=c.attempt, token=c.token, session=c.session,
        max_attempts=c.max_attempts, max_crashes=c.max_crashes, backoff_ms=c.backoff_ms, suspended="", waiting="", differed=None,
        budget=limits.Budget(c.max_usd, c.max_tokens, c.max_ms),
    )  # fmt: skip


def _left(t: Task, delivery: Delivery, execution: Execution, **more: object) -> Task:
    """The task after its attempt ended."""
    more = {"waiting": "", **more}
    return replace(t, delivery=delivery, execution=execution, session="", suspended="", **more)  # type: ignore[arg-type]


def _rest(t: Task) -> Execution:
    return Execution.UNKNOWN if t.unknown else Execution.NOT_STARTED


def _apply_ending(t: Task, c: j.Ending) -> Task:
    delivery = t.delivery if t.delivery is Delivery.LEASED else Delivery.QUEUED
    return replace(t, ending=c.how, ending_why=c.why, why=c.why, due=c.due, delivery=delivery)


def _apply_lease_lost(t: Task, c: j.LeaseLost) -> Task:
    crashes = t.crashes + 1
    return _left(
        t, Delivery.QUEUED, _rest(t), crashes=crashes, alone=crashes >= t.max_crashes - 1, due=c.due, clean=False,
        why=f"lease lost ({c.proof})",
    )  # fmt: skip


def _apply_replayed(t: Task, c: j.Replayed) -> Task:
    return _left(
        t, Delivery.QUEUED, _rest(t), failures=0, crashes=0, alone=False, clean=False, ending="", due=c.due,
        why=f"replayed: {c.why}", **replays.apply_replayed(t, c),
    )  # fmt: skip


def _apply_joined(t: Task, c: j.Joined) -> Task:
    t = replays.came(t, c.key, c.name, c.generation)
    return replace(t, joined=t.joined | {c.key}, names=t.names.set(c.name, t.names.get(c.name, 0) + (c.generation == 0)))


_APPLY: dict[type, Callable[[Task, Any], Task]] = {
    j.Enqueued: _apply_enqueued,
    j.Claimed: _apply_claimed,
    j.Stepped: lambda t, c: replace(t, steps=t.steps.set(c.key, (t.version + 1, c.result))),
    j.Joined: _apply_joined,
    j.Suspended: lambda t, c: replace(t, suspended=c.why),
    j.Bound: lambda t, c: replace(t, bound=t.bound.update(c.identity), watched=t.watched | set(c.watched)),
    j.Mismatched: lambda t, c: replace(t, suspended=t.suspended or c.why, differed=c),
    j.Parked: lambda t, c: _left(t, Delivery.QUEUED, _rest(t), due=c.due, clean=False, why=c.why, waiting=c.key),
    j.Waits: lambda t, c: replace(t, waits=t.waits.set(c.key, Waiting(t.version + 1, c.event, c.until))),
    j.GaveUp: lambda t, c: replace(t, waits=t.waits.set(c.key, replace(t.waits[c.key], over=True))),
    j.Signalled: lambda t, c: replace(t, signals=t.signals.set(c.event, (t.version + 1, c.payload))),
    j.Finished: lambda t, c: _left(
        t, Delivery.ACKNOWLEDGED, Execution.SUCCEEDED, result=c.result, clean=True, why="", ending="", at_most=None, fresh=Map()
    ),
    j.Failed: lambda t, c: _left(
        t,
        Delivery.QUEUED,
        Execution.UNKNOWN if t.unknown else Execution.FAILED,
        failures=t.failures + 1,
        due=c.due,
        clean=False,
        why=c.error,
    ),
    j.LeaseLost: _apply_lease_lost,
    j.Blocked: lambda t, c: _left(
        t, Delivery.BLOCKED, _rest(t), clean=False, why=c.why, waiting=c.key if c.key in t.waits else ""
    ),
    j.Unblocked: lambda t, c: replace(t, delivery=Delivery.QUEUED, due=c.due, why=c.why, waiting=""),
    j.Ending: _apply_ending,
    j.Cancelled: lambda t, c: _left(t, Delivery.ACKNOWLEDGED, Execution.CANCELLED, ending="", clean=False, why=c.why),
    j.DeadLettered: lambda t, c: _left(t, Delivery.DEAD_LETTERED, Execution.FAILED, ending="", clean=False, why=c.why),
    j.Replayed: _apply_replayed,
    j.Purged: lambda t, c: _left(t, Delivery.ACKNOWLEDGED, Execution.FAILED, why=f"purged: {c.why}"),
}


def apply_key(key: Key, event: j.Happened, at: int) -> Key:
    """A tenant-scoped key after `event` of its own stream. Pure."""
    seq = key.version + 1
    if isinstance(event, j.Pruned):
        return retention.back(Key, event.shared)
    if not isinstance(event, j.OfEffect):
        return replace(key, version=seq)
    token = max(key.token, event.token) if isinstance(event, j.Intended | j.Assumed) else key.token
    effect = e.apply(key.effect, event, seq, at)
    return Key(effect, token, seq, foreseen.after(key.ahead, event) if effect is None else ())


def fold(rows: Iterable[j.Row], task: Task | None = None) -> Task:
    """The task that its rows tell of, from `task` on. Raises `ValueError` for a row that this version does not know."""
    task = task or Task()
    for row in rows:
        task = apply(task, row.event or j.event_of(row), row.at)
    return task


def fold_key(rows: Iterable[j.Row], key: Key | None = None) -> Key:
    """The tenant-scoped key that its rows tell of."""
    key = key or Key()
    for row in rows:
        key = apply_key(key, row.event or j.event_of(row), row.at)
    return key

"""Dead letters (R23): replayed within what was forecast, or given up for good. Pure; `tasks` asks, and applies.

A replay may be a promise: by effect name, so many keys that are not on record by then may be sent, and no more. Keys that
are on record happen at most once whatever is replayed, so with that promise nothing happens that was not forecast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from immutables import Map

from semel.machine import events as j
from semel.machine import identity
from semel.machine.records import replace
from semel.machine.task_commands import Purge, Replay
from semel.machine.words import times
from semel.model import Code, Delivery, Refusal

if TYPE_CHECKING:
    from semel.machine.task_state import Task

MORE = "more than was forecast at replay"  # by these words the refusal, and the dead letter that follows, are known


def step_of(key: str) -> str:
    """The name of the step whose key this is."""
    return key.rsplit(":", 2)[0]


def replayed(task: Task, c: Replay) -> tuple[j.Happened, ...] | Refusal:
    """What a replay does."""
    if c.seen and (task.version != c.seen or task.delivery is not Delivery.DEAD_LETTERED):
        return Refusal(Code.STALE_VIEW, f"the task has moved on since you looked (it is {task.delivery}): look again")
    anew = identity.rebound(task.bound, task.differed, c.identity, c.by)
    if isinstance(anew, Refusal):
        return anew
    if task.delivery is Delivery.BLOCKED and not c.from_step and c.at_most is None:
        return (*anew, j.Unblocked(f"replayed: {c.why}", c.at))  # the ladder is climbed again, from where it stands
    if not task.ended:
        return Refusal(Code.STALE_VIEW, f"the task is {task.delivery}: only what has ended, or is blocked, can be replayed")
    if c.from_step and not c.known and not any(step_of(key) == c.from_step for key in task.steps):
        return Refusal(Code.STALE_VIEW, f"the task has no recorded step {c.from_step!r}")
    return (*anew, j.Replayed(c.why, c.from_step, c.at, c.at_most, c.batch))


def purged(task: Task, c: Purge, unknown: list[str]) -> tuple[j.Happened, ...] | Refusal:
    """What giving up for good does: nothing that may still be settled is given up."""
    if c.seen and task.version != c.seen:
        return Refusal(Code.STALE_VIEW, f"the task has moved on since you looked (it is {task.delivery}): look again")
    if task.delivery is not Delivery.DEAD_LETTERED:
        return Refusal(Code.STALE_VIEW, f"the task is {task.delivery}: only a dead letter can be purged")
    if unknown:
        return Refusal(Code.UNKNOWN_OUTSTANDING, f"the outcome of {unknown[0]} is unknown: settle it first")
    return (j.Purged(c.why),)


def beyond(task: Task, key: str, name: str, generation: int) -> str:
    """Why this key may not be sent after the replay that the task is in; "" if it may.

    Only keys that were new since then are counted, in the order in which they came on record; a further generation is a
    person's own permission.
    """
    if task.at_most is None or generation:
        return ""
    most, fresh = task.at_most.get(name, 0), task.fresh.get(name, ())
    if key in fresh[:most] or (key not in fresh and (_on_record(task, key) or len(fresh) < most)):
        return ""
    return f"{MORE}: {name} may be new {times(most)}"


def _on_record(task: Task, key: str) -> bool:
    return key in task.effects or key in task.joined


def came(task: Task, key: str, name: str, generation: int) -> Task:
    """The task when a key has come on record that was not: it counts against what was forecast."""
    if task.at_most is None or generation:
        return task
    return replace(task, fresh=task.fresh.set(name, (*task.fresh.get(name, ()), key)))


def apply_replayed(task: Task, c: j.Replayed) -> dict[str, object]:
    """What a replay leaves of steps and waits, and the promise that it begins.

    Steps are forgotten from the named one on, in the order in which they were recorded; effects never are. One that is not on
    record comes after all that are.
    """
    named = [seq for key, (seq, _) in task.steps.items() if step_of(key) == c.from_step]
    first = min(named, default=task.version + 1 if c.from_step else 0)
    return {
        "steps": Map({key: value for key, value in task.steps.items() if value[0] < first}),
        "waits": Map({key: wait for key, wait in task.waits.items() if wait.seq < first}),
        "at_most": None if c.at_most is None else Map(c.at_most),
        "fresh": Map(),
        "batches": task.batches | {c.batch} if c.batch else task.batches,
    }

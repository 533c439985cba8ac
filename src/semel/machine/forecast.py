"""What a replay would do, read off the record: nothing is changed, nothing is sent. Pure; engine/dead.py brings the record.

What is on record of a task says what its code will get back, and what is settled first. What the code does beyond that, its
siblings say: the finished tasks of the same kind. Where they differ, the answer is a range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from semel.machine import effects as e
from semel.machine import generations
from semel.machine.replays import step_of
from semel.machine.task_state import Key, Task
from semel.model import EffectState

RECORDED, UNKNOWN, AGAIN = "recorded", "unknown", "again"


@dataclass(frozen=True, slots=True)
class Sibling:
    """What a finished task of the same kind had. steps: the names of its steps.

    surely, at_most: by effect name, how many keys it sent itself, and how many with those that others had a hand in.
    """

    surely: Mapping[str, int]
    at_most: Mapping[str, int]
    steps: frozenset[str]


@dataclass(frozen=True, slots=True)
class Forecast:
    """By effect name: how many keys a replay returns from record, settles first, may send again, and sends that are new.

    new_least, new_most: of new keys, by what finished tasks did. siblings: how many of those were looked at, of each kind the
    fewest. steps_kept, steps_anew: recorded steps that are returned, and that are run anew. tasks: so many are replayed.
    """

    recorded: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    again: Mapping[str, int] = field(default_factory=dict)
    new_least: Mapping[str, int] = field(default_factory=dict)
    new_most: Mapping[str, int] = field(default_factory=dict)
    steps_kept: int = 0
    steps_anew: int = 0
    siblings: int = 0
    tasks: int = 1

    @property
    def most(self) -> dict[str, int]:
        """By effect name: so many may happen in all; more would be another replay than the one that was forecast."""
        return dict(sorted((Counter(self.unknown) + Counter(self.again) + Counter(self.new_most)).items()))


def sibling_of(task: Task, shared: Mapping[str, Key]) -> Sibling:
    """What a finished task says of its kind. shared: the keys that it has joined, as they stand now."""
    own = Counter(x.name for x in task.effects.values() if x.sent and not x.generation)
    joined = [key.effect for name in sorted(task.joined) if (key := shared.get(name)) and key.effect and key.effect.sent]
    sent = Counter(x.name for x in joined if any(s.task == task.id for s in x.sent) and not x.generation)
    every = Counter(x.name for x in joined if not x.generation)
    return Sibling(own + sent, own + every, frozenset(map(step_of, task.steps)))


def standing_of(x: e.Effect, successors: int = 0) -> str:
    """What a replay does about one effect that is on record. "": nothing, since it has a next generation that is on record."""
    if generations.gone(x):
        return "" if successors else AGAIN
    if x.state in (EffectState.AMBIGUOUS, EffectState.SUBMITTED):
        return UNKNOWN
    settled = x.state is EffectState.CONFIRMED or x.declined is not None or x.told is not None or x.denied is not None
    return RECORDED if settled else AGAIN


def forecast(task: Task, shared: Mapping[str, Key], siblings: Sequence[Sibling], from_step: str = "") -> Forecast:
    """What a replay from that step (""; from the start) would do."""
    held = list(task.effects.values())
    held += [key.effect for name in sorted(task.joined) if (key := shared.get(name)) and key.effect]
    found: dict[str, Counter[str]] = {RECORDED: Counter(), UNKNOWN: Counter(), AGAIN: Counter()}
    successors = Counter(x.name for x in held if x.generation)
    for x in held:
        standing = standing_of(x, successors[x.name])
        if standing:
            found[standing][x.name] += 1
        else:
            successors[x.name] -= 1
    own = Counter(x.name for x in held if not x.generation)
    kept = kept_steps(task, from_step)
    names = sorted({name for one in siblings for name in one.at_most})
    least = {name: min(one.surely.get(name, 0) - own[name] for one in siblings) for name in names}
    most = {name: max(one.at_most.get(name, 0) - own[name] for one in siblings) for name in names}
    return Forecast(
        dict(found[RECORDED]), dict(found[UNKNOWN]), dict(found[AGAIN]),
        {name: n for name, n in least.items() if n > 0}, {name: n for name, n in most.items() if n > 0},
        kept, len(task.steps) - kept, len(siblings),
    )  # fmt: skip


def kept_steps(task: Task, from_step: str) -> int:
    """How many recorded steps stay: those before the named one; all, if it is not on record yet."""
    if not from_step:
        return 0
    named = [seq for key, (seq, _) in task.steps.items() if step_of(key) == from_step]
    return sum(seq < min(named) for seq, _ in task.steps.values()) if named else len(task.steps)


def summed(each: Iterable[Forecast]) -> Forecast:
    """Of many tasks."""
    recorded, unknown, again, least, most = (Counter[str]() for _ in range(5))
    kept = anew = count = 0
    siblings: list[int] = []
    for one in each:
        for into, what in zip(
            (recorded, unknown, again, least, most),
            (one.recorded, one.unknown, one.again, one.new_least, one.new_most),
            strict=True,
        ):
            into.update(what)
        kept, anew, count = kept + one.steps_kept, anew + one.steps_anew, count + one.tasks
        siblings.append(one.siblings)
    return Forecast(
        dict(recorded), dict(unknown), dict(again), dict(least), dict(most), kept, anew, min(siblings, default=0), count
    )

"""The points at which a task is hurt: found in a dry run, one list for each effect and step that it came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from semel.machine import journal
from semel.machine.recovery import Rung

DRY = "dry run"
EXPECTED = {False: "succeeded", True: "person; succeeded", None: "person?; succeeded"}
OF_TASK = ("killed_returned", "killed_finished", "delivered_again", "killed_within", "terminated")  # not of one effect
MIDDLE = 0.5  # of a call's length in the dry run


@dataclass(frozen=True)
class Boundary:
    """An effect or a step that the task came to: the n-th of its name. rung: an effect's first way out of the unknown.

    began, ended: of its call, unix seconds; 0: of a step.
    """

    what: Literal["effect", "step"]
    name: str
    n: int
    key: str
    args: Any = None
    result: Any = None
    rung: str = ""
    began: float = 0.0
    ended: float = 0.0
    confirmed: bool = False

    @property
    def gate(self) -> str:
        """The gate of its calls; see `inside`."""
        return f"{self.name}#{self.n}"

    @property
    def seconds(self) -> float:
        """How long its call took."""
        return self.ended - self.began

    def beside(self, other: Boundary) -> bool:
        """Whether both were under way at one time."""
        return self.began < other.ended and other.began < self.ended


@dataclass(frozen=True)
class Point:
    """One injection. how: which scenario. asks: a person must be asked, since nothing else can tell; None: may be.

    None is for three chances: an outcome and the intent of the next effect share a transaction (R6), so that a kill at the one
    may leave the other unknown; another effect may be under way beside it; and a lookup's not_found of what is unfenced needs a
    person's word (R4).
    """

    title: str
    how: str
    at: Boundary | None = None
    asks: bool | None = False

    @property
    def expected(self) -> str:
        """The durable result that must come of it."""
        return EXPECTED[self.asks]


def found(
    rows: Sequence[journal.Row], calls: dict[str, tuple[float, float]], rungs: dict[str, tuple[Rung, ...]]
) -> list[Boundary]:
    """What a dry run's journal tells, in the order in which the task came to it. calls: when each began and ended, by key."""
    results = {e.key: e.result for e in map(event_of, rows) if isinstance(e, journal.Confirmed)}
    counts: dict[str, int] = {}
    seen: set[str] = set()
    boundaries: list[Boundary] = []
    for event in map(event_of, rows):
        if not isinstance(event, journal.Intended | journal.Stepped) or event.key in seen:
            continue
        seen.add(event.key)
        n = counts[event.name] = counts.get(event.name, 0) + 1
        if isinstance(event, journal.Stepped):
            boundaries.append(Boundary("step", event.name, n, event.key, result=event.result))
            continue
        first = rungs[event.name][0].kind if event.name in rungs else "ask"
        span = calls.get(event.key, (0.0, 0.0))
        result, done = results.get(event.key), event.key in results
        boundaries.append(Boundary("effect", event.name, n, event.key, event.args, result, first, *span, done))
    return boundaries


def event_of(row: journal.Row) -> journal.Happened:
    """A row's event."""
    return journal.event_of(row)


def plan(boundaries: Sequence[Boundary], *, postgres: bool, unfenced: bool) -> list[Point]:
    """Every injection, in the order of the task."""
    points: list[Point] = []
    for n, at in enumerate(boundaries):
        near = Near(boundaries, n, unfenced)
        points += of_effect(at, near, postgres) if at.what == "effect" else of_step(at, near)
    return [*points, *of_task(boundaries, postgres, unfenced)]


def asks(at: Boundary, unfenced: bool) -> bool | None:
    """Whether a person is asked when it is unknown."""
    return True if at.rung == "ask" else None if unfenced and at.rung == "lookup" else False


def either(first: bool | None, *more: bool | None) -> bool | None:
    """What is sure of one is sure; what may be of another may be."""
    return None if first is False and any(one is not False for one in more) else first


class Near:
    """Who may be asked of an effect or step that is hurt, and of what is near it.

    before, after: of the effects next to it; a step between them may take no time, and what it records is not waited for.
    """

    def __init__(self, boundaries: Sequence[Boundary], n: int, unfenced: bool) -> None:
        who = [asks(one, unfenced) for one in boundaries]
        beside = [who[m] for m, one in enumerate(boundaries) if m != n and one.beside(boundaries[n])]
        self.own = either(who[n], *beside)
        self.others = either(False, *beside)
        effects = [m for m, one in enumerate(boundaries) if one.what == "effect"]
        self.before = next((who[m] for m in reversed(effects) if m < n), False)
        self.after = next((who[m] for m in effects if m > n), False)
        self.later = True if True in who[n:] else either(False, *who[n:])


def of_step(at: Boundary, near: Near) -> list[Point]:
    """A step is harmless to repeat: it is only asked whether the task goes on."""
    return [
        Point("killed before its result is recorded", "killed_recording", at, either(near.others, near.before)),
        Point("killed, its result not acknowledged", "killed_recorded", at, either(near.others, near.after)),
    ]


def of_effect(at: Boundary, near: Near, postgres: bool) -> list[Point]:
    """The boundaries of one effect."""
    points = [
        Point("killed before the call", "killed_before", at, near.own),
        Point("killed during the call", "killed_during", at, near.own),
        Point("killed after it, before the record", "killed_after", at, near.own),
        Point("killed, its record not acknowledged", "killed_recorded", at, either(near.others, near.after)),
        *([Point("its reply lost on arrival", "reply_lost", at, near.own and None)] if at.n == 1 else []),
        Point("frozen before it, woken after takeover", "frozen_before", at, near.own),
        Point("frozen during it, past the lease", "frozen_during", at, near.own),
    ]
    if postgres:
        points += [
            Point("cut at its intent's COMMIT, before it", "cut_intent_before", at),
            Point("cut at its intent's COMMIT, after it", "cut_intent_after", at),
            Point("cut at its record's COMMIT, before it", "cut_record_before", at),
            Point("cut at its record's COMMIT, after it", "cut_record_after", at),
        ]
    who = either(near.later, near.before, near.others)  # R20: what may have been forgotten is not sent unasked
    return [*points, Point("store restored to before it", "restored", at, who)]


def of_task(boundaries: Sequence[Boundary], postgres: bool, unfenced: bool) -> list[Point]:
    """What is done to the task as a whole."""
    effects = [n for n, at in enumerate(boundaries) if at.what == "effect"]
    points = [Point("killed between last effect and finish", "killed_returned")]
    points.append(Point("killed, its finish not acknowledged", "killed_finished"))
    if not effects:
        return points
    points.append(Point("delivered again: at once, during, after", "delivered_again", boundaries[effects[0]]))
    last, near = boundaries[effects[-1]], Near(boundaries, effects[-1], unfenced)
    if postgres:
        return [*points, Point("all connections ended by the server", "terminated", last)]
    return [*points, Point("all workers killed in mid-transaction", "killed_within", last, either(near.others, near.before))]

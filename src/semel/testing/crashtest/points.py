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
    """An effect or a step that the task came to: the n-th of its name. seconds: how long its call took. rung: its first."""

    what: Literal["effect", "step"]
    name: str
    n: int
    key: str
    args: Any = None
    result: Any = None
    rung: str = ""
    seconds: float = 0.0
    confirmed: bool = False

    @property
    def gate(self) -> str:
        """The gate of its calls; see `inside`."""
        return f"{self.name}#{self.n}"


@dataclass(frozen=True)
class Point:
    """One injection. how: which scenario. asks: a person must be asked, since nothing else can tell; None: may be.

    None is for two chances: an outcome that is recorded in one transaction with the intent of the next effect (R6) leaves that
    one unknown; and a lookup's not_found of what is unfenced needs a person's word (R4).
    """

    title: str
    how: str
    at: Boundary | None = None
    asks: bool | None = False

    @property
    def expected(self) -> str:
        """The durable result that must come of it."""
        return EXPECTED[self.asks]


def found(rows: Sequence[journal.Row], seconds: dict[str, float], rungs: dict[str, tuple[Rung, ...]]) -> list[Boundary]:
    """What a dry run's journal tells, in the order in which the task came to it. seconds: of each call, by key."""
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
        boundaries.append(
            Boundary(
                "effect", event.name, n, event.key, event.args, results.get(event.key), first, seconds.get(event.key, 0.0),
                event.key in results,
            )
        )  # fmt: skip
    return boundaries


def event_of(row: journal.Row) -> journal.Happened:
    """A row's event."""
    return journal.event_of(row.kind, row.body)


def plan(boundaries: Sequence[Boundary], *, postgres: bool, unfenced: bool) -> list[Point]:
    """Every injection, in the order of the task."""
    points: list[Point] = []
    for n, at in enumerate(boundaries):
        later = boundaries[n:]
        points += of_effect(at, later, postgres, unfenced) if at.what == "effect" else of_step(at)
    return [*points, *of_task(boundaries, postgres)]


def asks(at: Boundary, unfenced: bool) -> bool | None:
    """Whether a person is asked when it is unknown."""
    return True if at.rung == "ask" else None if unfenced and at.rung == "lookup" else False


def of_step(at: Boundary) -> list[Point]:
    """A step is harmless to repeat: it is only asked whether the task goes on."""
    return [
        Point("killed before its result is recorded", "killed_recording", at),
        Point("killed, its result not acknowledged", "killed_recorded", at),
    ]


def of_effect(at: Boundary, later: Sequence[Boundary], postgres: bool, unfenced: bool) -> list[Point]:
    """The boundaries of one effect; later: it, and what the task comes to after it."""
    who = asks(at, unfenced)
    follows = asks(later[1], unfenced) if len(later) > 1 else False
    points = [
        Point("killed before the call", "killed_before", at, who),
        Point("killed during the call", "killed_during", at, who),
        Point("killed after it, before the record", "killed_after", at, who),
        Point("killed, its record not acknowledged", "killed_recorded", at, False if follows is False else None),
        Point("frozen before it, woken after takeover", "frozen_before", at, who),
        Point("frozen during it, past the lease", "frozen_during", at, who),
    ]
    if postgres:
        points += [
            Point("cut at its intent's COMMIT, before it", "cut_intent_before", at),
            Point("cut at its intent's COMMIT, after it", "cut_intent_after", at),
            Point("cut at its record's COMMIT, before it", "cut_record_before", at),
            Point("cut at its record's COMMIT, after it", "cut_record_after", at),
        ]
    doubted = {asks(one, unfenced) for one in later if one.what == "effect"}  # R20: none of them may be sent unasked
    points.append(Point("store restored to before it", "restored", at, next((x for x in (True, None) if x in doubted), False)))
    return points


def of_task(boundaries: Sequence[Boundary], postgres: bool) -> list[Point]:
    """What is done to the task as a whole."""
    effects = [at for at in boundaries if at.what == "effect"]
    points = [Point("killed between last effect and finish", "killed_returned")]
    points.append(Point("killed, its finish not acknowledged", "killed_finished"))
    if effects:
        points.append(Point("delivered again: at once, during, after", "delivered_again", effects[0]))
        title = "all connections ended by the server" if postgres else "all workers killed in mid-transaction"
        points.append(Point(title, "terminated" if postgres else "killed_within", effects[-1]))
    return points

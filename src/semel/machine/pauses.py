"""What people have told workers to leave alone for a while. Pure. Its stream is `STREAM` of tenant "": it holds for all.

| command | from       | to                                                       |
|---------|------------|----------------------------------------------------------|
| pause   | not paused | paused: nothing of it is claimed; what runs goes on      |
| resume  | paused     | not paused: what waited is claimed again                 |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from immutables import Map

from semel.machine import journal as j
from semel.machine.effects import Decision
from semel.model import Code, Refusal

TENANT, STREAM = "", "pauses"
ALL, QUEUE, KIND = "all", "queue", "kind"


class Scope(NamedTuple):
    """What is paused: a queue, a kind of tasks, or (name "") all."""

    what: str
    name: str = ""

    def __str__(self) -> str:
        return "everything" if self.what == ALL else f"{self.what} {self.name}"


@dataclass(frozen=True, slots=True)
class Pause:
    """One pause. by: as the journal has it (person:ann). at: since when, milliseconds since the Unix epoch."""

    scope: Scope
    by: str
    why: str
    at: int


@dataclass(frozen=True, slots=True)
class Pauses:
    """All that is paused now."""

    held: Map[Scope, Pause] = field(default_factory=Map)
    version: int = 0

    def of(self, queue: str, *kinds: str) -> Pause | None:
        """Why a task of that queue is not to be begun, by any name that its kind has, or had; None: it may be."""
        for scope in (Scope(ALL), Scope(QUEUE, queue), *(Scope(KIND, kind) for kind in kinds)):
            if scope in self.held:
                return self.held[scope]
        return None

    def queues(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of `names` that are not paused."""
        return () if Scope(ALL) in self.held else tuple(name for name in names if Scope(QUEUE, name) not in self.held)

    def kinds(self, kinds: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
        """The names of those kinds of which none is paused. kinds: for each all names that it has, or had."""
        free = () if Scope(ALL) in self.held else kinds
        return tuple(name for names in free if not any(Scope(KIND, name) in self.held for name in names) for name in names)


@dataclass(frozen=True, slots=True)
class Halt:
    """Leave it alone, until somebody says otherwise."""

    scope: Scope
    why: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on with it."""

    scope: Scope
    why: str = ""


Command = Halt | Resume


def decide(state: Pauses, command: Command) -> Decision | Refusal:
    """What `command` does to what is paused: events to append, or a named no. Pure."""
    there = state.held.get(command.scope)
    if isinstance(command, Halt):
        if there is not None:
            return Refusal(Code.STALE_VIEW, f"{command.scope} is paused already, by {there.by.removeprefix('person:')}")
        return Decision((j.Paused(command.scope.what, command.scope.name, command.why),))
    if there is None:
        return Refusal(Code.STALE_VIEW, f"{command.scope} is not paused")
    return Decision((j.Resumed(command.scope.what, command.scope.name, command.why),))


def apply(state: Pauses, row: j.Row) -> Pauses:
    """What is paused after `row`. Pure."""
    event = row.event or j.event_of(row)
    held = state.held
    if isinstance(event, j.Paused):
        scope = Scope(event.what, event.name)
        held = held.set(scope, Pause(scope, row.actor, event.why, row.at))
    elif isinstance(event, j.Resumed) and Scope(event.what, event.name) in held:
        held = held.delete(Scope(event.what, event.name))
    return replace(state, held=held, version=state.version + 1)


def fold(rows: Iterable[j.Row], state: Pauses | None = None) -> Pauses:
    """What is paused, as the stream tells, from `state` on. Raises `ValueError` for a row that this version does not know."""
    state = state or Pauses()
    for row in rows:
        state = apply(state, row)
    return state

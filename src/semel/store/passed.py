"""How a claim gets past what it may not have: nobody behind tasks that cannot be claimed must starve.

A claim walks through what is due, in order, and asks the machine for each. After so many in vain it gives up; how far it
got is remembered, and the next one goes on from there. Now and then that is forgotten, and all is looked at again: what
stands there may be claimable by now, and what others put in between has waited for no longer than that. The walk through
what is known takes a tenth of the time at most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from semel.machine.projection import ReadyRow
from semel.store.contract import ClaimedTask, Claims, ClaimUnit
from semel.store.turns import TURN_OF, Turns, share_of

MOST_PASSED_OVER = 256  # tasks that one claim asks for in vain before it gives up
OLDEST_OF = 8  # one task in so many is what has waited longest, whatever its priority
FEW = 16  # so many at the head are no trouble: every claim asks for them anew
PAGE = 64  # looked at together, once some were in vain
AGAIN_SECONDS = 5.0  # after which what was passed over is asked for again
SHARE = 10  # the same, of a walk that took one second: after so many

Group = tuple[str, str, int]  # queue, kind, rank


def share_of_oldest(limit: int) -> int:
    """How many of so many tasks are to be those that have waited longest."""
    return share_of(limit, OLDEST_OF)


class Place(NamedTuple):
    """A place in a group, in the order of the index."""

    due: int
    tenant: str = ""
    task: str = ""


BEFORE_ALL = Place(-(2**63))
Starts = Mapping[Group, Place]


class Found(NamedTuple):
    """The next ones in order, and others out of their order, whose tenant's turn it is."""

    rows: Sequence[ReadyRow]
    turns: Sequence[ReadyRow] = ()


class Asked(NamedTuple):
    """What came of one task. refused: it cannot be claimed, as far as this process knows; else a rival was faster."""

    row: ReadyRow
    taken: ClaimedTask | None
    refused: bool


@dataclass(slots=True)
class Walk:
    """One claim's way. starts: behind which place it looks, in each group; safe: nothing before it is to be had."""

    tenant: str | None
    starts: dict[Group, Place]
    began: float
    taken: list[ClaimedTask] = field(default_factory=list)
    passed: int = 0
    safe: dict[Group, Place] = field(default_factory=dict)
    turned: list[Asked] = field(default_factory=list)  # what came of those whose turn it was, and of others in vain
    _stopped: set[Group] = field(default_factory=set)

    @property
    def gave_up(self) -> bool:
        """Whether so many were in vain that the rest is left to the next claim."""
        return self.passed > MOST_PASSED_OVER

    @property
    def claims(self) -> Claims:
        """The answer."""
        return Claims(tuple(self.taken), more=self.gave_up)

    def note_turn(self, asked: Asked) -> None:
        """Out of its order: what stands before it in its group is still to be looked at."""
        self.turned.append(asked)
        if asked.taken is not None:
            self.taken.append(asked.taken)

    def note(self, asked: Asked) -> None:
        """Go on behind this one. In each group they come in the order of the index."""
        group = asked.row[:3]
        place = self.starts[group] = Place(*asked.row[3:])
        if asked.taken is not None:
            self.taken.append(asked.taken)
            return
        self.passed += 1
        self.turned.append(asked)
        if not asked.refused:
            self._stopped.add(group)  # a rival's it may be, or be given back
        elif group not in self._stopped:
            self.safe[group] = place


class Passed:
    """What is remembered of tasks that cannot be claimed, for one handle."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._places: dict[tuple[str | None, Group], Place] = {}
        self._since = 0.0
        self._seconds = 0.0  # that the walks have taken since
        self.turns = Turns(clock)

    def walk(
        self,
        unit: ClaimUnit,
        find: Callable[[int, int, Starts], Found],
        take: Callable[[Sequence[ReadyRow], int], Iterable[Asked]],
    ) -> Walk:
        """Claim what is due. find(limit, turns, starts): the next ones; take(rows, most): ask for them until so many are had."""
        walk = Walk(unit.tenant, self._starts(unit.tenant), self._clock())
        turns = share_of(unit.limit, TURN_OF) if unit.tenant is None and self.turns.wanted else 0
        while len(walk.taken) < unit.limit and not walk.gave_up:
            wanted = unit.limit - len(walk.taken)
            size = max(wanted, min(walk.passed, PAGE))
            found = find(size, turns, walk.starts)
            turns = 0
            for at, asked in enumerate(take([*found.turns, *found.rows], wanted)):
                (walk.note_turn if at < len(found.turns) else walk.note)(asked)
            if len(found.rows) < size:
                break
        in_turn = {(asked.row.tenant, asked.row.task) for asked in walk.turned}
        served = {one.tenant for one in walk.taken if (one.tenant, one.task.id) not in in_turn}
        self.turns.after(served, full=len(walk.taken) >= unit.limit)
        return walk

    def _starts(self, tenant: str | None) -> dict[Group, Place]:
        with self._lock:
            if self._clock() - self._since > max(AGAIN_SECONDS, self._seconds * SHARE):
                self._places.clear()
            return {group: place for (whose, group), place in self._places.items() if whose == tenant}

    def learn(self, walk: Walk) -> None:
        """What a claim has passed over, once its transaction is committed."""
        for asked in walk.turned:
            if asked.taken is not None or asked.refused:
                self.turns.learn(asked.row, claimed=asked.taken is not None)
        if walk.passed <= FEW:
            return
        with self._lock:
            now = self._clock()
            if not self._places:
                self._since, self._seconds = now, 0.0
            self._seconds += now - walk.began
            self._places.update({(walk.tenant, group): place for group, place in walk.safe.items()})

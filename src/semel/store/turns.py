"""Whose turn it is: a share of each claim goes tenant by tenant, so that nobody waits behind all that another has queued.

A claim that more waits for than it takes gives some of its places to tenants that it would not serve otherwise, in turn: to
the first of each by priority, then by due; the first few, where few tenants wait. Their lines are found by jumps in an index
from where the last look ended, so many at a time, however many tenants or tasks there are. A look may cost something where
dead entries of the index are kept by a held snapshot: looks take a tenth of the time at most.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from semel.machine.projection import ReadyRow
from semel.store.contract import ClaimUnit

TURN_OF = 4  # one task in so many is for those whose turn it is
LOOK_AHEAD = 64  # lines that one look finds at most
SHARE = 10  # after a look that took one second: so many without
LOOKS = 3  # one may have had to wait for something else; three in a row that took so long did not
MOST_BEHIND = 1024  # places remembered
AGAIN_SECONDS = 5.0  # after which they are forgotten: what others put in before one has waited for no longer
LEAST, LAST = -(2**63), 2**63 - 1


class Line(NamedTuple):
    """The tasks of one tenant and one priority, in the order of due and task."""

    queue: str
    kind: str
    tenant: str
    rank: int


class Behind(NamedTuple):
    """A place in a line."""

    due: int = LEAST
    task: str = ""


Look = Callable[[Sequence[tuple[str, str]], Line, int], list[tuple[Line, int]]]
START, END = Line("", "", "", LEAST), Behind(LAST)


def share_of(limit: int, of: int) -> int:
    """One in `of`, of so many; where that is no whole number, by chance."""
    share, rest = divmod(limit, of)
    return share + (random.random() * of < rest)


def line_of(row: ReadyRow) -> Line:
    """In which line it stands."""
    return Line(row.queue, row.kind, row.tenant, row.rank)


def by_jumps(next_line: Callable[[Line], tuple[str, int, int] | None]) -> Look:
    """A look that asks for one line after the other, where that costs no round trip."""

    def look(pairs: Sequence[tuple[str, str]], after: Line, most: int) -> list[tuple[Line, int]]:
        found: list[tuple[Line, int]] = []
        for pair in pairs:
            place = after if pair == after[:2] else START._replace(queue=pair[0], kind=pair[1])
            while len(found) < most and (row := next_line(place)):
                place = Line(*pair, *row[:2])
                found.append((place, row[2]))
        return found

    return look


class Chosen(NamedTuple):
    """So many from each of these, from behind a place."""

    lines: Sequence[tuple[Line, Behind]]
    each: int


NOBODY = Chosen((), 0)


class Turns:
    """What is remembered of them, for one handle. Nothing rests on it but the order of claims."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._lines: list[Line] = []  # in their order, those whose turn comes next first
        self._stand = START  # how far the last look went
        self._whole: list[Line] = []  # all that there are, if one look found them
        self._look_at = 0.0
        self._took: deque[float] = deque(maxlen=LOOKS)  # seconds
        self._behind: dict[Line, Behind] = {}
        self._vain: set[Line] = set()  # those in which something cannot be claimed
        self._again_at = 0.0
        self.wanted = False  # the last claim took as many as it might
        self._served: frozenset[str] = frozenset()  # by the last such claim, out of turn

    def after(self, served: Iterable[str], *, full: bool) -> None:
        """What a claim has come to: whose tasks it took by their order, and whether it took as many as it might."""
        self.wanted = full
        self._served = frozenset(served) or self._served

    def choose(self, unit: ClaimUnit, most: int, look: Look) -> Chosen:
        """The lines that are next, of tenants that are not served anyhow.

        look(pairs, behind, most): the next lines of these (queue, kind), and when the first of each falls due.
        """
        with self._lock:
            if self._clock() >= self._again_at:
                self._behind.clear()
                self._vain.clear()
            if not self._lines:
                self._lines = self._next_lines(unit, look)
            lines: dict[str, Line] = {}  # of a tenant one at a time
            left: list[Line] = []
            for line in self._lines:
                if line.tenant in self._served or line.queue not in unit.queues or line.kind not in unit.kinds:
                    continue
                if len(lines) < most and line.tenant not in lines:
                    lines[line.tenant] = line
                else:
                    left.append(line)
            self._lines = left
            return Chosen([(line, self._behind.get(line, Behind())) for line in lines.values()], most // max(1, len(lines)))

    def _next_lines(self, unit: ClaimUnit, look: Look) -> list[Line]:
        began = self._clock()
        if began < self._look_at:
            return list(self._whole)
        pairs = sorted({(queue, kind) for queue in unit.queues for kind in unit.kinds})
        pairs, after = [pair for pair in pairs if pair >= self._stand[:2]], self._stand
        found = look(pairs, after if pairs[:1] == [after[:2]] else START, LOOK_AHEAD) if pairs else []
        due = [line for line, due in found if due <= unit.at and self._behind.get(line) != END]
        first = {line[:3]: line for line in reversed(due)}  # by priority
        lines = [line for line in due if first[line[:3]] == line]
        ended = len(found) < LOOK_AHEAD
        self._whole = lines if ended and after == START else []
        self._stand = START if ended else found[-1][0]
        now = self._clock()
        self._took.append(now - began)
        if len(self._took) == LOOKS and (found or after == START):  # else it was at the very end: the next begins anew
            self._look_at = now + min(self._took) * SHARE
        return lines

    def gave(self, chosen: Chosen, rows: Iterable[ReadyRow]) -> None:
        """What was found in them. One in which nothing but what cannot be claimed is left is passed over for a while."""
        given = {line_of(row) for row in rows}
        with self._lock:
            for line, _ in chosen.lines:
                if line not in given and line in self._vain:
                    self._put(line, END)

    def learn(self, row: ReadyRow, *, claimed: bool) -> None:
        """What came of one. The next turn of its tenant is for those behind it."""
        with self._lock:
            if not self._behind:
                self._again_at = self._clock() + AGAIN_SECONDS
            if not claimed:
                self._vain.add(line_of(row))
            self._put(line_of(row), Behind(row.due, row.task))

    def _put(self, line: Line, place: Behind) -> None:
        self._behind[line] = max(place, self._behind.get(line, place))
        if len(self._behind) > MOST_BEHIND:
            del self._behind[next(iter(self._behind))]

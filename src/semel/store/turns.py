"""Whose turn it is: a share of each claim goes tenant by tenant, so that nobody waits behind all that another has queued.

A claim that more waits for than it takes gives some of its places to tenants that it would not serve otherwise, in turn: to
the first of each by priority, then by due; the first few, where few tenants wait. Their lines are found by jumps in an index
from where the last look ended, so many at a time, however many tenants or tasks there are. A look may cost something where
dead entries of the index are kept by a held snapshot: slow looks take a tenth of the time at most.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from semel.machine.projection import ReadyRow
from semel.store.contract import ClaimUnit

TURN_OF = 4  # one task in so many is for those whose turn it is
LOOK_AHEAD = 64  # lines that one look finds at most
SLOW_SECONDS, SHARE = 0.02, 10  # after a slow look, of one second, say: so many without
LOOKS = 3  # one may have had to wait for something else; three in a row that took so long did not
MOST_BEHIND = 1024  # places remembered
AGAIN_SECONDS = 5.0  # after which they are forgotten: what others put in before one has waited for no longer
LEAST, LAST = -(2**63), 2**63 - 1


Ask = Callable[[str, Sequence[Any]], list[Any]]


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


START, END = Line("", "", "", LEAST), Behind(LAST)


def share_of(limit: int, of: int) -> int:
    """One in `of`, of so many; where that is no whole number, by chance."""
    share, rest = divmod(limit, of)
    return share + (random.random() * of < rest)


def line_of(row: ReadyRow) -> Line:
    """In which line it stands."""
    return Line(row.queue, row.kind, row.tenant, row.rank)


class Look(NamedTuple):
    """What is to be looked for: the next LOOK_AHEAD lines of these (queue, kind), behind one of the first of them."""

    pairs: Sequence[tuple[str, str]]
    after: Line


class Chosen(NamedTuple):
    """So many from each of these, from behind a place. look: what is to be looked for in the same breath, for the next claim."""

    lines: Sequence[tuple[Line, Behind]] = ()
    each: int = 0
    look: Look | None = None


class Turns:
    """What is remembered of them, for one handle. Nothing rests on it but the order of claims."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._lines: list[Line] = []  # in their order, those whose turn comes next first
        self._among = 1  # so many tenants
        self._stand = START  # how far the last look went
        self._whole: list[Line] = []  # all that there are, if one look found them
        self._look_at = 0.0
        self._took: deque[float] = deque(maxlen=LOOKS)  # seconds
        self._behind: dict[Line, Behind] = {}
        self._vain: set[Line] = set()  # those in which something cannot be claimed
        self._again_at = 0.0
        self.wanted = True  # the last claim took as many as it might
        self._served: frozenset[str] = frozenset()  # by the last such claim, out of turn

    def after(self, served: Iterable[str], *, full: bool) -> None:
        """What a claim has come to: whose tasks it took by their order, and whether it took as many as it might."""
        self.wanted = full
        self._served = frozenset(served) or self._served

    def choose(self, unit: ClaimUnit, most: int) -> Chosen:
        """The lines that are next, of tenants that are not served anyhow."""
        with self._lock:
            now = self.clock()
            if now >= self._again_at:
                self._behind.clear()
                self._vain.clear()
            if not self._lines and now < self._look_at:
                self._load(self._whole)
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
            look = self._next_look(unit) if not left and now >= self._look_at else None
            places = [(line, self._behind.get(line, Behind())) for line in lines.values()]
            return Chosen(places, max(1, most // self._among), look)

    def _load(self, lines: Iterable[Line]) -> None:
        self._lines = list(lines)
        self._among = max(1, len({line.tenant for line in self._lines} - self._served))

    def _next_look(self, unit: ClaimUnit) -> Look | None:
        pairs = sorted({(queue, kind) for queue in unit.queues for kind in unit.kinds})
        ahead = [pair for pair in pairs if pair >= self._stand[:2]] or pairs
        return Look(ahead, self._stand if ahead[0] == self._stand[:2] else START) if ahead else None

    def saw(self, look: Look, at: int, found: Sequence[tuple[Line, int]], seconds: float) -> None:
        """What a look found: lines, and when the first of each falls due (as far as it is known: by `at`); how long it took."""
        with self._lock:
            due = [line for line, first in found if first <= at and self._behind.get(line) != END]
            best = {line[:3]: line for line in reversed(due)}  # by priority
            self._load([line for line in due if best[line[:3]] == line])
            ended = len(found) < LOOK_AHEAD
            self._whole = list(self._lines) if ended and self._stand == START else []
            self._took.append(seconds)
            slow = len(self._took) == LOOKS and min(self._took) >= SLOW_SECONDS
            if slow and (found or self._stand == START):  # else it was at the end, and the next begins anew
                self._look_at = self.clock() + min(self._took) * SHARE
            self._stand = START if ended else found[-1][0]

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
                self._again_at = self.clock() + AGAIN_SECONDS
            if not claimed:
                self._vain.add(line_of(row))
            self._put(line_of(row), Behind(row.due, row.task))

    def _put(self, line: Line, place: Behind) -> None:
        self._behind[line] = max(place, self._behind.get(line, place))
        if len(self._behind) > MOST_BEHIND:
            del self._behind[next(iter(self._behind))]


def one_by_one(turns: Turns, unit: ClaimUnit, most: int, ask: Ask) -> list[ReadyRow]:
    """Those whose turn it is, where a question costs no round trip. ask: the rows of the statement of that name."""
    if not most:
        return []
    chosen = turns.choose(unit, most)
    asked = [(*line, unit.at, *behind, chosen.each) for line, behind in chosen.lines]
    rows = [ReadyRow(*row) for one in asked for row in ask("in_turn", one)]
    turns.gave(chosen, rows)
    if chosen.look:
        began = turns.clock()
        turns.saw(chosen.look, unit.at, _by_jumps(chosen.look, ask), turns.clock() - began)
    return rows


def _by_jumps(look: Look, ask: Ask) -> list[tuple[Line, int]]:
    found: list[tuple[Line, int]] = []
    for pair in look.pairs:
        line = look.after if pair == look.after[:2] else START._replace(queue=pair[0], kind=pair[1])
        while len(found) < LOOK_AHEAD and (rows := ask("next_line", line)):
            line = Line(*pair, *rows[0][:2])
            found.append((line, rows[0][2]))
    return found

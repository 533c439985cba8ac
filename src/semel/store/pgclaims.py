"""Where to look for what is due. Dead index entries, which a held snapshot keeps in place, are not walked again and again.

A full look asks the index for the ranks of each (queue, kind) and the least due of each: its floor. It costs as much as
there are ranks, and dead entries before the first living one. While that is little, every look is a full one; else full
looks take a tenth of the time at most, and in between one starts at the floors. What others put below a floor waits for the next.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from semel.machine.projection import ReadyRow
from semel.store.passed import Passed

CHEAP_SECONDS, CHEAP_GROUPS = 0.1, 64
NOISE_SECONDS, LOOKS = 0.003, 3  # one look may have had to wait for something else; three in a row that took so long did not
FEW = 16  # who finds so many at most finds them and looks in one question
SHARE = 10  # a full look of one second is followed by so many seconds without
SELDOM, POLL_SECONDS = 50, 1.0  # it is made no oftener than so, as long as nothing waits for it longer than a poll
COMMIT_SECONDS = 2.0  # what was put in so long ago has been committed, or never will be
LONGEST_SECONDS = 5.0  # without a full look

Pair = tuple[str, str]  # queue, kind


class Group(NamedTuple):
    """A place to look at, in the order of the index."""

    queue: str
    kind: str
    rank: int
    floor: int


class Floors:
    """What is remembered of `ready`, for all threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._floors: dict[Pair, dict[int, int]] = {}
        self._full_after: dict[Pair, float] = {}
        self._put: deque[tuple[float, ReadyRow]] = deque(maxlen=2048)
        self._took: deque[float] = deque(maxlen=LOOKS)  # seconds
        self._light = self._cheap = False
        self._light_after = 0.0
        self.full_looks = 0
        self.passed = Passed()

    def groups(self, pairs: Sequence[Pair], look: Callable[[Sequence[Pair]], Iterable[Group]]) -> list[Group]:
        """Where to look for these; `look` asks the index, and is used for those whose full look is due."""
        with self._lock:
            now = self._clock()
            due = [pair for pair in dict.fromkeys(pairs) if now >= self._full_after.get(pair, 0.0)]
        if due:
            began = self._clock()
            found = list(look(due))
            self._learn(due, found, began)
        with self._lock:
            return [
                Group(*pair, rank, floor)
                for pair in dict.fromkeys(pairs)
                for rank, floor in sorted(self._floors.get(pair, {}).items())
            ]

    def light(self, pairs: Sequence[Pair]) -> bool:
        """Whether a claim may look at all of these in the very question that finds: the last one found little, full looks take
        little, and a tenth of the time at most. Who works on a backlog does not, and so measures his looks by themselves."""
        with self._lock:
            known = all(pair in self._full_after for pair in pairs)
            return known and self._light and self._cheap and self._clock() >= self._light_after

    def found(self, little: bool, looked: float | None) -> None:
        """Whether a claim found little, and all there was. looked: how long that took, if it looked as well."""
        with self._lock:
            self._light = little
            if looked is not None:
                self._weigh(looked, 0)

    def _weigh(self, seconds: float, groups: int) -> None:
        self._cheap = seconds < CHEAP_SECONDS and groups <= CHEAP_GROUPS
        self._light_after = self._clock() + (seconds * SHARE if seconds >= NOISE_SECONDS else 0.0)

    def _learn(self, pairs: Sequence[Pair], found: list[Group], began: float) -> None:
        seconds = self._clock() - began
        with self._lock:
            self._took.append(seconds)
            quick = len(self._took) < LOOKS or min(self._took) < NOISE_SECONDS
            cheap = quick and seconds < CHEAP_SECONDS and len(found) <= CHEAP_GROUPS
            pause = 0.0 if cheap else min(LONGEST_SECONDS, max(seconds * SHARE, min(POLL_SECONDS, seconds * SELDOM)))
            self.full_looks += 1
            self._weigh(seconds, len(found))
            waiting = {group[:2] for group in found}
            for pair in pairs:
                # a rank that has run empty keeps its floor: what others put in there is seen without a full look; and so do
                # the last ranks of what has run empty, since the next look may be dear by chance
                self._floors[pair] = dict(self._floors.get(pair, {})) if pause or pair not in waiting else {}
                self._full_after[pair] = self._clock() + pause
            for group in found:
                self._floors[group.queue, group.kind][group.rank] = group.floor
            for at, row in reversed(self._put):
                if at < began - COMMIT_SECONDS:
                    break
                self._lower(row)  # it may have been put in after we looked

    def lower(self, rows: Iterable[ReadyRow]) -> None:
        """These were put in by this process: they are not to be missed."""
        least: dict[tuple[str, str, int], ReadyRow] = {}
        for row in rows:
            group = row[:3]
            if (known := least.get(group)) is None or row[3] < known[3]:
                least[group] = row
        with self._lock:
            for row in least.values():
                self._put.append((self._clock(), row))
                self._lower(row)

    def _lower(self, row: ReadyRow) -> None:
        ranks = self._floors.setdefault((row.queue, row.kind), {})
        ranks[row.rank] = min(row.due, ranks.get(row.rank, row.due))

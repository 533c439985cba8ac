"""Breadth first over all that can happen, with the shortest trace to whatever breaks the promise.

A state is kept as a digest of 16 bytes, where it came from and by which of the steps: what it was is found again by walking.
"""

from __future__ import annotations

import itertools
import marshal
import os
import re
import sys
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b

from explore_nouns import Label, State, Violated, World
from explore_world import Rules


@dataclass
class Found:
    """What a search has covered. trace: the shortest way to what is wrong, a line a step; "" wrong: nothing is."""

    world: World
    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0  # of one core
    ended: int = 0
    whole: bool = True
    wrong: str = ""
    trace: list[str] = field(default_factory=list)
    state: State | None = None
    kinds: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        """For `measured`."""
        whole = "whole" if self.whole else "NOT WHOLE"
        return (
            f"{self.world.name}: {self.states:,} states ({whole}), {self.transitions:,} transitions, depth {self.depth}, "
            f"{self.seconds:.1f} s"
        )

    def told(self) -> str:
        """What is wrong, and how it comes about."""
        steps = "\n".join(f"  {number:>2}. {line}" for number, line in enumerate(self.trace, 1))
        return f"{self.world.name}: {self.wrong}, after {len(self.trace)} steps\n{steps}\n  {self.state}"


def mark(s: State) -> bytes:
    """The digest of a state in normal form."""
    plain = (
        s.tids, s.kid, tuple((*p[:12], tuple(map(tuple, p[12]))) for p in s.workers), tuple(map(tuple, s.keys)), s.look, s.left,
        s.age, s.epoch, s.saved,
    )  # fmt: skip
    return blake2b(marshal.dumps(plain, 1), digest_size=16).digest()


class Search:
    """A search under way: every state that was met, by digest, with where it came from and by which of the steps."""

    def __init__(self, world: World, most: int) -> None:
        self.rules, self.found, self.most = Rules(world), Found(world), most
        self.first = self.rules.start()
        self.seen: dict[bytes, int] = {mark(self.first): 0}
        self.parents, self.which = array("i", [-1]), array("h", [0])
        self.ends = bytearray([self.rules.over(self.first)])
        self.edges = array("i")  # the honest ones

    def run(self) -> None:
        """Until there is nothing new, something is wrong, or there are too many."""
        front = [(0, self.first)]
        while front:
            following: list[tuple[int, State]] = []
            for index, s in front:
                try:
                    self._from(index, s, following)
                except Violated as violated:
                    self.found.wrong = str(violated)
                    self._tell(self._retold(self._walk(index)))
                    return
                if len(self.seen) > self.most:
                    self.found.whole = False
                    return
            self.found.depth += bool(following)
            front = following
        stuck = _stranded(self.edges, self.ends)
        if stuck >= 0:
            self.found.wrong = "from here no honest step leads to an end of every task"
            self._tell(self._walk(stuck))

    def _from(self, index: int, s: State, following: list[tuple[int, State]]) -> None:
        """All that can follow on a state."""
        rules, seen, parents, kinds = self.rules, self.seen, self.parents, self.found.kinds
        for place, (label, fault, raw) in enumerate(rules.steps(s)):
            kinds[label[0]] += 1
            after = rules.normal(raw)
            digest = mark(after)
            new = seen.get(digest)
            if new is None:
                new = seen[digest] = len(parents)
                parents.append(index)
                self.which.append(place)
                self.ends.append(rules.over(after))
                rules.check(after)
                following.append((new, after))
            if not fault:
                self.edges.append(index)
                self.edges.append(new)

    def _tell(self, telling: Telling) -> None:
        self.found.trace, self.found.state = telling.lines, telling.state

    def _walk(self, index: int) -> Telling:
        """The way to a state."""
        way = []
        while index:
            way.append(self.which[index])
            index = self.parents[index]
        telling = Telling(self.rules, self.first)
        for wanted in reversed(way):
            label, _, after = next(itertools.islice(self.rules.steps(telling.state), wanted, None))
            telling.step(label, after)
        return telling

    def _retold(self, telling: Telling) -> Telling:
        """The step from where it stands that breaks the promise, too."""
        steps = self.rules.steps(telling.state)
        while True:
            try:
                label, _, after = next(steps)
            except Violated:
                telling.lines.append(self.found.wrong)
                return telling
            try:
                self.rules.check(self.rules.normal(after))
            except Violated:
                telling.step(label, after)
                return telling


def explore(world: World, *, most: int = 10_000_000) -> Found:
    """The whole of `world`, or up to what is wrong in it. most: states, beyond which it is not whole."""
    began = time.process_time()
    search = Search(world, most)
    search.run()
    found = search.found
    found.states, found.transitions, found.ended = len(search.seen), sum(found.kinds.values()), sum(search.ends)
    found.seconds = time.process_time() - began
    return found


class Telling:
    """A trace in words. In normal form workers change places; here each keeps its name."""

    def __init__(self, rules: Rules, first: State) -> None:
        self.rules, self.state, self.lines = rules, first, list[str]()
        self.names = list(range(len(first.workers)))

    def step(self, label: Label, after: State) -> None:
        """One step further."""
        self.say(label)
        self.state = self.rules.normal(after)
        more = max([*self.names, *range(len(after.workers))]) + 1
        known = dict(enumerate(self.names))
        self.names = [known[old] if old in known else more + n for n, old in enumerate(self.rules.kept)]

    def say(self, label: Label) -> None:
        """A line more."""
        text = label[0].format(*label[1])
        self.lines.append(re.sub(r"\bw(\d+)", lambda found: f"w{self.names[int(found[1])]}", text))


def _stranded(edges: array[int], ends: bytearray) -> int:
    """The first state from which no end is reached by honest steps alone; -1: there is none."""
    good = bytearray(ends)
    sources, targets = edges[::2], edges[1::2]
    moved = True
    while moved:
        moved = False
        for source, target in zip(reversed(sources), reversed(targets), strict=True):
            if good[target] and not good[source]:
                good[source] = moved = 1  # type: ignore[assignment]
    return good.find(0)


if __name__ == "__main__":
    from explore_worlds import DEEP, KNOWN, WORLDS

    most = int(os.environ.get("MOST", "10000000"))
    for name in sys.argv[1:] or [world.name for world in WORLDS]:
        result = explore(next(world for world in (*WORLDS, *KNOWN, *DEEP) if world.name == name), most=most)
        print(result.told() if result.wrong else result.line(), flush=True)

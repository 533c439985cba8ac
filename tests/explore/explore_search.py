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

from explore_world import Label, Rules, State, Violated, World


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


def explore(world: World, *, most: int = 10_000_000, live: bool = True) -> Found:
    """The whole of `world`, or up to what is wrong in it. most: states, beyond which it is not whole."""
    rules, began = Rules(world), time.process_time()
    found = Found(world)
    first = rules.start()
    seen: dict[bytes, int] = {mark(first): 0}
    parents, which = array("i", [-1]), array("h", [0])
    edges = array("i") if live else None
    ends = bytearray([rules.over(first)])
    front, index = [(0, first)], 0
    kinds = found.kinds
    while front and not found.wrong:
        following: list[tuple[int, State]] = []
        for index, s in front:
            try:
                for place, (label, fault, raw) in enumerate(rules.steps(s)):
                    kinds[label[0]] += 1
                    after = rules.normal(raw)
                    digest = mark(after)
                    new = seen.get(digest)
                    if new is None:
                        new = seen[digest] = len(parents)
                        parents.append(index)
                        which.append(place)
                        ends.append(rules.over(after))
                        rules.check(after)
                        following.append((new, after))
                    if edges is not None and not fault:
                        edges.append(index)
                        edges.append(new)
            except Violated as violated:
                found.wrong = str(violated)
                telling = _retold(rules, _walk(rules, first, parents, which, index), found.wrong)
                found.trace, found.state = telling.lines, telling.state
                break
            if len(seen) > most:
                found.whole = False
                break
        if found.wrong or not found.whole:
            break
        if following:
            found.depth += 1
        front = following
    found.states, found.transitions, found.ended = len(seen), sum(kinds.values()), sum(ends)
    if edges is not None and found.whole and not found.wrong:
        stuck = _stranded(len(parents), edges, ends)
        if stuck >= 0:
            found.wrong = "from here no honest step leads to an end of every task"
            telling = _walk(rules, first, parents, which, stuck)
            found.trace, found.state = telling.lines, telling.state
    found.seconds = time.process_time() - began
    return found


def _way(parents: array[int], which: array[int], index: int) -> list[int]:
    way = []
    while index:
        way.append(which[index])
        index = parents[index]
    return way[::-1]


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


def _walk(rules: Rules, first: State, parents: array[int], which: array[int], index: int) -> Telling:
    telling = Telling(rules, first)
    for wanted in _way(parents, which, index):
        label, _, after = next(itertools.islice(rules.steps(telling.state), wanted, None))
        telling.step(label, after)
    return telling


def _retold(rules: Rules, telling: Telling, wrong: str) -> Telling:
    """The step from where it stands that breaks the promise, too."""
    steps = rules.steps(telling.state)
    while True:
        try:
            label, _, after = next(steps)
        except StopIteration:
            return telling
        except Violated:
            telling.lines.append(wrong)
            return telling
        try:
            rules.check(rules.normal(after))
        except Violated:
            telling.step(label, after)
            return telling


def _stranded(many: int, edges: array[int], ends: bytearray) -> int:
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

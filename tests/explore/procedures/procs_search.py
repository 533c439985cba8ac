"""The search: every order of choices of a world, each world looked into once.

A world cannot be copied (its procedures are generators), so it is reached by making its choices again. The search goes as
deep as it can before it begins anew: what is made again is the way to the last world that has something left to try. A
violation is then made short by leaving out what it does not need.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from procs_choices import Move, make, moves
from procs_form import form
from procs_store import Torn
from procs_world import Scenario, Violation, World

sys.setrecursionlimit(10_000)


@dataclass
class Node:
    """A world that was looked into. left: the names of what was not tried there yet."""

    form: str
    left: list[str]
    honest: set[str] = field(default_factory=set)  # the forms to which honest steps lead
    good: bool = False  # at rest, as promised
    way: tuple[str, ...] = ()  # the choices that led to it first


@dataclass
class Found:
    """What came of a search. broken: the promise that was; trace: the shortest way to it that was found."""

    scenario: Scenario
    states: int = 0
    steps: int = 0
    runs: int = 0
    depth: int = 0
    ends: int = 0
    seconds: float = 0.0
    whole: bool = True
    broken: str = ""
    trace: tuple[str, ...] = ()
    names: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        """For people."""
        more = "" if self.whole else ", not all"
        return f"{self.scenario.name}: {self.states:,} states{more}, depth {self.depth}, {self.steps:,} steps, {self.seconds:.1f} s"

    def story(self) -> str:
        """The trace, a line a step."""
        return f"{self.broken}\n" + "\n".join(f"{i:3} {name}" for i, name in enumerate(self.trace, 1))


def search(scenario: Scenario, *, seconds: float = 1e9, states: int = 10**9) -> Found:
    """Look into every world of a scenario, or as many as there is time for."""
    found, began = Found(scenario), time.monotonic()
    nodes: dict[str, Node] = {}
    path: list[tuple[Node, str]] = []  # from the beginning to the last world with something left to try
    while True:
        found.runs += 1
        world = World(scenario)
        try:
            _go(world, nodes, path, found)
        except (Violation, Torn) as error:
            found.broken, found.trace = str(error), tuple(world.trace)
        finally:
            world.close()
        found.seconds = time.monotonic() - began
        if found.broken:
            found.trace = shortened(scenario, found)
            break
        while path and not path[-1][0].left:
            path.pop()
        if not path:
            break
        if found.seconds > seconds or len(nodes) >= states:
            found.whole = False
            break
    found.states = len(nodes)
    if not found.broken:
        _stranded(nodes, found)
    found.seconds = time.monotonic() - began
    return found


def _go(world: World, nodes: dict[str, Node], path: list[tuple[Node, str]], found: Found) -> None:
    """Along the path; then on from its end, into what was not looked into yet, until nothing is new."""
    for at, (node, name) in enumerate(path):
        if at == len(path) - 1:
            name = node.left.pop()
            path[at] = (node, name)
        move = named(world, name)
        _make(world, move, found, new=at == len(path) - 1)
        last = node, move
    if not path:
        here = _look(world, nodes, found, 0)
        assert here is not None
    else:
        here = _arrive(world, nodes, found, len(path), *last)
    while here is not None and here.left:
        name = here.left.pop()
        path.append((here, name))
        move = named(world, name)
        _make(world, move, found, new=True)
        here = _arrive(world, nodes, found, len(path), here, move)


def _make(world: World, move: Move, found: Found, *, new: bool) -> None:
    found.steps += 1
    if new:
        found.names[move.name] += 1
    make(world, move)
    if new:
        world.check()


def _arrive(world: World, nodes: dict[str, Node], found: Found, depth: int, before: Node, move: Move) -> Node | None:
    name = form(world)
    if move.honest:
        before.honest.add(name)
    if name in nodes:
        return None
    return _look(world, nodes, found, depth, name)


def _look(world: World, nodes: dict[str, Node], found: Found, depth: int, name: str = "") -> Node:
    name = name or form(world)
    possible = list(moves(world))
    assert len({move.name for move in possible}) == len(possible), f"two choices of one name: {possible} after {world.trace}"
    node = nodes[name] = Node(name, [move.name for move in reversed(possible)], way=tuple(world.trace))
    found.depth = max(found.depth, depth)
    if not any(move.honest for move in possible):
        world.check_end()
        node.good = True
        found.ends += 1
    return node


def named(world: World, name: str) -> Move:
    """The choice of that name."""
    for move in moves(world):
        if move.name == name:
            return move
    raise AssertionError(f"{name!r} is no choice after {world.trace}: {[move.name for move in moves(world)]}")


def _stranded(nodes: dict[str, Node], found: Found) -> None:
    """From every world, honest steps must lead to rest. Where the search was cut short, what it did not try may."""
    before: dict[str, list[str]] = {}
    for node in nodes.values():
        for after in node.honest:
            before.setdefault(after, []).append(node.form)
    open_ends = [name for name, node in nodes.items() if node.good or (not found.whole and node.left)]
    fine, front = set(open_ends), open_ends
    while front:
        front = [name for after in front for name in before.get(after, []) if name not in fine and not fine.add(name)]  # type: ignore[func-returns-value]
    if lost := [node for name, node in nodes.items() if name not in fine]:
        found.trace = min((node.way for node in lost), key=len)
        found.broken = f"nothing honest leads to an end any more ({len(lost)} such worlds)"


def replayed(scenario: Scenario, names: list[str]) -> tuple[str, list[str]]:
    """Make these choices, those that are possible; the violation they come to, and what was made."""
    world = World(scenario)
    try:
        for name in names:
            there = next((move for move in moves(world) if move.name == name), None)
            if there is not None:
                make(world, there)
                world.check()
        if not any(move.honest for move in moves(world)):
            world.check_end()
    except (Violation, Torn) as error:
        return str(error), list(world.trace)
    finally:
        world.close()
    return "", list(world.trace)


def shortened(scenario: Scenario, found: Found) -> tuple[str, ...]:
    """The same violation, with every step left out that it does not need."""
    trace = list(found.trace)
    width = max(1, len(trace) // 2)
    while width:
        at = 0
        while at < len(trace):
            broken, made = replayed(scenario, [*trace[:at], *trace[at + width :]])
            if broken and len(made) < len(trace):
                found.broken, trace = broken, made
            else:
                at += width
        width //= 2
    return tuple(trace)

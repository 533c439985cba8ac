"""The search: every order of choices of a world, each world looked into once.

A world cannot be copied (its procedures are generators), so it is reached by making its choices again. The search goes as
deep as it can before it begins anew: what is made again is the way to a world that has something left to try. A violation is
then made short by leaving out what it does not need.
"""

from __future__ import annotations

import random
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
        return (
            f"{self.scenario.name}: {self.states:,} states{more}, depth {self.depth}, {self.steps:,} steps, {self.seconds:.1f} s"
        )

    def story(self) -> str:
        """The trace, a line a step."""
        return f"{self.broken}\n" + "\n".join(f"{i:3} {name}" for i, name in enumerate(self.trace, 1))


def search(scenario: Scenario, *, seconds: float = 1e9, states: int = 10**9, spread: bool = False) -> Found:
    """Look into every world of a scenario, or as many as there is time for. spread: not in the order of the choices, but here
    and there, so that what there is time for is not one corner."""
    found, began = Found(scenario), time.monotonic()
    nodes: dict[str, Node] = {}
    to_do: list[Node] = []  # worlds that have something left to try
    chance = random.Random(7)
    while to_do or not nodes:
        if spread and to_do:
            at = chance.randrange(len(to_do))
            to_do[at], to_do[-1] = to_do[-1], to_do[at]
        found.runs += 1
        world = World(scenario)
        try:
            _go(world, nodes, to_do, found)
        except (Violation, Torn) as error:
            found.broken, found.trace = str(error), tuple(world.trace)
            found.trace = shortened(scenario, found)
            break
        finally:
            world.close()
        while to_do and not to_do[-1].left:
            to_do.pop()
        if time.monotonic() - began > seconds or len(nodes) >= states:
            found.whole = not to_do
            break
    found.states = len(nodes)
    if not found.broken:
        _stranded(nodes, found)
    found.seconds = time.monotonic() - began
    return found


def _go(world: World, nodes: dict[str, Node], to_do: list[Node], found: Found) -> None:
    """To the last world with something left to try; then on, into what was not looked into yet, until nothing is new."""
    if not nodes:
        here: Node | None = _look(world, nodes, found)
        to_do.append(here)  # type: ignore[arg-type]
    else:
        here = to_do[-1]
        for name in here.way:
            found.steps += 1
            make(world, named(world, name))
    while here is not None and here.left:
        move = named(world, here.left.pop())
        _make(world, move, found)
        here = _arrive(world, nodes, found, here, move)
        if here is not None:
            to_do.append(here)


def _make(world: World, move: Move, found: Found) -> None:
    found.steps += 1
    found.names[move.name] += 1
    make(world, move)
    world.check()


def _arrive(world: World, nodes: dict[str, Node], found: Found, before: Node, move: Move) -> Node | None:
    name = form(world)
    if move.honest:
        before.honest.add(name)
    return None if name in nodes else _look(world, nodes, found, name)


def _look(world: World, nodes: dict[str, Node], found: Found, name: str = "") -> Node:
    name = name or form(world)
    possible = list(moves(world))
    assert len({move.name for move in possible}) == len(possible), f"two choices of one name: {possible} after {world.trace}"
    node = nodes[name] = Node(name, [move.name for move in reversed(possible)], way=tuple(world.trace))
    found.depth = max(found.depth, len(world.trace))
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

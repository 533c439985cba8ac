"""The invariant is inductive: it holds for any number of sessions, submissions, askers and steps, and for all times that fit."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import model_once as once
import z3
from z3 import And, If, Not

SORTS = {kind: z3.DeclareSort(kind) for kind in once.KINDS}
_fresh = itertools.count()


def state(suffix: str) -> once.State:
    """A state of everybody there may be."""
    known: dict[str, Any] = {}
    for name in once.SCALARS:
        known[name] = z3.Int(name + suffix)
    for name, kind in once.KIND_OF.items():
        known[name] = z3.Function(name + suffix, SORTS[kind], z3.BoolSort() if name in once.BOOLEANS else z3.IntSort())
    return once.State(lambda name, *who: known[name](*who) if who else known[name])


def domain(without: str = "") -> once.Domain:
    """Anybody. without: the rule that is taken out."""

    def every(kind: str, body: Any) -> Any:
        one = z3.Const(f"{kind}{next(_fresh)}", SORTS[kind])
        return z3.ForAll([one], body(one))

    return once.Domain(
        every, lambda a, b: a == b, z3.Function("session_of", SORTS["submission"], SORTS["session"]),
        z3.Function("timer", SORTS["session"], z3.BoolSort()), z3.Bool("keyed"),
        {rule: z3.BoolVal(rule != without) for rule in once.RULES}, once.Times(),
    )  # fmt: skip


def actions(d: once.Domain, s: once.State) -> Iterator[once.Action]:
    """Each, of anybody."""
    w, x, a = (z3.Const(f"the_{kind}", SORTS[kind]) for kind in ("session", "submission", "asker"))
    t = z3.Int("then")
    for made in (once.sessions(d, s, w, t), once.sendings(d, s, x), once.deliveries(d, s, x), once.records(d, s, x),
                 once.asking(d, s, a), once.passing(d, s, t)):  # fmt: skip
        yield from made


def leads(d: once.Domain, before: once.State, action: once.Action, after: once.State) -> list[Any]:
    """That `after` is `before` with what the action changes."""
    facts = [after.of(name) == action.change.get(name, before.of(name)) for name in once.SCALARS]
    for name, kind in once.KIND_OF.items():
        one = z3.Const(f"{kind}{next(_fresh)}", SORTS[kind])
        value = before.of(name, one)
        if name in action.many:
            value = action.many[name](one)
        elif name in action.one:
            who, new = action.one[name]
            value = If(one == who, new, value)
        facts.append(z3.ForAll([one], after.of(name, one) == value, patterns=[after.of(name, one)]))
    return facts


def unproved(without: str = "", *, enough: int = 1000, seconds: float = 20) -> tuple[list[str], int]:
    """Which (action, part of the invariant) pairs are not proved, and how many were asked. None: it is inductive.

    enough: stop after so many.
    """
    d, before, after = domain(without), state(""), state("'")
    known = list(once.invariant(d, before).values())
    wanted = once.invariant(d, after)
    missing, count = [], 0
    for action in actions(d, before):
        if len(missing) >= enough:
            break
        solver = z3.Solver()
        solver.set("timeout", int(seconds * 1000))
        solver.add(d.times.fit(d.rule), *known, action.guard, *leads(d, before, action, after))
        for name, part in wanted.items():
            count += 1
            solver.push()
            solver.add(Not(part))
            if (said := solver.check()) != z3.unsat:
                missing.append(f"{action.label}: {name} ({said})")
            solver.pop()
    return missing, count


def impossible() -> list[str]:
    """Actions that the invariant lets nobody take, or that nobody could show to be possible: what is proved of them is empty."""
    d, before = domain(), state("")
    known = list(once.invariant(d, before).values())
    never = []
    for action in actions(d, before):
        solver = z3.Solver()
        solver.set("timeout", 20_000)
        solver.add(d.times.fit(d.rule), *known, action.guard)
        if (said := solver.check()) != z3.sat:
            never.append(f"{action.label} ({said})")
    return never


def begins_well() -> bool:
    """Whether the invariant holds before anything."""
    d, s = domain(), state("")
    solver = z3.Solver()
    solver.add(d.times.fit(d.rule), once.begins(d, s), Not(And(list(once.invariant(d, s).values()))))
    return bool(solver.check() == z3.unsat)


def main() -> None:
    """Print what is proved, and what breaks without each rule."""
    began = time.monotonic()
    missing, count = unproved()
    print(f"begins well: {begins_well()}; {count} steps of the proof, not proved: {missing or 'none'}")
    print(f"{time.monotonic() - began:.2f} s")
    for rule, what in once.RULES.items():
        print(f"without {rule!r} ({what}):", *unproved(rule)[0], sep="\n  ")


if __name__ == "__main__":
    main()

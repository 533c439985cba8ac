"""Bounded search with the same relation: the shortest way to a broken promise when a rule is taken out.

Two workers and as many submissions and askers as a trace needs. `python tests/model/model_search.py` prints the traces.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import model_once as once
import z3
from z3 import And, If, Implies, Not

SESSION_OF = (0, 1, 1)  # which worker each submission is of
NAMES = {
    "session": ("worker 1", "worker 2"),
    "submission": ("submission 1", "submission 2", "submission 3"),
    "asker": ("the lookup", "a person"),
}

# What is taken in one step: nothing that another does between them would make a trace shorter. Each is a sequence of the
# relation's own actions ("other: " is one of the other worker), so whatever is found is a trace of the relation.
BEAT = ("a beat of {w} lands", "{w} has the answer to its beat")
READ = (*BEAT, "{w} claims the task (what was submitted is ambiguous)", "{w} reads that the effect is not_attempted")
INTEND, ARM = "{w} intends the effect: {x} is open", "{w} arms the timer, checks, and calls {x}"
AGAIN = (*BEAT, "{w} claims the task (what was submitted is ambiguous)", "{w} sends again with the same key: {x} is open", ARM)
ACT = ("the request of {x} goes out", "the provider acts on {x}")
END = ("the code of {x} ends", "it is recorded that the code of {x} has ended")
LOSE = "no answer in time: the submission is lost, ambiguous"
LOOK, BELIEVE = "{a} looks: there is nothing", "{a} is believed: not_attempted"
CALL = (*READ, INTEND, ARM)
STEPS: tuple[tuple[str, ...], ...] = (
    READ, (*READ, INTEND), CALL, (*CALL, *ACT), (INTEND, ARM), (INTEND, ARM, *ACT), (BEAT[1], *CALL[2:]), (ARM, *ACT),
    (*AGAIN, *ACT), AGAIN, (*AGAIN, "the code of {x} ends", "{x} is disproved"),
    ACT, ACT[:1], ACT[1:], (LOSE,), (*END, LOSE), (LOOK,), (BELIEVE,), (LOOK, BELIEVE),
    ("other: {w} is fenced: its beat was watched standing still", READ[2]), ("time passes to {t}",),
)  # fmt: skip

KINDS = {"x": "submission", "a": "asker", "w": "session"}
Snapshot = dict[tuple[Any, ...], Any]


@dataclass(frozen=True)
class Choice:
    """One thing that may happen in a step, by somebody in particular."""

    labels: tuple[str, ...]
    then: Any  # the time that it chooses, if any
    guard: Any
    after: Snapshot


class World:
    """The relation unrolled, step by step; which rules stand is assumed at each question."""

    def __init__(self, submissions: int = 2, askers: int = 1, *, every_action: bool = False) -> None:
        self.every_action = every_action
        self.who = {"session": range(2), "submission": range(submissions), "asker": range(askers)}
        self.rules = {rule: z3.Bool(f"rule {rule}") for rule in once.RULES}
        self.timers = [z3.Bool(f"timer of {name}") for name in NAMES["session"]]
        self.keyed = z3.Bool("keyed")
        self.domain = once.Domain(
            lambda kind, body: And([body(one) for one in self.who[kind]]), lambda a, b: z3.BoolVal(a == b),
            lambda x: SESSION_OF[x], lambda w: self.timers[w], self.keyed, self.rules, once.Times(),
        )  # fmt: skip
        self.solver = z3.SolverFor("QF_LIA")
        self.states: list[Snapshot] = [self._moment(0)]
        self.steps: list[list[Choice]] = []
        self.chosen: list[Any] = []
        self.solver.add(
            self.domain.times.concrete(self.rules),
            self.domain.times.fit(self.rules),
            once.begins(self.domain, self._read(self.states[0])),
        )

    def _moment(self, number: int) -> Snapshot:
        keys: list[tuple[Any, ...]] = [(name,) for name in once.SCALARS]
        keys += [(name, one) for name, kind in once.KIND_OF.items() for one in self.who[kind]]
        return {
            key: (z3.Bool if key[0] in once.BOOLEANS else z3.Int)(" ".join(str(part) for part in (*key, "at", number)))
            for key in keys
        }

    @staticmethod
    def _read(snapshot: Snapshot) -> once.State:
        return once.State(lambda *key: snapshot[key])

    def _actions(self, s: once.State, then: Any, letter: str, one: int) -> Iterator[once.Action]:
        """What one of them may do; by a submission, its session too."""
        d, of = self.domain, once
        if letter == "x":
            made = (
                of.sendings(d, s, one),
                of.deliveries(d, s, one),
                of.records(d, s, one),
                of.sessions(d, s, SESSION_OF[one], then),
            )
        elif letter == "a":
            made = (of.asking(d, s, one),)
        else:
            made = (of.sessions(d, s, one, then),)
        return itertools.chain(*made, once.passing(d, s, then))

    def _choices(self, before: Snapshot, then: Any) -> Iterator[Choice]:
        s = self._read(before)
        chains = [*STEPS]
        if self.every_action:
            some = itertools.chain(*(self._actions(s, then, letter, 0) for letter in "xa"))
            chains = [*dict.fromkeys([*chains, *((action.label,) for action in some)])]
        for labels in chains:
            text = " ".join(labels)
            letter = next((letter for letter in "xaw" if "{" + letter + "}" in text), "")
            for one in self.who[KINDS[letter]] if letter else (0,):
                yield self._chain(labels, letter, one, before, then)

    def _chain(self, labels: tuple[str, ...], letter: str, one: int, before: Snapshot, then: Any) -> Choice:
        guards, snapshot, told = [], before, []
        for label in labels:
            who, at = label.removeprefix("other: "), one
            if who != label:
                at = 1 - one
            action = next(action for action in self._actions(self._read(snapshot), then, letter, at) if action.label == who)
            guards.append(action.guard)
            snapshot = self._after(snapshot, action)
            names = self._named(letter, at)
            told.append(who.format(**names, t="{t}"))
        return Choice(tuple(told), then, And(guards), snapshot)

    @staticmethod
    def _named(letter: str, one: int) -> dict[str, str]:
        names = {letter: NAMES[KINDS[letter]][one]} if letter else {}
        return {**names, "w": NAMES["session"][SESSION_OF[one]]} if letter == "x" else names

    def _after(self, before: Snapshot, action: once.Action) -> Snapshot:
        after = dict(before)
        for name, value in action.change.items():
            after[name,] = value
        for name, (one, value) in action.one.items():
            after[name, one] = value
        for name, value_of in action.many.items():
            for one in self.who[once.KIND_OF[name]]:
                after[name, one] = value_of(one)
        return after

    def unroll(self) -> None:
        """One step more."""
        number, before = len(self.steps), self.states[-1]
        chosen, after = z3.Int(f"choice {number}"), self._moment(number + 1)
        choices = list(self._choices(before, z3.Int(f"then {number}")))
        self.solver.add(chosen >= 0, chosen < len(choices))
        self.solver.add([Implies(chosen == index, choice.guard) for index, choice in enumerate(choices)])
        for key, now in before.items():
            value = now
            for index, choice in enumerate(choices):
                if choice.after[key] is not now:
                    value = If(chosen == index, choice.after[key], value)
            self.solver.add(after[key] == value)
        self.steps.append(choices)
        self.states.append(after)
        self.chosen.append(chosen)

    def trace(self, model: Any, depth: int) -> list[str]:
        """What happens, in the words of the design."""
        told = []
        for number in range(depth):
            choice = self.steps[number][model.eval(self.chosen[number]).as_long()]
            told.append(f"{number + 1}. " + "; ".join(choice.labels).format(t=model.eval(choice.then)))
        return told

    def breaks(self, goal: str, without: str, *, keyed: bool, timer: bool, least: int, most: int) -> list[str] | None:
        """The shortest trace of so many steps that breaks `goal` when the rule `without` is out; None: there is none."""
        assumed = [rule if name != without else Not(rule) for name, rule in self.rules.items()]
        assumed += [
            self.keyed if keyed else Not(self.keyed),
            self.timers[1],
            self.timers[0] if timer else Not(self.timers[0]),
        ]
        for depth in range(1, most + 1):
            if len(self.steps) < depth:
                self.unroll()
            if depth < least:
                continue
            holds = once.promises(self.domain, self._read(self.states[depth]))[goal]
            self.solver.push()
            self.solver.add(Not(holds))
            said = self.solver.check(*assumed)
            if said == z3.sat:
                told = self.trace(self.solver.model(), depth)
                self.solver.pop()
                return told
            assert said == z3.unsat, said
            self.solver.pop()
        return None


DUPLICATE = "the world changes at most once"
GUESS = "what is not_attempted has not happened, and nobody can make it happen"


@dataclass(frozen=True)
class Case:
    """A rule that is taken out, the world in which that breaks a promise, and in how many steps, at least."""

    rule: str
    steps: int
    keyed: bool = False
    timer: bool = True
    askers: int = 1
    goal: str = DUPLICATE


# The first is the known impossibility: an opaque or looked-up provider, and a worker without the watchdog that is taken for
# one that has it. `margin`, `within` and `unpaused` are what a resend rests on.
CASES = (
    Case("unfenced", 7, timer=False), Case("watchdog", 7), Case("check", 7), Case("whole lease", 6), Case("sending", 7),
    Case("settle", 6), Case("ended or fenced", 6), Case("compare-and-set", 3), Case("one request", 2),
    Case("retention", 4, keyed=True), Case("margin", 6, keyed=True), Case("unpaused", 5, keyed=True, timer=False),
    Case("within", 5, keyed=True, timer=False),
    Case("own submission", 2, keyed=True, goal=GUESS), Case("stale view", 8, askers=2, goal=GUESS),
)  # fmt: skip


class Worlds:
    """Unrolled once, and asked many times."""

    def __init__(self, *, every_action: bool = False) -> None:
        self._every_action = every_action
        self._made: dict[int, World] = {}

    def breaks(self, case: Case, without: str | None = None, *, least: int = 1, most: int = 0) -> list[str] | None:
        """The shortest trace that breaks the case's promise, without its rule (or another; "": with all rules)."""
        if case.askers not in self._made:
            self._made[case.askers] = World(askers=case.askers, every_action=self._every_action)
        out = case.rule if without is None else without
        return self._made[case.askers].breaks(
            case.goal, out, keyed=case.keyed, timer=case.timer, least=least, most=most or case.steps
        )


def main() -> None:
    """Print each rule's trace."""
    worlds = Worlds()
    for case in CASES:
        began = time.monotonic()
        told = worlds.breaks(case)
        print(f"\nwithout {case.rule!r} ({once.RULES[case.rule]}): {case.goal!r} is broken; {time.monotonic() - began:.1f} s")
        print("\n".join(told or [f"nothing in {case.steps} steps"]), flush=True)


if __name__ == "__main__":
    main()

"""The world of test_world.py, in which every call must be approved: whatever the order, only what people let go is sent (R21).

What people said is kept beside the machine, as they said it; every submission is held against that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from test_world import Move, Sender, World, check

from semel.machine import effects as e
from semel.machine import keys
from semel.machine import tasks as t
from semel.model import Delivery, EffectState, Refusal

HOLDS = 1  # ticks of the clock


@dataclass
class Approving(World):
    """now: a clock that ticks when it is told to. let_go: by key, what may be sent, until when; by whom is not looked at."""

    now: int = 1
    let_go: dict[str, tuple[Any, int]] = field(default_factory=dict)
    seen: dict[str, tuple[int, Any]] = field(default_factory=dict)  # what a person looks at: version, arguments
    waits: bool = False

    def tell(self, command: t.Command) -> bool:
        decided = t.decide(self.task, command)
        if isinstance(decided, Refusal):
            return False
        for event in decided.events:
            self.task = t.apply(self.task, event, self.now)
            self.waits = self.waits and self.task.delivery is Delivery.BLOCKED
        return True

    def moves(self) -> dict[str, Move]:
        found = super().moves() | {"the clock ticks": lambda: setattr(self, "now", self.now + 1)}
        for key, known in self.task.effects.items():
            if known.asked is not None and known.state is EffectState.NOT_ATTEMPTED:
                found[f"somebody looks at {key}"] = lambda key=key, x=known: self.seen.update({key: (x.version, x.args)})  # type: ignore[misc]
                if self.task.delivery is Delivery.LEASED and self.task.session == self.session:
                    found[f"it waits for {key}"] = lambda key=key: self._wait(key)  # type: ignore[misc]
        for key in self.seen:
            found[f"it is approved {key}"] = lambda key=key: self._approve(key)  # type: ignore[misc]
            found[f"it is approved for a while {key}"] = lambda key=key: self._approve(key, holds=True)  # type: ignore[misc]
            found[f"it is edited {key}"] = lambda key=key: self._approve(key, words="edited")  # type: ignore[misc]
            found[f"it is denied {key}"] = lambda key=key: self._deny(key)  # type: ignore[misc]
        return found

    def _wait(self, key: str) -> None:
        if self.tell(t.Block(self.task.token, "waits for approval", key, approval=True)):
            self.waits = self.task.delivery is Delivery.BLOCKED

    def _approve(self, key: str, *, holds: bool = False, words: str = "") -> None:
        version, shown = self.seen.pop(key)
        args = {**shown, "text": words} if words else shown
        until = self.now + HOLDS if holds else 0
        edit = {"args": args, "digest": keys.digest(args)} if words else {}
        if self.tell(e.Approve(key, "ann", version, self.now, expires=until, **edit)):
            self.let_go[key] = (args, until)

    def _deny(self, key: str) -> None:
        if self.tell(e.Deny(key, "bob", self.seen.pop(key)[0])):
            self.let_go.pop(key, None)

    def _intend(self, key: str, *, fenceable: bool, again: bool = False) -> None:
        """The agent says something else on every attempt."""
        args = {"to": key, "text": f"attempt {self.task.attempt}"}
        before = len(self.task.effects[key].sent) if key in self.task.effects else 0
        call = e.Intend(
            key, "mail", args, keys.digest(args), "m", "t1", self.task.attempt, self.task.token, self.session, again=again,
            unfenced="" if fenceable else "process", approvers=1, intent=("to",), at=self.now,
        )  # fmt: skip
        sent_before = self.task.effects.get(key)
        if not self.tell(call) or len(self.task.effects[key].sent) == before:
            return
        if again:
            assert sent_before is not None and self.task.effects[key].args == sent_before.args
        else:
            args_let_go, until = self.let_go[key]
            assert self.task.effects[key].args == args_let_go, "other words than the approved ones are sent"
            assert not until or self.now < until, "the approval had expired"
        self.intents += 1
        self.senders.append(Sender(key, before + 1, self.task.token, self.session, fenceable))


def check_all(world: Approving, story: list[str]) -> None:
    check(world, story)
    if world.waits:
        waiting = [x.key for x in world.task.effects.values() if x.waiting]
        assert waiting, f"blocked, and everything is decided: {story}"


@settings(max_examples=300, deadline=None)
@given(st.booleans(), st.lists(st.integers(0, 9_999), min_size=12, max_size=60))
def test_only_what_people_let_go_is_sent_whatever_the_order(keyed: bool, choices: list[int]) -> None:
    world, story = Approving(keyed), []
    for choice in choices:
        moves = world.moves()
        story.append(sorted(moves)[choice % len(moves)])
        moves[story[-1]]()
        check_all(world, story)


def test_the_world_sends_what_was_approved() -> None:
    """Else the property would hold of nothing."""
    world, a = Approving(), "sml_a"
    for name in ("claim", f"intend {a}", f"it waits for {a}", f"somebody looks at {a}", f"it is edited {a}", "claim",
                 f"intend {a}", "acts 0", "is answered 0", "finish"):  # fmt: skip
        world.moves()[name]()
        check_all(world, [name])
    assert world.acts[a] == 1 and world.task.delivery is Delivery.ACKNOWLEDGED
    assert world.task.effects[a].args == {"to": a, "text": "edited"}

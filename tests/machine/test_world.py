"""The promise itself, against a world: senders that act when they like, sessions that die or freeze, an honest provider.

The machine only hears what such a world would tell it. Whatever the order: one key is acted on at most once, what is
confirmed was acted on, and what is provably clean was not, and nobody is left who could. Half of the worlds have a provider
that remembers keys: there effects are resubmitted too, and what is checked is that nobody calls clean what is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_cells import HOUR, NOW

from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import tasks as t
from semel.model import Delivery, EffectState, Refusal

KEYS = ("sml_a", "sml_b")
SETTLE = 30_000
Move = Callable[[], None]


@dataclass
class Sender:
    """The code of one submission, and the child it may have made: each acts at most once, and only while it lives."""

    key: str
    n: int
    token: int
    session: str
    fenceable: bool
    code: bool = True
    child: bool = False
    acted: bool = False


@dataclass
class World:
    """keyed: the provider acts once for each key, however often it is asked."""

    keyed: bool = False
    keys: tuple[str, ...] = KEYS
    task: t.Task = field(default_factory=lambda: t.apply(t.Task(), j.Enqueued("t1", "bill", "inv_1", {}, due=NOW), NOW))
    senders: list[Sender] = field(default_factory=list)
    acts: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    asked: dict[str, tuple[str, int, bool, int]] = field(default_factory=dict)  # verdict, submissions, quiet, settled: when asked
    looked_at: dict[str, tuple[bool, int]] = field(default_factory=dict)  # a person's look: had it happened; version
    intents: int = 0

    @property
    def session(self) -> str:
        """The process that works now; an earlier one is dead, or frozen and fenced."""
        return f"s{self.sessions}"

    def tell(self, command: t.Command) -> bool:
        """Whether the machine accepted it."""
        decided = t.decide(self.task, command)
        if isinstance(decided, Refusal):
            return False
        for event in decided.events:
            self.task = t.apply(self.task, event, NOW)
        return True

    def moves(self) -> dict[str, Move]:
        """What can happen now, by name."""
        found: dict[str, Move] = {}
        task = self.task
        if task.delivery is Delivery.QUEUED:
            found["claim"] = lambda: self._say(t.Claim(self.session, 1, NOW + HOUR, 50, 50))
        if task.delivery is Delivery.LEASED and task.session == self.session:
            found |= self._worker_moves(task)
        if task.ended or task.delivery is Delivery.BLOCKED:
            found["replay"] = lambda: self._say(t.Replay("alice", NOW) if task.ended else t.Unblock("alice", NOW))
        elif not task.ending:
            found["cancel"] = lambda: self._say(t.Cancel("alice", NOW))
        for index, sender in enumerate(self.senders):
            found |= {f"{name} {index}": move for name, move in self._sender_moves(sender).items()}
        for key in self.keys:
            found |= {f"{name} {key}": move for name, move in self._evidence_moves(key).items()}
        return found

    def _say(self, command: t.Command) -> None:
        self.tell(command)

    def _worker_moves(self, task: t.Task) -> dict[str, Move]:
        found: dict[str, Move] = {
            "is killed": lambda: self._gone(dead=True),
            "is fenced": lambda: self._gone(dead=False),
            "park": lambda: self._say(t.Park(task.token, "?", NOW)),
            "block": lambda: self._say(t.Block(task.token, "?")),
            "finish": lambda: self._say(t.Conclude(task.token) if task.ending else t.Finish(task.token)),
        }
        for key in self.keys:
            found[f"intend {key}"] = lambda key=key: self._intend(key, fenceable=True)  # type: ignore[misc]
            found[f"intend unfenced {key}"] = lambda key=key: self._intend(key, fenceable=False)  # type: ignore[misc]
            if self.keyed and key in task.unknown:
                found[f"resend {key}"] = lambda key=key: self._intend(key, fenceable=True, again=True)  # type: ignore[misc]
        return found

    def _intend(self, key: str, *, fenceable: bool, again: bool = False) -> None:
        before = len(self.task.effects[key].sent) if key in self.task.effects else 0
        call = e.Intend(key, "mail", {}, "d", "m", "t1", self.task.attempt, self.task.token, self.session,
                        unfenced="" if fenceable else "process", again=again)  # fmt: skip
        if self.tell(call) and len(self.task.effects[key].sent) > before:
            self.intents += 1
            self.senders.append(Sender(key, before + 1, self.task.token, self.session, fenceable))

    def _gone(self, *, dead: bool) -> None:
        """Its process is killed; or it is frozen and fenced, and the kernel kills what it may kill."""
        old = self.session
        for sender in self.senders:
            if sender.session == old:
                sender.code = sender.code and not (dead or sender.fenceable)
        self.sessions += 1
        self.tell(t.LoseLease(old, "dead" if dead else "watched", NOW))
        for key in self.keys:
            self.tell(e.NoteSenderGone(key, old, dead))

    def _sender_moves(self, s: Sender) -> dict[str, Move]:
        found: dict[str, Move] = {}
        if (s.code or s.child) and not s.acted:
            found["acts"] = lambda: self._act(s)
        if s.code:
            found["times out"] = lambda: self._say(e.Lose(s.key, s.n, s.token, "no answer", ended=False))
            found["makes a child"] = lambda: self._child(s)
            lost = e.Lose(s.key, s.n, s.token, "ReadTimeout", ended=True)
            found["raises"] = lambda: self._ends(s, lost)
        if s.code and not s.child:  # it cannot know what its child did
            refused = e.Disprove(s.key, s.n, s.token, "connection refused")
            answer = e.Confirm(s.key, s.n, s.token, s.n) if s.acted else refused
            found["is answered"] = lambda: self._ends(s, answer)
        return found

    def _act(self, s: Sender) -> None:
        s.acted = True
        self.acts[s.key] = 1 if self.keyed else self.acts[s.key] + 1

    def _child(self, s: Sender) -> None:
        if self.tell(e.MarkUnfenced(s.key, s.n, s.token, "child")):
            s.child = True

    def _ends(self, s: Sender, command: e.EffectCommand) -> None:
        s.code = False
        self.tell(command)

    def _evidence_moves(self, key: str) -> dict[str, Move]:
        found: dict[str, Move] = {}
        known = self.task.effects.get(key)
        if known is not None and known.state is EffectState.AMBIGUOUS:
            # settle was over when it was asked: nothing that a quiet sender has sent is still under way
            happened = "confirmed" if self.acts[key] else "not_found"
            found["is looked for"] = lambda: self.asked.update({key: (happened, len(known.sent), known.quiet, known.settled)})
            found["is looked at"] = lambda: self._look(key, known)
            for late in known.evidence:
                found[f"credit {late.n}"] = lambda n=late.n: self._say(e.Credit(key, n, self.task.token))  # type: ignore[misc]
            if known.answered:
                found["is believed"] = lambda: self._say(
                    e.Settle(key, self.task.token, "not_found", e.PERSON, settled=known.settled)
                )
            found["is watched"] = lambda: self.tell(e.NoteWatched(key, len(known.sent), SETTLE, SETTLE)) and None
        if key in self.asked:
            found["is heard of"] = lambda: self._hear(key)
        if key in self.looked_at:
            found["is answered for"] = lambda: self._answer(key)
        return found

    def _look(self, key: str, known: e.Effect) -> None:
        """A person stops what they can reach first, so that their word is true."""
        for s in self.senders:
            s.code, s.child = (s.code and s.key != key), (s.child and s.key != key)
        self.looked_at[key] = (bool(self.acts[key]), known.version)

    def _answer(self, key: str) -> None:
        happened, seen = self.looked_at.pop(key)
        self.tell(e.Answer(key, "confirmed" if happened else "not_found", "alice", seen, "x", stopped=True))

    def _hear(self, key: str) -> None:
        verdict, seen, quiet, settled = self.asked.pop(key)
        waited = SETTLE if quiet else -1
        asked = e.Settle(key, self.task.token, verdict, "lookup:find", "x", waited_ms=waited, settle_ms=SETTLE, seen=seen)
        self.tell(replace(asked, settled=settled))


def check(world: World, story: list[str]) -> None:
    """The promise, in this moment."""
    for key in world.keys:
        assert world.acts[key] <= 1, f"{key} happened {world.acts[key]} times: {story}"
        known = world.task.effects.get(key)
        if known is None:
            assert not world.acts[key]
        elif known.state is EffectState.CONFIRMED:
            assert world.acts[key] == 1, f"confirmed, and it never happened: {story}"
        elif known.state is EffectState.NOT_ATTEMPTED:
            assert not world.acts[key], f"clean, and it happened: {story}"
            able = [s for s in world.senders if s.key == key and (s.code or s.child) and not s.acted]
            assert not able, f"clean, and somebody can still act: {story}"
    if world.task.ended:
        assert not [x.key for x in world.task.effects.values() if x.open], story


# --- every order, of one key ------------------------------------------------------------------------------------------

APART = ("finish", "cancel", "replay", "block")  # they end what is open for nobody: the random histories have them


def copy_of(world: World) -> World:
    return replace(world, senders=[replace(s) for s in world.senders], acts=Counter(world.acts), asked=dict(world.asked),
                   looked_at=dict(world.looked_at))  # fmt: skip


def form(world: World) -> Hashable:
    """What matters of a world: two that share it have the same future. Times, versions and tokens count only as equal or not."""
    task, now = world.task, world.session
    effects = [
        (key, x.state, x.conflict, x.settled, x.answered and x.answered.stopped,
         [(found.n, found.outcome) for found in x.evidence],
         [(s.open, s.lost, s.ended, s.fenced, s.dead, s.unfenced, s.token == task.token, s.session == now) for s in x.sent])
        for key, x in sorted(task.effects.items())
    ]  # fmt: skip
    senders = [
        (s.key, s.n, s.token == task.token, s.session == now, s.fenceable, s.code, s.child, s.acted) for s in world.senders
    ]
    asked = [
        (key, verdict, len(task.effects[key].sent) - n, quiet, settled)
        for key, (verdict, n, quiet, settled) in sorted(world.asked.items())
    ]
    looked_at = [(key, happened, task.effects[key].version == v) for key, (happened, v) in sorted(world.looked_at.items())]
    whole = (task.delivery, task.session == now, effects, senders, sorted(world.acts.items()), asked, looked_at)
    return repr(whole)


@pytest.mark.parametrize(("keyed", "depth"), [(False, 9), (True, 8)])
def test_no_duplicate_and_no_guess_in_any_order_of_so_many_moves(keyed: bool, depth: int) -> None:
    """Breadth first: the first order that breaks the promise is also the shortest."""
    front: list[tuple[World, list[str]]] = [(World(keyed, KEYS[:1]), [])]
    seen = {form(front[0][0])}
    for _ in range(depth):
        following = []
        for world, story in front:
            for name in world.moves():
                if name in APART:
                    continue
                after = copy_of(world)
                after.moves()[name]()
                check(after, [*story, name])
                if len(after.senders) <= 3 and after.sessions <= 2 and form(after) not in seen:
                    seen.add(form(after))
                    following.append((after, [*story, name]))
        front = following
    assert len(seen) > 5_000, "the world has become too small to prove anything"


# --- random orders, of two keys ---------------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None)
@given(st.booleans(), st.lists(st.integers(0, 9_999), min_size=8, max_size=40))
def test_no_duplicate_and_no_guess_whatever_the_order(keyed: bool, choices: list[int]) -> None:
    world, story = World(keyed), []
    for choice in choices:
        moves = world.moves()
        story.append(sorted(moves)[choice % len(moves)])
        moves[story[-1]]()
        check(world, story)


def test_the_world_submits_again_what_was_proved_not_to_have_happened() -> None:
    """Else nothing could be duplicated in it, and the property would hold of nothing."""
    world, a = World(), KEYS[0]
    for name in ("claim", f"intend {a}", "is killed", "claim", f"is looked for {a}", f"is heard of {a}", f"intend {a}", "acts 1",
                 "is answered 1", "finish"):  # fmt: skip
        world.moves()[name]()
        check(world, [name])
    assert world.intents == 2 and world.acts[a] == 1
    assert world.task.effects[a].state is EffectState.CONFIRMED and world.task.delivery is Delivery.ACKNOWLEDGED

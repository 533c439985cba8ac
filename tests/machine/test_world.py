"""The promise itself, against a world: senders that act when they like, sessions that die or freeze, an honest provider.

The machine only hears what such a world would tell it. Whatever the order: one key is acted on at most once, what is
confirmed was acted on, and what is provably clean was not. Resubmissions are left out: there the provider keeps the promise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from task_cells import HOUR, NOW

from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import tasks as t
from semel.model import Delivery, EffectState, Refusal

KEYS = ("sml_a", "sml_b")
SETTLE = 30_000


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
    task: t.Task = field(default_factory=lambda: t.apply(t.Task(), j.Enqueued("t1", "bill", "inv_1", {}, due=NOW), NOW))
    senders: list[Sender] = field(default_factory=list)
    acts: Counter[str] = field(default_factory=Counter)
    session: str = "s0"  # of the process that works now; an earlier one is dead, or is a zombie
    asked: dict[str, tuple[str, int, bool]] = field(default_factory=dict)  # verdict, submissions, quiet: when it was asked
    looked_at: dict[str, tuple[bool, int]] = field(default_factory=dict)  # a person's look: happened, version
    sessions: int = 0
    intents: int = 0

    def tell(self, command: t.Command) -> bool:
        """Whether the machine accepted it."""
        decided = t.decide(self.task, command)
        if isinstance(decided, Refusal):
            return False
        for event in decided.events:
            self.task = t.apply(self.task, event, NOW)
        return True

    # --- the worker ---

    def claim(self, _: int) -> None:
        self.tell(t.Claim(self.session, 1, NOW + HOUR, 50, 50))

    def intend(self, n: int) -> None:
        key, task = KEYS[n % 2], self.task
        if task.session != self.session:
            return  # the guard: an intend lands only under a session that is not fenced
        unfenced = "process" if n % 5 == 0 else ""
        before = len(task.effects[key].sent) if key in task.effects else 0
        call = e.Intend(key, "mail", {}, "d", "m", "t1", task.attempt, task.token, self.session, unfenced=unfenced)
        if self.tell(call) and len(self.task.effects[key].sent) > before:
            self.intents += 1
            self.senders.append(Sender(key, before + 1, task.token, self.session, not unfenced))

    def end_attempt(self, n: int) -> None:
        token = self.task.token
        self.tell((t.Finish(token), t.Block(token, "?"), t.Fail(token, "?", NOW), t.Park(token, "?", NOW))[min(n // 3, 3)])

    def others(self, n: int) -> None:
        person = (t.Cancel("alice", NOW), t.Conclude(self.task.token), t.Replay("alice", NOW), t.Unblock("alice", NOW))
        self.tell(person[min(n, 3)] if n < 9 else person[2])  # mostly they let it go on

    # --- senders ---

    def sender(self, n: int) -> Sender | None:
        return self.senders[n % len(self.senders)] if self.senders else None

    def act(self, n: int) -> None:
        s = self.sender(n)
        if s and (s.code or s.child) and not s.acted:
            s.acted = True
            self.acts[s.key] += 1

    def returns(self, n: int) -> None:
        s = self.sender(n)
        if s and s.code and s.acted and not s.child:
            s.code = False
            self.tell(e.Confirm(s.key, s.n, s.token, f"{s.n}"))

    def is_refused(self, n: int) -> None:
        s = self.sender(n)
        if s and s.code and not s.acted and not s.child:
            s.code = False
            self.tell(e.Disprove(s.key, s.n, s.token, "connection refused", final=n % 3 == 0))

    def raises(self, n: int) -> None:
        s = self.sender(n)
        if s and s.code and not s.child:  # it has ended when what it started has
            s.code = False
            self.tell(e.Lose(s.key, s.n, s.token, "ReadTimeout", ended=True))

    def times_out(self, n: int) -> None:
        s = self.sender(n)
        if s and s.code:
            self.tell(e.Lose(s.key, s.n, s.token, "no answer", ended=False))

    def makes_a_child(self, n: int) -> None:
        s = self.sender(n)
        if s and s.code and self.tell(e.MarkUnfenced(s.key, s.n, s.token, "child")):
            s.child = True

    # --- sessions ---

    def gone(self, n: int) -> None:
        """The working session's process is killed, or it is fenced: the kernel kills then what it may kill."""
        dead = n % 2 == 0
        for s in self.senders:
            if s.session == self.session:
                s.code = s.code and not (dead or s.fenceable)
        old, self.sessions = self.session, self.sessions + 1
        self.session = f"s{self.sessions}"
        self.tell(t.LoseLease(old, "dead" if dead else "watched", NOW))
        for key in KEYS:
            self.tell(e.NoteSenderGone(key, old, dead))

    # --- evidence ---

    def ask(self, n: int) -> None:
        """Settle is over: nothing of what was sent is still under way. What it says is heard later."""
        key = KEYS[n % 2]
        known = self.task.effects.get(key)
        if known is not None:
            self.asked[key] = ("confirmed" if self.acts[key] else "not_found", len(known.sent), known.quiet)

    def hear(self, n: int) -> None:
        key = KEYS[n % 2]
        if key in self.asked:
            verdict, seen, quiet = self.asked.pop(key)
            waited = SETTLE if quiet else -1
            self.tell(e.Settle(key, self.task.token, verdict, "lookup:find", "x", waited_ms=waited, settle_ms=SETTLE, seen=seen))

    def credit(self, n: int) -> None:
        self.tell(e.Credit(KEYS[n % 2], 1 + n // 2 % 3, self.task.token))

    def person_looks(self, n: int) -> None:
        """They stop what they can reach first, so that their word is true."""
        key = KEYS[n % 2]
        known = self.task.effects.get(key)
        if known is not None:
            for s in self.senders:
                s.code, s.child = (s.code and s.key != key), (s.child and s.key != key)
            self.looked_at[key] = (bool(self.acts[key]), known.version)

    def person_answers(self, n: int) -> None:
        key = KEYS[n % 2]
        if key in self.looked_at:
            happened, seen = self.looked_at.pop(key)
            self.tell(e.Answer(key, "confirmed" if happened else "not_found", "alice", seen, "x", stopped=True))

    def settles_the_answer(self, n: int) -> None:
        key = KEYS[n % 2]
        self.tell(e.Settle(key, self.task.token, "not_found", e.PERSON, waited_ms=SETTLE, settle_ms=SETTLE))


MOVES = ["claim"] * 4 + ["intend", "act", "hear"] * 3 + ["gone", "ask"] * 2 + [
    "end_attempt", "others", "returns", "is_refused", "raises", "times_out", "makes_a_child", "credit", "person_looks",
    "person_answers", "settles_the_answer",
]  # fmt: skip
HISTORIES = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 29)), min_size=15, max_size=60)


def check(world: World) -> None:
    """The promise, in this moment."""
    for key in KEYS:
        assert world.acts[key] <= 1, f"{key} happened {world.acts[key]} times"
        known = world.task.effects.get(key)
        if known is None:
            assert not world.acts[key]
        elif known.state is EffectState.CONFIRMED:
            assert world.acts[key] == 1, "confirmed, and it never happened"
        elif known.state is EffectState.NOT_ATTEMPTED:
            assert not world.acts[key], "clean, and it happened"
            assert not [s for s in world.senders if s.key == key and (s.code or s.child)], "clean, and somebody can still act"
    if world.task.delivery in (Delivery.ACKNOWLEDGED, Delivery.DEAD_LETTERED):
        assert not [x.key for x in world.task.effects.values() if x.open]


@settings(max_examples=250, deadline=None)
@given(HISTORIES)
def test_no_duplicate_and_no_guess_whatever_the_order(moves: list[tuple[str, int]]) -> None:
    world = World()
    for name, n in moves:
        getattr(world, name)(n)
        check(world)


def test_the_world_submits_again_what_was_proved_not_to_have_happened() -> None:
    """Else nothing could be duplicated in it, and the property would hold of nothing."""
    world = World()
    for name, n in [("claim", 0), ("intend", 2), ("gone", 0), ("claim", 0), ("ask", 0), ("hear", 0), ("intend", 2), ("act", 1),
                    ("returns", 1)]:  # fmt: skip
        getattr(world, name)(n)
        check(world)
    assert world.intents == 2 and world.acts[KEYS[0]] == 1
    assert world.task.effects[KEYS[0]].state is EffectState.CONFIRMED

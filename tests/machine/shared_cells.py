"""The states of a tenant-scoped key, the commands and the callers whose product is the table of shared cells (R8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from task_cells import K1, NOW, SHARED, TaskBench, after, claim

from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import tasks as t
from semel.machine.commands import PENDING, Observed
from semel.model import Refusal

MINE, OTHER = "t1", "t9"
ALICE, BOB = (("account", "alice"),), (("account", "bob"),)
AS_ALICE, AS_BOB = Observed(ALICE), Observed(BOB)


class SharedBench:
    """Two tasks and one tenant-scoped key, moved by commands that must be accepted."""

    def __init__(self) -> None:
        self.key = t.Key()
        self.tasks = {MINE: _leased(MINE, "s1"), OTHER: _leased(OTHER, "s9")}
        self.at = NOW
        mine = self.tasks[MINE]  # it has another effect in flight, which the caller "unknown" loses
        self.do(MINE, e.Intend(K1, "charge", {}, "d", "m", MINE, mine.attempt, mine.token, "s1"))

    def shared(self, task: str) -> dict[str, t.Key]:
        """The keys that the task has joined."""
        return {SHARED: self.key} if SHARED in self.tasks[task].joined else {}

    def decide(self, task: str, command: e.EffectCommand) -> tuple[tuple[j.Happened, ...], e.Decision] | Refusal:
        """A command on the key, given on behalf of `task`."""
        return t.decide_shared(self.key, self.tasks[task], command, self.shared(task), epoch=1)

    def do(self, task: str, command: t.Command) -> SharedBench:
        """Decide and apply. A refusal here is a mistake in a builder."""
        self.at += 1
        if isinstance(command, e.EffectCommand) and command.key == SHARED:
            decided = self.decide(task, command)
            assert not isinstance(decided, Refusal), (command, decided)
            self.tasks[task] = after(self.tasks[task], decided[0], self.at)
            self._tell(decided[1].events)
            return self
        lost = _lost(self.key, self.tasks[task], command)
        plain = t.decide(self.tasks[task], command, self.shared(task))
        assert not isinstance(plain, Refusal), (command, plain)
        self.tasks[task] = after(self.tasks[task], plain.events, self.at)
        self._tell(lost)
        return self

    def _tell(self, events: tuple[j.Happened, ...]) -> None:
        for event in events:
            self.key = t.apply_key(self.key, event, self.at)

    def intend(self, task: str, **changes: object) -> e.Intend:
        """A call of the key by the task's attempt."""
        owner = self.tasks[task]
        call = e.Intend(SHARED, "mail", {}, "d", "m", task, owner.attempt, owner.token, owner.session)
        return replace(call, **changes)  # type: ignore[arg-type]

    @property
    def last(self) -> tuple[int, int]:
        """Number and token of the key's last submission."""
        sent = self.key.effect.sent if self.key.effect else ()
        return (sent[-1].n, sent[-1].token) if sent else (1, 1)

    @property
    def first(self) -> int:
        """The token of the key's first submission."""
        return self.key.effect.sent[0].token if self.key.effect and self.key.effect.sent else 1


def _leased(task: str, session: str) -> t.Task:
    bench = TaskBench().do(claim(session))
    return replace(bench.task, id=task)


def _lost(key: t.Key, task: t.Task, command: t.Command) -> tuple[j.Happened, ...]:
    """What the end of an attempt does to the key, in the same change, as the engine asks for it."""
    if not isinstance(command, t.Fail | t.Park | t.Block | t.Wait | t.LoseLease):
        return ()
    gone = isinstance(command, t.LoseLease)
    dead = isinstance(command, t.LoseLease) and command.proof == "dead"
    return t.lose_shared(key, task.id, task.attempt, "the attempt ended", fenced=gone, dead=dead)


# --- states of the key ------------------------------------------------------------------------------------------------


def none() -> SharedBench:
    return SharedBench()


def submitted_other() -> SharedBench:
    bench = none()
    return bench.do(OTHER, bench.intend(OTHER))


def submitted_mine() -> SharedBench:
    bench = none()
    return bench.do(MINE, bench.intend(MINE))


def disproved_other() -> SharedBench:
    bench = submitted_other()
    return bench.do(OTHER, e.Disprove(SHARED, *bench.last, "connection refused"))


def unknown_other() -> SharedBench:
    bench = submitted_other()
    return bench.do(OTHER, e.Lose(SHARED, *bench.last, "ReadTimeout", ended=True))


def unknown_mine() -> SharedBench:
    bench = submitted_mine()
    return bench.do(MINE, e.Lose(SHARED, *bench.last, "no answer", ended=False))


def fenced_other() -> SharedBench:
    bench = submitted_other()
    return bench.do(OTHER, t.LoseLease("s9", "watched", NOW))


def told_other() -> SharedBench:
    bench = fenced_other()
    return bench.do(OTHER, e.Confirm(SHARED, *bench.last, "msg-1"))


def conflict_other() -> SharedBench:
    bench = unknown_other()
    return bench.do(OTHER, e.Settle(SHARED, bench.tasks[OTHER].token, "conflict", "lookup:find", reason="not ours"))


def taken_over() -> SharedBench:
    """The other task's submission is unknown, and this task has submitted it again."""
    bench = unknown_other()
    return bench.do(MINE, bench.intend(MINE, again=True))


def taken_over_lost() -> SharedBench:
    """And lost it again: what was looked up before that says nothing of the second submission."""
    bench = taken_over()
    return bench.do(MINE, e.Lose(SHARED, *bench.last, "ReadTimeout", ended=True))


def confirmed_other() -> SharedBench:
    bench = submitted_other()
    return bench.do(OTHER, e.Confirm(SHARED, *bench.last, "msg-1"))


def atomic_mine() -> SharedBench:
    bench = none()
    return bench.do(MINE, bench.intend(MINE, recovery=("atomic", "ask:300000")))


def atomic_lost_other() -> SharedBench:
    bench = none().do(OTHER, none().intend(OTHER, recovery=("atomic", "ask:300000")))
    return bench.do(OTHER, t.LoseLease("s9", "watched", NOW))


def asked_other() -> SharedBench:
    """Another task asks for it, and a person must approve it (R21)."""
    bench = none()
    return bench.do(OTHER, bench.intend(OTHER, approvers=1))


def asked_both() -> SharedBench:
    bench = asked_other()
    return bench.do(MINE, bench.intend(MINE, approvers=1))


def approved_other() -> SharedBench:
    bench = asked_other()
    return bench.do(OTHER, e.Approve(SHARED, "alice", bench.key.version, NOW))


def denied_other() -> SharedBench:
    bench = asked_other()
    return bench.do(OTHER, e.Deny(SHARED, "alice", bench.key.version))


def unknown_observed_other() -> SharedBench:
    """Another task has sent it as bob."""
    bench = none()
    bench.do(OTHER, t.Bind(bench.tasks[OTHER].token, BOB)).do(OTHER, bench.intend(OTHER, observed=AS_BOB))
    return bench.do(OTHER, e.Lose(SHARED, *bench.last, "ReadTimeout", ended=True))


def said_confirmed_other() -> SharedBench:
    """A person said that it happened."""
    bench = unknown_other()
    return bench.do(OTHER, e.Answer(SHARED, "confirmed", "alice", bench.key.version))


def answered_other() -> SharedBench:
    """A person said that it did not happen, and looked when settle was over."""
    bench = unknown_other().do(OTHER, e.NoteWatched(SHARED, 1, waited_ms=9, settle_ms=9))
    return bench.do(OTHER, e.Answer(SHARED, "not_found", "alice", bench.key.version))


def taken_back_other() -> SharedBench:
    """And a person took that back."""
    bench = said_confirmed_other()
    return bench.do(OTHER, e.Reverse(SHARED, "bob", bench.key.version, NOW))


def approved_ahead() -> SharedBench:
    """Before anybody has called it."""
    bench = none()
    call = bench.intend(MINE)
    return bench.do(MINE, e.Approve(SHARED, "alice", 0, NOW, args=call.args, digest=call.digest, ahead="mail"))


def renewed_other() -> SharedBench:
    bench = disproved_other()
    return bench.do(OTHER, e.Renew(SHARED, "alice", bench.key.version))


STATES: dict[str, Callable[[], SharedBench]] = {
    build.__name__: build
    for build in (
        none, disproved_other, submitted_other, submitted_mine, taken_over, unknown_other, unknown_mine, fenced_other,
        taken_over_lost, told_other, conflict_other, atomic_mine, atomic_lost_other, confirmed_other,
        asked_other, asked_both, approved_other, denied_other, unknown_observed_other, said_confirmed_other, taken_back_other,
        renewed_other, approved_ahead, answered_other,
    )
}  # fmt: skip


# --- callers, commands ------------------------------------------------------------------------------------------------


def _joined(bench: SharedBench) -> None:
    bench.do(MINE, t.Join(bench.tasks[MINE].token, SHARED, "mail"))


def _suspended(bench: SharedBench) -> None:
    bench.do(MINE, t.Suspend(bench.tasks[MINE].token, "swallowed"))


def _unknown(bench: SharedBench) -> None:
    bench.do(MINE, e.Lose(K1, 1, bench.tasks[MINE].token, "no answer", ended=True))


def _bound(bench: SharedBench) -> None:
    bench.do(MINE, t.Bind(bench.tasks[MINE].token, ALICE))


def _cancelled(bench: SharedBench) -> None:
    bench.do(MINE, t.Cancel("by alice", NOW))


def _blocked(bench: SharedBench) -> None:
    bench.do(MINE, t.Block(bench.tasks[MINE].token, "a person must look"))


CALLERS: dict[str, Callable[[SharedBench], None]] = {
    "holder": lambda _: None,
    "joined": _joined,
    "suspended": _suspended,
    "unknown": _unknown,
    "cancelled": _cancelled,
    "blocked": _blocked,
    "bound": _bound,
    "stale": lambda _: None,  # the command carries an older token
}

COMMANDS: dict[str, Callable[[SharedBench, int], e.EffectCommand]] = {
    "intend": lambda b, token: b.intend(MINE, token=token),
    "intend_approval": lambda b, token: b.intend(MINE, token=token, approvers=1),
    "intend_again": lambda b, token: b.intend(MINE, token=token, again=True),
    "intend_unseen": lambda b, token: b.intend(MINE, token=token, observed=PENDING),
    "intend_observed": lambda b, token: b.intend(MINE, token=token, observed=AS_ALICE),
    "intend_observed_again": lambda b, token: b.intend(MINE, token=token, observed=AS_ALICE, again=True),
    "confirm": lambda b, _: e.Confirm(SHARED, *b.last, "msg-1"),
    "confirm_first": lambda b, _: e.Confirm(SHARED, 1, b.first, "msg-1"),
    "disprove": lambda b, _: e.Disprove(SHARED, *b.last, "connection refused"),
    "lose": lambda b, _: e.Lose(SHARED, *b.last, "ReadTimeout", ended=True),
    "mark_child": lambda b, _: e.MarkUnfenced(SHARED, *b.last, "child"),
    "sender_dead": lambda b, _: e.NoteSenderGone(SHARED, "s9", dead=True),
    "settle_confirmed": lambda b, token: e.Settle(SHARED, token, "confirmed", "lookup:find"),
    "settle_not_found": lambda b, token: e.Settle(SHARED, token, "not_found", "lookup:find", waited_ms=9, settle_ms=9),
    "settle_not_found_before": lambda b, token: e.Settle(SHARED, token, "not_found", "lookup:find", waited_ms=9, seen=1),
    "settle_not_found_observed": lambda b, token: e.Settle(
        SHARED, token, "not_found", "lookup:find", waited_ms=9, settle_ms=9, observed=AS_ALICE
    ),
    "note_watched": lambda b, _: e.NoteWatched(SHARED, len(b.key.effect.sent) if b.key.effect else 1, waited_ms=9, settle_ms=9),
    "settle_not_found_person": lambda b, token: e.Settle(SHARED, token, "not_found", e.PERSON, settled=1),
    "credit": lambda b, token: e.Credit(SHARED, 1, token),
    "void": lambda b, token: e.Void(SHARED, b.last[0], token),
    "void_own": lambda b, token: e.Void(SHARED, b.last[0], token, (MINE, b.tasks[MINE].attempt)),
    "answer_confirmed": lambda b, _: e.Answer(SHARED, "confirmed", "alice", b.key.version),
    "answer_not_found": lambda b, _: e.Answer(SHARED, "not_found", "alice", b.key.version),
    "answer_conflict": lambda b, _: e.Answer(SHARED, "conflict", "alice", b.key.version),
    "approve": lambda b, _: e.Approve(SHARED, "bob", b.key.version, NOW),
    "approve_stale": lambda b, _: e.Approve(SHARED, "bob", b.key.version - 1, NOW),
    "deny": lambda b, _: e.Deny(SHARED, "bob", b.key.version),
    "reverse": lambda b, _: e.Reverse(SHARED, "bob", b.key.version, NOW),
    "approve_ahead": lambda b, _: e.Approve(SHARED, "bob", 0, NOW, args={}, digest=b.intend(MINE).digest, ahead="mail"),
    "deny_ahead": lambda b, _: e.Deny(SHARED, "bob", 0, ahead="mail"),
    "renew": lambda b, _: e.Renew(SHARED, "bob", b.key.version),
    "answer_stale": lambda b, _: e.Answer(SHARED, "confirmed", "alice", b.key.version - 1),
}


def outcome(key: t.Key, decided: tuple[tuple[j.Happened, ...], e.Decision] | Refusal) -> str:
    """What stands in a cell: `events in the task's stream | events in the key's > where they leave the key`."""
    if isinstance(decided, Refusal):
        return f"!{decided.code}"
    in_task, decision = decided
    for event in decision.events:
        key = t.apply_key(key, event, NOW)
    left = f">{key.effect.state}" if decision.events and key.effect else ""
    mine, its = "+".join(event.kind for event in in_task), "+".join(event.kind for event in decision.events)
    return (f"{mine}|" if mine else "") + its + left + ("=" if decision.recorded is not None else "") or "."


def cells() -> Iterator[tuple[tuple[str, str, str], SharedBench, e.EffectCommand]]:
    """Every cell: its name, the key with its two tasks, the command."""
    for command, make in COMMANDS.items():
        for state, build in STATES.items():
            for caller, prepare in CALLERS.items():
                bench = build()
                prepare(bench)
                token = bench.tasks[MINE].token - (caller == "stale")
                yield (command, state, caller), bench, make(bench, token)

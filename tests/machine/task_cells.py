"""The states and commands whose product is the table of task cells. States are reached by commands only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import limits
from semel.machine import tasks as t
from semel.model import Refusal

NAP, PAID = "semel.sleep:d1:1", "semel.wait_for:d2:1"
K1, K2, SHARED = "sml_1", "sml_2", "sml_shared"
NOW = 1_000_000
HOUR = 3_600_000
BUDGET = limits.Budget("2", 1000, 60_000)


class TaskBench:
    """One task and the tenant-scoped keys that it has joined, moved by commands that must be accepted."""

    def __init__(self, **enqueued: Any) -> None:
        self.task = t.apply(t.Task(), j.Enqueued("t1", "bill", "inv_1", {}, **{"due": NOW, **enqueued}), NOW)
        self.shared: dict[str, t.Key] = {}
        self.at = NOW

    def do(self, *commands: t.Command) -> TaskBench:
        """Decide and apply, one after the other. A refusal here is a mistake in a builder."""
        for command in commands:
            decided = t.decide(self.task, command, self.shared)
            assert not isinstance(decided, Refusal), (command, decided)
            self.at += 1
            self.task = after(self.task, decided.events, self.at)
        return self

    def with_key(self, key: t.Key) -> TaskBench:
        """Join a tenant-scoped key that stands so."""
        self.shared[SHARED] = key
        return self.do(t.Join(self.token, SHARED, "mail"))

    @property
    def token(self) -> int:
        return self.task.token

    def intend(self, key: str = K1, **changes: Any) -> e.Intend:
        """A call of this attempt."""
        task = self.task
        return replace(e.Intend(key, "charge", {}, "d", "m", "t1", task.attempt, task.token, task.session), **changes)


def after(task: t.Task, events: Iterable[j.Happened], at: int = NOW) -> t.Task:
    """The task after these events."""
    for event in events:
        task = t.apply(task, event, at)
    return task


def claim(session: str = "s1", **changes: Any) -> t.Claim:
    return replace(t.Claim(session, 1, NOW, max_attempts=3, max_crashes=3, backoff_ms=1000), **changes)


def fail(bench: TaskBench, **changes: Any) -> t.Fail:
    return replace(t.Fail(bench.token, "ValueError: no", NOW), **changes)


# --- tenant-scoped keys -----------------------------------------------------------------------------------------------


def key_after(*events: j.OfEffect) -> t.Key:
    """A tenant-scoped key with this history."""
    key = t.Key()
    for event in events:
        key = t.apply_key(key, event, NOW)
    return key


def key_submitted(task: str = "t9", attempt: int = 1, session: str = "s9") -> t.Key:
    return key_after(j.Intended(SHARED, 1, "mail", task, attempt, 1, session, {}, "d", "m"))


def key_unknown(task: str = "t9", attempt: int = 1, session: str = "s9") -> t.Key:
    return t.apply_key(key_submitted(task, attempt, session), j.Lost(SHARED, 1, "no answer", ended=True), NOW)


def key_confirmed(task: str = "t9") -> t.Key:
    return t.apply_key(key_submitted(task), j.Confirmed(SHARED, 1, "msg-1"), NOW)


# --- states -----------------------------------------------------------------------------------------------------------


def queued() -> TaskBench:
    return TaskBench()


def queued_later() -> TaskBench:
    return TaskBench(due=NOW + HOUR)


def leased() -> TaskBench:
    return queued().do(claim())


def leased_stepped() -> TaskBench:
    bench = leased()
    return bench.do(t.Step(bench.token, "draft:d1:1", "draft", "text"))


def leased_suspended() -> TaskBench:
    bench = leased()
    return bench.do(t.Suspend(bench.token, "a person must look", K1))


def leased_submitted() -> TaskBench:
    bench = leased()
    return bench.do(bench.intend())


def leased_unknown() -> TaskBench:
    bench = leased_submitted()
    return bench.do(e.Lose(K1, 1, bench.token, "no answer", ended=False))


def leased_two() -> TaskBench:
    """One effect unknown, another in flight."""
    bench = leased()
    bench.do(bench.intend(K1), bench.intend(K2))
    return bench.do(e.Lose(K1, 1, bench.token, "ReadTimeout", ended=True))


def leased_cancelled() -> TaskBench:
    return leased().do(t.Cancel("by alice", NOW))


def leased_cancelled_unknown() -> TaskBench:
    return leased_unknown().do(t.Cancel("by alice", NOW))


def leased_last_try() -> TaskBench:
    bench = leased()
    for _ in range(2):
        bench.do(fail(bench), claim(at=NOW + HOUR))
    return bench


def leased_last_try_submitted() -> TaskBench:
    bench = leased_last_try()
    return bench.do(bench.intend())


def leased_alone() -> TaskBench:
    """It has crashed so often that it runs alone, for the last time."""
    bench = leased()
    for _ in range(2):
        bench.do(t.LoseLease("s1", "dead", NOW), claim(at=NOW + HOUR))
    return bench


def leased_alone_submitted() -> TaskBench:
    bench = leased_alone()
    return bench.do(bench.intend())


def leased_reconciling() -> TaskBench:
    """Dead-lettered for crashes, with an effect unknown: the reconcile-only attempt."""
    return leased_alone_submitted().do(t.LoseLease("s1", "dead", NOW), claim())


def leased_worn() -> TaskBench:
    """Reconciling has killed its worker, too."""
    return leased_reconciling().do(t.LoseLease("s1", "dead", NOW), claim())


def leased_shared_in_flight() -> TaskBench:
    return leased().with_key(key_submitted())


def leased_shared_unknown() -> TaskBench:
    return leased().with_key(key_unknown())


def leased_shared_done() -> TaskBench:
    return leased().with_key(key_confirmed())


def queued_unknown() -> TaskBench:
    return leased_submitted().do(t.LoseLease("s1", "watched", NOW))


def queued_ending() -> TaskBench:
    return queued_unknown().do(t.Cancel("by alice", NOW))


def queued_ending_shared() -> TaskBench:
    bench = leased_shared_unknown()
    return bench.do(t.Park(bench.token, "waiting", NOW), t.Cancel("by alice", NOW))


def blocked() -> TaskBench:
    bench = leased()
    return bench.do(t.Block(bench.token, "the code has changed"))


def blocked_unknown() -> TaskBench:
    bench = leased_unknown()
    return bench.do(t.Block(bench.token, "nobody but a person can tell", K1))


def blocked_ending() -> TaskBench:
    """Cancelled while it waited for a person; the reconcile-only attempt came to the same person."""
    bench = blocked_unknown().do(t.Cancel("by alice", NOW), claim())
    return bench.do(t.Block(bench.token, "nobody but a person can tell", K1))


def leased_asked() -> TaskBench:
    """It has asked for an approval, and its code has not ended yet."""
    bench = leased()
    return bench.do(bench.intend(approvers=1))


def leased_asked_beside_unknown() -> TaskBench:
    bench = leased()
    bench.do(bench.intend(K2), bench.intend(approvers=1))
    return bench.do(e.Lose(K2, 1, bench.token, "ReadTimeout", ended=True))


def leased_asked_cancelled() -> TaskBench:
    return leased_asked().do(t.Cancel("by alice", NOW))


def leased_approved() -> TaskBench:
    """A person was faster than its code."""
    bench = leased_asked()
    return bench.do(e.Approve(K1, "alice", bench.task.effects[K1].version, NOW))


def leased_shared_asked() -> TaskBench:
    return leased().with_key(key_after(j.Asked(SHARED, "mail", "t1", 1, args={}, digest="d", material="m")))


def blocked_asked() -> TaskBench:
    bench = leased_asked()
    return bench.do(t.Block(bench.token, "charge waits for approval", K1, approval=True))


def acknowledged() -> TaskBench:
    bench = leased_stepped()
    return bench.do(t.Finish(bench.token, "sent"))


def acknowledged_taken_back() -> TaskBench:
    """It ended on a person's word, which was taken back: it stays ended, and its effect is unknown (R21)."""
    bench = blocked_unknown()
    bench.do(e.Answer(K1, "confirmed", "alice", bench.task.effects[K1].version), claim())
    bench.do(t.Finish(bench.token, "sent"))
    return bench.do(e.Reverse(K1, "bob", bench.task.effects[K1].version, NOW))


def cancelled() -> TaskBench:
    return queued().do(t.Cancel("by alice", NOW))


def dead_lettered() -> TaskBench:
    bench = leased_last_try()
    return bench.do(fail(bench))


def dead_lettered_shared_unknown() -> TaskBench:
    """Another task lost the key that it had joined."""
    bench = leased_last_try().with_key(key_confirmed())
    bench.do(fail(bench))
    bench.shared[SHARED] = key_unknown()
    return bench


def purged() -> TaskBench:
    return dead_lettered().do(t.Purge("by alice: too old"))


def queued_promised() -> TaskBench:
    """Replayed, with a promise of what may be new."""
    return dead_lettered().do(t.Replay("by alice", NOW, at_most={"charge": 1}, batch="b1"))


def leased_promised() -> TaskBench:
    """The one new effect of that promise is on record."""
    bench = queued_promised().do(claim(at=NOW + HOUR))
    return bench.do(bench.intend(K2), e.Confirm(K2, 1, bench.token, "ch_2"))


def leased_foreseen() -> TaskBench:
    """A person has approved a call that it has not made yet."""
    return leased().do(e.Approve(K1, "alice", 0, NOW, args={}, digest="d", ahead="charge"))


def queued_asleep() -> TaskBench:
    bench = leased()
    return bench.do(t.Wait(bench.token, NAP, "", NOW + HOUR, NOW))


def queued_waiting() -> TaskBench:
    """For a signal, an hour at most."""
    bench = leased()
    return bench.do(t.Wait(bench.token, PAID, "paid", NOW + HOUR, NOW))


def blocked_waiting() -> TaskBench:
    """For a signal, without end."""
    bench = leased()
    return bench.do(t.Wait(bench.token, PAID, "paid", 0, NOW))


def queued_signalled() -> TaskBench:
    return blocked_waiting().do(t.Signal("paid", {"cents": 5}, NOW))


def leased_signalled() -> TaskBench:
    return queued_signalled().do(claim())


def leased_signalled_early() -> TaskBench:
    """While the attempt runs, which does not wait for it yet."""
    return leased().do(t.Signal("paid", None, NOW))


def leased_awake() -> TaskBench:
    """Its time has come, and the wait is on record."""
    return queued_waiting().do(claim(at=NOW + HOUR))


def leased_gave_up() -> TaskBench:
    bench = leased_awake()
    return bench.do(t.GiveUp(bench.token, PAID, "paid", NOW + HOUR))


def spend(bench: TaskBench, usd: str, tokens: int = 0) -> t.Spend:
    return t.Spend(bench.token, bench.task.attempt, usd, tokens)


def leased_rich() -> TaskBench:
    """It may spend 2 usd, 1000 tokens and 60 s, and has spent some of it."""
    bench = queued().do(claim(budget=BUDGET))
    return bench.do(spend(bench, "1.50", 400))


def leased_over() -> TaskBench:
    """Its own code has spent more than it may: it is suspended."""
    bench = leased_rich()
    return bench.do(spend(bench, "0.53"))


def leased_over_late() -> TaskBench:
    """What an earlier attempt has spent came in while this one runs, which is not suspended."""
    bench = leased_rich()
    late = spend(bench, "0.53")
    return bench.do(t.Park(bench.token, "waiting", NOW), claim(budget=BUDGET), late)


def leased_over_unknown() -> TaskBench:
    bench = leased_rich()
    return bench.do(bench.intend(), e.Lose(K1, 1, bench.token, "no answer", ended=False), spend(bench, "0.53"))


def leased_over_submitted() -> TaskBench:
    """Another thread's call is under way."""
    bench = leased_rich()
    return bench.do(bench.intend(), spend(bench, "0.53"))


def leased_over_shared_unknown() -> TaskBench:
    bench = leased_rich().with_key(key_unknown())
    return bench.do(spend(bench, "0.53"))


def leased_over_cancelled() -> TaskBench:
    return leased_over().do(t.Cancel("by alice", NOW))


def queued_over() -> TaskBench:
    """Its worker died before the attempt could end for it."""
    return leased_over().do(t.LoseLease("s1", "dead", NOW))


def dead_lettered_over() -> TaskBench:
    bench = leased_over()
    return bench.do(t.Exceed(bench.token, NOW, 30_000))


def leased_replayed_over() -> TaskBench:
    """Replayed by a person: its money and its time count afresh."""
    return dead_lettered_over().do(t.Replay("by alice", NOW), claim(budget=BUDGET))


ALICE = (("account", "alice"),)


def leased_bound() -> TaskBench:
    """It acts as alice."""
    bench = leased()
    return bench.do(t.Bind(bench.token, ALICE, ("charge",)))


def leased_mismatched() -> TaskBench:
    """Somebody else was observed, and its code has not ended yet."""
    bench = leased_bound()
    return bench.do(t.Mismatch(bench.token, "account is bound to 'alice'", K1, "charge", (("account", "bob"),)))


def blocked_mismatched() -> TaskBench:
    bench = leased_mismatched()
    return bench.do(t.Block(bench.token, "identity_mismatch: account is bound to 'alice'"))


STATES: dict[str, Callable[[], TaskBench]] = {
    build.__name__: build
    for build in (
        queued, queued_later, queued_unknown, queued_ending, queued_ending_shared, leased, leased_stepped, leased_suspended,
        leased_submitted, leased_unknown, leased_two, leased_cancelled, leased_cancelled_unknown, leased_last_try,
        leased_last_try_submitted, leased_alone, leased_alone_submitted, leased_reconciling, leased_worn,
        leased_shared_in_flight, leased_shared_unknown, leased_shared_done, blocked, blocked_unknown, blocked_ending,
        leased_asked, leased_asked_beside_unknown, leased_asked_cancelled, leased_approved, leased_shared_asked, blocked_asked,
        dead_lettered_shared_unknown, purged, queued_promised, leased_promised, leased_foreseen,
        acknowledged, acknowledged_taken_back, cancelled, dead_lettered, queued_asleep, queued_waiting, blocked_waiting,
        queued_signalled,
        leased_signalled, leased_signalled_early, leased_awake, leased_gave_up, leased_rich, leased_over, leased_over_late,
        leased_over_unknown, leased_over_submitted, leased_over_shared_unknown, leased_over_cancelled, queued_over,
        dead_lettered_over, leased_replayed_over,
        leased_signalled, leased_signalled_early, leased_awake, leased_gave_up,
        leased_bound, leased_mismatched, blocked_mismatched,
    )
}  # fmt: skip

# A command, as whoever holds that token would give it.
COMMANDS: dict[str, Callable[[int], t.TaskCommand]] = {
    "claim": lambda _: claim(),
    "claim_direct": lambda _: claim(direct=True),
    "finish": lambda token: t.Finish(token, "sent"),
    "fail": lambda token: t.Fail(token, "ValueError: no", NOW),
    "fail_fatal": lambda token: t.Fail(token, "Misuse: no", NOW, fatal=True),
    "park": lambda token: t.Park(token, "waiting", NOW + 1),
    "suspend": lambda token: t.Suspend(token, "a person must look", K1),
    "block": lambda token: t.Block(token, "a person must look", K1),
    "block_for_approval": lambda token: t.Block(token, "charge waits for approval", K1, approval=True),
    "block_for_approval_shared": lambda token: t.Block(token, "mail waits for approval", SHARED, approval=True),
    "conclude": lambda token: t.Conclude(token),
    "step": lambda token: t.Step(token, "draft:d1:1", "draft", "text"),
    "join": lambda token: t.Join(token, SHARED, "mail"),
    "decline": lambda token: t.Decline(token, K2, "mail", "limit_reached", {}),
    "wait_asleep": lambda token: t.Wait(token, NAP, "", NOW + HOUR, NOW),
    "wait_no_time": lambda token: t.Wait(token, NAP, "", NOW, NOW),
    "wait_signal": lambda token: t.Wait(token, PAID, "paid", 0, NOW),
    "wait_signal_until": lambda token: t.Wait(token, PAID, "paid", NOW + 1, NOW),
    "wait_signal_late": lambda token: t.Wait(token, PAID, "paid", NOW + 1, NOW + HOUR + 1),
    "wait_other_signal": lambda token: t.Wait(token, "semel.wait_for:d3:1", "shipped", 0, NOW),
    "give_up": lambda token: t.GiveUp(token, PAID, "paid", NOW),
    "signal": lambda _: t.Signal("paid", {"cents": 5}, NOW),
    "signal_other": lambda _: t.Signal("shipped", None, NOW),
    "spend": lambda token: t.Spend(token, 1, "0.50", 600),
    "spend_over": lambda token: t.Spend(token, 1, "0.51", 0),
    "spend_over_tokens": lambda token: t.Spend(token, 1, "0", 601),
    "exceed": lambda token: t.Exceed(token, NOW),
    "exceed_in_time": lambda token: t.Exceed(token, NOW, 60_000),
    "exceed_time": lambda token: t.Exceed(token, NOW, 60_001),
    "unblock": lambda _: t.Unblock("by alice", NOW),
    "lose_lease": lambda _: t.LoseLease("s1", "watched", NOW),
    "lose_lease_dead": lambda _: t.LoseLease("s1", "dead", NOW),
    "lose_lease_left": lambda _: t.LoseLease("s1", "left", NOW),
    "lose_lease_other": lambda _: t.LoseLease("s9", "dead", NOW),
    "cancel": lambda _: t.Cancel("by alice", NOW),
    "replay": lambda _: t.Replay("by alice", NOW),
    "replay_from_step": lambda _: t.Replay("by alice", NOW, "draft"),
    "replay_from_unknown_step": lambda _: t.Replay("by alice", NOW, "sign"),
    "replay_as_another": lambda _: t.Replay("by alice", NOW, identity=(("account", "bob"),), by="alice"),
    "replay_as_the_same": lambda _: t.Replay("by alice", NOW, identity=ALICE, by="alice"),
    "bind": lambda token: t.Bind(token, ALICE),
    "bind_another": lambda token: t.Bind(token, (("account", "bob"), ("target", "shop"))),
    "bind_further": lambda token: t.Bind(token, (*ALICE, ("target", "shop"))),
    "mismatch": lambda token: t.Mismatch(token, "it could not be observed", K1, "charge"),
    "prune": lambda _: t.Prune(4, "00", "old"),
    "prune_dead": lambda _: t.Prune(4, "00", "old", dead=True),
    "replay_from_known_step": lambda _: t.Replay("by alice", NOW, "sign", known=True),
    "replay_at_most": lambda _: t.Replay("by alice", NOW, at_most={"charge": 1}),
    "replay_seen": lambda _: t.Replay("by alice", NOW, seen=8),
    "replay_seen_stale": lambda _: t.Replay("by alice", NOW, seen=99),
    "purge": lambda _: t.Purge("by alice: too old"),
    "purge_seen_stale": lambda _: t.Purge("by alice: too old", seen=99),
}


def askers(command: str) -> dict[str, Callable[[t.Task], int]]:
    """Who asks: the holder of the token, or of an older one; a command without a token is anybody's."""
    if "token" not in type(COMMANDS[command](0)).__dataclass_fields__:
        return {"anybody": lambda _: 0}
    return {"holder": lambda task: task.token, "stale": lambda task: task.token - 1}


def outcome(task: t.Task, decided: e.Decision | Refusal) -> str:
    """What stands in a cell: the kinds of the events, and what they leave of delivery and execution."""
    if isinstance(decided, Refusal):
        return f"!{decided.code}"
    if not decided.events:
        return "."
    left = after(task, decided.events)
    return "+".join(event.kind for event in decided.events) + f">{left.delivery}/{left.execution}"


def cells() -> Iterator[tuple[tuple[str, str, str], TaskBench, t.TaskCommand]]:
    """Every cell: its name, the task, the command."""
    for command, make in COMMANDS.items():
        for state, build in STATES.items():
            for asker, token in askers(command).items():
                bench = build()
                yield (command, state, asker), bench, make(token(bench.task))

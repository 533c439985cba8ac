"""Tasks: delivery (who has it?) and execution (what do we know of the work?), and the effects within.

| command    | from                     | to                                                                               |
|------------|--------------------------|----------------------------------------------------------------------------------|
| claim      | queued                   | leased / running; attempt + 1; the token rises                                   |
| finish     | leased                   | acknowledged / succeeded; refused while any effect is open                       |
| fail       | leased                   | queued with backoff, or dead_lettered / failed; with an unknown: queued / unknown |
| park       | leased                   | queued: given back, without fault                                                |
| exceed     | leased                   | dead_lettered: a limit is exceeded; with an unknown: a reconcile-only attempt first |
| block      | leased                   | blocked: waits for a person; queued, if what it would wait for is decided        |
| lose lease | leased                   | queued (crashes + 1), or dead_lettered; what was submitted is ambiguous          |
| cancel     | any but the ended        | acknowledged / cancelled; with an unknown: a reconcile-only attempt first        |
| wait       | leased                   | queued until then, or blocked until a signal; at once if it has come already      |
| signal     | any but the ended        | on record, once for each name; queued if that is what it waits for                |
| replay     | dead_lettered, acknowledged, blocked | queued; same task, same keys                                         |
| bind       | leased                   | its identity is on record; another than before: it starts nothing more            |
| prune      | acknowledged, dead_lettered | as it is; the rows so far are taken away, what they told is remembered        |
| purge      | dead_lettered            | acknowledged / failed: given up for good; refused while anything is unknown      |

Every end of an attempt makes its submitted effects ambiguous in the same change (R2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from semel.machine import approvals, identity, limits, replays, retention
from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine.records import replace
from semel.machine.task_apply import apply, apply_key, fold, fold_key
from semel.machine.task_commands import (
    Bind,
    Block,
    Cancel,
    Claim,
    Conclude,
    Decline,
    Exceed,
    Fail,
    Finish,
    GiveUp,
    Join,
    LoseLease,
    Mismatch,
    Park,
    Prune,
    Purge,
    Replay,
    Signal,
    Spend,
    Step,
    Suspend,
    Unblock,
    Wait,
)
from semel.machine.task_state import Key, Task, Waiting
from semel.machine.words import times
from semel.model import Code, Delivery, Execution, Refusal

__all__ = [
    "Claim", "Finish", "Fail", "Park", "Suspend", "Block", "Unblock", "Conclude", "LoseLease", "Step", "Join",
    "Decline", "Cancel", "Replay", "Purge", "Wait", "GiveUp", "Signal", "Spend", "Exceed", "Bind", "Mismatch", "Prune",
    "Key", "Task", "Waiting", "apply", "apply_key", "fold", "fold_key",
]  # fmt: skip
EPOCH_SHIFT = e.EPOCH_SHIFT
HOUR_MS = 3_600_000

TaskCommand = (
    Claim | Finish | Fail | Park | Suspend | Block | Unblock | Conclude | LoseLease | Step | Join | Decline | Cancel | Replay
    | Purge | Wait | GiveUp | Signal | Spend | Exceed | Bind | Mismatch | Prune
)  # fmt: skip
Command = TaskCommand | e.EffectCommand

_DECISIONS = (e.Approve, e.Deny)
_PERSONS = (e.Reverse, e.Answer, *_DECISIONS)
_OWNERS = (Finish, Fail, Park, Suspend, Block, Conclude, Step, Join, Decline, Wait, GiveUp, Exceed, Bind, Mismatch)


def _no(code: Code, message: str) -> Refusal:
    return Refusal(code, message)


def decide(task: Task, command: Command, shared: Mapping[str, Key] | None = None) -> e.Decision | Refusal:
    """What `command` does to `task`: events to append, or a named no. Pure.

    shared: the tenant-scoped keys that the task has joined; their unknowns count as its own (R8).
    """
    shared = shared or {}
    if isinstance(command, e.EffectCommand):
        if isinstance(command, _DECISIONS) and (task.execution is Execution.CANCELLED or task.ending == "cancelled"):
            return _no(Code.CANCELLED, "its task was cancelled: nothing waits for a decision")
        effect = task.effects.get(command.key)
        decided = e.decide(effect, command, standing(task, command, shared))
        if isinstance(decided, Refusal):
            return decided
        more = goes_on(task, command, effect, decided) if isinstance(command, _PERSONS) else ()
        return replace(decided, events=(*decided.events, *more)) if more else decided
    if isinstance(command, _OWNERS) and not task.owned(command.token):
        return _no(Code.STALE_TOKEN, f"the task is {task.delivery}, under token {task.token}")
    return _DECIDE[type(command)](task, command, shared)


def goes_on(task: Task, command: e.EffectCommand, effect: e.Effect | None, decided: e.Decision) -> tuple[j.Happened, ...]:
    """A person's decision unblocks its task in the same change: a crash between the two would strand it."""
    if isinstance(command, e.Reverse):  # what is unknown again is looked into at once, whatever the task waits for
        idle = task.delivery in (Delivery.BLOCKED, Delivery.QUEUED)
        return (j.Unblocked(f"a verdict was taken back by {command.by}", command.at),) if idle else ()
    if isinstance(command, e.Answer) and command.verdict in ("confirmed", "not_found"):
        why = command.verdict
    elif isinstance(command, _DECISIONS):
        if effect is None or not approvals.suffices(effect, decided.events[0]):
            return ()
        why = "approved" if isinstance(command, e.Approve) else "denied"
    else:
        return ()
    if task.delivery is not Delivery.BLOCKED or task.waiting:  # it waits for no person
        return ()
    return (j.Unblocked(f"{why} by {command.by}", task.due),)


def standing(task: Task, command: e.EffectCommand, shared: Mapping[str, Key]) -> e.Standing:
    """What the task says about the caller of an effect command."""
    token = getattr(command, "token", 0)
    ahead = task.ahead.get(command.key, ())
    bound = identity.names(task.bound) if task.bound else ()
    if not isinstance(command, e.Intend):
        return e.Standing(current=task.owned(token), bound=bound, ahead=ahead)
    others = [key for key in _unknown(task, shared) if key != command.key] if task.unknown or shared else ()
    return e.Standing(
        current=task.owned(token), suspended="" if command.again else task.suspended,
        unknown=others[0] if others and not command.again else "",  # one unknown must not bar the way out of another
        used=sum(task.names.values()), used_here=task.names.get(command.name, 0), clean=task.clean,
        cancelled=bool(task.ending), over=limits.over(task.used, task.budget), bound=bound,
        beyond=replays.beyond(task, command.key, command.name, command.generation), ahead=ahead,
    )  # fmt: skip


def _unknown(task: Task, shared: Mapping[str, Key]) -> list[str]:
    if not shared:
        return sorted(task.unknown)
    joined = (key for key in sorted(task.joined) if key in shared)
    return sorted(task.unknown) + [key for key in joined if (effect := shared[key].effect) and effect.unknown]


def _in_flight(task: Task, shared: Mapping[str, Key]) -> list[str]:
    mine = (k for k in sorted(task.joined) if k in shared and shared[k].unsettled and k not in _unknown(task, shared))
    return sorted(task.submitted) + list(mine)


def _claim(task: Task, c: Claim, _: Mapping[str, Key]) -> e.Decision | Refusal:
    if task.delivery is Delivery.LEASED:
        return _no(Code.IN_FLIGHT, f"the task is leased to session {task.session}")
    again = c.direct and task.delivery is Delivery.ACKNOWLEDGED and task.execution is Execution.SUCCEEDED
    if task.delivery is not Delivery.QUEUED and not again:
        code = Code.CANCELLED if task.execution is Execution.CANCELLED else Code.STALE_VIEW
        return _no(code, f"the task is {task.delivery}")
    if task.due > c.at and not c.direct:
        return _no(Code.STALE_VIEW, "the task is not due yet")
    counter = (task.token & ((1 << EPOCH_SHIFT) - 1)) + 1
    epoch = max(c.epoch, task.token >> EPOCH_SHIFT)
    return e.Decision((
        j.Claimed(
            task.attempt + 1, (epoch << EPOCH_SHIFT) | counter, c.session, c.max_attempts, c.max_crashes, c.backoff_ms,
            c.budget.usd, c.budget.tokens, c.budget.ms,
        ),
    ))  # fmt: skip


def _finish(task: Task, c: Finish, shared: Mapping[str, Key]) -> e.Decision | Refusal:
    if task.suspended or _unknown(task, shared):
        return _no(Code.UNKNOWN_OUTSTANDING, task.suspended or f"the outcome of {_unknown(task, shared)[0]} is unknown")
    if _in_flight(task, shared):
        return _no(Code.IN_FLIGHT, f"{_in_flight(task, shared)[0]} is in flight")
    return e.Decision((j.Finished(c.result, c.ran),))


def _lose_submitted(task: Task, why: str, *, fenced: bool = False, dead: bool = False) -> tuple[j.Happened, ...]:
    """R2: the submissions of the attempt that ends are lost in the same change."""
    lost: list[j.Happened] = []
    for key in sorted(task.submitted | (task.unknown if fenced else frozenset())):
        for s in task.effects[key].open:
            if not s.lost:
                lost.append(j.Lost(key, s.n, why, fenced=fenced, dead=dead))
            elif fenced and s.session == task.session and not s.fenced:
                lost.append(j.SenderGone(key, s.n, dead))
    return tuple(lost)


def _will_be_unknown(task: Task, shared: Mapping[str, Key]) -> bool:
    return bool(task.unknown or task.submitted or _unknown(task, shared) or _in_flight(task, shared))


def _fail(task: Task, c: Fail, shared: Mapping[str, Key]) -> e.Decision | Refusal:
    lost = _lose_submitted(task, "attempt failed")
    wait = min(task.backoff_ms * 2 ** min(task.failures, 20), HOUR_MS)
    failed = j.Failed(c.error, c.at + int(wait * (1 + c.jitter / 4)), c.ran)
    unknown = _will_be_unknown(task, shared)
    if not c.fatal and task.failures + 1 < task.max_attempts:
        return e.Decision((*lost, replace(failed, due=c.at) if unknown else failed))
    why = f"failed {times(task.failures + 1)}: {c.error}"
    last: j.Happened = j.Ending("dead_lettered", why, c.at) if unknown else j.DeadLettered(why)
    return e.Decision((*lost, failed, last))


def _park(task: Task, c: Park, _: Mapping[str, Key]) -> e.Decision | Refusal:
    return e.Decision((*_lose_submitted(task, c.why), j.Parked(c.why, c.due, ran=c.ran)))


def _suspend(task: Task, c: Suspend, _: Mapping[str, Key]) -> e.Decision | Refusal:
    return e.Decision(() if task.suspended else (j.Suspended(c.why, c.key),))


def _block(task: Task, c: Block, shared: Mapping[str, Key]) -> e.Decision | Refusal:
    if c.approval:
        held = shared[c.key].effect if c.key in task.joined and c.key in shared else task.effects.get(c.key)
        over = held is None or not held.waiting  # decided meanwhile: whoever decided saw no block, and ended none
        if over or task.ending or _will_be_unknown(task, shared):  # and no person is waited for where others' work is undone
            return e.Decision((*_lose_submitted(task, c.why), j.Parked(c.why, task.due, ran=c.ran)))
    return e.Decision((*_lose_submitted(task, c.why), j.Blocked(c.why, c.key, c.ran)))


def _spend(task: Task, c: Spend, _: Mapping[str, Key]) -> e.Decision | Refusal:
    spent = j.Spent(c.attempt, c.usd, c.tokens)
    why = limits.over(limits.after(task.used, spent, task.seen), task.budget)
    stops = bool(why) and task.owned(c.token) and not task.suspended
    return e.Decision((spent, j.Suspended(why)) if stops else (spent,))


def _exceed(task: Task, c: Exceed, shared: Mapping[str, Key]) -> e.Decision | Refusal:
    why = limits.over(task.used, task.budget, c.ran)
    if not why:
        return _no(Code.STALE_VIEW, "no limit of the task is exceeded")
    lost = _lose_submitted(task, why)
    if task.ending:
        return e.Decision((*lost, j.Parked(why, c.at, ran=c.ran)))
    if _will_be_unknown(task, shared):
        return e.Decision((*lost, j.Parked(why, c.at, ran=c.ran), j.Ending("dead_lettered", why, c.at)))
    return e.Decision((j.DeadLettered(why, c.ran),))


def _unblock(task: Task, c: Unblock, _: Mapping[str, Key]) -> e.Decision | Refusal:
    if task.delivery is not Delivery.BLOCKED:
        return _no(Code.STALE_VIEW, f"the task is {task.delivery}, not blocked")
    if task.waiting:
        return _no(Code.STALE_VIEW, f"the task waits for {task.waits[task.waiting].event}, and not for a person")
    return e.Decision((j.Unblocked(c.why, c.at),))


def _final(how: str, why: str) -> j.Happened:
    return j.Cancelled(why) if how == "cancelled" else j.DeadLettered(why)


def _conclude(task: Task, c: Conclude, shared: Mapping[str, Key]) -> e.Decision | Refusal:
    if not task.ending:
        return _no(Code.STALE_VIEW, "the task was not told to end")
    if _will_be_unknown(task, shared):
        return _no(Code.UNKNOWN_OUTSTANDING, "an outcome is still unknown")
    return e.Decision((_final(task.ending, task.ending_why),))


def _lose_lease(task: Task, c: LoseLease, shared: Mapping[str, Key]) -> e.Decision | Refusal:
    if task.delivery is not Delivery.LEASED or task.session != c.session:
        return _no(Code.STALE_VIEW, f"the task is not leased to session {c.session}")
    lost = _lose_submitted(task, f"session fenced ({c.proof})", fenced=True, dead=c.proof == "dead")
    crashes = task.crashes + 1
    wait = 0 if crashes == 1 else min(task.backoff_ms * 2 ** min(crashes - 2, 20), HOUR_MS)
    gone = j.LeaseLost(c.session, c.proof, c.at + (0 if _will_be_unknown(task, shared) else wait))
    if crashes < task.max_crashes or not task.alone:
        return e.Decision((*lost, gone))
    why = f"its worker died {times(crashes)} while running it, the last time alone"
    last: j.Happened = j.DeadLettered(why)
    if _will_be_unknown(task, shared):
        worn = crashes > task.max_crashes + 1  # reconciling kills the worker too: without end, if nobody looks
        last = j.Blocked(f"{why}; a person must look") if worn else j.Ending("dead_lettered", why, c.at)
    return e.Decision((*lost, gone, last))


def _step(task: Task, c: Step, _: Mapping[str, Key]) -> e.Decision | Refusal:
    if c.key in task.steps:
        return e.Decision()
    return e.Decision((j.Stepped(c.key, c.name, c.result),))


def _join(task: Task, c: Join, _: Mapping[str, Key]) -> e.Decision | Refusal:
    return e.Decision(() if c.key in task.joined else (j.Joined(c.key, c.name, c.generation),))


def _decline(task: Task, c: Decline, _: Mapping[str, Key]) -> e.Decision | Refusal:
    return e.Decision((j.Declined(c.key, c.code, c.name, c.args, task.attempt),))


def _cancel(task: Task, c: Cancel, shared: Mapping[str, Key]) -> e.Decision | Refusal:
    if task.ended:
        return _no(Code.STALE_VIEW, f"the task is {task.delivery} already")
    if task.delivery is Delivery.LEASED or _will_be_unknown(task, shared):
        return e.Decision(() if task.ending == "cancelled" else (j.Ending("cancelled", c.why, c.at),))
    return e.Decision((j.Cancelled(c.why),))


def _replay(task: Task, c: Replay, _: Mapping[str, Key]) -> e.Decision | Refusal:
    events = replays.replayed(task, c)
    return events if isinstance(events, Refusal) else e.Decision(events)


def _purge(task: Task, c: Purge, shared: Mapping[str, Key]) -> e.Decision | Refusal:
    events = replays.purged(task, c, [*_unknown(task, shared), *_in_flight(task, shared)])
    return events if isinstance(events, Refusal) else e.Decision(events)


def _wait(task: Task, c: Wait, shared: Mapping[str, Key]) -> e.Decision | Refusal:
    known = task.waits.get(c.key)
    until = known.until if known else c.until
    begins = () if known else (j.Waits(c.key, c.event, until),)
    why = f"waits for {c.event}" if c.event else "sleeps"
    before = (*_lose_submitted(task, why), *begins)
    come = c.event in task.signals or bool(known and known.over) or 0 < until <= c.at
    own = [key for key in _in_flight(task, shared) if key not in shared or shared[key].owner == task.id]
    unknown = own or _unknown(task, shared)  # it is looked into at once, and not after the wait
    if come or task.ending or unknown:
        return e.Decision((*before, j.Parked(why, c.at, ran=c.ran)))
    return e.Decision((*before, j.Parked(why, until, c.key, c.ran) if until else j.Blocked(why, c.key, c.ran)))


def _give_up(task: Task, c: GiveUp, _: Mapping[str, Key]) -> e.Decision | Refusal:
    known = task.waits.get(c.key)
    if known and known.over:
        return e.Decision()
    return e.Decision((*(() if known else (j.Waits(c.key, c.event, c.until),)), j.GaveUp(c.key)))


def _signal(task: Task, c: Signal, _: Mapping[str, Key]) -> e.Decision | Refusal:
    if c.event in task.signals:
        return e.Decision()
    if task.ended:
        return _no(Code.STALE_VIEW, f"the task is {task.delivery}: it waits for nothing any more")
    wanted = task.waiting and task.waits[task.waiting].event == c.event
    wakes = (j.Unblocked(f"{c.event} was signalled", c.at),) if wanted else ()
    return e.Decision((j.Signalled(c.event, c.payload), *wakes))


def _prune(task: Task, c: Prune, shared: Mapping[str, Key]) -> e.Decision | Refusal:
    stone = retention.of_task(task, c, shared)
    return stone if isinstance(stone, Refusal) else e.Decision((stone,))


_DECIDE: dict[type, Callable[[Task, Any, Mapping[str, Key]], e.Decision | Refusal]] = {
    Claim: _claim, Finish: _finish, Fail: _fail, Park: _park, Suspend: _suspend, Block: _block, Unblock: _unblock,
    Conclude: _conclude, LoseLease: _lose_lease, Step: _step, Join: _join, Decline: _decline, Cancel: _cancel, Replay: _replay,
    Purge: _purge, Wait: _wait, GiveUp: _give_up, Signal: _signal, Spend: _spend, Exceed: _exceed, Prune: _prune,
    Bind: lambda t, c, _: e.Decision(identity.decided(t.bound, t.watched, c)),
    Mismatch: lambda t, c, _: e.Decision(identity.decided(t.bound, t.watched, c)),
}  # fmt: skip


def decide_shared(
    key: Key, task: Task, command: e.EffectCommand, shared: Mapping[str, Key], epoch: int = 0
) -> tuple[tuple[j.Happened, ...], e.Decision] | Refusal:
    """R8: a command on a tenant-scoped key. The first part lands in the task's stream, the decision in the key's.

    For an intent and a settlement the caller must own `task`; an outcome is judged by the key's own token.
    """
    join: tuple[j.Happened, ...] = ()
    if isinstance(command, e.Intend):
        stand = replace(standing(task, command, shared), new=command.key not in task.joined)
        command = replace(command, token=next_token(key, epoch))
        join = (j.Joined(command.key, command.name, command.generation),) if command.key not in task.joined else ()
    elif isinstance(command, e.Settle | e.Credit | e.Void):
        stand = standing(task, command, shared)
    else:
        stand = e.Standing(current=getattr(command, "token", 0) == key.token)
    decided = e.decide(key.effect, command, replace(stand, ahead=key.ahead))
    if isinstance(decided, Refusal):
        return decided
    return (*join, *goes_on(task, command, key.effect, decided)), decided


def next_token(key: Key, epoch: int) -> int:
    """The next fencing number of a tenant-scoped key."""
    counter = (key.token & ((1 << EPOCH_SHIFT) - 1)) + 1
    return (max(epoch, key.token >> EPOCH_SHIFT) << EPOCH_SHIFT) | counter


def lose_shared(
    key: Key, task: str, attempt: int, why: str, *, fenced: bool = False, dead: bool = False
) -> tuple[j.Happened, ...]:
    """R2 for a tenant-scoped key: the open submissions of an attempt that ends are lost, in the key's stream.

    Those of its task's earlier attempts are lost too; who sent them is not known to be gone.
    """
    lost: list[j.Happened] = []
    for s in key.effect.open if key.effect else ():
        if s.task == task and s.attempt <= attempt:
            gone = fenced and s.attempt == attempt
            if not s.lost:
                lost.append(j.Lost(key.effect.key, s.n, why, fenced=gone, dead=gone and dead))  # type: ignore[union-attr]
            elif gone and not s.fenced:
                lost.append(j.SenderGone(key.effect.key, s.n, dead))  # type: ignore[union-attr]
    return tuple(lost)

"""Every change of state that the shipped machine can make, found by trying every command in every state that is reached."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import tasks
from semel.model import Refusal

KEY, T = "k", 1_000_000
DEPTH, SUBMISSIONS = 7, 2  # deeper finds no further change (tried to 9 before people had to look after settle)
Arrow = tuple[str, str, str]  # ledger, from, to


def start() -> tasks.Task:
    """A task that was just accepted; it may fail and crash once."""
    return tasks.apply(tasks.Task(), j.Enqueued("t", "kind", "key", None, "q", 0, 0), 0)


def commands(task: tasks.Task) -> Iterator[tasks.Command]:
    """Representatives of everything that anybody may ask of it."""
    token, session, effect = task.token, task.session or "s", task.effects.get(KEY)
    yield from (tasks.Claim("s", 1, T, 2, 2, 0, direct) for direct in (False, True))
    yield from (tasks.Finish(token), tasks.Fail(token, "why", T), tasks.Fail(token, "why", T, fatal=True))
    yield from (tasks.Park(token, "why", T), tasks.Suspend(token, "why"), tasks.Block(token, "why"), tasks.Unblock("why", T))
    yield from (tasks.Conclude(token), tasks.Cancel("why", T), tasks.Replay("why", T), tasks.Purge("why"))
    yield from (tasks.LoseLease(session, proof, T) for proof in ("watched", "dead", "left"))
    count = len(effect.sent) if effect else 0
    if count < SUBMISSIONS:
        yield from (
            e.Intend(KEY, "name", {}, "digest", "", task.id, task.attempt, token, session, again=again) for again in (False, True)
        )
        yield e.Intend(KEY, "name", {}, "digest", "", task.id, task.attempt, token, session, approvers=1)
        yield tasks.Block(token, "why", KEY, approval=True)
    for sub in effect.sent if effect else ():
        yield e.Confirm(KEY, sub.n, sub.token)
        yield from (e.Disprove(KEY, sub.n, sub.token, "why", final) for final in (False, True))
        yield from (e.Lose(KEY, sub.n, sub.token, "why", ended) for ended in (False, True))
        yield from (e.NoteSenderGone(KEY, sub.session, True), e.Credit(KEY, sub.n, token))
    if effect and effect.asked:
        yield from (e.Approve(KEY, "ann", effect.version, T), e.Deny(KEY, "ann", effect.version))
    if effect:
        yield e.Reverse(KEY, "ann", effect.version, T)
        yield e.Renew(KEY, "ann", effect.version)
        for verdict in ("confirmed", "not_found", "conflict", "unavailable"):
            yield e.Settle(KEY, token, verdict, "lookup:f", waited_ms=T)
            yield e.Settle(KEY, token, verdict, "person", settled=effect.settled)
        yield e.NoteWatched(KEY, count, T, 0)
        yield from (
            e.Answer(KEY, verdict, "ann", effect.version, stopped=True) for verdict in ("confirmed", "not_found", "conflict")
        )


def shape(task: tasks.Task) -> object:
    """What of a task the machine's decisions depend on; counters only as far as they matter."""
    effect = task.effects.get(KEY)
    facts = None
    if effect:
        sent = tuple((s.open, s.lost, s.ended, s.fenced, s.dead, s.token == task.token) for s in effect.sent)
        told = tuple((x.n, x.outcome) for x in effect.evidence)
        facts = (
            sent,
            told,
            effect.confirmed,
            effect.declined is not None,
            effect.answered is not None,
            effect.watched,
            bool(effect.conflict),
            effect.waiting,
            effect.denied is not None,
            effect.word is not None,
            effect.renewed is not None,
        )
    return (task.delivery, task.execution, task.ending, bool(task.suspended), min(task.failures, 2), min(task.crashes, 2),
            task.alone, task.clean, facts)  # fmt: skip


def arrows() -> set[Arrow]:
    """All changes of state, by ledger."""
    first = start()
    seen, todo, found = {shape(first)}, deque([(first, 0)]), set[Arrow]()
    while todo:
        task, depth = todo.popleft()
        for command in commands(task):
            decided = tasks.decide(task, command)
            if isinstance(decided, Refusal) or not decided.events:
                continue
            after = task
            for event in decided.events:
                after = tasks.apply(after, event, T)
            found |= changed(task, after)
            if depth < DEPTH and shape(after) not in seen:
                seen.add(shape(after))
                todo.append((after, depth + 1))
    return found


def changed(before: tasks.Task, after: tasks.Task) -> set[Arrow]:
    """Which ledgers moved."""
    was, now = before.effects.get(KEY), after.effects.get(KEY)
    pairs = [("Delivery", str(before.delivery), str(after.delivery)), ("Execution", str(before.execution), str(after.execution))]
    if now is not None:
        pairs.append(("Effect", str(was.state) if was else "[*]", str(now.state)))
    return {pair for pair in pairs if pair[1] != pair[2]}

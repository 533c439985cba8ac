"""Workers as program counters: what the engine's procedures do, in their order, one durable step at a time.

claim, settle what is unknown, then for each effect: intend (durable), arm and check, call, record; and climb the shipped
ladder where an outcome is unknown. A worker decides on what is on record when its change lands: whoever was slower than a
rival reads again and is decided again (R5).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from explore_normal import KEYS, SETTLE, Answer
from explore_nouns import (
    AGAIN,
    APPROVAL,
    ASKED,
    AWAKE,
    BLOCK,
    CALL,
    CLIMB,
    DONE,
    FAIL,
    FAILED,
    FAULTS,
    INTENT,
    LOOK_AGAIN,
    OVERDUE,
    PARK,
    PREP,
    STOPPED,
    TODO,
    UNFENCED,
    UNSENT,
    UP,
    WORK,
    Call,
    State,
    Step,
    Violated,
    Worker,
    set_pc,
)

from semel.machine import effects as e
from semel.machine import recovery as r
from semel.model import EffectState

if TYPE_CHECKING:
    from explore_world import Rules

READABLE = ("already_done", "intent_changed", "limit_reached", "denied")
OWNER_LOST = ("stale_token", "fenced")


def worker_steps(rules: Rules, s: State, i: int, p: Worker) -> Iterator[Step]:
    """What worker `i` can do next."""
    if p.queue:
        yield from _record(rules, s, i, p)
    if p.life == STOPPED:
        return
    if p.old or p.fence:
        stopped = Worker(p.kind, STOPPED, p.fence, p.old, queue=p.queue, calls=p.calls)
        if p.life == AWAKE:
            yield ("w{} learns that it is fenced", (i,)), False, rules.put(s, i, stopped)
    elif p.life == AWAKE:
        yield ("w{} beats again", (i,)), False, rules.put(s, i, p._replace(life=UP))
    if rules.world.gives_back and p.life == UP and not p.queue and _guarded(p):
        yield from _own(rules, s, i, p)
    if not p.task:
        if p.life == UP and not p.old and s.epoch != 1:
            yield from _claim(rules, s, i, p)
        return
    if p.exit[0] and not _busy(p):
        if not p.queue:
            yield _end(rules, s, i, p)
    elif p.phase == PREP:
        yield from _prepare(rules, s, i, p)
    else:
        yield from _work(rules, s, i, p)


def _busy(p: Worker) -> bool:
    return any(x[0] in (INTENT, CALL, ASKED, OVERDUE) for x in p.pcs)


def _claim(rules: Rules, s: State, i: int, p: Worker) -> Iterator[Step]:
    for task, tid in enumerate(s.tids):
        if tid == rules.m.nothing:
            continue
        a = rules.m.ask(tid, s.kid, s.age, ("claim", i, rules.epoch(s), False))
        if a.code:
            yield ("w{} is refused t{} ({})", (i, task, a.code)), False, s
            continue
        facts = rules.m.facts(a.tid, s.kid)
        if any(facts.token <= q.token for q in s.workers if q.task == task + 1):
            raise Violated(f"an older session of t{task} has a token that is not below the new one's")
        p2 = p._replace(task=task + 1, token=facts.token, attempt=facts.attempt, phase=PREP, pcs=rules.nowhere)
        yield ("w{} claims t{}", (i, task)), False, rules.put(rules.land(s, task, a), i, p2)


def _own(rules: Rules, s: State, i: int, p: Worker) -> Iterator[Step]:
    """R17: what the store says is its session's, and it knows nothing of, goes back."""
    for task, tid in enumerate(s.tids):
        facts = rules.m.facts(tid, s.kid)
        if facts.lease == i and p.task != task + 1:
            a = rules.m.ask(tid, s.kid, s.age, ("park", facts.token))
            yield ("w{} gives t{} back: its session holds it no more", (i, task)), False, rules.land(s, task, a)


def _record(rules: Rules, s: State, i: int, p: Worker) -> Iterator[Step]:
    """What is queued is written: an outcome, decided on what is on record by then."""
    told, *rest = p.queue[0]
    task = rest[0]
    assert isinstance(task, int)
    if told == "unblock":
        a = rules.m.ask(s.tids[task], s.kid, s.age, ("unblock",))
        yield ("t{} goes on: an answer came late", (task,)), False, _unqueued(rules, rules.land(s, task, a), i)
        return
    _, k, n, token, attempt = rest
    a = rules.m.ask(s.tids[task], s.kid, s.age, (told, k, n, token, (f"t{task}", attempt)))
    after = _unqueued(rules, rules.land(s, task, a), i)
    if rules.m.facts(after.tids[task], after.kid).delivery == "blocked":
        q = after.workers[i]
        after = rules.put(after, i, q._replace(queue=(*q.queue, ("unblock", task))))
    what = ", ".join(a.told) or a.code or "nothing new"
    yield ("w{} records {} of {} (submission {}): {}", (i, told, KEYS[k], n, what)), False, after  # type: ignore[index]
    if not rules.world.chained and s.left[FAULTS]:
        yield ("the record of {} fails alone", (KEYS[k],)), True, rules.less(_unqueued(rules, s, i), FAULTS)  # type: ignore[index]


def _unqueued(rules: Rules, s: State, i: int) -> State:
    p = s.workers[i]
    return rules.put(s, i, p._replace(queue=p.queue[1:]))


def _idle(p: Worker) -> Worker:
    return p._replace(task=0, token=0, attempt=0, phase=PREP, pcs=(), exit=(0, 0))


def _gone(rules: Rules, s: State, i: int, why: str) -> Step:
    """It lost the task, and drops it."""
    return ("w{} has lost its task ({})", (i, why)), False, rules.put(s, i, _idle(s.workers[i]))


def _set(rules: Rules, s: State, i: int, k: int, *pc: int) -> State:
    p = s.workers[i]
    return rules.put(s, i, p._replace(pcs=set_pc(p.pcs, k, pc)))  # type: ignore[arg-type]


def _guarded(p: Worker) -> bool:
    """Whether what only a living session may write lands."""
    return not p.fence and not p.old


def _suspends(rules: Rules, s: State, i: int, p: Worker, how: int, k: int, why: str) -> Step:
    """The attempt may start nothing more, on record; then it ends so."""
    task = p.task - 1
    a = rules.m.ask(s.tids[task], s.kid, s.age, ("suspend", p.token, k))
    if a.code:
        return _gone(rules, s, i, a.code)
    after = _set(rules, rules.land(s, task, a), i, k, TODO, 0, 0, 0)
    q = after.workers[i]
    exit = q.exit if q.exit[0] else (how, k)
    return ("w{} suspends t{}: {}", (i, task, why)), False, rules.put(after, i, q._replace(exit=exit))


def _end(rules: Rules, s: State, i: int, p: Worker) -> Step:
    """The one end of the attempt."""
    task, (how, k) = p.task - 1, p.exit
    facts = rules.m.facts(s.tids[task], s.kid)
    if how == LOOK_AGAIN:
        effect = rules.m.effect(s.tids[task], s.kid, k)
        after = rules.put(s, i, _idle(p))
        if effect is not None and (effect.state is not EffectState.AMBIGUOUS or effect.answered or _credible(effect)):
            a = rules.m.ask(s.tids[task], s.kid, s.age, ("unblock",))
            return ("w{} lets t{} go on: it was answered before it was blocked", (i, task)), False, rules.land(after, task, a)
        return ("w{} leaves t{} to a person", (i, task)), False, after
    if how == FAIL and facts.unknown:
        how = PARK
    what: tuple[object, ...] = {
        PARK: ("park", p.token),
        BLOCK: ("block", p.token, k, False),
        APPROVAL: ("block", p.token, k, True),
        FAIL: ("fail", p.token, False),
    }[how]
    a = rules.m.ask(s.tids[task], s.kid, s.age, what)
    if a.code:
        return _gone(rules, s, i, a.code)
    after = rules.land(s, task, a)
    after = rules.put(after, i, p._replace(exit=(LOOK_AGAIN, k)) if how == BLOCK else _idle(p))
    return ("w{} gives t{} back ({})", (i, task, what[0])), False, after


def _credible(effect: object) -> bool:
    return any(x.outcome != "raised" and effect.submission(x.n).open for x in effect.evidence)  # type: ignore[attr-defined]


def _prepare(rules: Rules, s: State, i: int, p: Worker) -> Iterator[Step]:
    """What is unknown is settled before anything else starts; then what was told to end ends."""
    task = p.task - 1
    facts = rules.m.facts(s.tids[task], s.kid)
    k = next((k for k, x in enumerate(p.pcs) if x[0] != TODO), None)
    if k is None:
        k = next(iter(facts.unknown), None)
    if k is not None:
        if p.queue:
            return
        if not _mine(rules, s, task, k):
            yield _suspends(rules, s, i, p, PARK, k, f"{KEYS[k]} is another task's, and unknown")
        elif p.pcs[k][0] == TODO:
            yield from _climb(rules, _set(rules, s, i, k, CLIMB, 0, 0, 0), i, k)
        else:
            yield from _branch(rules, s, i, k)
        return
    if p.queue:
        return
    if facts.ending:
        a = rules.m.ask(s.tids[task], s.kid, s.age, ("conclude", p.token))
        if a.code in OWNER_LOST:
            yield _gone(rules, s, i, a.code)
        elif a.code:
            yield _suspends(rules, s, i, p, PARK, 0, a.code)
        else:
            yield ("w{} ends t{} as it was told to", (i, task)), False, rules.put(rules.land(s, task, a), i, _idle(p))
        return
    yield from _work(rules, rules.put(s, i, p._replace(phase=WORK)), i, p._replace(phase=WORK))


def _mine(rules: Rules, s: State, task: int, k: int) -> bool:
    if not (rules.world.shared and k == 0):
        return True
    owner = rules.owner(s, k)
    return owner in (task, -1) or rules.m.facts(s.tids[owner], s.kid).ended


def _work(rules: Rules, s: State, i: int, p: Worker) -> Iterator[Step]:
    """The handler: its effects in their order, or all at once."""
    task = p.task - 1
    plan = rules.world.plans[task]
    left = [k for k in plan if p.pcs[k][0] != DONE]
    if not left:
        if not p.queue:
            yield _finish(rules, s, i, p)
        return
    for k in left if rules.world.parallel else left[:1]:
        if p.pcs[k][0] == FAILED:
            if not p.exit[0]:
                yield ("the handler of t{} raises", (task,)), False, rules.put(s, i, p._replace(exit=(FAIL, k)))
        else:
            yield from _branch(rules, s, i, k)


def _finish(rules: Rules, s: State, i: int, p: Worker) -> Step:
    task = p.task - 1
    if not _guarded(p):
        return _gone(rules, s, i, "fenced")
    a = rules.m.ask(s.tids[task], s.kid, s.age, ("finish", p.token))
    if a.code in OWNER_LOST:
        return _gone(rules, s, i, a.code)
    if a.code:
        return ("w{} cannot finish t{}: {}", (i, task, a.code)), False, rules.put(s, i, p._replace(exit=(PARK, 0)))
    return ("w{} finishes t{}", (i, task)), False, rules.put(rules.land(s, task, a), i, _idle(p))


def _branch(rules: Rules, s: State, i: int, k: int) -> Iterator[Step]:
    """One effect, one step further."""
    p = s.workers[i]
    pc = p.pcs[k][0]
    if pc in (INTENT, OVERDUE):
        yield _arm(rules, s, i, p, k)
    elif pc == CALL or p.queue:
        return  # what is queued lands first
    elif pc in (TODO, AGAIN):
        for words in ("w0", "w1")[: rules.world.words if pc == TODO else 1]:
            yield _intend(rules, s, i, p, k, pc == AGAIN, words)
    elif pc == CLIMB:
        yield from _climb(rules, s, i, k)
    elif pc == ASKED:
        yield _heard(rules, s, i, p, k)


# --- intend, arm and check -------------------------------------------------------------------------------------------


def _intend(rules: Rules, s: State, i: int, p: Worker, k: int, again: bool, words: str) -> Step:
    task = p.task - 1
    if not _guarded(p):
        return _gone(rules, s, i, "fenced")
    what = (
        "intend", k, i, again, None if again else rules.doubt(s), words, "process" if p.kind == UNFENCED else "", p.attempt,
        p.token, rules.epoch(s),
    )  # fmt: skip
    a = rules.m.ask(s.tids[task], s.kid, s.age, what)
    if a.code in OWNER_LOST:
        return _gone(rules, s, i, a.code)
    if a.code:
        return _refused(rules, s, i, p, k, again, a)
    after = rules.land(s, task, a)
    if a.recorded:
        done = (FAILED,) if a.declined else (DONE,)
        return ("w{} finds {} on record", (i, KEYS[k])), False, _set(rules, after, i, k, *done, 0, 0, 0)
    if "assumed" in a.told:
        return ("w{} assumes that {} may have been sent", (i, KEYS[k])), False, _set(rules, after, i, k, CLIMB, 0, 0, 0)
    if not a.n:
        return _suspends(rules, after, i, after.workers[i], APPROVAL, k, f"{KEYS[k]} is asked for, and waits for approval")
    _may_be_sent(rules, s, after, task, k, again, a)
    after = _set(rules, after, i, k, INTENT, a.n, a.token, int(again or p.phase == PREP))
    return ("w{} intends {}{} (submission {})", (i, KEYS[k], " again" if again else "", a.n)), False, after


def _may_be_sent(rules: Rules, s: State, after: State, task: int, k: int, again: bool, a: Answer) -> None:
    """What the world knows against an intent."""
    if rules.world.approve and not again:
        effect = rules.m.effect(a.tid, a.kid, k)
        assert effect is not None
        if not s.keys[k].let_go:
            raise Violated(f"{KEYS[k]} is sent, and nobody has approved it")
        if effect.args != ("w0", "w1")[s.keys[k].let_go - 1]:
            raise Violated(f"{KEYS[k]} is sent in other words than were approved")
    others = [x for x in rules.world.plans[task] if x != k and x in rules.m.facts(s.tids[task], s.kid).open]
    if others and not again and not rules.world.parallel:
        raise Violated(f"{KEYS[k]} is intended, and {KEYS[others[0]]} has no outcome on record")
    for q in s.workers:
        older = any(c.k == k and c.token > a.token for c in q.calls)
        if older:
            raise Violated(f"the token of {KEYS[k]} falls")


def _refused(rules: Rules, s: State, i: int, p: Worker, k: int, again: bool, a: Answer) -> Step:
    task, key = p.task - 1, KEYS[k]
    if again and a.code == "stale_view":
        return ("w{} need not send {} again", (i, key)), False, _set(rules, s, i, k, CLIMB, 0, 0, 0)
    if a.code == "approval_required":
        return _suspends(rules, s, i, p, APPROVAL, k, f"{key} waits for approval")
    if a.code in READABLE and not again:
        told = rules.m.ask(s.tids[task], s.kid, s.age, ("decline", p.token, k))
        return ("w{} reads that {} is refused: {}", (i, key, a.code)), False, _set(
            rules, rules.land(s, task, told), i, k, FAILED, 0, 0, 0
        )  # fmt: skip
    effect = rules.m.effect(s.tids[task], s.kid, k)
    suspended = rules.m.facts(s.tids[task], s.kid).suspended
    if effect is not None and effect.state is EffectState.AMBIGUOUS and not suspended and not again and _mine(rules, s, task, k):
        return ("w{} finds {} unknown", (i, key)), False, _set(rules, s, i, k, CLIMB, 0, 0, 0)
    if rules.world.shared and k == 0 and a.code in ("in_flight", "unknown_outstanding"):
        joined = rules.m.ask(s.tids[task], s.kid, s.age, ("join", p.token))
        s = rules.land(s, task, joined)
    return _suspends(rules, s, i, s.workers[i], PARK, k, a.code)


def _arm(rules: Rules, s: State, i: int, p: Worker, k: int) -> Step:
    """Arm the kernel timer, check the deadline; then it may call."""
    pc, n, token, again = p.pcs[k]
    task, key = p.task - 1, KEYS[k]
    unsent = ("disprove", task, k, n, token, p.attempt)
    if p.life != UP:
        left = rules.put(s, i, _idle(p)._replace(queue=(*p.queue, unsent)))
        return ("w{} does not send {}: past its deadline", (i, key)), False, left
    if pc == OVERDUE:
        late = rules.put(s, i, p._replace(queue=(*p.queue, unsent), pcs=set_pc(p.pcs, k, (CLIMB, 0, 0, 0))))
        return ("w{} does not send {}: its time was over", (i, key)), False, late
    call = Call(k, task, n, token, p.attempt, 1, 1, UNSENT)
    q = p._replace(pcs=set_pc(p.pcs, k, (CALL, n, token, again)), calls=(*p.calls, call))
    return ("w{} arms, checks, and calls {}", (i, key)), False, rules.put(s, i, q)


# --- the ladder --------------------------------------------------------------------------------------------------------


def _climb(rules: Rules, s: State, i: int, k: int) -> Iterator[Step]:
    p = s.workers[i]
    task, key = p.task - 1, KEYS[k]
    tid = s.tids[task]
    effect = rules.m.effect(tid, s.kid, k)
    if effect is None or effect.state is not EffectState.AMBIGUOUS:
        failed = p.phase == WORK and effect is not None and effect.state is EffectState.NOT_ATTEMPTED
        after = _set(rules, s, i, k, FAILED if failed else TODO, 0, 0, 0)
        yield ("w{} sees that {} is {}", (i, key, effect.state if effect else "forgotten")), False, after
        return
    for sub in effect.open:
        noted = _note(rules, s, i, p, task, k, sub)
        if noted is not None:
            yield noted
            return
    facts = (tuple(x.n for x in effect.open), int(_stopped(effect) and not effect.quiet))
    known = next((x for x in p.learnt if x[0] == k), None)
    if effect.quiet or _stopped(effect):
        if known is None or known[1:3] != facts:
            learnt = tuple(sorted((*(x for x in p.learnt if x[0] != k), (k, *facts, 0))))
            yield ("w{} learns that nobody can send {} any more", (i, key)), False, rules.put(s, i, p._replace(learnt=learnt))
            return
        waited = SETTLE if known[3] else 0
    else:
        waited = -1
    move = rules.m.move(tid, s.kid, s.age, k, waited)
    if p.pcs[k][3] and isinstance(move, r.Look) and waited < SETTLE and not effect.watched:  # it has found nothing, and must wait
        beyond = any(x.beyond_proof for x in effect.open)
        move = r.Wait(1, "settle") if waited >= 0 or not beyond else rules.m.move(tid, s.kid, s.age, k, waited, move.index + 1)
        if isinstance(move, r.Person):
            move = r.Person("nothing was found, and nothing can prove that its sender has stopped")
    yield from _move(rules, s, i, k, move, waited, effect)


def _stopped(effect: object) -> bool:
    return effect.answered is not None and effect.answered.stopped  # type: ignore[attr-defined, no-any-return]


def _note(rules: Rules, s: State, i: int, p: Worker, task: int, k: int, sub: object) -> Step | None:
    """R4: it writes down that the sender of a submission is fenced, or dead."""
    if sub.quiet or not sub.session or sub.session == f"s{i}":  # type: ignore[attr-defined]
        return None
    sid = int(sub.session[1:])  # type: ignore[attr-defined]
    fence = s.workers[sid].fence if sid < len(s.workers) else 0
    if not fence or (s.epoch and s.workers[sid].old and not fence):
        return None
    a = rules.m.ask(s.tids[task], s.kid, s.age, ("gone", k, sid, fence == 2))
    if not a.told:
        return None
    return ("w{} notes that a sender of {} is gone", (i, KEYS[k])), False, rules.land(s, task, a)


def _move(rules: Rules, s: State, i: int, k: int, move: r.Move, waited: int, x: e.Effect) -> Iterator[Step]:
    p = s.workers[i]
    task, key = p.task - 1, KEYS[k]
    settled: tuple[object, ...] | None = None
    if isinstance(move, r.Credit):
        settled = ("credit", k, move.n, p.token)
    elif isinstance(move, r.RuleOut):
        settled = ("void", k, move.n, p.token)
    elif isinstance(move, r.Believe):
        settled = ("settle", k, p.token, "not_found", "person", waited, 0, x.settled)
    elif isinstance(move, r.Note):
        settled = ("watched", k, len(x.sent), waited)
    if settled is not None:
        yield _settles(rules, s, i, p, k, settled)
    elif isinstance(move, r.Again):
        yield ("w{} will send {} again", (i, key)), False, _set(rules, s, i, k, AGAIN, 0, 0, 0)
    elif isinstance(move, r.Look):
        found = int(s.keys[k].acts > 0)
        known = 3 if x.watched else waited + 1 if waited <= 0 else 2
        asked = _set(rules, s, i, k, ASKED, len(x.sent), 0, 1 + found + 2 * known)
        yield ("w{} asks the provider about {}: {}", (i, key, "it is there" if found else "nothing")), False, asked
        if rules.world.unavailable and s.left[FAULTS]:
            a = rules.m.ask(s.tids[task], s.kid, s.age, ("settle", k, p.token, "unavailable", "lookup", -1, 0))
            if not a.code:
                away = _set(rules, rules.land(s, task, a), i, k, CLIMB, 0, 0, 0)
                yield ("the provider cannot be asked about {}", (key,)), True, rules.less(away, FAULTS)
    elif isinstance(move, r.Person):
        yield _suspends(rules, s, i, p, BLOCK, k, f"{key}: {move.why}")
    else:
        yield _suspends(rules, s, i, p, PARK, k, f"{key} must wait")


def _settles(rules: Rules, s: State, i: int, p: Worker, k: int, what: tuple[object, ...]) -> Step:
    task = p.task - 1
    if not _guarded(p):
        return _gone(rules, s, i, "fenced")
    a = rules.m.ask(s.tids[task], s.kid, s.age, what)
    if a.code in OWNER_LOST:
        return _gone(rules, s, i, a.code)
    told = a.code or ", ".join(a.told)
    empty = int(what[0] == "settle" and what[3] == "not_found" and what[4] != "person" and bool(a.code))
    after = _set(rules, rules.land(s, task, a), i, k, CLIMB, 0, 0, empty)
    return ("w{} settles {} by {}: {}", (i, KEYS[k], what[4] if what[0] == "settle" else what[0], told)), False, after


def _heard(rules: Rules, s: State, i: int, p: Worker, k: int) -> Step:
    """What it was told by the provider lands, on what is on record by now."""
    _, seen, _, told = p.pcs[k]
    found, waited = (told - 1) % 2, ((told - 1) // 2) - 1
    settled = seen if waited == 2 else 0  # it was on record when it asked that settle is over for so many
    waited = {1: SETTLE, 2: -1}.get(waited, waited)
    verdict = "confirmed" if found else "not_found"
    return _settles(rules, s, i, p, k, ("settle", k, p.token, verdict, "lookup", waited, 0 if found else seen, settled))

"""Effects: the file to read first.

For one key the world changes at most once, and what cannot be proved is called unknown.

| from                     | event                                              | to                                     |
|--------------------------|----------------------------------------------------|----------------------------------------|
| (none), not_attempted    | intend: token current, nothing else unknown, ...   | submitted (opens a submission)         |
| submitted                | confirm, of an open submission                     | confirmed (closes all)                 |
| submitted                | disprove: proof that this submission did nothing   | closes *that* one; not_attempted if    |
|                          |                                                    | none is open, else ambiguous (R1)      |
| submitted                | lose: timeout, exception, session fenced           | ambiguous                              |
| ambiguous                | found confirmed / not_found (R4)                   | confirmed / not_attempted              |
| ambiguous                | watched: settle is over (R4)                       | ambiguous: who looks now is believed   |
| ambiguous                | found conflict / unavailable                       | ambiguous: a person / asked again      |
| ambiguous                | intend again, same key (the ladder allows it)      | submitted (a further open submission)  |
| submitted, ambiguous     | void: an `Atomic` submission's place is taken (R7) | as after its disproof                  |
| confirmed                | intend                                             | the recorded result, or a refusal (R9) |
| confirmed, not_attempted | reverse: the person's verdict that said so         | ambiguous                              |
| (none), not_attempted    | intend, of what a person must approve              | not_attempted: asked for, not sent     |

The state is not stored: it is read off the submissions, so no event can set it wrongly.
"""

from __future__ import annotations

from semel.machine import approvals, foreseen, generations, identity, reversal, watching
from semel.machine import journal as j
from semel.machine.commands import (
    RETURNED,
    Answer,
    Approve,
    Confirm,
    Credit,
    Deny,
    Disprove,
    Doubt,
    EffectCommand,
    Intend,
    Lose,
    MarkUnfenced,
    NoteSenderGone,
    NoteWatched,
    Renew,
    Reverse,
    Settle,
    Void,
)
from semel.machine.effect_apply import apply
from semel.machine.effect_state import ATOMIC, Decision, Effect, Evidence, Sent, Standing
from semel.machine.records import replace
from semel.machine.words import times
from semel.model import Code, EffectState, Json, Refusal

__all__ = [
    "RETURNED",
    "Doubt",
    "Intend",
    "Confirm",
    "Disprove",
    "Lose",
    "MarkUnfenced",
    "NoteSenderGone",
    "Settle",
    "NoteWatched",
    "Answer",
    "Approve",
    "Deny",
    "Reverse",
    "Renew",
    "Credit",
    "Void",
    "EffectCommand",
    "ATOMIC",
    "Decision",
    "Effect",
    "Evidence",
    "Sent",
    "Standing",
    "apply",
]
EPOCH_SHIFT = 30  # a token is (epoch, counter) in one signed 64-bit integer, epochs being seconds: good until 2242
NOT_DONE, RAISED = "not_done", "raised"
PERSON = "person"  # how a not_found is settled that a person answered
_OUTCOMES = (Confirm, Disprove, Lose)
_DECISIONS = (Approve, Deny)


def _no(code: Code, message: str, result: Json = None) -> Refusal:
    return Refusal(code, message, result)


def decide(effect: Effect | None, command: EffectCommand, standing: Standing) -> Decision | Refusal:
    """What `command` does to `effect`: events to append, or a named no. Pure."""
    if isinstance(command, Intend):
        return _intend(effect, command, standing)
    if isinstance(command, _DECISIONS) and command.ahead:
        ahead = foreseen.decided(effect, command, standing.ahead)
        if not isinstance(ahead, _DECISIONS):
            return ahead if isinstance(ahead, Refusal) else Decision((ahead,))
        command = ahead
    if effect is None:
        return _no(Code.STALE_VIEW, f"no effect {command.key} is on record")
    if isinstance(command, _OUTCOMES):
        return _outcome(effect, command, standing)
    if isinstance(command, MarkUnfenced):
        sub = effect.submission(command.n)
        if sub is None or not sub.open:
            return _no(Code.STALE_VIEW, f"submission {command.n} is not open")
        worse = not sub.unfenced or (command.why == "child" and sub.unfenced != "child")  # a child outlives its process
        return Decision((j.Unfenced(command.key, command.n, command.why),) if worse else ())
    if isinstance(command, NoteSenderGone):
        return Decision(
            tuple(
                j.SenderGone(command.key, s.n, command.dead)
                for s in effect.open
                if s.session == command.session and not (s.dead if command.dead else s.fenced)
            )
        )
    if isinstance(command, Settle):
        return _settle(effect, command, standing)
    if isinstance(command, NoteWatched):
        said = watching.decided(effect, command)
        return said if isinstance(said, Refusal) else Decision((said,))
    if isinstance(command, Credit):
        return _credit(effect, command, standing)
    if isinstance(command, Void):
        return _void(effect, command, standing)
    return _person(effect, command)


def _person(effect: Effect, command: Approve | Deny | Renew | Reverse | Answer) -> Decision | Refusal:
    """What a person decides."""
    if isinstance(command, Answer):
        return _answer(effect, command)
    said: j.Happened | Refusal
    if isinstance(command, Renew):
        said = generations.renewed(effect, command)
    elif isinstance(command, Reverse):
        said = reversal.decided(effect, command)
    else:
        said = approvals.decided(effect, command)
    return said if isinstance(said, Refusal) else Decision((said,))


def _intend(effect: Effect | None, c: Intend, standing: Standing) -> Decision | Refusal:
    barred = _barred(effect, c, standing)
    if barred:
        return barred
    if effect is not None:
        known = _known(effect, c, standing)
        if known:
            return known
    limited = _limited(effect, c, standing)
    if limited:
        return limited
    if effect is None and c.again:
        return _no(Code.STALE_VIEW, f"no effect {c.key} is on record")
    held = approvals.held(effect, c, standing.cancelled)  # before any doubt: what is assumed may be sent again
    if isinstance(held, Refusal):
        return held
    if held is not None:
        return _asked(effect, c, standing, held)
    if standing.cancelled and not c.again:
        return _no(Code.CANCELLED, "the task was cancelled: it starts nothing more")
    if c.doubt is not None and _doubtful(effect, c, c.doubt):
        return Decision((*_drift(effect, c), _assumed(effect, c, c.doubt)))
    if unseen := identity.pending(c):
        return unseen
    fresh = effect is None or (effect.asked is None and effect.digest != c.digest)
    return Decision((
        *_drift(effect, c), j.Intended(
            c.key, n=len(effect.sent) + 1 if effect else 1, name=c.name, task=c.task, attempt=c.attempt, token=c.token,
            session=c.session, args=c.args if fresh and not c.again else None, digest=c.digest if fresh and not c.again else "",
            material=c.material if effect is None else "", occurrence=c.occurrence, generation=c.generation,
            recovery=c.recovery if effect is None or effect.recovery != c.recovery else (),
            timeout_ms=c.timeout_ms, unfenced=c.unfenced, again=c.again,
            observed=dict(c.observed.identity or ()) if c.observed else None,
        ),
    ))  # fmt: skip


def _asked(effect: Effect | None, c: Intend, standing: Standing, held: j.Asked) -> Decision | Refusal:
    """It is asked for; and if enough people have approved exactly this before it came, it goes on at once."""
    given = foreseen.counting(standing.ahead, c) if effect is None else ()
    before = (*_drift(effect, c), held, *given)
    if len(given) < held.approvers:
        return Decision(before)
    asked: Effect | None = None
    for event in (held, *given):
        asked = apply(asked, event, 0, c.at)
    more = _intend(asked, c, replace(standing, ahead=()))
    return more if isinstance(more, Refusal) else replace(more, events=(*before, *more.events))


def _drift(effect: Effect | None, c: Intend) -> tuple[j.Happened, ...]:
    """R21: what people were shown, or have approved, is sent, in whatever words the agent asks for it now."""
    if effect is None or effect.asked is None or c.again or effect.worded(c.digest) or c.digest == c.said:
        return ()
    return (j.Drifted(c.key, c.args, c.digest, c.attempt),)


def _doubtful(effect: Effect | None, c: Intend, doubt: Doubt) -> bool:
    """R20: whether this is the first submission of the key since the store went back, and a second one would matter."""
    if c.again or c.recovery[:1] in (("repeat",), ("atomic",)):  # what is written in the ledger's own database went back too
        return False
    return effect is None or not any(s.token >> EPOCH_SHIFT >= doubt.epoch for s in effect.sent)


def _assumed(effect: Effect | None, c: Intend, doubt: Doubt) -> j.Assumed:
    recorded = effect is not None and effect.asked is not None
    return j.Assumed(
        c.key, n=len(effect.sent) + 1 if effect else 1, name=c.name, task=c.task, attempt=c.attempt, token=c.token,
        since=doubt.since, args=None if recorded else c.args, digest="" if recorded else c.digest,
        material=c.material if effect is None else "", occurrence=c.occurrence, generation=c.generation, recovery=c.recovery,
        unfenced="process" if doubt.unfenced else c.unfenced,
    )  # fmt: skip


def _barred(effect: Effect | None, c: Intend, standing: Standing) -> Refusal | None:
    if not standing.current:
        return _no(Code.STALE_TOKEN, f"attempt {c.attempt} no longer owns the task")
    if other := identity.refused(c, effect, standing.bound):
        return other
    if standing.suspended:
        return _no(Code.UNKNOWN_OUTSTANDING, f"this attempt is suspended ({standing.suspended}): it starts nothing more")
    if standing.unknown:
        return _no(Code.UNKNOWN_OUTSTANDING, f"the outcome of {standing.unknown} is unknown: nothing else may start")
    return None


def _known(effect: Effect, c: Intend, standing: Standing) -> Decision | Refusal | None:
    """The answer for a key that is on record, or None if it may be submitted."""
    state = effect.state
    if state is EffectState.AMBIGUOUS and not c.again:
        return _no(Code.UNKNOWN_OUTSTANDING, f"the outcome of {effect.name} is unknown")
    if state is EffectState.SUBMITTED:
        return _no(Code.IN_FLIGHT, f"{effect.name} is in flight")
    if c.again:
        return _not_again(effect)
    if generations.gone(effect):  # a task that never had the act has it new, whatever the generation
        return (_limited(effect, c, standing) if standing.new else None) or Decision(recorded=effect)
    if c.material != effect.material:
        return _no(Code.INTENT_CHANGED, f"a material argument of {effect.name} differs from the one on record")
    if state is EffectState.CONFIRMED:
        return _recall(effect, c, standing)
    if effect.told is not None:
        return _believe_told(effect, effect.told, c, standing)
    return Decision(recorded=effect) if effect.declined is not None else None


def _not_again(effect: Effect) -> Refusal | None:
    """A resubmission is a way out of an unknown and of nothing else: what came in meanwhile may have settled it."""
    if effect.state is not EffectState.AMBIGUOUS:
        return _no(Code.STALE_VIEW, "nothing is unknown any more")
    if effect.told is not None:
        return _no(Code.STALE_VIEW, f"there is evidence that {effect.name} happened: it is read first")
    return _no(Code.STALE_VIEW, f"{effect.name} is in conflict: only a person can tell") if effect.conflict else None


def _believe_told(effect: Effect, told: Evidence, c: Intend, standing: Standing) -> Decision | Refusal:
    """R2: a not_found closed it, and then its sender said that it had happened. Evidence is read before anything starts."""
    event = j.Confirmed(effect.key, told.n, told.result, told.reason, "evidence")
    happened = apply(effect, event, effect.version + 1, told.at)
    assert happened is not None
    answer = _recall(happened, c, standing)
    return answer if isinstance(answer, Refusal) else Decision((event, *answer.events), answer.recorded)


def _recall(effect: Effect, c: Intend, standing: Standing) -> Decision | Refusal:
    """R9: the same key again, after it was confirmed."""
    if effect.worded(c.digest) or c.digest == c.said:
        return Decision(recorded=effect)
    if c.said is not None or standing.clean:
        message = f"{effect.name} was done, in other words; on purpose: using(occurrence=...)"
        return _no(Code.ALREADY_DONE, message, effect.result)
    return Decision((j.Drifted(c.key, c.args, c.digest, c.attempt),), effect)


def _limited(effect: Effect | None, c: Intend, standing: Standing) -> Refusal | None:
    if (standing.over or standing.beyond) and not c.again:
        return _no(Code.LIMIT_REACHED, standing.over or standing.beyond)
    if (effect is not None and not standing.new) or c.generation:  # a further one is the same act, tried again by permission
        return None
    if c.limit is not None and standing.used >= c.limit:
        return _no(Code.LIMIT_REACHED, f"the task may have {c.limit} different effects, and has had them")
    if c.per_task is not None and standing.used_here >= c.per_task:
        return _no(Code.LIMIT_REACHED, f"{c.name} may happen {times(c.per_task)} per task, and has")
    return None


def _outcome(effect: Effect, c: Confirm | Disprove | Lose, standing: Standing) -> Decision | Refusal:
    sub = effect.submission(c.n)
    if sub is None or sub.token != c.token or c.sender not in (None, (sub.task, sub.attempt)):
        return _no(Code.STALE_VIEW, f"{effect.name} has no submission {c.n} of this sender")
    if sub.open and not effect.confirmed and standing.current and not sub.fenced:
        if isinstance(c, Confirm):
            return Decision((j.Confirmed(c.key, c.n, c.result, c.unrecorded, c.how),))
        if isinstance(c, Disprove):
            return Decision((j.Disproved(c.key, c.n, c.reason, c.final, c.detail),))
        if not sub.lost:
            return Decision((j.Lost(c.key, c.n, c.why, c.ended),))
    return _late(sub, c)


def _late(sub: Sent, c: Confirm | Disprove | Lose) -> Decision:
    """R2: it no longer decides. Once per submission, and only if it says something new."""
    if sub.ended:
        return Decision()
    if isinstance(c, Confirm):
        return Decision((j.Late(c.key, c.n, RETURNED, c.result, c.unrecorded),))
    if isinstance(c, Disprove):
        return Decision((j.Late(c.key, c.n, NOT_DONE, c.detail, c.reason),))
    return Decision((j.Late(c.key, c.n, RAISED, None, c.why),) if c.ended else ())


def _settle(effect: Effect, c: Settle, standing: Standing) -> Decision | Refusal:
    if not standing.current:
        return _no(Code.STALE_TOKEN, "this attempt no longer owns the task")
    if other := identity.refused(c, effect, standing.bound):
        return other
    if effect.state is EffectState.SUBMITTED:
        return _no(Code.IN_FLIGHT, f"{effect.name} is in flight")
    if effect.state is not EffectState.AMBIGUOUS:
        return _no(Code.STALE_VIEW, f"{effect.name} is settled")
    doubted = _doubted(effect, c) if c.verdict == "not_found" else None
    as_whom = dict(c.observed.identity or ()) if c.observed else None
    return doubted or Decision((j.Found(c.key, c.verdict, c.how, c.result, c.reason, observed=as_whom),))


def _doubted(effect: Effect, c: Settle) -> Refusal | None:
    """R4: why a not_found is not believed. What came in since it was asked for is read first."""
    answered = effect.answered
    if not watching.known_when_asked(effect, c):
        if not effect.quiet and not (answered is not None and answered.stopped):
            return _no(Code.UNKNOWN_OUTSTANDING, f"a sender of {effect.name} may still act: not_found is not believed")
        if c.waited_ms < c.settle_ms:
            return _no(Code.UNKNOWN_OUTSTANDING, f"settle is not over ({c.waited_ms} of {c.settle_ms} ms)")
    if c.seen and len(effect.sent) > c.seen:
        return _no(Code.STALE_VIEW, f"{effect.name} was submitted again since it was looked for")
    if effect.told is not None:
        return _no(Code.STALE_VIEW, f"there is evidence that {effect.name} happened: it is read first")
    if answered is None and (effect.conflict or c.how == PERSON):
        return _no(Code.STALE_VIEW, f"no person says that {effect.name} did not happen")
    if c.how == PERSON and not effect.watched:  # an answer that stands beside it came after it
        return _no(Code.UNKNOWN_OUTSTANDING, f"settle was not over when a person said that {effect.name} did not happen")
    return None


def _credit(effect: Effect, c: Credit, standing: Standing) -> Decision | Refusal:
    if not standing.current:
        return _no(Code.STALE_TOKEN, "this attempt no longer owns the task")
    sub = effect.submission(c.n)
    found = next((e for e in effect.evidence if e.n == c.n and e.outcome != RAISED), None)
    if sub is None or found is None or effect.confirmed or not (sub.open or found.outcome == RETURNED):
        return _no(Code.STALE_VIEW, f"there is no evidence about submission {c.n} of {effect.name} to believe")
    if found.outcome == RETURNED:
        return Decision((j.Confirmed(c.key, c.n, found.result, found.reason, "evidence"),))
    return Decision((j.Disproved(c.key, c.n, found.reason, detail=found.result),))


def _void(effect: Effect, c: Void, standing: Standing) -> Decision | Refusal:
    """R7: the confirm was decided on the row before this one's place, or earlier. It is not there, so it never will be."""
    if not standing.current:
        return _no(Code.STALE_TOKEN, "this attempt no longer owns the task")
    sub = effect.submission(c.n)
    if sub is None or not sub.open or effect.told is not None:
        return _no(Code.STALE_VIEW, f"submission {c.n} of {effect.name} is settled")
    if not sub.lost and c.sender != (sub.task, sub.attempt):
        return _no(Code.IN_FLIGHT, f"{effect.name} is in flight")
    if not effect.atomic or effect.conflict:
        return _no(Code.STALE_VIEW, f"the journal alone cannot say whether {effect.name} happened")
    return Decision((j.Void(), j.Disproved(c.key, c.n, "its transaction did not commit, and cannot any more")))


def _answer(effect: Effect, c: Answer) -> Decision | Refusal:
    if effect.state is EffectState.SUBMITTED:
        return _no(Code.IN_FLIGHT, f"{effect.name} is in flight: look again when it has settled or is unknown")
    if effect.version != c.seen or effect.state is not EffectState.AMBIGUOUS:
        return _no(Code.STALE_VIEW, f"{effect.name} has moved on since you looked (it is {effect.state}): look again")
    if c.verdict == "not_found":
        if effect.unfenced and not c.stopped:
            return _no(
                Code.UNKNOWN_OUTSTANDING,
                "a sender of it cannot be fenced by semel: say that its process has stopped (--process-stopped)",
            )
        return Decision((j.Answered(c.key, c.reason, c.stopped),))
    return Decision((j.Found(c.key, c.verdict, f"person:{c.by}", c.result, c.reason),))

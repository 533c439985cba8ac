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

from typing import Any

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
    Names,
    NoteSenderGone,
    NoteWatched,
    Renew,
    Reverse,
    Settle,
    Void,
)
from semel.machine.records import record, replace
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
]
EPOCH_SHIFT = 30  # a token is (epoch, counter) in one signed 64-bit integer, epochs being seconds: good until 2242
NOT_DONE, RAISED = "not_done", "raised"
ATOMIC = "atomic"  # the rung of an effect that writes in the ledger's own database
PERSON = "person"  # how a not_found is settled that a person answered
_BEGIN = (j.Intended, j.Assumed)
_OUTCOMES = (Confirm, Disprove, Lose)
_DECISIONS = (Approve, Deny)


@record
class Sent:
    """One submission on record. open: its outcome is not proved. lost: nobody waits for it any more.

    What may be said of its sender: ended (its code returned or raised), fenced (its session is fenced, and the kernel
    kills what is not), dead (its process is proved to be gone). unfenced: "" | "process" | "child" (R4). assumed: nobody
    remembers it; the store went back, and may have forgotten it (R20). observed: as whom it was sent.
    """

    n: int
    task: str
    attempt: int
    token: int
    session: str
    at: int
    open: bool = True
    lost: bool = False
    ended: bool = False
    fenced: bool = False
    dead: bool = False
    unfenced: str = ""
    assumed: bool = False
    observed: Names = ()

    @property
    def quiet(self) -> bool:
        """Whether its sender can act no more."""
        if self.ended and self.unfenced != "child":  # else its code has ended, and what it made acts on
            return True
        return self.unfenced != "child" and (self.dead or (self.fenced and not self.unfenced))

    @property
    def beyond_proof(self) -> bool:
        """Whether only a person's word can quiet it: no waiting teaches more."""
        return bool(self.unfenced) and (self.ended or self.fenced) and not self.quiet


@record
class Evidence:
    """What came in when it could no longer decide anything by itself (R2)."""

    n: int
    outcome: str
    result: Json
    reason: str
    at: int


@record
class Effect:
    """All that is on record of one key. clean_since: when it was first sent since it was last provably clean (R1).

    asked: the call as it was asked for, if people must approve it; asked_at: since when it waits; askers: the tasks that
    wait for it; args, digest: what is sent, which they may have edited (R21); word: the verdict that a person may take back;
    renewed: what opened its next generation. settled: settle is known to be over for submissions up to this one.
    """

    key: str
    name: str
    args: Json
    digest: str
    material: str
    occurrence: str
    generation: int
    recovery: tuple[str, ...]
    sent: tuple[Sent, ...] = ()
    clean_since: int = 0
    confirmed: bool = False
    result: Json = None
    unrecorded: str = ""
    declined: j.Disproved | None = None
    evidence: tuple[Evidence, ...] = ()
    answered: j.Answered | None = None
    conflict: str = ""
    barred: str = ""
    unavailable: int = 0
    unavailable_since: int = 0
    lost_at: int = 0
    asked: j.Asked | None = None
    asked_at: int = 0
    askers: frozenset[str] = frozenset()
    approvals: tuple[j.Approved, ...] = ()
    denied: j.Denied | None = None
    word: reversal.Word | None = None
    renewed: j.Renewed | None = None
    version: int = 0
    settled: int = 0

    @property
    def task(self) -> str:
        """The task that sent it last, or, if it was never sent, that asked for it last."""
        return self.sent[-1].task if self.sent else self.asked.task if self.asked else ""

    @property
    def waiting(self) -> bool:
        """Whether it waits for people to approve or deny it (R21)."""
        if self.asked is None or self.denied is not None or self.declined is not None or self.told is not None or self.renewed:
            return False
        return self.state is EffectState.NOT_ATTEMPTED and len(self.approvals) < self.asked.approvers

    def worded(self, digest: str) -> bool:
        """Whether a call in these words is the recorded one: as it was asked for, or as it was edited and sent."""
        return digest == self.digest or (self.asked is not None and digest == self.asked.digest)

    @property
    def open(self) -> tuple[Sent, ...]:
        """The submissions whose outcome is not proved."""
        return tuple([s for s in self.sent if s.open])

    @property
    def state(self) -> EffectState:
        """The state, read off the submissions."""
        if self.confirmed:
            return EffectState.CONFIRMED
        state = EffectState.NOT_ATTEMPTED
        for s in self.sent:
            if s.open and not s.lost:
                return EffectState.SUBMITTED
            if s.open:
                state = EffectState.AMBIGUOUS
        return state

    @property
    def unknown(self) -> bool:
        """Whether an earlier submission's outcome is unknown, even while a further one is in flight (R1)."""
        return any(s.lost for s in self.open)

    @property
    def quiet(self) -> bool:
        """Whether no sender of an open submission can act any more."""
        return all(s.quiet for s in self.open)

    @property
    def watched(self) -> bool:
        """Whether the record says that settle is over for all that is open: nothing of it can act any more (R4)."""
        return all(s.n <= self.settled for s in self.open)

    @property
    def unfenced(self) -> bool:
        """Whether a person's not_found needs their word that a process has stopped (R4)."""
        return any(s.unfenced and not s.quiet and s.n > self.settled for s in self.open)

    @property
    def atomic(self) -> bool:
        """Whether what is open of it was sent in the transaction of its confirm: then the journal says what happened."""
        return self.recovery[:1] == (ATOMIC,)

    @property
    def told(self) -> Evidence | None:
        """Late evidence that it happened. True of the key for ever, even if what it speaks of was closed by a not_found."""
        return next((found for found in self.evidence if found.outcome == RETURNED), None)

    def submission(self, n: int) -> Sent | None:
        """Submission `n`, counted from 1."""
        return self.sent[n - 1] if 0 < n <= len(self.sent) else None


@record
class Standing:
    """What the rest of the task says about the caller.

    current: its token is the task's, and the task is leased. suspended: why this attempt may start nothing.
    unknown: a key, other than this one, whose outcome is unknown. used, used_here: different effects so far, in all and
    of this name. clean: the work before this attempt ended cleanly (R9). cancelled: a person cancelled the task. over: which
    limit of the task is exceeded. new: the key is not one of the task's yet, though other tasks may have it (R8). bound: the
    task's identity. beyond: why the key may not be sent after the replay that the task is in (R23). ahead: approvals that
    came before the call.
    """

    current: bool = True
    suspended: str = ""
    unknown: str = ""
    used: int = 0
    used_here: int = 0
    clean: bool = False
    cancelled: bool = False
    over: str = ""
    new: bool = False
    bound: Names = ()
    beyond: str = ""
    ahead: tuple[j.Approved, ...] = ()


@record
class Decision:
    """What is to be appended; and, for a key that is already decided, the effect whose record is the answer."""

    events: tuple[j.Happened, ...] = ()
    recorded: Effect | None = None


def _no(code: Code, message: str, result: Json = None) -> Refusal:
    return Refusal(code, message, result)


# --- decide ---------------------------------------------------------------------------------------------------------


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


# --- apply ----------------------------------------------------------------------------------------------------------


def apply(effect: Effect | None, event: j.OfEffect, seq: int, at: int) -> Effect | None:
    """The effect after `event`, which stands at `seq` of its stream and was written at `at` (milliseconds)."""
    if isinstance(event, _BEGIN):
        return _apply_intended(effect, event, seq, at)
    if isinstance(event, j.Asked):
        return _apply_asked(effect, event, seq, at)
    if effect is None:
        return None  # a call that was declined before anything was on record
    word = reversal.word_of(effect, event, seq)
    if isinstance(event, j.Confirmed):
        sent = _changed(effect.sent, event.n, close_all=True, ended=event.how == RETURNED)
        return replace(
            effect, version=seq, word=word, confirmed=True, result=event.result, unrecorded=event.unrecorded, conflict="",
            sent=sent,
        )  # fmt: skip
    effect = replace(effect, version=seq, word=word)
    if isinstance(event, j.Disproved):
        effect = _sub(effect, event.n, open=False, ended=True)
        if event.final and effect.open:  # the provider's definite no to sending it again: only of that try, but no more tries
            return replace(effect, barred=event.reason)
        return replace(effect, declined=event if event.final else effect.declined)
    if isinstance(event, j.Lost):
        sub = effect.submission(event.n)
        assert sub is not None
        effect = _sub(
            effect,
            event.n,
            lost=True,
            ended=sub.ended or event.ended,
            fenced=sub.fenced or event.fenced,
            dead=sub.dead or event.dead,
        )
        return replace(effect, lost_at=effect.lost_at or at)
    if isinstance(event, j.Late):
        found = Evidence(event.n, event.outcome, event.result, event.reason, at)
        return _sub(replace(effect, evidence=(*effect.evidence, found)), event.n, ended=True)
    if isinstance(event, j.Unfenced):
        return _sub(effect, event.n, unfenced=event.why)
    if isinstance(event, j.SenderGone):
        return _sub(effect, event.n, fenced=True, dead=event.dead)
    if isinstance(event, j.Found):
        return _apply_found(effect, event, at)
    return _apply_decided(effect, event)


def _apply_decided(effect: Effect, event: j.OfEffect) -> Effect:
    if isinstance(event, j.Answered):
        return replace(effect, answered=event)
    if isinstance(event, j.Watched):
        return watching.noted(effect, event)
    if isinstance(event, j.Approved):
        sent = {} if event.args is None else {"args": event.args, "digest": event.digest}
        return replace(effect, approvals=approvals.left(effect, event), denied=None, **sent)
    if isinstance(event, j.Reversed):
        return reversal.taken_back(effect, event)
    if isinstance(event, j.Renewed):
        return replace(effect, renewed=event)
    return replace(effect, approvals=(), denied=event) if isinstance(event, j.Denied) else effect


def _apply_asked(effect: Effect | None, x: j.Asked, seq: int, at: int) -> Effect:
    """args and digest come with the first; a later one keeps them, edited or not, and the approvals that still count."""
    if effect is None:
        effect = Effect(x.key, x.name, x.args, x.digest, x.material, x.occurrence, x.generation, x.recovery)
    if effect.asked is not None:
        first = effect.asked
        since = effect.asked_at if effect.waiting else at
        asked = replace(first, task=x.task, attempt=x.attempt, approvers=x.approvers)
    else:
        effect, since, asked = replace(effect, args=x.args, digest=x.digest), at, x
    return replace(
        effect, version=seq, asked=asked, asked_at=since, askers=effect.askers | {x.task},
        approvals=approvals.standing(effect, x.now),
    )  # fmt: skip


def _apply_intended(effect: Effect | None, e: j.Intended | j.Assumed, seq: int, at: int) -> Effect:
    if isinstance(e, j.Assumed):
        since = min(at, e.since)
        sent = Sent(e.n, e.task, e.attempt, e.token, "", since, lost=True, fenced=True, unfenced=e.unfenced, assumed=True)
    else:
        since = at
        seen = identity.names(e.observed) if e.observed else ()
        sent = Sent(e.n, e.task, e.attempt, e.token, e.session, at, unfenced=e.unfenced, observed=seen)
    lost_at = at if sent.assumed else 0
    if effect is None:
        return Effect(
            e.key, e.name, e.args, e.digest, e.material, e.occurrence, e.generation, e.recovery, (sent,), since, lost_at=lost_at,
            version=seq,
        )  # fmt: skip
    clean = not effect.open
    if clean:
        effect = replace(
            effect, lost_at=lost_at, barred="", unavailable=0, unavailable_since=0
        )  # patience is for this unknown, not the last
    return replace(
        effect, version=seq, sent=(*effect.sent, sent), clean_since=since if clean else effect.clean_since,
        args=e.args if e.digest else effect.args, digest=e.digest or effect.digest,
        recovery=e.recovery or effect.recovery, answered=None, conflict="",
    )  # fmt: skip


def _apply_found(effect: Effect, e: j.Found, at: int) -> Effect:
    if e.verdict == "confirmed":
        return _sub(replace(effect, confirmed=True, result=e.result, conflict=""), 0, close_all=True)
    if e.verdict == "not_found":
        return _sub(replace(effect, conflict="", answered=None, unavailable=0, unavailable_since=0, lost_at=0), 0, close_all=True)
    if e.verdict == "conflict":
        return replace(effect, conflict=e.reason or "conflict", answered=None)  # it contradicts an earlier "not there"
    return replace(effect, unavailable=effect.unavailable + 1, unavailable_since=effect.unavailable_since or at)


def _sub(effect: Effect, n: int, **facts: Any) -> Effect:
    """The effect with submission `n` changed."""
    return replace(effect, sent=_changed(effect.sent, n, **facts))


def _changed(
    sent: tuple[Sent, ...],
    n: int,
    *,
    close_all: bool = False,
    open: bool | None = None,
    lost: bool = False,
    ended: bool = False,
    fenced: bool = False,
    dead: bool = False,
    unfenced: str = "",
) -> tuple[Sent, ...]:
    """The submissions with `n` changed: facts are only ever added, and a closed submission is never opened."""
    subs = []
    for s in sent:
        if s.n == n:
            s = replace(
                s,
                open=s.open and open is not False and not close_all,
                lost=s.lost or lost,
                ended=s.ended or ended,
                fenced=s.fenced or fenced,
                dead=s.dead or dead,
                unfenced=unfenced or s.unfenced,
            )
        elif close_all and s.open:
            s = replace(s, open=False)
        subs.append(s)
    return tuple(subs)

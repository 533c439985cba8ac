"""Performing an effect that writes in the ledger's own database: its writes and its confirm are committed together (R7).

Its intent is durable before, as for any effect. As long as no COMMIT was sent, whatever ends the transaction is proof that
nothing happened. A COMMIT that was not answered is answered by the journal: a `void` row takes the confirm's place, or finds
that the confirm is there. So no outcome is ever left for a person, but where the function itself ended the transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from semel.engine import perform as p
from semel.engine.acting import Acting
from semel.engine.declare import Effect
from semel.engine.drive import THREADS
from semel.engine.ledger import Draft
from semel.engine.requests import Call, Raised, Request, Returned, TimedOut
from semel.errors import Misuse, NotDone
from semel.machine import effects as e
from semel.machine import journal as j
from semel.model import Code, Refusal, Submission
from semel.store.contract import ENDED_BY_ITSELF, Broken, Fenced, Landed, Lends, Lent, Unanswered, Undone

if TYPE_CHECKING:
    from semel.engine.attempt import Attempt
    from semel.engine.runtime import Code as Running

    Outcome = p.Done | p.Clean | p.Unknown

log = logging.getLogger("semel")
Ended = Landed | Fenced | Broken | Undone | Unanswered


def submit(
    attempt: Attempt,
    effect: Effect,
    doing: p.Doing,
    code: Running,
    submission: Submission,
    values: dict[str, Any],
    lender: Lends,
) -> Generator[Request, Any, Outcome]:
    """Begin, call, confirm, commit. The intent is durable, and the kernel timer is armed until it is over."""
    seconds = submission.seconds_left
    begin = partial(lender.lend, seconds, min(seconds, attempt.session.ttl))
    begun = yield Call(begin, False, late=lambda late: _unused(late, code), inline=True)
    if not isinstance(begun, Returned):
        code.ended()
        error = begun.error if isinstance(begun, Raised) else TimeoutError()
        return _clean(attempt, doing, f"not called: {p.describe(error, attempt.veil)}", error, retry=isinstance(error, Exception))
    lent: Lent = begun.value
    submission.connection = lent.connection(effect.is_async)
    acting = Acting()

    def given_up(outcome: Returned | Raised) -> None:
        acting.when_quiet(lambda: THREADS.run(lambda: _undone_late(attempt, doing, code, lent)))

    fn = attempt.runtime.guarded(effect.fn, attempt, doing, acting)
    reply = yield Call(fn, effect.is_async, (submission,), values, submission.seconds_left, given_up)
    if isinstance(reply, TimedOut):
        attempt.ledger.post(e.Lose(doing.key, doing.n, doing.token, f"no answer within {doing.seconds:g} s", False, doing.sender))
        return p.Unknown()
    command, answer = p._outcome(effect, doing, reply)
    if not acting.quiet:
        lent.take_back()
        acting.when_quiet(lambda: THREADS.run(lambda: _over(code, lent)))  # it may be an event loop that learns of it
        error = reply.error if isinstance(reply, Raised) else Misuse(
            f"effect {effect.name} returned while what it started still ran, so it was rolled back; await that before it returns"
        )  # fmt: skip
        return _clean(attempt, doing, f"rolled back: {p.describe(error, attempt.veil)}", error)
    if not isinstance(command, e.Confirm) or command.unrecorded:
        return (yield from _roll_back(attempt, effect, doing, code, lent, reply, command))
    ended = yield Call(partial(_land, attempt, doing, code, lent, command), False, inline=True)
    outcome: Ended = ended.value if isinstance(ended, Returned) else Undone(ended.error)
    if isinstance(outcome, Landed):
        return answer
    return (yield from _not_landed(attempt, effect, doing, lent, outcome))


def _unused(late: Returned | Raised, code: Running) -> None:
    """It was begun when nobody waited for it any more."""
    code.ended()
    if isinstance(late, Returned):
        THREADS.run(late.value.end)


def _over(code: Running, lent: Lent) -> None:
    lent.end()
    code.ended()


def _undone_late(attempt: Attempt, doing: p.Doing, code: Running, lent: Lent) -> None:
    """Its function ended when its time was over: it is rolled back, which is evidence (R2)."""
    _over(code, lent)
    if lent.strange:
        log.error("semel: effect %s ended its transaction by itself, after its time was over", doing.key)
        return
    late = e.Disprove(doing.key, doing.n, doing.token, "its time was over: rolled back", sender=doing.sender)
    attempt.ledger.post(late, after=attempt.evidence_came)


def _clean(attempt: Attempt, doing: p.Doing, why: str, error: BaseException, *, retry: bool = False) -> p.Clean:
    attempt.ledger.post(e.Disprove(doing.key, doing.n, doing.token, why, sender=doing.sender))
    return p.Clean(error, retry)


def _roll_back(
    attempt: Attempt,
    effect: Effect,
    doing: p.Doing,
    code: Running,
    lent: Lent,
    reply: Returned | Raised,
    command: e.Confirm | e.Disprove | e.Lose,
) -> Generator[Request, Any, Outcome]:
    """The function raised, or its result cannot be recorded: nothing happened, since nothing was committed."""
    yield Call(partial(_over, code, lent), False, inline=True)
    if lent.strange:
        return (yield from _not_landed(attempt, effect, doing, lent, Broken(ENDED_BY_ITSELF)))
    if isinstance(command, e.Disprove):  # in the function's own words
        attempt.ledger.post(command)
        assert isinstance(reply, Raised)
        retry = not command.final
        return p.Clean(reply.error, retry)
    if isinstance(reply, Returned) or isinstance(command, e.Confirm):
        unrecorded = command.unrecorded if isinstance(command, e.Confirm) else ""
        error: BaseException = Misuse(
            f"effect {effect.name} was rolled back, since its result cannot be recorded: {unrecorded}; return plain data"
        )
    else:
        error = reply.error
    return _clean(attempt, doing, f"rolled back: {p.describe(error, attempt.veil)}", error, retry=lent.passing(error))


def _land(attempt: Attempt, doing: p.Doing, code: Running, lent: Lent, command: e.Confirm) -> Ended:
    """Decide and commit, again whenever a rival was faster; on one thread to its end, whoever has stopped waiting for it.

    The function's writes stay in the open transaction meanwhile: only the confirm is decided again.
    """
    try:
        while True:
            draft = attempt.ledger.drafted(command, attempt.session.guard())
            if isinstance(draft, Refusal) or not _confirms(draft):
                return Undone(NotDone("it was settled, or taken over, before it could be confirmed"))
            began = time.monotonic()
            outcome = lent.land(draft.change)
            if isinstance(outcome, Landed):
                attempt.ledger.landed(draft)
                attempt.runtime.committed(draft.change, outcome, time.monotonic() - began)
            if isinstance(outcome, Landed | Fenced | Broken | Undone | Unanswered):
                return outcome
            if attempt.clock.boot() >= doing.began + doing.seconds:
                return Undone(NotDone("others wrote to its task until its time was over"))
            attempt.desk.writer.barrier().wait(1.0)  # what this process has queued before it lands first
            attempt._look_again()
            time.sleep(0.002)
    except Exception as error:
        return Undone(error)  # no COMMIT was sent: whatever comes of that is an outcome
    finally:
        _over(code, lent)


def _confirms(draft: Draft) -> bool:
    return any(isinstance(event, j.Confirmed) for event in draft.decision.events)


def _not_landed(
    attempt: Attempt, effect: Effect, doing: p.Doing, lent: Lent, outcome: Fenced | Broken | Undone | Unanswered
) -> Generator[Request, Any, Outcome]:
    if isinstance(outcome, Unanswered):
        return (yield from _rule_out(attempt, effect, doing))
    if isinstance(outcome, Fenced):
        yield from p.not_sent(attempt, doing)
    if isinstance(outcome, Broken):
        attempt.ledger.post(e.Lose(doing.key, doing.n, doing.token, outcome.why, True, doing.sender))
        yield from attempt.ledger.commit(e.Settle(doing.key, attempt.token, "conflict", e.ATOMIC, reason=outcome.why))
        return p.Unknown()
    assert isinstance(outcome, Undone)
    error = outcome.error
    retry = lent.passing(error) or isinstance(error, NotDone)
    return _clean(attempt, doing, f"rolled back: {p.describe(error, attempt.veil)}", error, retry=retry)


def _rule_out(attempt: Attempt, effect: Effect, doing: p.Doing) -> Generator[Request, Any, Outcome]:
    """R7: whoever has the place in the journal says what became of the COMMIT. It waits for one that is still under way."""
    void = e.Void(doing.key, doing.n, attempt.token, doing.sender)
    decided = yield from attempt.ledger.commit(void, guard=attempt.session.guard, scope=effect.scope)
    known = attempt.ledger.effect(doing.key)
    if known is not None and known.confirmed:
        return p.Done(p.recorded(attempt, effect, known))
    if isinstance(decided, Refusal) and decided.code in (Code.STALE_TOKEN, Code.FENCED):
        yield from attempt.suspend(decided, doing.key, effect)
    return p.Clean(NotDone("its transaction did not commit"), True)

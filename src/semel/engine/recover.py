"""Climbing the ladder: doing what the machine says may be done about an unknown, until it is settled or somebody must wait."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from semel.engine import identity, redaction
from semel.engine import perform as p
from semel.engine.data import NotRecordable
from semel.engine.declare import Effect, Looked
from semel.engine.requests import Call, Raised, Request, Returned
from semel.errors import Misuse
from semel.machine import effects as e
from semel.machine import recovery as r
from semel.machine.commands import Observed
from semel.model import Code, Confirmed, Conflict, EffectState, NotFound, Refusal, Submission, Unavailable

if TYPE_CHECKING:
    from semel.engine.attempt import Attempt

HOLD_SECONDS = 5.0  # what is over sooner is waited for in place; for more, the task is given back


def climb(attempt: Attempt, effect: Effect, key: str) -> Generator[Request, Any, None]:
    """Until the effect is not ambiguous any more. Suspends the attempt when only time or a person can help."""
    empty: set[int] = set()  # the lookups that found nothing while settle was not over
    while True:
        known = attempt.ledger.effect(key)
        if known is None or known.state is not EffectState.AMBIGUOUS:
            return
        yield from note_senders(attempt, known)
        known = attempt.ledger.effect(key)
        assert known is not None
        move = next_move(attempt, effect, known, empty)
        if isinstance(move, r.Wait):
            yield from hold(attempt, move.ms, move.why, key)
        elif isinstance(move, r.Person):
            yield from attempt.block(move.why, key)
        elif isinstance(move, r.Look):
            if (yield from look(attempt, effect, known, move.index)):
                empty.add(move.index)
        else:
            yield from act(attempt, effect, known, move)


def next_move(attempt: Attempt, effect: Effect, known: e.Effect, empty: set[int]) -> r.Move:
    """The machine's next move; not one that has just come to nothing and must wait, or can never come to more."""
    facts = replace(attempt.facts(known), timeout_ms=effect.timeout_ms)
    move = r.next_move(known, effect.rungs, facts)
    while isinstance(move, r.Look) and move.index in empty:
        left = r.settle_after(known, effect.rungs[move.index], facts)
        if left == 0:
            break  # settle is over: asked once more, its not_found is believed
        if left > 0 or not beyond_proof(known):
            return r.Wait(r.POLL_MS if left < 0 else left, "nothing was found; settle is being watched")
        move = r.next_move(known, effect.rungs, facts, move.index + 1)
        if isinstance(move, r.Person):
            return r.Person("nothing was found, and nothing can prove that its sender has stopped")
    return move


def beyond_proof(known: e.Effect) -> bool:
    """R4: an open submission of which only a person can say that its sender has stopped. Waiting teaches nothing then."""
    return any(s.beyond_proof for s in known.open)


def act(
    attempt: Attempt, effect: Effect, known: e.Effect, move: r.Credit | r.Believe | r.Note | r.RuleOut | r.Again
) -> Generator[Request, Any, None]:
    """The moves that ask nobody."""
    if isinstance(move, r.Credit):
        yield from settle(attempt, e.Credit(known.key, move.n, attempt.token))
    elif isinstance(move, r.RuleOut):
        yield from settle(attempt, e.Void(known.key, move.n, attempt.token))
    elif isinstance(move, r.Believe):
        yield from settle(attempt, e.Settle(known.key, attempt.token, "not_found", "person", settled=known.settled))
    elif isinstance(move, r.Note):
        waited = attempt.facts(known).waited_ms
        yield from settle(attempt, e.NoteWatched(known.key, len(known.sent), waited, move.settle_ms))
    else:
        yield from resend(attempt, effect, known, move)


def note_senders(attempt: Attempt, known: e.Effect) -> Generator[Request, Any, None]:
    """R4: write down which senders of open submissions are fenced by now, and which are dead: that may come later."""
    for session in sorted({s.session for s in known.open if not s.quiet and s.session != attempt.session.id}):
        row = yield from attempt.desk.off_loop(partial(attempt.desk.store.session, session))
        if row is not None and row.fenced:
            dead = row.fenced == "dead" or attempt.session.knows_dead(row)
            yield from attempt.ledger.commit(e.NoteSenderGone(known.key, session, dead))


def hold(attempt: Attempt, ms: int, why: str, key: str) -> Generator[Request, Any, None]:
    """Wait in place if it is short; else give the task back until then."""
    if attempt.may_hold(ms / 1000):
        yield attempt.clock.pause(ms / 1000)
        if not attempt.session.alive():
            raise (yield from attempt.suspend_fenced())
        yield from attempt.look_again()
    else:
        yield from attempt.park(why, key, ms)


def settle(attempt: Attempt, command: e.Settle | e.NoteWatched | e.Credit | e.Void) -> Generator[Request, Any, bool]:
    """Land a verdict; False: the machine does not believe it (yet). A lost lease suspends."""
    decided = yield from attempt.ledger.commit(command, guard=attempt.session.guard)
    if isinstance(decided, Refusal) and decided.code in (Code.STALE_TOKEN, Code.FENCED):
        yield from attempt.suspend(decided, command.key, None)
    return not isinstance(decided, Refusal)


def resend(attempt: Attempt, effect: Effect, known: e.Effect, move: r.Again) -> Generator[Request, Any, None]:
    """Send the recorded call again, byte for byte, with the same key."""
    try:
        values = effect.parameters.decode(known.args)
    except NotRecordable as error:
        yield from attempt.block(f"the recorded call cannot be sent again: {error}", known.key)
        return
    passed = attempt.clock.wall_ms() - known.sent[-1].at  # while the task was given back, too: else it would wait for ever
    left = move.wait_ms - passed if passed >= 0 else 0
    if left > 0:
        yield from hold(attempt, left, "waiting before it is sent again", known.key)
        return_to = attempt.ledger.effect(known.key)
        if return_to is None or return_to.version != known.version:
            return
    began = attempt.clock.boot()
    observed = yield from identity.before_asking(attempt, effect, known, values)
    cap_ms = move.cap_ms and move.cap_ms - int((attempt.clock.boot() - began) * 1000) - 1  # R13: looking took its time
    if cap_ms is not None and cap_ms <= 0:
        yield attempt.clock.pause(0.002)  # the provider's memory ends within this very millisecond; then the next rung's turn is
        return
    command = e.Intend(
        known.key, known.name, known.args, known.digest, known.material, attempt.ledger.state.id, attempt.number, attempt.token,
        attempt.session.id, known.occurrence, known.generation, known.recovery, effect.timeout_ms, attempt.unfenced, again=True,
        observed=observed,
    )  # fmt: skip
    decided = yield from p.open_submission(attempt, effect, known.key, command, cap_ms)
    if isinstance(decided, Refusal):
        if decided.code is not Code.STALE_VIEW:
            yield from attempt.suspend(decided, known.key, effect)
        return
    assert decided.recorded is None, "what is on record is not sent again"
    try:
        yield from p.submit(attempt, effect, attempt.doing[known.key], values)
    except Misuse:
        pass  # it happened, and its result cannot be recorded: whoever calls it next is told


def look(attempt: Attempt, effect: Effect, known: e.Effect, index: int) -> Generator[Request, Any, bool]:
    """Ask the provider. True: it found nothing, and that is not believed yet."""
    looked = effect.lookups[index]
    redaction.seek(attempt.veil, attempt.ledger.tenant, known, lambda: attempt.runtime.ring)
    try:
        values = effect.parameters.decode(known.args, {*looked.names, *(effect.identity.names if effect.identity else ())})
    except NotRecordable as error:
        yield from attempt.block(f"the recorded call cannot be looked up: {error}", known.key)
        return False
    observed = yield from identity.before_asking(attempt, effect, known, values)
    waited = attempt.facts(known).waited_ms  # before it is asked: what arrives while a slow lookup runs was not looked for
    verdict, mistake = yield from ask(attempt, effect, looked, known, values)
    if mistake is not None:
        yield from attempt.block(mistake, known.key)
    how = f"lookup:{looked.fn.__name__}"
    if isinstance(verdict, Confirmed):
        yield from believe(attempt, effect, known, verdict, how, observed)
    elif isinstance(verdict, NotFound):
        settle_ms = effect.rungs[index].settle_ms
        command = e.Settle(
            known.key, attempt.token, "not_found", how, waited_ms=waited, settle_ms=settle_ms, seen=len(known.sent),
            observed=observed, settled=known.settled,
        )  # fmt: skip
        return not (yield from settle(attempt, command))
    elif isinstance(verdict, Conflict):
        yield from settle(attempt, e.Settle(known.key, attempt.token, "conflict", how, reason=verdict.reason, observed=observed))
    else:
        yield from settle(
            attempt, e.Settle(known.key, attempt.token, "unavailable", how, reason=verdict.reason, observed=observed)
        )
        wait = verdict.retry_after.total_seconds() if verdict.retry_after else min(60.0, 0.25 * 2 ** min(known.unavailable, 8))
        yield from hold(attempt, int(wait * 1000), f"the provider could not be asked: {verdict.reason}", known.key)
    return False


def believe(
    attempt: Attempt, effect: Effect, known: e.Effect, verdict: Confirmed, how: str, observed: Observed | None
) -> Generator[Request, Any, None]:
    """A lookup found it: its result is the effect's, if it fits."""
    try:
        data = attempt.veil.result(effect.result, effect.result.encode(verdict.result))
    except NotRecordable as error:
        yield from attempt.block(f"{how} found it, with a result that does not fit: {error}", known.key)
        return
    yield from settle(attempt, e.Settle(known.key, attempt.token, "confirmed", how, data, observed=observed))


def ask(
    attempt: Attempt, effect: Effect, looked: Looked, known: e.Effect, values: dict[str, Any]
) -> Generator[Request, Any, tuple[Confirmed | NotFound | Conflict | Unavailable, str | None]]:
    """Call the lookup. One that raises is unavailable; one that gives no verdict is a mistake in the code, told to a person."""
    seconds = effect.timeout_ms / 1000
    submission = Submission(
        key=known.key,
        token=known.sent[-1].token,
        tenant=attempt.ledger.tenant,
        task_id=attempt.ledger.state.id,
        attempt=attempt.number,
        number=len(known.sent),
        deadline=attempt.clock.boot() + seconds,
        now=attempt.clock.boot,
    )
    named = {name: values[name] for name in looked.names}
    reply = yield Call(attempt.runtime.looking(looked.fn), looked.is_async, (submission,), named, seconds)
    if isinstance(reply, Returned):
        if isinstance(reply.value, Confirmed | NotFound | Conflict | Unavailable):
            return reply.value, None
        name = looked.fn.__name__
        return Unavailable("no verdict"), (
            f"lookup {name} returned {type(reply.value).__name__}, not a verdict; "
            f"write return semel.NotFound() or semel.Confirmed(result) in {name}"
        )
    if isinstance(reply, Raised):
        return Unavailable(p.describe(reply.error, attempt.veil)), None
    return Unavailable(f"no answer within {seconds:g} s"), None

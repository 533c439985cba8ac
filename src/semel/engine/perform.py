"""Performing an effect: derive the key, intend (durable), arm and check, call, record; and climb the ladder if need be.

The order is the promise: nothing is called before its intent is durable, nothing that may have happened is called not
done, and whatever cannot be settled here suspends the attempt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from semel.engine import approval, atomic, declare, identity, recover, redaction
from semel.engine.acting import Acting
from semel.engine.data import NotRecordable
from semel.engine.declare import Effect
from semel.engine.requests import Await, Call, Raised, Request, Returned, TimedOut
from semel.engine.veil import Veil
from semel.errors import AlreadyDone, Misuse, NotDone, Refused
from semel.machine import effects as e
from semel.machine import generations, keys, replays, tasks
from semel.machine import journal as j
from semel.machine.records import record, replace
from semel.model import READABLE, Code, Json, Refusal, Submission

if TYPE_CHECKING:
    from semel.engine.attempt import Attempt
    from semel.engine.runtime import Code as Running

E = TypeVar("E")
Ended = Callable[[Returned | Raised], None]
MOST_DECLINED = 100  # refusals that an attempt may read; who asks on will not stop by itself
RETRY_SECONDS = 0.2  # the first wait after a proof that nothing happened; doubled each time


@record
class Called:
    """One call of an effect: the values, their record, and what follows from them."""

    effect: Effect
    values: dict[str, Any]
    args: dict[str, Json]
    key: str
    digest: str
    material: str
    occurrence: str
    generation: int = 0


@dataclass(slots=True)
class Doing:
    """A submission under way in this process: waiting until its intent is durable, calling, or ended (R17)."""

    key: str
    n: int
    token: int
    began: float
    seconds: float
    sender: tuple[str, int]
    is_async: bool
    veil: Veil = field(default_factory=Veil)
    _state: str = "waiting"
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def move(self, before: str, after: str) -> bool:
        """One atomic move, so that caller and sweep cannot both take it."""
        with self._lock:
            if self._state != before:
                return False
            self._state = after
            return True


def called(attempt: Attempt, effect: Effect, args: tuple[Any, ...], kwargs: dict[str, Any], occurrence: str = "") -> Called:
    """The call as data, and its key. Raises `Misuse` that names the field; nothing has happened then."""
    attempt.expect_unchanged(effect)
    if effect.atomic:
        attempt.runtime.lender(effect)
    if not effect.redact:
        return _called(attempt, effect, args, kwargs, occurrence)
    with redaction.careful(attempt, effect, args, kwargs):
        return _called(attempt, effect, args, kwargs, occurrence)


def _called(attempt: Attempt, effect: Effect, args: tuple[Any, ...], kwargs: dict[str, Any], occurrence: str) -> Called:
    values = effect.parameters.bind(args, kwargs)
    data = effect.parameters.encode(values)
    for name in effect.intent:
        keys.check_intent(data[name], f"{effect.name}: intent {name}")
    key = key_of(attempt, effect, data, occurrence, 0)
    data = redaction.recorded(attempt, effect, key, values, data, occurrence)
    return Called(effect, values, data, key, keys.digest(data), material_of(effect, data), occurrence)


def material_of(effect: Effect, data: dict[str, Json]) -> str:
    """The digest of what may not change under one key."""
    return keys.digest({name: data[name] for name in effect.material}) if effect.material else ""


def as_others_recorded(attempt: Attempt, call: Called) -> Generator[Request, Any, Called]:
    """A tenant-scoped call with the redacted values as another task may have recorded them, under an older key."""
    effect = call.effect
    if not effect.redact or effect.scope == "task":
        return call
    known = yield from attempt.desk.off_loop(lambda: attempt.ledger.shared_effect(call.key))
    data = {**call.args, **redaction.markers(attempt, effect, known, effect.parameters.encode(call.values))}
    return replace(call, args=data, digest=keys.digest(data), material=material_of(effect, data))


def key_of(attempt: Attempt, effect: Effect, data: dict[str, Json], occurrence: str, generation: int) -> str:
    """The key of a call."""
    state, application = attempt.ledger.state, attempt.desk.store.info.application
    return declare.key_of(application, attempt.ledger.tenant, (state.kind, state.key), effect, data, occurrence, generation)


def next_generation(attempt: Attempt, call: Called, known: e.Effect) -> Called:
    """The same call under the key that a person has opened. The record says which it is, so every attempt finds the same."""
    generation = known.generation + 1
    key = key_of(attempt, call.effect, call.args, call.occurrence, generation)
    return replace(call, key=key, generation=generation)


def perform(attempt: Attempt, call: Called) -> Generator[Request, Any, Any]:
    """The effect's result, live (decoded, as its type). Raises what the effect may raise, or suspends."""
    while True:
        flight = attempt.enter(call.key)
        if flight is None:
            break
        yield Await(flight)  # R9: in flight in this attempt: join it, then be judged as recorded
    try:
        return (yield from _alone(attempt, call))
    finally:
        attempt.leave(call.key)


def _alone(attempt: Attempt, call: Called) -> Generator[Request, Any, Any]:
    tried = 0
    call = yield from as_others_recorded(attempt, call)
    approvers = yield from approval.wanted(attempt, call)
    while True:
        attempt.look_at_time()
        decided = yield from _intend(attempt, call, approvers)
        if decided.recorded is not None and generations.gone(decided.recorded):
            call = next_generation(attempt, call, decided.recorded)
            approvers = yield from approval.wanted(attempt, call)
            continue
        if decided.recorded is not None:
            return recorded(attempt, call.effect, decided.recorded)
        doing = attempt.doing[call.key]
        values = yield from approval.values(attempt, call, doing)
        reply = yield from submit(attempt, call.effect, doing, values)
        if isinstance(reply, Done):
            return reply.value
        yield from recover.climb(attempt, call.effect, call.key)
        settled = attempt.ledger.effect(call.key)
        if settled is not None and settled.state == "not_attempted":
            tried += 1
            clean = reply if isinstance(reply, Clean) else Clean(NotDone("it was looked for, and had not happened"), True)
            if not clean.retry or tried >= call.effect.tries:
                raise clean.error
            yield attempt.clock.pause(RETRY_SECONDS * 2 ** (tried - 1))


def _intend(attempt: Attempt, call: Called, approvers: int) -> Generator[Request, Any, e.Decision]:
    """Until the intent is durable, or the record is the answer."""
    effect = call.effect
    observed = identity.unseen(effect)
    while True:
        said = attempt.said.get(call.key)
        decided = yield from open_submission(attempt, effect, call.key, e.Intend(
            call.key, effect.first_name, call.args, call.digest, call.material, attempt.ledger.state.id, attempt.number,
            attempt.token, attempt.session.id, call.occurrence, call.generation, effect.ladder,
            effect.timeout_ms, attempt.unfenced, said=said, limit=attempt.limit_effects, per_task=effect.per_task,
            doubt=attempt.doubt(effect.scope), approvers=approvers, intent=effect.intent if approvers else (),
            at=attempt.clock.latest_ms(), observed=observed,
        ))  # fmt: skip
        if isinstance(decided, Refusal) and decided.code is Code.IDENTITY_MISMATCH:
            observed = yield from identity.look(attempt, call, decided, observed)
            continue
        observed = identity.unseen(effect)  # what was seen is of this moment
        yield from approval.wait(attempt, call, decided)
        if not isinstance(decided, Refusal) and _first(decided, j.Assumed) is not None:
            yield from recover.climb(attempt, effect, call.key)
            continue
        if not isinstance(decided, Refusal):
            attempt.said[call.key] = call.digest
            return decided
        if decided.code is Code.LIMIT_REACHED and attempt.over():
            raise attempt.exceeded(decided.message)
        if decided.code in READABLE:
            yield from _decline(attempt, call, decided)
        known = attempt.ledger.effect(call.key)
        unknown = known is not None and known.state == "ambiguous" and not attempt.ledger.state.suspended
        if unknown and known is not None and (yield from attempt.mine(known)):
            yield from recover.climb(attempt, effect, call.key)
            continue
        yield from attempt.suspend(decided, call.key, effect)


def _decline(attempt: Attempt, call: Called, refusal: Refusal) -> Generator[Request, Any, NoReturn]:
    """A no that the agent may read. Raises `Refused`, or suspends one that would not stop asking."""
    effect = call.effect
    attempt.ledger.post(tasks.Decline(attempt.token, call.key, effect.first_name, refusal.code, call.args))
    if refusal.code is Code.LIMIT_REACHED and refusal.message.startswith(replays.MORE):
        yield from attempt.give_up(refusal.message, call.key)
    attempt.declined += 1
    if attempt.declined >= MOST_DECLINED:
        why = f"an effect was refused {MOST_DECLINED} times in one attempt, and asked for again: {refusal.message}"
        yield from attempt.give_up(why, call.key)
    raise Refused(refusal.code, refusal.message, None if refusal.result is None else effect.result.decode(refusal.result))


def _first(decided: e.Decision, kind: type[E]) -> E | None:
    """The first event of a kind."""
    for event in decided.events:
        if isinstance(event, kind):
            return event
    return None


def open_submission(
    attempt: Attempt, effect: Effect, key: str, intend: e.Intend, cap_ms: int | None = None
) -> Generator[Request, Any, e.Decision | Refusal]:
    """Register the submission in memory, then make its intent durable (R17). The answer may also be the record."""
    seconds = min(effect.timeout_ms, cap_ms if cap_ms is not None else effect.timeout_ms) / 1000
    doing = Doing(key, 0, 0, attempt.clock.boot(), seconds, attempt.sender, effect.is_async, attempt.veil)
    attempt.doing[key] = doing
    settled = False
    try:
        decided = yield from attempt.ledger.commit(intend, guard=attempt.session.guard, scope=effect.scope)
        settled = True
    finally:
        if not settled and doing.move("waiting", "abandoned"):
            attempt.abandon(key)
    mine = None if isinstance(decided, Refusal) else _first(decided, j.Intended)
    if mine is not None:
        doing.n, doing.token = mine.n, mine.token  # of this very decision: the stream may have moved on since it landed
    return decided


@record
class Done:
    """It happened, and is queued to be recorded."""

    value: Any


@record
class Clean:
    """This submission did nothing, with proof."""

    error: BaseException
    retry: bool


@record
class Unknown:
    """Nobody can say."""


def submit(
    attempt: Attempt, effect: Effect, doing: Doing, values: dict[str, Any]
) -> Generator[Request, Any, Done | Clean | Unknown]:
    """Arm, check, call; then record what came of it. The intent is durable already."""
    runtime = attempt.runtime
    if not attempt.session.alive():  # before arming, which would kill a process that can still stop by itself
        yield from not_sent(attempt, doing)
    code = _armed(attempt, doing)
    if not (doing.move("waiting", "calling") and attempt.session.alive() and runtime.watchdog_allows()):
        code.ended()
        yield from not_sent(attempt, doing)
    deadline = doing.began + doing.seconds  # from before the intent's commit: a resend must stay inside the retention (R13)
    now = attempt.clock.boot()
    stale = effect.identity is not None and now > doing.began + identity.FRESH_SECONDS
    if stale or deadline <= now:
        code.ended()
        why = f"not sent: {'as whom was observed too long' if stale else 'its time was over'} before its intent was durable"
        attempt.ledger.post(e.Disprove(doing.key, doing.n, doing.token, why, sender=doing.sender))
        return Clean(NotDone(why), True)
    submission = Submission(
        key=doing.key,
        token=doing.token,
        tenant=attempt.ledger.tenant,
        task_id=attempt.ledger.state.id,
        attempt=attempt.number,
        number=doing.n,
        deadline=deadline,
        now=attempt.clock.boot,
    )
    if effect.atomic and (lender := runtime.lender(effect)) is not None:
        return (yield from atomic.submit(attempt, effect, doing, code, submission, values, lender))
    acting = Acting()
    ended = _telling(attempt, effect, doing, code, acting)
    fn = runtime.guarded(effect.fn, attempt, doing, acting)
    reply = yield Call(fn, effect.is_async, (submission,), values, deadline - now, ended)
    return _record(attempt, effect, doing, code, acting, ended, reply)


def _armed(attempt: Attempt, doing: Doing) -> Running:
    """What disarms the kernel timer when the code has ended. Raises `Misuse` where there is none to arm."""
    try:
        return attempt.runtime.entering(attempt, doing)
    except OSError as error:
        why = f"not sent: the kernel timer cannot be armed: {error}"
        attempt.ledger.post(e.Disprove(doing.key, doing.n, doing.token, why, sender=doing.sender))
        raise Misuse(f"the kernel timer cannot be armed ({error}); semel.App(watchdog='never') does without it") from error


def _telling(attempt: Attempt, effect: Effect, doing: Doing, code: Running, acting: Acting) -> Ended:
    def ended(outcome: Returned | Raised) -> None:
        """Its code has ended, and all that it left behind: evidence (R2), and the sender is quiet (R4)."""

        def tell() -> None:
            code.ended()
            attempt.ledger.post(_outcome(effect, doing, outcome)[0], after=attempt.evidence_came)

        acting.when_quiet(tell)

    return ended


def _record(
    attempt: Attempt,
    effect: Effect,
    doing: Doing,
    code: Running,
    acting: Acting,
    ended: Ended,
    reply: Returned | Raised | TimedOut,
) -> Done | Clean | Unknown:
    """What came of the call, queued to be durable."""
    if isinstance(reply, TimedOut):
        attempt.ledger.post(e.Lose(doing.key, doing.n, doing.token, f"no answer within {doing.seconds:g} s", False, doing.sender))
        return Unknown()
    command, answer = _outcome(effect, doing, reply)
    if isinstance(command, e.Lose) and not acting.quiet:
        attempt.ledger.post(replace(command, why=f"{command.why}; what it started still runs", ended=False))
        ended(reply)
        return answer
    acting.when_quiet(code.ended)
    attempt.ledger.post(command, after=attempt.evidence_came)
    if isinstance(command, e.Confirm) and command.unrecorded:
        raise Misuse(f"effect {effect.name} happened and is confirmed, but its result cannot be recorded: {command.unrecorded}")
    return answer


def not_sent(attempt: Attempt, doing: Doing) -> Generator[Request, Any, NoReturn]:
    """The intent is durable and nothing was called: that is proof, and this process may start nothing more."""
    attempt.ledger.post(
        e.Disprove(doing.key, doing.n, doing.token, "not sent: past the local deadline, or fenced", sender=doing.sender)
    )
    raise (yield from attempt.suspend_fenced())


def _outcome(
    effect: Effect, doing: Doing, reply: Returned | Raised
) -> tuple[e.Confirm | e.Disprove | e.Lose, Done | Clean | Unknown]:
    """What a reply proves. Anything that proves nothing is a loss, BaseException included."""
    key, n, token, sender = doing.key, doing.n, doing.token, doing.sender
    if isinstance(reply, Returned):
        return _confirm(effect, doing, reply.value, e.RETURNED)
    error = reply.error
    if isinstance(error, AlreadyDone):
        return _confirm(effect, doing, error.result, "already_done")
    if isinstance(error, NotDone):
        return e.Disprove(key, n, token, error.reason, not error.retry, error.detail or None, sender), Clean(error, error.retry)
    if effect.not_done and isinstance(error, effect.not_done):
        return e.Disprove(key, n, token, describe(error, doing.veil), sender=sender), Clean(error, True)
    return e.Lose(key, n, token, describe(error, doing.veil), True, sender), Unknown()


def _confirm(effect: Effect, doing: Doing, value: Any, how: str) -> tuple[e.Confirm, Done]:
    """R10: what happened is confirmed even if its result cannot be recorded."""
    try:
        data = doing.veil.result(effect.result, effect.result.encode(value))
        return e.Confirm(doing.key, doing.n, doing.token, data, how=how, sender=doing.sender), Done(effect.result.decode(data))
    except NotRecordable as error:
        why = doing.veil.text(str(error))
        return e.Confirm(doing.key, doing.n, doing.token, unrecorded=why, how=how, sender=doing.sender), Done(value)


def describe(error: BaseException, veil: Veil) -> str:
    """An error as a record: its type and the first of its words; tracebacks and redacted values stay out."""
    return veil.error(error)


def recorded(attempt: Attempt, effect: Effect, known: e.Effect) -> Any:
    """The recorded outcome of an effect, as its type, or raised again."""
    if known.unrecorded:
        raise Misuse(
            f"effect {effect.name} ({known.key}) happened, but its result was not recorded: {known.unrecorded}; "
            f"look it up at the provider by its key"
        )
    if known.declined is not None and not known.confirmed:
        raise NotDone(known.declined.reason, retry=False, detail=known.declined.detail)
    try:
        return effect.result.decode(known.result)
    except NotRecordable as error:
        raise Misuse(
            f"effect {effect.name} ({known.key}) is on record, but {error}; give the new result a default, or the effect "
            f"a new name"
        ) from error

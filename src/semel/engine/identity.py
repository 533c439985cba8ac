"""As whom, and where: bound to a task, and observed just before a call of it is sent, sent again or looked up.

What cannot be observed, or is another identity than the bound one, blocks the task; nothing is submitted, and no lookup asks.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from semel.engine import redaction
from semel.engine.data import NotRecordable
from semel.engine.queue import MAX_NAME, check_name
from semel.engine.requests import Call, Raised, Request, Returned
from semel.errors import Misuse, Suspended
from semel.machine import effects as e
from semel.machine import identity as machine
from semel.machine import tasks
from semel.machine.commands import PENDING, Names, Observed
from semel.model import Code, Refusal

if TYPE_CHECKING:
    from semel.engine.attempt import Attempt
    from semel.engine.declare import Effect
    from semel.engine.perform import Called
    from semel.engine.veil import Veil

FRESH_SECONDS = 5.0  # between the look and the call lies a commit; after a longer one nobody knows who is logged in by now


def checked(identity: object, what: str) -> Names:
    """Names and values of an identity, as the record has them. Raises `Misuse`."""
    if not isinstance(identity, Mapping) or not identity:
        raise Misuse(f"{what} names nothing; write semel.bind(account='alice', target='shop.example')")
    for name, value in identity.items():
        check_name(name, f"a name in {what}")
        check_name(value, name)
    return machine.names(identity)


def bind(attempt: Attempt, identity: Mapping[str, str]) -> None:
    """On record before the next intent is: the stream is written in order. Another value than before suspends the attempt."""
    if attempt.exit is not None:
        raise Suspended(attempt.exit.why)
    wanted = checked(identity, "semel.bind()")
    redaction.refuse_clear(attempt, "semel.bind()", dict(wanted))
    why = machine.differs(attempt.ledger.state.bound, dict(wanted))
    declared = (attempt.runtime.effects.get(name) for name in attempt.runtime.effects.names())
    watched = tuple(sorted({effect.first_name for effect in declared if effect is not None and effect.identity is not None}))
    attempt.ledger.post(tasks.Bind(attempt.token, wanted, watched))
    if why:
        raise attempt.left_blocked(f"{Code.IDENTITY_MISMATCH}: {why}", "")


# --- observing ------------------------------------------------------------------------------------------------------


def unseen(effect: Effect) -> Observed | None:
    """What is known before anybody has looked; None: there is nothing to look at."""
    return PENDING if effect.identity is not None else None


def look(attempt: Attempt, call: Called, no: Refusal, observed: Observed | None) -> Generator[Request, Any, Observed]:
    """The machine says that all else permits the call, so it is observed now; or what was observed is not what is bound."""
    if observed != PENDING:
        assert observed is not None, "what observes nothing is never refused for that on its first way"
        yield from _block(attempt, no.message, call.effect, call.key, observed, "")
    try:
        return (yield from _observe(attempt, call.effect, _to_send(attempt, call)))
    except NotRecordable as error:
        return Observed(why=f"the approved call does not fit the code: {error}")


def before_asking(
    attempt: Attempt, effect: Effect, known: e.Effect, values: dict[str, Any]
) -> Generator[Request, Any, Observed | None]:
    """Before the recorded call is sent again or looked up: as whom that would be. It suspends if as somebody else."""
    observed = (yield from _observe(attempt, effect, values)) if effect.identity is not None else None
    bound = machine.names(attempt.ledger.state.bound)
    if why := machine.mismatch(known.name, bound, observed, machine.sent_as(known)):
        yield from _block(attempt, why, effect, known.key, observed, known.key)
    return observed


def _to_send(attempt: Attempt, call: Called) -> dict[str, Any]:
    """The arguments that would be sent: of an approved call those on record."""
    known = attempt.ledger.effect(call.key)
    if known is None or known.asked is None:
        return call.values
    assert call.effect.identity is not None
    return call.effect.parameters.decode(known.args, call.effect.identity.names)


def _observe(attempt: Attempt, effect: Effect, values: dict[str, Any]) -> Generator[Request, Any, Observed]:
    observer = effect.identity
    assert observer is not None
    fn = attempt.runtime.observing(effect, attempt)
    seconds = effect.timeout_ms / 1000
    reply = yield Call(fn, observer.is_async, (), {name: values[name] for name in observer.names}, seconds)
    if isinstance(reply, Returned):
        return _seen(attempt.veil, reply.value)
    if isinstance(reply, Raised):
        return Observed(why=attempt.veil.error(reply.error))
    return Observed(why=f"no answer within {seconds:g} s")


def _seen(veil: Veil, value: object) -> Observed:
    """What a function says that it saw. A redacted value is never bound, so what shows one is no identity that could be right."""
    if not isinstance(value, Mapping):
        return Observed(why=f"its function returned {type(value).__name__}, and not names with their values")
    for name, seen in value.items():
        said = veil.first(str(name), MAX_NAME)
        if not isinstance(name, str) or not isinstance(seen, str):
            return Observed(why=f"its function returned {type(seen).__name__} for {said!r}, and not a text")
        if max(len(name), len(seen)) > MAX_NAME or not (name + seen).isprintable():
            return Observed(why=f"what it returned for {said!r} is not at most {MAX_NAME} printable characters")
    found, clean = machine.names(value), machine.names({veil.text(name): veil.text(seen) for name, seen in value.items()})
    if clean != found:
        return Observed(why=f"its function returned {machine.words(clean)}, and a redacted value is no identity")
    return Observed(found)


def _block(
    attempt: Attempt, why: str, effect: Effect, key: str, observed: Observed | None, until: str
) -> Generator[Request, Any, NoReturn]:
    """On record what was observed, so that the attempt starts nothing more. until: of which effect an outcome ends the block."""
    seen = observed.identity if observed is not None else None
    if not attempt.ledger.state.suspended:
        yield from attempt.ledger.commit(tasks.Mismatch(attempt.token, why, key, effect.first_name, seen))
    raise attempt.left_blocked(f"{Code.IDENTITY_MISMATCH}: {why}", until)

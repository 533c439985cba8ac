"""Before an effect is sent: whether people must approve it, waiting until they have, and what it is that they approved (R21)."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from semel.engine import redaction
from semel.engine.data import NotRecordable
from semel.engine.requests import Call, Raised, Request, Returned
from semel.errors import Misuse
from semel.machine import effects as e
from semel.machine import journal as j
from semel.model import Code, Refusal

if TYPE_CHECKING:
    from semel.engine.attempt import Attempt
    from semel.engine.perform import Called, Doing

WAITS = "waits for approval"  # by these words a task that is blocked so is found


def wanted(attempt: Attempt, call: Called) -> Generator[Request, Any, int]:
    """How many people must approve the call; 0: none, or it is settled and nothing will be sent. The answer holds for this call.

    What has been asked for once is never judged anew: the machine goes by the record.
    """
    effect = call.effect
    if effect.approve is False:
        return 0
    many = attempt.runtime.approvers
    people = next((many[name] for name in (effect.name, *effect.formerly) if name in many), 1)
    if effect.approve is True:
        return people
    known = yield from _known(attempt, call)
    if known is not None and (known.asked or known.open or known.confirmed or known.declined or known.told):
        return 0
    named = {name: call.values[name] for name in effect.approve.names}
    fn = attempt.runtime.judging(effect.approve.fn)
    reply = yield Call(fn, False, (), named, effect.timeout_ms / 1000)
    if isinstance(reply, Returned) and isinstance(reply.value, bool):
        return people if reply.value else 0
    if isinstance(reply, Returned):
        what = f"returned {type(reply.value).__name__}, not a bool"
    else:
        what = f"raised {attempt.veil.error(reply.error)}" if isinstance(reply, Raised) else "did not return in time"
    raise Misuse(
        f"effect {effect.name}: its approve predicate {what}, so nobody can tell whether a person must approve it, and nothing "
        f"was sent; write one that returns True or False for any arguments"
    )


def _known(attempt: Attempt, call: Called) -> Generator[Request, Any, e.Effect | None]:
    if call.effect.scope == "task":
        return attempt.ledger.effect(call.key)
    return (yield from attempt.desk.off_loop(lambda: attempt.ledger.shared_effect(call.key)))


def wait(attempt: Attempt, call: Called, decided: e.Decision | Refusal) -> Generator[Request, Any, None]:
    """Suspend the attempt if the call waits for people: its task is blocked, and holds nothing, until they have decided."""
    if isinstance(decided, Refusal):
        if decided.code is not Code.APPROVAL_REQUIRED:
            return
    else:
        told = set(map(type, decided.events))
        if j.Asked not in told or j.Intended in told or j.Assumed in told:
            return  # the latter: people had approved it before it came
    yield from attempt.wait_for_approval(f"{call.effect.name} {WAITS}", call.key)


def values(attempt: Attempt, call: Called, doing: Doing) -> Generator[Request, Any, dict[str, Any]]:
    """What is sent: of an approved call what is on record, whatever the agent says now. Its intent is durable already."""
    known = attempt.ledger.effect(call.key)
    if known is None or known.asked is None:
        return call.values
    try:
        return redaction.approved(attempt, call.effect, call.values, known.args)
    except NotRecordable as error:
        doing.move("waiting", "abandoned")
        why = f"not sent: the approved call does not fit the code: {error}"
        attempt.ledger.post(e.Disprove(doing.key, doing.n, doing.token, why, sender=doing.sender))
        return (yield from attempt.block(why, ""))  # of no key: no outcome of it is waited for, that could end the block

"""Approvals (R21): whether a call may be sent, and what a person may say of it. Pure; `effects` asks, and applies.

What is sent is what is on record when it is approved, edited or not; what the agent says later is drift. An approval is of
one key, which happens once, so it is used once: until then a clean disproof leaves it standing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.machine import journal as j
from semel.machine import keys, redaction
from semel.machine.commands import Approve, Deny, Intend
from semel.model import Code, EffectState, Json, Refusal

if TYPE_CHECKING:
    from semel.machine.effect_state import Effect


def same_person(one: str, other: str) -> bool:
    """Whether two names are one person's."""
    return one.strip().casefold() == other.strip().casefold()


def standing(effect: Effect, at: int) -> tuple[j.Approved, ...]:
    """The approvals that count at `at` (milliseconds)."""
    return tuple(given for given in effect.approvals if not given.expires or given.expires > at)


def held(effect: Effect | None, c: Intend, cancelled: bool) -> j.Asked | Refusal | None:
    """What keeps a call from being sent: that it must be asked for first, a named no, or (None) nothing."""
    asked = effect.asked if effect is not None else None
    wanted = max(c.approvers, asked.approvers if asked else 0)
    if c.again or not wanted:  # what is sent again is the same approved call
        return None
    if effect is not None and effect.denied is not None:
        said = f": {effect.denied.reason}" if effect.denied.reason else ""
        return Refusal(Code.DENIED, f"{effect.denied.by} denied {effect.name}{said}")
    if effect is not None and asked is not None:
        given = standing(effect, c.at)
        if len(given) >= wanted:
            return None
        if asked.approvers == wanted and c.task in effect.askers and len(given) == len(effect.approvals):
            return Refusal(Code.APPROVAL_REQUIRED, f"{effect.name} waits for approval")
    if cancelled:
        return Refusal(Code.CANCELLED, "the task was cancelled: it asks for nothing more")
    if asked is not None:
        return j.Asked(c.key, c.name, c.task, c.attempt, wanted, now=c.at)
    return j.Asked(
        c.key, c.name, c.task, c.attempt, wanted, c.args, c.digest, c.material, c.occurrence, c.generation, c.recovery, c.intent,
        c.at,
    )  # fmt: skip


def decided(effect: Effect, c: Approve | Deny) -> j.Approved | j.Denied | Refusal:
    """A person's word on a call that waits, or that has not been sent yet."""
    barred = _undecidable(effect, c)
    if barred is not None:
        return barred
    if isinstance(c, Deny):
        return j.Denied(c.key, c.by, c.reason)
    given = standing(effect, c.at)
    names = " and ".join(one.by for one in given)
    assert effect.asked is not None
    if len(given) >= effect.asked.approvers:
        return Refusal(Code.STALE_VIEW, f"{effect.name} was approved already, by {names}")
    if any(same_person(one.by, c.by) for one in given):
        more = effect.asked.approvers - len(given)
        return Refusal(
            Code.APPROVAL_REQUIRED, f"{names} approved {effect.name} already: {more} other{'s' * (more > 1)} must, not the same"
        )
    if c.args is not None and (changed := _beyond_edit(effect, effect.asked, c.args)):
        return Refusal(Code.INTENT_CHANGED, f"an edit may not touch what {effect.name} is: {changed}")
    return j.Approved(c.key, c.by, c.digest or effect.digest, c.reason, c.args, c.expires, c.at)


def _undecidable(effect: Effect, c: Approve | Deny) -> Refusal | None:
    if effect.state is EffectState.SUBMITTED:
        return Refusal(Code.IN_FLIGHT, f"{effect.name} is in flight: look again when it has settled or is unknown")
    if effect.asked is None:
        return Refusal(Code.STALE_VIEW, f"{effect.name} waits for no approval")
    if effect.renewed is not None:
        return Refusal(Code.STALE_VIEW, f"{effect.name} is not to be approved any more (it has a new generation)")
    if effect.state is not EffectState.NOT_ATTEMPTED or effect.declined is not None or effect.told is not None:
        what = "the provider refused it for good" if effect.declined is not None else f"it is {effect.state}"
        return Refusal(Code.STALE_VIEW, f"{effect.name} is not to be approved any more ({what})")
    if effect.version != c.seen:
        return Refusal(Code.STALE_VIEW, f"{effect.name} has moved on since you looked: look again")
    if isinstance(c, Deny) and effect.denied is not None:
        return Refusal(Code.STALE_VIEW, f"{effect.name} was denied already, by {effect.denied.by}")
    return None


def _beyond_edit(effect: Effect, asked: j.Asked, args: Json) -> str:
    """What of an edit is none: another intent is another effect. "" if it may be made."""
    if not isinstance(args, dict) or not isinstance(effect.args, dict) or args.keys() != effect.args.keys():
        return "it must name the same arguments"
    marked = [name for name in args if any(map(redaction.looks_marked, (args[name], effect.args[name])))]
    kept = dict.fromkeys([*asked.intent, *marked])  # what is redacted is the agent's to say
    changed = [name for name in kept if keys.digest(args[name]) != keys.digest(effect.args[name])]
    return ", ".join(changed)


def left(effect: Effect, given: j.Approved) -> tuple[j.Approved, ...]:
    """The approvals that count once `given` is added: those of other words, and of before a denial, do not."""
    if effect.denied is not None or given.digest != effect.digest:
        return (given,)
    return (*(one for one in standing(effect, given.now) if not same_person(one.by, given.by)), given)


def suffices(effect: Effect, said: j.Happened) -> bool:
    """Whether whoever waits for this decision need not wait any more."""
    if not isinstance(said, j.Approved):
        return True
    return effect.asked is not None and len(left(effect, said)) >= effect.asked.approvers

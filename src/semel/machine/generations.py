"""A new generation of an effect (R9): its next call has a key of its own, since a person says so. Pure.

Only of what provably did not happen and can happen no more by itself. To do again what was done is another occurrence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.machine import events as j
from semel.machine.commands import Renew
from semel.model import Code, EffectState, Refusal

if TYPE_CHECKING:
    from semel.machine.effect_state import Effect


def renewed(effect: Effect, c: Renew) -> j.Renewed | Refusal:
    """A person's word that the same intent may be tried under a new key."""
    name = effect.name
    if effect.state is EffectState.SUBMITTED:
        return Refusal(Code.IN_FLIGHT, f"{name} is in flight: look again when it has settled or is unknown")
    if effect.state is EffectState.AMBIGUOUS:
        return Refusal(Code.UNKNOWN_OUTSTANDING, f"the outcome of {name} is unknown: settle it first")
    if effect.confirmed or effect.told is not None:
        what = "happened" if effect.confirmed else "happened, as came in late"
        return Refusal(Code.ALREADY_DONE, f"{name} {what}; to do it again on purpose: using(occurrence=...)", effect.result)
    if effect.renewed is not None:
        return Refusal(Code.STALE_VIEW, f"{effect.renewed.by} has opened the next generation of {name} already")
    if effect.waiting:
        return Refusal(Code.APPROVAL_REQUIRED, f"{name} waits for approval: approve or deny it")
    if effect.version != c.seen:
        return Refusal(Code.STALE_VIEW, f"{name} has moved on since you looked: look again")
    return j.Renewed(c.key, c.by, effect.generation + 1, c.reason)


def gone(effect: Effect) -> bool:
    """Whether a call of this key is a call of the next generation's, and this one is never sent again."""
    return effect.renewed is not None and effect.state is EffectState.NOT_ATTEMPTED and effect.told is None

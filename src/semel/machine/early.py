"""R4: a person's not_found that came before settle was over. Pure; `effects` asks, and applies.

Whoever looks too early may be wrong: the request may act after their look. So an answer counts only if it was given when settle
was over. Either the asking process knows that by itself: settle had gone by, and there was no answer yet. Or the record says so:
an `early` row puts an earlier answer aside, and whatever stands after it counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.machine import journal as j
from semel.machine.changing import replace
from semel.machine.commands import PutAside, Settle
from semel.model import Code, EffectState, Refusal

if TYPE_CHECKING:
    from semel.machine.effects import Effect


def decided(effect: Effect, c: PutAside) -> j.Early | Refusal:
    """Settle is over, and was not known to be when the answer was given: put that aside; or a named no."""
    if effect.state is EffectState.SUBMITTED:
        return Refusal(Code.IN_FLIGHT, f"{effect.name} is in flight")
    if effect.state is not EffectState.AMBIGUOUS or effect.answered is None:
        return Refusal(Code.STALE_VIEW, f"no person's answer about {effect.name} waits to be believed")
    if not effect.quiet and not effect.answered.stopped:
        return Refusal(Code.UNKNOWN_OUTSTANDING, f"a sender of {effect.name} may still act: settle is not over")
    if c.waited_ms < c.settle_ms:
        return Refusal(Code.UNKNOWN_OUTSTANDING, f"settle is not over ({c.waited_ms} of {c.settle_ms} ms)")
    return j.Early(c.key, effect.open[-1].n)


def was_watched(effect: Effect, c: Settle) -> bool:
    """Whether the record said, when the question was asked, that settle is over for all that is open."""
    return all(s.n <= min(c.settled, effect.settled) for s in effect.open)


def counts(effect: Effect, c: Settle) -> bool:
    """Whether the person's answer was given when settle was over."""
    return effect.watched or c.unanswered_ms >= c.settle_ms


def put_aside(effect: Effect, event: j.Early) -> Effect:
    """The effect after it. The person's word that a process has stopped lasts: settle was counted from it."""
    return replace(effect, answered=None, settled=max(effect.settled, event.through))

"""R4: that settle was watched is put on record, so that a person looks after it. Pure; `effects` asks, and applies.

Whoever looks too early may be wrong: the request may act after their look. When they looked, only the record can tell: an answer
names the version that they saw. So a person's not_found counts only if it stands after a `watched` row, which says that settle is
over for what is open; one that came before is put aside by that row, and one that is still on its way is refused (R21).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.machine import journal as j
from semel.machine.commands import NoteWatched, Settle
from semel.machine.records import replace
from semel.model import Code, EffectState, Refusal

if TYPE_CHECKING:
    from semel.machine.effect_state import Effect


def decided(effect: Effect, c: NoteWatched) -> j.Watched | Refusal:
    """Settle is over for all that is open; or a named no. It is a fact, and whoever has watched it may say so."""
    if effect.state is EffectState.SUBMITTED:
        return Refusal(Code.IN_FLIGHT, f"{effect.name} is in flight")
    if effect.state is not EffectState.AMBIGUOUS or effect.watched:
        return Refusal(Code.STALE_VIEW, f"nothing of {effect.name} is still to be watched")
    if len(effect.sent) != c.seen:
        return Refusal(Code.STALE_VIEW, f"{effect.name} was submitted again since settle was watched")
    if not effect.quiet and not (effect.answered is not None and effect.answered.stopped):
        return Refusal(Code.UNKNOWN_OUTSTANDING, f"a sender of {effect.name} may still act: settle is not over")
    if c.waited_ms < c.settle_ms:
        return Refusal(Code.UNKNOWN_OUTSTANDING, f"settle is not over ({c.waited_ms} of {c.settle_ms} ms)")
    return j.Watched(c.key, effect.open[-1].n)


def known_when_asked(effect: Effect, c: Settle) -> bool:
    """Whether the record said so of all that is open when the question was asked."""
    return all(s.n <= min(c.settled, effect.settled) for s in effect.open)


def noted(effect: Effect, event: j.Watched) -> Effect:
    """The effect after it. An earlier answer does not count; the word that a process has stopped lasts: settle began with it."""
    return replace(effect, answered=None, settled=max(effect.settled, event.through))

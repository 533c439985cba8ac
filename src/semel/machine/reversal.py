"""Corrections: a person takes back the verdict of a person (R21). Pure; `effects` asks, and applies.

The wrong verdict stays where it stands; a `reversed` row names it, and the effect is as unknown as it was before. Only a
person's word is taken back. What a provider or a sender said is evidence about the world: to act against it, the opposite is
done as a new effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.machine import journal as j
from semel.machine.commands import Reverse
from semel.machine.records import record, replace
from semel.model import Code, EffectState, Refusal

if TYPE_CHECKING:
    from semel.machine.effect_state import Effect

PERSON = "person"  # how a verdict was found, or the first part of it: person:alice


@record
class Word:
    """A person's verdict that can be taken back, and what it put an end to.

    seq: where it stands. closed: the submissions that it closed. sent: how many there were. The rest is as it was before.
    """

    seq: int
    verdict: str
    sent: int
    closed: tuple[int, ...] = ()
    lost_at: int = 0
    conflict: str = ""


def word_of(effect: Effect, event: j.OfEffect, seq: int) -> Word | None:
    """The verdict that can be taken back after `event`, which stands at `seq`. effect: as it was before."""
    if isinstance(event, j.Answered):
        return Word(seq, "not_found", len(effect.sent), (), effect.lost_at, effect.conflict)
    if isinstance(event, j.Found) and event.how.partition(":")[0] == PERSON and event.verdict in ("confirmed", "not_found"):
        closed = tuple(s.n for s in effect.open)
        word = effect.word
        if event.verdict == "not_found" and word is not None:  # they said so before; now it is believed
            return replace(word, closed=closed)
        return Word(seq, event.verdict, len(effect.sent), closed, effect.lost_at, effect.conflict)
    if isinstance(event, j.Confirmed) or (isinstance(event, j.Found) and event.verdict != "unavailable"):
        return None  # the provider's, or a person's who says less
    if isinstance(event, j.Approved | j.Denied):
        return None  # people have decided anew, maybe about other words: what was sent before is not to be sent in those
    return effect.word


def decided(effect: Effect, c: Reverse) -> j.Reversed | Refusal:
    """Take the last person's verdict back, or a named no."""
    word, name = effect.word, effect.name
    if word is not None and len(effect.sent) > word.sent:
        return Refusal(
            Code.STALE_VIEW,
            f"{name} was sent again since it was said not to have happened (submission {word.sent + 1}), so that cannot be taken "
            f"back; what was sent twice is put right by its opposite, as a new effect",
        )
    if effect.renewed is not None:
        by, generation = effect.renewed.by, effect.renewed.generation
        return Refusal(
            Code.STALE_VIEW,
            f"{by} has let {name} be tried under a new key since (generation {generation}), which may have been sent, so that "
            f"cannot be taken back; what was done twice is put right by its opposite, as a new effect",
        )
    if effect.state is EffectState.SUBMITTED:
        return Refusal(Code.IN_FLIGHT, f"{name} is in flight: look again when it has settled or is unknown")
    if effect.version != c.seen:
        return Refusal(Code.STALE_VIEW, f"{name} has moved on since you looked (it is {effect.state}): look again")
    if word is None:
        return Refusal(Code.STALE_VIEW, _nothing_to_take_back(effect))
    if effect.told is not None:
        return Refusal(Code.STALE_VIEW, f"whoever sent {name} has reported since that it happened: that is no person's verdict")
    return j.Reversed(c.key, c.by, word.seq, word.verdict, c.reason, word.closed)


def _nothing_to_take_back(effect: Effect) -> str:
    if effect.confirmed:
        return (
            f"no person said that {effect.name} happened: its provider or its sender did, and only a person's verdict can be "
            f"taken back; undo it by its opposite, as a new effect"
        )
    if effect.denied is not None or effect.approvals:
        return f"people have decided about {effect.name} since: that stands, and no verdict before it can be taken back"
    return f"no person's verdict on {effect.name} stands: there is nothing to take back (it is {effect.state})"


def taken_back(effect: Effect, event: j.Reversed) -> Effect:
    """The effect after the verdict was taken back: unknown again, since the moment at which it was first lost."""
    word = effect.word or Word(event.seq, event.verdict, len(effect.sent))
    sent = tuple(replace(s, open=True, lost=True) if s.n in event.reopens else s for s in effect.sent)
    return replace(
        effect, sent=sent, confirmed=False, result=None, unrecorded="", answered=None, conflict=word.conflict,
        lost_at=word.lost_at or effect.lost_at, word=None,
        settled=0,  # it may rest on their word that a process had stopped
    )  # fmt: skip

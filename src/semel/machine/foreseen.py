"""Approvals that come before the call (R21): bound to exact words, they wait in its stream for the call to be asked for. Pure.

They are no effect yet. When the call comes, in exactly those words, they count as if they had been given then; in other words
they do not, and people are asked as usual. Either way they are over: an approval is used once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from immutables import Map

from semel.machine import events as j
from semel.machine.approvals import same_person
from semel.machine.commands import Approve, Deny, Intend
from semel.machine.records import replace
from semel.model import Code, Refusal

if TYPE_CHECKING:
    from semel.machine.effect_state import Effect

Given = tuple[j.Approved, ...]


def decided(effect: Effect | None, c: Approve | Deny, given: Given) -> j.Approved | j.Denied | Approve | Deny | Refusal:
    """A person's word on a call that is not on record; on one that has come meanwhile: the command as if they had seen it."""
    if effect is not None:
        if isinstance(c, Deny):
            return replace(c, seen=effect.version, ahead="")
        if c.digest != effect.digest:
            return Refusal(Code.STALE_VIEW, f"{effect.name} was called meanwhile, in other words: look (semel approvals)")
        return replace(c, seen=effect.version, args=None, digest="", ahead="")
    if isinstance(c, Deny):
        return j.Denied(c.key, c.by, c.reason) if given else Refusal(Code.STALE_VIEW, f"nobody has approved {c.ahead} ahead")
    if any(same_person(one.by, c.by) and one.digest == c.digest for one in standing(given, c.at)):
        return Refusal(Code.APPROVAL_REQUIRED, f"{c.by} approved this call of {c.ahead} already: if another must, not the same")
    return j.Approved(c.key, c.by, c.digest, c.reason, c.args, c.expires, c.at, c.ahead)


def standing(given: Given, at: int) -> Given:
    """Those that count at `at` (milliseconds)."""
    return tuple(one for one in given if not one.expires or one.expires > at)


def after(given: Given, event: j.OfEffect) -> Given:
    """What waits after a person's word: those of other words count no more; a denial takes all back."""
    if isinstance(event, j.Approved):
        others = (one for one in standing(given, event.now) if one.digest == event.digest and not same_person(one.by, event.by))
        return (*others, event)
    return () if isinstance(event, j.Denied) else given


def kept(ahead: Map[str, Given], event: j.OfEffect) -> Map[str, Given]:
    """The same by key."""
    given = after(ahead.get(event.key, ()), event)
    return ahead.set(event.key, given) if given else ahead.delete(event.key) if event.key in ahead else ahead


def counting(given: Given, c: Intend) -> Given:
    """Those that count for this very call, as they are written once it is asked for."""
    return tuple(
        replace(one, args=None, name="", now=c.at, early=True) for one in standing(given, c.at) if one.digest == c.digest
    )

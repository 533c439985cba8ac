"""What an event does to what is on record of its key. Pure; the table is in `effects`."""

from __future__ import annotations

from typing import Any

from semel.machine import approvals, identity, reversal, watching
from semel.machine import journal as j
from semel.machine.commands import RETURNED
from semel.machine.effect_state import Effect, Evidence, Sent
from semel.machine.records import replace

_BEGIN = (j.Intended, j.Assumed)


def apply(effect: Effect | None, event: j.OfEffect, seq: int, at: int) -> Effect | None:
    """The effect after `event`, which stands at `seq` of its stream and was written at `at` (milliseconds)."""
    if isinstance(event, _BEGIN):
        return _apply_intended(effect, event, seq, at)
    if isinstance(event, j.Asked):
        return _apply_asked(effect, event, seq, at)
    if effect is None:
        return None  # a call that was declined before anything was on record
    word = reversal.word_of(effect, event, seq)
    if isinstance(event, j.Confirmed):
        sent = _changed(effect.sent, event.n, close_all=True, ended=event.how == RETURNED)
        return replace(
            effect, version=seq, word=word, confirmed=True, result=event.result, unrecorded=event.unrecorded, conflict="",
            sent=sent,
        )  # fmt: skip
    effect = replace(effect, version=seq, word=word)
    if isinstance(event, j.Disproved):
        effect = _sub(effect, event.n, open=False, ended=True)
        if event.final and effect.open:  # the provider's definite no to sending it again: only of that try, but no more tries
            return replace(effect, barred=event.reason)
        return replace(effect, declined=event if event.final else effect.declined)
    if isinstance(event, j.Lost):
        sub = effect.submission(event.n)
        assert sub is not None
        effect = _sub(
            effect,
            event.n,
            lost=True,
            ended=sub.ended or event.ended,
            fenced=sub.fenced or event.fenced,
            dead=sub.dead or event.dead,
        )
        return replace(effect, lost_at=effect.lost_at or at)
    if isinstance(event, j.Late):
        found = Evidence(event.n, event.outcome, event.result, event.reason, at)
        return _sub(replace(effect, evidence=(*effect.evidence, found)), event.n, ended=True)
    if isinstance(event, j.Unfenced):
        return _sub(effect, event.n, unfenced=event.why)
    if isinstance(event, j.SenderGone):
        return _sub(effect, event.n, fenced=True, dead=event.dead)
    if isinstance(event, j.Found):
        return _apply_found(effect, event, at)
    return _apply_decided(effect, event)


def _apply_decided(effect: Effect, event: j.OfEffect) -> Effect:
    if isinstance(event, j.Answered):
        return replace(effect, answered=event)
    if isinstance(event, j.Watched):
        return watching.noted(effect, event)
    if isinstance(event, j.Approved):
        sent = {} if event.args is None else {"args": event.args, "digest": event.digest}
        return replace(effect, approvals=approvals.left(effect, event), denied=None, **sent)
    if isinstance(event, j.Reversed):
        return reversal.taken_back(effect, event)
    if isinstance(event, j.Renewed):
        return replace(effect, renewed=event)
    return replace(effect, approvals=(), denied=event) if isinstance(event, j.Denied) else effect


def _apply_asked(effect: Effect | None, x: j.Asked, seq: int, at: int) -> Effect:
    """args and digest come with the first; a later one keeps them, edited or not, and the approvals that still count."""
    if effect is None:
        effect = Effect(x.key, x.name, x.args, x.digest, x.material, x.occurrence, x.generation, x.recovery)
    if effect.asked is not None:
        first = effect.asked
        since = effect.asked_at if effect.waiting else at
        asked = replace(first, task=x.task, attempt=x.attempt, approvers=x.approvers)
    else:
        effect, since, asked = replace(effect, args=x.args, digest=x.digest), at, x
    return replace(
        effect, version=seq, asked=asked, asked_at=since, askers=effect.askers | {x.task},
        approvals=approvals.standing(effect, x.now),
    )  # fmt: skip


def _apply_intended(effect: Effect | None, e: j.Intended | j.Assumed, seq: int, at: int) -> Effect:
    if isinstance(e, j.Assumed):
        since = min(at, e.since)
        sent = Sent(e.n, e.task, e.attempt, e.token, "", since, lost=True, fenced=True, unfenced=e.unfenced, assumed=True)
    else:
        since = at
        seen = identity.names(e.observed) if e.observed else ()
        sent = Sent(e.n, e.task, e.attempt, e.token, e.session, at, unfenced=e.unfenced, observed=seen)
    lost_at = at if sent.assumed else 0
    if effect is None:
        return Effect(
            e.key, e.name, e.args, e.digest, e.material, e.occurrence, e.generation, e.recovery, (sent,), since, lost_at=lost_at,
            version=seq,
        )  # fmt: skip
    clean = not effect.open
    if clean:
        effect = replace(
            effect, lost_at=lost_at, barred="", unavailable=0, unavailable_since=0
        )  # patience is for this unknown, not the last
    return replace(
        effect, version=seq, sent=(*effect.sent, sent), clean_since=since if clean else effect.clean_since,
        args=e.args if e.digest else effect.args, digest=e.digest or effect.digest,
        recovery=e.recovery or effect.recovery, answered=None, conflict="",
    )  # fmt: skip


def _apply_found(effect: Effect, e: j.Found, at: int) -> Effect:
    if e.verdict == "confirmed":
        return _sub(replace(effect, confirmed=True, result=e.result, conflict=""), 0, close_all=True)
    if e.verdict == "not_found":
        return _sub(replace(effect, conflict="", answered=None, unavailable=0, unavailable_since=0, lost_at=0), 0, close_all=True)
    if e.verdict == "conflict":
        return replace(effect, conflict=e.reason or "conflict", answered=None)  # it contradicts an earlier "not there"
    return replace(effect, unavailable=effect.unavailable + 1, unavailable_since=effect.unavailable_since or at)


def _sub(effect: Effect, n: int, **facts: Any) -> Effect:
    """The effect with submission `n` changed."""
    return replace(effect, sent=_changed(effect.sent, n, **facts))


def _changed(
    sent: tuple[Sent, ...],
    n: int,
    *,
    close_all: bool = False,
    open: bool | None = None,
    lost: bool = False,
    ended: bool = False,
    fenced: bool = False,
    dead: bool = False,
    unfenced: str = "",
) -> tuple[Sent, ...]:
    """The submissions with `n` changed: facts are only ever added, and a closed submission is never opened."""
    subs = []
    for s in sent:
        if s.n == n:
            s = replace(
                s,
                open=s.open and open is not False and not close_all,
                lost=s.lost or lost,
                ended=s.ended or ended,
                fenced=s.fenced or fenced,
                dead=s.dead or dead,
                unfenced=unfenced or s.unfenced,
            )
        elif close_all and s.open:
            s = replace(s, open=False)
        subs.append(s)
    return tuple(subs)

"""The ladder: what may be done next about an effect whose outcome is unknown. Pure; the engine does it.

Late evidence is read first. Then each rung in the declared order, as long as it may be used and has patience left; a
person is the end of every ladder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from semel.machine.effects import RAISED, Effect, Sent

PATIENCE_MS = 3_600_000
POLL_MS = 500  # how often to look whether a sender has become quiet
MARGIN_MS = 60_000
LOOK_AGAIN = "settle is over now, and the last look of a person was before that: look again"


@dataclass(frozen=True, slots=True)
class Rung:
    """One declared recovery. kind: resend, lookup, repeat, ask, atomic. within_ms: of resend; None: a conditional write."""

    kind: str
    within_ms: int | None = None
    settle_ms: int = 0

    def __str__(self) -> str:
        if self.kind == "resend":
            return f"resend:{self.within_ms if self.within_ms is not None else 'always'}"
        return f"{self.kind}:{self.settle_ms}" if self.settle_ms else self.kind


@dataclass(frozen=True, slots=True)
class Facts:
    """What the asking process knows. now_ms, highest_ms: its wall clock, and the highest store time it has seen (R13).

    waited_ms: how long, on its own CLOCK_BOOTTIME, it has known that every sender is quiet; -1: they are not (R4).
    outlive_ms: how long the code of a submission may act after its time is over: then its session's beats stop, and it is
    killed. timeout_ms: how long that time is.
    """

    now_ms: int
    highest_ms: int
    waited_ms: int
    outlive_ms: int = 0
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class Credit:
    """Believe the late evidence about submission `n`."""

    n: int


@dataclass(frozen=True, slots=True)
class Again:
    """Send the recorded call again, same key, after `wait_ms`; its own deadline lies within `cap_ms` (None: the effect's)."""

    wait_ms: int
    cap_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """Ask by rung `index`; its not_found is believed only if settle is over."""

    index: int


@dataclass(frozen=True, slots=True)
class Believe:
    """A person said not_found when it was on record that settle is over."""

    settle_ms: int


@dataclass(frozen=True, slots=True)
class Note:
    """Settle is over: put that on record before a person looks. What one said before does not count, and they are asked again."""

    settle_ms: int


@dataclass(frozen=True, slots=True)
class RuleOut:
    """Submission `n` wrote in the transaction of its confirm, which the journal does not hold: take its place there."""

    n: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done for so long."""

    ms: int
    why: str


@dataclass(frozen=True, slots=True)
class Person:
    """The end of the ladder. Every ladder comes to it: no rung is tried without end."""

    why: str


Move = Credit | Again | Look | Believe | Note | RuleOut | Wait | Person


def margin_ms(within_ms: int) -> int:
    """How far inside the provider's retention a resend must stay."""
    return min(MARGIN_MS, within_ms // 10)


def next_move(effect: Effect, rungs: Sequence[Rung], facts: Facts, start: int = 0) -> Move:
    """What to do next about an ambiguous effect. start: the rungs before it have nothing more to give."""
    move, settle_ms = _next_move(effect, rungs, facts, start), settle_of(rungs)
    if isinstance(move, Person) and not effect.watched and facts.waited_ms >= settle_ms:
        return Note(settle_ms)
    return move


def _next_move(effect: Effect, rungs: Sequence[Rung], facts: Facts, start: int) -> Move:
    if effect.told is not None:
        return Credit(effect.told.n)
    for sent in effect.open:
        if any(found.n == sent.n and found.outcome != RAISED for found in effect.evidence):
            return Credit(sent.n)
    if effect.atomic and not effect.conflict:  # by what was recorded: what the code declares by now says nothing of it
        return RuleOut(effect.open[0].n)
    if effect.answered is not None:
        return _answered(effect, rungs, facts)
    if effect.conflict:
        return Person(f"conflict: {effect.conflict}")
    return _climb(effect, rungs, facts, start)


def _climb(effect: Effect, rungs: Sequence[Rung], facts: Facts, start: int) -> Move:
    """The first rung that may be used and has patience left. An `ask` ends it: nothing is tried behind a person's back."""
    lookups = sends = 0
    for index, rung in enumerate(rungs):
        if rung.kind == "ask":
            break
        if rung.kind in ("repeat", "resend"):
            sends += 1
            cap = _resend_cap(effect, rung, facts) if rung.kind == "resend" else None
            usable = cap != 0 and not effect.barred and index >= start
            if usable and _sending_ms(effect, facts) < PATIENCE_MS * sends:
                return Again(_backoff(effect), cap)
        if rung.kind == "lookup":
            lookups += 1
            since = effect.unavailable_since
            if index >= start and (not since or facts.now_ms - since < PATIENCE_MS * lookups):
                return Look(index)
    if effect.barred:
        return Person(f"the provider refuses it, and an earlier try is unknown: {effect.barred}")
    if effect.word is not None and effect.word.verdict == "not_found" and effect.watched:
        return Person(LOOK_AGAIN)
    return Person("nobody but a person can tell" if not lookups else "the provider could not be asked")


def settle_after(effect: Effect, rung: Rung, facts: Facts) -> int:
    """Milliseconds until a not_found by this rung may be believed; 0: now; below 0: a sender is not quiet yet."""
    if effect.watched:
        return 0
    if facts.waited_ms < 0:
        return -1
    return max(0, rung.settle_ms - facts.waited_ms)


def _answered(effect: Effect, rungs: Sequence[Rung], facts: Facts) -> Move:
    ask = Rung("ask", settle_ms=settle_of(rungs))
    left = settle_after(effect, ask, facts)
    if left < 0 and any(sent.beyond_proof for sent in effect.open):
        return Person(f"nothing can prove that a sender of {effect.name} has stopped: say so (--process-stopped)")
    if left < 0:
        return Wait(POLL_MS, f"a person said not_found; a sender of {effect.name} may still act")
    if left > 0:
        return Wait(left, "a person said not_found; settle is being watched")
    return Believe(ask.settle_ms) if effect.watched else Note(ask.settle_ms)


def rungs_of(effect: Effect) -> tuple[Rung, ...]:
    """The recovery ladder that was recorded with the intent."""
    return tuple(map(_rung, effect.recovery))


def _rung(text: str) -> Rung:
    kind, _, number = text.partition(":")
    if kind == "resend":
        return Rung(kind, None if number == "always" else int(number))
    return Rung(kind, settle_ms=int(number or 0))


def settle_of(rungs: Sequence[Rung]) -> int:
    """Milliseconds of settle before a person is believed: no less than any lookup is given."""
    return max((rung.settle_ms for rung in rungs if rung.kind in ("lookup", "ask")), default=0)


def _again(effect: Effect) -> tuple[Sent, ...]:
    """The resubmissions since it became unknown; those that were disproved count too, or a refused connection is a hot loop."""
    return effect.sent[effect.open[0].n :] if effect.open else ()


def _backoff(effect: Effect) -> int:
    tries = len(_again(effect))
    return 0 if not tries else min(100 * 2 ** min(tries - 1, 9), 30_000)


def _sending_ms(effect: Effect, facts: Facts) -> int:
    """How long it has been resubmitted in vain. From the first time on: hours in which nobody tried are not patience."""
    tries = _again(effect)
    return max(facts.now_ms, facts.highest_ms) - tries[0].at if tries else 0


def _resend_cap(effect: Effect, rung: Rung, facts: Facts) -> int | None:
    """The longest a resend may take, in milliseconds; None: no limit; 0: this rung may not be used any more."""
    age = max(facts.now_ms, facts.highest_ms) - effect.clean_since
    if rung.within_ms is None:
        return None
    margin = margin_ms(rung.within_ms)
    if facts.highest_ms - facts.now_ms > margin or age < -margin:
        return 0  # the clocks disagree: nobody can say how old it is
    if not effect.quiet and rung.within_ms - margin < facts.timeout_ms + facts.outlive_ms:
        return 0  # an earlier try still runs, and might send its request when the provider has forgotten this one
    last = rung.within_ms - margin - facts.outlive_ms  # what stands still before its first byte must not act later than this
    return max(0, last - age - _backoff(effect))  # it is sent only after that wait

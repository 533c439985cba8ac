"""Limits: what a task has used up since a person last replayed it, and what it may use up.

Money and tokens are what the agent's code says that it spent (`Spent`); time is how long workers held the task. Effects are
counted where they are intended: acts are never forgotten, and these are.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

from semel.machine import events as j
from semel.machine.records import record, replace
from semel.model import Limits, exact_usd

# An amount has 15 digits before the point and 18 behind it at most: so 10^20 of them are summed without rounding.
EXACT = Context(prec=60, traps=[Inexact, InvalidOperation, Overflow])
ZERO = Decimal(0)


@record
class Budget:
    """What one task may use up. usd: exact decimal text; "": no limit. ms: of running."""

    usd: str = ""
    tokens: int | None = None
    ms: int | None = None


@record
class Used:
    """What limits count: since the last replay. old_...: before it, which stays on record.

    since: when the attempt under way was claimed, in milliseconds.
    """

    usd: Decimal = ZERO
    tokens: int = 0
    ms: int = 0
    since: int = 0
    old_usd: Decimal = ZERO
    old_tokens: int = 0
    old_ms: int = 0

    @property
    def total(self) -> tuple[Decimal, int, int]:
        """All that is on record: usd, tokens, milliseconds."""
        return EXACT.add(self.usd, self.old_usd), self.tokens + self.old_tokens, self.ms + self.old_ms


NOTHING, UNLIMITED = Used(), Budget()


def budget_of(limits: Limits) -> Budget:
    """The part of declared limits that is recorded with each claim, and that the machine judges by."""
    usd = "" if limits.usd is None else text_of(exact_usd(limits.usd, "Limits(usd=)"))
    return Budget(usd, limits.tokens, None if limits.seconds is None else int(limits.seconds * 1000))


def text_of(usd: Decimal) -> str:
    """An amount as exact text, without an exponent."""
    return format(usd, "f")


def over(used: Used, budget: Budget, ran: int = 0) -> str:
    """Which limit the task is beyond, in words; "": none. ran: milliseconds of the attempt under way."""
    if budget.usd and used.usd > Decimal(budget.usd):
        return f"spent {text_of(used.usd)} usd of {budget.usd}"
    if budget.tokens is not None and used.tokens > budget.tokens:
        return f"spent {used.tokens} tokens of {budget.tokens}"
    if budget.ms is not None and used.ms + ran > budget.ms:
        return f"ran for {(used.ms + ran) / 1000:g} s of {budget.ms / 1000:g}"
    return ""


# --- apply ----------------------------------------------------------------------------------------------------------


def last_seen(seen: int, event: j.Happened, at: int) -> int:
    """When the attempt under way last put something on record; what others say of its task does not count."""
    return at if type(event) in _ITS_OWN else seen


def after(used: Used, event: j.Happened, seen: int) -> Used:
    """What is used up after `event`. seen: as `last_seen` has it."""
    change = _AFTER.get(type(event))
    return change(used, event, seen) if change else used


def _spent(u: Used, x: j.Spent, seen: int) -> Used:
    try:
        usd = EXACT.add(u.usd, Decimal(x.usd))
    except ArithmeticError:
        usd = Decimal("NaN")
    if not usd.is_finite():
        raise ValueError(f"the journal says that {x.usd!r} usd were spent, which is no amount")
    return replace(u, usd=usd, tokens=u.tokens + x.tokens)


def _ended(u: Used, x: Any, seen: int) -> Used:
    return replace(u, ms=u.ms + x.ran) if x.ran else u


def _replayed(u: Used, x: j.Replayed, seen: int) -> Used:
    usd, tokens, ms = u.total
    return Used(old_usd=usd, old_tokens=tokens, old_ms=ms)


_AFTER: dict[type, Callable[[Used, Any, int], Used]] = {
    j.Claimed: lambda u, x, seen: replace(u, since=seen),
    j.Spent: _spent,
    j.LeaseLost: lambda u, x, seen: replace(u, ms=u.ms + max(0, seen - u.since)),  # a crashed attempt counts for so long
    j.Replayed: _replayed,
    **dict.fromkeys((j.Finished, j.Failed, j.Parked, j.Blocked, j.DeadLettered), _ended),
}
_ITS_OWN = {j.Claimed, j.Spent, j.Stepped, j.Joined, j.Suspended, j.Intended, j.Confirmed, j.Disproved, j.Asked, j.Declined}

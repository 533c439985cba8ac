"""What observers are told: a transaction of the writer's, or a fence, as a record."""

from __future__ import annotations

from collections.abc import Sequence

from semel.observe import Claimed, Commit
from semel.store.contract import Change, Claims, ClaimUnit, Landed, Outcome, Unit


def commit_of(units: Sequence[Unit], outcomes: Sequence[Outcome], seconds: float, waited: float) -> Commit:
    """The record of one acknowledged transaction."""
    landed = [u for u, o in zip(units, outcomes, strict=True) if isinstance(u, Change) and isinstance(o, Landed)]
    claimed = [
        Claimed(
            taken.tenant, taken.task.id, taken.task.kind, taken.task.queue, taken.task.attempt, taken.task.token,
            max(0, unit.at - taken.task.due), unit.at,
        )
        for unit, outcome in zip(units, outcomes, strict=True)
        if isinstance(unit, ClaimUnit) and isinstance(outcome, Claims)
        for taken in outcome.tasks
    ]  # fmt: skip
    rows = tuple(row for change in landed for part in change.parts for row in part.rows)
    refused = sum(not isinstance(outcome, Landed | Claims) for outcome in outcomes)
    return Commit(rows, tuple(claimed), refused, seconds, waited)

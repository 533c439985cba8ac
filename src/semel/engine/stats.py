"""The three ledgers in numbers."""

from __future__ import annotations

from semel.engine.ledger import Desk
from semel.engine.standing import Paused
from semel.model import Delivery, EffectState, Execution
from semel.observe import Stats, Waiting


def read(desk: Desk, paused: Paused, tenant: str | None) -> Stats:
    """As they are now: a few statements one after the other, so a number may be ahead of another."""
    counts, tally, held = desk.store.counts(tenant), desk.store.tally(tenant), paused.now().held
    now = desk.clock.wall_ms()
    return Stats(
        unknown=tally.unknown,
        oldest_unknown_ms=max(0, now - tally.oldest_unknown) if tally.unknown else 0,
        dead=counts["delivery"].get(Delivery.DEAD_LETTERED, 0),
        approvals=tally.asking,
        delivery={state.value: counts["delivery"].get(state, 0) for state in Delivery},
        execution={state.value: counts["execution"].get(state, 0) for state in Execution},
        effects={state.value: counts["effect"].get(state, 0) for state in EffectState},
        at_work=tally.at_work,
        sessions=tally.sessions.get("", 0),
        fenced={how: many for how, many in sorted(tally.sessions.items()) if how},
        paused=tuple(sorted(str(scope) for scope in held)),
        waiting=tuple(Waiting(d.queue, d.kind, d.waiting, max(0, now - d.first_due)) for d in tally.depths),
    )

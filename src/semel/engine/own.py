"""The store's own streams (tenant ""): its epoch, and what people have paused. Decided and landed, waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from semel.engine.ledger import START, Desk, change_id
from semel.errors import StoreUnavailable
from semel.machine import journal as j
from semel.machine.effects import Decision
from semel.machine.projection import Tables
from semel.model import Refusal
from semel.store.contract import Change, Head, Landed, Part

TENANT, TRIES = "", 100
S = TypeVar("S")


class Fold(Protocol[S]):
    """The state that a stream's rows tell of, from a state on."""

    def __call__(self, rows: Sequence[j.Row], state: S | None = None, /) -> S: ...


def land(desk: Desk, stream: str, fold: Fold[S], decide: Callable[[S], Decision | Refusal], actor: str) -> S | Refusal:
    """Decide on what the stream tells now, and land it; the state after it, or the machine's no."""
    for _ in range(TRIES):
        rows = desk.store.rows(TENANT, stream)
        state = fold(rows)
        decided = decide(state)
        if isinstance(decided, Refusal) or not decided.events:
            return decided if isinstance(decided, Refusal) else state
        head = Head(rows[-1].seq, rows[-1].hash) if rows else START
        identity = change_id()
        new = j.seal(
            decided.events, tenant=TENANT, stream=stream, seq=head.seq, previous=head.hash, actor=actor, token=0,
            at=desk.clock.wall_ms(), id=identity,
        )  # fmt: skip
        moved = next((event.epoch for event in decided.events if isinstance(event, j.EpochBegan)), 0)
        ticket = desk.writer.submit(Change(identity, (Part(TENANT, stream, head, new, Tables()),), epoch=moved))
        ticket.wait()
        if isinstance(ticket.value, Landed):
            return fold(new, state)
        if isinstance(ticket.value, StoreUnavailable):
            raise ticket.value
    raise StoreUnavailable(f"the store's own stream {stream!r} is written by others without end")

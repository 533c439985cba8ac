"""A writer whose transactions land when the world says so, and whose answers may be lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import procs_shims as shims
from procs_store import Gone, Handle

from semel.engine.requests import Await
from semel.store.contract import Change, Unit
from semel.store.writer import Ticket


class HandTicket(Ticket):
    """Waiting for it is a stop, like any other."""

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set:
            shims.here().block(Await(self))
        return True


class HandWriter:
    """Lands what is queued when the world says so. doubt: a batch whose COMMIT was not answered; it is given again (R7)."""

    def __init__(self, handle: Handle, told: Callable[[Any, Any], None]) -> None:
        self._handle, self._told = handle, told
        self.queue: list[HandTicket] = []
        self.doubt: list[HandTicket] = []
        self.unheard: list[tuple[HandTicket, Any]] = []  # answers to a process that is frozen
        self.observed = None

    def submit(self, unit: Unit, *, waited_for: bool = True) -> HandTicket:
        if self._handle.dead:
            raise Gone
        self.queue.append(HandTicket(unit))
        return self.queue[-1]

    def barrier(self) -> HandTicket:
        return self.submit(Change("", ()))

    def close(self) -> None: ...

    @property
    def busy(self) -> bool:
        return bool(self.doubt or self.queue)

    def commit(self, most: int = 512) -> list[tuple[HandTicket, Any]]:
        """One transaction; the answers are still to be told."""
        batch = self.doubt or self.queue[:most]
        if not self.doubt:
            self.queue = self.queue[most:]
        self.doubt = batch
        outcomes = self._handle.commit([ticket.unit for ticket in batch])
        return list(zip(batch, outcomes, strict=True))

    def tell(self, answers: list[tuple[HandTicket, Any]]) -> None:
        """The answers come."""
        self.doubt = []
        if answers:
            self._told([ticket.unit for ticket, _ in answers], [outcome for _, outcome in answers])
        for ticket, outcome in answers:
            ticket.set(outcome)

    def land(self) -> None:
        """All that is queued, at once: for a person, whose commits nothing interrupts."""
        while self.busy:
            self.tell(self.commit())

    def words(self) -> str:
        """What the next batch would write."""
        kinds = []
        for ticket in self.doubt or self.queue:
            unit = ticket.unit
            if not isinstance(unit, Change):
                kinds.append("a claim")
            elif unit.parts:
                kinds.append("+".join(row.kind for part in unit.parts for row in part.rows))
        return ", ".join(kinds) or "nothing"

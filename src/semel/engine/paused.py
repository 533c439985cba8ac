"""Pausing and resuming, and what of a thing is still at work."""

from __future__ import annotations

from semel.engine import own
from semel.engine.ledger import Desk
from semel.engine.queue import check_name
from semel.engine.review import person
from semel.errors import Misuse, Refused
from semel.machine import pauses
from semel.machine.pauses import ALL, KIND, QUEUE, Pauses, Scope
from semel.machine.projection import InflightRow
from semel.model import Refusal
from semel.store.contract import Store

PAGE = 1000


def scope_of(queue: str | None, kind: str | None, everything: bool) -> Scope:
    """What is meant. Raises `Misuse`."""
    if (queue is not None) + (kind is not None) + everything != 1:
        raise Misuse("say what, and one thing: queue='billing', kind='bill', or everything=True")
    if everything:
        return Scope(ALL)
    what, name = (QUEUE, queue) if queue is not None else (KIND, kind)
    check_name(name, what)
    return Scope(what, name or "")


def told(desk: Desk, command: pauses.Command, by: str) -> Pauses:
    """Pause or resume. Raises `Refused`, and `Misuse` for who may not."""
    actor = person(by)
    if desk.tenant is not None:
        raise Misuse(
            f"a pause holds for all tenants, and this app is of {desk.tenant!r} alone; use an app that is bound to none: "
            f"semel.App(..., tenant='default')"
        )
    decided = own.land(desk, pauses.STREAM, pauses.fold, lambda state: pauses.decide(state, command), actor)
    if isinstance(decided, Refusal):
        raise Refused(decided.code, decided.message, decided.result)
    return decided


def at_work(store: Store, scope: Scope) -> list[InflightRow]:
    """The attempts of it that are under way, or whose worker is gone and not yet taken from it."""
    rows = [row for session in store.sessions() for row in store.held(session.id)]
    after: InflightRow | None = None
    while page := store.orphans(after, PAGE):
        rows += [row for row, _ in page]
        after = page[-1][0]
    if scope.what == ALL:
        return rows
    found = ((row, store.task(row.tenant, row.task)) for row in rows)
    return [row for row, task in found if task is not None and scope.name == (task.queue if scope.what == QUEUE else task.kind)]

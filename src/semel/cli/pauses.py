"""`semel pause`, `semel resume`, `semel drain`: what workers are to leave alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from semel.app import App
from semel.cli import output as out
from semel.cli.tell import person_of
from semel.engine import paused
from semel.engine.ledger import Desk
from semel.errors import Misuse, Refused
from semel.machine.pauses import Pause, Scope
from semel.model import Json

LOOK_SECONDS = 0.2


def scope(queue: str | None, kind: str | None, everything: bool) -> Scope:
    """What is meant. Raises `Misuse`."""
    if (queue is not None) + (kind is not None) + everything != 1:
        raise Misuse("say what, and one thing: --queue NAME, --kind NAME, or --all")
    return paused.scope_of(queue, kind, everything)


def given(what: Scope) -> dict[str, str]:
    """As `app.review.pause` takes it."""
    return {what.what: what.name} if what.name else {}


def pause_data(one: Pause) -> dict[str, Json]:
    """For programs."""
    return {"what": one.scope.what, "name": one.scope.name, "by": person_of(one.by), "why": one.why, "at": one.at}


def data(desk: Desk, held: Sequence[Pause]) -> dict[str, Json]:
    """For programs: what is paused, and how many attempts of it are still under way."""
    return {"paused": [{**pause_data(one), "at_work": len(paused.at_work(desk.store, one.scope))} for one in held]}


def listed(desk: Desk, held: Sequence[Pause]) -> None:
    """For people."""
    if not held:
        out.verdict("Nothing is paused.", "good")
        return
    now = desk.clock.wall_ms()
    for one in held:
        under_way = len(paused.at_work(desk.store, one.scope))
        running = f"; {out.count(under_way, 'attempt')} of it still under way" if under_way else ""
        out.say(f"{one.scope}: paused by {person_of(one.by)} {out.duration(now - one.at)} ago{running}")
        if one.why:
            out.indented(one.why, 2)


def drained(app: App, what: Scope, seconds: float, told: Callable[[int], None]) -> int:
    """Wait until nothing of it is under way, at most `seconds`; how many attempts are, then."""
    until = time.monotonic() + seconds
    before = -1
    while True:
        left = len(paused.at_work(app.runtime.desk.store, what))
        if left != before:
            told(left)
        before = left
        if left == 0 or time.monotonic() >= until:
            return left
        time.sleep(LOOK_SECONDS)


def pause_anyway(app: App, what: Scope, by: str, reason: str) -> None:
    """Pause it, or be content that it is paused."""
    try:
        app.review.pause(by=by, reason=reason, everything=not what.name, **given(what))
    except Refused:
        if what not in {one.scope for one in app.review.paused()}:
            raise

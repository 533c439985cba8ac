"""Unknown work is said aloud: how many effects are unknown, how many of them wait for a person, and for how long.

A worker looks at the unknown-work queue at each beat anyway, so that settle is watched; this costs no further look. It is said
when the worker starts, when there are more (at most once a minute), and again and again while the oldest is too old.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from datetime import timedelta

from semel.engine.ledger import Desk
from semel.errors import Misuse
from semel.machine.projection import UnknownRow
from semel.model import Delivery

log = logging.getLogger("semel")
TOO_OLD = timedelta(hours=1)
OFTEN_MS = 60_000  # not more often than that
LOOKED_AT = 100  # so many tasks are asked whether they wait for a person


def too_old_ms() -> int:
    """From which age on unknown work is said aloud again, milliseconds: $SEMEL_UNKNOWN_AFTER, in seconds. Raises `Misuse`."""
    text = os.environ.get("SEMEL_UNKNOWN_AFTER", "").strip()
    if not text:
        return int(TOO_OLD.total_seconds() * 1000)
    if not text.isdecimal() or int(text) < 1:
        raise Misuse(f"SEMEL_UNKNOWN_AFTER={text!r} is no number of seconds; write 3600 for an hour, or leave it out")
    return int(text) * 1000


class Alarm:
    """What one worker has said so far. too_old_ms: from which age on it is said again, each time that it has passed once more."""

    def __init__(self, desk: Desk, too_old_ms: int) -> None:
        self._desk, self._too_old_ms = desk, too_old_ms
        self._said, self._said_ms = 0, 0

    def hear(self, rows: Sequence[UnknownRow], most: int) -> None:
        """The unknown-work queue, oldest first, and how many of it are read at most."""
        if not rows:
            self._said = 0
            return
        now, count = self._desk.clock.raw_ms(), len(rows)
        age, since = now - rows[0].since, now - self._said_ms
        more = count > self._said and since >= OFTEN_MS
        old = age >= self._too_old_ms and since >= max(OFTEN_MS, self._too_old_ms)
        self._said = min(self._said, count)
        if more or old:
            self._said, self._said_ms = count, now
            self._say(rows, age, f"{count} or more" if count >= most else str(count))

    def _say(self, rows: Sequence[UnknownRow], age: int, count: str) -> None:
        tasks = [self._desk.store.task(row.tenant, row.task) for row in rows[:LOOKED_AT]]
        people = sum(1 for task in tasks if task is not None and task.delivery == Delivery.BLOCKED)
        words = "1 effect" if count == "1" else f"{count} effects"
        log.warning(
            "semel: unknown: %s, %s for a person to settle, the oldest for %s; their tasks start nothing else: "
            "semel unknown",
            words, f"{people} or more" if len(rows) > LOOKED_AT else people, timedelta(seconds=age // 1000),
        )  # fmt: skip

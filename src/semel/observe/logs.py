"""Structured logs: one line for each event, by the logger `semel.events`.

Arguments, results, reasons and the words of errors are given at DEBUG alone: they may hold what is nobody else's business.
Redacted fields are not in what is recorded, so they are not here either.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from semel.machine import journal as j
from semel.machine.journal import Row
from semel.observe import Claimed, Fenced, Record

LOUD = frozenset({"lost", "late", "failed", "lease_lost", "dead_lettered", "blocked", "assumed", "epoch_began", "paused"})
PLAIN = (
    "name", "key", "task", "attempt", "n", "state", "verdict", "how", "code", "queue", "priority", "due", "event", "until",
    "again", "ended", "fenced", "dead", "final", "unfenced", "generation", "timeout_ms", "approvers", "expires",
    "stopped", "proof", "session", "epoch", "what", "max_attempts", "max_crashes",
)  # fmt: skip  # fields of events that hold nothing of a caller's
log = logging.getLogger("semel.events")


class Logs:
    """An observer that logs. as_json: each line is JSON; else words. `extra={"semel": {...}}` holds the fields either way."""

    def __init__(self, *, as_json: bool = False, logger: logging.Logger = log) -> None:
        self._as_json, self._log = as_json, logger

    def __call__(self, record: Record) -> None:
        """Log one record."""
        if isinstance(record, Fenced):
            told = {"session": record.session, "own": record.own, "at": record.at}
            self._say(logging.ERROR if record.own else logging.WARNING, "fenced", told, {"how": record.how})
            return
        for claimed in record.claimed:
            self._say(logging.INFO, "claimed", _of_claim(claimed), {})
        for row in record.rows:
            self._say(logging.WARNING if row.kind in LOUD else logging.INFO, row.kind, *_of_row(row))
        told = {"rows": len(record.rows), "claimed": len(record.claimed), "refused": record.refused}
        times = {"seconds": round(record.seconds, 6), "waited": round(record.waited, 6), "dropped": record.dropped}
        self._say(logging.WARNING if record.dropped else logging.DEBUG, "commit", {**told, **times}, {})

    def _say(self, level: int, what: str, told: dict[str, Any], more: dict[str, Any]) -> None:
        if not self._log.isEnabledFor(level):
            return
        if self._log.isEnabledFor(logging.DEBUG):
            told = {**told, **more}
        told = {"what": what, **told}
        words = json.dumps(told, ensure_ascii=False, default=str) if self._as_json else _words(told)
        self._log.log(level, "%s", words, extra={"semel": told})


def _of_claim(claimed: Claimed) -> dict[str, Any]:
    return {
        "tenant": claimed.tenant, "task": claimed.task, "name": claimed.kind, "queue": claimed.queue, "attempt": claimed.attempt,
        "token": claimed.token, "late_ms": claimed.late_ms, "at": claimed.at,
    }  # fmt: skip


def _of_row(row: Row) -> tuple[dict[str, Any], dict[str, Any]]:
    """What anybody who reads logs may see, and what only DEBUG shows."""
    body = j.as_mapping(row.event or j.event_of(row))
    told = {"tenant": row.tenant, "stream": row.stream, "seq": row.seq, "actor": row.actor, "token": row.token, "at": row.at}
    plain = [name for name in PLAIN if not (name == "key" and row.kind == j.Enqueued.kind)]  # a task's is made of arguments
    told.update((name, body[name]) for name in plain if body.get(name) not in (None, "", 0, False))
    return told, {name: value for name, value in body.items() if name not in plain}


def _words(told: dict[str, Any]) -> str:
    fields = " ".join(f"{name}={json.dumps(value, default=str)}" for name, value in told.items() if name != "what")
    return f"{told['what']} {fields}"

"""A resend for which no time is left within what the provider remembers (R13)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from semel.engine import recover
from semel.engine.clock import Clock
from semel.engine.requests import Sleep
from semel.machine import recovery as r


def test_in_the_last_millisecond_of_within_nothing_is_sent_and_the_ladder_waits_instead_of_spinning() -> None:
    known: Any = SimpleNamespace(args={}, sent=(SimpleNamespace(at=0),), open=(), key="k", name="pay", version=1)
    effect: Any = SimpleNamespace(parameters=SimpleNamespace(decode=lambda args: {}), identity=None)
    attempt: Any = SimpleNamespace(clock=Clock(), ledger=SimpleNamespace(state=SimpleNamespace(bound=())))
    asked = list(recover.resend(attempt, effect, known, r.Again(wait_ms=0, cap_ms=1)))
    assert [type(request) for request in asked] == [Sleep], "no submission is opened"

"""Unknown work is said aloud on the worker's log: when it starts, when there is more, and again while the oldest is too old."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

import semel
from semel.engine.alarm import Alarm, too_old_ms
from semel.engine.ledger import Desk
from semel.machine.projection import UnknownRow
from semel.testing import Harness

MINUTE, HOUR = 60_000, 3_600_000


class Room:
    """An alarm with a clock that the test moves, and a store in which every task is blocked."""

    def __init__(self) -> None:
        self.now = 100 * HOUR
        self.questions = 0
        desk = SimpleNamespace(clock=SimpleNamespace(raw_ms=lambda: self.now), store=self)
        self.alarm = Alarm(cast(Desk, desk), HOUR)

    def task(self, tenant: str, task: str) -> Any:
        self.questions += 1
        return SimpleNamespace(delivery="blocked" if task != "t0" else "queued")

    def hear(self, count: int, age: int = 0, most: int = 1000) -> None:
        self.alarm.hear([UnknownRow("default", f"k{n}", f"t{n}", "pay", self.now - age) for n in range(count)], most)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING, "semel")
    return lambda: [record.getMessage() for record in caplog.records if "unknown" in record.getMessage()]


def test_nothing_is_said_of_nothing_and_nothing_is_asked(said: Any) -> None:
    room = Room()
    room.hear(0)
    assert not said() and not room.questions


def test_it_is_said_at_first_when_there_is_more_and_when_it_is_too_old(said: Any) -> None:
    room = Room()
    room.hear(2, age=90_000)
    assert said() == [
        "semel: unknown: 2 effects, 1 for a person to settle, the oldest for 0:01:30; their tasks start nothing else: "
        "semel unknown"
    ]
    room.hear(3)
    room.now += MINUTE - 1
    room.hear(3)
    assert len(said()) == 1, "not more than once a minute"
    room.now += 1
    room.hear(3)
    room.now += 50 * MINUTE
    room.hear(3, age=51 * MINUTE)
    assert len(said()) == 2, "nothing new"
    room.now += 10 * MINUTE
    room.hear(3, age=61 * MINUTE)
    assert len(said()) == 3 and "the oldest for 1:01:00" in said()[-1]
    room.now += MINUTE
    room.hear(3, age=62 * MINUTE)
    assert len(said()) == 3, "again in an hour"
    room.hear(0)
    room.hear(1)
    assert len(said()) == 4, "it had been none"


def test_of_very_many_not_every_one_is_looked_at(said: Any) -> None:
    room = Room()
    room.hear(1000)
    assert "unknown: 1000 or more effects, 99 or more for a person" in said()[0] and room.questions == 100


def test_the_age_is_set_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEMEL_UNKNOWN_AFTER", raising=False)
    assert too_old_ms() == HOUR
    monkeypatch.setenv("SEMEL_UNKNOWN_AFTER", "90")
    assert too_old_ms() == 90_000
    for wrong in ("1h", "0", "-5"):
        monkeypatch.setenv("SEMEL_UNKNOWN_AFTER", wrong)
        with pytest.raises(semel.Misuse, match="is no number of seconds; write 3600"):
            too_old_ms()


def test_a_worker_says_so_when_it_starts(said: Any) -> None:
    app = semel.App("sqlite:///never-made.db")

    @app.effect(intent=("ref",))
    def pay(submission: semel.Submission, ref: str) -> str:
        raise ConnectionResetError

    @app.task(intent=("ref",))
    def bill(ref: str) -> str:
        return pay(ref)

    with Harness(app) as h:
        bill.enqueue("r1")
        h.run()
        assert not said()
        h.advance(timedelta(hours=2))
        h.run()
        (words,) = said()
        assert words.startswith("semel: unknown: 1 effect, 1 for a person to settle, the oldest for 2:00:00")

"""A shared key's decision against the tasks that are about to wait for it: neither can miss the other (R8, R21)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import semel
from semel.engine import drive, review
from semel.engine.ledger import Desk, Ledger
from semel.machine import effects as e
from semel.machine import tasks
from semel.model import Delivery, Refusal
from semel.testing import Harness

KEY = "sml_shared"


class Both:
    """Two tasks that have asked for one key of the tenant's, and run still."""

    def __init__(self, app: semel.App) -> None:
        @app.task(name="work", intent=("n",))
        def work(n: int) -> None: ...

        self.app, self.desk = app, app.runtime.desk
        self.ids = [work.enqueue(n).id for n in (1, 2)]
        self.agents = [self.agent(id) for id in self.ids]

    def agent(self, id: str) -> Ledger:
        ledger = self.read(id)
        drive.run(ledger.commit(tasks.Claim("s", 1, self.desk.clock.wall_ms(), direct=True)))
        state = ledger.state
        call = e.Intend(KEY, "pay", {"to": "a"}, "d", "", id, state.attempt, state.token, "s", approvers=1, intent=("to",))
        decided = drive.run(ledger.commit(call, scope="tenant"))
        assert not isinstance(decided, Refusal) and [event.kind for event in decided.events] == ["asked"]
        return ledger

    def read(self, id: str) -> Ledger:
        ledger = Ledger.read(self.desk, "default", id, "test")
        assert ledger is not None
        return ledger

    def block(self, n: int) -> None:
        agent = self.agents[n]
        drive.run(agent.commit(tasks.Block(agent.state.token, "waits", KEY, approval=True)))

    def decide(self) -> None:
        row = self.app.effects.row(KEY, None)
        drive.run(review.deny(self.desk, row, by="ann", reason="", seen=None))

    def deliveries(self) -> list[str]:
        return [str(self.read(id).state.delivery) for id in self.ids]


@pytest.fixture
def both() -> Iterator[Both]:
    app = semel.App("sqlite:///never-made.db")
    with Harness(app):
        yield Both(app)


def test_all_that_wait_are_freed_in_one_change(both: Both) -> None:
    both.block(0)
    both.block(1)
    assert both.deliveries() == ["blocked", "blocked"]
    both.decide()
    assert both.deliveries() == ["queued", "queued"]
    rows = [row for stream in (*both.ids, KEY) for row in both.desk.store.rows("default", stream)]
    assert len({row.id for row in rows if row.kind in ("denied", "unblocked")}) == 1


@pytest.mark.parametrize("n", [0, 1])
def test_a_task_that_is_about_to_wait_sees_what_was_decided_since_it_looked(both: Both, n: int) -> None:
    both.decide()
    assert both.agents[n].keys[KEY].state.effect is not None and both.agents[n].keys[KEY].state.effect.denied is None
    both.block(n)
    assert both.deliveries()[n] == "queued"


@pytest.mark.parametrize("n", [0, 1])
def test_a_decision_sees_who_came_to_wait_since_it_looked(both: Both, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Ledger.read
    came: list[str] = []

    def read_then_block(desk: Desk, tenant: str, task: str, actor: str) -> Any:
        found = read(desk, tenant, task, actor)
        if task == both.ids[n] and actor == "person:ann" and not came:
            came.append(task)
            both.block(n)
        return found

    monkeypatch.setattr(Ledger, "read", read_then_block)
    both.decide()
    assert came and both.deliveries()[n] == Delivery.QUEUED

"""The first user's own test (tests/typing/cases/users.py), as it is written there, for real."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pydantic_ai.models.test import TestModel

sys.path.insert(0, str(Path(__file__).parent.parent / "typing" / "cases"))
for name in ("acme", "acme.billing"):  # the module that this user's app says declares its tasks
    sys.modules.setdefault(name, ModuleType(name))

import users  # noqa: E402
from users import rig, test_bill  # noqa: E402

__all__ = ["rig", "test_bill"]


@pytest.fixture(autouse=True)
def model() -> Iterator[None]:
    """Its agent's model, which in this test calls no tools."""
    with users.agent.override(model=TestModel(call_tools=[])):
        yield


def test_the_user_has_one_charge_and_one_mail() -> None:
    with users.Harness(users.app) as h:
        test_bill(h)
        assert [len(h.sent(effect)) for effect in (users.charge, users.send_invoice)] == [1, 1]
        (task,) = users.app.tasks.list(tenant="acme")
        assert (task.attempt, task.crashes, task.delivery, task.execution) == (2, 1, "acknowledged", "succeeded")


def test_the_model_itself_may_charge() -> None:
    """The agent's two tools are the same effect, called in parallel with the same arguments by a model that calls all it has."""
    with users.agent.override(model=TestModel()), users.Harness(users.app) as h:
        ref = users.bill.using(tenant="acme").enqueue("inv_42")
        h.run()
        assert ref.result().paid == 42
        assert [sent.arguments["invoice_id"] for sent in h.sent(users.charge)] == ["a", "inv_42"]

"""A new generation of an effect that provably did not happen: a person opens it, and its next call is sent under a new key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

import semel
from semel.testing import Harness


class Bank:
    """Pays, or says no for good; by task, or once for the tenant."""

    def __init__(self, scope: Literal["task", "tenant"] = "task", **how: Any) -> None:
        self.app = app = semel.App("sqlite:///never-made.db")
        self.paid: list[tuple[str, int]] = []
        self.keys: list[str] = []
        self.open, self.cents = False, 500

        @app.effect(intent=("ref",), material=("cents",), scope=scope, per_task=1, **how)
        def pay(submission: semel.Submission, ref: str, cents: int) -> str:
            if not self.open:
                raise semel.NotDone("the account is closed", retry=False)
            self.paid.append((ref, cents))
            self.keys.append(submission.key)
            return f"paid {ref}"

        @app.task(retry=semel.Retry(max_attempts=1), limits=semel.Limits(effects=1))
        def bill(ref: str) -> str:
            return pay(ref, self.cents)

        self.pay, self.bill = pay, bill

    def refused(self, h: Harness, key: str = "t1") -> tuple[semel.Ref[str], semel.EffectView]:
        """A dead letter, whose payment the bank has refused for good."""
        task = self.bill.using(key=key).enqueue("r1")
        h.run()
        assert self.app.tasks.get(task).delivery == "dead_lettered"
        (effect,) = [x for x in self.app.effects.list() if not self.app.effects.get(x.key).why.startswith("ann")]
        return task, effect


def refusal(code: str, call: Callable[[], object]) -> str:
    with pytest.raises(semel.Refused) as caught:
        call()
    assert caught.value.code == code
    return str(caught.value)


@pytest.mark.parametrize("scope", ["task", "tenant"])
def test_its_next_call_is_sent_under_a_new_key_and_the_same_on_every_replay(scope: Literal["task", "tenant"]) -> None:
    bank = Bank(scope)
    with Harness(bank.app) as h:
        task, effect = bank.refused(h)
        bank.open = True
        bank.app.review.replay(task, by="ann")
        h.run()
        assert not bank.paid, "on record: it was refused for good"
        bank.app.review.renew(effect.key, by="ann", reason="the account is open again", seen=effect.version)
        bank.cents = 400  # a new key may have other material
        told = bank.app.review.forecast(task)
        assert (told.recorded, told.again, told.most) == ({}, {"pay": 1}, {"pay": 1})
        bank.app.review.replay(task, by="ann", at_most={})
        h.run()
        assert task.result() == "paid r1" and bank.paid == [("r1", 400)], "neither a limit nor a promise counts it again"
        old, new = (bank.app.effects.get(x.key) for x in sorted(bank.app.effects.list(), key=lambda x: x.generation))
        assert (old.key, old.generation, new.generation) == (effect.key, 0, 1) and bank.keys == [new.key] != [old.key]
        assert old.why == "ann has opened generation 1 of it" and old.state == "not_attempted"
        bank.app.review.replay(task, by="ann")
        h.run()
        assert task.result() == "paid r1" and len(bank.paid) == 1
        assert bank.app.review.forecast(task).recorded == {"pay": 1}


def test_other_tasks_of_the_tenant_take_the_new_generation_too() -> None:
    bank = Bank("tenant")
    with Harness(bank.app) as h:
        _, effect = bank.refused(h)
        bank.app.review.renew(effect.key, by="ann", reason="open again")
        bank.open = True
        other = bank.bill.using(key="t2").enqueue("r1")
        third = bank.bill.using(key="t3").enqueue("r1")
        h.run()
        assert other.result() == third.result() == "paid r1" and len(bank.paid) == 1


def test_refused_again_a_further_generation_may_be_opened() -> None:
    bank = Bank()
    with Harness(bank.app) as h:
        task, effect = bank.refused(h)
        for n in (1, 2):
            newest = max(bank.app.effects.list(), key=lambda x: x.generation)
            bank.app.review.renew(newest.key, by="ann", reason="try again")
            bank.open = n == 2
            bank.app.review.replay(task, by="ann")
            h.run()
        assert task.result() == "paid r1" and sorted(x.generation for x in bank.app.effects.list()) == [0, 1, 2]
        assert "opened the next generation" in refusal(
            "stale_view", lambda: bank.app.review.renew(effect.key, by="a", reason="x")
        )


def test_what_happened_is_not_renewed() -> None:
    bank = Bank()
    with Harness(bank.app) as h:
        bank.open = True
        task = bank.bill.using(key="t1").enqueue("r1")
        h.run()
        (effect,) = bank.app.effects.list()
        said = refusal("already_done", lambda: bank.app.review.renew(effect.key, by="ann", reason="again"))
        assert "using(occurrence=...)" in said and task.result() == "paid r1"


def test_what_is_unknown_is_not_renewed() -> None:
    app = semel.App("sqlite:///never-made.db")

    @app.effect(intent=("ref",))
    def lost(submission: semel.Submission, ref: str) -> str:
        raise ConnectionResetError

    @app.task(intent=("ref",))
    def lose(ref: str) -> str:
        return lost(ref)

    with Harness(app) as h:
        lose.enqueue("r1")
        h.run()
        (effect,) = app.effects.list(state="ambiguous")
        assert "settle it first" in refusal("unknown_outstanding", lambda: app.review.renew(effect.key, by="ann", reason="again"))


def test_a_denied_call_may_be_asked_for_anew_and_a_waiting_one_is_decided_first() -> None:
    bank = Bank(approve=True)
    with Harness(bank.app) as h:
        bank.open = True
        task = bank.bill.using(key="t1").enqueue("r1")
        h.run()
        (effect,) = bank.app.review.pending()
        assert "approve or deny it" in refusal(
            "approval_required", lambda: bank.app.review.renew(effect.key, by="ann", reason="again")
        )
        bank.app.review.deny(effect.key, by="ann")
        h.run()
        bank.app.review.renew(effect.key, by="ann", reason="after all, for less")
        assert "new generation" in refusal("stale_view", lambda: bank.app.review.approve(effect.key, by="bob"))
        bank.cents = 100
        bank.app.review.replay(task, by="ann")
        h.run()
        (asked,) = bank.app.review.pending()
        assert asked.generation == 1 and asked.args["cents"] == 100 and not bank.paid
        bank.app.review.approve(asked.key, by="ann")
        h.run()
        assert bank.paid == [("r1", 100)]


def test_it_needs_a_name_a_reason_and_a_person() -> None:
    bank = Bank()
    with Harness(bank.app) as h:
        _, effect = bank.refused(h)
        with pytest.raises(semel.Misuse, match="a new generation needs a reason"):
            bank.app.review.renew(effect.key, by="ann", reason=" ")
        with pytest.raises(semel.Misuse, match="needs a name"):
            bank.app.review.renew(effect.key, by="", reason="again")
        assert "moved on" in refusal(
            "stale_view", lambda: bank.app.review.renew(effect.key, by="ann", reason="x", seen=effect.version - 1)
        )
        tried: list[str] = []

        @bank.app.task(intent=("n",))
        def meddle(n: int) -> None:
            try:
                bank.app.review.renew(effect.key, by="ann", reason="I want to")
            except semel.Misuse as error:
                tried.append(str(error))

        meddle.enqueue(1)
        h.run()
        assert len(tried) == 1 and "inside the work of an agent" in tried[0]

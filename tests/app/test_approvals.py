"""Approvals end to end, in a harness: asked for, waited for, decided, sent once as approved (R21)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import semel
from semel.engine import drive, review
from semel.testing import Harness

Sent = list[tuple[str, int, str]]
HOUR = timedelta(hours=1)


class Shop:
    """An app whose agent pays, in words that the test chooses."""

    def __init__(self, **how: Any) -> None:
        self.app = app = semel.App("sqlite:///never-made.db")
        self.sent: Sent = []
        self.words, self.cents = "please", 500
        self.fails: Exception | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        how = {"approve": True, "material": (), **how}

        @app.effect(intent=("ref",), not_done=(ConnectionRefusedError,), **how)
        def pay(submission: semel.Submission, ref: str, cents: int, note: str) -> str:
            if self.fails is not None:
                raise self.fails
            self.sent.append((ref, cents, note))
            return f"paid {ref}"

        @app.task(retry=semel.Retry(max_attempts=2))
        def bill(ref: str) -> str:
            try:
                return str(pay(ref, self.cents, self.words))
            except semel.Refused as refused:
                return str(refused)
            finally:
                self.meanwhile()

        self.pay, self.bill = pay, bill

    @property
    def waiting(self) -> semel.EffectView:
        (found,) = self.app.review.pending()
        return found

    def asked(self, h: Harness, ref: str = "r1", key: str = "t1") -> tuple[semel.Ref[str], semel.EffectView]:
        """A task that waits for an approval, and what it waits for."""
        task = self.bill.using(key=key).enqueue(ref)
        h.run()
        return task, self.waiting


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def h(shop: Shop) -> Iterator[Harness]:
    with Harness(shop.app) as harness:
        yield harness


def refused(code: str, call: Callable[[], object]) -> str:
    with pytest.raises(semel.Refused) as caught:
        call()
    assert caught.value.code == code
    return str(caught.value)


def test_it_waits_blocked_and_is_sent_once_when_approved(shop: Shop, h: Harness) -> None:
    task, effect = shop.asked(h)
    state = shop.app.tasks.get(task)
    assert (state.delivery, state.why) == ("blocked", "pay waits for approval")
    assert effect.state == "not_attempted" and effect.args == {"ref": "r1", "cents": 500, "note": "please"}
    h.advance(timedelta(days=30))
    h.run()
    assert not shop.sent and shop.app.tasks.get(task).attempt == 1
    shop.app.review.approve(effect.key, by="ann", reason="agreed", seen=effect.version)
    h.run()
    assert task.result() == "paid r1" and shop.sent == [("r1", 500, "please")] and not shop.app.review.pending()
    (approved,) = [event for event in shop.app.journal(task) if event.kind == "approved"]
    assert approved.actor == "person:ann" and approved.body["reason"] == "agreed"


def test_reworded_after_approval_the_approved_words_are_sent(shop: Shop, h: Harness) -> None:
    task, effect = shop.asked(h)
    shop.app.review.approve(effect.key, by="ann")
    shop.words = "or else"
    h.run()
    assert shop.sent == [("r1", 500, "please")]
    assert [event.body["args"]["note"] for event in shop.app.journal(task) if event.kind == "drifted"] == ["or else"]


def test_a_material_change_after_approval_is_refused() -> None:
    shop = Shop(material=("cents",))
    with Harness(shop.app) as h:
        task, effect = shop.asked(h)
        shop.app.review.approve(effect.key, by="ann")
        shop.cents = 900_000
        h.run()
        assert task.result().startswith("intent_changed") and not shop.sent


def test_what_was_edited_is_sent_and_both_versions_are_on_record() -> None:
    shop = Shop(material=("cents",))
    with Harness(shop.app) as h:
        task, effect = shop.asked(h)
        shop.app.review.approve(effect.key, by="ann", args={"cents": 300})
        h.run()
        assert shop.sent == [("r1", 300, "please")] and task.result() == "paid r1"
        bodies = {event.kind: event.body for event in shop.app.journal(task)}
        assert bodies["asked"]["args"]["cents"] == 500 and bodies["approved"]["args"]["cents"] == 300
        shop.app.review.replay(task, by="ann")
        h.run()
        assert task.result() == "paid r1" and len(shop.sent) == 1


def test_edits_that_are_none(shop: Shop, h: Harness) -> None:
    _, effect = shop.asked(h)
    approve = shop.app.review.approve
    assert "ref" in refused("intent_changed", lambda: approve(effect.key, by="ann", args={"ref": "r2"}))
    with pytest.raises(semel.Misuse, match="none of its arguments"):
        approve(effect.key, by="ann", args={"cent": 3})
    with pytest.raises(semel.Misuse, match="the edit does not fit effect pay"):
        approve(effect.key, by="ann", args={"cents": "many"})
    with pytest.raises(semel.Misuse, match="names arguments and their new values"):
        approve(effect.key, by="ann", args={})
    h.run()
    assert not shop.sent


def test_an_edit_that_the_code_cannot_take_is_not_sent(shop: Shop, h: Harness) -> None:
    """Edited where the code is not at hand: it was not checked, so its task waits for a person, and for no other attempt."""
    task, effect = shop.asked(h)
    row = shop.app.effects.row(effect.key, None)
    desk, edit = shop.app.runtime.desk, {"cents": "many"}
    drive.run(review.approve(desk, row, by="ann", reason="", seen=None, expires=None, args=edit, declared=None))
    h.run()
    state = shop.app.tasks.get(task)
    assert not shop.sent and state.delivery == "blocked" and "the approved call does not fit the code" in state.why
    shop.app.review.deny(effect.key, by="ann")
    h.run()
    assert task.result().startswith("denied")


def test_denied_is_read_by_the_agent_and_on_replay_until_somebody_approves(shop: Shop, h: Harness) -> None:
    task, effect = shop.asked(h)
    shop.app.review.deny(effect.key, by="ann", reason="not ours")
    h.run()
    assert task.result() == "denied: ann denied pay: not ours"
    shop.app.review.replay(task, by="bob")
    h.run()
    assert task.result().startswith("denied") and not shop.sent
    shop.app.review.approve(effect.key, by="bob")
    shop.app.review.replay(task, by="bob")
    h.run()
    assert task.result() == "paid r1" and len(shop.sent) == 1


def test_approved_twice_or_by_a_stale_view_is_refused_by_name(shop: Shop, h: Harness) -> None:
    _, effect = shop.asked(h)
    refused("stale_view", lambda: shop.app.review.approve(effect.key, by="ann", seen=effect.version - 1))
    shop.app.review.approve(effect.key, by="ann")
    assert "approved already, by ann" in refused("stale_view", lambda: shop.app.review.approve(effect.key, by="bob"))
    h.run()
    refused("stale_view", lambda: shop.app.review.approve(effect.key, by="bob"))
    refused("stale_view", lambda: shop.app.review.deny(effect.key, by="bob"))


def test_an_expired_approval_is_asked_for_again(shop: Shop, h: Harness) -> None:
    task, effect = shop.asked(h)
    shop.app.review.approve(effect.key, by="ann", expires=HOUR)
    h.advance(2 * HOUR)
    h.run()
    assert not shop.sent and shop.app.tasks.get(task).delivery == "blocked"
    shop.app.review.approve(shop.waiting.key, by="ann", expires=HOUR)
    h.run()
    assert task.result() == "paid r1"
    with pytest.raises(semel.Misuse, match="is over already"):
        shop.app.review.approve(effect.key, by="ann", expires=timedelta(0))


def test_two_different_people(shop: Shop, h: Harness) -> None:
    shop.app.approvers["pay"] = 2
    task, effect = shop.asked(h)
    shop.app.review.approve(effect.key, by="ann")
    h.run()
    assert not shop.sent and shop.waiting.why == "waits for approval (1 of 2 given)"
    assert "1 other must" in refused("approval_required", lambda: shop.app.review.approve(effect.key, by=" Ann"))
    shop.app.review.approve(effect.key, by="bob")
    h.run()
    assert task.result() == "paid r1" and len(shop.sent) == 1


@pytest.mark.parametrize("approvers", [{"pya": 2}, {"pay": 0}, {"pay": True}])
def test_a_number_of_approvers_that_guards_nothing_is_misuse(approvers: dict[str, int]) -> None:
    shop = Shop()
    shop.app.approvers = approvers
    with Harness(shop.app), pytest.raises(semel.Misuse, match=r"app\.approvers"):
        shop.bill.using(key="t1").enqueue("r1")


def test_an_agent_cannot_decide_about_its_own_acts(shop: Shop, h: Harness) -> None:
    said: list[str] = []

    def decide() -> None:
        for key in [effect.key for effect in shop.app.effects.list()]:
            for call in (
                lambda key=key: shop.app.review.approve(key, by="ann"),
                lambda key=key: shop.app.review.deny(key, by="ann"),
                lambda key=key: shop.app.review.resolve(key, semel.NotFound(), by="ann"),
                lambda key=key: asyncio.run(shop.app.review.aapprove(key, by="ann")),
            ):
                with pytest.raises(semel.Misuse, match="an agent cannot decide about its own acts"):
                    call()
                said.append(key)

    shop.meanwhile = decide
    shop.asked(h)
    assert len(said) == 4 and not shop.sent


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_a_decision_that_comes_before_the_task_waits_is_honoured(shop: Shop, h: Harness, decision: str) -> None:
    """Asked for, and a person is faster than the handler's end."""

    def decide() -> None:
        for effect in shop.app.effects.list():
            if effect.why.startswith("waits"):
                (shop.app.review.approve if decision == "approve" else shop.app.review.deny)(effect.key, by="ann")

    def person() -> None:
        thread = threading.Thread(target=decide)  # a person's process, as far as this one can tell
        thread.start()
        thread.join()

    shop.meanwhile = person
    task = shop.bill.using(key="t1").enqueue("r1")
    h.run()
    assert task.result() == ("paid r1" if decision == "approve" else "denied: ann denied pay")
    assert [event.kind for event in shop.app.journal(task) if event.kind in ("blocked", "parked")] == ["parked"]


def test_an_approval_survives_refused_connections_dead_letter_and_replay(shop: Shop, h: Harness) -> None:
    task, effect = shop.asked(h)
    shop.app.review.approve(effect.key, by="ann")
    shop.fails = ConnectionRefusedError("no")
    h.run()
    h.advance(HOUR)
    h.run()
    assert shop.app.tasks.get(task).delivery == "dead_lettered"
    shop.fails = None
    shop.app.review.replay(task, by="ann")
    h.run()
    assert task.result() == "paid r1" and len(shop.sent) == 1


def test_an_approved_effect_whose_outcome_is_unknown_is_settled_as_any(shop: Shop, h: Harness) -> None:
    task, effect = shop.asked(h)
    shop.app.review.approve(effect.key, by="ann")
    h.crash(shop.pay, at="after")
    h.run()
    h.advance(timedelta(minutes=5))
    (unknown,) = shop.app.effects.list(state="ambiguous")
    refused("stale_view", lambda: shop.app.review.approve(effect.key, by="ann"))
    shop.app.review.resolve(unknown.key, semel.NotFound(), by="ann")
    h.run()
    assert task.result() == "paid r1" and [event.kind for event in shop.app.journal(task)].count("approved") == 1


def test_a_cancelled_task_is_not_approved(shop: Shop, h: Harness) -> None:
    task, effect = shop.asked(h)
    shop.app.review.cancel(task, by="ann")
    assert shop.app.tasks.get(task).execution == "cancelled" and not shop.app.review.pending()
    refused("cancelled", lambda: shop.app.review.approve(effect.key, by="ann"))


def test_every_task_that_waits_for_a_shared_key_goes_on_at_one_decision() -> None:
    shop = Shop(scope="tenant")
    with Harness(shop.app) as h:
        tasks = [shop.bill.using(key=f"t{n}").enqueue("r1") for n in range(3)]
        h.run()
        assert {shop.app.tasks.get(task).delivery for task in tasks} == {"blocked"}
        shop.app.review.approve(shop.waiting.key, by="ann")
        assert {shop.app.tasks.get(task).delivery for task in tasks} == {"queued"}
        h.run()
        h.advance(HOUR)
        h.run()
        assert [task.result() for task in tasks] == ["paid r1"] * 3 and len(shop.sent) == 1


def test_a_predicate_holds_only_what_it_says() -> None:
    asked: list[int] = []

    def large(cents: int) -> bool:
        asked.append(cents)
        return cents > 1000

    shop = Shop(approve=large)
    with Harness(shop.app) as h:
        small = shop.bill.using(key="small").enqueue("r1")
        h.run()
        assert small.result() == "paid r1"
        shop.cents = 5000
        task, effect = shop.asked(h, "r2", "large")
        shop.cents = 10  # what is on record is not judged anew
        shop.app.review.replay(task, by="ann")
        h.run()
        assert len(shop.sent) == 1 and shop.waiting.key == effect.key and asked == [500, 5000]


@pytest.mark.parametrize(
    ("predicate", "words"),
    [(lambda cents: cents < 1 // 0, "raised ZeroDivisionError"), (lambda cents: cents, "returned int, not a bool")],
)
def test_a_predicate_that_gives_no_answer_is_misuse_and_nothing_is_sent(predicate: Callable[..., Any], words: str) -> None:
    shop = Shop(approve=predicate)
    with Harness(shop.app) as h:
        task = shop.bill.using(key="t1").enqueue("r1")
        h.run()
        h.advance(HOUR)
        h.run()
        state = shop.app.tasks.get(task)
        assert state.delivery == "dead_lettered" and f"effect pay: its approve predicate {words}" in state.why and not shop.sent


def test_predicates_that_cannot_be_asked_are_misuse_at_import() -> None:
    async def later(cents: int) -> bool:
        return True

    for approve, words in ((lambda cent: True, "asks for 'cent'"), (later, "a plain function"), ("yes", "approve=True")):
        with pytest.raises(semel.Misuse, match=words):
            Shop(approve=approve)


def test_a_loop_of_ones_own_waits_outside_and_goes_on_when_entered_again(shop: Shop, h: Harness) -> None:
    def work() -> str:
        with shop.app.work("pr-1", kind="agent"):
            return str(shop.pay("r1", 500, "please"))

    with pytest.raises(semel.Unsettled) as waits:
        work()
    assert waits.value.why == "blocked"
    shop.app.review.approve(shop.waiting.key, by="ann")
    assert work() == "paid r1" and len(shop.sent) == 1


def test_decisions_need_a_name_and_something_to_decide(shop: Shop, h: Harness) -> None:
    _, effect = shop.asked(h)
    for call in (shop.app.review.approve, shop.app.review.deny):
        with pytest.raises(semel.Misuse, match="a decision needs a name"):
            call(effect.key, by=" ")
        with pytest.raises(semel.Misuse, match="there is no effect"):
            call("sml_nothing", by="ann")

"""Approve before ask (R21): a call that the task has not made yet is approved, in exactly the words that it will have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import semel
from semel.cli import verify
from semel.testing import Harness

HOUR = timedelta(hours=1)


class Shop:
    """An app whose agent pays, in words that the test chooses; its task begins tomorrow, so that there is time to plan."""

    def __init__(self, store: str = "sqlite:///never-made.db", **how: Any) -> None:
        self.app = app = semel.App(store)
        self.sent: list[tuple[str, int, str]] = []
        self.words = "please"

        @app.effect(intent=("ref",), **{"approve": True, **how})
        def pay(submission: semel.Submission, ref: str, cents: int, note: str) -> str:
            self.sent.append((ref, cents, note))
            return f"paid {ref}"

        @app.task(intent=("ref",))
        def bill(ref: str) -> str:
            try:
                return str(pay(ref, 500, self.words))
            except semel.Refused as refused:
                return str(refused)

        self.pay, self.bill = pay, bill

    def planned(self, ref: semel.Ref[str], words: str = "please") -> semel.Planned:
        return self.pay.planned(ref, "r1", 500, words)


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


def test_it_is_sent_at_once_when_the_task_asks_for_exactly_that(shop: Shop, h: Harness) -> None:
    task = shop.bill.enqueue("r1")
    shop.app.review.approve(shop.planned(task), by="ann", reason="as planned")
    assert not shop.app.effects.list() and not shop.app.review.pending(), "it is no effect yet"
    h.run()
    assert task.result() == "paid r1" and shop.sent == [("r1", 500, "please")]
    kinds = [event.kind for event in shop.app.journal(task)]
    assert kinds[:6] == ["enqueued", "approved", "claimed", "asked", "approved", "intended"]
    (first, second) = [event for event in shop.app.journal(task) if event.kind == "approved"]
    assert first.actor == "person:ann" and first.body["args"]["note"] == "please" and second.body["early"]
    shop.app.review.replay(task, by="ann")
    h.run()
    assert len(shop.sent) == 1
    assert not verify.verify(shop.app.runtime.desk.store, lambda done, of: None).wrong


def test_in_other_words_people_are_asked_as_usual(shop: Shop, h: Harness) -> None:
    task = shop.bill.enqueue("r1")
    shop.app.review.approve(shop.planned(task, "or else"), by="ann")
    h.run()
    (waiting,) = shop.app.review.pending()
    assert waiting.args["note"] == "please" and not shop.sent
    said = refused("stale_view", lambda: shop.app.review.approve(shop.planned(task, "or else"), by="bob"))
    assert "called meanwhile, in other words" in said
    shop.app.review.approve(shop.planned(task), by="bob")  # these are the words
    h.run()
    assert task.result() == "paid r1"


@pytest.mark.parametrize("first", ["ann", "bob"])
def test_two_people_may_both_come_before_or_one_of_them_after(shop: Shop, first: str) -> None:
    shop.app.approvers = {"pay": 2}
    with Harness(shop.app) as h:
        task = shop.bill.enqueue("r1")
        shop.app.review.approve(shop.planned(task), by=first)
        assert "already" in refused("approval_required", lambda: shop.app.review.approve(shop.planned(task), by=first.upper()))
        if first == "ann":
            shop.app.review.approve(shop.planned(task), by="carol")
            h.run()
            assert task.result() == "paid r1"
            return
        h.run()
        (waiting,) = shop.app.review.pending()
        assert "1 of 2 given" in waiting.why and not shop.sent
        shop.app.review.approve(waiting.key, by="carol")
        h.run()
        assert task.result() == "paid r1"


def test_it_expires(shop: Shop, h: Harness) -> None:
    task = shop.bill.enqueue("r1")
    shop.app.review.approve(shop.planned(task), by="ann", expires=HOUR)
    h.advance(2 * HOUR)
    h.run()
    assert not shop.sent and len(shop.app.review.pending()) == 1
    with pytest.raises(semel.Misuse, match="is over already"):
        shop.app.review.approve(shop.planned(task), by="ann", expires=timedelta(0))


def test_it_is_taken_back(shop: Shop, h: Harness) -> None:
    task = shop.bill.enqueue("r1")
    assert "nobody has approved pay ahead" in refused("stale_view", lambda: shop.app.review.deny(shop.planned(task), by="ann"))
    shop.app.review.approve(shop.planned(task), by="ann")
    shop.app.review.deny(shop.planned(task), by="bob")
    h.run()
    assert not shop.sent and len(shop.app.review.pending()) == 1
    shop.app.review.deny(shop.planned(task), by="bob", reason="no")  # by now it has been asked for
    h.run()
    assert task.result().startswith("denied: bob denied pay: no")


def test_of_the_whole_tenants_key_it_is_used_by_whoever_calls_first() -> None:
    shop = Shop(scope="tenant")
    with Harness(shop.app) as h:
        task = shop.bill.enqueue("r1")
        shop.app.review.approve(shop.planned(task), by="ann")
        other = shop.bill.using(key="another").enqueue("r1")
        h.run()
        assert task.result() == other.result() == "paid r1" and len(shop.sent) == 1
        assert not verify.verify(shop.app.runtime.desk.store, lambda done, of: None).wrong


def test_it_survives_the_end_of_every_process_on_both_stores(database: str, tmp_path: Any) -> None:
    for store in (f"sqlite:///{tmp_path}/a.db", database):
        for scope in ("task", "tenant"):
            shop = Shop(store, scope=scope, name=f"pay_{scope}")
            task = shop.bill.using(key=f"t_{scope}").enqueue("r1")
            shop.app.review.approve(shop.planned(task), by="ann")
            shop.app.close()
            shop.app.run_worker(until_idle=True)
            assert task.result() == "paid r1" and shop.sent == [("r1", 500, "please")]
            assert not verify.verify(shop.app.runtime.desk.store, lambda done, of: None).wrong
            shop.app.close()


def test_a_cancelled_task_is_not_approved_ahead(shop: Shop, h: Harness) -> None:
    task = shop.bill.enqueue("r1")
    shop.app.review.cancel(task, by="ann")
    assert "was cancelled" in refused("cancelled", lambda: shop.app.review.approve(shop.planned(task), by="ann"))


def test_another_occurrence_is_another_call(shop: Shop, h: Harness) -> None:
    task = shop.bill.enqueue("r1")
    shop.app.review.approve(shop.pay.using(occurrence="twice").planned(task, "r1", 500, "please"), by="ann")
    h.run()
    assert not shop.sent and len(shop.app.review.pending()) == 1


def test_misuse_says_what_to_type(shop: Shop, h: Harness) -> None:
    task = shop.bill.enqueue("r1")
    plain = Shop(approve=False)
    for call, words in (
        (lambda: shop.pay.planned("t1", "r1", 5, ""), "takes the task's Ref first"),  # type: ignore[arg-type]
        (lambda: plain.pay.planned(task, "r1", 5, ""), "needs no approval"),
        (lambda: shop.pay.planned(task, "r1"), "missing a required argument"),
        (lambda: shop.app.review.approve(shop.planned(task), by="ann", args={"cents": 5}), "the planned call itself"),
        (lambda: shop.app.review.approve(shop.planned(task), by=" "), "needs a name"),
        (lambda: shop.app.review.approve(shop.planned(semel.Ref("t9", "default")), by="ann"), "there is no task t9"),
    ):
        with pytest.raises(semel.Misuse, match=words):
            call()

    async def in_a_loop() -> None:
        await shop.app.review.aapprove(shop.planned(task), by="ann")

    asyncio.run(in_a_loop())
    h.run()
    assert shop.sent


def test_an_agent_approves_nothing_ahead(shop: Shop, h: Harness) -> None:
    later = shop.bill.using(key="later", run_at=h.now + HOUR).enqueue("r1")
    tried: list[str] = []

    @shop.app.task(intent=("n",))
    def meddle(n: int) -> None:
        try:
            shop.app.review.approve(shop.planned(later), by="ann")
        except semel.Misuse as error:
            tried.append(str(error))

    meddle.enqueue(1)
    h.run()
    assert len(tried) == 1 and "inside the work of an agent" in tried[0]

"""Corrections end to end, in a harness: a person's verdict that was wrong is taken back, by a new entry (R21)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import semel
from semel.testing import Harness


class Shop:
    """An app whose agent pays, opaquely: whether it happened, only a person can tell."""

    def __init__(self) -> None:
        self.app = app = semel.App("sqlite:///never-made.db")
        self.sent: list[str] = []
        self.cut = True
        self.inside: Any = None

        @app.effect(intent=("ref",), recovery=semel.Ask(settle=timedelta(seconds=1)))
        def pay(submission: semel.Submission, ref: str) -> str:
            self.sent.append(ref)
            if self.cut:
                raise TimeoutError("no answer")
            return f"paid {ref}"

        @app.effect(intent=("ref",), recovery=semel.Ask(settle=timedelta(seconds=1)))
        def tell(submission: semel.Submission, ref: str) -> None:
            self.sent.append(f"told {ref}")

        @app.task()
        def bill(ref: str) -> str:
            done = str(pay(ref))
            if self.inside is not None:
                self.inside()
                tell(ref)
            return done

        self.bill = bill

    def unknown(self, h: Harness) -> tuple[semel.Ref[str], str]:
        """A task whose payment is unknown, and its key."""
        task = self.bill.using(key="t1").enqueue("r1")
        h.run()
        (found,) = self.app.effects.list(state="ambiguous")
        self.cut = False
        return task, found.key

    def said(self, h: Harness, verdict: semel.Verdict) -> tuple[semel.Ref[str], str]:
        """And on which a person gave a verdict, which is believed: settle was over."""
        task, key = self.unknown(h)
        h.advance(timedelta(minutes=6))
        self.app.review.resolve(key, verdict, by="ann")
        return task, key


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def h(shop: Shop) -> Iterator[Harness]:
    with Harness(shop.app) as harness:
        yield harness


def run(h: Harness) -> None:
    for _ in range(4):
        h.run()
        h.advance(timedelta(minutes=6))


def test_a_wrong_confirmed_of_an_ended_task_is_taken_back_and_a_replay_sends_only_what_was_not_found(
    shop: Shop, h: Harness
) -> None:
    task, key = shop.said(h, semel.Confirmed("paid r1"))
    run(h)
    assert task.result() == "paid r1" and shop.sent == ["r1"]
    shop.app.review.correct(key, by="bob", reason="the receipt was of r2", seen=shop.app.effects.get(key).version)
    assert shop.app.effects.get(key).state == "ambiguous" and shop.app.tasks.get(task).delivery == "acknowledged"
    assert [found.key for found in shop.app.effects.list(state="ambiguous")] == [key]
    shop.app.review.replay(task, by="bob")
    run(h)
    assert shop.sent == ["r1"] and shop.app.tasks.get(task).delivery == "blocked", "it is asked about, and not sent"
    shop.app.review.resolve(key, semel.NotFound(), by="bob")
    run(h)
    assert shop.sent == ["r1", "r1"] and task.result() == "paid r1"
    rows = shop.app.journal(task)
    (back,) = [row for row in rows if row.kind == "reversed"]
    reversed_row = next(row for row in rows if row.seq == back.body["seq"])
    assert back.actor == "person:bob" and (reversed_row.kind, reversed_row.body["verdict"]) == ("found", "confirmed")


def test_a_wrong_not_found_is_taken_back_before_it_is_sent_again(shop: Shop, h: Harness) -> None:
    task, key = shop.said(h, semel.NotFound())
    shop.app.review.correct(key, by="bob", reason="it is in the bank's list")
    run(h)
    assert shop.sent == ["r1"] and shop.app.tasks.get(task).delivery == "blocked"
    shop.app.review.resolve(key, semel.Confirmed("paid r1"), by="bob")
    run(h)
    assert task.result() == "paid r1" and shop.sent == ["r1"]


def test_a_not_found_after_which_it_was_sent_is_not_taken_back(shop: Shop, h: Harness) -> None:
    task, key = shop.said(h, semel.NotFound())
    run(h)
    assert task.result() == "paid r1" and shop.sent == ["r1", "r1"]
    with pytest.raises(semel.Refused, match="only a person's verdict can be taken back"):
        shop.app.review.correct(key, by="bob", reason="it is in the bank's list")


def test_a_correction_while_the_task_runs_stops_it_before_its_next_effect(shop: Shop, h: Harness) -> None:
    _, key = shop.said(h, semel.Confirmed("paid r1"))
    desk, row = shop.app.runtime.desk, shop.app.effects.row(key, None)

    def elsewhere() -> None:
        """As another process would: none of the agent's own."""
        from semel.engine import drive, review

        if shop.app.effects.row(key, None).state == "confirmed":
            drive.run(review.correct(desk, row._replace(version=shop.app.effects.row(key, None).version), by="bob",
                                     reason="another receipt", seen=None))  # fmt: skip

    shop.inside = elsewhere
    run(h)
    assert "told r1" not in shop.sent
    (task,) = shop.app.tasks.list()
    assert task.delivery == "blocked" and shop.app.effects.get(key).state == "ambiguous"


def test_a_key_of_the_tenants_is_taken_back_for_every_task_that_shares_it() -> None:
    app = semel.App("sqlite:///never-made.db")
    sent: list[str] = []

    @app.effect(intent=("who",), scope="tenant", recovery=semel.Ask(settle=timedelta(seconds=1)))
    def open_account(submission: semel.Submission, who: str) -> str:
        sent.append(who)
        raise TimeoutError("no answer")

    @app.task()
    def welcome(who: str) -> str:
        return str(open_account(who))

    with Harness(app) as h:
        first = welcome.using(key="t1").enqueue("bob")
        h.run()
        (effect,) = app.effects.list(state="ambiguous")
        app.review.resolve(effect.key, semel.Confirmed("acc_1"), by="ann")
        run(h)
        assert first.result() == "acc_1"
        app.review.correct(effect.key, by="bob", reason="acc_1 is of another Bob")
        second = welcome.using(key="t2").enqueue("bob")
        run(h)
        assert app.tasks.get(second).delivery == "blocked" and sent == ["bob"], "the owner has ended, so the other asks"
        app.review.resolve(effect.key, semel.Confirmed("acc_2"), by="ann")
        run(h)
        assert second.result() == "acc_2" and first.result() == "acc_1" and sent == ["bob"]


def test_a_correction_names_who_and_why_and_is_no_agents(shop: Shop, h: Harness) -> None:
    _, key = shop.said(h, semel.Confirmed("paid r1"))
    correct = shop.app.review.correct
    for by, reason, words in (("", "x", "a decision needs a name"), ("bob", " ", "a correction says what was wrong")):
        with pytest.raises(semel.Misuse, match=words):
            correct(key, by=by, reason=reason)
    caught: list[str] = []

    def by_itself() -> None:
        try:
            correct(key, by="bob", reason="I know better")
        except semel.Misuse as error:
            caught.append(str(error))

    shop.inside = by_itself
    run(h)
    assert len(caught) == 1 and "an agent cannot decide about its own acts" in caught[0]


def test_the_awaitable_twin_does_the_same(shop: Shop, h: Harness) -> None:
    _, key = shop.said(h, semel.Confirmed("paid r1"))
    asyncio.run(shop.app.review.acorrect(key, by="bob", reason="another receipt"))
    assert shop.app.effects.get(key).state == "ambiguous"

"""What a test of an agent needs beside crashes: its model faked, approvals, waits, limits, replays, tenants, Atomic effects."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import semel
from semel.testing import Harness
from semel.testing.stage import PLACES, Place

MINUTE = timedelta(minutes=1)
DAY = timedelta(hours=24)
app = semel.App("sqlite:///never.db")


@app.step()
def ask_model(question: str) -> str:
    raise NotImplementedError("asks a model")


@app.step()
async def ask_slowly(question: str, temperature: int = 0) -> str:
    raise NotImplementedError("asks a model")


@app.effect(intent=("to",), recovery=semel.Resend(within=DAY), approve=True)
def pay(submission: semel.Submission, to: str, cents: int) -> str:
    raise NotImplementedError("pays")


@app.effect(intent=("to",), recovery=semel.Resend(within=DAY))
def mail(submission: semel.Submission, to: str, text: str) -> str:
    raise NotImplementedError("mails")


@app.effect(intent=("to",))
def post(submission: semel.Submission, to: str) -> str:
    raise NotImplementedError("posts")


@app.effect(intent=("to",), recovery=semel.Atomic())
def book(submission: semel.Submission, to: str) -> str:
    raise NotImplementedError("writes in the ledger's database")


@app.task(intent=("to",))
def answer(to: str) -> str:
    return mail(to, ask_model(f"what to say to {to}?"))


@app.task(intent=("to",))
async def aanswer(to: str) -> str:
    said = await ask_slowly(to, temperature=1)
    return await asyncio.to_thread(mail, to, said)


@app.task(intent=("to",))
def pays(to: str) -> str:
    return pay(to, 5)


@app.task(intent=("to",))
def posts(to: str) -> str:
    return post(to)


@app.task(intent=("to",))
def books(to: str) -> str:
    return book(to)


@app.task(intent=("to",))
def waits(to: str) -> str:
    semel.sleep(DAY)
    paid = semel.wait_for("paid")
    return mail(to, str(paid))


@app.task(intent=("to",), limits=semel.Limits(effects=1, usd="1"))
def greedy(to: str) -> str:
    semel.spend(usd="0.40")
    mail(to, "one")
    return mail(f"{to}-again", "two")


@app.task(intent=("to",))
def answers_twice(to: str) -> list[str]:
    return [mail(to, ask_model("again?")), mail.using(occurrence="second")(to, ask_model("again?"))]


def dead_letter(ref: semel.Ref[str]) -> str:
    with pytest.raises(semel.Unsettled) as dead:
        ref.result()
    return dead.value.why


def test_a_model_is_faked_as_a_step_and_not_asked_again_after_a_crash() -> None:
    with Harness(app) as h:
        h.fake_step(ask_model, lambda question: f"answer to {question}")
        h.fake(mail, lambda to, text: text)
        h.crash(mail, at="after")
        ref = answer.enqueue("ada")
        h.run()
        assert ref.result() == "answer to what to say to ada?"
        assert [sent.arguments for sent in h.sent(ask_model)] == [{"question": "what to say to ada?"}]
        assert len(h.sent(mail)) == 1


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_process_that_dies_in_a_step_takes_it_again(colour: str, at: Place) -> None:
    step, task = (ask_model, answer) if colour == "sync" else (ask_slowly, aanswer)
    answers = iter(["first", "second"])
    with Harness(app) as h:
        if colour == "sync":
            h.fake_step(ask_model, lambda question: next(answers))
        else:
            h.fake_step(ask_slowly, lambda question, temperature: next(answers))
        h.fake(mail, lambda to, text: text)
        h.crash(step, at=at)
        ref = task.enqueue("a")
        h.run()
        asked = 1 if at == "before" else 2  # what was not on record is done again: a step is harmless to repeat
        assert ref.result() == ["first", "second"][asked - 1] and len(h.sent(step)) == asked
        assert len({sent.key for sent in h.sent(step)}) == 1 and len(h.sent(mail)) == 1


def test_the_same_step_twice_in_one_attempt_is_two_calls() -> None:
    answers = iter(["yes", "no"])
    with Harness(app) as h:
        h.fake_step(ask_model, lambda question: next(answers))
        h.fake(mail, lambda to, text: text)
        ref = answers_twice.enqueue("ada")
        h.run()
        assert ref.result() == ["yes", "no"] and len({sent.key for sent in h.sent(ask_model)}) == 2


def test_a_step_that_is_not_faked_is_what_it_is_and_a_wrong_fake_is_told() -> None:
    with Harness(app) as h:
        ref = answer.enqueue("ada")
        h.run()
        assert "asks a model" in app.tasks.get(ref).why and len(h.sent(ask_model)) == 1
        with pytest.raises(semel.Misuse, match=r"the fake of step ask_model cannot be called as the step is"):
            h.fake_step(ask_model, lambda submission, question: question)  # type: ignore[misc]
        with pytest.raises(semel.Misuse, match=r"write harness.fake_step\(ask_model"):
            h.fake(ask_model, lambda question: question)  # type: ignore[call-overload]
        with pytest.raises(semel.Misuse, match=r"write harness.fake\(mail"):
            h.fake_step(mail, lambda to, text: text)
        with pytest.raises(semel.Misuse, match="step ask_model belongs to another app"):
            Harness(semel.App("sqlite:///never.db")).fake_step(ask_model, lambda question: question)


def test_what_a_person_approved_is_sent_once_although_the_process_dies() -> None:
    with Harness(app) as h:
        h.fake(pay, lambda to, cents: f"paid {cents} to {to}")
        ref = pays.enqueue("ada")
        h.run()
        assert h.sent(pay) == [] and app.tasks.get(ref).delivery == "blocked"
        (asked,) = app.review.pending()
        app.review.approve(asked.key, by="bob", seen=asked.version)
        h.crash(pay, at="after")
        h.run()
        assert ref.result() == "paid 5 to ada" and len(h.sent(pay)) == 1


def test_a_sleep_is_over_when_time_was_moved_and_a_wait_when_the_signal_came() -> None:
    with Harness(app) as h:
        h.fake(mail, lambda to, text: text)
        ref = waits.enqueue("ada")
        h.run()
        h.advance(DAY - MINUTE)
        h.run()
        assert app.tasks.get(ref).delivery == "queued"
        h.advance(MINUTE)
        h.run()
        assert app.tasks.get(ref).delivery == "blocked" and h.sent(mail) == []
        app.signal(ref, "paid", "five")
        h.run()
        assert ref.result() == "five"


def test_a_task_beyond_its_limit_is_dead_and_a_replay_sends_nothing_twice() -> None:
    with Harness(app) as h:
        h.fake(mail, lambda to, text: text)
        ref = greedy.enqueue("ada")
        h.run()
        assert dead_letter(ref) == "dead_lettered" and len(h.sent(mail)) == 1
        app.review.replay(ref, by="bob")
        h.run()
        assert app.tasks.get(ref).attempt == 2 and dead_letter(ref) == "dead_lettered" and len(h.sent(mail)) == 1


def test_each_tenant_has_its_own() -> None:
    with Harness(app) as h:
        h.fake(mail, lambda submission, to, text: submission.tenant)
        h.fake_step(ask_model, lambda question: "hello")
        refs = [answer.using(tenant=tenant).enqueue("ada") for tenant in ("acme", "bolt")]
        h.run()
        assert [ref.result() for ref in refs] == ["acme", "bolt"]
        assert len({sent.key for sent in h.sent(mail)}) == 2


def test_an_atomic_effect_is_played_by_its_fake() -> None:
    with Harness(app) as h:
        h.fake(book, lambda to: f"booked {to}")
        ref = books.enqueue("ada")
        h.run()
        assert ref.result() == "booked ada" and len(h.sent(book)) == 1


def test_a_fake_that_times_out_leaves_it_unknown_until_a_person_tells() -> None:
    def silent(to: str) -> str:
        raise TimeoutError("no answer")

    with Harness(app) as h:
        h.fake(post, silent)
        ref = posts.enqueue("ada")
        h.run()
        (unknown,) = app.effects.list(state="ambiguous")
        h.fake(post, lambda to: "posted")
        h.advance(timedelta(minutes=5))
        app.review.resolve(unknown.key, semel.NotFound(), by="bob")
        h.run()
        assert ref.result() == "posted" and len(h.sent(post)) == 2

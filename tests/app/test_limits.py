"""semel.spend and Limits: what is spent is on record, exactly; what goes beyond a limit ends the task, with the reason."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import threading
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.engine import views
from semel.engine.ledger import Ledger
from semel.engine.session import land
from semel.machine import tasks
from semel.machine.limits import Used
from semel.testing import Harness

DAY = timedelta(hours=24)
app = semel.App("sqlite:///never-made.db")
plan: dict[str, Any] = {}
ran: list[str] = []


@app.effect(intent=("what",), recovery=semel.Resend(within=DAY))
def act(submission: semel.Submission, what: str) -> str:
    if "in effect" in plan:
        semel.spend(usd=plan["in effect"])
    return what


@app.effect(intent=("what",), recovery=semel.Resend(within=DAY), per_task=1)
def once(submission: semel.Submission, what: str) -> str:
    return what


@app.effect(intent=("what",), recovery=semel.Resend(within=DAY), per_task=1, scope="tenant", formerly=("pay_out",))
def payout(submission: semel.Submission, what: str) -> str:
    return what


@app.step()
def ask_model(question: str) -> str:
    ran.append(question)
    semel.spend(usd="0.60", tokens=100)
    return f"answer to {question}"


@app.step()
async def aask_model(question: str) -> str:
    ran.append(question)
    await asyncio.sleep(0)
    semel.spend(usd="0.60", tokens=100)
    return f"answer to {question}"


QUICK = semel.Retry(max_attempts=4, backoff=timedelta(seconds=1))
LIMITS = semel.Limits(effects=3, usd="2", tokens=1000, seconds=60)


@app.task(retry=QUICK, limits=LIMITS)
def works(script: list[str]) -> str:
    """What the test says, one after the other."""
    for n, line in enumerate(script):
        do(line, n)
    return "done"


@app.task(retry=QUICK, limits=LIMITS)
async def aworks(questions: int) -> str:
    for n in range(questions):
        await aask_model(f"q{n}")
        await asyncio.to_thread(act, f"a{n}")
    return "done"


def do(line: str, n: int) -> None:
    verb, _, what = line.partition(" ")
    if verb == "spend":
        semel.spend(usd=what)
    elif verb == "tokens":
        semel.spend(tokens=int(what))
    elif verb == "ask":
        ask_model(what)
    elif verb == "fail":
        raise RuntimeError(what)
    elif verb == "swallow":
        try:
            semel.spend(usd=what)
        except BaseException:
            act("after all")
    elif verb == "quiet":
        try:
            semel.spend(usd=what)
        except BaseException:
            return
    else:
        {"act": act, "once": once, "payout": payout}[verb](what)


@pytest.fixture
def h() -> Any:
    plan.clear()
    ran.clear()
    with Harness(app) as harness:
        yield harness


def begin(*script: str, key: str = "k") -> semel.Ref[str]:
    return works.using(key=key).enqueue(list(script))


def used(ref: semel.Ref[Any]) -> Used:
    return views.state_of(app.runtime.desk, ref.tenant, ref.id).used


def dead(h: Harness, ref: semel.Ref[Any], why: str) -> semel.TaskView:
    """It runs until it ends as a dead letter, for that reason."""
    h.run()
    view = app.tasks.get(ref)
    assert (view.delivery, view.execution, view.why) == ("dead_lettered", "failed", why)
    with pytest.raises(semel.Unsettled, match="dead_lettered: " + why.split("(", maxsplit=1)[0].strip()):
        ref.result()
    return view


def kinds(ref: semel.Ref[Any]) -> list[str]:
    return [event.kind for event in app.journal(ref)]


# --- spending ---------------------------------------------------------------------------------------------------------


def test_what_is_spent_is_on_record_as_exact_text(h: Harness) -> None:
    ref = begin("spend 0.10", "spend 0.20", "tokens 7", "act a")
    h.run()
    told = [
        (event.body["usd"], event.body["tokens"], event.body["attempt"]) for event in app.journal(ref) if event.kind == "spent"
    ]
    assert told == [("0.10", 0, 1), ("0.20", 0, 1), ("0", 7, 1)]
    assert used(ref).total[:2] == (Decimal("0.30"), 7) and ref.result() == "done"


def test_nothing_is_spent_by_nothing(h: Harness) -> None:
    ref = begin("spend 0", "spend 0.00", "tokens 0")
    h.run()
    assert "spent" not in kinds(ref)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"usd": 0.03}, "usd=) is the float 0.03, which is not exact; write it as text or as a Decimal: usd='0.03'"),
        ({"usd": math.nan}, "usd=) is the float nan"), ({"usd": "a lot"}, "usd=) is 'a lot', which is no number"),
        ({"usd": "-0.01"}, "finite and not negative"), ({"usd": Decimal("-1")}, "finite and not negative"),
        ({"usd": "NaN"}, "finite and not negative"), ({"usd": Decimal("sNaN")}, "finite and not negative"),
        ({"usd": "Infinity"}, "finite and not negative"), ({"usd": None}, "write an amount as text"),
        ({"usd": True}, "write an amount as text"), ({"usd": "1e15"}, "at most 15 digits before the point"),
        ({"usd": "1e-19"}, "18 behind it"), ({"usd": Decimal("1E-400000")}, "18 behind it"), ({"usd": "9" * 5000}, "15 digits"),
        ({"tokens": 1.5}, "tokens=) is 1.5; write a whole number"), ({"tokens": -1}, "not below zero"),
        ({"tokens": True}, "whole number"), ({"tokens": "12"}, "whole number"), ({"tokens": 1 << 54}, "whole number"),
    ],
)  # fmt: skip
def test_what_is_no_exact_amount_is_refused_with_the_mend(h: Harness, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(semel.Misuse) as refused:
        semel.spend(**arguments)
    assert says in str(refused.value)
    if arguments != {"usd": None}:  # there it says: no limit
        with pytest.raises(semel.Misuse, match="Limits"):
            semel.Limits(**arguments)


@pytest.mark.parametrize(
    "arguments", [{"effects": -1}, {"effects": 1.0}, {"seconds": 0}, {"seconds": "60"}, {"seconds": math.inf}]
)
def test_limits_that_mean_nothing_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(semel.Misuse, match=rf"Limits\({next(iter(arguments))}=\)"):
        semel.Limits(**arguments)


def test_amounts_of_all_exact_kinds(h: Harness) -> None:
    with app.work("w", kind="loop") as work:
        semel.spend(usd=Decimal("1E+2"), tokens=1 << 53)
        semel.spend(usd="0.000000000000000001")
        semel.spend(usd=1)  # type: ignore[arg-type]
    assert used(work.ref).usd == Decimal("101.000000000000000001")


def test_spending_outside_any_work_is_misuse_but_a_step_just_runs(h: Harness) -> None:
    with pytest.raises(semel.Misuse, match=r"semel.spend was called outside any work"):
        semel.spend(usd="1")
    assert ask_model("of nobody") == "answer to of nobody"
    assert asyncio.run(aask_model("of nobody")) == "answer to of nobody"


def test_a_lookup_does_not_spend() -> None:
    def found(submission: semel.Submission, what: str) -> semel.Verdict:
        semel.spend(usd="1")
        return semel.NotFound()

    other = semel.App("sqlite:///never-made.db")

    @other.effect(intent=("what",), recovery=semel.Lookup(found, settle=timedelta(0)))
    def cut(submission: semel.Submission, what: str) -> str:
        raise ConnectionResetError

    @other.task()
    def tries() -> str:
        return cut("a")

    with Harness(other) as h:
        h.fake(cut, lambda what: None, own_lookup=True)
        ref = tries.using(key="k").enqueue()
        h.crash(cut, at="during")
        h.run()
        assert "spent" not in [event.kind for event in other.journal(ref)]


# --- beyond a limit ---------------------------------------------------------------------------------------------------


def test_beyond_its_money_a_task_is_dead_lettered_with_the_reason(h: Harness) -> None:
    ref = begin("spend 1.99", "act a", "spend 0.04", "act b")
    assert dead(h, ref, "spent 2.03 usd of 2").attempt == 1
    assert [sent.arguments["what"] for sent in h.sent(act)] == ["a"]
    assert kinds(ref)[-3:] == ["spent", "suspended", "dead_lettered"]


def test_a_limit_may_be_used_up_to_the_last_cent(h: Harness) -> None:
    ref = begin("spend 1.99", "spend 0.01", "tokens 1000", "act a")
    h.run()
    assert ref.result() == "done"


def test_beyond_its_tokens_too(h: Harness) -> None:
    dead(h, begin("tokens 1000", "tokens 1"), "spent 1001 tokens of 1000")


def test_a_handler_that_swallows_the_suspension_starts_nothing_and_is_dead_lettered(h: Harness) -> None:
    dead(h, begin("swallow 3", "act more", key="k1"), "spent 3 usd of 2")
    dead(h, begin("quiet 3", key="k2"), "spent 3 usd of 2")
    assert h.sent(act) == []


def test_what_failed_attempts_have_spent_counts(h: Harness) -> None:
    ref = begin("spend 0.90", "fail first")
    for _ in range(3):
        h.run()
        h.advance(timedelta(seconds=10))
    view = dead(h, ref, "spent 2.70 usd of 2")
    assert (view.attempt, view.failures) == (3, 2), "its retries were not used up"


def test_what_a_crashed_attempt_has_spent_counts(h: Harness) -> None:
    ref = begin("spend 1.50", "act a", "act b")
    h.crash(act, at="after")
    view = dead(h, ref, "spent 3.00 usd of 2")
    assert view.attempt == 2 and {sent.arguments["what"] for sent in h.sent(act)} == {"a"}


def test_what_is_unknown_is_settled_before_a_task_beyond_its_limit_ends(h: Harness) -> None:
    """The call that is lost has spent too much: a person is asked first, and then it ends, with the reason."""
    other = semel.App("sqlite:///never-made.db")
    handled: list[int] = []

    @other.effect(intent=("what",), recovery=semel.Ask(settle=timedelta(0)))
    def lost(submission: semel.Submission, what: str) -> str:
        semel.spend(usd="3")  # while the call is under way
        raise ConnectionResetError("cut")

    @other.task(limits=semel.Limits(usd="2"))
    def tries() -> str:
        handled.append(1)
        return lost("a")

    with Harness(other) as harness:
        ref = tries.using(key="k").enqueue()
        harness.run()
        view = other.tasks.get(ref)
        assert (view.delivery, view.unknown, len(handled)) == ("blocked", 1, 1)
        (waiting,) = other.effects.list(state="ambiguous")
        other.review.resolve(waiting.key, semel.Confirmed("a"), by="ann", process_stopped=True)
        harness.run()
        view = other.tasks.get(ref)
        assert (view.delivery, view.why, len(handled)) == ("dead_lettered", "spent 3 usd of 2", 1)


def test_an_effect_may_spend_and_its_outcome_is_recorded_before_the_task_ends(h: Harness) -> None:
    plan["in effect"] = "0.70"
    ref = begin("act a", "act b", "act c", "act d")
    dead(h, ref, "spent 2.10 usd of 2")
    assert [effect.state for effect in app.effects.list(task=ref)] == ["confirmed"] * 3


def test_a_step_s_result_is_recorded_before_the_task_ends_and_is_not_paid_for_again(h: Harness) -> None:
    ref = begin("ask one", "ask two", "ask three", "ask four", "act a")
    dead(h, ref, "spent 2.40 usd of 2")
    assert ran == ["one", "two", "three", "four"]
    state = views.state_of(app.runtime.desk, ref.tenant, ref.id)
    assert {result for _, result in state.steps.values()} == {f"answer to {q}" for q in ran}


def test_a_step_on_record_spends_nothing_when_it_is_replayed(h: Harness) -> None:
    ref = begin("ask one", "ask two", "fail later")
    for _ in range(4):
        h.run()
        h.advance(timedelta(seconds=10))
    assert app.tasks.get(ref).failures == 4 and ran == ["one", "two"] and used(ref).usd == Decimal("1.20")


def test_async_handlers_and_steps_too(h: Harness) -> None:
    ref = aworks.using(key="k").enqueue(5)
    dead(h, ref, "spent 2.40 usd of 2")
    assert len(h.sent(act)) == 3 and len(ran) == 4


def test_a_spend_costs_no_commit_of_its_own(tmp_path: Path) -> None:
    """It is queued ahead of the next intent, and lands with it."""
    real = semel.App(f"sqlite:///{tmp_path}/a.db", watchdog="never")

    @real.effect(intent=("n",), recovery=semel.Repeat())
    def touch(submission: semel.Submission, n: int) -> int:
        return n

    def commits(spend: bool) -> int:
        writer = real.runtime.desk.writer
        with real.work(f"spend {spend}", kind="loop"):
            before = writer.commits
            for n in range(20):
                if spend:
                    semel.spend(usd="0.01", tokens=10)
                touch(n)
            return writer.commits - before

    try:
        assert commits(True) <= commits(False) + 3
    finally:
        real.close()


def test_a_thread_of_an_attempt_that_is_over_still_says_what_it_has_spent(h: Harness) -> None:
    go, said = threading.Event(), threading.Event()
    with app.work("w", kind="loop", limits=semel.Limits(usd="2")) as work:
        context = contextvars.copy_context()

        def late() -> None:
            go.wait(10)
            with pytest.raises(semel.Suspended):
                context.run(semel.spend, usd="5")
            said.set()

        thread = threading.Thread(target=late)
        thread.start()
    go.set()
    assert said.wait(10)
    thread.join()
    app.runtime.desk.writer.barrier().wait(10)
    view = app.tasks.get(work.ref)
    assert view.delivery == "acknowledged" and used(work.ref).usd == 5, "it stays done, and the money is on record"
    with pytest.raises(semel.Unsettled, match="spent 5 usd of 2"), app.work("w", kind="loop", limits=semel.Limits(usd="2")):
        raise AssertionError("it may start nothing more")


def test_what_an_earlier_attempt_says_late_stops_the_one_that_runs_at_its_next_effect(h: Harness) -> None:
    """It has not seen it yet; the machine refuses, and that is nothing for the agent to read."""
    limits = semel.Limits(usd="2")
    with app.work("w", kind="loop", limits=limits) as work:
        act("a")
    with pytest.raises(semel.Unsettled, match="spent 5 usd of 2"), app.work("w", kind="loop", limits=limits):
        other = Ledger.read(app.runtime.desk, work.ref.tenant, work.ref.id, "session:of before")
        assert other is not None and land(other, tasks.Spend(other.state.token - 1, 1, "5", 0))
        try:
            act("b")
        except semel.Refused:
            raise AssertionError("the agent was told") from None
    assert [sent.arguments["what"] for sent in h.sent(act)] == ["a"]


# --- your own loop ----------------------------------------------------------------------------------------------------


def test_in_a_loop_of_your_own_the_limit_leaves_as_unsettled(h: Harness) -> None:
    def enter(usd: str) -> None:
        with app.work("pr-1", kind="loop", limits=semel.Limits(usd="1")):
            semel.spend(usd=usd)

    enter("0.75")
    with pytest.raises(semel.Unsettled, match=r"is dead_lettered: spent 1\.50 usd of 1") as left:
        enter("0.75")
    assert left.value.why == "dead_lettered"
    with pytest.raises(semel.Unsettled, match="dead_lettered"):
        enter("0")
    app.review.replay(left.value.ref, by="ann")
    enter("0.75")
    assert used(left.value.ref).total[0] == Decimal("2.25") and used(left.value.ref).usd == Decimal("0.75")


def test_run_here_judges_by_the_declared_limits(h: Harness) -> None:
    with pytest.raises(semel.Unsettled, match="spent 3 usd of 2"):
        works.using(key="k").run(["spend 3"])


# --- effects and per_task ---------------------------------------------------------------------------------------------


def test_an_agent_that_raises_the_refusal_of_a_limit_is_dead_lettered_at_once(h: Harness) -> None:
    ref = begin("act a", "act b", "act c", "act d")
    h.run()
    view = app.tasks.get(ref)
    assert (view.delivery, view.attempt) == ("dead_lettered", 1), "no retry could do better"
    assert "limit_reached: the task may have 3 different effects, and has had them" in view.why


def test_an_agent_that_reads_the_refusal_and_finishes_has_finished(h: Harness) -> None:
    with app.work("w", kind="loop", limits=semel.Limits(effects=1)) as work:
        act("a")
        with pytest.raises(semel.Refused) as refused:
            act("b")
    assert refused.value.code == "limit_reached" and app.tasks.get(work.ref).execution == "succeeded"


VARIANTS: dict[str, Callable[[], Any]] = {
    "another intent": lambda: once("b"),
    "another occurrence": lambda: once.using(occurrence="again")("a"),
    "another intent and occurrence": lambda: once.using(occurrence="again")("b"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_agent_that_invents_a_variant_of_the_same_act_meets_per_task(h: Harness, variant: str) -> None:
    for _ in range(2):
        with app.work("w", kind="loop") as work:
            assert once("a") == "a"
            with pytest.raises(semel.Refused, match="limit_reached: once may happen 1 time"):
                VARIANTS[variant]()
    assert len(h.sent(once)) == 1
    app.review.replay(work.ref, by="ann")
    with app.work("w", kind="loop"), pytest.raises(semel.Refused, match="limit_reached"):
        VARIANTS[variant]()
    assert len(h.sent(once)) == 1, "a replay forgets no act"


def test_per_task_holds_for_an_effect_of_the_tenant_under_its_old_name_and_its_new_one(h: Harness) -> None:
    with app.work("w1", kind="loop"):
        payout("a")
        for variant in (lambda: payout("b"), lambda: payout.using(occurrence="again")("a")):
            with pytest.raises(semel.Refused, match="limit_reached: pay_out may happen 1 time"):
                variant()
    with app.work("w2", kind="loop") as second:
        payout("b")
        with pytest.raises(semel.Refused, match="limit_reached"):
            payout("c")
    with app.work("w3", kind="loop"):
        assert payout("a") == "a", "of another task, from the record: it is this one's act, too"
        with pytest.raises(semel.Refused, match="limit_reached"):
            payout("c")
    assert [sent.arguments["what"] for sent in h.sent(payout)] == ["a", "b"]
    app.review.replay(second.ref, by="ann")
    with app.work("w2", kind="loop"), pytest.raises(semel.Refused, match="limit_reached"):
        payout("c")


# --- time -------------------------------------------------------------------------------------------------------------


def test_the_time_of_all_attempts_counts_and_waiting_does_not(h: Harness) -> None:
    ran_for: list[int] = []

    def slow(what: str) -> str:
        ran_for.append(25)
        h.clock.move(25)
        return what

    h.fake(act, slow)

    with pytest.raises(semel.Unsettled, match="ran for 75"):
        for key in ("a", "b", "c", "d"):
            with app.work("w", kind="loop", limits=semel.Limits(seconds=60)) as work:
                act(key)
            h.advance(timedelta(hours=5))
    assert len(ran_for) == 3 and used(work.ref).ms == 75_000


def test_a_handler_beyond_its_time_is_stopped_at_its_next_effect_step_or_spend(h: Harness) -> None:
    for n, then in enumerate((lambda: act("b"), lambda: ask_model("b"), lambda: semel.spend(usd="0.01"))):
        with pytest.raises(semel.Unsettled, match="ran for 61"), app.work(f"w{n}", kind="loop", limits=semel.Limits(seconds=60)):
            h.clock.move(61)
            then()
            raise AssertionError("it went on")
    assert not h.sent(act) and not ran


def test_a_handler_that_finishes_beyond_its_time_has_finished(h: Harness) -> None:
    with app.work("w", kind="loop", limits=semel.Limits(seconds=60)) as work:
        h.clock.move(61)
    assert app.tasks.get(work.ref).execution == "succeeded"


# --- replay -----------------------------------------------------------------------------------------------------------


def test_a_replay_by_a_person_lets_money_count_afresh_and_repeats_no_effect(h: Harness) -> None:
    ref = begin("act a", "spend 1.10", "act b")
    plan["in effect"] = "1"
    dead(h, ref, "spent 2.10 usd of 2")
    plan.clear()
    app.review.replay(ref, by="ann", reason="it may cost 2 more")
    h.run()
    assert ref.result() == "done" and [sent.arguments["what"] for sent in h.sent(act)] == ["a", "b"]
    assert used(ref).total[0] == Decimal("3.20")


def test_an_agent_cannot_replay_what_is_beyond_its_limit(h: Harness) -> None:
    ref = begin("spend 3")
    dead(h, ref, "spent 3 usd of 2")
    with (
        app.work("w", kind="loop"),
        pytest.raises(semel.Misuse, match=r"app\.review\.replay was called inside the work of an agent"),
    ):
        app.review.replay(ref, by="ann")
    assert app.tasks.get(ref).delivery == "dead_lettered"


def test_an_agent_that_is_refused_again_and_again_is_stopped_whatever_it_swallows(tmp_path: Path) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    asked: list[int] = []

    @app.effect(intent=("n",), per_task=1)
    def send(submission: semel.Submission, n: int) -> int:
        return n

    @app.task(intent=("n",), retry=semel.Retry(max_attempts=3))
    def obsessed(n: int) -> int:
        while len(asked) < 1000:
            asked.append(1)
            with contextlib.suppress(semel.Refused):
                send(len(asked))
        return n

    ref = obsessed.enqueue(1)
    app.run_worker(until_idle=True)
    stands = app.tasks.get(ref)
    assert (stands.delivery, stands.attempt, len(asked)) == ("dead_lettered", 1, 101)
    assert "an effect was refused 100 times in one attempt" in stands.why
    assert sum(event.kind == "declined" for event in app.journal(ref)) == 100
    app.close()

"""Limits: what a task has used up is exact and survives everything; beyond a limit nothing starts, and the task ends."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_cells import MINE, OTHER, SharedBench
from task_cells import (
    BUDGET,
    HOUR,
    K1,
    K2,
    NOW,
    SHARED,
    TaskBench,
    claim,
    leased_over,
    leased_over_late,
    leased_over_unknown,
    leased_rich,
    queued,
    spend,
)

from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import limits
from semel.machine import tasks as t
from semel.model import Code, Delivery, Execution, Limits, Refusal, exact_usd


def refused(bench: TaskBench, command: t.Command) -> Refusal:
    decided = t.decide(bench.task, command, bench.shared)
    assert isinstance(decided, Refusal), decided
    return decided


def kinds(bench: TaskBench, command: t.Command) -> list[str]:
    decided = t.decide(bench.task, command, bench.shared)
    assert not isinstance(decided, Refusal), decided
    return [event.kind for event in decided.events]


# --- what is used up --------------------------------------------------------------------------------------------------

AMOUNTS = st.decimals(0, Decimal(10) ** 15, allow_nan=False, allow_infinity=False, places=18).filter(lambda d: d < 10**15)


@given(st.lists(AMOUNTS, max_size=8))
def test_money_is_summed_without_rounding_whatever_the_caller_s_context_is(amounts: list[Decimal]) -> None:
    used = limits.Used()
    with localcontext() as context:
        context.prec = 2  # an agent's code may set it; nothing of ours may be rounded by it
        for amount in amounts:
            event = j.Spent(1, limits.text_of(exact_usd(amount, "usd")), 3)
            assert "E" not in event.usd and Decimal(event.usd) == amount, "exact, as text"
            used = limits.after(used, event, NOW)
    assert int(used.usd.scaleb(18, limits.EXACT)) == sum(int(amount.scaleb(18, limits.EXACT)) for amount in amounts)
    assert used.tokens == 3 * len(amounts)


@pytest.mark.parametrize("usd", ["NaN", "much", "1e-400", "Infinity", ""])
def test_a_row_that_tells_of_no_amount_is_an_error_and_not_an_amount(usd: str) -> None:
    with pytest.raises(ValueError, match="which is no amount"):
        t.apply(leased_rich().task, j.Spent(1, usd), NOW)


def test_ten_dimes_are_a_dollar() -> None:
    bench = queued().do(claim(budget=limits.Budget("1")))
    for _ in range(10):
        bench.do(spend(bench, "0.1"))
    assert bench.task.used.usd == 1 and not bench.task.suspended, "a limit may be used up to the last cent"
    assert kinds(bench, spend(bench, "0.000000000000000001")) == ["spent", "suspended"]


@pytest.mark.parametrize(
    ("commands", "why"),
    [
        ([("0.53", 0)], "spent 2.03 usd of 2"), ([("0", 601)], "spent 1001 tokens of 1000"),
        ([("1", 900)], "spent 2.50 usd of 2"),
        ([("0.50", 600)], ""), ([("0.5", 0), ("0.00000001", 0)], "spent 2.00000001 usd of 2"),
    ],
)  # fmt: skip
def test_the_reason_is_in_words(commands: list[tuple[str, int]], why: str) -> None:
    bench = leased_rich()
    bench.do(*(spend(bench, usd, tokens) for usd, tokens in commands))
    assert bench.task.suspended == why == limits.over(bench.task.used, BUDGET)
    assert bool(why) == (not isinstance(t.decide(bench.task, t.Exceed(bench.token, NOW)), Refusal))


def test_what_a_crashed_attempt_had_spent_counts_and_so_does_what_comes_late() -> None:
    bench = leased_rich()
    first = spend(bench, "0.40")
    bench.do(t.LoseLease("s1", "dead", NOW), claim("s2", budget=BUDGET))
    assert bench.task.used.usd == Decimal("1.50")
    bench.do(first)
    assert bench.task.used.usd == Decimal("1.90") and not bench.task.suspended
    bench.do(spend(bench, "0.11"))
    assert bench.task.suspended == "spent 2.01 usd of 2"


def test_a_limit_is_what_was_declared_where_the_task_was_last_claimed() -> None:
    bench = leased_over()
    bench.do(t.LoseLease("s1", "dead", NOW), claim(budget=replace(BUDGET, usd="3")))
    assert not limits.over(bench.task.used, bench.task.budget)
    assert kinds(bench, bench.intend()) == ["intended"]
    bench.do(t.Park(bench.token, "", NOW), claim())
    assert bench.task.budget == limits.UNLIMITED, "none is declared any more"


def test_declared_limits_are_recorded_exactly() -> None:
    assert limits.budget_of(Limits()) == limits.UNLIMITED
    assert limits.budget_of(Limits(usd=Decimal("1E+2"), tokens=0, seconds=1.5)) == limits.Budget("100", 0, 1500)
    assert limits.budget_of(Limits(usd="-0.00")) == limits.Budget("0")


# --- time -------------------------------------------------------------------------------------------------------------


def ran(*events: tuple[int, j.Happened]) -> int:
    task = t.Task()
    for at, event in events:
        task = t.apply(task, event, at)
    return task.used.ms


def test_time_is_what_the_ends_of_attempts_say_and_not_what_passes_between_them() -> None:
    bench = queued().do(claim(budget=BUDGET))
    bench.do(t.Park(bench.token, "waiting", NOW, 100), claim(budget=BUDGET))
    bench.do(t.Wait(bench.token, "w", "paid", 0, NOW, 20), t.Signal("paid", None, NOW + 9 * HOUR))
    bench.do(claim(at=NOW + 9 * HOUR, budget=BUDGET))
    bench.do(t.Block(bench.token, "ask", ran=3), t.Unblock("alice", NOW), claim(budget=BUDGET))
    bench.do(t.Fail(bench.token, "no", NOW, ran=4000), claim(at=NOW + HOUR, budget=BUDGET))
    assert bench.task.used.ms == 4123
    assert limits.over(bench.task.used, BUDGET, 60_000) == "ran for 64.123 s of 60"
    bench.do(t.Finish(bench.token, 1, 50_000))
    assert bench.task.used.ms == 54_123


def test_a_crashed_attempt_counts_to_the_last_that_it_put_on_record_and_no_idle_hour_does() -> None:
    assert ran((1000, j.Claimed(1, 7, "s1")), (900_000, j.LeaseLost("s1", "dead"))) == 0
    assert ran(
        (1000, j.Claimed(1, 7, "s1")), (3000, j.Stepped("a:1", "a")), (4000, j.Spent(1, "1")),
        (500_000, j.Signalled("paid")), (600_000, j.Ending("cancelled")), (800_000, j.Lost("k", 1, "fenced")),
        (900_000, j.LeaseLost("s1", "dead")),
    ) == 3000  # fmt: skip
    assert ran((5000, j.Claimed(1, 7, "s1")), (1000, j.Stepped("a:1", "a")), (9000, j.LeaseLost("s1", "dead"))) == 0, (
        "a clock that was set back takes nothing away"
    )


# --- beyond a limit ---------------------------------------------------------------------------------------------------


def test_beyond_a_limit_nothing_is_intended_even_if_the_code_was_not_suspended() -> None:
    bench = leased_over_late()
    assert not bench.task.suspended
    no = refused(bench, bench.intend())
    assert (no.code, no.message) == (Code.LIMIT_REACHED, "spent 2.03 usd of 2")
    assert refused(bench, bench.intend(approvers=1)).code is Code.LIMIT_REACHED, "nor is anybody asked to approve it"


def test_beyond_a_limit_a_swallowed_suspension_can_start_nothing_and_not_finish() -> None:
    bench = leased_over()
    assert refused(bench, bench.intend()).code is Code.UNKNOWN_OUTSTANDING
    assert refused(bench, t.Finish(bench.token, "done")).code is Code.UNKNOWN_OUTSTANDING


def test_beyond_a_limit_what_was_done_is_still_answered_from_the_record() -> None:
    bench = leased_rich()
    bench.do(bench.intend(), e.Confirm(K1, 1, bench.token, "ch_1"))
    late = spend(bench, "1")
    bench.do(t.Park(bench.token, "", NOW), claim(budget=BUDGET), late)
    decided = t.decide(bench.task, bench.intend())
    assert isinstance(decided, e.Decision) and decided.recorded is not None and decided.recorded.result == "ch_1"


def test_beyond_a_limit_what_is_unknown_is_settled_first_and_then_the_task_ends_with_the_reason() -> None:
    bench = leased_over_unknown()
    bench.do(t.Exceed(bench.token, NOW, 5))
    assert (bench.task.delivery, bench.task.execution, bench.task.ending) == ("queued", "unknown", "dead_lettered")
    bench.do(claim(budget=BUDGET), t.Block(bench.task.token + 1, "a person must look", K1))
    bench.do(e.Answer(K1, "confirmed", "alice", bench.task.effects[K1].version, "ch_1"), claim(budget=BUDGET))
    assert refused(bench, bench.intend(K2)).code is Code.LIMIT_REACHED
    bench.do(t.Conclude(bench.token))
    assert (bench.task.delivery, bench.task.why) == (Delivery.DEAD_LETTERED, "spent 2.03 usd of 2"), "the reason, not the answer"


def test_beyond_a_limit_the_way_out_of_an_unknown_stays_open() -> None:
    bench = leased_over_unknown()
    bench.do(t.Exceed(bench.token, NOW), claim(budget=BUDGET))
    assert kinds(bench, bench.intend(again=True)) == ["intended"]


def test_a_limit_that_is_not_exceeded_ends_nothing() -> None:
    bench = leased_rich()
    assert refused(bench, t.Exceed(bench.token, NOW, 60_000)).code is Code.STALE_VIEW
    assert kinds(bench, t.Exceed(bench.token, NOW, 60_001)) == ["dead_lettered"]


def test_a_cancelled_task_stays_cancelled_when_it_exceeds_a_limit() -> None:
    bench = leased_over().do(t.Cancel("by alice", NOW))
    bench.do(t.Exceed(bench.token, NOW), claim(budget=BUDGET))
    bench.do(t.Conclude(bench.token))
    assert bench.task.execution is Execution.CANCELLED and bench.task.why == "by alice"


def test_a_replay_lets_money_and_time_count_afresh_and_keeps_them_on_record() -> None:
    bench = leased_over()
    bench.do(t.Exceed(bench.token, NOW, 30_000), t.Replay("by alice", NOW), claim(budget=BUDGET))
    assert bench.task.used == limits.Used(since=bench.at, old_usd=Decimal("2.03"), old_tokens=400, old_ms=30_000)
    bench.do(spend(bench, "2"))
    assert not bench.task.suspended and bench.task.used.total == (Decimal("4.03"), 400, 30_000)
    bench.do(spend(bench, "0.01"))
    assert bench.task.suspended == "spent 2.01 usd of 2"


def test_an_unblocking_replay_lets_nothing_count_afresh() -> None:
    bench = leased_rich()
    bench.do(t.Block(bench.token, "a person must look"), t.Replay("by alice", NOW))
    assert bench.task.used.usd == Decimal("1.50")


# --- per_task ---------------------------------------------------------------------------------------------------------


def test_per_task_counts_every_variant_of_an_act() -> None:
    """Another intent, another occurrence: each is another key of the same name. A person's new generation is the same act."""
    bench = leased_rich()
    bench.do(bench.intend(K1, per_task=1), e.Confirm(K1, 1, bench.token, "ch_1"))
    for variant in ({"key": K2}, {"key": "sml_3", "occurrence": "again"}):
        assert refused(bench, bench.intend(per_task=1, **variant)).code is Code.LIMIT_REACHED
    renewed = bench.intend("sml_4", generation=1, per_task=1)
    assert not isinstance(t.decide(bench.task, renewed), Refusal), "only a person opens one"
    bench.do(t.Finish(bench.token), t.Replay("by alice", NOW), claim())
    assert refused(bench, bench.intend(K2, per_task=1)).code is Code.LIMIT_REACHED, "acts are counted for ever"


def test_per_task_counts_a_key_of_the_tenant_that_another_task_has_begun() -> None:
    bench = SharedBench()
    mine = bench.tasks[MINE]
    bench.do(MINE, e.Confirm(K1, 1, mine.token, "ch_1"))
    bench.do(OTHER, bench.intend(OTHER))
    bench.do(OTHER, e.Disprove(SHARED, *bench.last, "refused"))
    assert bench.key.effect is not None, "the key is on record, and is new to the first task"
    call = bench.intend(MINE, name="charge", per_task=1)
    decided = bench.decide(MINE, call)
    assert isinstance(decided, Refusal) and decided.code is Code.LIMIT_REACHED
    assert not isinstance(bench.decide(MINE, replace(call, per_task=2)), Refusal)
    bench.do(MINE, replace(call, per_task=2)).do(MINE, e.Disprove(SHARED, *bench.last, "refused"))
    assert not isinstance(bench.decide(MINE, replace(call, per_task=2)), Refusal), "once it is the task's, it is tried again"

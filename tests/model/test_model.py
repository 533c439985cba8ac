"""The protocol as the design has it, apart from the code: proved with z3 for any number of workers; each rule is needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import model_once as once
import model_proof as proof
import pytest
from model_search import CASES, GUESS, Worlds

Measured = Callable[[str], None]


@pytest.fixture(scope="module")
def worlds() -> Worlds:
    return Worlds()


def test_the_promise_holds_for_any_number_of_sessions_submissions_crashes_and_steps(measured: Measured) -> None:
    began = time.monotonic()
    assert proof.begins_well()
    missing, count = proof.unproved()
    assert not missing, missing
    assert count > 700
    measured(
        f"invariant inductive: {count} proof steps, any number of sessions and submissions, {time.monotonic() - began:.1f} s"
    )


def test_no_action_is_ruled_out_by_the_invariant() -> None:
    assert not proof.impossible()


@pytest.mark.parametrize("rule", once.RULES)
def test_without_any_one_rule_the_invariant_is_not_inductive(rule: str) -> None:
    missing, _ = proof.unproved(rule, enough=1)
    assert missing and "(sat)" in missing[0], missing


def test_every_rule_has_a_trace_to_look_for() -> None:
    assert {case.rule for case in CASES} == set(once.RULES)


def test_a_looked_up_provider_and_a_worker_without_the_watchdog_act_twice(worlds: Worlds, measured: Measured) -> None:
    case = CASES[0]
    told = worlds.breaks(case, least=case.steps)
    assert told is not None and len(told) == 7, told
    assert "goes out; the provider acts on submission" in told[-1], told
    assert worlds.breaks(case, "", most=case.steps) is None, "it is recorded unfenced, so that its not_found is a person's"
    assert worlds.breaks(replace(case, timer=True), "", most=case.steps) is None
    measured("the known impossibility: " + " | ".join(told))


def test_without_any_one_rule_a_promise_is_broken_within_eight_steps(worlds: Worlds, measured: Measured) -> None:
    began = time.monotonic()
    for case in CASES:
        told = worlds.breaks(case, least=case.steps)
        assert told is not None, f"nothing breaks without {case.rule}"
    guesses = [case.rule for case in CASES if case.goal == GUESS]
    measured(
        f"{len(CASES)} rules taken out one at a time: {len(CASES) - len(guesses)} duplicates and {len(guesses)} guesses, of "
        f"{min(case.steps for case in CASES)} to {max(case.steps for case in CASES)} steps, {time.monotonic() - began:.1f} s"
    )


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_no_trace_is_shorter_and_with_all_rules_there_is_none(measured: Measured) -> None:
    began, worlds = time.monotonic(), Worlds(every_action=True)
    for case in CASES:
        told = worlds.breaks(case)
        assert told is not None and len(told) == case.steps, (case, told)
        assert worlds.breaks(case, "") is None, case
    measured(f"{len(CASES)} shortest traces, each action also a step of its own, {time.monotonic() - began:.1f} s")

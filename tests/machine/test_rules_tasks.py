"""The rules that a task keeps, by name: the invariant, R2, R8, R9, R11, and that nothing is stranded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from shared_cells import MINE, OTHER, SharedBench
from task_cells import HOUR, K1, K2, NOW, SHARED, TaskBench, claim, fail, key_submitted, leased, leased_two, leased_unknown
from task_cells import STATES as TASKS

from semel.machine import effects as e
from semel.machine import tasks as t
from semel.model import Delivery, EffectState, Execution, Refusal


def code(bench: TaskBench, command: t.Command) -> str:
    """The name of the refusal, or "" if there is none."""
    decided = t.decide(bench.task, command, bench.shared)
    return decided.code.value if isinstance(decided, Refusal) else ""


def kinds(bench: TaskBench, command: t.Command) -> list[str]:
    """The kinds of the events; a refusal is a mistake here."""
    decided = t.decide(bench.task, command, bench.shared)
    assert not isinstance(decided, Refusal), decided
    return [event.kind for event in decided.events]


# --- the invariant ----------------------------------------------------------------------------------------------------


def test_invariant_while_one_effect_is_unknown_no_other_starts() -> None:
    bench = leased_unknown()
    assert code(bench, bench.intend(K2)) == "unknown_outstanding"
    assert code(bench, t.Finish(bench.token)) == "unknown_outstanding"
    bench.do(e.Confirm(K1, 1, bench.token, "ch_1"))
    assert kinds(bench, bench.intend(K2)) == ["intended"]


def test_invariant_an_effect_in_flight_bars_no_other_but_bars_the_finish() -> None:
    bench = leased()
    bench.do(bench.intend(K1))
    assert kinds(bench, bench.intend(K2)) == ["intended"]
    assert code(bench, t.Finish(bench.token)) == "in_flight"


def test_invariant_an_earlier_submission_is_unknown_even_while_a_further_one_is_in_flight() -> None:
    bench = leased_unknown()
    bench.do(bench.intend(K1, again=True))
    assert bench.task.effects[K1].state is EffectState.SUBMITTED and bench.task.unknown == {K1}
    assert code(bench, bench.intend(K2)) == "unknown_outstanding"


def test_invariant_one_unknown_does_not_bar_the_way_out_of_another() -> None:
    """Two keyed effects in flight when the worker is killed: if each barred the other's resubmission, both would stay."""
    bench = leased()
    bench.do(bench.intend(K1), bench.intend(K2), t.LoseLease("s1", "dead", NOW), claim("s2"))
    assert bench.task.unknown == {K1, K2}
    for key in (K1, K2):
        bench.do(bench.intend(key, again=True), e.Confirm(key, 2, bench.token, "done"))
    assert not bench.task.unknown and kinds(bench, t.Finish(bench.token)) == ["finished"]


# --- R2 ---------------------------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[TaskBench], t.TaskCommand]] = {
    "fail": fail,
    "fail_fatal": lambda b: fail(b, fatal=True),
    "park": lambda b: t.Park(b.token, "waiting", NOW),
    "block": lambda b: t.Block(b.token, "a person must look", K1),
    "lose_lease_watched": lambda _: t.LoseLease("s1", "watched", NOW),
    "lose_lease_dead": lambda _: t.LoseLease("s1", "dead", NOW),
    "lose_lease_left": lambda _: t.LoseLease("s1", "left", NOW),
}


@pytest.mark.parametrize("end", ENDS)
def test_r2_every_end_of_an_attempt_makes_its_submissions_ambiguous_in_the_same_change(end: str) -> None:
    bench = leased_two().do()
    bench.do(ENDS[end](bench))
    for key in (K1, K2):
        effect = bench.task.effects[key]
        assert effect.state is EffectState.AMBIGUOUS and all(sent.lost for sent in effect.open)
    assert bench.task.unknown == {K1, K2} and not bench.task.submitted
    assert bench.task.execution is Execution.UNKNOWN


def test_r2_a_fenced_session_fences_what_it_had_lost_before_as_well() -> None:
    """K1 was lost by a timeout, its code still running; then the session is fenced: K1's sender is fenced too."""
    for proof in ("watched", "dead", "left"):
        bench = leased_unknown().do(t.LoseLease("s1", proof, NOW))
        sent = bench.task.effects[K1].sent[0]
        assert sent.fenced and sent.quiet and sent.dead == (proof == "dead"), proof


@pytest.mark.parametrize("end", ["fail", "park", "block"])
def test_r2_an_end_that_is_no_fence_quiets_nobody(end: str) -> None:
    """R4: giving the task back stops no code that outlived its timeout."""
    bench = leased_unknown()
    bench.do(ENDS[end](bench))
    assert not bench.task.effects[K1].quiet


@pytest.mark.parametrize("end", ENDS)
def test_r2_the_outcome_of_an_attempt_that_is_over_is_evidence(end: str) -> None:
    bench = leased()
    bench.do(bench.intend())
    token = bench.token
    bench.do(ENDS[end](bench))
    assert kinds(bench, e.Confirm(K1, 1, token, "ch_1")) == ["late"]
    bench.do(e.Confirm(K1, 1, token, "ch_1"))
    assert bench.task.effects[K1].state is EffectState.AMBIGUOUS and bench.task.unknown == {K1}


def test_r2_the_next_attempt_credits_it() -> None:
    bench = leased()
    bench.do(bench.intend())
    old = bench.token
    bench.do(t.LoseLease("s1", "watched", NOW), e.Confirm(K1, 1, old, "ch_1"), claim("s2"))
    assert code(bench, e.Credit(K1, 1, old)) == "stale_token"
    bench.do(e.Credit(K1, 1, bench.token))
    assert bench.task.effects[K1].result == "ch_1" and not bench.task.unknown


# --- R8 ---------------------------------------------------------------------------------------------------------------


def shared_code(bench: SharedBench, task: str, command: e.EffectCommand) -> str:
    decided = bench.decide(task, command)
    return decided.code.value if isinstance(decided, Refusal) else ""


def test_r8_an_intend_lands_in_both_streams() -> None:
    bench = SharedBench()
    decided = bench.decide(MINE, bench.intend(MINE))
    assert not isinstance(decided, Refusal)
    assert [event.kind for event in decided[0]] == ["joined"]
    assert [event.kind for event in decided[1].events] == ["intended"]


def test_r8_a_key_in_flight_in_one_task_is_in_flight_for_the_other() -> None:
    bench = SharedBench()
    bench.do(OTHER, bench.intend(OTHER))
    assert shared_code(bench, MINE, bench.intend(MINE)) == "in_flight"
    assert bench.key.owner == OTHER and bench.key.unsettled


def test_r8_an_unknown_joined_key_bars_both_tasks() -> None:
    bench = SharedBench()
    bench.do(OTHER, bench.intend(OTHER))
    bench.do(MINE, t.Join(bench.tasks[MINE].token, SHARED, "mail"))
    bench.do(OTHER, e.Lose(SHARED, *bench.last, "no answer", ended=True))
    for task in (MINE, OTHER):
        owner = bench.tasks[task]
        other = e.Intend(K2, "charge", {}, "d", "m", task, owner.attempt, owner.token, owner.session)
        for command in (other, t.Finish(owner.token)):
            refused = t.decide(owner, command, bench.shared(task))
            assert isinstance(refused, Refusal) and refused.code == "unknown_outstanding", (task, command)
        assert shared_code(bench, task, bench.intend(task)) == "unknown_outstanding"


def test_r8_a_task_that_has_not_joined_is_not_barred() -> None:
    bench = SharedBench()
    bench.do(OTHER, bench.intend(OTHER)).do(OTHER, e.Lose(SHARED, *bench.last, "no answer", ended=True))
    owner = bench.tasks[MINE]
    command = e.Intend(K2, "charge", {}, "d", "m", MINE, owner.attempt, owner.token, owner.session)
    assert not isinstance(t.decide(owner, command, bench.shared(MINE)), Refusal)


def test_r8_another_task_takes_over_and_the_keys_token_rises() -> None:
    """The zombie's token must lose against the taker's at a resource that remembers the highest (R18)."""
    bench = SharedBench()
    bench.do(OTHER, bench.intend(OTHER))
    first = bench.last[1]
    bench.do(OTHER, t.LoseLease("s9", "dead", NOW)).do(MINE, bench.intend(MINE, again=True))
    assert bench.key.owner == MINE and bench.last[1] > first
    assert bench.key.token == bench.last[1]
    bench.do(OTHER, e.Confirm(SHARED, 1, first, "zombie"))
    assert bench.key.effect and bench.key.effect.state is EffectState.SUBMITTED
    assert [found.result for found in bench.key.effect.evidence] == ["zombie"]


def test_r8_the_tokens_of_a_key_rise_over_epochs_and_never_fall_back() -> None:
    key = t.Key()
    tokens = []
    for epoch in (1, 1, 7, 7, 3):
        token = t.next_token(key, epoch)
        tokens.append(token)
        key = replace(key, token=token)
    assert tokens == sorted(set(tokens))
    assert [token >> t.EPOCH_SHIFT for token in tokens] == [1, 1, 7, 7, 7]


def test_r8_the_end_of_an_attempt_loses_its_submission_of_a_shared_key_and_nobody_elses() -> None:
    bench = SharedBench()
    bench.do(OTHER, bench.intend(OTHER))
    assert t.lose_shared(bench.key, MINE, 1, "ended") == ()
    lost = t.lose_shared(bench.key, OTHER, 1, "fenced", fenced=True, dead=True)
    assert [(event.kind, event.fenced, event.dead) for event in lost] == [("lost", True, True)]  # type: ignore[attr-defined]


def test_r8_a_later_end_loses_what_an_earlier_attempt_left_open_of_a_shared_key_and_quiets_no_sender() -> None:
    bench = SharedBench()
    bench.do(OTHER, bench.intend(OTHER))
    assert t.lose_shared(bench.key, OTHER, 0, "ended") == ()
    lost = t.lose_shared(bench.key, OTHER, 2, "fenced", fenced=True, dead=True)
    assert [(event.kind, event.fenced, event.dead) for event in lost] == [("lost", False, False)]  # type: ignore[attr-defined]


def test_r8_what_a_wait_loses_of_a_shared_key_is_looked_into_at_once() -> None:
    bench = leased()
    bench.do(t.Join(bench.token, SHARED, "mail"))
    wait = t.Wait(bench.token, "w", "paid", 0, NOW)
    bench.shared = {SHARED: key_submitted(OTHER)}
    assert kinds(bench, wait)[-1] == "blocked"
    bench.shared = {SHARED: key_submitted(bench.task.id)}
    assert kinds(bench, wait)[-1] == "parked"


def test_r8_the_fence_of_its_session_quiets_what_it_had_lost_of_a_shared_key() -> None:
    bench = SharedBench()
    bench.do(OTHER, bench.intend(OTHER)).do(OTHER, e.Lose(SHARED, *bench.last, "no answer", ended=False))
    assert bench.key.effect and not bench.key.effect.quiet
    bench.do(OTHER, t.LoseLease("s9", "watched", NOW))
    assert bench.key.effect.quiet


def test_r8_a_result_from_another_task_is_given_in_other_words_with_the_drift_on_record() -> None:
    bench = SharedBench()
    bench.do(OTHER, bench.intend(OTHER)).do(OTHER, e.Confirm(SHARED, *bench.last, "msg-1"))
    decided = bench.decide(MINE, bench.intend(MINE, digest="d2", args={"body": "hello"}))
    assert not isinstance(decided, Refusal)
    assert [event.kind for event in decided[0]] == ["joined"]
    assert [event.kind for event in decided[1].events] == ["drifted"]
    assert decided[1].recorded is not None and decided[1].recorded.result == "msg-1"


def test_r8_a_verdict_needs_the_lease_of_the_task_that_gives_it() -> None:
    bench = SharedBench()
    bench.do(OTHER, bench.intend(OTHER)).do(OTHER, e.Lose(SHARED, *bench.last, "no answer", ended=True))
    settle = e.Settle(SHARED, bench.tasks[MINE].token, "not_found", "lookup:find", waited_ms=0)
    bench.do(MINE, t.Park(bench.tasks[MINE].token, "waiting", NOW))
    assert shared_code(bench, MINE, settle) == "stale_token"


# --- R9 ---------------------------------------------------------------------------------------------------------------


def done() -> TaskBench:
    """K1 is confirmed in the first attempt."""
    bench = leased()
    return bench.do(bench.intend(), e.Confirm(K1, 1, bench.token, "ch_1"))


BREAKS: dict[str, Callable[[TaskBench], list[t.TaskCommand]]] = {
    "crash": lambda _: [t.LoseLease("s1", "dead", NOW)],
    "failure": lambda b: [fail(b)],
    "suspension": lambda b: [t.Suspend(b.token, "?"), t.Park(b.token, "?", NOW)],
    "a person": lambda b: [t.Block(b.token, "?"), t.Unblock("by alice", NOW)],
    "replay": lambda b: [t.Finish(b.token), t.Replay("by alice", NOW)],
}


def other_words(bench: TaskBench, **more: object) -> e.Decision | Refusal:
    call = bench.intend(digest="d2", args={"body": "hello"}, **more)
    return t.decide(bench.task, call, bench.shared)


def test_r9_in_flight_in_this_attempt_is_joined_whatever_the_words() -> None:
    bench = leased()
    bench.do(bench.intend())
    assert code(bench, bench.intend()) == "in_flight"
    assert code(bench, bench.intend(digest="d2")) == "in_flight"


def test_r9_the_same_wording_gets_the_result_and_writes_nothing() -> None:
    bench = done()
    decided = t.decide(bench.task, bench.intend(said="d"), bench.shared)
    assert isinstance(decided, e.Decision) and not decided.events
    assert decided.recorded is not None and decided.recorded.result == "ch_1"


@pytest.mark.parametrize("broke", BREAKS)
def test_r9_another_wording_after_a_break_gets_the_result_and_the_drift_is_journalled(broke: str) -> None:
    bench = done()
    bench.do(*BREAKS[broke](bench), claim(at=NOW + HOUR))
    decided = other_words(bench)
    assert isinstance(decided, e.Decision) and [event.kind for event in decided.events] == ["drifted"]
    assert decided.recorded is not None and decided.recorded.result == "ch_1"
    assert decided.events[0].attempt == bench.task.attempt  # type: ignore[attr-defined]


def test_r9_the_drift_changes_nothing_of_the_record() -> None:
    bench = done()
    bench.do(*BREAKS["crash"](bench), claim(at=NOW + HOUR))
    before = bench.task.effects[K1]
    bench.do(bench.intend(digest="d2", args={"body": "hello"}))
    assert replace(bench.task.effects[K1], version=0) == replace(before, version=0)


def test_r9_a_second_wording_in_one_attempt_is_already_done_with_the_result() -> None:
    refused = other_words(done(), said="d")
    assert isinstance(refused, Refusal) and refused.code == "already_done" and refused.result == "ch_1"


def test_r9_a_second_drifted_wording_in_one_attempt_is_already_done() -> None:
    bench = done()
    bench.do(*BREAKS["crash"](bench), claim(at=NOW + HOUR))
    assert isinstance(other_words(bench), e.Decision)
    again = t.decide(bench.task, bench.intend(digest="d3", said="d2"), bench.shared)
    assert isinstance(again, Refusal) and again.code == "already_done"
    assert isinstance(other_words(bench, said="d2"), e.Decision), "the wording it was given for stays its wording"


def test_r9_another_wording_after_a_clean_end_is_already_done_with_the_result() -> None:
    """Direct mode: the loop was left without an exception, and entered again."""
    bench = done()
    bench.do(t.Finish(bench.token), claim(direct=True))
    refused = other_words(bench)
    assert isinstance(refused, Refusal) and refused.code == "already_done" and refused.result == "ch_1"
    assert code(bench, bench.intend()) == ""


def test_r9_a_changed_material_argument_is_intent_changed_done_or_not() -> None:
    bench = done()
    assert code(bench, bench.intend(material="m2")) == "intent_changed"
    bench = leased()
    bench.do(bench.intend(), e.Disprove(K1, 1, bench.token, "refused"))
    assert code(bench, bench.intend(material="m2")) == "intent_changed"
    assert kinds(bench, bench.intend(digest="d2", args={"body": "hi"})) == ["intended"], "its wording may change, clean"


def test_r9_a_clean_effect_sent_in_other_words_records_those_words() -> None:
    bench = leased()
    bench.do(bench.intend(args={"body": "a"}), e.Disprove(K1, 1, bench.token, "refused"))
    bench.do(bench.intend(digest="d2", args={"body": "b"}))
    assert bench.task.effects[K1].args == {"body": "b"} and bench.task.effects[K1].digest == "d2"


def test_r9_a_resubmission_keeps_the_recorded_words_byte_for_byte() -> None:
    bench = leased_unknown()
    before = bench.task.effects[K1]
    bench.do(bench.intend(args={"body": "else"}, digest="d2", again=True))
    assert (bench.task.effects[K1].args, bench.task.effects[K1].digest) == (before.args, before.digest)


def test_r9_an_occurrence_on_purpose_is_another_effect() -> None:
    bench = done()
    assert kinds(bench, bench.intend(K2, occurrence="after-fix")) == ["intended"]


# --- R11 --------------------------------------------------------------------------------------------------------------


def test_r11_a_suspended_attempt_starts_nothing_and_is_told_nothing() -> None:
    bench = done()
    bench.do(t.Suspend(bench.token, "K2 is unknown", K2))
    for command in (bench.intend(), bench.intend(K2), bench.intend(digest="d2", said="d"), t.Finish(bench.token)):
        assert code(bench, command) == "unknown_outstanding", command


def test_r11_the_refusal_says_why_it_was_suspended() -> None:
    bench = leased()
    bench.do(t.Suspend(bench.token, "the mail is unknown"))
    refused = t.decide(bench.task, bench.intend(), {})
    assert isinstance(refused, Refusal) and "the mail is unknown" in refused.message


def test_r11_the_next_attempt_is_not_suspended() -> None:
    for command in (lambda b: t.Park(b.token, "?", NOW), lambda b: fail(b), lambda _: t.LoseLease("s1", "dead", NOW)):
        bench = leased()
        bench.do(t.Suspend(bench.token, "?"))
        bench.do(command(bench), claim(at=NOW + HOUR))
        assert kinds(bench, bench.intend()) == ["intended"]


def test_r11_it_can_still_record_what_comes_of_what_is_under_way() -> None:
    bench = leased()
    bench.do(bench.intend(), t.Suspend(bench.token, "?"), e.Confirm(K1, 1, bench.token, "ch_1"))
    assert bench.task.effects[K1].state is EffectState.CONFIRMED


# --- nothing is lost, nothing is stranded -----------------------------------------------------------------------------


def test_no_loss_tokens_and_attempts_rise_with_every_claim_also_into_an_older_epoch() -> None:
    bench = TaskBench()
    seen = []
    for epoch in (1, 5, 2, 5):
        bench.do(claim(epoch=epoch, at=NOW + HOUR))
        seen.append((bench.token, bench.task.attempt))
        bench.do(t.Park(bench.token, "?", NOW))
    assert seen == sorted(set(seen)) and [attempt for _, attempt in seen] == [1, 2, 3, 4]


def test_no_loss_a_person_who_answers_unblocks_the_task_in_the_same_change() -> None:
    """Two changes, and a crash between them, would leave a settled effect and a task that waits for ever."""
    bench = TASKS["blocked_unknown"]()
    seen = bench.task.effects[K1].version
    for verdict, kind in (("confirmed", "found"), ("not_found", "answered")):
        assert kinds(bench, e.Answer(K1, verdict, "alice", seen)) == [kind, "unblocked"]
    assert kinds(bench, e.Answer(K1, "conflict", "alice", seen)) == ["found"], "a conflict still waits for a person"
    bench.do(e.Answer(K1, "confirmed", "alice", seen))
    assert bench.task.delivery is Delivery.QUEUED and not bench.task.unknown
    assert kinds(bench, claim(at=NOW + HOUR)) == ["claimed"]


def test_no_loss_an_answer_moves_no_task_that_is_not_blocked() -> None:
    bench = TASKS["queued_unknown"]()
    assert kinds(bench, e.Answer(K1, "confirmed", "alice", bench.task.effects[K1].version)) == ["found"]


def test_no_loss_failures_are_counted_and_then_it_is_dead_lettered() -> None:
    bench = leased()
    dues = []
    for _ in range(2):
        bench.do(fail(bench))
        dues.append(bench.task.due - NOW)
        bench.do(claim(at=NOW + HOUR))
    assert dues == [1000, 2000], "the backoff doubles"
    assert kinds(bench, fail(bench)) == ["failed", "dead_lettered"]


def test_no_loss_a_crash_takes_it_alone_once_before_it_is_dead_lettered() -> None:
    for most in (1, 2, 3):
        bench = TaskBench().do(claim(max_crashes=most))
        crashes = 0
        while not bench.task.ended:
            alone = bench.task.alone
            bench.do(t.LoseLease("s1", "dead", NOW))
            crashes += 1
            if not bench.task.ended:
                bench.do(claim(at=NOW + HOUR, max_crashes=most))
        assert alone and crashes == max(most, 2)
        assert bench.task.delivery is Delivery.DEAD_LETTERED


def test_no_loss_crashes_and_failures_are_counted_apart() -> None:
    bench = leased()
    bench.do(t.LoseLease("s1", "dead", NOW), claim(at=NOW + HOUR))
    bench.do(fail(bench))
    assert (bench.task.crashes, bench.task.failures) == (1, 1) and bench.task.delivery is Delivery.QUEUED


def test_no_loss_what_must_end_with_an_open_effect_is_reconciled_first() -> None:
    bench = TASKS["leased_last_try_submitted"]()
    bench.do(fail(bench))
    assert bench.task.ending == "dead_lettered" and bench.task.delivery is Delivery.QUEUED
    bench.do(claim(at=NOW + HOUR))
    assert code(bench, bench.intend(K2)) == "unknown_outstanding"
    bench.do(e.Confirm(K1, 1, bench.task.effects[K1].sent[0].token, "late"), e.Credit(K1, 1, bench.token))
    assert code(bench, bench.intend(K2)) == "cancelled", "it starts nothing more"
    bench.do(t.Conclude(bench.token))
    assert bench.task.delivery is Delivery.DEAD_LETTERED


def test_no_loss_a_cancelled_task_with_an_unknown_ends_cancelled_after_it_was_settled() -> None:
    bench = TASKS["queued_ending"]().do(claim("s2"))
    assert code(bench, t.Conclude(bench.token)) == "unknown_outstanding"
    bench.do(e.Settle(K1, bench.token, "not_found", "lookup:find", waited_ms=0), t.Conclude(bench.token))
    assert (bench.task.delivery, bench.task.execution) == (Delivery.ACKNOWLEDGED, Execution.CANCELLED)


def test_no_loss_a_cancelled_task_may_resubmit_to_find_its_way_out() -> None:
    bench = TASKS["queued_ending"]().do(claim("s2"))
    assert kinds(bench, bench.intend(K1, again=True)) == ["intended"]


def test_no_loss_reconciling_that_kills_its_worker_again_and_again_ends_at_a_person() -> None:
    """A lookup that takes the process down: without an end, it would take every worker down, one after the other."""
    bench = TASKS["leased_alone_submitted"]()
    crashes = 0
    while bench.task.delivery is not Delivery.BLOCKED:
        bench.do(t.LoseLease("s1", "dead", NOW))
        crashes += 1
        assert crashes < 10
        if bench.task.delivery is Delivery.QUEUED:
            assert bench.task.ending == "dead_lettered" and bench.task.unknown == {K1}
            bench.do(claim(at=NOW + HOUR))
    assert crashes == 3, "twice it was tried"
    bench.do(
        e.Answer(K1, "confirmed", "alice", bench.task.effects[K1].version), claim(at=NOW + HOUR), t.Conclude(bench.token + 1)
    )
    assert bench.task.delivery is Delivery.DEAD_LETTERED


def test_no_loss_a_replay_forgets_steps_from_the_named_one_on_and_no_effect() -> None:
    bench = done()
    for name in ("draft", "check", "sign"):
        bench.do(t.Step(bench.token, f"{name}:d:1", name, name))
    bench.do(t.Finish(bench.token), t.Replay("by alice", NOW, "check"))
    assert set(bench.task.steps) == {"draft:d:1"} and bench.task.effects[K1].confirmed
    bench.do(claim(at=NOW + HOUR), t.Finish(bench.token + 1), t.Replay("by alice", NOW))
    assert not bench.task.steps and bench.task.effects[K1].confirmed


def test_no_loss_limits_count_different_effects_and_not_their_submissions() -> None:
    bench = leased()
    bench.do(bench.intend(K1), e.Disprove(K1, 1, bench.token, "refused"))
    assert kinds(bench, bench.intend(K1, limit=1, per_task=1)) == ["intended"]
    assert code(bench, bench.intend(K2, limit=1)) == "limit_reached"
    assert code(bench, bench.intend(K2, per_task=1)) == "limit_reached"
    assert kinds(bench, bench.intend(K2, name="mail", per_task=1)) == ["intended"], "of another name"
    bench.with_key(t.Key())
    assert code(bench, bench.intend(K2, limit=2)) == "limit_reached", "a joined key counts"

"""The rules that one effect keeps, by name: R1, R2, R3, R4, R21."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import effect_cells as c
import pytest

from semel.machine import effects as e
from semel.machine import journal as j
from semel.model import Code, EffectState, Refusal

DESIGN = Path(__file__).parents[2] / "docs" / "design.md"


def code(effect: e.Effect | None, command: e.EffectCommand, standing: e.Standing | None = None) -> str:
    """The name of the refusal, or "" if there is none."""
    decided = e.decide(effect, command, standing or e.Standing())
    return decided.code.value if isinstance(decided, Refusal) else ""


def kinds(effect: e.Effect | None, command: e.EffectCommand, standing: e.Standing | None = None) -> list[str]:
    """The kinds of the events; a refusal is a mistake here."""
    decided = e.decide(effect, command, standing or e.Standing())
    assert not isinstance(decided, Refusal), decided
    return [event.kind for event in decided.events]


def effect_of(bench: c.Bench) -> e.Effect:
    assert bench.effect is not None
    return bench.effect


# --- R1 ---------------------------------------------------------------------------------------------------------------


def test_r1_disproof_of_the_second_submission_leaves_the_first_unknown() -> None:
    effect = effect_of(c.resubmitted_disproved())
    assert effect.state is EffectState.AMBIGUOUS
    assert [(s.n, s.open) for s in effect.sent] == [(1, True), (2, False)]
    assert code(effect, c.intend()) == "unknown_outstanding"


def test_r1_a_disproof_of_the_first_leaves_the_second_in_flight() -> None:
    bench = c.unended().do(c.intend(again=True)).do(e.Disprove(c.KEY, 1, c.FIRST, "connection refused"))
    assert effect_of(bench).state is EffectState.SUBMITTED
    assert [s.open for s in effect_of(bench).sent] == [False, True]


def test_r1_not_attempted_needs_every_submission_closed() -> None:
    bench = c.resubmitted_disproved().do(e.Disprove(c.KEY, 1, c.FIRST, "connection refused"))
    assert effect_of(bench).state is EffectState.NOT_ATTEMPTED
    assert not effect_of(bench).open


def test_r1_not_found_speaks_of_every_open_submission() -> None:
    bench = c.resubmitted().do(e.Lose(c.KEY, 2, c.SECOND, "ReadTimeout", ended=True))
    bench.do(e.Settle(c.KEY, c.SECOND, "not_found", "lookup:find", waited_ms=0, seen=2))
    assert effect_of(bench).state is EffectState.NOT_ATTEMPTED and not effect_of(bench).open


def test_r1_confirm_of_one_closes_all() -> None:
    bench = c.unended().do(c.intend(again=True)).do(e.Confirm(c.KEY, 1, c.FIRST, "msg-1"))
    assert effect_of(bench).state is EffectState.CONFIRMED and not effect_of(bench).open
    assert effect_of(bench).result == "msg-1"


def test_r1_a_final_disproof_declines_nothing_while_another_submission_is_open() -> None:
    bench = c.resubmitted().do(e.Disprove(c.KEY, 2, c.SECOND, "card declined", final=True))
    assert effect_of(bench).declined is None and effect_of(bench).state is EffectState.AMBIGUOUS


def test_r1_the_age_counts_from_the_first_submission_since_it_was_last_clean() -> None:
    bench = c.submitted()
    began = effect_of(bench).clean_since
    assert began == effect_of(bench).sent[0].at
    bench.do(e.Lose(c.KEY, 1, c.FIRST, "no answer", ended=True)).do(c.intend(again=True))
    assert effect_of(bench).clean_since == began, "a resubmission makes nothing younger"
    bench.do(e.Disprove(c.KEY, 2, c.SECOND, "connection refused"))
    assert effect_of(bench).clean_since == began, "nor does the disproof of one of two"
    bench.do(e.Disprove(c.KEY, 1, c.FIRST, "connection refused")).do(c.intend())
    assert effect_of(bench).clean_since == effect_of(bench).sent[2].at > began, "it was clean: now it is young again"


def test_r1_patience_is_for_this_unknown_and_not_for_the_one_before() -> None:
    bench = c.unavailable().do(e.Disprove(c.KEY, 1, c.FIRST, "refused")).do(c.intend())
    bench.do(e.Lose(c.KEY, 2, c.SECOND, "no answer", ended=False))
    effect = effect_of(bench)
    assert (effect.unavailable, effect.unavailable_since) == (0, 0)
    assert effect.lost_at == 1000 * bench.seq


# --- R2 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["fenced", "dead", "unfenced_process", "unfenced_child"])
@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        (e.Confirm(c.KEY, 1, c.FIRST, "msg-1"), e.RETURNED),
        (e.Disprove(c.KEY, 1, c.FIRST, "refused"), e.NOT_DONE),
        (e.Lose(c.KEY, 1, c.FIRST, "ReadTimeout", ended=True), e.RAISED),
    ],
)
def test_r2_a_late_outcome_is_evidence_and_overwrites_nothing(state: str, command: e.EffectCommand, outcome: str) -> None:
    before = effect_of(c.STATES[state]())
    for standing in (e.Standing(), c.GONE):
        decided = e.decide(before, command, standing)
        assert isinstance(decided, e.Decision)
        after = c.apply_all(before, decided.events)
        assert after is not None and after.state is EffectState.AMBIGUOUS and not after.confirmed
        assert [(found.n, found.outcome) for found in after.evidence] == [(1, outcome)]
        assert after.sent[0].open and after.sent[0].ended


def test_r2_a_stale_outcome_is_evidence_even_before_anybody_noticed_the_loss() -> None:
    assert kinds(effect_of(c.unended()), e.Confirm(c.KEY, 1, c.FIRST, "msg-1"), c.GONE) == ["late"]


def test_r2_a_late_outcome_is_written_once() -> None:
    assert kinds(effect_of(c.told_returned()), e.Confirm(c.KEY, 1, c.FIRST, "msg-1"), c.GONE) == []


def test_r2_what_came_late_about_a_confirmed_effect_is_kept_beside_it() -> None:
    bench = c.confirmed_second().do(e.Confirm(c.KEY, 1, c.FIRST, "msg-2"), c.GONE)
    assert effect_of(bench).result == "msg-1"
    assert [found.result for found in effect_of(bench).evidence] == ["msg-2"]


def test_r2_reconciliation_believes_evidence_of_that_submission() -> None:
    happened = c.told_returned().do(e.Credit(c.KEY, 1, c.SECOND))
    assert effect_of(happened).state is EffectState.CONFIRMED and effect_of(happened).result == "msg-1"
    nothing = c.told_not_done().do(e.Credit(c.KEY, 1, c.SECOND))
    assert effect_of(nothing).state is EffectState.NOT_ATTEMPTED


def test_r2_evidence_that_the_first_did_nothing_does_not_clear_the_second() -> None:
    bench = c.unended().do(c.intend(again=True)).do(e.Lose(c.KEY, 2, c.SECOND, "no answer", ended=False))
    bench.do(e.NoteSenderGone(c.KEY, "s1", dead=False)).do(e.Disprove(c.KEY, 1, c.FIRST, "refused"), c.GONE)
    bench.do(e.Credit(c.KEY, 1, c.SECOND))
    assert effect_of(bench).state is EffectState.AMBIGUOUS
    assert [s.open for s in effect_of(bench).sent] == [False, True]


def test_r2_no_not_found_is_believed_against_evidence_that_it_happened() -> None:
    """The evidence landed while the provider was being asked: the verdict is decided again, and finds it."""
    settle = e.Settle(c.KEY, c.SECOND, "not_found", "lookup:find", waited_ms=9, settle_ms=9, seen=1)
    assert kinds(effect_of(c.fenced()), settle) == ["found"]
    assert code(effect_of(c.told_returned()), settle) == "stale_view"


def test_r2_nothing_is_resubmitted_against_evidence_that_it_happened() -> None:
    assert kinds(effect_of(c.fenced()), c.intend(again=True)) == ["intended"]
    assert code(effect_of(c.told_returned()), c.intend(again=True)) == "stale_view"


def test_r2_a_wrong_not_found_is_put_right_by_evidence_before_anything_is_submitted() -> None:
    """A not_found was believed (a person was sure that the process had stopped), and then its sender reported success."""
    effect = effect_of(c.told_after_not_found())
    assert effect.state is EffectState.NOT_ATTEMPTED
    decided = e.decide(effect, c.intend(), e.Standing())
    assert isinstance(decided, e.Decision) and [event.kind for event in decided.events] == ["confirmed"]
    assert decided.recorded is not None and decided.recorded.result == "msg-1" and decided.recorded.confirmed
    after = c.apply_all(effect, decided.events)
    assert after == replace(decided.recorded, version=after.version) if after else False


def test_r2_a_resubmission_of_what_was_settled_meanwhile_is_refused_and_not_answered_from_the_record() -> None:
    """Whoever resubmits calls the provider next: it must get a no, not a record."""
    for state in ("confirmed", "declined", "settled_not_found", "disproved"):
        assert code(effect_of(c.STATES[state]()), c.intend(again=True)) == "stale_view", state


# --- R3 ---------------------------------------------------------------------------------------------------------------

# For each refusal of an intent that the machine can give: what makes it hold. state: which states allow it.
HOLDS: dict[str, tuple[set[str], dict[str, object], dict[str, object]]] = {
    "stale_token": ({"none", "submitted", "confirmed", "disproved"}, {}, {"current": False}),
    "identity_mismatch": ({"none", "submitted", "confirmed", "disproved"}, {"observed": c.AS_BOB}, {}),
    "unknown_outstanding": ({"none", "submitted", "confirmed", "disproved"}, {}, {"unknown": "sml_other"}),
    "in_flight": ({"submitted"}, {}, {}),
    "intent_changed": ({"submitted", "confirmed", "disproved"}, {"material": "m2", "again": False}, {}),
    "already_done": ({"confirmed"}, {"digest": c.OTHER, "again": False}, {"clean": True}),
    "limit_reached": ({"none"}, {"limit": 1}, {"used": 1}),
    "cancelled": ({"none", "submitted", "confirmed", "disproved"}, {"again": False}, {"cancelled": True}),
    "stale_view": ({"none", "confirmed", "disproved"}, {"again": True}, {}),
}


def test_r3_the_names_stand_in_the_order_of_the_design() -> None:
    told = re.search(r"\*\*R3 Refusals\*\*[^:]*precedence: (.*?)\.\n", DESIGN.read_text(), re.DOTALL)
    assert told is not None
    assert re.findall(r"`(\w+)`", told.group(1)) == [code.value for code in Code]


def holds(name: str, state: str, said: dict[str, object], stood: dict[str, object]) -> bool:
    """Whether that refusal holds for an intent with these arguments, from one who stands so, in this state."""
    states, needs, needs_standing = HOLDS[name]
    return state in states and needs.items() <= said.items() and needs_standing.items() <= stood.items()


def test_r3_of_two_refusals_that_hold_the_earlier_is_the_answer() -> None:
    order = [code.value for code in Code]
    together = set()
    for first, second in combinations(sorted(HOLDS, key=order.index), 2):
        (states, said, stood), (more_states, also_said, also_stood) = HOLDS[first], HOLDS[second]
        if any(said[name] != also_said[name] for name in said.keys() & also_said.keys()):
            continue
        said, stood = {**said, **also_said}, {**stood, **also_stood}
        for state in states & more_states:
            first_that_holds = min((name for name in HOLDS if holds(name, state, said, stood)), key=order.index)
            given = code(c.STATES[state]().effect, c.intend(**said), e.Standing(**stood))  # type: ignore[arg-type]
            assert given == first_that_holds, (first, second, state)
            together |= {(first, second)} if given == first else set()
    adjacent = {("stale_token", "identity_mismatch"), ("identity_mismatch", "unknown_outstanding"),
                ("unknown_outstanding", "in_flight"), ("in_flight", "intent_changed"),
                ("intent_changed", "already_done"), ("already_done", "cancelled"), ("limit_reached", "cancelled"),
                ("limit_reached", "stale_view")}  # fmt: skip
    assert adjacent <= together


def test_r3_each_refusal_holds_alone() -> None:
    for name, (states, said, stood) in HOLDS.items():
        state = "disproved" if "disproved" in states and name != "in_flight" else sorted(states)[0]
        assert code(c.STATES[state]().effect, c.intend(**said), e.Standing(**stood)) == name  # type: ignore[arg-type]


def test_r3_an_unknown_effect_is_unknown_before_its_material_is_compared() -> None:
    assert code(effect_of(c.ended()), c.intend(material="m2")) == "unknown_outstanding"


def test_r3_a_verdict_is_refused_in_that_order_too() -> None:
    settle = e.Settle(c.KEY, c.SECOND, "not_found", "lookup:find")
    assert code(effect_of(c.submitted()), settle, c.GONE) == "stale_token"  # and in_flight
    assert code(effect_of(c.submitted()), settle) == "in_flight"  # and settle is not over
    assert code(effect_of(c.told_returned()), settle) == "unknown_outstanding"  # and stale_view: there is evidence
    answer = e.Answer(c.KEY, "not_found", "alice", seen=0)
    assert code(effect_of(c.submitted()), answer) == "in_flight"  # and stale_view: it moved on
    assert code(effect_of(c.unfenced_child()), answer) == "stale_view"  # and unknown_outstanding: looked at what is gone


# --- R4 ---------------------------------------------------------------------------------------------------------------


def settle(waited: int, settle_ms: int = 30_000) -> e.Settle:
    return e.Settle(c.KEY, c.SECOND, "not_found", "lookup:find", waited_ms=waited, settle_ms=settle_ms)


@pytest.mark.parametrize("state", ["ended", "fenced", "dead", "unfenced_process_dead"])
def test_r4_not_found_is_believed_when_the_sender_is_quiet_and_settle_is_over(state: str) -> None:
    effect = effect_of(c.STATES[state]())
    assert effect.quiet
    assert kinds(effect, settle(30_000)) == ["found"]
    assert code(effect, settle(29_999)) == "unknown_outstanding"
    assert code(effect, settle(-1, settle_ms=0)) == "unknown_outstanding"


@pytest.mark.parametrize("state", ["unended", "unfenced_process", "unfenced_child", "unfenced_child_ended", "resubmitted_lost"])
def test_r4_not_found_is_not_believed_while_a_sender_may_act(state: str) -> None:
    effect = effect_of(c.STATES[state]())
    assert not effect.quiet
    assert code(effect, settle(10**9)) == "unknown_outstanding"


def test_r4_one_loud_sender_among_quiet_ones_is_enough() -> None:
    bench = c.resubmitted_lost()
    assert [s.quiet for s in effect_of(bench).open] == [True, False]
    assert code(effect_of(bench), settle(10**9)) == "unknown_outstanding"
    bench.do(e.NoteSenderGone(c.KEY, "s2", dead=False))
    assert kinds(effect_of(bench), settle(30_000)) == ["found"]


def test_r4_a_fence_does_not_quiet_a_process_that_nothing_can_stop_and_its_death_does() -> None:
    assert not effect_of(c.unfenced_process()).quiet
    assert effect_of(c.unfenced_process_dead()).quiet


def test_r4_the_death_of_its_parent_does_not_quiet_a_child() -> None:
    effect = effect_of(c.unfenced_child())
    assert effect.sent[0].dead and effect.sent[0].fenced and not effect.quiet


def test_r4_a_child_of_a_process_that_nothing_fences_is_recorded_as_a_child() -> None:
    """Else the death of that process would be taken for the end of what it started."""
    bench = c.submitted(unfenced="process").do(e.MarkUnfenced(c.KEY, 1, c.FIRST, "child"))
    bench.do(e.Lose(c.KEY, 1, c.FIRST, "no answer", ended=False)).do(e.NoteSenderGone(c.KEY, "s1", dead=True))
    assert not effect_of(bench).quiet
    assert code(effect_of(bench), settle(10**9)) == "unknown_outstanding"
    assert kinds(effect_of(bench), e.MarkUnfenced(c.KEY, 1, c.FIRST, "process")) == [], "and stays one"


def test_r4_the_end_of_its_code_does_not_quiet_a_child() -> None:
    """`communicate(timeout=1)` raises, and what it waited for runs on."""
    effect = effect_of(c.unfenced_child_ended())
    assert effect.sent[0].ended and not effect.quiet


def test_r4_what_is_beyond_proof_needs_a_person_and_nothing_else_does() -> None:
    """Where waiting teaches nothing more, a person is asked; where the sender may still end or be fenced, it is waited for."""
    effects = {name: effect_of(build()) for name, build in c.STATES.items() if name != "none"}
    beyond = {name for name, effect in effects.items() if any(sent.beyond_proof for sent in effect.open)}
    assert beyond == {
        "unfenced_process",
        "unfenced_child",
        "unfenced_child_ended",
        "answered_stopped",
        "aside_stopped",
        "aside_answered",
        "assumed_unfenced",
    }


@pytest.mark.parametrize("state", ["unfenced_process", "unfenced_child", "unfenced_child_ended"])
def test_r4_a_person_must_say_that_an_unfenced_process_has_stopped(state: str) -> None:
    bench = c.STATES[state]()
    effect = effect_of(bench)
    assert code(effect, e.Answer(c.KEY, "not_found", "alice", effect.version)) == "unknown_outstanding"
    bench.do(e.Answer(c.KEY, "not_found", "alice", effect.version, stopped=True))
    assert effect_of(bench).state is EffectState.AMBIGUOUS, "and even then settle is watched first"
    note = e.NoteWatched(c.KEY, 1, waited_ms=299_999, settle_ms=300_000)
    assert code(effect_of(bench), note) == "unknown_outstanding"
    bench.do(replace(note, waited_ms=300_000)).do(e.Answer(c.KEY, "not_found", "alice", effect.version + 2))
    assert kinds(effect_of(bench), BELIEVED) == ["found"]


def test_r4_a_persons_not_found_waits_for_the_sender_as_well() -> None:
    effect = effect_of(c.answered_unquiet())
    assert code(effect, e.Settle(c.KEY, c.SECOND, "not_found", e.PERSON, waited_ms=10**9)) == "unknown_outstanding"


def test_r4_nobody_speaks_for_a_person() -> None:
    assert code(effect_of(c.ended()), e.Settle(c.KEY, c.SECOND, "not_found", e.PERSON, waited_ms=10**9)) == "stale_view"


def test_r4_the_word_of_a_person_ends_with_the_next_submission() -> None:
    """What they said of the senders they knew says nothing of one that came later."""
    bench = c.answered_stopped().do(c.intend(again=True)).do(e.Lose(c.KEY, 2, c.SECOND, "?", ended=False))
    assert effect_of(bench).answered is None
    assert code(effect_of(bench), settle(10**9)) == "unknown_outstanding"


def test_r4_a_not_found_says_nothing_of_a_submission_made_after_it_was_asked_for() -> None:
    """Two tasks look for one key of a dead owner; one of them is slow, and the other has submitted it again and lost it."""
    bench = c.resubmitted().do(e.Lose(c.KEY, 2, c.SECOND, "ReadTimeout", ended=True))
    assert effect_of(bench).quiet
    assert code(effect_of(bench), replace(settle(30_000), seen=1)) == "stale_view"
    assert kinds(effect_of(bench), replace(settle(30_000), seen=2)) == ["found"]


def test_r4_a_conflict_is_for_a_person_whatever_a_lookup_says_next() -> None:
    assert code(effect_of(c.conflict()), settle(30_000)) == "stale_view"
    assert code(effect_of(c.conflict()), c.intend(again=True)) == "stale_view"
    assert kinds(effect_of(c.conflict_answered()), settle(30_000)) == ["found"]


def test_r4_the_last_word_of_a_person_counts() -> None:
    """not_found, and then, before settle was over, conflict: the first is not believed any more."""
    effect = effect_of(c.answered_conflict())
    assert effect.answered is None and effect.conflict == "it is in the outbox"
    assert code(effect, e.Settle(c.KEY, c.SECOND, "not_found", e.PERSON, waited_ms=10**9)) == "stale_view"


def test_r4_confirmed_needs_no_waiting() -> None:
    for state in ("unended", "unfenced_child", "resubmitted_lost", "conflict"):
        found = e.Settle(c.KEY, c.SECOND, "confirmed", "lookup:find", "msg-1")
        bench = c.STATES[state]().do(found)
        assert effect_of(bench).state is EffectState.CONFIRMED and not effect_of(bench).open, state


WATCHED = e.NoteWatched(c.KEY, 1, waited_ms=300, settle_ms=300)
BELIEVED = e.Settle(c.KEY, c.SECOND, "not_found", e.PERSON, settled=1)


def test_r4_a_persons_not_found_counts_only_if_it_stands_after_the_end_of_settle() -> None:
    """The request may act after their look, and before settle is over."""
    for early in ("answered", "answered_stopped", "conflict_answered"):
        assert code(effect_of(c.STATES[early]()), replace(BELIEVED, waited_ms=10**9)) == "unknown_outstanding", early
    assert kinds(effect_of(c.watched_answered()), BELIEVED) == ["found"]


def test_r4_an_answer_to_what_was_seen_before_the_end_of_settle_is_refused() -> None:
    """They looked, and were slow to answer."""
    effect, seen = effect_of(c.watched()), effect_of(c.ended()).version
    assert code(effect, e.Answer(c.KEY, "not_found", "alice", seen)) == "stale_view"
    assert kinds(effect, e.Answer(c.KEY, "not_found", "alice", effect.version)) == ["answered"]


def test_r4_settle_is_over_when_it_has_been_watched_and_no_sender_can_act() -> None:
    for state in ("ended", "answered", "answered_stopped"):
        assert kinds(effect_of(c.STATES[state]()), WATCHED) == ["watched"], state
    assert code(effect_of(c.ended()), replace(WATCHED, waited_ms=299)) == "unknown_outstanding"
    for state in ("unended", "answered_unquiet", "unfenced_child"):
        assert code(effect_of(c.STATES[state]()), WATCHED) == "unknown_outstanding", state
    assert code(effect_of(c.watched()), WATCHED) == code(effect_of(c.said_not_found()), WATCHED) == "stale_view"
    resubmitted = c.resubmitted().do(e.Lose(c.KEY, 2, c.SECOND, "ReadTimeout", ended=True))
    assert code(effect_of(resubmitted), WATCHED) == "stale_view", "it was watched of the first alone"


def test_r4_after_an_early_answer_was_put_aside_the_next_counts_at_once() -> None:
    bench = c.aside_stopped()
    assert effect_of(bench).answered is None and effect_of(bench).settled == 1 and effect_of(bench).watched
    assert code(effect_of(bench), BELIEVED) == "stale_view", "nobody has answered since"
    again = effect_of(c.aside_answered())  # who need not say again that its process has stopped
    assert not again.quiet and kinds(again, BELIEVED) == ["found"]


def test_r4_a_lookup_is_believed_at_once_only_if_it_was_asked_after_that() -> None:
    """Another task looks for the same key, and its lookup is slow: it says what was so before settle was over."""
    effect = effect_of(c.watched())
    assert kinds(effect, replace(settle(-1), settled=1)) == ["found"]
    assert code(effect, settle(-1)) == "unknown_outstanding"


def test_r4_what_was_watched_says_nothing_of_a_later_submission() -> None:
    bench = c.aside_resubmitted()
    assert not effect_of(bench).watched
    assert code(effect_of(bench), replace(settle(-1), settled=1)) == "unknown_outstanding"
    bench.do(e.Answer(c.KEY, "not_found", "alice", effect_of(bench).version))
    assert code(effect_of(bench), BELIEVED) == "unknown_outstanding"


def test_r4_whoever_takes_their_word_back_takes_what_was_watched_on_it_along() -> None:
    bench = c.aside_stopped()
    bench.do(c.reverse(bench))
    assert effect_of(bench).settled == 0 and not effect_of(bench).watched
    assert code(effect_of(bench), e.Answer(c.KEY, "not_found", "alice", effect_of(bench).version)) == "unknown_outstanding"


# --- R10, R21 ---------------------------------------------------------------------------------------------------------


def test_r10_a_result_that_cannot_be_recorded_leaves_it_confirmed() -> None:
    effect = effect_of(c.confirmed_unrecorded())
    assert effect.state is EffectState.CONFIRMED and effect.unrecorded == "2 MiB" and effect.result is None
    assert code(effect, c.intend(again=True)) == "stale_view"


@pytest.mark.parametrize("verdict", ["confirmed", "not_found", "conflict"])
@pytest.mark.parametrize("state", [name for name, build in c.STATES.items() if name != "none" and build().effect])
def test_r21_a_decision_on_what_has_moved_on_is_a_stale_view(verdict: str, state: str) -> None:
    effect = effect_of(c.STATES[state]())
    for seen in (effect.version - 1, effect.version + 1):
        refused = code(effect, e.Answer(c.KEY, verdict, "alice", seen, stopped=True))
        assert refused == ("in_flight" if effect.state is EffectState.SUBMITTED else "stale_view")


def test_r21_every_event_of_the_effect_moves_its_version() -> None:
    effect = effect_of(c.submitted())
    events: list[j.OfEffect] = [
        j.Lost(c.KEY, 1, "no answer"), j.Late(c.KEY, 1, e.RAISED), j.Unfenced(c.KEY, 1, "child"), j.SenderGone(c.KEY, 1),
        j.Found(c.KEY, "unavailable", "lookup:find"), j.Answered(c.KEY), j.Drifted(c.KEY, {}, "d", 1),
        j.Declined(c.KEY, "denied", "mail"), j.Disproved(c.KEY, 1, "no"), j.Confirmed(c.KEY, 1),
    ]  # fmt: skip
    for event in events:
        after = c.apply_all(effect, (event,))
        assert after is not None and after.version == effect.version + 1, event.kind


def test_r20_what_nothing_could_stop_needs_a_persons_word_in_another_epoch_too() -> None:
    """The store may have forgotten a submission of a process without the kernel timer: no waiting teaches that it has stopped."""
    assumed, worse = (
        effect_of(c.Bench().do(c.intend(token=c.IN_EPOCH, doubt=replace(c.DOUBT, unfenced=unfenced))))
        for unfenced in (False, True)
    )
    assert assumed.quiet and not assumed.open[0].beyond_proof
    assert not worse.quiet and worse.open[0].beyond_proof

"""The ladder: evidence first, then each rung while it may be used and has patience, and a person at the end."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import effect_cells as c
import pytest

from semel.machine import effects as e
from semel.machine import recovery as r
from semel.model import EffectState, Refusal

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
RESEND = r.Rung("resend", DAY)
ALWAYS = r.Rung("resend", None)
LOOKUP = r.Rung("lookup", settle_ms=30_000)
REPEAT = r.Rung("repeat")
ASK = r.Rung("ask", settle_ms=300_000)


def facts(now: int = 5_000, *, highest: int | None = None, waited: int = -1) -> r.Facts:
    return r.Facts(now, now if highest is None else highest, waited)


def effect(state: str) -> e.Effect:
    made = c.STATES[state]().effect
    assert made is not None
    return made


def effect_of(bench: c.Bench) -> e.Effect:
    assert bench.effect is not None
    return bench.effect


def sent_at(*times: int, lost: bool = True) -> e.Effect:
    """An effect submitted at these times, every submission lost, the first unknown since the second after it."""
    first = effect("ended")
    subs = tuple(replace(first.sent[0], n=n + 1, at=at, lost=lost) for n, at in enumerate(times))
    return replace(first, sent=subs, clean_since=times[0], lost_at=times[0] + 1000)


# --- each ladder ------------------------------------------------------------------------------------------------------


def test_a_keyed_effect_is_sent_again_at_once() -> None:
    assert r.next_move(effect("ended"), (RESEND, ASK), facts(1_000)) == r.Again(0, DAY - MINUTE)


def test_a_conditional_write_is_sent_again_with_no_limit_of_age() -> None:
    assert r.next_move(effect("ended"), (ALWAYS, ASK), facts(400 * DAY)) == r.Again(0, None)


def test_a_harmless_effect_is_run_again() -> None:
    assert r.next_move(effect("ended"), (REPEAT, ASK), facts()) == r.Again(0, None)


def test_a_looked_up_effect_is_looked_up_whether_its_sender_is_quiet_or_not() -> None:
    for waited in (-1, 0, 10**9):
        assert r.next_move(effect("unended"), (LOOKUP, ASK), facts(waited=waited)) == r.Look(0)


def test_an_opaque_effect_is_for_a_person() -> None:
    assert isinstance(r.next_move(effect("ended"), (ASK,), facts()), r.Person)
    assert isinstance(r.next_move(effect("ended"), (), facts()), r.Person)


def test_the_order_of_the_list_is_the_ladder() -> None:
    assert isinstance(r.next_move(effect("ended"), (RESEND, LOOKUP, ASK), facts()), r.Again)
    assert r.next_move(effect("ended"), (LOOKUP, RESEND, ASK), facts()) == r.Look(0)


def test_nothing_is_tried_behind_the_back_of_a_person_who_comes_first() -> None:
    for rung in (REPEAT, ALWAYS, RESEND, LOOKUP):
        assert isinstance(r.next_move(effect("ended"), (ASK, rung), facts()), r.Person), rung


@pytest.mark.parametrize("ladder", [p for n in range(4) for p in permutations((RESEND, ALWAYS, LOOKUP, REPEAT), n)], ids=str)
def test_every_ladder_ends_in_a_person_and_tries_every_rung_before(ladder: tuple[r.Rung, ...]) -> None:
    """Whatever fails for ever: resubmissions are lost again, lookups are unavailable, and time goes by."""
    bench, moves = c.ended(), list[r.Move]()
    bench.now = 10_000
    while not isinstance(move := r.next_move(effect_of(bench), (*ladder, ASK), facts(bench.now)), r.Person):
        moves.append(move)
        assert len(moves) < 2000
        bench.now += 5 * MINUTE
        if isinstance(move, r.Again):
            bench.do(c.intend(again=True))
            bench.do(e.Lose(c.KEY, *c.last(bench.effect), "503", ended=True))
        else:
            assert isinstance(move, r.Look)
            bench.do(e.Settle(c.KEY, c.SECOND, "unavailable", "lookup:find", reason="503"))
    assert effect_of(bench).state is EffectState.AMBIGUOUS
    looked = {move.index for move in moves if isinstance(move, r.Look)}
    assert looked == {n for n, rung in enumerate(ladder) if rung.kind == "lookup"}
    sending = [rung for rung in ladder if rung.kind != "lookup"]
    assert any(isinstance(move, r.Again) for move in moves) == bool(sending)


# --- evidence, people -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rungs", [(RESEND, ASK), (LOOKUP, ASK), (REPEAT, ASK), (ASK,)], ids=str)
def test_evidence_is_read_before_any_rung_and_before_a_persons_word(rungs: tuple[r.Rung, ...]) -> None:
    for state in ("told_returned", "told_not_done"):
        told = effect(state)
        assert r.next_move(told, rungs, facts()) == r.Credit(1), state
        with_word = c.STATES[state]().do(e.Answer(c.KEY, "not_found", "alice", told.version)).effect
        assert with_word is not None and r.next_move(with_word, rungs, facts(waited=10**9)) == r.Credit(1)


def test_evidence_that_it_happened_is_read_also_if_what_it_speaks_of_was_closed() -> None:
    """A not_found closed the first submission, a second is unknown now, and then the first one's sender reported success."""
    bench = c.settled_not_found().do(c.intend()).do(e.Lose(c.KEY, 2, c.SECOND, "?", ended=True))
    told = replace(bench.effect, evidence=(e.Evidence(1, e.RETURNED, "msg-1", "", 9),))  # type: ignore[type-var]
    move = r.next_move(told, (RESEND, ASK), facts())
    assert move == r.Credit(1)
    decided = e.decide(told, e.Credit(c.KEY, 1, c.SECOND), e.Standing())
    assert not isinstance(decided, Refusal) and [event.kind for event in decided.events] == ["confirmed"]


def test_a_code_that_only_raised_is_no_evidence() -> None:
    bench = c.fenced().do(e.Lose(c.KEY, 1, c.FIRST, "ReadTimeout", ended=True), c.GONE)
    assert bench.effect is not None and len(bench.effect.evidence) == 1
    assert r.next_move(bench.effect, (LOOKUP, ASK), facts()) == r.Look(0)


def test_every_credit_that_the_ladder_asks_for_is_accepted() -> None:
    for name, build in c.STATES.items():
        found = build().effect
        if found is not None and found.state is EffectState.AMBIGUOUS:
            move = r.next_move(found, (LOOKUP, ASK), facts(waited=10**9))
            if isinstance(move, r.Credit):
                decided = e.decide(found, e.Credit(c.KEY, move.n, c.SECOND), e.Standing())
                assert not isinstance(decided, Refusal), name


def test_a_persons_not_found_is_believed_if_settle_was_over_on_record_when_they_looked() -> None:
    answered = effect("answered")
    assert r.next_move(answered, (LOOKUP, ASK), facts(waited=0)) == r.Wait(300_000, _any_why(answered, 0))
    assert r.next_move(answered, (LOOKUP, ASK), facts(waited=299_999)) == r.Wait(1, _any_why(answered, 299_999))
    assert r.next_move(answered, (LOOKUP, ASK), facts(waited=300_000)) == r.Note(300_000), "it came before: it is put aside"
    assert r.next_move(effect("watched_answered"), (LOOKUP, ASK), facts()) == r.Believe(300_000)


def test_the_end_of_settle_is_on_record_before_a_person_is_asked() -> None:
    for state, rungs in (("ended", (ASK,)), ("conflict", (LOOKUP, ASK)), ("resubmitted_barred", (RESEND, ASK))):
        assert isinstance(r.next_move(effect(state), rungs, facts(waited=299_999)), r.Person), state
        assert r.next_move(effect(state), rungs, facts(waited=300_000)) == r.Note(300_000), state
    assert isinstance(r.next_move(effect("watched"), (ASK,), facts(waited=300_000)), r.Person), "once is enough"
    assert isinstance(r.next_move(effect("unended"), (r.Rung("ask"),), facts()), r.Person), "a sender may act: nothing is over"


def test_after_an_early_answer_lookups_are_asked_again_and_then_a_person() -> None:
    for state in ("aside", "aside_stopped"):
        assert r.next_move(effect(state), (LOOKUP, ASK), facts()) == r.Look(0)
        assert r.settle_after(effect(state), LOOKUP, facts()) == 0, "it is on record that settle is over"
        assert r.next_move(effect(state), (ASK,), facts()) == r.Person(r.LOOK_AGAIN)
    assert r.next_move(effect("aside_answered"), (LOOKUP, ASK), facts()) == r.Believe(300_000)
    assert r.settle_after(effect("aside_resubmitted"), LOOKUP, facts()) == -1


def test_a_person_is_believed_no_sooner_than_any_lookup() -> None:
    """Whatever may still act for as long as a lookup says may act after a person's look too."""
    slow, answered = r.Rung("lookup", settle_ms=900_000), effect("answered")
    for rungs in ((slow, ASK), (LOOKUP, slow), (slow,)):
        assert r.next_move(answered, rungs, facts(waited=300_000)) == r.Wait(600_000, _any_why(answered, 0))
        assert r.next_move(answered, rungs, facts(waited=900_000)) == r.Note(900_000)


def _any_why(answered: e.Effect, waited: int) -> str:
    move = r.next_move(answered, (LOOKUP, ASK), facts(waited=waited))
    assert isinstance(move, r.Wait) and "settle" in move.why
    return move.why


def test_a_persons_not_found_waits_for_a_sender_that_may_still_act() -> None:
    move = r.next_move(effect("answered_unquiet"), (LOOKUP, ASK), facts(waited=-1))
    assert isinstance(move, r.Wait) and move.ms == r.POLL_MS


def test_a_persons_not_found_on_what_nothing_can_quiet_goes_back_to_the_person() -> None:
    """Its child was recorded after they had answered. To wait would be to wait for ever."""
    bench = c.answered_unquiet().do(e.MarkUnfenced(c.KEY, 1, c.FIRST, "child")).do(e.NoteSenderGone(c.KEY, "s1", dead=True))
    assert bench.effect is not None
    move = r.next_move(bench.effect, (LOOKUP, ASK), facts(waited=-1))
    assert isinstance(move, r.Person) and "--process-stopped" in move.why


def test_a_definite_no_to_a_resubmission_ends_the_resubmitting() -> None:
    """The provider refuses to do it again, and the first try is as unknown as ever: looked for if it can be, else a person."""
    barred = effect("resubmitted_barred")
    for rungs in ((RESEND, ASK), (ALWAYS, ASK), (REPEAT, ASK)):
        assert isinstance(r.next_move(barred, rungs, facts()), r.Person), rungs
    assert r.next_move(barred, (RESEND, LOOKUP, ASK), facts()) == r.Look(1)


def test_a_conflict_is_for_a_person_whatever_the_ladder() -> None:
    for rungs in ((RESEND, ASK), (LOOKUP, ASK), (REPEAT, ASK)):
        move = r.next_move(effect("conflict"), rungs, facts())
        assert isinstance(move, r.Person) and "a mail that is not ours" in move.why
        assert isinstance(r.next_move(effect("answered_conflict"), rungs, facts()), r.Person)


def test_a_person_who_answers_a_conflict_is_believed() -> None:
    watched = c.conflict().do(e.NoteWatched(c.KEY, 1, waited_ms=9, settle_ms=9))
    watched.do(e.Answer(c.KEY, "not_found", "alice", watched.seq))
    assert r.next_move(effect_of(watched), (LOOKUP, ASK), facts()) == r.Believe(300_000)


@pytest.mark.parametrize(("waited", "left"), [(-1, -1), (0, 30_000), (29_999, 1), (30_000, 0), (10**9, 0)])
def test_settle_counts_from_when_this_process_learnt(waited: int, left: int) -> None:
    assert r.settle_after(effect("ended"), LOOKUP, facts(waited=waited)) == left


# --- R13, retention ---------------------------------------------------------------------------------------------------


def test_r13_the_age_is_the_greater_of_the_two_clocks() -> None:
    sent = sent_at(0)
    assert r.next_move(sent, (RESEND, ASK), facts(HOUR)) == r.Again(0, DAY - MINUTE - HOUR)
    assert r.next_move(sent, (RESEND, ASK), facts(HOUR, highest=HOUR + 50_000)) == r.Again(0, DAY - MINUTE - HOUR - 50_000)
    assert r.next_move(sent, (RESEND, ASK), facts(HOUR, highest=0)) == r.Again(0, DAY - MINUTE - HOUR)


def test_r13_clocks_that_disagree_by_more_than_the_margin_are_the_next_rung() -> None:
    sent = sent_at(DAY)
    at_most = facts(DAY, highest=DAY + MINUTE)
    assert isinstance(r.next_move(sent, (RESEND, ASK), at_most), r.Again)
    assert isinstance(r.next_move(sent, (RESEND, ASK), replace(at_most, highest_ms=DAY + MINUTE + 1)), r.Person)
    assert r.next_move(sent, (RESEND, LOOKUP, ASK), facts(DAY, highest=2 * DAY)) == r.Look(1)


def test_r13_an_effect_from_the_future_was_dated_by_a_clock_that_disagrees() -> None:
    assert isinstance(r.next_move(sent_at(DAY), (RESEND, ASK), facts(DAY - MINUTE)), r.Again)
    assert isinstance(r.next_move(sent_at(DAY), (RESEND, ASK), facts(DAY - MINUTE - 1)), r.Person)


def test_r13_the_deadline_of_a_resend_lies_inside_the_retention_less_a_margin() -> None:
    sent = sent_at(0)
    for now in range(0, DAY, 17 * MINUTE):
        move = r.next_move(sent, (RESEND, ASK), facts(now))
        if isinstance(move, r.Again):
            assert move.cap_ms is not None and 0 < move.cap_ms <= DAY - r.margin_ms(DAY) - now
    assert isinstance(r.next_move(sent, (RESEND, ASK), facts(DAY - MINUTE - 1)), r.Again)
    assert isinstance(r.next_move(sent, (RESEND, ASK), facts(DAY - MINUTE)), r.Person)
    assert r.next_move(sent, (RESEND, LOOKUP, ASK), facts(DAY)) == r.Look(1)


def test_r13_what_stands_still_after_it_was_called_cannot_act_beyond_the_retention() -> None:
    """A resend that is called at the last moment may outlive its time, until its session's beats stop and the timer kills it."""
    sent, leases = sent_at(0), 2 * MINUTE
    for now in (0, HOUR, DAY - 10 * MINUTE, DAY - MINUTE - leases - 1):
        move = r.next_move(sent, (RESEND, ASK), r.Facts(now, now, -1, leases))
        assert isinstance(move, r.Again) and move.cap_ms is not None
        assert now + move.cap_ms + leases == DAY - MINUTE
    last = DAY - MINUTE - leases
    assert isinstance(r.next_move(sent, (RESEND, ASK), r.Facts(last, last, -1, leases)), r.Person)
    short = r.Rung("resend", leases)
    assert isinstance(r.next_move(sent, (short, ASK), r.Facts(0, 0, -1, leases)), r.Person), "nothing can be sent inside that"


def test_r13_no_resend_beside_a_try_that_could_act_when_the_provider_has_forgotten_it() -> None:
    """It runs on, beyond its timeout, for two leases at most; a short retention is over by then. Once it is quiet: sent."""
    sent, short = sent_at(0), r.Rung("resend", 5 * MINUTE)
    running = replace(sent, sent=(replace(sent.sent[0], ended=False, fenced=False),))
    quiet = replace(sent, sent=(replace(sent.sent[0], ended=True),))
    assert not running.quiet and quiet.quiet
    fits, long = r.Facts(1000, 1000, -1, 2 * MINUTE, MINUTE), r.Facts(1000, 1000, -1, 2 * MINUTE, 10 * MINUTE)
    assert isinstance(r.next_move(running, (short, ASK), fits), r.Again)
    assert isinstance(r.next_move(running, (short, ASK), long), r.Person)
    assert isinstance(r.next_move(quiet, (short, ASK), long), r.Again)


def test_r13_the_wait_before_a_resend_is_part_of_its_age() -> None:
    """Else the wait would carry it past the retention, and the provider would not know the key any more."""
    short = r.Rung("resend", 20_000)
    for tries in range(1, 9):
        sent = sent_at(*range(0, 100 * tries, 100))
        for now in range(0, 20_000, 150):
            move = r.next_move(sent, (short, ASK), facts(now))
            if isinstance(move, r.Again):
                assert move.cap_ms is not None
                assert now + move.wait_ms + move.cap_ms <= 20_000 - r.margin_ms(20_000)


def test_r13_the_margin_is_a_minute_or_a_tenth() -> None:
    assert [r.margin_ms(ms) for ms in (DAY, 600_000, 60_000, 5_000, 9)] == [60_000, 60_000, 6_000, 500, 0]


def test_r13_the_age_is_that_of_the_first_submission_since_it_was_clean() -> None:
    sent = sent_at(0, HOUR // 2)
    move = r.next_move(sent, (RESEND, ASK), facts(HOUR // 2))
    assert isinstance(move, r.Again) and move.cap_ms == DAY - MINUTE - HOUR // 2 - move.wait_ms


# --- patience ---------------------------------------------------------------------------------------------------------


def test_patience_of_a_resend_counts_from_its_first_try_and_not_from_the_loss() -> None:
    """The machine was off for three hours: what nobody tried has tried nobody's patience."""
    assert isinstance(r.next_move(sent_at(0), (RESEND, ASK), facts(3 * HOUR)), r.Again)
    tried = sent_at(0, 3 * HOUR)
    assert isinstance(r.next_move(tried, (RESEND, ASK), facts(4 * HOUR - 1)), r.Again)
    assert isinstance(r.next_move(tried, (RESEND, ASK), facts(4 * HOUR)), r.Person)


def test_patience_of_a_lookup_counts_from_its_first_unavailable() -> None:
    first = effect("unavailable")
    since = first.unavailable_since
    assert since and first.unavailable == 1
    assert r.next_move(first, (LOOKUP, ASK), facts(since + HOUR - 1)) == r.Look(0)
    assert isinstance(r.next_move(first, (LOOKUP, ASK), facts(since + HOUR)), r.Person)


def test_a_lookup_out_of_patience_gives_way_to_the_next_rung() -> None:
    waited = replace(effect("unavailable"), unavailable_since=1)
    second = r.Rung("lookup", settle_ms=1)
    assert r.next_move(waited, (LOOKUP, second, ASK), facts(1 + HOUR)) == r.Look(1)
    assert isinstance(r.next_move(waited, (LOOKUP, second, ASK), facts(1 + 2 * HOUR)), r.Person)
    assert isinstance(r.next_move(waited, (LOOKUP, RESEND, ASK), facts(1 + HOUR)), r.Again)


def test_the_wait_doubles_with_every_resubmission_up_to_half_a_minute() -> None:
    waits = []
    for tries in range(1, 14):
        move = r.next_move(sent_at(*range(tries)), (ALWAYS, ASK), facts(MINUTE))
        assert isinstance(move, r.Again)
        waits.append(move.wait_ms)
    assert waits[:4] == [0, 100, 200, 400] and waits[-1] == 30_000
    assert waits == sorted(waits)


def test_a_resubmission_that_was_refused_counts_as_one() -> None:
    """A provider that is down refuses the connection: that disproves each resubmission, and would be a hot loop."""
    bench = c.ended()
    waits = []
    for n in range(2, 6):
        bench.do(c.intend(again=True)).do(e.Disprove(c.KEY, n, c.SECOND, "connection refused"))
        move = r.next_move(bench.effect, (ALWAYS, ASK), facts())  # type: ignore[arg-type]
        assert isinstance(move, r.Again)
        waits.append(move.wait_ms)
    assert waits == [100, 200, 400, 800]


def test_the_names_of_rungs_are_what_the_journal_holds() -> None:
    assert [str(rung) for rung in (RESEND, ALWAYS, LOOKUP, ASK, REPEAT)] == [
        "resend:86400000", "resend:always", "lookup:30000", "ask:300000", "repeat",
    ]  # fmt: skip


# --- Atomic: the journal says what happened ---------------------------------------------------------------------------


def test_an_atomic_submission_is_ruled_out_at_once_whoever_sent_it() -> None:
    """No settle, no quiet sender: what takes its confirm's place in the journal is all the proof there is to have."""
    lost = c.atomic_lost().effect
    assert lost is not None and not lost.quiet
    assert r.next_move(lost, (r.Rung("atomic"), r.Rung("ask", settle_ms=300_000)), facts(waited=-1)) == r.RuleOut(1)


def test_what_the_code_declares_by_now_does_not_make_an_atomic_submission_of_another() -> None:
    """By what was recorded with the intent: a call over HTTP leaves nothing in the journal that could be missing."""
    declared = (r.Rung("atomic"), r.Rung("ask", settle_ms=300_000))
    sent = c.unended().effect
    assert sent is not None and sent.recovery[0].startswith("lookup")
    assert isinstance(r.next_move(sent, declared, facts()), r.Person)
    atomic = c.atomic_lost().effect
    assert atomic is not None
    assert r.next_move(atomic, (r.Rung("resend", None),), facts()) == r.RuleOut(1), "and the other way round"


def test_an_atomic_submission_whose_function_ended_its_transaction_is_a_persons() -> None:
    strange = c.atomic_conflict().effect
    assert strange is not None
    assert isinstance(r.next_move(strange, (r.Rung("atomic"),), facts()), r.Person)
    assert isinstance(e.decide(strange, e.Void(c.KEY, 1, c.SECOND), e.Standing()), Refusal)

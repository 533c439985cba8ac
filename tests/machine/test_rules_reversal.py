"""R21: a person's verdict is taken back by a new entry, and what it had settled is unknown again. Each rule by itself."""

from __future__ import annotations

import effect_cells as c
import task_cells as tc
from shared_cells import OTHER, said_confirmed_other
from task_cells import K1, NOW, SHARED

from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import tasks as t
from semel.model import Code, Delivery, EffectState, Execution, Refusal


def decide(bench: c.Bench, command: e.EffectCommand | None = None) -> e.Decision | Refusal:
    return e.decide(bench.effect, command or c.reverse(bench), e.Standing())


def refused(bench: c.Bench, code: Code, words: str) -> None:
    decided = decide(bench)
    assert isinstance(decided, Refusal) and decided.code == code and words in decided.message, decided


def test_a_correction_names_the_row_that_it_reverses_and_reopens_what_that_had_closed() -> None:
    said = c.said_confirmed()
    decided = decide(said)
    assert not isinstance(decided, Refusal) and said.effect is not None
    (event,) = decided.events
    assert event == j.Reversed(c.KEY, "bob", said.effect.version, "confirmed", "another receipt", (1,))
    back = c.taken_back().effect
    assert back is not None and back.state is EffectState.AMBIGUOUS and back.result is None
    assert (back.lost_at, back.clean_since) == (said.effect.lost_at, said.effect.clean_since)


def test_a_not_found_that_was_believed_is_taken_back_with_the_row_in_which_a_person_said_it() -> None:
    answered = c.watched_answered().effect
    decided = decide(c.said_not_found())
    assert not isinstance(decided, Refusal) and answered is not None
    (event,) = decided.events
    assert isinstance(event, j.Reversed) and (event.seq, event.verdict, event.reopens) == (answered.version, "not_found", (1,))
    back = c.taken_back_not_found().effect
    assert back is not None and back.state is EffectState.AMBIGUOUS and back.lost_at == answered.lost_at != 0


def test_a_not_found_that_is_not_believed_yet_is_taken_back_and_never_believed() -> None:
    back = c.answered().do(c.reverse(c.answered()))
    assert back.effect is not None and back.effect.answered is None and back.effect.state is EffectState.AMBIGUOUS
    believed = e.Settle(c.KEY, c.SECOND, "not_found", e.PERSON, waited_ms=9, settle_ms=9)
    assert isinstance(decide(back, believed), Refusal)


def test_what_was_in_conflict_before_is_so_again() -> None:
    back = c.taken_back_in_conflict()
    assert back.effect is not None and back.effect.conflict == "a mail that is not ours"
    looked = e.Settle(c.KEY, c.SECOND, "not_found", "lookup:find", waited_ms=9, settle_ms=9)
    assert isinstance(decide(back, looked), Refusal)


def test_what_was_sent_again_since_cannot_be_taken_back() -> None:
    for bench in (c.said_not_found_sent(), c.said_not_found_sent_disproved()):
        refused(bench, Code.STALE_VIEW, "was sent again since it was said not to have happened (submission 2)")


def test_what_a_provider_or_a_sender_said_is_no_persons_to_take_back() -> None:
    for bench in (c.confirmed(), c.confirmed_second()):
        refused(bench, Code.STALE_VIEW, "only a person's verdict can be taken back; undo it by its opposite, as a new effect")
    looked = c.answered().do(e.Settle(c.KEY, c.SECOND, "confirmed", "lookup:find", "msg-1"))
    refused(looked, Code.STALE_VIEW, "no person said that mail happened")
    refused(c.settled_not_found(), Code.STALE_VIEW, "there is nothing to take back")
    refused(c.said_confirmed_told(), Code.STALE_VIEW, "has reported since that it happened")


def test_a_verdict_is_taken_back_once_and_a_new_one_may_be_taken_back_again() -> None:
    back = c.taken_back()
    refused(back, Code.STALE_VIEW, "there is nothing to take back (it is ambiguous)")
    assert back.effect is not None
    again = back.do(e.Answer(c.KEY, "confirmed", "ann", back.effect.version, "msg-2"))
    assert not isinstance(decide(again), Refusal)


def test_who_has_not_seen_the_last_row_takes_nothing_back() -> None:
    said = c.said_confirmed()
    assert said.effect is not None
    decided = decide(said, e.Reverse(c.KEY, "bob", said.effect.version - 1, 100))
    assert isinstance(decided, Refusal) and "moved on since you looked" in decided.message


def test_what_was_taken_back_is_not_sent_again_until_it_is_not_found() -> None:
    decided = decide(c.taken_back(), c.intend())
    assert isinstance(decided, Refusal) and decided.code == Code.UNKNOWN_OUTSTANDING


def settled_by_a_person() -> tc.TaskBench:
    bench = tc.blocked_unknown()
    return bench.do(e.Answer(K1, "confirmed", "alice", bench.task.effects[K1].version))


def taken_back(bench: tc.TaskBench) -> t.Task:
    return bench.do(e.Reverse(K1, "bob", bench.task.effects[K1].version, NOW)).task


def test_a_task_that_has_not_ended_looks_into_it_at_once_whatever_it_waits_for() -> None:
    asleep = settled_by_a_person().do(tc.claim())
    asleep.do(t.Wait(asleep.token, tc.NAP, "", NOW + tc.HOUR, NOW))
    waiting = settled_by_a_person().do(tc.claim())
    waiting.do(t.Wait(waiting.token, tc.PAID, "paid", 0, NOW))
    for bench in (asleep, waiting):
        task = taken_back(bench)
        assert (task.delivery, task.due, task.waiting, set(task.unknown)) == (Delivery.QUEUED, NOW, "", {K1})
        assert task.execution is Execution.UNKNOWN


def test_an_attempt_that_runs_starts_nothing_more_and_does_not_finish() -> None:
    bench = settled_by_a_person().do(tc.claim())
    task = taken_back(bench)
    assert task.delivery is Delivery.LEASED
    for command in (bench.intend(tc.K2), t.Finish(bench.token, "sent")):
        decided = t.decide(task, command)
        assert isinstance(decided, Refusal) and decided.code == Code.UNKNOWN_OUTSTANDING


def test_a_task_that_has_ended_stays_ended_and_may_be_settled_anew() -> None:
    bench = tc.acknowledged_taken_back()
    assert (bench.task.delivery, bench.task.execution) == (Delivery.ACKNOWLEDGED, Execution.SUCCEEDED)
    bench.do(e.Answer(K1, "confirmed", "ann", bench.task.effects[K1].version))
    assert not bench.task.unknown and bench.task.delivery is Delivery.ACKNOWLEDGED


def test_a_tenants_key_is_taken_back_in_its_own_stream() -> None:
    bench = said_confirmed_other()
    bench.do(OTHER, e.Reverse(SHARED, "bob", bench.key.version, NOW))
    assert bench.key.effect is not None and bench.key.effect.state is EffectState.AMBIGUOUS


def test_what_people_have_decided_about_since_cannot_be_taken_back() -> None:
    """They may have edited the words: the first submission, open again, would be sent again in those."""
    lost = (
        c.approved().do(c.intend(attempt=1, token=c.FIRST, session="s1")).do(e.Lose(c.KEY, 1, c.FIRST, "ReadTimeout", ended=True))
    )
    assert lost.effect is not None
    watched = lost.do(e.NoteWatched(c.KEY, 1, waited_ms=9, settle_ms=9)).effect
    said = lost.do(e.Answer(c.KEY, "not_found", "alice", watched.version if watched else 0))
    clean = said.do(e.Settle(c.KEY, c.SECOND, "not_found", e.PERSON, settled=1))
    assert not isinstance(decide(clean), Refusal), "before anybody decides anew"
    denied = clean.do(e.Deny(c.KEY, "bob", clean.effect.version if clean.effect else 0))
    refused(denied, Code.STALE_VIEW, "people have decided about")
    again = denied.do(c.approve(denied))
    refused(again, Code.STALE_VIEW, "people have decided about")


def test_what_has_a_new_generation_cannot_be_taken_back() -> None:
    said = c.said_not_found()
    renewed = said.do(e.Renew(c.KEY, "ann", said.effect.version if said.effect else 0, "it is open again"))
    refused(renewed, Code.STALE_VIEW, "be tried under a new key since (generation 1)")

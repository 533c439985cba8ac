"""R23: a replay may be a promise of what may be new after it; a forecast is read off the record; a purge gives up for good."""

from __future__ import annotations

import random
from typing import Any

import pytest
from histories import ROW
from task_cells import (
    HOUR,
    K1,
    K2,
    NOW,
    SHARED,
    TaskBench,
    after,
    claim,
    dead_lettered,
    fail,
    key_confirmed,
    key_submitted,
    key_unknown,
    leased_last_try,
)

from semel.machine import effects as e
from semel.machine import forecast as f
from semel.machine import journal as j
from semel.machine import tasks as t
from semel.model import Refusal

K3 = "sml_3"


def replayed(bench: TaskBench, **how: Any) -> TaskBench:
    """A dead letter, replayed and claimed."""
    return bench.do(t.Replay("by alice", NOW, **how), claim(at=NOW + HOUR))


def code(bench: TaskBench, command: t.Command) -> str:
    decided = t.decide(bench.task, command, bench.shared)
    return decided.code.value if isinstance(decided, Refusal) else ""


def with_charge() -> TaskBench:
    """A dead letter that has charged, and has a mail on record that is provably not sent."""
    bench = leased_last_try()
    bench.do(bench.intend(K1), e.Confirm(K1, 1, bench.token, "ch_1"))
    bench.do(bench.intend(K2, name="mail"), e.Disprove(K2, 1, bench.token, "refused"))
    return bench.do(fail(bench))


# --- the promise ------------------------------------------------------------------------------------------------------


def test_so_many_new_keys_and_no_more() -> None:
    bench = replayed(with_charge(), at_most={"mail": 1})
    assert code(bench, bench.intend(K3, name="charge")) == "limit_reached", "a name that is left out may have none"
    bench.do(bench.intend(K3, name="mail"))
    refusal = t.decide(bench.task, bench.intend("sml_4", name="mail"))
    assert isinstance(refusal, Refusal) and refusal.message == "more than was forecast at replay: mail may be new 1 time"


def test_what_is_on_record_is_not_new() -> None:
    bench = replayed(with_charge(), at_most={})
    assert code(bench, bench.intend(K1)) == "" and code(bench, bench.intend(K2, name="mail")) == ""


def test_a_new_key_may_be_tried_again_and_looked_into() -> None:
    bench = replayed(with_charge(), at_most={"mail": 1})
    bench.do(bench.intend(K3, name="mail"), e.Disprove(K3, 1, bench.token, "refused"))
    assert code(bench, bench.intend(K3, name="mail")) == ""
    bench.do(bench.intend(K3, name="mail"), e.Lose(K3, 2, bench.token, "no answer", ended=True))
    assert code(bench, bench.intend(K3, name="mail", again=True)) == ""


def test_what_is_asked_for_counts_as_new() -> None:
    bench = replayed(with_charge(), at_most={"mail": 1})
    bench.do(bench.intend(K3, name="mail", approvers=1))
    assert code(bench, bench.intend("sml_4", name="mail")) == "limit_reached"


def test_a_tenants_key_counts_when_it_is_joined() -> None:
    bench = replayed(with_charge(), at_most={"mail": 1}).with_key(key_submitted())
    assert bench.task.fresh["mail"] == (SHARED,)
    assert code(bench, bench.intend(K3, name="mail")) == "limit_reached"
    bench = replayed(with_charge(), at_most={"mail": 0}).with_key(key_confirmed())
    decided = t.decide_shared(bench.shared[SHARED], bench.task, bench.intend(SHARED, name="mail"), bench.shared)
    assert not isinstance(decided, Refusal) and decided[1].recorded is not None, "what is recorded is given all the same"


def test_beyond_it_a_joined_key_is_not_sent() -> None:
    bench = replayed(with_charge(), at_most={}).with_key(t.apply_key(key_submitted(), j.Disproved(SHARED, 1, "refused"), NOW))
    decided = t.decide_shared(bench.shared[SHARED], bench.task, bench.intend(SHARED, name="mail"), bench.shared)
    assert isinstance(decided, Refusal) and decided.code == "limit_reached"


def test_the_promise_holds_over_failures_and_ends_with_the_work_or_another_replay() -> None:
    bench = replayed(with_charge(), at_most={"mail": 1})
    bench.do(bench.intend(K3, name="mail"), e.Confirm(K3, 1, bench.token), fail(bench), claim(at=NOW + 2 * HOUR))
    assert code(bench, bench.intend("sml_4", name="mail")) == "limit_reached"
    bench.do(fail(bench, fatal=True))
    again = replayed(bench, at_most={"mail": 1})
    assert code(again, again.intend("sml_4", name="mail")) == "", "what came before is on record now, and not new"
    again.do(t.Finish(again.token), t.Claim("s1", 1, NOW + 3 * HOUR, direct=True))
    assert code(again, again.intend("sml_5", name="mail")) == "" and again.task.at_most is None


def test_a_replay_without_a_promise_has_no_limit_and_old_journals_mean_that() -> None:
    old = j.event_of(j.Row(**ROW, kind="replayed", body='{"why":"by ann"}'))
    assert isinstance(old, j.Replayed) and old.at_most is None
    bench = replayed(with_charge(), at_most={})
    bench = replayed(bench.do(fail(bench, fatal=True)))
    assert code(bench, bench.intend(K3, name="mail")) == ""


# --- which replays --------------------------------------------------------------------------------------------------------


def test_a_replay_of_what_was_seen_is_of_that_dead_letter_only() -> None:
    bench = dead_lettered()
    seen = bench.task.version
    assert code(bench, t.Replay("by ann", NOW, seen=seen - 1)) == "stale_view"
    bench.do(t.Replay("by ann", NOW, seen=seen))
    assert code(bench, t.Replay("by ann", NOW, seen=bench.task.version)) == "stale_view"
    assert bench.task.batches == frozenset()


def test_from_a_step_that_is_not_on_record_all_steps_stay() -> None:
    bench = leased_last_try()
    bench.do(t.Step(bench.token, "draft:d1:1", "draft", "a"), t.Step(bench.token, "sign:d1:1", "sign", "b"), fail(bench))
    kept = replayed(bench, from_step="print", known=True).task.steps
    assert set(kept) == {"draft:d1:1", "sign:d1:1"}


def test_a_purge_is_of_a_dead_letter_with_nothing_unknown() -> None:
    bench = dead_lettered()
    assert code(bench, t.Purge("by ann", seen=bench.task.version - 1)) == "stale_view"
    bench.do(t.Purge("by ann: old"))
    assert (bench.task.delivery, bench.task.execution, bench.task.why) == ("acknowledged", "failed", "purged: by ann: old")
    assert code(bench, t.Purge("by ann")) == "stale_view"
    assert code(bench, t.Claim("s1", 1, NOW + HOUR, direct=True)) == "stale_view", "nobody enters it again"
    lost = leased_last_try().with_key(key_confirmed())
    lost.do(fail(lost))
    lost.shared[SHARED] = key_unknown()
    assert code(lost, t.Purge("by ann")) == "unknown_outstanding"


# --- the forecast ---------------------------------------------------------------------------------------------------------


def finished(*names: str) -> f.Sibling:
    bench = TaskBench().do(claim())
    bench.do(t.Step(bench.token, "draft:d1:1", "draft", ""))
    for n, name in enumerate(names):
        bench.do(bench.intend(f"sml_{name}{n}", name=name), e.Confirm(f"sml_{name}{n}", 1, bench.token))
    return f.sibling_of(bench.do(t.Finish(bench.token)).task, {})


def test_a_forecast_is_what_is_on_record_and_what_siblings_had_beyond_it() -> None:
    task = with_charge().task
    told = f.forecast(task, {}, [finished("charge", "mail", "post"), finished("charge", "mail", "post", "post")])
    assert (told.recorded, told.again, told.unknown) == ({"charge": 1}, {"mail": 1}, {})
    assert (told.new_least, told.new_most, told.siblings) == ({"post": 1}, {"post": 2}, 2)
    assert told.most == {"mail": 1, "post": 2}


@pytest.mark.parametrize(
    ("key", "standing"), [(key_unknown(), "unknown"), (key_submitted(), "unknown"), (key_confirmed(), "recorded")]
)
def test_a_joined_key_is_foretold_as_it_stands_now(key: t.Key, standing: str) -> None:
    bench = leased_last_try().with_key(key_confirmed())
    bench.do(fail(bench))
    told = f.forecast(bench.task, {SHARED: key}, [])
    assert getattr(told, standing) == {"mail": 1} and told.siblings == 0


def test_what_is_refused_for_good_or_denied_is_from_record() -> None:
    bench = leased_last_try()
    bench.do(bench.intend(K1), e.Disprove(K1, 1, bench.token, "no such account", final=True))
    bench.do(bench.intend(K2, name="mail", approvers=1))
    bench.do(e.Deny(K2, "ann", bench.task.effects[K2].version))
    assert f.forecast(bench.task, {}, []).recorded == {"charge": 1, "mail": 1}


def test_a_key_that_a_sibling_only_had_from_another_task_may_be_new_and_need_not() -> None:
    bench = TaskBench().do(claim()).with_key(key_confirmed("t9"))
    told = f.forecast(dead_lettered().task, {}, [f.sibling_of(bench.do(t.Finish(bench.token)).task, bench.shared)])
    assert (told.new_least, told.new_most) == ({}, {"mail": 1})


def test_steps_before_the_named_one_are_kept() -> None:
    bench = leased_last_try()
    bench.do(t.Step(bench.token, "draft:d1:1", "draft", "a"), t.Step(bench.token, "sign:d1:1", "sign", "b"), fail(bench))
    counts = {step: (told.steps_kept, told.steps_anew) for step in ("", "draft", "sign", "print")
              if (told := f.forecast(bench.task, {}, [], step))}  # fmt: skip
    assert counts == {"": (0, 2), "draft": (0, 2), "sign": (1, 1), "print": (2, 0)}


def test_the_sum_of_many() -> None:
    one = f.forecast(with_charge().task, {}, [finished("charge", "mail", "post")])
    told = f.summed([one, one])
    assert (told.recorded, told.again, told.new_most, told.tasks) == ({"charge": 2}, {"mail": 2}, {"post": 2}, 2)
    assert f.summed([]).tasks == 0


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_tried_no_more_new_keys_are_sent_than_were_promised(seed: int) -> None:
    """Calls, outcomes, failures and crashes in any order, of keys of the task and of one of the tenant's."""
    chance = random.Random(seed)
    bench = with_charge()
    before = set(bench.task.effects)
    most = {"charge": chance.randrange(2), "mail": chance.randrange(3)}
    bench = replayed(bench, at_most=most)
    sent: dict[str, set[str]] = {"charge": set(), "mail": set()}
    key = t.Key()
    for _ in range(40):
        name = chance.choice(["charge", "mail"])
        one = chance.choice([K1, K2, *(f"sml_{name}{n}" for n in range(4))])
        intend = bench.intend(one, name=name, approvers=chance.choice([0, 0, 1]), again=chance.random() < 0.2)
        commands: list[t.Command] = [intend, fail(bench), t.LoseLease("s1", "dead", NOW), t.Park(bench.token, "x", NOW)]
        for known in bench.task.effects.values():
            commands += [
                e.Confirm(known.key, len(known.sent), bench.token),
                e.Disprove(known.key, len(known.sent), bench.token, ""),
            ]
            commands += [
                e.Lose(known.key, len(known.sent), bench.token, "", True),
                e.Approve(known.key, "ann", known.version, NOW),
            ]
            commands += [e.Settle(known.key, bench.token, "not_found", "lookup:f", waited_ms=1)]
        command = chance.choice([intend, intend, *commands])
        if bench.task.delivery == "queued":
            command = claim(at=NOW + 9 * HOUR)
        decided = t.decide(bench.task, command, bench.shared)
        if isinstance(decided, Refusal):
            continue
        bench.do(command)
        for event in decided.events:
            if isinstance(event, j.Intended) and event.key not in before:
                sent[event.name].add(event.key)
        joint = t.decide_shared(key, bench.task, bench.intend(SHARED, name="mail"), {SHARED: key}, 1)
        if chance.random() < 0.1 and not isinstance(joint, Refusal):
            bench.task = after(bench.task, joint[0])
            for event in joint[1].events:
                key = t.apply_key(key, event, NOW)
                sent["mail"] |= {SHARED} if isinstance(event, j.Intended) else set()
            key = t.apply_key(key, j.Confirmed(SHARED, 1), NOW)
    assert all(len(keys) <= most[name] for name, keys in sent.items()), (most, sent)

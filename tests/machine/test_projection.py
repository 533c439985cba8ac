"""Random legal histories: the tables equal the fold, the fold equals what was applied, and the invariants of the promise hold."""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from dataclasses import replace

import pytest
from histories import KEYS, MOVES, NAMES, STREAM, TENANT, History, Model, command, whole
from hypothesis import given, settings
from hypothesis import strategies as st
from task_cells import NOW, SHARED, key_unknown

from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import projection as p
from semel.machine import tasks as t
from semel.model import Delivery, EffectState, Refusal

RUNS = settings(max_examples=150, deadline=None)


@RUNS
@given(MOVES)
def test_the_tables_written_step_by_step_equal_the_tables_of_the_fold(moves: list[tuple[str, int, int]]) -> None:
    history = History()
    for move in moves:
        history.try_(command(history, *move))
        assert history.model == whole(history.task), move
    folded = t.fold(replace(row, event=None) for row in history.rows)
    assert folded == history.task and whole(folded) == history.model
    assert j.broken(history.rows) is None


EVENTS = st.builds(
    j.Enqueued, task=st.text(), name=st.text(), key=st.text(), args=st.dictionaries(st.text(), st.integers()),
    queue=st.sampled_from(["", "q", "default"]), priority=st.integers(-1000, 1000), due=st.integers(0), epoch=st.integers(0),
    doubt=st.booleans(),
)  # fmt: skip


@RUNS
@given(EVENTS, st.integers(0))
def test_what_is_written_of_a_birth_is_what_its_fold_says(event: j.Enqueued, at: int) -> None:
    assert p.of_birth(TENANT, event) == p.of_task(TENANT, None, t.apply(t.Task(), event, at), ())


@RUNS
@given(EVENTS, st.text(), st.text(), st.integers(0), st.text())
def test_the_row_of_a_birth_is_the_one_that_is_sealed(event: j.Enqueued, tenant: str, actor: str, at: int, id: str) -> None:
    said = {"tenant": tenant, "actor": actor, "at": at, "id": id}
    (sealed,) = j.seal((event,), stream=event.task, seq=0, previous=j.GENESIS, token=0, **said)
    made = j.born(event, **said)
    assert made == sealed
    assert made.event is event


@RUNS
@given(MOVES, st.integers(0, 40))
def test_a_fold_may_stop_anywhere_and_go_on(moves: list[tuple[str, int, int]], cut: int) -> None:
    history = History()
    for move in moves:
        history.try_(command(history, *move))
    half = t.fold(history.rows[:cut])
    assert t.fold(history.rows[cut:], half) == history.task
    assert half.version == min(cut, len(history.rows))


@RUNS
@given(MOVES)
def test_what_holds_in_every_history(moves: list[tuple[str, int, int]]) -> None:
    history = History()
    for move in moves:
        before, asked = history.task, command(history, *move)
        decided = history.try_(asked)
        told = () if isinstance(decided, Refusal) else decided.events
        check_tokens(before, history.task, told)
        check_state_is_read_off(history.task)
        check_ends(before, history.task, told)
        check_intents(before, told)
        check_facts_stay(before, history.task, told)


def check_tokens(before: t.Task, after: t.Task, told: tuple[j.Happened, ...]) -> None:
    """Tokens and attempts rise with a claim, and with nothing else."""
    claimed = any(isinstance(event, j.Claimed) for event in told)
    assert (after.token > before.token) == claimed == (after.attempt == before.attempt + 1)
    assert after.version == before.version + len(told)


def check_state_is_read_off(task: t.Task) -> None:
    """What the task says of its effects is what their submissions say."""
    effects = dict(task.effects.items())
    assert task.unknown == {key for key, x in effects.items() if any(s.lost for s in x.open)}
    assert task.submitted == {key for key, x in effects.items() if any(not s.lost for s in x.open)}
    assert dict(task.names.items()) == Counter(x.name for x in effects.values())
    for x in effects.values():
        assert sum(not s.lost for s in x.open) <= 1, "two tries of one effect in flight"
        assert not (x.confirmed and x.open)
        assert [s.n for s in x.sent] == list(range(1, len(x.sent) + 1))


def check_ends(before: t.Task, after: t.Task, told: tuple[j.Happened, ...]) -> None:
    """What has ended has nothing open, but for what a person took back; what nobody has waits for no outcome (R2)."""
    if after.ended:
        back = {event.key for event in told if isinstance(event, j.Reversed)}
        assert after.unknown <= (before.unknown | back if before.ended else set()) and not after.submitted
    if after.delivery is not Delivery.LEASED:
        assert not after.submitted and not after.session and not after.suspended
    if before.ended and not after.ended:
        assert after.delivery in (Delivery.QUEUED, Delivery.LEASED)


def check_intents(before: t.Task, told: tuple[j.Happened, ...]) -> None:
    """The invariant: while anything is unknown nothing else starts; and nothing is sent again but as a way out."""
    for event in told:
        if isinstance(event, j.Intended):
            known = before.effects.get(event.key)
            if event.again:
                assert known is not None and known.state is EffectState.AMBIGUOUS and known.told is None
            else:
                assert not before.unknown and not before.suspended and not before.ending
                assert known is None or (known.state is EffectState.NOT_ATTEMPTED and known.declined is None)
                assert known is None or known.told is None


def check_facts_stay(before: t.Task, after: t.Task, told: tuple[j.Happened, ...]) -> None:
    """Nothing that is on record of an effect is ever lost, but for a person's word, which a person took back."""
    assert set(before.effects.keys()) <= set(after.effects.keys())
    for key, was in before.effects.items():
        now = after.effects[key]
        if any(isinstance(event, j.Reversed) and event.key == key for event in told):
            assert was.word is not None and now.unknown and now.evidence == was.evidence and len(now.sent) == len(was.sent)
            continue
        assert now.confirmed or not was.confirmed
        assert not was.confirmed or (now.result, now.unrecorded) == (was.result, was.unrecorded)
        assert now.evidence[: len(was.evidence)] == was.evidence and len(now.sent) >= len(was.sent)
        assert all(a.open or not b.open for a, b in zip(was.sent, now.sent, strict=False))


def test_the_driver_reaches_every_command_and_every_state() -> None:
    """Else the properties above would hold of nothing. A fixed set of histories, so that it cannot flicker."""
    accepted, states, deliveries = Counter[str](), set(), set()
    for seed in range(2000):
        history, dice = History(), random.Random(seed)
        for _ in range(40):
            name = dice.choice(NAMES)
            decided = history.try_(command(history, name, dice.randrange(60), 0))
            accepted[name] += not isinstance(decided, Refusal) and bool(decided.events)
        states |= {x.state for x in history.task.effects.values()}
        deliveries.add(history.task.delivery)
    assert {name for name in NAMES if not accepted[name]} == set()
    assert states == set(EffectState) and deliveries == set(Delivery)


# --- rows by themselves -----------------------------------------------------------------------------------------------


def test_a_task_of_direct_mode_stands_in_no_queue() -> None:
    task = t.apply(t.Task(), j.Enqueued("t1", "work", "k", {}, queue=""), NOW)
    assert p.of_task(TENANT, None, task, []).ready is None


def test_a_higher_priority_ranks_lower() -> None:
    task = t.apply(t.Task(), j.Enqueued("t1", "bill", "k", {}, priority=5, due=7), NOW)
    row = p.of_task(TENANT, None, task, []).ready
    assert row == ("default", "bill", -5, 7, TENANT, "t1")


def test_a_change_that_moves_no_pointer_touches_none() -> None:
    history = History()
    history.try_(command(history, "claim", 0, 0))
    before = history.task
    after = t.apply(before, j.Stepped("draft:d:1", "draft", 1), NOW)
    tables = p.of_task(TENANT, before, after, [])
    assert tables == p.Tables(task=p.task_row(TENANT, after))


INTENDED = j.Intended("sml_x", 1, "charge", "t1", 1, 1, "s1", {}, "d")
CONFIRMED, LOST = j.Confirmed("sml_x", 1), j.Lost("sml_x", 1, "?")


@pytest.mark.parametrize(
    ("claimed", "events", "versions"),
    [
        (True, (INTENDED, CONFIRMED), (2, 2)), (False, (INTENDED, CONFIRMED), (3, 4)),
        (True, (INTENDED, LOST, CONFIRMED), (2, 4, 5)),  # it is unknown, and is not any more
        (True, (INTENDED, j.Disproved("sml_x", 1, "refused"), INTENDED), (2, 4, 4)),
        (True, (INTENDED, j.Stepped("d", "draft"), CONFIRMED, j.Finished()), (2, 4, 4, 6)),
    ],
)  # fmt: skip
def test_what_its_owner_submits_and_gets_confirmed_leaves_a_tasks_row_alone(
    claimed: bool, events: tuple[j.Happened, ...], versions: tuple[int, ...]
) -> None:
    """What others rest their decisions on is in the row, and is locked with it (R8): whose it is, what is unknown, its end."""
    task = t.apply(t.Task(), j.Enqueued("t1", "bill", "inv", {}), NOW)
    first = t.apply(task, j.Claimed(1, 1, "s1") if claimed else j.Spent(1), NOW)
    row, before = p.of_task(TENANT, task, first, []).task, first
    for event, version in zip(events, versions, strict=True):
        after = t.apply(before, event, NOW)
        written = p.of_task(TENANT, before, after, ["sml_x"])
        row = written.task or row
        assert (
            row == p.task_row(TENANT, after) and row.version == version and (written.task is None) == (version != after.version)
        )
        assert [x.version for x in written.effects] == [after.effects["sml_x"].version]
        before = after
    assert p.of_task(TENANT, first, before, ["sml_x"]).task == (row if row.version > 2 else None), "in one change as in many"


def test_a_reason_is_cut_and_is_text_that_a_table_can_hold() -> None:
    task = replace(t.Task(), id="t1", why="x" * 400)
    assert len(p.task_row(TENANT, task).why) == p.WHY_LENGTH
    assert p.task_row(TENANT, replace(task, why="no file b\udcff")).why == "no file b?"


def test_a_shared_key_has_its_rows_from_its_own_stream() -> None:
    model, key = Model(), t.Key()
    for event in (
        j.Intended(SHARED, 1, "mail", "t9", 1, 1, "s9", {}, "d", "m"),
        j.Lost(SHARED, 1, "?"),
        j.Intended(SHARED, 2, "mail", "t1", 1, 2, "s1", again=True),
        j.Lost(SHARED, 2, "?"),
        j.Found(SHARED, "confirmed", "lookup:f", "msg-1"),
    ):
        before, key = key, t.apply_key(key, event, NOW)
        model.change(p.of_key(TENANT, SHARED, before, key))
        assert model.effect == {SHARED: p.effect_row(TENANT, SHARED, key.effect)} if key.effect else False
        assert bool(model.unknown) == (key.effect is not None and key.effect.state is EffectState.AMBIGUOUS)
    assert model.effect[SHARED].task == "t1" and model.effect[SHARED].stream == SHARED


def test_the_unknown_queue_tells_since_when_and_points_to_who_sent_it_last() -> None:
    effect = key_unknown().effect
    assert p.unknown_row(TENANT, effect) == (TENANT, SHARED, "t9", "mail", NOW)
    assert p.unknown_row(TENANT, None) is None


# --- growth -----------------------------------------------------------------------------------------------------------


def steps(count: int) -> tuple[j.Row, ...]:
    """A task with `count` recorded steps and, every tenth, an effect."""
    events: list[j.Happened] = [j.Enqueued("t1", "bill", "inv", {}), j.Claimed(1, 1 << 32 | 1, "s1")]
    for n in range(count):
        events.append(j.Stepped(f"draft:{n}:1", "draft", n))
        if n % 10 == 0:
            key = f"sml_{n}"
            events += [j.Intended(key, 1, "charge", "t1", 1, 1, "s1", {}, "d", "m"), j.Confirmed(key, 1, n)]
    return j.seal(tuple(events), tenant=TENANT, stream=STREAM, seq=0, previous=j.GENESIS, actor="x", token=1, at=NOW, id="c")


def seconds_to_fold(rows: tuple[j.Row, ...]) -> float:
    """The best of three, without the collector."""
    times = []
    gc.disable()
    try:
        for _ in range(3):
            began = time.process_time()
            t.fold(rows)
            times.append(time.process_time() - began)
    finally:
        gc.enable()
    return min(times)


def test_ten_thousand_steps_fold_in_linear_time() -> None:
    """Ten times the steps cost ten times as much; a copy per event would cost a hundred times."""
    small, large = steps(1_000), steps(10_000)
    assert len(t.fold(large).steps) == 10_000 and len(t.fold(large).effects) == 1_000
    assert seconds_to_fold(large) < 25 * seconds_to_fold(small)


def test_one_more_step_of_a_long_task_writes_one_row_and_no_more() -> None:
    task = t.fold(steps(2_000))
    decided = t.decide(task, t.Step(task.token, "draft:x:1", "draft", 1))
    assert not isinstance(decided, Refusal) and len(decided.events) == 1
    after = t.apply(task, decided.events[0], NOW)
    assert p.of_task(TENANT, task, after, []).effects == ()


@pytest.mark.parametrize("count", [1, 50])
def test_a_touched_effect_is_written_once_however_often_it_was_touched(count: int) -> None:
    task = t.apply(t.Task(), j.Enqueued("t1", "bill", "inv", {}), NOW)
    after = t.apply(task, j.Intended(KEYS[0], 1, "charge", "t1", 1, 1, "s1", {}, "d"), NOW)
    tables = p.of_task(TENANT, task, after, [KEYS[0]] * count)
    assert len(tables.effects) == 1
    assert isinstance(e.decide(after.effects[KEYS[0]], e.Confirm(KEYS[0], 1, 1), e.Standing()), e.Decision)

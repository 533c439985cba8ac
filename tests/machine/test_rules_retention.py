"""R22: a tombstone stands for the rows that it replaced, in every decision but those about steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import task_cells as cells
from histories import MOVES, STREAM, TENANT, History, command, read_back
from hypothesis import event, given, settings
from hypothesis import strategies as st
from immutables import Map
from task_cells import NOW, SHARED, TaskBench

from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import retention
from semel.machine import tasks as t
from semel.model import Code, Delivery, EffectState, Refusal


def pruned(history: History) -> t.Task | None:
    """The task as its tombstone alone tells of it; None: its rows must stay."""
    last = history.rows[-1]
    decided = t.decide(history.task, t.Prune(len(history.rows), last.hash.hex(), dead=True))
    if isinstance(decided, Refusal):
        return None
    (row,) = j.seal(decided.events, tenant=TENANT, stream=STREAM, seq=last.seq, previous=last.hash, actor="person:ann",
                    token=history.task.token, at=history.at, id="stone")  # fmt: skip
    assert j.broken([replace(row, event=None)]) is None and j.broken([*history.rows, row]) is None
    found = t.fold([replace(row, event=None)])
    history.rows, history.task = [row], found
    return found


BEGUN = [("claim", 5, 0), ("intend", 0, 0), ("ask", 1, 0), ("approve", 1, 0), ("approve", 2, 0), ("ask", 1, 0), ("step", 0, 0)]


def end(history: History, proved: bool) -> None:
    """Settle what is open, one way or the other, and end the task."""
    for name, n in (("conclude", 0), ("unblock", 0), ("conclude", 0), ("claim", 5), ("claim", 1)):
        history.try_(command(history, name, n, 0))
    token = history.task.token
    for key, x in sorted(history.task.effects.items()):
        for s in x.open:
            done: t.Command = e.Confirm(key, s.n, s.token, s.n) if proved else e.Disprove(key, s.n, s.token, "refused")
            history.try_(done)
        history.try_(e.Settle(key, token, "confirmed" if proved else "not_found", "lookup:f", "found", waited_ms=1, settle_ms=0))
    for name in ("finish", "conclude", "cancel"):
        history.try_(command(history, name, 0, 0))


def told(decided: e.Decision | Refusal) -> Any:
    """What a decision comes to, without what a tombstone does not keep."""
    if isinstance(decided, Refusal):
        return decided
    known = decided.recorded
    events = [replace(event, seq=0) if isinstance(event, j.Reversed) else event for event in decided.events]
    return events, known and placeless(known)


def placeless(x: e.Effect) -> e.Effect:
    """An effect without what a tombstone does not keep, and without the places of rows, which a tombstone moves by one."""
    word = x.word and replace(x.word, seq=0)
    return replace(retention.forgotten(x), version=0, word=word)


def kept(task: t.Task) -> t.Task:
    """A task without what a tombstone does not keep, and without the places of its rows."""
    left = Map({key: placeless(x) for key, x in task.effects.items()})
    return replace(task, effects=left, steps=Map(), version=0)


def about_steps(name: str, n: int) -> bool:
    return name == "step" or (name == "replay" and n % 3 != 0)


@settings(max_examples=250, deadline=None)
@given(MOVES, MOVES, st.booleans())
def test_what_is_decided_after_a_prune_is_what_would_have_been_decided_without_it(
    before: list[tuple[str, int, int]], after: list[tuple[str, int, int]], proved: bool
) -> None:
    pruned_one, whole = History(), History()
    for history in (pruned_one, whole):
        for move in [*BEGUN, *before]:
            history.try_(command(history, *move))
        end(history, proved)
    had = len(whole.task.effects)
    if pruned(pruned_one) is None:
        event("its rows must stay")
        return
    if whole.task.delivery is Delivery.DEAD_LETTERED:  # pruned, it is given up
        whole.try_(t.Purge(""))
        pruned_one.at = whole.at
    event(f"pruned, with {had} effects")
    assert kept(pruned_one.task) == kept(whole.task) and not pruned_one.task.steps
    for move in [("replay", 0, 0), ("claim", 5, 0), *after]:
        if not about_steps(*move[:2]):
            one = pruned_one.try_(command(pruned_one, *move))
            other = whole.try_(command(whole, *move))
            assert told(one) == told(other), move
    assert kept(pruned_one.task) == kept(whole.task)


def prune(bench: TaskBench, **more: Any) -> e.Decision | Refusal:
    return t.decide(bench.task, t.Prune(3, "00", **more), bench.shared)


@pytest.mark.parametrize("build", [cells.queued, cells.leased, cells.blocked, cells.queued_waiting, cells.leased_unknown])
def test_what_has_not_ended_is_not_pruned(build: Any) -> None:
    decided = prune(build(), dead=True)
    assert isinstance(decided, Refusal) and decided.code is Code.STALE_VIEW


def test_a_dead_letter_is_pruned_only_expressly() -> None:
    decided = prune(cells.dead_lettered())
    assert isinstance(decided, Refusal) and "--dead" in decided.message
    decided = prune(cells.dead_lettered(), dead=True, reason="gone")
    assert not isinstance(decided, Refusal)
    back = t.apply(t.Task(), decided.events[0], NOW)
    assert (back.delivery, back.execution, back.why) == ("acknowledged", "failed", "purged: gone"), "and then it is none"


def test_a_task_with_an_unproved_effect_is_not_pruned() -> None:
    bench = cells.acknowledged()
    bench.task = t.apply(bench.task, j.Intended("sml_x", 1, "charge", "t1", 1, bench.token, "s1", {}, "d", "m"), NOW)
    decided = prune(bench)
    assert isinstance(decided, Refusal) and decided.code is Code.UNKNOWN_OUTSTANDING


@pytest.mark.parametrize("key", [cells.key_submitted(), cells.key_unknown()])
def test_a_task_that_has_joined_an_unsettled_key_is_not_pruned(key: t.Key) -> None:
    bench = cells.leased().with_key(cells.key_confirmed())
    bench.do(t.Finish(bench.token, None))
    assert not isinstance(prune(bench), Refusal)
    bench.shared[SHARED] = key
    decided = prune(bench)
    assert isinstance(decided, Refusal) and decided.code is Code.UNKNOWN_OUTSTANDING


def test_a_key_is_pruned_when_it_is_settled_and_those_who_sent_it_have_ended() -> None:
    c = t.Prune(2, "00")
    assert isinstance(retention.of_key(cells.key_submitted(), c, ()), Refusal)
    assert isinstance(retention.of_key(cells.key_unknown(), c, ()), Refusal)
    assert isinstance(retention.of_key(cells.key_confirmed(), c, ["t9"]), Refusal)
    key = cells.key_confirmed()
    assert retention.users(key) == {"t9"}
    stone = retention.of_key(key, c, ())
    assert isinstance(stone, j.Pruned)
    back = t.apply_key(t.Key(), read_back(stone), NOW)  # type: ignore[arg-type]
    assert back.token == key.token and back.version == key.version + 1
    assert back.effect is not None and back.effect.state is EffectState.CONFIRMED and back.effect.result == "msg-1"
    assert t.next_token(back, 3) == t.next_token(key, 3), "the token is never reset"


def test_what_may_yet_be_sent_is_remembered_with_its_words() -> None:
    bench = cells.leased_submitted()
    bench.do(e.Disprove(cells.K1, 1, bench.token, "refused"), t.Finish(bench.token, None))
    decided = prune(bench)
    assert not isinstance(decided, Refusal)
    back = t.apply(t.Task(), decided.events[0], NOW)
    assert back.effects[cells.K1] == bench.task.effects[cells.K1] and back.effects[cells.K1].args is not None


def test_what_is_done_is_remembered_with_the_arguments_that_identify_it() -> None:
    bench = cells.leased_submitted()
    bench.do(e.Confirm(cells.K1, 1, bench.token, "receipt"), t.Finish(bench.token, "done"))
    decided = prune(bench, reason="old")
    assert not isinstance(decided, Refusal)
    stone = read_back(decided.events[0])
    back = t.apply(t.Task(), stone, NOW)
    known = back.effects[cells.K1]
    was = bench.task.effects[cells.K1]
    assert known.args == was.args is not None
    assert (known.digest, known.material, known.result) == (was.digest, was.material, "receipt")
    assert back.delivery is Delivery.ACKNOWLEDGED and back.token == bench.task.token and back.names == bench.task.names


@pytest.mark.parametrize("state", sorted(cells.STATES))
def test_every_state_of_a_task_comes_back_from_its_text(state: str) -> None:
    task = cells.STATES[state]().task
    stone = j.Pruned(1, "00", task=retention.plain(task))
    assert t.apply(t.Task(), read_back(stone), NOW) == task


def test_a_tombstone_of_a_later_version_is_refused() -> None:
    with pytest.raises(ValueError, match="this version does not know"):
        t.apply(t.Task(), j.Pruned(1, "00", task={"id": "t1", "colour": "blue"}), NOW)


def test_a_tombstone_is_believed_only_where_its_stream_begins_and_its_chain_holds() -> None:
    events = (j.Enqueued("t1", "bill", "k", None), j.Finished(1))
    rows = j.seal(events, tenant="acme", stream="t1", seq=0, previous=j.GENESIS, actor="x", token=0, at=NOW, id="a")
    stone = j.Pruned(2, rows[-1].hash.hex(), task={"id": "t1"})
    (last,) = j.seal((stone,), tenant="acme", stream="t1", seq=2, previous=rows[-1].hash, actor="x", token=0, at=NOW, id="b")
    assert j.broken([last]) is None
    other = j.seal((replace(stone, hash="00" * 32),), tenant="acme", stream="t1", seq=2, previous=rows[-1].hash, actor="x",
                   token=0, at=NOW, id="b")  # fmt: skip
    assert j.broken(list(other)) is not None
    assert j.broken([replace(last, body=last.body.replace("t1", "t2"))]) is not None
    assert j.broken([rows[1]]) is not None, "the first row is missing, and nothing stands for it"
    assert "does not say what it follows" in str(j.broken([replace(last, body="{}")]))

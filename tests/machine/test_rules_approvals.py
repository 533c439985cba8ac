"""R21: what people must approve is sent only when they have, as it is on record, once. Each rule by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import effect_cells as c
import task_cells as tc
from shared_cells import MINE, OTHER, SharedBench, approved_other, asked_both, asked_other
from task_cells import K1, SHARED

from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import tasks as t
from semel.model import Code, EffectState, Refusal


def decide(bench: c.Bench, command: e.EffectCommand, **standing: Any) -> e.Decision | Refusal:
    return e.decide(bench.effect, command, e.Standing(**standing))


def code(decided: e.Decision | Refusal) -> str:
    assert isinstance(decided, Refusal), decided
    return decided.code


def kinds(decided: e.Decision | Refusal) -> list[str]:
    assert not isinstance(decided, Refusal), decided
    return [event.kind for event in decided.events]


CALL = c.intend(**c.WANTED)


def test_a_call_is_asked_for_once_and_is_not_attempted() -> None:
    asked = c.asked()
    assert asked.effect is not None and asked.effect.state is EffectState.NOT_ATTEMPTED and asked.effect.waiting
    assert code(decide(asked, CALL)) == Code.APPROVAL_REQUIRED
    assert code(decide(asked, replace(CALL, digest=c.OTHER))) == Code.APPROVAL_REQUIRED


def test_what_was_asked_for_needs_approval_whatever_the_code_says_by_now() -> None:
    assert code(decide(c.asked(), c.intend())) == Code.APPROVAL_REQUIRED


def test_the_approved_words_are_sent_and_others_are_drift() -> None:
    decided = decide(c.approved(), replace(CALL, digest=c.OTHER, args={"to": "a", "body": "more"}))
    assert kinds(decided) == ["drifted", "intended"] and not isinstance(decided, Refusal)
    sent = decided.events[1]
    assert isinstance(sent, j.Intended) and sent.args is None and sent.digest == ""


def test_the_edited_words_are_sent_and_what_the_agent_asked_for_is_no_drift() -> None:
    edited = c.approved_edited()
    assert edited.effect is not None and edited.effect.args == {"to": "a", "body": "Dear A"}
    assert edited.effect.asked is not None and edited.effect.asked.args == {"to": "a", "body": "hi"}
    assert kinds(decide(edited, CALL)) == ["intended"]
    done = edited.do(CALL).do(e.Confirm(c.KEY, 1, c.SECOND, "msg-1"))
    assert not isinstance(again := decide(done, CALL, clean=True), Refusal) and again.recorded is done.effect


def test_a_changed_material_argument_is_no_wording() -> None:
    assert code(decide(c.approved(), replace(CALL, material="m2"))) == Code.INTENT_CHANGED


def test_an_edit_may_not_touch_what_is_redacted_nor_pass_for_it() -> None:
    marker = {"semel:redacted": "hmac-sha256:5e5e5e5e:00"}
    asked = c.asked(args={"to": "a", "card": marker, "body": "hi"})
    for args in ({"to": "a", "card": "4929", "body": "hi"}, {"to": "a", "card": marker, "body": marker}):
        assert code(decide(asked, c.approve(asked, args=args, digest="d2"))) == Code.INTENT_CHANGED, args
    edited = {"to": "a", "card": marker, "body": "edited"}
    assert kinds(decide(asked, c.approve(asked, args=edited, digest="d2"))) == ["approved"]


def test_an_edit_may_not_touch_the_intent_nor_add_or_drop_an_argument() -> None:
    asked = c.asked(args={"to": "a", "body": "hi"})
    for args in ({"to": "b", "body": "hi"}, {"to": "a"}, {"to": "a", "body": "hi", "more": 1}, ["a"], {"to": True, "body": "hi"}):
        assert code(decide(asked, c.approve(asked, args=args, digest="d2"))) == Code.INTENT_CHANGED, args
    assert kinds(decide(asked, c.approve(asked, args={"to": "a", "body": "Dear A"}, digest="d2"))) == ["approved"]


def test_one_equals_true_and_is_another_intent() -> None:
    asked = c.asked(args={"to": 1})
    assert code(decide(asked, c.approve(asked, args={"to": True}, digest="d2"))) == Code.INTENT_CHANGED


def test_an_approval_holds_until_it_expires_and_then_it_is_asked_for_again() -> None:
    held = c.approved_for_a_while()
    assert kinds(decide(held, replace(CALL, at=c.EXPIRES - 1))) == ["intended"]
    assert kinds(decide(held, replace(CALL, at=c.EXPIRES))) == ["asked"]
    held.now = c.EXPIRES
    held.do(replace(CALL, at=c.EXPIRES))
    assert held.effect is not None and held.effect.waiting and held.effect.asked_at == c.EXPIRES
    assert code(decide(held, replace(CALL, at=c.EXPIRES))) == Code.APPROVAL_REQUIRED
    assert kinds(decide(held, c.approve(held, at=c.EXPIRES))) == ["approved"]


def test_a_clean_disproof_and_a_not_found_give_it_back() -> None:
    for bench in (c.approved_disproved(), c.approved_not_found()):
        assert kinds(decide(bench, CALL)) == ["intended"]


def test_what_is_sent_again_needs_no_second_approval() -> None:
    assert kinds(decide(c.approved_lost(), c.intend(again=True))) == ["intended"]


def test_a_denial_is_readable_and_stands_until_somebody_approves() -> None:
    denied = c.denied()
    refused = decide(denied, CALL)
    assert isinstance(refused, Refusal) and refused.code == Code.DENIED and "alice denied mail: too much" in refused.message
    assert kinds(decide(denied.do(c.approve(denied, "bob")), CALL)) == ["intended"]


def test_a_denial_takes_back_what_was_not_used() -> None:
    held = c.half_approved()
    assert held.effect is not None
    held.do(e.Deny(c.KEY, "bob", held.effect.version)).do(c.approve(held, "bob"))
    assert held.effect.waiting and [one.by for one in held.effect.approvals] == ["bob"]


def test_two_different_people() -> None:
    half = c.half_approved()
    assert code(decide(half, CALL)) == Code.APPROVAL_REQUIRED
    for name in ("alice", "Alice", " ALICE "):
        again = decide(half, c.approve(half, name))
        assert (
            isinstance(again, Refusal) and again.code == Code.APPROVAL_REQUIRED and "alice approved mail already" in again.message
        )
    assert kinds(decide(half.do(c.approve(half, "bob")), CALL)) == ["intended"]


def test_an_edit_by_the_second_leaves_the_first_ones_word_behind() -> None:
    half = c.half_approved()
    half.do(c.approve(half, "bob", args={"to": "a"}, digest="d2"))
    assert half.effect is not None and half.effect.waiting and [one.by for one in half.effect.approvals] == ["bob"]


def test_more_approvers_than_were_asked_for_are_asked_for() -> None:
    held = c.approved().do(replace(CALL, approvers=2))
    assert held.effect is not None and held.effect.waiting and len(held.effect.approvals) == 1


def test_approved_twice_denied_twice_or_when_it_is_over() -> None:
    approved, denied = c.approved(), c.denied()
    assert code(decide(approved, c.approve(approved, "bob"))) == Code.STALE_VIEW
    assert denied.effect is not None and code(decide(denied, e.Deny(c.KEY, "bob", denied.effect.version))) == Code.STALE_VIEW
    for over in (c.approved_confirmed(), c.approved_lost(), c.approved_declined(), c.disproved()):
        assert over.effect is not None
        assert code(decide(over, c.approve(over))) == Code.STALE_VIEW
        assert code(decide(over, e.Deny(c.KEY, "bob", over.effect.version))) == Code.STALE_VIEW
    flying = c.approved_submitted()
    assert code(decide(flying, c.approve(flying))) == Code.IN_FLIGHT


def test_a_decision_on_what_has_moved_on() -> None:
    asked = c.asked()
    assert code(decide(asked, c.approve(asked, seen=0))) == Code.STALE_VIEW
    assert code(decide(asked, e.Deny(c.KEY, "bob", 0))) == Code.STALE_VIEW


def test_approval_comes_before_doubt() -> None:
    """What is assumed to have been sent may be sent again: nobody has approved that."""
    doubtful = c.intend(token=c.IN_EPOCH, doubt=c.DOUBT, **c.WANTED)
    assert kinds(decide(c.none(), doubtful)) == ["asked"]
    assert code(decide(c.asked(), doubtful)) == Code.APPROVAL_REQUIRED
    assumed = decide(c.approved(), replace(doubtful, digest=c.OTHER, args={"to": "a", "body": "more"}))
    assert kinds(assumed) == ["drifted", "assumed"] and not isinstance(assumed, Refusal)
    assert isinstance(assumed.events[1], j.Assumed) and assumed.events[1].digest == ""


def test_limits_come_before_asking() -> None:
    assert code(decide(c.none(), replace(CALL, per_task=1), used_here=1)) == Code.LIMIT_REACHED


def test_a_cancelled_task_asks_for_nothing() -> None:
    assert code(decide(c.none(), CALL, cancelled=True)) == Code.CANCELLED


# --- the task ---------------------------------------------------------------------------------------------------------


def approve(task: t.Task, by: str = "alice") -> e.Approve:
    return e.Approve(K1, by, task.effects[K1].version, tc.NOW)


def test_a_decision_unblocks_its_task_in_the_same_change() -> None:
    for command in (e.Approve, e.Deny):
        task = tc.blocked_asked().task
        made = approve(task) if command is e.Approve else e.Deny(K1, "alice", task.effects[K1].version)
        assert kinds(t.decide(task, made)) == [
            command.__name__.lower().replace("deny", "denied").replace("approve", "approved"),
            "unblocked",
        ]


def test_half_an_approval_unblocks_nothing() -> None:
    bench = tc.leased()
    bench.do(bench.intend(approvers=2), t.Block(bench.token, "waits", K1, approval=True))
    assert kinds(t.decide(bench.task, approve(bench.task))) == ["approved"]


def test_what_was_decided_before_the_task_waits_is_not_waited_for() -> None:
    bench = tc.leased_approved()
    assert kinds(t.decide(bench.task, t.Block(bench.token, "waits", K1, approval=True))) == ["parked"]


def test_no_person_is_waited_for_while_another_effect_is_unknown() -> None:
    bench = tc.leased_asked_beside_unknown()
    assert kinds(t.decide(bench.task, t.Block(bench.token, "waits", K1, approval=True))) == ["parked"]


def test_a_cancelled_task_waits_for_nobody() -> None:
    bench = tc.leased_asked_cancelled()
    assert kinds(t.decide(bench.task, t.Block(bench.token, "waits", K1, approval=True))) == ["parked"]
    assert code(t.decide(bench.task, approve(bench.task))) == Code.CANCELLED


# --- tenant-scoped keys -----------------------------------------------------------------------------------------------


def test_every_task_that_asks_is_on_record() -> None:
    bench = asked_both()
    assert bench.key.effect is not None and bench.key.effect.askers == {MINE, OTHER}
    again = bench.decide(MINE, bench.intend(MINE, approvers=1))
    assert isinstance(again, Refusal) and again.code == Code.APPROVAL_REQUIRED


def test_any_of_the_tasks_may_use_the_approval_once() -> None:
    bench = approved_other().do(MINE, approved_other().intend(MINE, approvers=1))
    other = bench.decide(OTHER, bench.intend(OTHER, approvers=1))
    assert isinstance(other, Refusal) and other.code == Code.IN_FLIGHT


def test_a_shared_decision_unblocks_the_task_on_whose_behalf_it_is_made() -> None:
    bench: SharedBench = asked_other()
    bench.do(OTHER, t.Block(bench.tasks[OTHER].token, "waits", SHARED, approval=True))
    decided = bench.decide(OTHER, e.Deny(SHARED, "alice", bench.key.version))
    assert not isinstance(decided, Refusal) and [event.kind for event in decided[0]] == ["unblocked"]

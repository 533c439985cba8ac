"""What agents do: other words on the retry, the same tool twice, errors swallowed."""

from __future__ import annotations

import pytest
from lab import Lab, until

import semel


@pytest.mark.parametrize("moment", ["after", "recorded"])
@pytest.mark.parametrize(
    ("action", "kind"),
    [("mail", "letter"), ("mail", "aletter"), ("charge", "letter"), ("publish", "aletter"), ("store", "letter")],
)
def test_other_words_on_the_retry(lab: Lab, action: str, kind: str, moment: str) -> None:
    """One effect in the first words; the second words are on record as drift."""
    gate = "recorded" if moment == "recorded" else f"after.{action}.1"
    lab.arm(gate)
    first = lab.worker("words")
    ref = lab.enqueue(kind, "r1", action=action, ref="r1")
    lab.arrived(gate)
    if moment == "recorded":
        until("it is recorded", lambda: lab.events(ref, "confirmed"))
    first.kill()
    lab.worker("words")
    result = lab.settle(ref)
    (act,) = lab.acts(action)
    assert result == (act.name or act.id)
    assert act.body["text"] == "good day"
    (drift,) = lab.events(ref, "drifted")
    assert drift.body["args"]["text"] != "good day"
    lab.proved(ref, acts={action: 1})


def test_other_words_after_proof_that_nothing_happened(lab: Lab) -> None:
    """Killed before the call, and not found: the new words are the ones that are sent, and nothing drifts."""
    lab.arm("before.mail.1")
    first = lab.worker("words")
    ref = lab.enqueue("letter", "r1", action="mail", ref="r1")
    lab.arrived("before.mail.1")
    first.kill()
    lab.worker("words")
    lab.result(ref)
    assert lab.acts("mail")[0].body["text"] == "good evening"
    assert lab.events(ref, "drifted") == []
    lab.proved(ref, acts={"mail": 1})


@pytest.mark.parametrize("moment", ["before", "after", "recorded"])
def test_a_changed_material_argument_is_refused(lab: Lab, moment: str) -> None:
    """However the first attempt ended: under one key no other sum is paid, and the handler can read why."""
    gate = "recorded" if moment == "recorded" else f"{moment}.pay.1"
    lab.arm(gate)
    first = lab.worker("words")
    ref = lab.enqueue("dearer", "r1", ref="r1")
    lab.arrived(gate)
    if moment == "recorded":
        until("it is recorded", lambda: lab.events(ref, "confirmed"))
    first.kill()
    lab.worker("words")
    assert lab.result(ref) == "refused: intent_changed"
    assert lab.acts("pay")[0].body["cents"] == "500"
    assert lab.events(ref, "declined")[0].body["code"] == "intent_changed"
    lab.proved(ref, acts={"pay": 1})


def test_two_wordings_in_one_attempt_and_an_occurrence_on_purpose(lab: Lab) -> None:
    lab.worker("words")
    ref = lab.enqueue("two_wordings", "r1", ref="r1")
    first, code, read, second, again = lab.result(ref)
    assert (code, read, again) == ("already_done", first, first)
    assert [act.id for act in lab.acts("mail")] == [first, second]
    assert lab.events(ref, "declined")[0].body["code"] == "already_done"
    lab.proved(ref, acts={"mail": 2})


@pytest.mark.parametrize("fault", [None, "cut_after", "error_before"])
@pytest.mark.parametrize(
    ("action", "kind"),
    [("mail", "gathered"), ("mail", "threaded"), ("charge", "gathered"), ("publish", "gathered"), ("publish", "threaded")],
)
def test_the_same_tool_several_times_in_parallel(lab: Lab, action: str, kind: str, fault: str | None) -> None:
    """One effect, and every call gets its result; also when its outcome was unknown in between."""
    if fault:
        lab.provider.fault(fault, action=action)  # type: ignore[arg-type]
    lab.worker("parallel")
    ref = lab.enqueue(kind, "r1", action=action, ref="r1")
    results = lab.settle(ref)
    assert results == [lab.acts(action)[0].id] * 5
    lab.proved(ref, acts={action: 1})


@pytest.mark.parametrize("kind", ["gathered", "threaded"])
def test_the_same_tool_in_parallel_and_killed(lab: Lab, kind: str) -> None:
    lab.arm("after.mail.1")
    first = lab.worker("parallel")
    ref = lab.enqueue(kind, "r1", action="mail", ref="r1")
    lab.arrived("after.mail.1")
    first.kill()
    lab.worker("parallel")
    assert lab.result(ref) == [lab.acts("mail")[0].id] * 5
    lab.proved(ref, acts={"mail": 1})


def test_two_wordings_in_parallel(lab: Lab) -> None:
    """The one that comes second waits, and is then judged as recorded (R9)."""
    lab.worker("parallel")
    ref = lab.enqueue("two_voices", "r1", ref="r1")
    done = lab.result(ref)
    (act,) = lab.acts("mail")
    assert sorted(done) == sorted([act.id, f"already_done {act.id}"])
    lab.proved(ref, acts={"mail": 1})


@pytest.mark.parametrize("kind", ["swallows_exception", "swallows_everything", "aswallows_everything"])
def test_a_swallowed_error_after_an_unknown_starts_no_second_effect(lab: Lab, kind: str) -> None:
    """The invariant: while the first is unknown, nothing else starts, whatever the handler catches (R11)."""
    lab.provider.fault("cut_after", action="publish")
    lab.worker("swallow")
    ref = lab.enqueue(kind, "r1", ref="r1")
    lab.wait(ref, semel.Delivery.BLOCKED)
    assert lab.acts("mail") == []
    assert [r for r in lab.provider.requests() if r.action == "mail"] == []
    swallowed = [line for _, line in lab.diary()]
    assert swallowed == ([] if kind == "swallows_exception" else ["swallowed Suspended", "second: Suspended"])
    lab.person(ref)
    assert lab.result(ref) == f"{lab.acts('publish')[0].id} {lab.acts('mail')[0].id}"
    lab.proved(ref, acts={"publish": 1, "mail": 1})


def test_a_person_answers_while_the_handler_still_lingers(lab: Lab) -> None:
    """The answer comes before the task is blocked: it must not wait for a second one, which nobody could give."""
    lab.provider.fault("cut_after", action="publish")
    lab.arm("swallowed")
    lab.worker("swallow")
    ref = lab.enqueue("swallows_everything", "r1", ref="r1")
    lab.arrived("swallowed")
    effect = lab.unknown(ref)
    lab.app.review.resolve(effect.key, semel.Confirmed(lab.acts("publish")[0].id), by="alice", seen=effect.version)
    lab.open("swallowed")
    assert lab.result(ref) == f"{lab.acts('publish')[0].id} {lab.acts('mail')[0].id}"
    assert [line for _, line in lab.diary()] == ["swallowed Suspended", "second: Suspended"]
    lab.proved(ref, acts={"publish": 1, "mail": 1})


@pytest.mark.parametrize("fault", ["cut_after", "cut_before"])
def test_another_tool_in_parallel_waits_while_one_is_unknown(lab: Lab, fault: str) -> None:
    """A branch of the handler that starts a second effect meanwhile is refused, and comes again later (the invariant)."""
    lab.provider.fault(fault, action="mail")  # type: ignore[arg-type]
    lab.provider.fault("error_before", action="mail", asks=True, times=2)
    lab.worker("parallel")
    ref = lab.enqueue("two_tools", "r1", ref="r1")
    until("the first is unknown", lambda: lab.events(ref, "lost"))
    lab.open("second")
    assert lab.result(ref) == [lab.acts("mail")[0].id, lab.acts("charge")[0].id]
    sent = [e.seq for e in lab.events(ref, "intended") if e.body["name"] == "acharge"]
    assert sent[0] > lab.events(ref, "found")[-1].seq
    lab.proved(ref, acts={"mail": 1, "charge": 1})

"""A worker is frozen (SIGSTOP) and loses its lease; another finishes its work; then it is woken (SIGCONT)."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from lab import Lab, until

import semel

FLAVOURS = [
    pytest.param("mail", "sync_work", id="lookup-sync"),
    pytest.param("mail", "async_work", id="lookup-async"),
    pytest.param("publish", "sync_work", id="ask-sync"),
    pytest.param("charge", "async_work", id="resend-async"),
]


@pytest.mark.parametrize(("action", "kind"), FLAVOURS)
def test_frozen_before_the_call_and_woken_after_the_second_finished(lab: Lab, action: str, kind: str) -> None:
    """The kernel has killed it at its local deadline: it wakes up to nothing (R16)."""
    lab.arm(f"before.{action}.1")
    first = lab.worker()
    ref = lab.enqueue(kind, "r1", action=action, ref="r1")
    assert lab.arrived(f"before.{action}.1") == first.pid
    first.freeze()
    lab.open(f"before.{action}.1")
    second = lab.worker()
    lab.settle(ref)
    first.wake()
    assert first.exit_code() == -signal.SIGKILL
    assert [act.pid for act in lab.acts()] == [second.pid]
    assert lab.requests_of(first.pid) == 0
    lab.proved(ref, acts={action: 1})


def test_frozen_before_the_call_without_the_watchdog_goes_to_a_person(make_lab: Callable[..., Lab]) -> None:
    """The control: nothing kills it, so its submission is unfenced, and a not_found is not believed of it (R4)."""
    lab = make_lab(CRASH_WATCHDOG="never")
    lab.arm("before.mail.1")
    first = lab.worker()
    ref = lab.enqueue("sync_work", "r1", action="mail", ref="r1")
    lab.arrived("before.mail.1")
    first.freeze()
    lab.open("before.mail.1")
    lab.worker()
    lab.wait(ref, semel.Delivery.BLOCKED)
    effect = lab.unknown(ref)
    assert lab.events(ref, "intended")[0].body["unfenced"] == "process"
    with pytest.raises(semel.Refused, match="process has stopped"):
        lab.app.review.resolve(effect.key, semel.NotFound(), by="alice", seen=effect.version)
    first.wake()  # as was feared: it acts
    until("the first has acted", lambda: lab.acts("mail"))
    assert lab.acts("mail")[0].pid == first.pid
    until("its answer is evidence, or it died of being fenced", lambda: not first.alive)
    assert lab.settle(ref) == lab.acts("mail")[0].id
    lab.proved(ref, acts={"mail": 1})


def test_frozen_without_the_watchdog_and_a_person_says_that_it_has_stopped(make_lab: Callable[..., Lab]) -> None:
    """The person ends the process, gives their word, and the work goes on."""
    lab = make_lab(CRASH_WATCHDOG="never")
    lab.arm("before.mail.1")
    first = lab.worker()
    ref = lab.enqueue("async_work", "r1", action="mail", ref="r1")
    lab.arrived("before.mail.1")
    first.freeze()
    lab.open("before.mail.1")
    second = lab.worker()
    lab.wait(ref, semel.Delivery.BLOCKED)
    first.kill()
    assert lab.person(ref, stopped=True) == "not_found"
    lab.result(ref)
    assert [act.pid for act in lab.acts()] == [second.pid]
    lab.proved(ref, acts={"mail": 1})


def test_frozen_before_the_call_without_the_watchdog_with_a_keyed_effect(make_lab: Callable[..., Lab]) -> None:
    """The control of strength: where the provider remembers the key, a zombie's call changes nothing."""
    lab = make_lab(CRASH_WATCHDOG="never")
    lab.arm("before.charge.1")
    first = lab.worker()
    ref = lab.enqueue("sync_work", "r1", action="charge", ref="r1")
    lab.arrived("before.charge.1")
    first.freeze()
    lab.open("before.charge.1")
    second = lab.worker()
    lab.result(ref)
    first.wake()
    until("the first has called too", lambda: lab.requests_of(first.pid))
    assert lab.acts("charge")[0].pid == second.pid
    lab.proved(ref, acts={"charge": 1})


@pytest.mark.long
@pytest.mark.parametrize("fault", ["late", "late_act"])
@pytest.mark.parametrize(("action", "kind"), FLAVOURS[:2])
def test_frozen_during_the_call(make_lab: Callable[..., Lab], action: str, kind: str, fault: str) -> None:
    """The provider acts at once, or when the sender is long dead."""
    lab = make_lab(CRASH_SETTLE="5")
    lab.provider.fault(fault, action=action, seconds=4)  # type: ignore[arg-type]
    first = lab.worker()
    ref = lab.enqueue(kind, "r1", action=action, ref="r1")
    lab.provider.wait_for_request(action, 1, 40)
    first.freeze()
    lab.worker()
    assert lab.settle(ref) == lab.acts(action)[0].id
    first.wake()
    assert first.exit_code() == -signal.SIGKILL
    assert lab.acts(action)[0].pid == first.pid
    lab.proved(ref, acts={action: 1})


def test_frozen_between_effects_is_killed_or_fenced_and_starts_nothing(lab: Lab) -> None:
    """No submission is under way, so no timer is armed: its next intent is refused, and it calls nothing."""
    lab.arm("recorded")
    first = lab.worker("many")
    ref = lab.enqueue("two_mails", "r1", ref="r1")
    lab.arrived("recorded")
    until("it is recorded", lambda: lab.events(ref, "confirmed"))
    first.freeze()
    lab.open("recorded")
    second = lab.worker("many")
    lab.result(ref)
    first.wake()
    assert first.exit_code() != 0
    assert [act.pid for act in lab.acts()] == [first.pid, second.pid]
    assert lab.requests_of(first.pid) == 1
    lab.proved(ref, acts={"mail": 2})

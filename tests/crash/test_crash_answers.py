"""The worker lives, and the provider's answer proves nothing: cut, 503, silence, or one that comes too late."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from lab import Lab, until

import semel

FLAVOURS = [
    pytest.param("charge", "sync_work", id="resend-sync"),
    pytest.param("charge", "async_work", id="resend-async"),
    pytest.param("mail", "sync_work", id="lookup-sync"),
    pytest.param("mail", "async_work", id="lookup-async"),
    pytest.param("publish", "async_work", id="ask-async"),
    pytest.param("store", "sync_work", id="conditional-sync"),
]


@pytest.mark.parametrize("fault", ["cut_after", "error_after"])
@pytest.mark.parametrize(("action", "kind"), FLAVOURS)
def test_no_answer_after_acting(lab: Lab, action: str, kind: str, fault: str) -> None:
    """The connection is cut, or the answer is a 503, and the provider has acted all the same."""
    lab.provider.fault(fault, action=action)  # type: ignore[arg-type]
    lab.worker()
    ref = lab.enqueue(kind, "r1", action=action, ref="r1")
    result = lab.settle(ref)
    (act,) = lab.acts(action)
    assert result == (act.name or act.id)
    assert len(lab.events(ref, "lost")) == 1
    lab.proved(ref, acts={action: 1})


@pytest.mark.parametrize("fault", ["cut_before", "error_before"])
@pytest.mark.parametrize(("action", "kind"), FLAVOURS)
def test_no_answer_before_acting(lab: Lab, action: str, kind: str, fault: str) -> None:
    """The same on the wire, but nothing was done: that must not be lost either."""
    lab.provider.fault(fault, action=action)  # type: ignore[arg-type]
    lab.worker()
    ref = lab.enqueue(kind, "r1", action=action, ref="r1")
    lab.settle(ref)
    assert len(lab.events(ref, "lost")) == 1
    lab.proved(ref, acts={action: 1})


@pytest.mark.parametrize("fault", ["cut_after", "cut_before"])
@pytest.mark.parametrize("action", ["charge", "store"])
def test_refused_connection_on_the_second_submission_leaves_the_first_unknown(lab: Lab, action: str, fault: str) -> None:
    """A refusal is proof of the submission that was refused, and of no other (R1)."""
    lab.provider.fault(fault, action=action)  # type: ignore[arg-type]
    lab.arm(f"before.{action}.2")
    lab.worker()
    ref = lab.enqueue("sync_work", "r1", action=action, ref="r1")
    lab.arrived(f"before.{action}.2")
    lab.provider.kill()
    lab.open(f"before.{action}.2")
    until("the second is disproved", lambda: [e for e in lab.events(ref, "disproved") if e.body["n"] == 2])
    (effect,) = lab.app.effects.list(task=ref)
    assert effect.state in ("ambiguous", "submitted")  # submitted: a third is under way already
    assert lab.events(ref, "lost")[0].body["n"] == 1
    assert lab.task(ref).delivery not in ("acknowledged", "dead_lettered")
    lab.restart_provider()
    lab.result(ref)
    assert {e.body["n"] for e in lab.events(ref, "disproved")}.isdisjoint({1})
    lab.proved(ref, acts={action: 1})


def test_a_sync_call_outlives_its_timeout_and_not_found_is_not_believed(lab: Lab) -> None:
    """Its thread can still act, so what the lookup does not find may come yet (R4)."""
    lab.provider.fault("late_act", action="slow", seconds=1.8)
    lab.worker("slow")
    ref = lab.enqueue("slow_work", "r1", ref="r1")
    until("the lookup has found nothing", lambda: [r for r in lab.provider.requests() if r.method == "GET"])
    assert lab.acts("slow") == []
    assert lab.result(ref) == lab.acts("slow")[0].id
    assert lab.events(ref, "lost")[0].body["ended"] is False
    assert [e for e in lab.events(ref, "found") if e.body["verdict"] == "not_found"] == []
    assert sum(1 for r in lab.provider.requests() if r.method == "POST") == 1
    lab.proved(ref, acts={"slow": 1})


def test_an_opaque_call_answers_after_its_timeout(lab: Lab) -> None:
    """A person was asked; but then the answer itself comes in, and is the better evidence (R2)."""
    lab.provider.fault("late", action="slow", seconds=1.8)
    lab.worker("slow")
    ref = lab.enqueue("slow_opaque_work", "r1", ref="r1")
    until("a person is asked", lambda: lab.events(ref, "blocked"))
    assert lab.result(ref) == lab.acts("slow")[0].id
    assert lab.events(ref, "lost")[0].body["ended"] is False
    lab.proved(ref, acts={"slow": 1})


@pytest.mark.long
def test_a_sync_call_outlives_its_timeout_by_a_ttl(make_lab: Callable[..., Lab]) -> None:
    """The beats stop, the kernel ends the worker; and the request that it left behind still acts once."""
    lab = make_lab(CRASH_SETTLE="5")
    lab.provider.fault("late_act", action="slow", seconds=7)
    first = lab.worker("slow")
    ref = lab.enqueue("slow_work", "r1", ref="r1")
    lab.provider.wait_for_request("slow", 1, 40)
    assert first.exit_code() == -signal.SIGKILL
    assert lab.acts("slow") == []
    lab.worker("slow")
    assert lab.result(ref) == lab.acts("slow")[0].id
    assert lab.acts("slow")[0].pid == first.pid
    lab.proved(ref, acts={"slow": 1})


@pytest.mark.long
def test_a_call_that_the_provider_never_answers(lab: Lab) -> None:
    """Silence: after the timeout the thread still waits, the beats stop, the worker dies, another one settles it."""
    lab.provider.fault("hang", action="slow")
    first = lab.worker("slow")
    ref = lab.enqueue("slow_work", "r1", ref="r1")
    assert first.exit_code() == -signal.SIGKILL
    second = lab.worker("slow")
    lab.result(ref)
    assert [act.pid for act in lab.acts()] == [second.pid]
    lab.proved(ref, acts={"slow": 1})


@pytest.mark.long
def test_a_lookup_that_cannot_be_asked_decides_nothing(lab: Lab) -> None:
    """Unknown, and the provider's reads answer 503 for a while: nobody guesses."""
    lab.provider.fault("error_after", action="mail")
    lab.provider.fault("error_before", action="mail", asks=True, times=3)
    lab.worker()
    ref = lab.enqueue("sync_work", "r1", action="mail", ref="r1")
    assert lab.result(ref) == lab.acts("mail")[0].id
    verdicts = [e.body["verdict"] for e in lab.events(ref, "found")]
    assert verdicts == ["unavailable"] * 3 + ["confirmed"]
    lab.proved(ref, acts={"mail": 1})


def test_an_unknown_effect_survives_its_worker_and_its_provider(lab: Lab) -> None:
    """Everything dies but the two records."""
    lab.provider.fault("late", action="mail", seconds=30)
    first = lab.worker()
    ref = lab.enqueue("async_work", "r1", action="mail", ref="r1")
    lab.provider.wait_for_request("mail", 1, 40)
    first.kill()
    lab.provider.kill()
    lab.worker()
    until("it is asked, in vain", lambda: [e for e in lab.events(ref, "found") if e.body["verdict"] == "unavailable"])
    assert lab.app.effects.list(state="ambiguous", task=ref)[0].state is semel.EffectState.AMBIGUOUS
    lab.restart_provider()
    assert lab.result(ref) == lab.acts("mail")[0].id
    lab.proved(ref, acts={"mail": 1})


@pytest.mark.parametrize("action", ["charge", "store"])
def test_a_provider_that_fails_for_long_is_asked_again_in_the_end(make_lab: Callable[..., Lab], action: str) -> None:
    """The waits outgrow what an attempt may wait in place: the task is given back meanwhile, and yet the time passes."""
    lab = make_lab(CRASH_HOLD="0.25")
    lab.provider.fault("error_before", action=action, times=5)
    lab.worker()
    ref = lab.enqueue("sync_work", "r1", action=action, ref="r1")
    lab.result(ref)
    assert len(lab.events(ref, "intended")) == 6
    assert lab.events(ref, "parked")
    lab.proved(ref, acts={action: 1})

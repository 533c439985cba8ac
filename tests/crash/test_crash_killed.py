"""A worker is killed: before the call, during it, after the effect and before its record, after the record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lab import Lab, until

import semel

# action: its manner at the provider, and so the recovery that its effect can declare
FLAVOURS = [
    pytest.param("charge", "async_work", id="resend-async"),
    pytest.param("mail", "sync_work", id="lookup-sync"),
    pytest.param("mail", "async_work", id="lookup-async"),
    pytest.param("publish", "sync_work", id="ask-sync"),
    pytest.param("store", "sync_work", id="conditional-sync"),
]


def goes_on(lab: Lab, ref: semel.Ref[Any], action: str) -> None:
    """Another worker comes, and in the end the world has changed once."""
    lab.worker()
    result = lab.settle(ref)
    (act,) = lab.acts(action)
    assert result == (act.name or act.id)
    lab.proved(ref, acts={action: 1})


@pytest.mark.parametrize(("action", "kind"), FLAVOURS)
def test_killed_before_the_call(lab: Lab, action: str, kind: str) -> None:
    lab.arm(f"before.{action}.1")
    first = lab.worker()
    ref = lab.enqueue(kind, "r1", action=action, ref="r1")
    assert lab.arrived(f"before.{action}.1") == first.pid
    assert lab.events(ref, "intended"), "the intent is durable before the call"
    first.kill()
    goes_on(lab, ref, action)
    assert lab.requests_of(first.pid) == 0
    told = [event.kind for event in lab.events(ref)]
    assert told[:6] == ["enqueued", "claimed", "intended", "lost", "lease_lost", "claimed"], (
        "lost in the change that ends it (R2)"
    )


@pytest.mark.parametrize("fault", ["late", "hang"], ids=["acted", "not_acted"])
@pytest.mark.parametrize(("action", "kind"), FLAVOURS)
def test_killed_during_the_call(lab: Lab, action: str, kind: str, fault: str) -> None:
    lab.provider.fault(fault, action=action, seconds=30)  # type: ignore[arg-type]
    first = lab.worker()
    ref = lab.enqueue(kind, "r1", action=action, ref="r1")
    lab.provider.wait_for_request(action, 1, 40)
    first.kill()
    assert len(lab.acts(action)) == (1 if fault == "late" else 0)
    goes_on(lab, ref, action)


@pytest.mark.long
@pytest.mark.parametrize("action", ["charge", "mail"])
def test_killed_during_the_call_and_the_provider_acts_later(make_lab: Callable[..., Lab], action: str) -> None:
    """The request outlives its sender: a resend meets 409, a lookup finds nothing until settle has almost gone."""
    lab = make_lab(CRASH_SETTLE="4")
    lab.provider.fault("late_act", action=action, seconds=2.5)
    first = lab.worker()
    ref = lab.enqueue("sync_work", "r1", action=action, ref="r1")
    lab.provider.wait_for_request(action, 1, 40)
    first.kill()
    assert lab.acts(action) == []
    goes_on(lab, ref, action)
    assert lab.acts(action)[0].pid == first.pid


@pytest.mark.parametrize(("action", "kind"), FLAVOURS)
def test_killed_after_the_effect_before_its_record(lab: Lab, action: str, kind: str) -> None:
    lab.arm(f"after.{action}.1")
    first = lab.worker()
    ref = lab.enqueue(kind, "r1", action=action, ref="r1")
    lab.arrived(f"after.{action}.1")
    first.kill()
    assert len(lab.acts(action)) == 1
    assert lab.events(ref, "confirmed") == []
    goes_on(lab, ref, action)
    assert lab.acts(action)[0].pid == first.pid


@pytest.mark.parametrize(("action", "kind"), FLAVOURS)
def test_killed_after_the_record(lab: Lab, action: str, kind: str) -> None:
    """Nothing is unknown, and nothing is sent again."""
    lab.arm("recorded")
    first = lab.worker()
    ref = lab.enqueue(kind, "r1", action=action, ref="r1")
    lab.arrived("recorded")
    until("it is recorded", lambda: lab.events(ref, "confirmed"))
    first.kill()
    goes_on(lab, ref, action)
    assert [(r.pid, r.method) for r in lab.provider.requests()] == [(first.pid, "PUT" if action == "store" else "POST")]

"""An effect's child process outlives its worker, or does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import Lab, until

import semel


def is_gone(pid: int) -> bool:
    """Whether a process can do nothing any more."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text[text.rindex(")") + 2] in "ZX"


def goes_to_a_person(lab: Lab, ref: semel.Ref[str]) -> semel.EffectView:
    """It is on record that a child was made, so nothing found is not believed (R4)."""
    lab.wait(ref, semel.Delivery.BLOCKED)
    assert [e.body["why"] for e in lab.events(ref, "unfenced")] == ["child"]
    effect = lab.unknown(ref)
    with pytest.raises(semel.Refused, match="process has stopped"):
        lab.app.review.resolve(effect.key, semel.NotFound(), by="alice", seen=effect.version)
    return effect


def test_under_the_supervisor_the_child_dies_with_its_worker(lab: Lab) -> None:
    lab.arm("child")
    supervisor = lab.worker("child", script="run_supervisor.py")
    ref = lab.enqueue("browse_work", "r1", ref="r1")
    child = lab.arrived("child")
    (worker,) = lab.sessions()
    assert worker not in (supervisor.pid, child)
    lab.kill_pid(worker)
    until("the child is dead too", lambda: is_gone(child))
    lab.open("child")
    goes_to_a_person(lab, ref)
    assert lab.acts("browse") == []
    assert lab.person(ref, stopped=True) == "not_found"
    kinds = [event.kind for event in lab.events(ref) if event.kind in ("answered", "watched", "found")]
    assert kinds == ["answered", "watched", "found"], "settle began with her word; then the lookup was asked again"
    assert lab.result(ref) == lab.acts("browse")[0].id
    assert lab.acts("browse")[0].pid != child
    lab.proved(ref, acts={"browse": 1})


def test_without_a_supervisor_the_child_acts_on_and_a_person_is_asked(lab: Lab) -> None:
    """The control: nothing ends the child, and so the record must say that it may act."""
    lab.arm("child")
    worker = lab.worker("child")
    ref = lab.enqueue("browse_work", "r1", ref="r1")
    child = lab.arrived("child")
    worker.kill()
    lab.worker("child")
    goes_to_a_person(lab, ref)
    assert not is_gone(child)
    lab.open("child")
    until("the child has acted", lambda: lab.acts("browse"))
    assert lab.acts("browse")[0].pid == child
    lab.person(ref)
    assert lab.result(ref) == lab.acts("browse")[0].id
    lab.proved(ref, acts={"browse": 1})

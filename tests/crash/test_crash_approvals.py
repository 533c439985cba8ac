"""Approvals with real processes and real kills: between the ask, the decision and the execution; on both stores.

Whatever is killed, what was approved is done once, in the words that were approved; no decision is lost, or counted twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from lab import Lab, until

import semel


def asked(lab: Lab, ref: semel.Ref[Any]) -> semel.EffectView:
    """Wait until the task's effect is asked for."""
    until("it is asked for", lambda: [e for e in lab.app.effects.list(task=ref) if e.why.startswith("waits")])
    (effect,) = lab.app.effects.list(task=ref)
    return effect


def approve(lab: Lab, effect: semel.EffectView, by: str = "ann") -> None:
    lab.app.review.approve(effect.key, by=by, seen=effect.version)


def done_as_approved(lab: Lab, ref: semel.Ref[Any], action: str, attempt: int = 1) -> None:
    """Once, in the words of the attempt that asked."""
    result = lab.result(ref)
    (act,) = lab.acts(action)
    assert (result, act.body["text"]) == (act.id, f"as attempt {attempt} says")
    assert len(lab.events(ref, "approved")) == 1
    lab.proved(ref, acts={action: 1})


@pytest.mark.parametrize(("action", "kind", "when"), [("charge", "charging", "early"), ("mail", "mailing", "late")])
def test_killed_after_the_ask_before_the_task_waits(lab: Lab, action: str, kind: str, when: str) -> None:
    """The decision comes while the asking worker still lives, or when it is dead."""
    lab.arm("asked")
    first = lab.worker("approve")
    ref = lab.enqueue(kind, "r1", ref="r1")
    lab.arrived("asked")
    effect = asked(lab, ref)
    if when == "early":
        approve(lab, effect)
    first.kill()
    if when == "late":
        approve(lab, effect)
    lab.worker("approve")
    done_as_approved(lab, ref, action)
    assert len(lab.events(ref, "drifted")) == 1 and lab.events(ref, "blocked") == []


@pytest.mark.parametrize(
    ("action", "kind", "moment"),
    [("charge", "charging", "before"), ("mail", "mailing", "after"), ("charge", "charging", "recorded")],
)
def test_killed_while_it_waits_and_again_while_it_is_sent(lab: Lab, action: str, kind: str, moment: str) -> None:
    first = lab.worker("approve")
    ref = lab.enqueue(kind, "r1", ref="r1")
    lab.wait(ref, semel.Delivery.BLOCKED)
    first.kill()
    gate = "recorded" if moment == "recorded" else f"{moment}.{action}.1"
    lab.arm(gate)
    approve(lab, asked(lab, ref))
    second = lab.worker("approve")
    lab.arrived(gate)
    second.kill()
    lab.worker("approve")
    done_as_approved(lab, ref, action)
    with pytest.raises(semel.Refused, match="stale_view"):
        lab.app.review.approve(lab.app.effects.list(task=ref)[0].key, by="bob")


def test_the_person_is_killed_while_deciding(lab: Lab) -> None:
    """Their command dies at some moment, again and again: the decision is there or it is not, and counts once."""
    lab.worker("approve")
    ref = lab.enqueue("charging", "r1", ref="r1")
    lab.wait(ref, semel.Delivery.BLOCKED)
    key = asked(lab, ref).key
    command = [sys.executable, "-m", "semel", "approve", key, "--by", "ann", "--yes"]
    for seconds in (0.5, 0.8, 60.0):
        person = subprocess.Popen(command, env={**os.environ, **lab.env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            person.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            person.kill()
            person.communicate()
    done_as_approved(lab, ref, "charge")


def test_two_people_decide_at_once(lab: Lab) -> None:
    """One of them is first, the other is told so: never both."""
    lab.worker("approve")
    refs = [lab.enqueue("charging", f"r{n}", ref=f"r{n}") for n in range(4)]
    for ref in refs:
        lab.wait(ref, semel.Delivery.BLOCKED)
    said: list[str] = []

    def decide(name: str, effect: semel.EffectView) -> None:
        try:
            lab.app.review.approve(effect.key, by=name, seen=effect.version)
            said.append(f"{effect.key} approved")
        except semel.Refused as refused:
            said.append(f"{effect.key} {refused.code}")

    effects = [asked(lab, ref) for ref in refs]
    threads = [threading.Thread(target=decide, args=(name, effect)) for effect in effects for name in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for effect in effects:  # in flight: the worker was quicker than the second of them (R3)
        first, other = sorted(line.split()[1] for line in said if line.startswith(effect.key))
        assert first == "approved" and other in ("stale_view", "in_flight")
    for ref in refs:
        lab.result(ref)
    lab.proved(*refs, acts={"charge": 4})


@pytest.mark.parametrize("when", ["early", "late"])
def test_one_decision_frees_every_task_that_waits_for_a_shared_key(lab: Lab, when: str) -> None:
    """The one that asked first is killed; the other still runs, or waits already, when the person decides."""
    lab.arm("asked")
    first = lab.worker("approve", concurrency=1)
    refs = [lab.enqueue("sharing", "t0", ref="one")]
    pid = lab.arrived("asked")
    lab.worker("approve", concurrency=1)
    refs.append(lab.enqueue("sharing", "t1", ref="one"))
    lab.wait(refs[1], semel.Delivery.BLOCKED)
    (effect,) = lab.app.review.pending()
    assert pid == first.pid
    if when == "early":
        approve(lab, effect)
    first.kill()
    if when == "late":
        approve(lab, effect)
    assert [lab.result(ref) for ref in refs] == [lab.acts("charge")[0].id] * 2
    assert lab.acts("charge")[0].body["text"] == "as attempt 1 says"
    lab.proved(*refs, acts={"charge": 1})


def test_denied_while_its_worker_is_killed(lab: Lab) -> None:
    lab.arm("asked")
    first = lab.worker("approve")
    ref = lab.enqueue("charging", "r1", ref="r1")
    lab.arrived("asked")
    lab.app.review.deny(asked(lab, ref).key, by="ann", reason="too much")
    first.kill()
    lab.worker("approve")
    assert lab.wait(ref, semel.Delivery.DEAD_LETTERED).why.endswith("Refused: denied: ann denied approved_charge: too much")
    lab.proved(ref, acts={})

"""A tenant-scoped effect: tasks of several processes race for one key (R8)."""

from __future__ import annotations

import signal

import pytest
from lab import Lab, until


@pytest.mark.parametrize("action", ["charge", "mail"])
def test_two_tasks_in_two_processes_race_for_one_key(lab: Lab, action: str) -> None:
    """One act, and both have its result."""
    lab.worker("shared", concurrency=1)
    lab.worker("shared", concurrency=1)
    until("both are there", lambda: len(lab.sessions()) == 2)
    refs = [lab.enqueue("shared_work", f"t{n}", action=action, ref="one") for n in range(2)]
    assert [lab.result(ref) for ref in refs] == [lab.acts(action)[0].id] * 2
    lab.proved(*refs, acts={action: 1})


def test_many_tasks_in_three_processes_race_for_one_key(lab: Lab) -> None:
    for _ in range(3):
        lab.worker("shared", concurrency=4)
    until("all are there", lambda: len(lab.sessions()) == 3)
    refs = [lab.enqueue("shared_work", f"t{n}", action="mail", ref="one") for n in range(12)]
    assert [lab.result(ref) for ref in refs] == [lab.acts("mail")[0].id] * 12
    lab.proved(*refs, acts={"mail": 1})


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("action", ["charge", "mail"])
def test_the_first_is_killed_in_mid_call_while_the_second_waits(lab: Lab, action: str, moment: str) -> None:
    lab.arm(f"{moment}.{action}.1")
    first = lab.worker("shared", concurrency=1)
    refs = [lab.enqueue("shared_work", "t0", action=action, ref="one")]
    lab.arrived(f"{moment}.{action}.1")
    lab.worker("shared", concurrency=1)
    refs.append(lab.enqueue("shared_work", "t1", action=action, ref="one"))
    until("the second waits for the first", lambda: lab.events(refs[1], "parked"))
    first.kill()
    assert [lab.result(ref) for ref in refs] == [lab.acts(action)[0].id] * 2
    assert (lab.acts(action)[0].pid == first.pid) == (moment == "after")
    lab.proved(*refs, acts={action: 1})


def test_the_first_is_frozen_before_its_call_and_woken_when_all_is_done(lab: Lab) -> None:
    lab.arm("before.mail.1")
    first = lab.worker("shared", concurrency=1)
    refs = [lab.enqueue("shared_work", "t0", action="mail", ref="one")]
    lab.arrived("before.mail.1")
    first.freeze()
    lab.open("before.mail.1")
    second = lab.worker("shared", concurrency=1)
    refs.append(lab.enqueue("shared_work", "t1", action="mail", ref="one"))
    assert [lab.result(ref) for ref in refs] == [lab.acts("mail")[0].id] * 2
    first.wake()
    assert first.exit_code() == -signal.SIGKILL
    assert [act.pid for act in lab.acts()] == [second.pid]
    lab.proved(*refs, acts={"mail": 1})


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_person_answers_for_a_key_that_two_tasks_need(lab: Lab, moment: str) -> None:
    """Opaque, and its owner is killed: the owner's task waits for a person, the other for the owner."""
    lab.arm(f"{moment}.publish.1")
    first = lab.worker("shared", concurrency=1)
    refs = [lab.enqueue("shared_work", "t0", action="publish", ref="one")]
    lab.arrived(f"{moment}.publish.1")
    lab.worker("shared", concurrency=1)
    refs.append(lab.enqueue("shared_work", "t1", action="publish", ref="one"))
    until("the second waits for the first", lambda: lab.events(refs[1], "parked"))
    first.kill()
    lab.person(refs[0], "publish")
    assert [lab.result(ref) for ref in refs] == [lab.acts("publish")[0].id] * 2
    lab.proved(*refs, acts={"publish": 1})


def test_who_swallows_that_another_task_has_it_in_hand_starts_nothing_more(lab: Lab) -> None:
    """Nothing of its own is unknown, and yet its attempt is over (R11)."""
    lab.arm("before.charge.1")
    lab.worker("shared", concurrency=1)
    refs = [lab.enqueue("shared_work", "t0", action="charge", ref="one")]
    lab.arrived("before.charge.1")
    lab.worker("shared", concurrency=1)
    refs.append(lab.enqueue("shared_swallowing", "t1", ref="one"))
    until("it has swallowed twice", lambda: len(lab.diary()) >= 2)
    assert lab.acts("mail") == []
    lab.open("before.charge.1")
    assert lab.result(refs[1]) == f"{lab.acts('charge')[0].id} {lab.acts('mail')[0].id}"
    assert lab.result(refs[0]) == lab.acts("charge")[0].id
    assert {line for _, line in lab.diary()} == {"swallowed Suspended"}
    lab.proved(*refs, acts={"charge": 1, "mail": 1})

"""The store itself: replaced by an older copy, or locked by somebody else."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from lab import Lab, until


@pytest.mark.only("sqlite")
def test_the_store_file_is_replaced_by_an_older_copy(lab: Lab) -> None:
    """The worker notices that the path names another file, fences itself, and does nothing more (R15)."""
    runtime = lab.app.runtime
    runtime.desk.store.permit_ttl(2000)
    runtime.witness.known(runtime.desk.store.info)
    first = lab.worker("many")
    ref = lab.enqueue("many_charges", "r1", ref="r1", count=40)
    until("it is at it", lambda: len(lab.acts("charge")) >= 3)
    lab.copy_store("old.db")
    at_the_copy = len(lab.acts("charge"))
    until("it has gone on", lambda: len(lab.acts("charge")) >= at_the_copy + 3)
    lab.put_store("old.db")
    replaced = time.time()
    assert first.exit_code() == 1
    first.says("is fenced")
    assert [act.at - replaced for act in lab.acts("charge") if act.at > replaced + 2.0] == []
    done = len(lab.acts("charge"))
    assert done < 40, "it must be stopped in the middle, or this shows nothing"
    second = lab.worker("many")
    assert lab.result(ref) == 40
    assert {act.pid for act in lab.acts("charge")[done:]} == {second.pid}
    lab.proved(ref, acts={"charge": 40})  # keyed: what the old copy had forgotten was sent again, and changed nothing


@pytest.mark.parametrize("kind", ["sync_work", "async_work"])
def test_an_idle_worker_survives_a_store_that_is_locked_for_three_seconds(lab: Lab, kind: str) -> None:
    """Longer than its lease: it may start nothing meanwhile, but it is nobody's zombie, and goes on."""
    first = lab.worker()
    until("it has come in", lab.sessions)
    locker = lab.lock_store(3.0)
    ref = lab.enqueue(kind, "r1", action="mail", ref="r1")
    assert locker.wait(40) == 0
    lab.result(ref)
    assert first.alive
    lab.proved(ref, acts={"mail": 1})


@pytest.mark.parametrize("kind", ["sync_work", "async_work"])
def test_a_worker_in_the_middle_of_a_call_survives_a_lock_shorter_than_its_lease(make_lab: Callable[..., Lab], kind: str) -> None:
    lab = make_lab(CRASH_LEASE="15")
    lab.arm("before.mail.1")
    first = lab.worker()
    ref = lab.enqueue(kind, "r1", action="mail", ref="r1")
    lab.arrived("before.mail.1")
    locker = lab.lock_store(3.0)
    lab.open("before.mail.1")
    until("it has acted while the store was locked", lambda: lab.acts("mail"))
    assert locker.poll() is None
    assert locker.wait(40) == 0
    lab.result(ref)
    assert first.alive
    assert lab.task(ref).attempt == 1
    lab.proved(ref, acts={"mail": 1})


def test_a_worker_in_the_middle_of_a_call_dies_of_a_lock_longer_than_its_lease(lab: Lab) -> None:
    """It could not say that it lives, so its call may not go on: the kernel ends it, and the next one settles it."""
    lab.arm("before.mail.1")
    first = lab.worker()
    ref = lab.enqueue("sync_work", "r1", action="mail", ref="r1")
    lab.arrived("before.mail.1")
    locker = lab.lock_store(4.0)
    assert first.exit_code() == -9
    assert locker.poll() is None
    second = lab.worker()
    lab.result(ref)
    assert [act.pid for act in lab.acts()] == [second.pid]
    lab.proved(ref, acts={"mail": 1})

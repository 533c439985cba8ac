"""Workers come and go: told to stop, killed by a task of their own, fed by many at once."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from lab import Lab, as_json, until

import semel


@pytest.mark.parametrize("workers", [1, 3])
def test_duplicate_enqueue_from_eight_processes_at_once(lab: Lab, workers: int) -> None:
    """One task, one effect."""
    for _ in range(workers):
        lab.worker()
    arguments = as_json({"action": "mail", "ref": "r1"})
    callers = [lab.start(str(lab.apps / "run_enqueue.py"), "agent", "sync_work", arguments, str(n)) for n in range(8)]
    until("all are ready", lambda: len(list(lab.room.glob("ready.*"))) == 8)
    lab.open("enqueue")
    tasks = {caller.communicate(timeout=40)[0].strip() for caller in callers}
    assert len(tasks) == 1
    assert [caller.returncode for caller in callers] == [0] * 8
    ref = lab.app.tasks.get(tasks.pop()).ref
    lab.result(ref)
    assert len(lab.app.tasks.list()) == 1
    lab.proved(ref, acts={"mail": 1})


def test_sigterm_drains_and_leaves_the_rest(make_lab: Callable[..., Lab]) -> None:
    """What runs is finished; what waits is not claimed any more; another worker does it."""
    lab = make_lab(CRASH_LEASE="10")
    lab.arm("before.mail.1")
    first = lab.worker(concurrency=1)
    running = lab.enqueue("async_work", "r0", action="mail", ref="r0")
    lab.arrived("before.mail.1")
    waiting = [lab.enqueue("sync_work", f"r{n}", action="mail", ref=f"r{n}") for n in range(1, 4)]
    first.signal(signal.SIGTERM)
    first.says("stopping")
    lab.open("before.mail.1")
    assert first.exit_code() == 0
    assert lab.result(running) == lab.acts("mail")[0].id
    assert [lab.task(ref).attempt for ref in waiting] == [0, 0, 0]
    lab.worker()
    for ref in waiting:
        lab.result(ref)
    lab.proved(running, *waiting, acts={"mail": 4})


@pytest.mark.parametrize(("action", "kind"), [("mail", "sync_work"), ("publish", "sync_work"), ("mail", "async_work")])
def test_sigterm_gives_back_what_it_cannot_finish(make_lab: Callable[..., Lab], action: str, kind: str) -> None:
    """The grace is over and the code still runs: the task goes back, what was submitted is unknown."""
    lab = make_lab(CRASH_GRACE="0.5", CRASH_LEASE="10")
    lab.arm(f"before.{action}.1")
    first = lab.worker()
    ref = lab.enqueue(kind, "r1", action=action, ref="r1")
    lab.arrived(f"before.{action}.1")
    first.signal(signal.SIGTERM)
    assert first.exit_code() == 0
    assert lab.task(ref).delivery == "queued"
    assert lab.events(ref, "parked")
    second = lab.worker()
    lab.settle(ref)
    assert [act.pid for act in lab.acts()] == [second.pid]
    assert lab.task(ref).crashes == 0
    lab.proved(ref, acts={action: 1})


@pytest.mark.parametrize(("action", "kind"), [("mail", "async_work"), ("charge", "sync_work")])
def test_a_second_sigterm_stops_at_once(make_lab: Callable[..., Lab], action: str, kind: str) -> None:
    """Nothing is waited for, and the task goes on elsewhere."""
    lab = make_lab(CRASH_LEASE="10")
    lab.provider.fault("late", action=action, seconds=30)
    first = lab.worker()
    ref = lab.enqueue(kind, "r1", action=action, ref="r1")
    lab.provider.wait_for_request(action, 1, 40)
    first.signal(signal.SIGTERM)
    first.says("stopping")
    assert first.alive
    first.signal(signal.SIGTERM)
    assert first.exit_code() == 130
    lab.worker()
    assert lab.result(ref) == lab.acts(action)[0].id
    lab.proved(ref, acts={action: 1})


def test_poison_is_dead_lettered_alone_and_its_neighbours_finish(lab: Lab) -> None:
    """It kills its worker each time; the last time it runs alone, since a kill takes its neighbours along."""
    neighbours = [lab.enqueue("slow_charge", f"n{n}", ref=f"n{n}") for n in range(6)]
    poison = lab.enqueue("poison", "p", ref="p")
    neighbours += [lab.enqueue("slow_charge", f"n{n}", ref=f"n{n}") for n in range(6, 12)]
    everybody = [poison, *neighbours]

    def over() -> bool:
        if not any(worker.alive for worker in lab.workers):
            lab.worker("many", concurrency=4)
        return all(lab.task(ref).delivery in ("acknowledged", "dead_lettered") for ref in everybody)

    until("all have ended", over, 60)
    state = lab.task(poison)
    assert (state.delivery, state.crashes) == ("dead_lettered", 3)
    assert "the last time alone" in state.why
    assert [line for _, line in lab.diary() if line.startswith("poison")] == ["poison 1", "poison 2", "poison 3"]
    assert lab.running_beside("poison 3") == set()
    for ref in neighbours:
        lab.result(ref)
    lab.proved(*everybody, acts={"charge": 12})
    assert lab.app.tasks.list(delivery=semel.Delivery.DEAD_LETTERED)[0].id == poison.id


@pytest.mark.long
def test_poison_in_an_effect_is_settled_before_it_is_dead_lettered(lab: Lab) -> None:
    """Each death leaves an unknown behind: the last attempt only reconciles, and does not run the handler again."""
    ref = lab.enqueue("poisoned_effect", "p", ref="p")

    def over() -> bool:
        if not any(worker.alive for worker in lab.workers):
            lab.worker("many")
        return lab.task(ref).delivery == "dead_lettered"

    until("it is dead-lettered", over, 60)
    assert len(lab.diary()) == 3
    assert [e.body["verdict"] for e in lab.events(ref, "found")] == ["not_found"] * 3
    assert lab.task(ref).crashes == 3
    lab.proved(ref, acts={})

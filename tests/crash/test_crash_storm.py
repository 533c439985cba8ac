"""All of it at once: workers killed, frozen, woken and stopped at random, a provider that answers badly, a person at work."""

from __future__ import annotations

import random
import signal
import time

import pytest
from lab import ENDED, Lab, Worker

ACTIONS = {
    "charge": ("sync_work", "async_work"),
    "mail": ("sync_work", "async_work"),
    "publish": ("async_work",),
    "store": ("sync_work",),
}
TASKS = 24
SECONDS = 8.0


def one_blow(lab: Lab, chance: random.Random, frozen: list[tuple[Worker, float]]) -> None:
    """Something happens to a worker; a dead one is replaced."""
    for worker, until in list(frozen):
        if time.monotonic() > until:
            frozen.remove((worker, until))
            worker.wake()
    asleep = [worker for worker, _ in frozen]
    awake = [worker for worker in lab.workers if worker.alive and worker not in asleep]
    if len(awake) < 2:
        lab.worker(concurrency=8)
        return
    victim = chance.choice(awake)
    how = chance.random()
    if how < 0.4:
        victim.kill()
    elif how < 0.8:
        victim.signal(signal.SIGSTOP)
        frozen.append((victim, time.monotonic() + chance.uniform(0.1, 4.0)))
    else:
        victim.signal(signal.SIGTERM)


@pytest.mark.parametrize("seed", [1])
def test_a_storm(lab: Lab, seed: int, request: pytest.FixtureRequest) -> None:
    """Every task ends done, with one act each, whatever happened on the way."""
    chance = random.Random(seed * 1000 + request.node.callspec.params.get("crash_round", 0))
    for kind in ("cut_after", "error_after", "cut_before", "error_before"):
        lab.provider.fault(kind, probability=0.06, times=1000, seed=seed)
    refs = []
    for n in range(TASKS):
        action = chance.choice(sorted(ACTIONS))
        refs.append(lab.enqueue(chance.choice(ACTIONS[action]), f"r{n}", action=action, ref=f"r{n}"))
    frozen: list[tuple[Worker, float]] = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and not all(lab.task(ref).delivery in ENDED for ref in refs):
        one_blow(lab, chance, frozen)
        lab.a_person_passes()
        time.sleep(chance.uniform(0.1, 0.5))  # the rhythm of the blows
    for worker, _ in frozen:
        worker.wake()
    lab.worker(concurrency=8)
    patience = time.monotonic() + 60
    while not all(lab.task(ref).delivery in ENDED for ref in refs):
        assert time.monotonic() < patience, [lab.task(ref) for ref in refs if lab.task(ref).delivery not in ENDED]
        lab.a_person_passes()
        time.sleep(0.05)
    for ref in refs:
        lab.result(ref)
    assert sorted(act.body["ref"] for act in lab.acts()) == sorted(f"r{n}" for n in range(TASKS))
    lab.proved(*refs, acts={action: len(lab.acts(action)) for action in {a.action for a in lab.acts()}})

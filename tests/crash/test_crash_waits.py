"""Signals that come early, twice, and in the middle of a kill: each counts once, and none is lost."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest
from lab import ENDED, Lab, until

import semel


def test_a_signal_finds_the_task_when_every_process_has_died(lab: Lab) -> None:
    first = lab.worker("waiter")
    ref = lab.enqueue("sell", "r1", ref="r1", nap=0.3)
    lab.wait(ref, semel.Delivery.BLOCKED)
    first.kill()
    lab.app.signal(ref, "paid", "first")
    lab.app.signal(ref, "paid", "second")
    lab.worker("waiter")
    assert lab.result(ref) == "first"
    lab.proved(ref, acts={"offer": 1, "ship": 1})
    assert len(lab.events(ref, "signalled")) == 1


@pytest.mark.parametrize("dies", [False, True])
def test_a_signal_that_comes_before_the_task_waits(lab: Lab, dies: bool) -> None:
    """The attempt knows nothing of it: its block is decided again on what is there by then."""
    lab.arm("wait")
    first = lab.worker("waiter")
    ref = lab.enqueue("sell", "r1", ref="r1", nap=0)
    lab.arrived("wait")
    lab.app.signal(ref, "paid", "early")
    if dies:
        first.kill()
        lab.worker("waiter")
    lab.open("wait")
    assert lab.result(ref) == "early"
    lab.proved(ref, acts={"offer": 1, "ship": 1})


def test_signals_rain_while_workers_die(lab: Lab) -> None:
    """Twelve tasks, told by two at once, again and again, while their workers are killed at moments of chance."""
    dice = random.Random(7)
    refs = [lab.enqueue("sell", f"r{n}", ref=f"r{n}", nap=dice.choice((0, 0.2))) for n in range(12)]
    stop = threading.Event()

    def tells(name: str) -> None:
        own = lab.open_app()
        while not stop.is_set():
            ref = dice.choice(refs)
            try:
                own.signal(ref, "paid", name)
            except semel.Refused as error:
                assert error.code == "stale_view"  # it has ended
            time.sleep(0.01)
        own.close()

    tellers = [threading.Thread(target=tells, args=(name,)) for name in ("ann", "bob")]
    for teller in tellers:
        teller.start()
    try:
        for _ in range(4):
            worker = lab.worker("waiter")
            time.sleep(dice.uniform(0.3, 1.2))
            worker.kill()
        lab.worker("waiter")
        until("all have ended", lambda: all(lab.task(ref).delivery in ENDED for ref in refs))
    finally:
        stop.set()
        for teller in tellers:
            teller.join()
    lab.proved(*refs, acts={"offer": 12, "ship": 12})
    shipped = Counter(act.body["ref"] for act in lab.acts("ship"))
    assert set(shipped.values()) == {1}
    for ref in refs:
        (told,) = lab.events(ref, "signalled")
        assert lab.result(ref) == told.body["payload"]

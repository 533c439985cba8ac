"""R16: the kernel fences the effect. Real processes, real signals."""

from __future__ import annotations

import json
import math
import signal
import threading
from collections.abc import Iterator

import pytest
from watchdog_lab import can_unshare, run

from semel.errors import Misuse
from semel.watchdog import Watchdog, boottime

needs_timer = pytest.mark.skipif(not Watchdog(True).available, reason="no CLOCK_BOOTTIME timers here")
KILLED = -signal.SIGKILL


@needs_timer
def test_a_process_frozen_past_its_deadline_never_acts_again() -> None:
    assert run("timer.py", "frozen", "enabled") == [{"said": "", "code": KILLED}] * 20


def test_without_the_watchdog_it_does() -> None:
    """The control: shows that the test above can fail."""
    assert run("timer.py", "frozen", "disabled") == [{"said": "WROTE", "code": 0}] * 20


@needs_timer
def test_armed_after_its_deadline_it_kills_before_the_call() -> None:
    assert run("timer.py", "late", "enabled") == [{"said": "", "code": KILLED}] * 40
    assert run("timer.py", "late", "disabled") == [{"said": "WROTE", "code": 0}] * 40


@needs_timer
def test_leave_disarms_and_extend_moves() -> None:
    seen = run("timer.py", "counts")
    assert seen["left"] == {"said": "alive", "code": KILLED}
    assert seen["one_left"] == {"said": "", "code": KILLED}
    assert seen["later_then_earlier"] == {"said": "alive", "code": KILLED}
    assert seen["extended_while_idle"] == {"said": "alive", "code": 0}


@needs_timer
def test_a_fork_voids_the_child() -> None:
    seen = run("timer.py", "forked")
    assert seen["code"] == KILLED
    facts = json.loads(seen["said"])  # the child's, said half a second after its parent was killed
    assert facts["before"] == [True, False, False, False, False, True]
    assert facts["after"] == [False, False, True]
    assert facts["own"] == [True, True, False]  # one that it makes for a session of its own is good


@needs_timer
@pytest.mark.skipif(not can_unshare(), reason="no PID namespaces for us here")
def test_the_first_process_of_a_namespace_cannot_be_killed_and_knows_it() -> None:
    seen = run("timer.py", "first_process", prefix=("unshare", "-pf"))
    assert seen == {"pid": 1, "available": False, "naive_armed": True, "survived": True}


@pytest.fixture
def dog() -> Iterator[Watchdog]:
    dog = Watchdog(True)
    yield dog
    while dog.running:
        dog.leave()
    dog.close()


@needs_timer
def test_counting(dog: Watchdog) -> None:
    dog.extend(boottime() + 60)
    assert (dog.armed, dog.running) == (False, 0)
    dog.enter()
    dog.enter()
    assert (dog.armed, dog.running, dog.check()) == (True, 2, True)
    with pytest.raises(Misuse, match="still running"):
        dog.close()
    dog.leave()
    assert dog.armed
    dog.leave()
    assert (dog.armed, dog.running) == (False, 0)
    with pytest.raises(Misuse, match="without its enter"):
        dog.leave()


@needs_timer
def test_no_deadline_no_effect(dog: Watchdog) -> None:
    assert not dog.check()
    assert dog.fenced()
    with pytest.raises(Misuse, match="no deadline"):
        dog.enter()
    assert (dog.armed, dog.running) == (False, 0)


@pytest.mark.parametrize("deadline", [math.nan, math.inf, -math.inf])
def test_a_deadline_is_a_number(dog: Watchdog, deadline: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        dog.extend(deadline)


@needs_timer
def test_a_far_deadline_does_not_wrap_round(dog: Watchdog) -> None:
    dog.extend(1e300)
    dog.enter()
    assert dog.armed


def test_fenced_and_check_compare_with_the_clock() -> None:
    dog = Watchdog(False)
    dog.extend(boottime() + 10)
    assert dog.check()
    assert not dog.fenced()
    assert not dog.fenced(margin=1)
    assert dog.fenced(margin=20)
    dog.extend(boottime() - 0.001)
    assert not dog.check()
    assert dog.fenced()


def test_disabled_it_only_counts() -> None:
    dog = Watchdog(False)
    dog.enter()
    assert (dog.running, dog.armed, dog.active) == (1, False, False)
    dog.leave()
    dog.close()


@needs_timer
def test_a_kernel_that_refuses_the_timer_stops_the_effect(dog: Watchdog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(11, "timer_create: no room")

    monkeypatch.setattr("semel.watchdog._create_timer", refuse)
    dog.extend(boottime() + 60)
    with pytest.raises(OSError, match="no room"):
        dog.enter()
    assert (dog.armed, dog.running) == (False, 0)


@needs_timer
def test_an_exception_between_arming_and_counting_leaves_it_safe(dog: Watchdog) -> None:
    """Ctrl-C right after the system call: still set, so the beats must go on moving it."""
    dog.extend(boottime() + 60)
    real, calls = dog._settime, []

    def interrupted(*args: object) -> int:
        calls.append(args)
        result: int = real(*args)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return result

    dog._settime = interrupted
    with pytest.raises(KeyboardInterrupt):
        dog.enter()
    assert (dog.armed, dog.running) == (False, 0)
    dog.extend(boottime() + 61)
    assert dog.armed
    dog.enter()
    dog.leave()
    assert not dog.armed
    dog.extend(boottime() + 62)
    assert len(calls) == 3  # armed (cut short), extended, disarmed; idle, it is not set again


@needs_timer
def test_many_threads_end_disarmed(dog: Watchdog) -> None:
    dog.extend(boottime() + 60)
    unarmed = []

    def work() -> None:
        for _ in range(500):
            dog.enter()
            if not dog.armed:
                unarmed.append(1)
            dog.extend(boottime() + 60)
            dog.leave()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (dog.running, dog.armed, unarmed) == (0, False, [])

"""Scenarios of the kernel timer. Each prints what its processes said and how they ended."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from watchdog_lab import Forked

from semel.watchdog import Watchdog, boottime

Say = Callable[[bytes], None]


def frozen(enabled: str) -> list[dict[str, object]]:
    """Stopped before the deadline and continued after it. Twenty at once, all through the same moment."""

    def work(say: Say) -> None:
        dog = Watchdog(enabled == "enabled")
        dog.extend(boottime() + 1.0)
        dog.enter()
        assert dog.check()
        say(b"a")
        while boottime() < dog.deadline:
            time.sleep(0.005)
        say(b"WROTE")

    children = [Forked(work) for _ in range(20)]
    for child in children:
        assert child.read() == b"a"
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    time.sleep(1.2)
    for child in children:
        os.kill(child.pid, signal.SIGCONT)
    return [child.end() for child in children]


def late(enabled: str) -> list[dict[str, object]]:
    """The deadline is past when the timer is armed: in the thread that arms, and with others ready to write."""

    def work(say: Say) -> None:
        dog = Watchdog(enabled == "enabled")
        dog.extend(boottime() - 1.0)
        dog.enter()
        say(b"WROTE")

    def work_in_thread(say: Say) -> None:
        dog = Watchdog(enabled == "enabled")
        dog.extend(0.0)  # as a timer's value this would disarm

        def thread() -> None:
            dog.enter()
            say(b"WROTE")

        other = threading.Thread(target=thread)
        other.start()
        other.join()

    return [child.end() for child in [Forked(body) for body in (work, work_in_thread) for _ in range(20)]]


def counts() -> dict[str, object]:
    """leave() disarms when the last one leaves, and not before; extend() moves an armed timer both ways."""

    def left(say: Say) -> None:
        dog = Watchdog(True)
        dog.extend(boottime() + 0.3)
        for step in (dog.enter, dog.enter, dog.leave, dog.leave):
            step()
        assert not dog.armed
        time.sleep(0.6)
        say(b"alive")
        dog.enter()  # and the next one is covered again
        say(b"WROTE")

    def one_left(say: Say) -> None:
        dog = Watchdog(True)
        dog.extend(boottime() + 0.3)
        for step in (dog.enter, dog.enter, dog.leave):
            step()
        assert dog.armed
        time.sleep(5)
        say(b"WROTE")

    def later_then_earlier(say: Say) -> None:
        dog = Watchdog(True)
        dog.extend(boottime() + 0.3)
        dog.enter()
        dog.extend(boottime() + 30)
        time.sleep(0.6)
        say(b"alive")
        dog.extend(boottime() + 0.1)
        time.sleep(5)
        say(b"WROTE")

    def extended_while_idle(say: Say) -> None:
        dog = Watchdog(True)
        dog.extend(boottime() + 30)
        dog.enter()
        dog.leave()
        dog.extend(boottime() + 0.1)
        time.sleep(0.3)
        say(b"alive")

    bodies = (left, one_left, later_then_earlier, extended_while_idle)
    return {name: child.end() for name, child in [(body.__name__, Forked(body)) for body in bodies]}


def forked() -> dict[str, object]:
    """A forked child has no timer and no session; its parent's fate is its own."""

    def parent(say: Say) -> None:
        dog = Watchdog(True)
        dog.extend(boottime() + 0.5)
        dog.enter()
        held = threading.Event()

        def hold() -> None:  # the lock is in another thread's hands at the fork
            with dog._lock:
                held.set()
                time.sleep(0.2)

        threading.Thread(target=hold).start()
        held.wait()
        if os.fork() == 0:
            facts = {
                "before": [dog.voided, dog.available, dog.active, dog.armed, dog.check(), dog.fenced()],
                "pid_differs": os.getpid() != dog._pid,
            }
            for step in (dog.enter, dog.leave, dog.leave, dog.leave):
                step()
            dog.extend(boottime() + 60)
            facts["after"] = [dog.armed, dog.check(), dog.fenced()]
            own = Watchdog(True)
            own.extend(boottime() + 60)
            own.enter()
            facts["own"] = [own.armed, own.check(), own.fenced()]
            time.sleep(1.0)
            say(json.dumps(facts).encode())
            os._exit(0)
        time.sleep(5)
        say(b"WROTE")

    return Forked(parent).end()


def first_process() -> dict[str, object]:
    """Run as PID 1 of a namespace."""
    honest = Watchdog(True)
    # What would happen if we did not know: claim that it is available, and arm it in the past
    naive = Watchdog(True)
    naive.available = naive.active = True
    from semel.watchdog import _libc

    naive._settime = _libc().timer_settime
    naive.extend(boottime() - 1)
    naive.enter()
    time.sleep(0.3)
    return {"pid": os.getpid(), "available": honest.available, "naive_armed": naive.armed, "survived": True}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))

"""Virtual time, and threads that are none: every thread of every simulated process is a greenlet, and a seed chooses who runs.

The shipped code blocks as it always does (locks, conditions, sleeps, event loops); here that hands the processor to another
*lane*. Nothing else switches, and no clock of the machine is asked, so one seed is one history, in any process.
"""

from __future__ import annotations

import asyncio
import heapq
import threading as real
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import greenlet

STEPS = 80_000  # of one seed: more is code that spins


class Over(BaseException):
    """The world has ended, or this process has: its lanes are unwound, and can reach nothing any more."""


class Spinning(AssertionError):
    """Something runs and runs, and no time passes, or much too often."""


class Proc:
    """A process: the lanes in it run, wait, are frozen, or are dead."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frozen = self.dead = False
        self.parked: list[Lane] = []
        self.lanes: list[Lane] = []


class Lane:
    """A thread of a process."""

    __slots__ = ("done", "green", "loop", "name", "number", "proc", "thread", "waiters", "waiting", "woken")

    def __init__(self, proc: Proc, name: str, target: Callable[[], object], hub: Any) -> None:
        self.proc, self.name = proc, name
        self.green = greenlet.greenlet(target, hub)
        self.number = 0  # of its waits, so that an old timer wakes nobody
        self.waiting, self.woken, self.done = False, False, False
        self.loop: Any = None  # the event loop that runs in it
        self.waiters: list[Lane] = []
        self.thread: Any = self  # what `current_thread` says


class Sim:
    """One world's clock and scheduler. The hub is whoever called `run`."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.lane: Lane | None = None
        self.steps = self._seq = 0
        self.over = False
        self._ready: list[Lane] = []
        self._timers: list[tuple[float, int, Any, int]] = []
        self._hub = greenlet.getcurrent()
        self._all: list[Lane] = []
        self.failed: list[BaseException] = []

    # --- lanes ---

    def spawn(self, proc: Proc, name: str, target: Callable[[], object]) -> Lane:
        """A new thread of a process; it runs when its turn comes."""

        def body() -> None:
            try:
                target()
            except Over:
                pass
            except BaseException as error:  # a thread that ends by an exception is a bug of somebody's
                self.failed.append(error)
            lane.done = True
            for waiter in lane.waiters:
                self.wake(waiter)

        lane = Lane(proc, name, body, self._hub)
        proc.lanes.append(lane)
        self._all.append(lane)
        self._ready.append(lane)
        return lane

    def at(self, when: float, call: Callable[[], object]) -> None:
        """Outside of all processes: the network, the kernel, the weather."""
        self._seq += 1
        heapq.heappush(self._timers, (when, self._seq, call, 0))

    def block(self, seconds: float | None = None) -> bool:
        """The lane that runs waits until it is woken; False: `seconds` were over first."""
        lane = self.lane
        if lane is None or self.over or lane.proc.dead:
            raise Over
        lane.number += 1
        lane.waiting, lane.woken = True, False
        if seconds is not None:
            self._seq += 1
            heapq.heappush(self._timers, (self.now + max(0.0, seconds), self._seq, lane, lane.number))
        self._switch()
        return lane.woken

    def breathe(self) -> None:
        """Others may run now; what is frozen or killed meanwhile stays here."""
        lane = self.lane
        if lane is None or self.over or lane.proc.dead:
            raise Over
        self._ready.append(lane)
        self._switch()

    def _switch(self) -> None:
        lane = self.lane
        assert lane is not None
        self._hub.switch()
        if self.over or lane.proc.dead:
            raise Over

    def wake(self, lane: Lane) -> None:
        """Let a waiting lane go on."""
        if lane.waiting:
            lane.waiting, lane.woken = False, True
            self._ready.append(lane)

    def thaw(self, proc: Proc) -> None:
        """SIGCONT."""
        proc.frozen = False
        parked, proc.parked = proc.parked, []
        self._ready.extend(parked)

    # --- running ---

    def run(self, until: Callable[[], bool], horizon: float) -> None:
        """Run until it is so, or virtual time is past the horizon."""
        while not until() and self.now < horizon:
            if self._ready:
                self._step()
            elif self._timers:
                self._pass()
            else:
                return

    def _pass(self) -> None:
        when, _, what, number = heapq.heappop(self._timers)
        self.now = max(self.now, when)
        if not isinstance(what, Lane):
            what()
        elif what.waiting and what.number == number:
            what.waiting = False
            self._ready.append(what)

    def _step(self) -> None:
        ready = self._ready
        at = int(self.random.random() * len(ready)) if len(ready) > 1 else 0
        lane, ready[at] = ready[at], ready[-1]
        ready.pop()
        if lane.proc.dead:
            return
        if lane.proc.frozen:
            lane.proc.parked.append(lane)
            return
        self.steps += 1
        if self.steps > STEPS:
            raise Spinning(f"{STEPS} steps by second {self.now:.3f}: {lane.proc.name} {lane.name}")
        self.switch_to(lane)
        if self.failed:
            raise self.failed.pop()

    def switch_to(self, lane: Lane) -> None:
        """Let a lane run until it waits. The running event loop is a thread's, and goes with it."""
        self.lane = lane
        if lane.loop is not None:
            _set_running_loop(lane.loop)
        lane.green.switch()
        lane.loop = _get_running_loop()
        if lane.loop is not None:
            _set_running_loop(None)
        self.lane = None

    def end(self) -> None:
        """Unwind everything."""
        self.over = True
        for lane in self._all:
            for _ in range(200):
                if lane.green.dead or not lane.green:
                    break
                self.lane = lane
                if lane.loop is not None:
                    _set_running_loop(lane.loop)
                lane.green.throw(Over)
                _set_running_loop(None)
        self.lane = None
        self._all.clear()
        self._timers.clear()
        self._ready.clear()


SIM: list[Sim] = []  # the world that runs, if one does


def sim() -> Sim:
    return SIM[-1]


class Loop(asyncio.BaseEventLoop):
    """A process's event loop, in virtual time; it waits as its thread does."""

    def __init__(self) -> None:
        super().__init__()
        self._sim = sim()
        self._clock_resolution = 1e-9
        self._lane: Lane | None = None

    def time(self) -> float:
        return self._sim.now

    def _write_to_self(self) -> None:
        if self._lane is not None:
            self._sim.wake(self._lane)

    def _process_events(self, events: Any) -> None:
        pass

    def add_signal_handler(self, *_: Any) -> None:
        pass

    def remove_signal_handler(self, *_: Any) -> bool:
        return True

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future, here = self.create_future(), self._sim

        def work() -> None:
            try:
                value, error = func(*args), None
            except Exception as found:
                value, error = None, found
            self.call_soon_threadsafe(lambda: future.set_exception(error) if error else future.set_result(value))

        lane = here.lane
        assert lane is not None
        here.spawn(lane.proc, "executor", work)
        return future

    def _run_once(self) -> None:
        scheduled, ready, sim_ = self._scheduled, self._ready, self._sim  # type: ignore[attr-defined]
        while scheduled and (scheduled[0]._cancelled or scheduled[0]._when <= sim_.now + 1e-9):
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                ready.append(handle)
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            self._lane = sim_.lane
            sim_.block(scheduled[0]._when - sim_.now if scheduled else None)
            self._lane = None
            return
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
                sim_.breathe()


# --- what `threading` and `time` are, in here -------------------------------------------------------------------------


class Lock:
    """threading.Lock"""

    def __init__(self) -> None:
        self.held = False
        self._waiters: deque[Lane] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self.held:
            self.held = True
            return True
        if not blocking:
            return False
        here = sim()
        end = None if timeout < 0 else here.now + timeout
        while self.held:
            lane = here.lane
            assert lane is not None, "a lock is held, and the hub cannot wait"
            self._waiters.append(lane)
            woken = here.block(None if end is None else end - here.now)
            if not woken:
                if lane in self._waiters:
                    self._waiters.remove(lane)
                if self.held:
                    return False
        self.held = True
        return True

    def release(self) -> None:
        self.held = False
        if self._waiters:
            sim().wake(self._waiters.popleft())

    def locked(self) -> bool:
        return self.held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock:
    """threading.RLock"""

    def __init__(self) -> None:
        self._lock, self._owner, self._count = Lock(), None, 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me: Any = sim().lane or self
        if self._owner is me:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """threading.Condition"""

    def __init__(self, lock: Any = None) -> None:
        self._lock = lock or RLock()
        self._waiters: deque[Lane] = deque()

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        lane = sim().lane
        assert lane is not None
        self._waiters.append(lane)
        self._lock.release()
        woken = sim().block(timeout)
        if not woken and lane in self._waiters:
            self._waiters.remove(lane)
        self._lock.acquire()
        return woken

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiters))):
            sim().wake(self._waiters.popleft())


class Event:
    """threading.Event"""

    def __init__(self) -> None:
        self._set = False
        self._waiters: list[Lane] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiters, self._waiters = self._waiters, []
        for lane in waiters:
            sim().wake(lane)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            lane = sim().lane
            assert lane is not None
            self._waiters.append(lane)
            sim().block(timeout)
            if lane in self._waiters:
                self._waiters.remove(lane)
        return self._set


class Semaphore:
    """threading.Semaphore"""

    def __init__(self, value: int = 1) -> None:
        self._value = value
        self._free = Event()

    def acquire(self, timeout: float | None = None) -> bool:
        if not self._value:
            self._free.clear()
            self._free.wait(timeout)
        if not self._value:
            return False
        self._value -= 1
        return True

    def release(self) -> None:
        self._value += 1
        self._free.set()


class Thread:
    """threading.Thread"""

    def __init__(self, *, target: Callable[..., object], name: str = "", daemon: bool = True, args: tuple[Any, ...] = ()) -> None:
        self._target, self.name, self._args = target, name, args
        self.lane: Lane | None = None

    def start(self) -> None:
        here = sim().lane
        assert here is not None, "only processes have threads"
        self.lane = sim().spawn(here.proc, self.name, lambda: self._target(*self._args))
        self.lane.thread = self

    def join(self, timeout: float | None = None) -> None:
        if self.lane is not None and not self.lane.done:
            here = sim().lane
            assert here is not None
            self.lane.waiters.append(here)
            if not sim().block(timeout) and here in self.lane.waiters:
                self.lane.waiters.remove(here)

    def is_alive(self) -> bool:
        return self.lane is not None and not self.lane.done


class Threading:
    """The module, as the shipped code sees it in here."""

    Lock, RLock, Condition, Event, Semaphore, Thread = Lock, RLock, Condition, Event, Semaphore, Thread

    @staticmethod
    def current_thread() -> Any:
        lane = sim().lane
        return lane.thread if lane is not None else None

    @staticmethod
    def main_thread() -> Any:
        return real.main_thread()

    @staticmethod
    def get_ident() -> int:
        return 1


class Time:
    """The module `time`, as the shipped code sees it in here."""

    @staticmethod
    def monotonic() -> float:
        return sim().now

    perf_counter = monotonic

    @staticmethod
    def time() -> float:
        return 1_700_000_000 + sim().now

    @staticmethod
    def sleep(seconds: float) -> None:
        sim().block(seconds)

"""Group commit: one thread, one transaction for whatever is waiting. A lone caller never waits for company."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from semel.errors import StoreUnavailable
from semel.store.batch import queues, touched
from semel.store.contract import Broken, Busy, Change, Landed, Outcome, Stale, Store, Unit

MOST = 512  # units in one transaction
PATIENCE_SECONDS = 60.0
ASIDE_SECONDS = (0.05, 1.0)  # what waits for a lock is tried again after so long; then after longer, up to that
LINGER_SECONDS = 0.004  # an outcome that nobody waits for looks out so long for a transaction that is made anyway
MOMENT_SECONDS = 1e-6  # in which another thread gets going
FOR_EVER = float("inf")
log = logging.getLogger("semel")
Observed = Callable[[list[Unit], list[Outcome], float, float], None]  # seconds that it took, and that the first had waited


class Box(Protocol):
    """What an event loop is woken through: whatever was put there since it last looked, by one ring."""

    def put(self, call: Callable[[], object], /) -> None:
        """From any thread: what the loop is to do when it looks."""

    def ring(self) -> None:
        """From any thread: let the loop look. Never raises."""


# Of all signals, each for a moment: a lock for each would cost more than what it guards. It may be entered again: what a signal
# of the system, or the garbage collector, runs in between on the same thread may be about another one.
_changing = threading.RLock()
os.register_at_fork(after_in_child=_changing._at_fork_reinit)  # type: ignore[attr-defined]


class Signal:
    """Something that happens once, on some thread; callbacks run there. is_set: whether it has happened."""

    __slots__ = ("_callbacks", "is_set", "value")

    def __init__(self) -> None:
        self._callbacks: list[tuple[Box | None, Callable[[], object]]] | None = None
        self.is_set = False
        self.value: Any = None

    def set(self, value: Any = None, boxes: set[Box] | None = None) -> None:
        """It happens; the second time nothing does. boxes: gets those that the caller must ring; None: they are rung here."""
        with _changing:
            if self.is_set:
                return
            self.value = value  # first: `is_set` is read without the lock
            self.is_set = True
            callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            _call_back(callbacks, boxes)

    def then(self, callback: Callable[[], None]) -> None:
        """Run `callback` when it happens, or now if it has."""
        if not self._told_later(None, callback):
            callback()

    def hand(self, box: Box, call: Callable[[], object]) -> None:
        """Put `call` into the box when it happens, or now if it has, and let its loop be woken: once for a whole batch."""
        if not self._told_later(box, call):
            box.put(call)
            box.ring()

    def _told_later(self, box: Box | None, call: Callable[[], object]) -> bool:
        """Whether it has not happened yet, so that whoever sets it tells."""
        told = [(box, call)]
        with _changing:
            if self.is_set:
                return False
            if self._callbacks is None:
                self._callbacks = told
            else:
                self._callbacks += told
            return True

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread until it happens; False: `timeout` seconds were over first."""
        if self.is_set:
            return True
        gate = threading.Lock()
        gate.acquire()
        self.then(gate.release)
        return gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))


def _call_back(callbacks: list[tuple[Box | None, Callable[[], object]]], boxes: set[Box] | None) -> None:
    interrupted: KeyboardInterrupt | None = None
    for box, callback in callbacks:
        try:
            if box is None:
                callback()
                continue
            box.put(callback)
            if boxes is None:
                box.ring()
            else:
                boxes.add(box)
        except KeyboardInterrupt as error:
            interrupted = error
        except BaseException:  # whoever sets it (the writer's thread, say) must go on
            log.exception("semel: a callback failed")
    if interrupted is not None:
        raise interrupted


class Ticket(Signal):
    """A unit on its way; `value` becomes its Outcome, or a StoreUnavailable."""

    __slots__ = ("aside_since", "barrier", "since", "unit")

    def __init__(self, unit: Unit) -> None:
        super().__init__()
        self.unit = unit
        self.barrier = isinstance(unit, Change) and not unit.parts and not unit.id  # it waits for all that came before
        self.aside_since = 0.0  # since when it waits for a lock
        self.since = time.monotonic()


class Writer:
    """The thread through which every write of this process goes, in the order of `submit`."""

    def __init__(
        self,
        store: Store,
        *,
        patience: float = PATIENCE_SECONDS,
        committed: Callable[[list[Unit], list[Outcome]], None] = lambda units, outcomes: None,
    ) -> None:
        self._store = store
        self._committed = committed  # told of each transaction that was acknowledged
        self._patience = patience
        self._queue: deque[Ticket] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._closing = False
        self._waited_for = 0  # units in the queue that somebody waits for
        self._lingering_until = 0.0
        self._wakes_at = 0.0  # when the thread looks by itself; 0: it is awake
        self._aside: list[Ticket] = []  # what waits for a lock, and what stands behind it in its streams, in order
        self._aside_until, self._aside_pause = 0.0, ASIDE_SECONDS[0]
        self._thread: threading.Thread | None = None
        self.observed: Observed | None = None  # told the same, once all have been answered
        self.queued: Callable[[], None] | None = None  # told that a task waits to be claimed that did not before
        self.commits = 0
        self.units = 0

    def submit(self, unit: Unit, *, waited_for: bool = True) -> Ticket:
        """Give a unit to the next transaction. An outcome that nobody waits for rides with the next intent (R6)."""
        ticket = Ticket(unit)
        self._give((ticket,), waited_for=waited_for)
        return ticket

    def submit_all(self, units: Iterable[Unit], *, begin: bool = False) -> list[Ticket]:
        """Give several, one behind the other; somebody waits for all of them. The thread is woken once.

        begin: more will follow, and take a while to make: a thread that was idle may begin with these, which it could not
        while this one goes on without a pause.
        """
        tickets = [Ticket(unit) for unit in units]
        if self._give(tickets, waited_for=True) and begin:
            time.sleep(MOMENT_SECONDS)
        return tickets

    def _give(self, tickets: Sequence[Ticket], *, waited_for: bool) -> bool:
        """Whether the thread had to be woken."""
        with self._lock:
            if self._closing:
                raise StoreUnavailable("the app is closed; make a new semel.App to go on")
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="semel-writer", daemon=True)
                thread.start()  # may raise; then the next submit tries again
                self._thread = thread
            if not self._queue:
                self._lingering_until = time.monotonic() + LINGER_SECONDS
            self._queue.extend(tickets)
            self._waited_for += waited_for and len(tickets)
            if self._wakes_at and (waited_for or self._lingering_until < self._wakes_at or len(self._queue) == MOST):
                self._wakes_at = 0.0
                self._wake.notify()
                return True
            return False

    def barrier(self) -> Ticket:
        """Happens when all that was submitted before has been answered."""
        return self.submit(Change("", ()))

    def close(self) -> None:
        """Commit what is waiting, and stop."""
        with self._lock:
            self._closing = True
            self._wake.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _take(self) -> list[Ticket]:
        with self._lock:
            dozed = False
            while not self._closing and not self._waited_for and len(self._queue) < MOST:
                now = time.monotonic()
                ends = [self._lingering_until] * bool(self._queue) + [self._aside_until] * bool(self._aside)
                if ends and min(ends) <= now:
                    break
                # After work an outcome comes soon, and need wake nobody: whoever dozes is up again before its time is over.
                self._wakes_at = min(ends) if ends else FOR_EVER if dozed else now + LINGER_SECONDS
                self._wake.wait(None if self._wakes_at == FOR_EVER else self._wakes_at - now)
                self._wakes_at, dozed = 0.0, True
            taken: list[Ticket] = []
            if self._closing or time.monotonic() >= self._aside_until:
                taken, self._aside = self._aside, []
            fresh = [self._queue.popleft() for _ in range(min(MOST, len(self._queue)))]
            if not self._queue:
                self._waited_for = 0
        return [*taken, *self._not_behind(fresh)]

    def _not_behind(self, tickets: list[Ticket]) -> list[Ticket]:
        """Those whose streams do not wait; the others wait with them, so that a stream keeps its order."""
        if not self._aside:
            return tickets
        behind = {stream for t in self._aside if isinstance(t.unit, Change) for stream in touched(t.unit)}
        free: list[Ticket] = []
        for ticket in tickets:
            streams = touched(ticket.unit) if isinstance(ticket.unit, Change) else set()
            if streams & behind or ticket.barrier:
                behind |= streams
                self._aside.append(ticket)
            else:
                free.append(ticket)
        return free

    def _run(self) -> None:
        while (batch := self._take()) or self._aside:
            began = time.monotonic()
            outcomes = self._commit(batch) if batch else []
            busy: list[Ticket] = []
            answered: list[tuple[Ticket, Outcome | StoreUnavailable]] = []
            for ticket, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, Busy) or (ticket.barrier and busy):
                    busy.append(ticket)
                else:
                    answered.append((ticket, outcome))
            self._set_aside(busy)
            if self.observed is not None and answered:  # first: what follows from an answer is told after it
                self._tell(self.observed, answered, began)
            self._answer(answered)

    def _answer(self, answered: list[tuple[Ticket, Outcome | StoreUnavailable]]) -> None:
        """In order; each loop that waits for any of it is woken once, by one system call."""
        boxes: set[Box] = set()
        try:
            for ticket, outcome in answered:
                if isinstance(outcome, Stale):  # who hears of it reads the stream again, here: nobody else waits for that
                    self._ring(boxes)
                ticket.set(outcome, boxes)
        finally:
            self._ring(boxes)

    def _ring(self, boxes: set[Box]) -> None:
        while boxes:
            try:
                boxes.pop().ring()
            except Exception:
                log.exception("semel: an event loop could not be woken")

    def _tell(self, observed: Observed, answered: list[tuple[Ticket, Outcome | StoreUnavailable]], began: float) -> None:
        """Of each transaction that was acknowledged, and of nothing that is empty."""
        ended = time.monotonic()
        known = [(t, o) for t, o in answered if not t.barrier and not isinstance(o, StoreUnavailable)]
        if known:
            observed([t.unit for t, _ in known], [o for _, o in known], ended - began, ended - min(t.since for t, _ in known))

    def _set_aside(self, busy: list[Ticket]) -> None:
        """Try these again later, so that nobody else waits for what they wait for."""
        now = time.monotonic()
        for ticket in busy:
            ticket.aside_since = ticket.aside_since or now
            if self._closing or now - ticket.aside_since > self._patience:
                ticket.set(StoreUnavailable("another transaction holds the row or the key that this waits for; end it"))
            else:
                self._aside.append(ticket)
        if busy:
            self._aside_until = now + self._aside_pause
            self._aside_pause = min(ASIDE_SECONDS[1], self._aside_pause * 2)
        elif not self._aside:
            self._aside_pause = ASIDE_SECONDS[0]

    def _commit(self, batch: list[Ticket]) -> list[Outcome | StoreUnavailable]:
        """Again and again until the store says something: the same units, so that what landed finds itself (R7)."""
        units = [ticket.unit for ticket in batch]
        began, pause = time.monotonic(), 0.02
        while True:
            try:
                outcomes = self._store.commit(units)
                if len(outcomes) != len(units):
                    raise RuntimeError(f"{len(units)} units were given {len(outcomes)} outcomes")
            except StoreUnavailable as error:
                if self._closing or time.monotonic() - began > self._patience:
                    return [error] * len(units)
                time.sleep(pause)
                pause = min(1.0, pause * 2)
            except Exception as error:  # a bug: nobody may hang on it
                unavailable = _refused(f"{type(error).__name__}: {error}")
                unavailable.__cause__ = error
                return [unavailable] * len(units)
            else:
                self.commits += 1
                self.units += len(units)
                self._committed(units, outcomes)
                self._tell_queued(units, outcomes)
                return [_refused(outcome.why) if isinstance(outcome, Broken) else outcome for outcome in outcomes]

    def _tell_queued(self, units: list[Unit], outcomes: list[Outcome]) -> None:
        """A hint: whatever comes of it, what was committed is answered. Read once, since a worker that ends takes it away."""
        queued = self.queued
        if queued is not None and any(map(_queues, units, outcomes)):
            try:
                queued()
            except Exception:
                log.exception("semel: a worker could not be woken; it looks by itself")


def _queues(unit: Unit, outcome: Outcome) -> bool:
    return isinstance(outcome, Landed) and queues(unit)


def _refused(why: str) -> StoreUnavailable:
    return StoreUnavailable(f"the store refused the write: {why}")

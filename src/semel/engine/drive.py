"""The two drivers: they run a procedure to its end, one by blocking a thread, one by awaiting."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from semel.engine.requests import Await, Call, Raised, Reply, Request, Returned, Sleep, TimedOut
from semel.store.writer import Signal

T = TypeVar("T")
log = logging.getLogger("semel")
CANCEL_GRACE = 1.0  # seconds that a cancelled coroutine is given to end


class Threads:
    """Threads for the user's code: reused when idle, never waited for, so that one that hangs holds nobody up."""

    def __init__(self, name: str, idle_seconds: float = 10.0) -> None:
        self._name, self._idle_seconds = name, idle_seconds
        self._lock = threading.Lock()
        self._idle: deque[_Thread] = deque()

    def run(self, work: Callable[[], None]) -> None:
        """Run `work` on an idle thread, or a new one."""
        with self._lock:
            thread = self._idle.pop() if self._idle else None
        if thread is None or not thread.give(work):
            _Thread(self, work)

    def forget(self) -> None:
        """Start with no thread at all."""
        self._lock = threading.Lock()
        self._idle = deque()

    def _done(self, thread: _Thread) -> None:
        with self._lock:
            self._idle.append(thread)

    def _leave(self, thread: _Thread) -> bool:
        with self._lock:
            try:
                self._idle.remove(thread)
            except ValueError:
                return False  # it was given work just now
            return True


class _Thread:
    def __init__(self, pool: Threads, work: Callable[[], None]) -> None:
        self._pool = pool
        self._given: Callable[[], None] | None = work
        self._wake = threading.Semaphore(0)
        threading.Thread(target=self._run, name=pool._name, daemon=True).start()

    def give(self, work: Callable[[], None]) -> bool:
        self._given = work
        self._wake.release()
        return True

    def _run(self) -> None:
        while True:
            work, self._given = self._given, None
            if work is not None:
                work()
            del work
            self._pool._done(self)
            while not self._wake.acquire(timeout=self._pool._idle_seconds):
                if self._pool._leave(self):
                    return


THREADS = Threads("semel-call")
os.register_at_fork(after_in_child=THREADS.forget)  # a fork has none of its parent's threads


def _in_thread(call: Call, done: Signal) -> None:
    """Run the call on a thread of its own, in a copy of this context; `done` gets Returned or Raised."""
    context = contextvars.copy_context()

    def work() -> None:
        done.set(context.run(_run_here, call))

    THREADS.run(work)


async def in_own_thread(work: Callable[[], T]) -> T:
    """Run `work` on a thread of its own, in a copy of this context, and await its end."""
    done = Signal()
    _in_thread(Call(work, False), done)
    reply = await wait_for_signal(done)
    if isinstance(reply, Raised):
        raise reply.error
    return reply.value  # type: ignore[no-any-return]


def _run_here(call: Call) -> Returned | Raised:
    try:
        if call.is_async:
            return Returned(asyncio.run(call.fn(*call.args, **call.kwargs)))
        return Returned(call.fn(*call.args, **call.kwargs))
    except BaseException as error:  # everything is an outcome, and is judged by the procedure
        return Raised(error)


def _call_sync(call: Call) -> Reply:
    if call.inline and call.seconds is None and not call.is_async:
        return _run_here(call)
    done = Signal()
    over = False
    try:
        _in_thread(call, done)  # within: an interrupt may come as soon as it runs
        over = done.wait(call.seconds)
    finally:  # a timeout, or an interrupt of this thread: what was called runs on, and its end is told
        if not over and call.late is not None:
            late = call.late
            done.then(lambda: late(done.value))
    return done.value if over else TimedOut()


def run(procedure: Generator[Request, Any, T]) -> T:
    """Run a procedure on this thread."""
    answer: Any = None
    try:
        while True:
            try:
                request = procedure.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            if isinstance(request, Await):
                answer = request.signal.value if request.signal.wait(request.seconds) else None
            elif isinstance(request, Sleep):
                time.sleep(request.seconds)
                answer = None
            else:
                answer = _call_sync(request)
    finally:
        procedure.close()  # if this thread was interrupted, its `finally` clauses run now, not some day


class _Mailbox:
    """What wakes a loop once for all that happened since it last looked; and what is under way there, until it shuts down."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._calls: deque[Callable[[], object]] = deque()
        self._rung = False
        self.drivers: set[_Driver[Any]] = set()
        self._until_shutdown: AsyncGenerator[None, None] | None = self._shutting_down()
        with contextlib.suppress(StopIteration):
            self._until_shutdown.asend(None).send(None)  # to its yield: from here on the loop ends it when it shuts down

    def put(self, call: Callable[[], object]) -> None:
        """From any thread."""
        self._calls.append(call)

    def ring(self) -> None:
        """From any thread."""
        loop = self._loop()
        if self._rung and loop is not None and not loop.is_closed():
            return  # whoever was first has called the loop, and it has not looked yet
        self._rung = True
        try:
            if loop is None:
                raise RuntimeError("the loop is gone")
            loop.call_soon_threadsafe(self._open)
        except RuntimeError:  # it is closed: what is under way there goes on no more
            self._stop()
            self._calls.clear()

    def _open(self) -> None:
        self._rung = False  # first: what comes from now on rings again
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            if self._calls:  # an interrupt of one takes nobody along
                self.ring()

    async def _shutting_down(self) -> AsyncGenerator[None, None]:
        """Ended by `loop.shutdown_asyncgens`, as asyncio.run does at its end: what has begun meanwhile may not be cut off."""
        try:
            yield
        finally:
            self._until_shutdown = None  # it holds the loop
            stopped = self._stop()
            if stopped:
                await asyncio.wait(stopped, timeout=CANCEL_GRACE)

    def stop_if_closed(self) -> None:
        """From any thread."""
        loop = self._loop()
        if self.drivers and (loop is None or loop.is_closed()):
            self._stop()

    def _stop(self) -> list[asyncio.Task[Any]]:
        stopped: list[asyncio.Task[Any]] = []
        for driver in list(self.drivers):
            try:
                task = driver.cancel()
            except Exception:  # as when the app is closed as well; it takes nobody along
                log.exception("semel: what was under way in an event loop that ends could not be given up in order")
            else:
                stopped += [task] if task is not None else []
        return stopped


_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = weakref.WeakKeyDictionary()
_making = threading.Lock()
os.register_at_fork(after_in_child=_making._at_fork_reinit)  # type: ignore[attr-defined]


def _mailbox(loop: asyncio.AbstractEventLoop) -> _Mailbox:
    mailbox = _mailboxes.get(loop)
    if mailbox is None:
        made = _Mailbox(loop)
        with _making:
            mailbox = _mailboxes[loop] = made
    return mailbox


def give_up_closed() -> None:
    """What is under way in loops that were just closed, without `shutdown_asyncgens`: nothing there goes on to tell of it."""
    with _making:
        mailboxes = list(_mailboxes.values())
    for mailbox in mailboxes:
        mailbox.stop_if_closed()


async def wait_for_signal(signal: Signal, seconds: float | None = None) -> Any:
    """Await a Signal; its value, or None if `seconds` were over first."""
    if signal.is_set:
        return signal.value
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    signal.hand(_mailbox(loop), lambda: _happened(future))
    if seconds is None:
        await future
    else:
        await asyncio.wait([future], timeout=seconds)
    return signal.value if signal.is_set else None


def _happened(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_STOPPED = Raised(TimeoutError("cancelled at its timeout"))
_THROWN_AWAY = Raised(GeneratorExit("thrown away unfinished, as when its event loop is closed"))


class _Driver(Generic[T]):
    """Runs a procedure on an event loop by callbacks, in its caller's context. It has no task of its own, for two reasons:
    nobody can cancel it, and each turn of a loop that is saved is felt. The user's coroutines get a task each.

    shielded: it goes on when whoever awaits `future` is cancelled. Each wait has a number, so that only its first answer counts.
    """

    __slots__ = (
        "_box", "_call", "_context", "_done", "_expired", "_loop", "_procedure", "_shielded", "_started", "_task", "_timer",
        "_turn", "future",
    )  # fmt: skip

    def __init__(self, procedure: Generator[Request, Any, T], *, shielded: bool) -> None:
        self._procedure, self._shielded = procedure, shielded
        self._loop = asyncio.get_running_loop()
        self._box = _mailbox(self._loop)
        self._context = contextvars.copy_context()
        self.future: asyncio.Future[T] = self._loop.create_future()
        self._turn = 0
        self._timer: asyncio.TimerHandle | None = None
        self._call: Call | None = None
        self._task: asyncio.Task[Any] | None = None
        self._done: Signal | None = None
        self._started = self._expired = False
        self._box.drivers.add(self)
        self._step(None)

    # --- the procedure ---

    def _step(self, answer: Any) -> None:
        """Run it until it must wait, or to its end."""
        try:
            request = self._procedure.send(answer)
            while isinstance(request, Await) and request.signal.is_set:
                request = self._procedure.send(request.signal.value)
            self._wait(request)
        except StopIteration as stop:
            self._over()
            if not self.future.done():
                self.future.set_result(stop.value)
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._over()
        self._procedure.close()
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # seen: else asyncio logs it with its traceback, which may hold what was redacted
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error

    def _over(self) -> None:
        self._turn += 1
        self._box.drivers.discard(self)

    def _wait(self, request: Request) -> None:
        if isinstance(request, Await):
            self._hear(request.signal)
            if request.seconds is not None:
                self._after(request.seconds, self._answer, request.signal)
        elif isinstance(request, Sleep):
            self._after(request.seconds, self._answer)
        else:
            self._begin(request)

    def _hear(self, signal: Signal) -> None:
        signal.hand(self._box, partial(self._context.run, self._answer, self._turn, signal))

    def _here(
        self, task: asyncio.Task[Any] | None, turn: int, call: Call, reply: Returned | Raised, stopped: bool = False
    ) -> None:
        """From within a coroutine's task, in the caller's context: a copy, since an eager task ends where that is entered."""
        if asyncio.current_task(self._loop) is not task:  # it is thrown away: what its code makes of that proves nothing
            reply, stopped = _THROWN_AWAY, True
        self._context.copy().run(self._ended, turn, call, reply, stopped)

    def _after(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        self._timer = self._loop.call_later(seconds, call, self._turn, *args, context=self._context)

    def _answer(self, turn: int, answer: Any = None) -> None:
        """What it waited for: a signal, whose value counts, or a reply."""
        if self._goes_on(turn):
            if isinstance(answer, Signal):
                answer = answer.value if answer.is_set else None
            self._turned()
            self._step(answer)

    def _goes_on(self, turn: int, *, stopped: bool = False) -> bool:
        """Whether an answer comes in time, and something may still begin. stopped: so was the coroutine, and not for its time.

        Who is stopped together with its caller is so by a loop that shuts down.
        """
        if turn != self._turn:
            return False
        if (self.future.cancelled() and (stopped or not self._shielded)) or (stopped and self._loop.is_closed()):
            self.cancel()
            return False
        return True

    def _turned(self) -> None:
        self._turn += 1
        self._call = self._task = self._done = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def cancel(self) -> asyncio.Task[Any] | None:
        """Whoever gives it up gives up what it called, too; the end of that is told. The task that was cancelled, if any."""
        try:
            self._box.drivers.remove(self)  # of several threads one alone gives it up
        except KeyError:
            return None
        call, task, done = self._call, self._task, self._done
        self._turned()
        self._over()
        try:
            if not self._loop.is_closed():
                self.future.cancel()
                if task is not None:
                    task.cancel()
            if call is not None and call.late is not None and not self._started:
                call.late(_STOPPED)  # its coroutine never begins, and so cannot tell its end
            if call is not None and done is not None:
                _tell_late(call, done)
        finally:
            self._procedure.close()  # its `finally` clauses run now, not some day
        return task

    # --- the user's code ---

    def _begin(self, call: Call) -> None:
        turn = self._turn
        self._call, self._started, self._expired = call, not call.is_async, False
        if call.is_async:
            task = self._loop.create_task(self._coroutine(turn, call))
            if turn != self._turn:
                return  # an eager one, which has ended
            self._task = task
        else:
            self._done = Signal()
            _in_thread(call, self._done)
            self._hear(self._done)
        if call.seconds is not None:
            self._after(call.seconds, self._expire)

    async def _coroutine(self, turn: int, call: Call) -> None:
        """In a task of its own. Its end is told from within: a callback would be one more turn of the loop."""
        self._started = True
        mine = asyncio.current_task()
        try:
            value = await call.fn(*call.args, **call.kwargs)
        except asyncio.CancelledError:
            self._here(mine, turn, call, _STOPPED, True)
        except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
            self._here(mine, turn, call, Raised(error), True)
            raise
        except BaseException as error:  # everything is an outcome, and is judged by the procedure
            self._here(mine, turn, call, Raised(error))
        else:
            self._here(mine, turn, call, Returned(value))

    def _ended(self, turn: int, call: Call, reply: Returned | Raised, stopped: bool) -> None:
        """An answer; or the late end of what nobody waits for any more."""
        if turn == self._turn and isinstance(reply, Raised) and isinstance(reply.error, KeyboardInterrupt | SystemExit):
            self.cancel()  # the loop is interrupted by it as well, and nothing more is to begin there
        if self._goes_on(turn, stopped=stopped and not self._expired):
            self._turned()
            self._step(reply)
        elif call.late is not None:
            call.late(reply)

    def _expire(self, turn: int) -> None:
        """Its time is over: a coroutine is cancelled, and given a moment; a thread runs on, and its end is told."""
        call, task, done = self._call, self._task, self._done
        if call is None or not self._goes_on(turn):
            return
        if task is not None and not self._expired:
            self._expired = True
            task.cancel()
            self._after(CANCEL_GRACE, self._expire)
        elif task is not None and not self._started:
            self._answer(turn, _STOPPED)
        elif done is not None and done.is_set:
            self._answer(turn, done)
        else:
            self._answer(turn, TimedOut())
            if done is not None:
                _tell_late(call, done)


def _tell_late(call: Call, done: Signal) -> None:
    late = call.late
    if late is not None:
        done.then(lambda: late(done.value))


async def arun(procedure: Generator[Request, Any, T]) -> T:
    """Run a procedure on this event loop. Cancelled, it gives up the procedure, and the coroutine that it waits for."""
    driver = _Driver(procedure, shielded=False)
    try:
        return await driver.future
    except (asyncio.CancelledError, GeneratorExit):
        driver.cancel()
        raise


async def arun_shielded(procedure: Generator[Request, Any, T]) -> T:
    """The same, but whoever is cancelled while he waits here does not cancel the procedure (R11)."""
    driver = _Driver(procedure, shielded=True)
    if driver.future.done():
        await asyncio.sleep(0)  # it was on record: a long replay lets others run all the same
    return await driver.future

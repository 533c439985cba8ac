"""The two drivers: they run a procedure to its end, one by blocking a thread, one by awaiting."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from semel.engine.requests import Await, Call, Raised, Reply, Request, Returned, Sleep, TimedOut
from semel.store.writer import Signal

T = TypeVar("T")
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
    """Wakes a loop once for all that happened since it last looked: a commit answers many, and each wake is a system call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._told: list[asyncio.Future[None]] = []

    def tell(self, future: asyncio.Future[None]) -> None:
        """From any thread."""
        with self._lock:
            self._told.append(future)
            if len(self._told) > 1:
                return  # whoever was first has called the loop
        try:
            self._loop.call_soon_threadsafe(self._open)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    def _open(self) -> None:
        with self._lock:
            told, self._told = self._told, []
        for future in told:
            if not future.done():
                future.set_result(None)


_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = weakref.WeakKeyDictionary()


async def wait_for_signal(signal: Signal, seconds: float | None = None) -> Any:
    """Await a Signal; its value, or None if `seconds` were over first."""
    if signal.is_set:
        return signal.value
    loop = asyncio.get_running_loop()
    mailbox = _mailboxes.get(loop)
    if mailbox is None:
        mailbox = _mailboxes[loop] = _Mailbox(loop)
    future: asyncio.Future[None] = loop.create_future()
    signal.then(lambda: mailbox.tell(future))
    if seconds is None:
        await future
    else:
        await asyncio.wait([future], timeout=seconds)
    return signal.value if signal.is_set else None


async def _call_async(call: Call) -> Reply:
    return await (_await_coroutine(call) if call.is_async else _await_thread(call))


async def _await_thread(call: Call) -> Reply:
    done = Signal()
    reply = None
    try:
        _in_thread(call, done)
        reply = await wait_for_signal(done, call.seconds)
    finally:  # a timeout, or this task was cancelled: what was called runs on, and its end is told
        if reply is None and call.late is not None:
            late = call.late
            done.then(lambda: late(done.value))
    return reply or TimedOut()


async def _await_coroutine(call: Call) -> Reply:
    task = asyncio.ensure_future(call.fn(*call.args, **call.kwargs))
    told = False
    try:
        await asyncio.wait([task], timeout=call.seconds)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_GRACE)
        if task.done():
            told = True
            return _reply_of(task)
        return TimedOut()
    except asyncio.CancelledError:
        task.cancel()  # whoever gives up the attempt gives up its handler
        raise
    finally:
        if not told and call.late is not None:
            late = call.late
            task.add_done_callback(lambda ended: late(_reply_of(ended)))


def _reply_of(task: asyncio.Future[Any]) -> Returned | Raised:
    if task.cancelled():
        return Raised(TimeoutError("cancelled at its timeout"))
    error = task.exception()
    return Raised(error) if error is not None else Returned(task.result())


async def arun(procedure: Generator[Request, Any, T]) -> T:
    """Run a procedure on this event loop."""
    try:
        return await _arun(procedure)
    finally:
        procedure.close()  # if this coroutine was cancelled, its `finally` clauses run now, not some day


async def _arun(procedure: Generator[Request, Any, T]) -> T:
    answer: Any = None
    while True:
        try:
            request = procedure.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        if isinstance(request, Await):
            answer = await wait_for_signal(request.signal, request.seconds)
        elif isinstance(request, Sleep):
            await asyncio.sleep(request.seconds)
            answer = None
        else:
            answer = await _call_async(request)

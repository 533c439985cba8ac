"""What an effect's code leaves behind: threads of pools and tasks that may act after its function has ended (R4).

A coroutine that is cancelled while it awaits `asyncio.to_thread(...)` ends; the thread does not, and may still send. So a
submission's code counts as ended only when its function has, and every pool job and every task that it started has too.
A bare `threading.Thread`, and a pool or loop that is not Python's own or anyio's, cannot be followed: an effect must not
leave one behind.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

acting: ContextVar[Acting | None] = ContextVar("semel_acting", default=None)
_followed: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


class Acting:
    """Counts what one submission's code has started and what has not ended yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._then: list[Callable[[], None]] = []

    @property
    def quiet(self) -> bool:
        """Whether nothing of it runs any more, its function apart."""
        return self._running == 0

    def began(self) -> None:
        """One more."""
        with self._lock:
            self._running += 1

    def ended(self, *_: Any) -> None:
        """One less."""
        with self._lock:
            self._running -= 1
            told, self._then = (self._then, []) if not self._running else ([], self._then)
        for callback in told:
            callback()

    def when_quiet(self, callback: Callable[[], None]) -> None:
        """Call it when nothing runs any more: now, if so."""
        with self._lock:
            if self._running:
                self._then.append(callback)
                return
        callback()


_submit = ThreadPoolExecutor.submit


def _followed_submit(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    started = acting.get()
    if started is None:
        return _submit(self, fn, *args, **kwargs)
    started.began()
    try:
        future = _submit(self, fn, *args, **kwargs)
    except BaseException:
        started.ended()
        raise
    future.add_done_callback(started.ended)
    return future


# Every pool job goes through here, asyncio.to_thread and run_in_executor included.
ThreadPoolExecutor.submit = _followed_submit  # type: ignore[method-assign, assignment]


_threadsafe = asyncio.run_coroutine_threadsafe


def _followed_threadsafe(coroutine: Any, loop: asyncio.AbstractEventLoop) -> Future[Any]:
    started = acting.get()
    if started is None:
        return _threadsafe(coroutine, loop)
    started.began()

    async def counted() -> Any:
        try:
            return await coroutine
        finally:
            started.ended()

    return _threadsafe(counted(), loop)


asyncio.run_coroutine_threadsafe = _followed_threadsafe  # type: ignore[assignment]  # as many clients keep a loop in a thread


def follow_anyio() -> None:
    """The same for the worker threads of anyio, if it is there: it has a pool of its own."""
    anyio_threads = sys.modules.get("anyio.to_thread")
    if anyio_threads is None or hasattr(anyio_threads.run_sync, "semel_follows"):
        return
    run_sync = anyio_threads.run_sync

    async def followed(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        started = acting.get()
        if started is None:
            return await run_sync(func, *args, **kwargs)
        started.began()

        def counted(*inner: Any) -> Any:
            try:
                return func(*inner)
            finally:
                started.ended()

        return await run_sync(counted, *args, **kwargs)

    followed.semel_follows = True  # type: ignore[attr-defined]
    anyio_threads.run_sync = followed  # type: ignore[attr-defined]


def follow_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """From now on, tasks that an effect starts on this loop are counted; whatever factory there was goes on to make them."""
    if loop in _followed:
        return
    _followed.add(loop)
    made_by = loop.get_task_factory()

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **kwargs: Any) -> Any:
        task = made_by(loop, coroutine, **kwargs) if made_by else asyncio.Task(coroutine, loop=loop, **kwargs)
        started = acting.get()
        if started is not None:
            started.began()
            task.add_done_callback(started.ended)
        return task

    loop.set_task_factory(factory)

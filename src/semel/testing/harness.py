"""Harness: run the user's own app in a test, with a store in memory, a clock that the test moves, and deaths on cue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, overload

from semel.app import App
from semel.decorated import Effect, not_in_loop
from semel.engine import drive
from semel.engine.attempt import Attempt
from semel.engine.declare import Step, Work
from semel.errors import Misuse
from semel.model import Submission
from semel.store.sqlite import SQLite
from semel.testing.stage import PLACES, Life, Place, Sent, Stage, VirtualClock, called, declared, fake_of
from semel.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
UNWIND_SECONDS = 5.0  # real ones: how long the code of a dead process is given to end


class Harness:
    """`with Harness(app) as h:` the app works on a store of its own, in memory, until the end of the block.

    Time stands still unless `advance` moves it (or an attempt waits in place: backoff, a short settle). The functions of
    effects and steps run as they are, or as `fake` says; `sent` tells what was really called. `crash` kills the process at
    the worst moment, and the next one recovers as in earnest. In pytest, the fixture `semel_harness` opens and ends it.

        with Harness(app) as h:
            h.fake(charge, lambda invoice_id, cents: Receipt(id="r1"))
            h.crash(charge, at="after")
            ref = bill.enqueue("inv_42")
            h.run()
            assert ref.result().id == "r1"
            assert len(h.sent(charge)) == 1

    A `ref.result()` does not wait here: what is not done by now is `Unsettled`.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self.clock = VirtualClock()
        self._stage = Stage(self.clock)
        self._store: SQLite | None = None

    # --- the block ---

    def __enter__(self) -> Self:
        """From here on, the app's store is this one."""
        app = self._app
        with app._opening:
            if app._stage is not None:
                raise Misuse("this app is in a harness already; end its block first")
            self._store = SQLite(":memory:")
            self._before, app._runtime = app._runtime, None
            app._stage = self._new_life
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """The app is as it was. Raises `Misuse` for a crash that never came: the test did not test what it says."""
        self._close()
        if error is None:
            self._expect_no_crash_left()

    def _close(self) -> None:
        app = self._app
        with app._opening:
            life, app._runtime = app._runtime, self._before
            app._stage = None
        if life is not None:
            life.close()
        assert self._store is not None
        self._store.close()
        self._store = None

    def _expect_no_crash_left(self) -> None:
        if left := self._stage.to_come():
            raise Misuse(f"crash(...) was asked for and never came: {', '.join(left)}; that was not called so often")

    def _new_life(self) -> Life:
        assert self._store is not None
        return Life(self._store, self._app.declared_effects, self._stage, self._on_death)

    def _on_death(self, life: Life) -> None:
        app = self._app
        with app._opening:
            if app._runtime is life:
                app._runtime = None

    # --- the outside world ---

    @overload  # one by one, not as unions: a lambda is judged by the first that fits
    def fake(
        self, effect: Effect[P, Coroutine[Any, Any, T]], fn: Callable[P, T | Awaitable[T]], *, own_lookup: bool = False
    ) -> None: ...
    @overload
    def fake(self, effect: Effect[P, R], fn: Callable[P, R | Awaitable[R]], *, own_lookup: bool = False) -> None: ...
    @overload
    def fake(
        self,
        effect: Effect[P, Coroutine[Any, Any, T]],
        fn: Callable[Concatenate[Submission, P], T | Awaitable[T]],
        *,
        own_lookup: bool = False,
    ) -> None: ...
    @overload
    def fake(
        self, effect: Effect[P, R], fn: Callable[Concatenate[Submission, P], R | Awaitable[R]], *, own_lookup: bool = False
    ) -> None: ...
    def fake(self, effect: Any, fn: Any, *, own_lookup: bool = False) -> None:
        """`fn` plays the effect from now on: with the effect's parameters, with or without the submission, sync or async.

        It plays the provider too. If the effect may be resent, a key that is known (and not past `within`) is answered
        with the first result, and `fn` is not called. Its lookups are answered from what `fn` has returned for the key;
        own_lookup: by the declared lookup functions instead. A declared identity function is asked as they are: else
        what is bound counts as observed. A call in which `fn` raises has done nothing.
        """
        found = declared(effect, self._app)
        if isinstance(found, Step):
            raise Misuse(f"{found.name} is a step; write harness.fake_step({found.name}, ...)")
        self._stage.fakes[called(found)] = fake_of(found, fn, own_lookup)

    @overload
    def fake_step(self, step: Callable[P, Coroutine[Any, Any, T]], fn: Callable[P, T | Awaitable[T]]) -> None: ...
    @overload
    def fake_step(self, step: Callable[P, R], fn: Callable[P, R | Awaitable[R]]) -> None: ...
    def fake_step(self, step: Any, fn: Any) -> None:
        """`fn` plays the step (a model call) from now on. What it gives is recorded as ever, and not asked for again."""
        found = declared(step, self._app)
        if not isinstance(found, Step):
            raise Misuse(f"{found.name} is an effect; write harness.fake({found.name}, ...)")
        self._stage.fakes[called(found)] = fake_of(found, fn, own_lookup=False)

    def crash(self, effect: Callable[P, R], at: Place) -> None:
        """The process dies at the next call of this effect, or step, once; said twice, at the next two.

        at: "before" the call, its intent on record; "during" it: what was sent takes its course, and nobody hears of
        it; "after" it, before its outcome is on record. In direct mode (`app.work`, `task.run`) it raises `Died`.
        """
        if at not in PLACES:
            raise Misuse(f"at={at!r}; write at='before', 'during' or 'after'")
        self._stage.will_crash(declared(effect, self._app), at)

    def sent(self, effect: Callable[P, R]) -> list[Sent]:
        """The calls of this effect, or step, that were really made, in order, by whichever life."""
        return self._stage.sent(declared(effect, self._app))

    # --- time and work ---

    @property
    def now(self) -> datetime:
        """The wall clock of this harness, in UTC."""
        return datetime.fromtimestamp(self.clock.raw_ms() / 1000, UTC)

    def advance(self, duration: timedelta) -> None:
        """Time passes, and nothing else happens: `run` does what is due then."""
        if duration < timedelta(0):
            raise Misuse(f"advance({duration!r}) would turn the clock back; it only goes on")
        self.clock.move(duration.total_seconds())
        life = self._app._runtime
        session = life.open_session if isinstance(life, Life) else None
        if session is not None and not session.fenced:
            session.learn(
                aloud=False
            )  # as at a worker's beat: a person who looks from now on is believed, if settle is over (R4)

    def run(self) -> None:
        """Work until nothing is due any more, in as many lives as it takes. One attempt at a time, so that tests repeat."""
        not_in_loop("harness.run", "await harness.arun()")
        asyncio.run(self.arun())

    async def arun(self) -> None:
        """The awaitable twin of `run`."""
        while not await self._live():
            pass

    async def _live(self) -> bool:
        """One life, until it is idle (True) or dead."""
        if self._store is None:
            raise Misuse("the harness is not open; write: with Harness(app) as h: ... h.run()")
        life = self._app.runtime
        assert isinstance(life, Life)
        worker = _Worker(self._app, life)
        works = asyncio.ensure_future(worker.run())
        ends = asyncio.ensure_future(drive.wait_for_signal(life.died))
        try:
            await asyncio.wait({works, ends}, return_when=asyncio.FIRST_COMPLETED)
            if not life.died.is_set:
                works.result()
                return True
            return False
        finally:
            await _end([works, ends, *worker.attempts()])


class _Worker(Worker):
    """A worker that is idle when nothing is due by the harness's clock, and leaves the signals to the test."""

    def __init__(self, app: App, life: Life) -> None:
        super().__init__(app, queues=None, concurrency=1, until_idle=True)
        self._life = life

    def attempts(self) -> list[asyncio.Future[None]]:
        return [running.task for running in self._running]

    def _idle(self) -> bool:
        if self._running or self._alone:
            return False
        return self._due is None or self._due > self._life.desk.clock.wall_ms()

    @contextlib.contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        yield

    async def _attempt(self, attempt: Attempt, work: Work) -> None:
        try:
            await super()._attempt(attempt, work)
        except BaseException:
            if not self._life.died.is_set:
                raise


async def _end(tasks: list[asyncio.Future[Any]]) -> None:
    """What is left of a life ends; what its code raises while it unwinds is nobody's business any more."""
    for task in tasks:
        task.cancel()
    done, _ = await asyncio.wait(tasks, timeout=UNWIND_SECONDS)
    for task in done:
        if not task.cancelled():
            task.exception()

"""A worker: one process that claims tasks, runs their attempts, and stops gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from semel.app import App
from semel.engine import attempt as attempts
from semel.engine import collector, drive, startcheck
from semel.engine.alarm import Alarm, too_old_ms
from semel.engine.arrival import NotYet
from semel.engine.attempt import Attempt, Exit
from semel.engine.declare import Work
from semel.engine.held import Registered
from semel.engine.keyring import expect_key
from semel.engine.ledger import Ledger
from semel.engine.queue import claim, not_taken
from semel.errors import Misuse, StoreUnavailable
from semel.machine import tasks
from semel.machine.pauses import Pause, Pauses
from semel.machine.words import count
from semel.model import Refusal
from semel.store.contract import ClaimedTask, Claims, Fenced
from semel.store.writer import Ticket

T = TypeVar("T")
log = logging.getLogger("semel")
POLL_SECONDS = 0.02  # how often to ask whether another process has written: a read of one number
IDLE_POLL_SECONDS = 0.05  # the same, when there has been nothing to do for a while
BUSY_SECONDS = 2.0
AWAY_SECONDS = 1.0  # how long to wait when the store did not answer
HEARD_POLL_SECONDS = 0.25  # the same, where others tell when they have queued something
# How often to look all the same, and when there has been nothing to do for so long. Owed to what nobody tells: a task that came
# with its caller's own transaction, a hint that went down with its giver, a listener that has died without a word (which the
# keepalives of its connection end within 11 s). What falls due later is known from the last look, and waits for none.
LOOK_SECONDS = 1.0
IDLE_LOOK_SECONDS, IDLE_AFTER_SECONDS = 2.5, 10.0
# How often an idle one asks also for what nobody waits for: what is paused (a claim asks for that by itself, and whoever lifts a
# pause writes, which moves `changed`), what it does not know. Dead neighbours, and a store that went back, are a beat's to see.
ALL_SECONDS = 30.0
MOST_AT_ONCE = 100  # claimed in one transaction
AHEAD_SHARE = 8  # a claim goes ahead of the end of an attempt where one slot in so many is free
GRACE_SECONDS = 30.0  # how long a graceful stop waits for what runs
GIVE_BACK_SECONDS = 10.0  # and then for the store: what it does not take back now is taken back by others
IDLE_HORIZON_MS = 60_000  # until_idle waits for what falls due so soon


@dataclass(eq=False)
class Running:
    """One attempt under way in this process."""

    attempt: Attempt
    task: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class Asked:
    """A claim under way. registered: what it has said to be held, before it lands (R17)."""

    ticket: Ticket
    registered: set[Registered]
    limit: int


class Worker:
    """Claims and runs. concurrency: attempts whose code runs at a time. until_idle: return when nothing is due any more."""

    def __init__(self, app: App, *, queues: list[str] | None, concurrency: int, until_idle: bool) -> None:
        if concurrency < 1:
            raise Misuse(f"concurrency={concurrency} runs nothing; write concurrency=1 or more")
        if isinstance(queues, str):
            raise Misuse(f"queues must be a list of names; write queues=[{queues!r}]")
        app.load()
        works = {work.name: work for name in app.declared_tasks.names() if (work := app.declared_tasks.get(name))}
        if not works:
            raise Misuse(
                "this app declares no task, so a worker has nothing to do; declare one with @app.task(...), or name its "
                "module: semel.App(modules=('my.tasks',))"
            )
        expect_key(app.declared_effects)
        declared = {work.queue for work in works.values()}
        self.queues = tuple(queues) if queues else tuple(sorted(declared))
        self.kinds = app.declared_tasks.names()
        self._names = sorted({work.names for work in works.values()})
        self._app, self._concurrency, self._until_idle = app, concurrency, until_idle
        self._running: set[Running] = set()
        self._ending: set[Running] = set()  # those whose code has ended: they wait for the store, and hold up nobody
        self._alone: deque[ClaimedTask] = deque()
        self._by_itself = False  # what runs must run alone: a kill takes its neighbours along
        self._vain_seconds, self._not_before = 0.0, 0.0
        self._stopping = False
        self._failed = ""
        self._told_of: set[tuple[str, str]] = set()
        self._pauses: set[Pause] = set()
        self._paused: Pauses | None = None  # as last read
        self._unreadable: set[tuple[str, str]] = set()
        self._opened, self._checked = False, False
        self._unknown_after = too_old_ms()
        self._store_away = False
        self._told_why, self._again_seconds = False, AWAY_SECONDS
        self._poked = True
        self._hears, self._heard = False, False
        self._sleeper: asyncio.Future[None] | None = None
        self._busy_at = 0.0
        self._due: int | None = None  # when the first waiting task falls due, as last seen
        self._more = False  # the last claim got all that it asked for: more is due, most likely
        self._claiming: Asked | None = None  # a claim that is waited for, or whose tasks are about to begin
        self._ahead: Asked | None = None  # one that nobody waits for yet
        self._asked_all_at = 0.0  # loop time

    # --- the loop ---

    async def run(self) -> None:
        """Until told to stop, fenced, or (until_idle) idle."""
        loop = asyncio.get_running_loop()
        self._app.be_worker()
        with self._signals(loop), collector.beside(self._concurrency):
            while not self._stopping and not await drive.in_own_thread(lambda: self._open(loop)):
                await self._rest(min(AWAY_SECONDS, self._again_seconds))
            if self._opened:
                try:
                    await self._loop()
                    await self._take_ahead()
                    self._runtime.desk.writer.queued = None
                    self._runtime.desk.store.hear(None)
                    await self._drain()
                except asyncio.CancelledError:
                    self._let_go(self._ahead)
                    self._session.held.drop_all((one.tenant, one.task.id, one.task.token) for one in self._alone)
                    raise
        if self._failed:  # maybe while it came in
            raise StoreUnavailable(f"this worker was fenced ({self._failed}); its tasks go on elsewhere; start it again")

    def _open(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Come into the store; False: it does not answer."""
        try:
            runtime = self._app.runtime
            runtime.on_fenced = lambda why: _quietly(lambda: loop.call_soon_threadsafe(self._fenced, why))
            poke = self._hear if runtime.desk.remote else self._poke
            runtime.desk.writer.queued = lambda: _quietly(lambda: self._poked or loop.call_soon_threadsafe(poke))
            if not self._checked:  # before it holds anything
                startcheck.check(runtime.desk, self._app.code, runtime.desk.tenant)
                self._checked = True
            session = runtime.session()
            session.alarm = Alarm(runtime.desk, self._unknown_after)
            session.tend()
        except NotYet as error:
            if not self._told_why:
                log.warning("semel: this worker claims nothing yet: %s", error)
            self._told_why, self._again_seconds = True, runtime.ttl / 4
            return False
        except StoreUnavailable as error:
            if self._gone():
                self._fenced(str(error))
            self._away(error)
            return False
        self._hears = runtime.desk.store.hear(lambda: _quietly(lambda: loop.call_soon_threadsafe(self._hear)))
        self._runtime, self._session, self._opened = runtime, session, True
        return True

    def _gone(self) -> bool:
        """R15: the store that this process opened has gone from its place, or went back: no answer will ever come."""
        runtime = self._app._runtime
        return runtime is not None and not runtime.desk.store.still_here()

    def _away(self, error: StoreUnavailable) -> None:
        """Said once for each time that it goes away."""
        if not self._store_away:
            log.warning("semel: the store does not answer; this worker goes on when it does: %s", error)
        self._store_away = True

    async def _rest(self, seconds: float) -> None:
        """Let time pass, unless something happens."""
        self._sleeper = asyncio.get_running_loop().create_future()
        alarm = asyncio.get_running_loop().call_later(seconds, self._rouse)
        if not self._stopping:
            await self._sleeper
        alarm.cancel()

    async def _asked(self, question: Callable[[], T]) -> T:
        """Ask the store, away from the loop if the answer comes over a network."""
        if self._runtime.desk.remote:
            return await drive.in_own_thread(question)
        return question()

    async def _loop(self) -> None:
        while not self._stopping:
            try:
                await self._work()
                return
            except StoreUnavailable as error:
                self._away(error)
                await self._rest(AWAY_SECONDS)

    async def _take_ahead(self) -> None:
        """What was asked for when it was told to stop is ours all the same."""
        asked, self._ahead = self._ahead, None
        if asked is not None:
            with contextlib.suppress(StoreUnavailable):
                await self._taken(asked, hint=True)

    async def _work(self) -> None:
        store = self._runtime.desk.store
        seen, looked, again = -1, 0.0, False
        clock = asyncio.get_running_loop().time
        while not self._stopping:
            now = clock()
            heard, self._heard = self._heard, False
            at_once = await self._claim_at_once(heard)
            claimed = at_once or 0
            again, self._poked = again and not claimed, heard or self._poked
            idle = now - self._busy_at >= IDLE_AFTER_SECONDS
            if claimed:  # what was started begins first: its driver, then its code
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            changed = store.changed() if self._hears and seen != -1 else await self._asked(store.changed)  # else it may wait
            if changed != seen or now - looked >= (IDLE_LOOK_SECONDS if idle else LOOK_SECONDS) or self._poked or again:
                for_all = changed != seen or now - self._asked_all_at >= (ALL_SECONDS if idle else LOOK_SECONDS)
                self._poked = False
                seen, looked = changed, now
                claimed += await self._claim_due(for_all=for_all, at_once=at_once)
                again = heard and not claimed  # it may stand where this look did not go: after a poll, once more
                if claimed or self._running:
                    self._busy_at = now
                if claimed or self._poked or self._heard or self._ahead is not None:
                    continue  # or something of ours ended, or was queued, or is claimed, while the store was asked
                if self._until_idle and self._idle():
                    return
            await self._sleep()

    async def _sleep(self) -> None:
        """Until something of ours ends, or it is time to look whether others wrote."""
        loop = asyncio.get_running_loop()
        now = self._runtime.desk.clock.wall_ms()
        if self._due is not None and self._due <= now and self._free() > 0 and loop.time() >= self._not_before:
            self._poked = True
            return
        pause = POLL_SECONDS if loop.time() - self._busy_at < BUSY_SECONDS else IDLE_POLL_SECONDS
        if self._hears:
            pause = HEARD_POLL_SECONDS
        if self._due is not None and self._due > now:
            pause = min(pause, (self._due - now) / 1000)
        self._sleeper = loop.create_future()
        alarm = loop.call_later(pause, self._rouse)
        if not (self._poked or self._heard):
            await self._sleeper
        alarm.cancel()

    def _hear(self) -> None:
        """Something was queued, says whoever did it: ask whether that is so."""
        self._heard = True
        self._rouse()

    def _rouse(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def _poke(self) -> None:
        """Something of ours has changed: look at once."""
        self._poked = True
        self._rouse()

    def _free(self) -> int:
        return self._room() if self._session.alive() else 0  # past its local deadline it could start nothing

    def _room(self) -> int:
        """How many more may run beside what runs; if none, something does, or waits to run alone."""
        if self._alone or self._by_itself:
            return 0
        coming = self._ahead.limit if self._ahead is not None else 0
        return min(self._concurrency + len(self._ending), 2 * self._concurrency) - len(self._running) - coming

    def _idle(self) -> bool:
        if self._running or self._alone or self._ahead is not None:
            return False
        return self._due is None or self._due > self._runtime.desk.clock.wall_ms() + IDLE_HORIZON_MS

    async def _claim_due(self, *, for_all: bool, at_once: int | None) -> int:
        """Claim what is due, if anything is and there is room; start what may start alone. for_all: then ask for the rest, which
        must be known before anybody says that nothing is left to do.

        at_once: what a claim has found just now. If nothing, what is due is in a rival's hands, and looked at again after a poll.
        """
        in_vain, clock = at_once == 0, asyncio.get_running_loop().time
        await self._start_alone()
        if self._room() <= 0:
            if at_once and clock() - self._asked_all_at >= LOOK_SECONDS:  # as long as a backlog lasts there may never be room
                await self._ask_for_all()
            return 0
        if self._paused is None:
            await self._ask_for_all()
        store, tenant = self._runtime.desk.store, self._runtime.desk.tenant
        queues, kinds = self._open_to()
        self._due = await self._asked(lambda: store.next_due(queues, kinds, tenant))
        if self._store_away:  # said here, since changed() may answer from memory
            self._store_away = False
            log.warning("semel: the store answers again")
        due = self._due is not None and self._due <= self._runtime.desk.clock.wall_ms()
        if due and in_vain:
            self._not_before = max(self._not_before, clock() + POLL_SECONDS)
        may = due and self._ahead is None  # one claim at a time: of two, each would say of the other's that it is not held
        claimed = await self._taken(self._ask_for(queues, kinds)) if may and self._free() > 0 and not in_vain else 0
        if for_all or (self._until_idle and not claimed):
            await self._ask_for_all()
        return claimed

    async def _claim_at_once(self, heard: bool) -> int | None:
        """What somebody says that he has queued is claimed without asking what is due, and so is what follows on a claim that got
        all it asked for; that is asked afterwards. How many were; None: it was not tried.

        Over a network, that is: there the question would cost as much as a claim that finds nothing. And what is claimed as soon
        as an attempt's code has ended is written together with its end.
        """
        asked, self._ahead = self._ahead, None
        likely = self._more or (heard and self._runtime.desk.remote)
        if asked is None and likely and self._paused is not None and self._free() > 0:
            queues, kinds = self._open_to()
            asked = self._ask_for(queues, kinds) if queues and kinds else None
        if asked is None:
            return None
        if claimed := await self._taken(asked, hint=True):
            self._busy_at = asyncio.get_running_loop().time()
        return claimed

    def _open_to(self) -> tuple[Sequence[str], Sequence[str]]:
        """The queues and kinds that are not paused, as last read."""
        paused = self._paused or Pauses()
        return paused.queues(self.queues), paused.kinds(self._names)

    async def _ask_for_all(self) -> None:
        """What people have paused, and what waits that this worker does not know. A claim asks for the pauses by itself."""
        self._asked_all_at = asyncio.get_running_loop().time()
        runtime = self._runtime
        store, tenant = runtime.desk.store, runtime.desk.tenant
        paused, foreign = await self._asked(lambda: (runtime.paused.now(), store.foreign(self.queues, self.kinds, tenant)))
        self._poked = self._poked or (self._paused is not None and paused != self._paused)
        self._paused = paused
        self._tell_of_pauses(paused)
        self._tell_of_foreign(foreign)

    def _ask_for(self, queues: Sequence[str], kinds: Sequence[str]) -> Asked:
        """A claim of as much as there is room for."""
        self._more, limit = False, min(self._free(), MOST_AT_ONCE)
        ticket, registered = claim(
            self._runtime.desk, self._session, self._app.declared_tasks, queues=queues, kinds=kinds, limit=limit,
            told=self._unreadable, paused=self._runtime.paused,
        )  # fmt: skip
        return Asked(ticket, registered, limit)

    async def _taken(self, asked: Asked, *, hint: bool = False) -> int:
        """Start what was claimed; how many. hint: that there is anything is hearsay; if not, it says nothing of what is due."""
        self._claiming = asked  # until all of it runs: what has not begun takes no room yet
        try:
            return await self._begun(asked, hint)
        finally:
            self._claiming = None

    def _let_go(self, asked: Asked | None) -> None:
        """Nobody waits for it any more: what it brings is not held, and so goes back, though this process lives on (R17)."""
        if asked is not None:
            asked.ticket.then(lambda: self._session.held.drop_all(asked.registered))

    async def _begun(self, asked: Asked, hint: bool) -> int:
        try:
            outcome = await drive.wait_for_signal(asked.ticket)
        except asyncio.CancelledError:
            self._let_go(asked)
            raise
        not_taken(self._session, asked.registered, outcome)
        if isinstance(outcome, Fenced):
            self._session.fence_self(outcome.why)
            return 0
        if not isinstance(outcome, Claims):
            log.warning("semel: nothing could be claimed: %s", outcome)
            await self._rest(AWAY_SECONDS)
            return 0
        self._more = len(outcome.tasks) == asked.limit
        if outcome.tasks or not hint:
            self._rest_if_in_vain(bool(outcome.tasks) or outcome.more)
        self._alone.extend(taken for taken in outcome.tasks if taken.task.alone)
        await self._start([taken for taken in outcome.tasks if not taken.task.alone])
        await self._start_alone()
        return len(outcome.tasks)

    def _rest_if_in_vain(self, had: bool) -> None:
        """What is due and cannot be had (a rival is at it, or no code of this version can claim it) is asked for less often."""
        self._vain_seconds = 0.0 if had else min(LOOK_SECONDS, max(POLL_SECONDS, 2 * self._vain_seconds))
        self._not_before = asyncio.get_running_loop().time() + self._vain_seconds

    def _tell_of_pauses(self, paused: Pauses) -> None:
        """Once for each: an operator who reads the log of an idle worker must see why."""
        ours = {one for queue in self.queues for names in self._names if (one := paused.of(queue, *names)) is not None}
        for one in ours - self._pauses:
            why = f": {one.why}" if one.why else ""
            log.warning("semel: %s is paused by %s%s; nothing of it is claimed", one.scope, one.by.removeprefix("person:"), why)
        for one in self._pauses - ours:
            log.warning("semel: %s is not paused any more", one.scope)
        self._pauses = ours

    def _tell_of_foreign(self, found: list[tuple[str, str]]) -> None:
        for queue, kind in found:
            if (queue, kind) not in self._told_of:
                self._told_of.add((queue, kind))
                log.warning(
                    "semel: queue %r holds tasks of kind %r, which this worker does not know; they are left for others",
                    queue,
                    kind,
                )

    # --- attempts ---

    async def _start_alone(self) -> None:
        """A task that may kill its worker runs once alone before it is given up: a kill takes its neighbours along."""
        if self._alone and not self._running:
            await self._start([self._alone.popleft()])

    async def _start(self, claimed: list[ClaimedTask]) -> None:
        """Each by itself. What cannot be started is held no more, and so goes back (R17)."""
        session = self._session
        left = {(taken.tenant, taken.task.id, taken.task.token) for taken in claimed}
        try:
            for taken in claimed:
                try:
                    self._begin(taken, await self._ledger(taken))
                    left.discard((taken.tenant, taken.task.id, taken.task.token))
                except StoreUnavailable as error:
                    log.warning("semel: task %s: the store did not answer, it is not started: %s", taken.task.id, error)
                except Exception:  # one tenant's nonsense must not end everybody's worker
                    log.exception("semel: task %s cannot be started; it is given back", taken.task.id)
        finally:
            session.held.drop_all(left)

    async def _ledger(self, taken: ClaimedTask) -> Ledger:
        """The ledger of what was claimed; the streams of its joined keys are read."""

        def read() -> Ledger:
            return Ledger(self._runtime.desk, taken.tenant, taken.task, taken.head, f"session:{self._session.id}")

        return await self._asked(read) if taken.task.joined else read()

    def _begin(self, taken: ClaimedTask, ledger: Ledger) -> None:
        runtime, session = self._runtime, self._session
        work = self._app.declared_tasks.get(taken.task.kind)
        assert work is not None
        attempt = Attempt(runtime, session, ledger, unfenced=runtime.unfenced, limits=work.limits, timeout_ms=work.timeout_ms)
        attempt.stopping = self._stopping
        running = Running(attempt, asyncio.ensure_future(self._attempt(attempt, work)))
        attempt.code_ended = partial(self._code_ended, running)
        if not work.is_async:  # then it is told on the thread of its code
            loop, here = asyncio.get_running_loop(), attempt.code_ended
            attempt.code_ended = lambda: _quietly(lambda: loop.call_soon_threadsafe(here))
        self._running.add(running)
        self._by_itself = taken.task.alone
        running.task.add_done_callback(lambda _: self._ended(running))

    async def _attempt(self, attempt: Attempt, work: Work) -> None:
        state = attempt.ledger.state
        try:
            if work.is_async:
                await drive.arun(attempts.run(attempt, work))
            else:
                await drive.in_own_thread(lambda: drive.run(attempts.run(attempt, work)))
        except StoreUnavailable as error:
            log.warning("semel: task %s: the store did not answer, the attempt is given back: %s", state.id, error)
        except Exception as error:  # a traceback may hold what was redacted
            told = error if not attempt.veil.active else None
            log.error("semel: task %s: the attempt broke (%s); it is given back", state.id, type(error).__name__, exc_info=told)

    def _code_ended(self, running: Running) -> None:
        """Its slot is free: another may be claimed while the store writes down how this one ended."""
        if running in self._running:
            self._ending.add(running)
            self._ask_ahead()
            self._poke()

    def _ask_ahead(self) -> None:
        """Behind a claim that got all it asked for the next goes to the writer at once: ahead of the end that made room for it,
        so that one transaction can write down both. Not for little room among much: the ends of many come together."""
        if not self._more or self._ahead is not None or self._claiming is not None or self._stopping:
            return
        if self._free() * AHEAD_SHARE < self._concurrency:
            return
        queues, kinds = self._open_to()
        if queues and kinds:
            with contextlib.suppress(StoreUnavailable):  # an attempt ends here, which that must not hinder
                self._ahead = self._ask_for(queues, kinds)

    def _ended(self, running: Running) -> None:
        self._running.discard(running)
        self._ending.discard(running)
        self._by_itself = self._by_itself and bool(self._running)
        running.attempt.code_ended = _nothing  # it leads to `running`: a cycle would keep all of it until the next collection
        ledger = running.attempt.ledger
        self._session.held.drop(ledger.tenant, ledger.state.id, running.attempt.token)
        self._poke()

    # --- stopping ---

    @contextlib.contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _asked_to_stop(self) -> None:
        """First: stop claiming, drain, give back. Second: at once; what was held is taken back by others."""
        if self._stopping:
            log.warning("semel: stopping at once")
            logging.shutdown()
            os._exit(130)
        log.warning("semel: stopping: still under way: %s, for at most %g s", count(len(self._running), "attempt"), GRACE_SECONDS)
        self.stop()

    def stop(self) -> None:
        """Stop claiming, and drain."""
        self._stopping = True
        for running in self._running:
            running.attempt.stopping = True
        self._poke()

    def _fenced(self, why: str) -> None:
        self._failed = why
        self.stop()

    async def _drain(self) -> None:
        """Let what runs end; give back what has not, and what never started."""
        if self._failed:  # fenced: nothing is ours to give back; what still runs may leave its outcome as evidence
            if self._running:
                await asyncio.wait([r.task for r in self._running], timeout=self._session.ttl)
            await asyncio.to_thread(self._flush, 1.0)
            return
        await self._all_back([self._give_back(taken) for taken in self._alone])
        if self._running:
            await asyncio.wait([r.task for r in self._running], timeout=GRACE_SECONDS)
        await self._all_back([self._give_up(running) for running in self._running])
        await asyncio.to_thread(self._flush, GIVE_BACK_SECONDS)

    async def _all_back(self, giving: list[Coroutine[Any, Any, None]]) -> None:
        """All at once, and not for long: a store that is away must not keep a worker from stopping."""
        if not giving:
            return
        given = [asyncio.ensure_future(one) for one in giving]
        _, late = await asyncio.wait(given, timeout=GIVE_BACK_SECONDS)
        for one in late:
            one.cancel()
        failed = [error for error in await asyncio.gather(*given, return_exceptions=True) if error is not None]
        if failed:
            log.warning("semel: %s could not be given back; others will take over", count(len(failed), "task"))

    def _flush(self, seconds: float) -> None:
        """Let outcomes land: one whose stream had moved on is decided again behind the first barrier, what follows from
        it behind the second."""
        with contextlib.suppress(StoreUnavailable):
            for _ in range(3):
                if not self._runtime.desk.writer.barrier().wait(seconds):
                    break

    async def _give_back(self, taken: ClaimedTask) -> None:
        ledger = await self._ledger(taken)
        park = tasks.Park(taken.task.token, "the worker stopped before it started", self._runtime.desk.clock.wall_ms())
        await drive.arun(ledger.commit(park))
        self._session.held.drop(taken.tenant, taken.task.id, taken.task.token)

    async def _give_up(self, running: Running) -> None:
        """It outlived the grace: its task goes back, what it submitted is ambiguous, and its code may start nothing more."""
        attempt = running.attempt
        attempt.exit = attempt.exit or Exit("park", "the worker stopped")
        park = tasks.Park(attempt.token, "the worker stopped while it ran", attempt.clock.wall_ms(), attempt.ran_ms())
        decided = await drive.arun(attempt.ledger.commit(park))
        if not isinstance(decided, Refusal):
            log.warning("semel: task %s was given back while it ran", attempt.ledger.state.id)
        running.task.cancel()


def _quietly(call: Callable[[], object]) -> None:
    """For loops that may be closed already."""
    with contextlib.suppress(RuntimeError):
        call()


def _nothing() -> None:
    """What is left to do."""

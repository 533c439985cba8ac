"""App: the decorators, and the one place where everything is put together."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, cast

from semel import direct
from semel.decorated import (
    EffectDecorator,
    Task,
    TaskDecorator,
    effect_function,
    not_in_loop,
    step_function,
)
from semel.engine import declare, drive, redaction, review, startcheck, stats, views
from semel.engine.keyring import expect_key
from semel.engine.queue import Order, accepted, birth, check_name, check_orders, enqueue, enqueue_many
from semel.engine.requests import Call, Raised, Request
from semel.engine.runtime import Runtime, current
from semel.errors import Misuse
from semel.model import (
    Ask,
    Delivery,
    Event,
    Execution,
    Limits,
    Recovery,
    Ref,
    Retry,
)
from semel.observe import Observer, Stats
from semel.store.contract import Store
from semel.store.places import open_store, place_of
from semel.verbs import Review
from semel.views_of import Effects, Tasks

P = ParamSpec("P")
R = TypeVar("R")
X = TypeVar("X")

ALONE_TTL = timedelta(seconds=15)
REPLICATED_TTL = timedelta(seconds=60)  # half of it exceeds the gap of a failover
LEAST_TTL = timedelta(seconds=1)
DEFAULT_TENANT = "default"
Watch = Literal["worker", "always", "never"]
_apps: weakref.WeakSet[App] = weakref.WeakSet()
_left_behind: list[Any] = []  # a parent's runtimes in a forked child, kept so that nothing of them is finalised


class App:
    """Declares effects, steps and tasks, and reaches their store. No I/O until first use; fork-safe.

    store: "sqlite:///agent.db", "sqlite:////abs/agent.db", "sqlite:///:memory:", "postgresql://user@host:5432/database"
    (several hosts: host1,host2; `?pgbouncer=1` behind a pool in transaction mode); default $SEMEL_STORE, else
    sqlite:///semel.db. modules: imported by name at first use. tenant: "default" is that of calls which name no other;
    None means that every call must name one; any other binds the app: it reads, writes and claims that one's alone.
    lease: a session's TTL (default 15 s; 60 s on a database with standbys). watchdog: whether the kernel kills this
    process when it oversleeps its lease in the middle of a call: in "worker" processes, "always", "never".
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        modules: tuple[str, ...] = (),
        tenant: str | None = "default",
        lease: timedelta = ALONE_TTL,
        watchdog: Watch = "worker",
    ) -> None:
        self._url = store or os.environ.get("SEMEL_STORE") or "sqlite:///semel.db"
        place_of(self._url)
        if isinstance(modules, str):
            raise Misuse(f"modules must be a tuple of module names; write modules=({modules!r},)")
        if lease < LEAST_TTL:
            raise Misuse(
                f"lease={lease} is too short: it is renewed every quarter of it, and a busy machine would miss that; "
                f"write lease=timedelta(seconds=15) (at least {LEAST_TTL.total_seconds():g} s)"
            )
        if watchdog not in ("worker", "always", "never"):
            raise Misuse(f"watchdog={watchdog!r}; write watchdog='worker', 'always' or 'never'")
        if tenant is not None:
            check_name(tenant, "tenant")
        self.tenant, self.modules, self._lease, self._watchdog = tenant, tuple(modules), lease, watchdog
        self.bound_to = tenant if tenant != DEFAULT_TENANT else None
        self.declared_effects: declare.Registry[declare.Effect] = declare.Registry("effect")
        self.declared_steps: declare.Registry[declare.Step] = declare.Registry("step")
        self.declared_tasks: declare.Registry[declare.Work] = declare.Registry("task")
        self._runtime: Runtime | None = None
        self._opening = threading.RLock()
        self._imported = False
        self._is_worker = False
        self._stage: Callable[[], Runtime] | None = None  # a test's harness opens its own
        self.approvers: dict[str, int] = {}  # by effect: how many different people must approve it, if not one
        self.observers: list[Observer] = []  # told of every commit of this process, from the app's first use on
        self.tasks, self.effects, self.review = Tasks(self), Effects(self), Review(self)
        _apps.add(self)

    # --- declaring ---

    def effect(
        self,
        *,
        intent: tuple[str, ...],
        material: tuple[str, ...] = (),
        recovery: Recovery | list[Recovery] | None = None,
        scope: Literal["task", "tenant"] = "task",
        not_done: tuple[type[Exception], ...] = (),
        tries: int = 3,
        timeout: timedelta = timedelta(seconds=30),
        per_task: int | None = None,
        approve: bool | Callable[..., bool] = False,
        identity: Callable[..., Mapping[str, str]] | None = None,
        redact: tuple[str, ...] = (),
        name: str | None = None,
        formerly: tuple[str, ...] = (),
    ) -> EffectDecorator:
        """Declare a guarded change of the outside world. The function's first parameter is a `Submission`.

        intent: the parameters that say what it is meant to do, and make its key. material: those that may not change
        under one key. recovery: the way out of the unknown (default `Ask()`). not_done: exceptions that prove that
        nothing happened. tries: how often it is submitted after such proof. timeout: of one submission. per_task: how
        many different ones of this name a task may have. scope: whether the key is the task's or the whole tenant's.
        approve: whether a person must approve each call before it is sent; or a function of (any of) its arguments that
        says so of one call. How many people: `app.approvers`. identity: a function of (any of) its arguments that looks,
        just before it is sent, as whom that would be; it must be exactly what `semel.bind` has bound. redact: the parameters
        whose values are stored nowhere, only a digest with the key in $SEMEL_REDACTION_KEY.
        """

        def declares(fn: Callable[..., Any]) -> Any:
            declared = declare.effect(
                fn, intent=intent, material=material, recovery=recovery if recovery is not None else Ask(), scope=scope,
                not_done=not_done, tries=tries, timeout=timeout, per_task=per_task, name=name, formerly=formerly,
                approve=approve, identity=identity, redact=redact,
            )  # fmt: skip
            self.declared_effects.add(declared)
            return effect_function(declared)

        return cast(EffectDecorator, declares)

    def step(self, *, name: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Declare work that is harmless to repeat (a model call, a read): its result is recorded, and returned on replay."""

        def declares(fn: Callable[P, R]) -> Callable[P, R]:
            declared = declare.step(fn, name=name)
            self.declared_steps.add(declared)
            return cast(Callable[P, R], step_function(declared))

        return declares

    def task(
        self,
        *,
        intent: tuple[str, ...] | None = None,
        queue: str = "default",
        retry: Retry = Retry(),  # noqa: B008
        limits: Limits = Limits(),  # noqa: B008
        timeout: timedelta | None = None,
        name: str | None = None,
        formerly: tuple[str, ...] = (),
    ) -> TaskDecorator:
        """Declare a task. intent: the parameters that make its key; else every enqueue names one with using(key=...)."""

        def declares(fn: Callable[..., Any]) -> Any:
            declared = declare.task(
                fn, intent=intent, queue=queue, retry=retry, limits=limits, timeout=timeout, name=name, formerly=formerly
            )
            self.declared_tasks.add(declared)
            return Task(self, declared)

        return cast(TaskDecorator, declares)

    def work(
        self,
        key: str,
        *,
        kind: str,
        tenant: str | None = None,
        limits: Limits = Limits(),  # noqa: B008
        wait: timedelta = timedelta(seconds=60),
    ) -> direct.Work:
        """Your own loop as an attempt: `with app.work(key, kind=...)`. wait: for another who has it, and for settle to pass."""
        check_name(key, "key")
        check_name(kind, "kind")
        if (attempt := current.get()) is not None:
            redaction.refuse_clear(attempt, "the key of this work", key)
        return direct.Work(self, Order(self.tenant_of(tenant), kind, key, None, ""), limits, wait)

    # --- running ---

    def run_worker(self, *, queues: list[str] | None = None, concurrency: int = 100, until_idle: bool = False) -> None:
        """Work until SIGTERM (graceful; a second one stops at once). until_idle: until nothing is due any more."""
        not_in_loop("app.run_worker", "await app.arun_worker(...)")
        asyncio.run(self.arun_worker(queues=queues, concurrency=concurrency, until_idle=until_idle))

    async def arun_worker(self, *, queues: list[str] | None = None, concurrency: int = 100, until_idle: bool = False) -> None:
        """The awaitable twin of `run_worker`."""
        worker = importlib.import_module("semel.worker")  # the layer above: it uses an App, an App only starts it
        await worker.Worker(self, queues=queues, concurrency=concurrency, until_idle=until_idle).run()

    def journal(self, of: Ref[Any] | str, *, tenant: str | None = None) -> Sequence[Event]:
        """The events of a task (a Ref, or its id), or of an effect (its key)."""
        not_in_loop("app.journal", "await app.ajournal(...)")
        owner, name = self.locate(of, tenant)
        return views.journal_of(self.runtime.desk, owner, name)

    async def ajournal(self, of: Ref[Any] | str, *, tenant: str | None = None) -> Sequence[Event]:
        """The awaitable twin of `journal`."""
        return await asyncio.to_thread(self.journal, of, tenant=tenant)

    def stats(self, *, tenant: str | None = None) -> Stats:
        """The three ledgers in numbers, and what waits for whom. Counts all tasks and effects: not for a tight loop.

        tenant: whose; None: everybody's, or that of a bound app. The sessions are everybody's.
        """
        not_in_loop("app.stats", "await app.astats(...)")
        whose = self.tenant_of(tenant) if tenant is not None else self.runtime.desk.tenant
        return stats.read(self.runtime.desk, self.runtime.paused, whose)

    async def astats(self, *, tenant: str | None = None) -> Stats:
        """The awaitable twin of `stats`."""
        return await asyncio.to_thread(self.stats, tenant=tenant)

    def signal(self, ref: Ref[Any] | str, event: str, payload: object = None) -> None:
        """Tell a task (a Ref, or an id) that `event` has happened: it goes on if it waits for it, or will not wait.

        The first signal of a name counts; said again, nothing happens. Raises `Refused("stale_view")` if the task has ended.
        """
        not_in_loop("app.signal", "await app.asignal(...)")
        drive.run(review.signal(self.runtime.desk, *self.locate(ref, None), event, payload))

    async def asignal(self, ref: Ref[Any] | str, event: str, payload: object = None) -> None:
        """The awaitable twin of `signal`."""
        await asyncio.to_thread(self.signal, ref, event, payload)

    def close(self) -> None:
        """Commit what is waiting and let go of the store. The app may be used again: it opens anew."""
        not_in_loop("app.close", "await app.aclose()")
        with self._opening:
            if self._runtime is not None:
                self._runtime.close()
                self._runtime = None

    async def aclose(self) -> None:
        """The awaitable twin of `close`."""
        await asyncio.to_thread(self.close)

    # --- inside ---

    @property
    def runtime(self) -> Runtime:
        """What this process has at hand; opened at first use."""
        runtime = self._runtime
        return runtime if runtime is not None else self._open()

    def opened(self) -> Generator[Request, Any, Runtime]:
        """The runtime, for a procedure that works: what has to be opened first is opened away from any event loop."""
        if self._runtime is None:
            reply = yield Call(self._open, False, inline=True)
            if isinstance(reply, Raised):
                raise reply.error
        expect_key(self.declared_effects)
        return self.runtime

    def _open(self) -> Runtime:
        with self._opening:
            if self._runtime is None:
                self.load()
                declare.check_approvers(self.approvers, self.declared_effects)
                self._runtime = self._stage() if self._stage is not None else self._real_runtime()
                self._runtime.app, self._runtime.approvers = self, self.approvers
                self._runtime.observe(self.observers)
                self._runtime.accepted = partial(startcheck.accepted, self._runtime.desk, self.code, self.bound_to)
            return self._runtime

    @property
    def code(self) -> startcheck.Code:
        """What it declares."""
        return startcheck.Code(self.declared_tasks, self.declared_effects)

    def _real_runtime(self) -> Runtime:
        timer = self._watchdog == "always" or (self._watchdog == "worker" and self._is_worker)
        store = self.open_store()
        if store.info.tenant is not None and self.tenant not in (None, store.info.tenant):
            store.close()
            raise Misuse(
                f"the database role of this store's URL is tenant {store.info.tenant!r}'s alone, and this app is of "
                f"{self.tenant!r}; write semel.App(..., tenant={store.info.tenant!r}), or --tenant, or use another role"
            )
        self.bound_to = self.bound_to or store.info.tenant
        lease = REPLICATED_TTL if self._lease is ALONE_TTL and store.info.durability != "alone" else self._lease
        return Runtime(store, self.declared_effects, ttl=lease.total_seconds(), kernel_timer=timer, tenant=self.bound_to)

    def open_store(self) -> Store:
        """Open the store that the URL names. Raises `Misuse`."""
        return open_store(self._url)

    def expect_store(self) -> None:
        """Raise `Misuse` if the store's file is not there: then it was removed, and a new one would know nothing."""
        place = place_of(self._url)
        if place.dialect == "sqlite" and place.where != ":memory:" and not Path(place.where).exists():
            raise Misuse(
                f"the store {place.where} was here when this worker first started, and is gone; a new one would do everything "
                f"again; put it back, or start the worker anew to begin with nothing"
            )

    def load(self) -> None:
        """Import the modules that declare what this app runs."""
        if not self._imported:
            self._imported = True
            for name in self.modules:
                try:
                    importlib.import_module(name)
                except ModuleNotFoundError as error:
                    self._imported = False
                    raise Misuse(f"modules={self.modules!r}: {error}; run it where `import {name}` works") from error

    def be_worker(self) -> None:
        """This process is a worker: from now on the kernel may kill it in mid-call when it oversleeps its lease."""
        if self._stage is not None:
            return
        self._is_worker = True
        runtime = self._runtime
        if runtime is not None and self._watchdog == "worker" and not runtime.watchdog.enabled:
            with self._opening:
                runtime.close()
                self._runtime = None

    def tenant_of(self, tenant: str | None) -> str:
        """The tenant of a call."""
        found = tenant if tenant is not None else self.tenant
        if found is None:
            raise Misuse(
                "this app is bound to no tenant, so every call must name one: using(tenant='acme'), work(..., tenant='acme')"
            )
        check_name(found, "tenant")
        return self.within(found)

    def locate(self, of: Ref[Any] | str, tenant: str | None) -> tuple[str, str]:
        """The tenant and the id that a Ref, or an id and the tenant of the call, stand for. Raises `Misuse`."""
        return (self.within(of.tenant), of.id) if isinstance(of, Ref) else (self.tenant_of(tenant), of)

    def within(self, tenant: str) -> str:
        """A tenant that this app may touch. Raises `Misuse` for another than the one it is bound to."""
        if self.bound_to not in (None, tenant):
            raise Misuse(
                f"this app is bound to tenant {self.bound_to!r} and reaches no other, so not {tenant!r}; use an app of that "
                f"tenant, or one that may name any: semel.App(..., tenant='default')"
            )
        return tenant

    def expect_postgres(self) -> None:
        """Raise `Misuse` if the store is no PostgreSQL database, in which alone a transaction can be shared."""
        if place_of(self._url).dialect != "postgres" or self._stage is not None:
            raise Misuse(
                "using(transaction=...) enqueues within a PostgreSQL transaction of yours, and this store is SQLite, which "
                "has one writer; enqueue after your commit, with a key"
            )

    def accept(self, order: Order, transaction: Any = None) -> Ref[Any]:
        """Enqueue, and wait until it is durable; within a transaction of the caller's own: until it is written there."""
        if transaction is not None:
            from semel.store import pgborrowed

            task, change = birth(self.runtime.desk, order)
            outcome = pgborrowed.accept(self.runtime.desk.store.info, change, transaction)
            return Ref(accepted(task, outcome), order.tenant, app=self)
        task, ticket = enqueue(self.runtime.desk, order)
        ticket.wait()
        return Ref(accepted(task, ticket.value), order.tenant, app=self)

    async def aaccept(self, order: Order, transaction: Any = None) -> Ref[Any]:
        """The same, awaited."""
        runtime = self._runtime if self._runtime is not None else await asyncio.to_thread(self._open)
        if transaction is not None:
            from semel.store import pgborrowed

            task, change = birth(runtime.desk, order)
            outcome = await pgborrowed.aaccept(runtime.desk.store.info, change, transaction)
            return Ref(accepted(task, outcome), order.tenant, app=self)
        task, ticket = enqueue(runtime.desk, order)
        return Ref(accepted(task, await drive.wait_for_signal(ticket)), order.tenant, app=self)

    def accept_many(self, orders: Sequence[Order], transaction: Any = None) -> list[Ref[Any]]:
        """Enqueue many, and wait until all are durable; within a transaction of the caller's own: one after the other."""
        if transaction is not None:
            check_orders(orders)
            return [self.accept(order, transaction) for order in orders]
        ids = drive.run(enqueue_many(self.runtime.desk, orders))
        return [Ref(id, order.tenant, app=self) for id, order in zip(ids, orders, strict=True)]

    async def aaccept_many(self, orders: Sequence[Order], transaction: Any = None) -> list[Ref[Any]]:
        """The same, awaited."""
        if transaction is not None:
            check_orders(orders)
            return [await self.aaccept(order, transaction) for order in orders]
        runtime = self._runtime if self._runtime is not None else await asyncio.to_thread(self._open)
        ids = await drive.arun(enqueue_many(runtime.desk, orders))
        return [Ref(id, order.tenant, app=self) for id, order in zip(ids, orders, strict=True)]

    def run_here(self, work: declare.Work, order: Order, wait: timedelta) -> Generator[Request, Any, Any]:
        """A task's `run`, as a procedure."""
        return direct.run_here(self, work, order, wait)

    def result_of(self, ref: Ref[Any], timeout: timedelta | None) -> Any:
        """Wait for a task's recorded result."""
        not_in_loop("ref.result", "await ref.aresult(...)")
        self.within(ref.tenant)
        timeout = self.runtime.patience(timeout)
        until = None if timeout is None else time.monotonic() + timeout.total_seconds()
        pause = 0.005
        while not self._over(ref, until):
            time.sleep(pause)
            pause = min(0.1, pause * 1.5)
        return self._recorded(ref)

    async def aresult_of(self, ref: Ref[Any], timeout: timedelta | None) -> Any:
        """The awaitable twin of `result_of`."""
        return await asyncio.to_thread(self.result_of, ref, timeout)

    def _over(self, ref: Ref[Any], until: float | None) -> bool:
        row = self.runtime.desk.store.task(ref.tenant, ref.id)
        if row is None:
            raise Misuse(f"there is no task {ref.id} of tenant {ref.tenant!r} in this store")
        ended = row.delivery in (Delivery.ACKNOWLEDGED, Delivery.DEAD_LETTERED)
        return ended or (until is not None and time.monotonic() >= until)

    def _recorded(self, ref: Ref[Any]) -> Any:
        state = views.state_of(self.runtime.desk, ref.tenant, ref.id)
        if state.delivery is not Delivery.ACKNOWLEDGED or state.execution is not Execution.SUCCEEDED:
            direct.unsettled(ref, state)
        self.load()
        work = self.declared_tasks.get(state.kind)
        return state.result if work is None else work.result.decode(state.result)


def current_work() -> direct.Work:
    """The work that this code is part of. Raises `Misuse` outside any."""
    attempt = current.get()
    if attempt is None:
        raise Misuse("semel.current() was called outside any work; call it in a task's handler, or within: with app.work(...):")
    return direct.as_work(attempt)


# --- forks ------------------------------------------------------------------------------------------------------------


def _after_fork_in_child() -> None:
    for app in list(_apps):
        app._opening = threading.RLock()
        if app._runtime is not None:
            app._runtime.forked = True
            _left_behind.append(app._runtime)
            app._runtime = None


os.register_at_fork(after_in_child=_after_fork_in_child)

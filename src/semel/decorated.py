"""What the decorators give back: effects and steps as plain functions, tasks as handles."""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, Protocol, TypeVar, cast, overload

from semel.engine import declare, drive, redaction
from semel.engine import identity as identities
from semel.engine.attempt import Attempt
from semel.engine.data import NotRecordable
from semel.engine.perform import called, perform
from semel.engine.planned import Planned, planned
from semel.engine.queue import Order, check_name
from semel.engine.runtime import IN_EFFECT, current, in_loop, inside, set_here
from semel.errors import Misuse, Suspended
from semel.machine import keys, tasks
from semel.machine.limits import text_of
from semel.model import Json, Ref, Submission, exact_usd, whole_number

if TYPE_CHECKING:
    from semel.app import App

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
LONGEST_WAIT = timedelta(days=36525)
_in_step: contextvars.ContextVar[bool] = contextvars.ContextVar("semel_step", default=False)


class Executes(Protocol):
    """A transaction of the caller's own: psycopg and SQLAlchemy connections and sessions."""

    def execute(self, statement: Any, parameters: Any = ..., /) -> Any: ...


class Effect(Generic[P, R_co]):
    """An effect, to a type checker. At run time it is a plain function whose signature lacks the submission."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Perform it: once for its key."""
        raise NotImplementedError

    def using(self, *, occurrence: str) -> Effect[P, R_co]:
        """The same intent again, on purpose: a name, part of the key."""
        raise NotImplementedError

    def planned(self, ref: Ref[Any], /, *args: P.args, **kwargs: P.kwargs) -> Planned:
        """The call that this task is expected to make, to be approved ahead."""
        raise NotImplementedError


class EffectDecorator(Protocol):
    """What `app.effect(...)` gives."""

    def __call__(self, fn: Callable[Concatenate[Submission, P], R], /) -> Effect[P, R]: ...


class TaskDecorator(Protocol):
    """What `app.task(...)` gives."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> Task[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, T], /) -> Task[P, T]: ...


def not_in_loop(what: str, twin: str) -> None:
    """Raise `Misuse` inside a running event loop, naming the twin."""
    if in_loop():
        raise Misuse(f"{what} waits for the store, and would hold up the event loop that runs here; write: {twin}")


def attempt_here(what: str, within: str = "") -> Attempt:
    """The attempt of this context. Raises `Misuse` outside any work, and inside an effect (unless `within` names that)."""
    where = inside.get()
    if where and where != within:
        raise Misuse(f"{what} was called inside {where}; call it from the handler, one after the other")
    attempt = current.get()
    if attempt is None:
        raise Misuse(
            f"{what} was called outside any work, so there is no record to keep it once; call it from a task's handler, or "
            f"within: with app.work(key, kind=...):"
        )
    if attempt.runtime.watchdog.voided or attempt.runtime.forked:
        raise Misuse(f"{what} was called in a fork of the process that holds the task; call it in that process")
    return attempt


def dressed(wrapper: Callable[..., Any], fn: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    """The wrapper in the function's clothes, without the submission: what agent frameworks look at."""
    wrapper.__name__, wrapper.__qualname__ = fn.__name__, fn.__qualname__
    wrapper.__doc__, wrapper.__module__ = fn.__doc__, fn.__module__
    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    hints = {p.name: p.annotation for p in signature.parameters.values()}
    wrapper.__annotations__ = {**hints, "return": signature.return_annotation}
    return wrapper


def effect_function(effect: declare.Effect, occurrence: str = "") -> Any:
    """A plain function that performs `effect`."""
    what = f"effect {effect.name}"

    async def performs_async(*args: Any, **kwargs: Any) -> Any:
        attempt = attempt_here(what)
        # R11: whoever cancels the handler does not cancel a call that is under way
        return await drive.arun_shielded(perform(attempt, called(attempt, effect, args, kwargs, occurrence)))

    def performs(*args: Any, **kwargs: Any) -> Any:
        not_in_loop(what, f"await asyncio.to_thread({effect.fn.__name__}, ...)")
        attempt = attempt_here(what)
        return drive.run(perform(attempt, called(attempt, effect, args, kwargs, occurrence)))

    def using(*, occurrence: str) -> Any:
        if not isinstance(occurrence, str) or not occurrence:
            raise Misuse(f"{what}: an occurrence is a name, and not {occurrence!r}; write using(occurrence='after-fix')")
        return effect_function(effect, occurrence)

    def foresees(ref: Ref[Any], /, *args: Any, **kwargs: Any) -> Planned:
        return planned(effect, ref, args, kwargs, occurrence)

    function = dressed(performs_async if effect.is_async else performs, effect.fn, effect.parameters.signature)
    function.using = using  # type: ignore[attr-defined]
    function.planned = foresees  # type: ignore[attr-defined]
    function.semel_effect = effect  # type: ignore[attr-defined]
    return function


def _short_enough(what: str, wait: timedelta) -> None:
    if wait > LONGEST_WAIT:
        raise Misuse(f"{what} is for more than 100 years, which the record does not hold; write at most timedelta(days=36525)")


def sleep(duration: timedelta) -> None:
    """Let time pass, durably: the handler is suspended, no worker is held, and the next attempt goes on behind it.

    At most 100 years. In plain and in async handlers alike (it is not awaited). How long is on record from the first time on.
    """
    attempt = attempt_here("semel.sleep")
    if not isinstance(duration, timedelta) or duration < timedelta(0):
        raise Misuse(f"semel.sleep takes a duration, not {duration!r}; write semel.sleep(timedelta(hours=1))")
    _short_enough("this semel.sleep", duration)
    ms = int(duration.total_seconds() * 1000)
    key, now = attempt.next_step("semel.sleep", ms), attempt.clock.wall_ms()
    known = attempt.ledger.state.waits.get(key)
    until = known.until if known else now + ms
    if until > now:
        raise attempt.wait(key, "", until)


def wait_for(event: str, *, timeout: timedelta | None = None) -> Any:
    """Wait, durably, until `event` is signalled to this task (`app.signal`); its payload. No worker is held meanwhile.

    A signal that came before is not lost, and a second of the same name is none. Raises `TimeoutError` when the time is
    over first (at most 100 years); that is on record, so a replay takes the same way. In plain and in async handlers alike.
    """
    attempt = attempt_here("semel.wait_for")
    check_name(event, "event")
    redaction.refuse_clear(attempt, "the event of semel.wait_for", event)
    if timeout is not None and not isinstance(timeout, timedelta):
        raise Misuse(f"timeout= is a duration, not {timeout!r}; write semel.wait_for({event!r}, timeout=timedelta(days=2))")
    if timeout is not None:
        _short_enough("the timeout of this semel.wait_for", timeout)
        timeout = max(timeout, timedelta(0))
    key, now, state = attempt.next_step("semel.wait_for", event), attempt.clock.wall_ms(), attempt.ledger.state
    known = state.waits.get(key)
    if not (known and known.over) and event in state.signals:
        return state.signals[event][1]
    until = known.until if known else now + int(timeout.total_seconds() * 1000) if timeout is not None else 0
    if not (known and known.over) and (not until or until > now):
        raise attempt.wait(key, event, until)
    attempt.ledger.post(tasks.GiveUp(attempt.token, key, event, until))
    raise TimeoutError(f"{event} was not signalled in time")


def bind(**identity: str) -> None:
    """Say as whom, and where, this work acts: `semel.bind(profile="p1", account="alice", target="shop.example")`.

    On record with the task, for this attempt and all later ones. The same again is nothing, and further names are added;
    another value for a bound name blocks the task, and nothing more is submitted (`identity_mismatch`). Effects that are
    declared with identity= are sent only under exactly this. At most 200 printable characters each; they are shown, so bind no
    secret. In plain and in async handlers alike. Raises `Misuse` outside any work and inside an effect.
    """
    identities.bind(attempt_here("semel.bind"), identity)


def spend(*, usd: Decimal | str = "0", tokens: int = 0) -> None:
    """Say what was spent, of money (exact: text or a Decimal, of US dollars) and of tokens. In plain and async code alike.

    It is on record before the task's next effect is sent, and counts against `Limits(usd=, tokens=)` whatever becomes of the
    attempt. Beyond a limit it suspends the handler, and the task is dead-lettered. In a step the step's result is recorded
    first; in an effect, the effect's. A step that is replayed does not spend again. Raises `Misuse` for a float.
    """
    money, count = exact_usd(usd, "semel.spend(usd=)"), whole_number(tokens, "semel.spend(tokens=)")
    in_effect = inside.get() == IN_EFFECT
    if current.get() is None and _in_step.get():
        return  # a step outside any work just runs
    attempt = attempt_here("semel.spend", within=IN_EFFECT)
    if money or count:
        attempt.ledger.post(tasks.Spend(attempt.token, attempt.number, text_of(money), count))
    if not in_effect and not _in_step.get():
        attempt.look_at_limits()


def step_function(step: declare.Step) -> Any:
    """A plain function that runs `step` once per record. Outside any work it just runs: a step is harmless to repeat."""

    async def steps_async(*args: Any, **kwargs: Any) -> Any:
        if current.get() is None:
            with set_here(_in_step, True):
                return await step.fn(*args, **kwargs)
        taken = _Taken(step, args, kwargs)
        if taken.known:
            return taken.result()
        with set_here(_in_step, True):
            value = await taken.attempt.runtime.stepping(step, taken.attempt, taken.key)(**taken.values)
        return taken.record(value)

    def steps(*args: Any, **kwargs: Any) -> Any:
        if current.get() is None:
            with set_here(_in_step, True):
                return step.fn(*args, **kwargs)
        taken = _Taken(step, args, kwargs)
        if taken.known:
            return taken.result()
        with set_here(_in_step, True):
            value = taken.attempt.runtime.stepping(step, taken.attempt, taken.key)(**taken.values)
        return taken.record(value)

    function: Any = dressed(steps_async if step.is_async else steps, step.fn, step.parameters.signature)
    function.semel_step = step
    return function


class _Taken:
    """One call of a step: its values, its key, and whether it is on record."""

    def __init__(self, step: declare.Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.step = step
        self.attempt = attempt_here(f"step {step.name}")
        if self.attempt.exit is not None:
            raise Suspended(self.attempt.exit.why)
        self.attempt.look_at_limits()
        self.values = step.parameters.bind(args, kwargs)
        data = step.parameters.encode(self.values)
        redaction.refuse_clear(self.attempt, f"step {step.name}: an argument", data)
        self.key = self.attempt.next_step(step.name, data)
        self.known = self.key in self.attempt.ledger.state.steps

    def result(self) -> Any:
        try:
            return self.step.result.decode(self.attempt.ledger.state.steps[self.key][1])
        except NotRecordable as error:
            raise Misuse(f"step {self.step.name}: {error}; give the new result a default, or the step a new name") from None

    def record(self, value: Any) -> Any:
        try:
            data = self.step.result.encode(value)
        except NotRecordable as error:
            raise Misuse(f"step {self.step.name}: its result cannot be recorded: {error}; return plain data") from None
        redaction.refuse_clear(self.attempt, f"step {self.step.name}: its result", data)
        self.attempt.ledger.post(tasks.Step(self.attempt.token, self.key, self.step.name, data))
        self.attempt.look_at_limits()
        return self.step.result.decode(data)


class Task(Generic[P, T]):
    """A declared task: enqueue it, or run it here. `fn` is the handler; the task itself is not callable."""

    def __init__(self, app: App, work: declare.Work, options: Options | None = None) -> None:
        self._app, self._work = app, work
        self._options = options or NOTHING_SAID
        self.fn: Callable[P, Any] = work.fn
        self.name = work.name
        self.__doc__ = work.fn.__doc__

    def using(
        self,
        *,
        key: str | None = None,
        tenant: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
        wait: timedelta = timedelta(0),
        transaction: Executes | None = None,
    ) -> Task[P, T]:
        """The same task with options. key: instead of the intent's. wait: how long `run` waits for one who has it.

        transaction: a connection of your own to the store's database, in whose transaction `enqueue` accepts the task.
        """
        if transaction is not None:
            self._app.expect_postgres()
        if run_at is not None and run_at.tzinfo is None:
            raise Misuse(f"run_at={run_at} has no time zone; write datetime.now(timezone.utc) + ...")
        if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > 1000:
            raise Misuse(f"priority must be an int from -1000 to 1000 (higher is sooner), not {priority!r}")
        return Task(self._app, self._work, Options(key, tenant, priority, run_at, wait, transaction))

    def order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Order:
        """The task as data, checked against the handler's signature."""
        return self._ordered(*self._read(args, kwargs), self._options)

    def _read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Json], str]:
        """The arguments as data, and the key. Raises `Misuse`."""
        work = self._work
        what = f"task {work.name}"
        data = work.parameters.read(args, kwargs)
        key = self._options.key
        if key is None:
            if not work.intent:
                raise Misuse(
                    f"{what}: nothing says which work this is, so it cannot be kept once; declare intent=('...',) or write "
                    f"{work.fn.__name__}.using(key='...').enqueue(...)"
                )
            intent = {name: data[name] for name in work.intent}
            for name, value in intent.items():
                keys.check_intent(value, f"{what}: intent {name}")
            key = keys.task_key(intent)
        return data, key

    def _ordered(self, data: dict[str, Json], key: str, options: Options) -> Order:
        work = self._work
        if (attempt := current.get()) is not None:
            redaction.refuse_clear(attempt, f"task {work.name}: an argument, or its key,", data, key)
        due = 0 if options.run_at is None else int(options.run_at.timestamp() * 1000)
        return Order(self._app.tenant_of(options.tenant), work.first_name, key, data, work.queue, options.priority, due)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Ref[T]:
        """Accept the task, durably (in a transaction of yours: with your commit). The same key again is the same task."""
        not_in_loop(f"{self.name}.enqueue", f"await {self.name}.aenqueue(...)")
        return self._app.accept(self.order(args, kwargs), self._options.transaction)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Ref[T]:
        """The awaitable twin of `enqueue`."""
        return await self._app.aaccept(self.order(args, kwargs), self._options.transaction)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[P, T]:
        """One of the calls of an `enqueue_many`: checked here, and accepted there. What `using` says goes first for it."""
        if self._options.transaction is not None:
            name = self._work.fn.__name__
            raise Misuse(
                f"task {self.name}: a call is in no transaction by itself, all of them are; write "
                f"{name}.using(transaction=...).enqueue_many([{name}.call(...), ...])"
            )
        return Call(self._work, *self._read(args, kwargs), self._options)

    def enqueue_many(self, calls: Iterable[Call[P, T]]) -> list[Ref[T]]:
        """Accept many, as `enqueue` does each of them; durable when it returns. Their Refs, in the order given.

        All are checked before any is accepted. Cut off in the middle, some are: the same calls again accept the rest.
        """
        not_in_loop(f"{self.name}.enqueue_many", f"await {self.name}.aenqueue_many(...)")
        return self._app.accept_many(self._orders(calls), self._options.transaction)

    async def aenqueue_many(self, calls: Iterable[Call[P, T]]) -> list[Ref[T]]:
        """The awaitable twin of `enqueue_many`."""
        return await self._app.aaccept_many(self._orders(calls), self._options.transaction)

    def _orders(self, calls: Iterable[Call[P, T]]) -> list[Order]:
        name = self._work.fn.__name__
        if self._options.key is not None:
            raise Misuse(f"task {self.name}: one key is no key for many calls; write {name}.using(key=...).call(...) for each")
        orders: list[Order] = []
        for call in calls:
            if not isinstance(call, Call) or call._work is not self._work:
                raise Misuse(
                    f"task {self.name}: enqueue_many takes calls of this task, and not {_shown(call)}; write "
                    f"{name}.enqueue_many([{name}.call(...), ...])"
                )
            orders.append(self._ordered(call._data, call.key, self._options.beneath(call._options)))
        return orders

    def run(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Accept the task and make one attempt in this very process; its recorded result if it is done; else `Unsettled`."""
        not_in_loop(f"{self.name}.run", f"await {self.name}.arun(...)")
        self._not_in_transaction()
        return cast(T, drive.run(self._app.run_here(self._work, self.order(args, kwargs), self._options.wait)))

    async def arun(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The awaitable twin of `run`."""
        self._not_in_transaction()
        return cast(T, await drive.arun(self._app.run_here(self._work, self.order(args, kwargs), self._options.wait)))

    def _not_in_transaction(self) -> None:
        if self._options.transaction is not None:
            raise Misuse(
                f"task {self.name}: run(...) needs a task that is on record, and with transaction= it is only after your commit; "
                f"write enqueue(...), and run it when you have committed"
            )

    if not TYPE_CHECKING:  # to a type checker it has no call at all

        def __call__(self, *_: Any, **__: Any) -> NoReturn:
            name = self._work.fn.__name__
            raise Misuse(
                f"task {self.name} is not called, it is accepted: write {name}.enqueue(...), or {name}.run(...) to run it here"
            )


class Call(Generic[P, T]):
    """A call of a task that is yet to be accepted: one of those that `enqueue_many` takes. Made by `task.call(...)`."""

    __slots__ = ("_data", "_options", "_work", "key")

    def __init__(self, work: declare.Work, data: dict[str, Json], key: str, options: Options) -> None:
        self._work, self._data, self.key, self._options = work, data, key, options

    def __repr__(self) -> str:
        return f"<call of task {self._work.name}, key {self.key!r}>"


def _shown(call: object) -> str:
    return repr(call) if isinstance(call, Call) else f"a {type(call).__name__}"


class Options:
    """What `using` says."""

    def __init__(
        self,
        key: str | None = None,
        tenant: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
        wait: timedelta = timedelta(0),
        transaction: Executes | None = None,
    ) -> None:
        self.key, self.tenant, self.priority, self.run_at, self.wait = key, tenant, priority, run_at, wait
        self.transaction = transaction

    def beneath(self, said: Options) -> Options:
        """What holds for a call among many that was made with `said`: what that leaves at its default is as for all of them."""
        if said is NOTHING_SAID:
            return self
        return Options(
            said.key, self.tenant if said.tenant is None else said.tenant, said.priority or self.priority,
            said.run_at or self.run_at, self.wait, said.transaction,
        )  # fmt: skip


NOTHING_SAID = Options()

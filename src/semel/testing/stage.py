"""Behind the harness: a clock that tests move, processes that die on cue, and the outside world as the fakes play it.

Everything else is the real thing: the machine, the engine, the store (SQLite in memory), the recovery ladder. One `Life`
stands for one process. It dies like a killed one: what it had queued for the store may land, nothing after that does, and
the next life finds its session fenced with proof of death.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

from semel.engine.acting import Acting
from semel.engine.attempt import Attempt
from semel.engine.clock import Clock
from semel.engine.declare import Effect, Registry, Step, is_async
from semel.engine.ledger import Desk
from semel.engine.perform import Doing
from semel.engine.requests import Sleep
from semel.engine.runtime import Runtime
from semel.errors import Misuse, StoreUnavailable
from semel.model import Confirmed, NotFound, Submission, Verdict
from semel.store.contract import Lends, Store, Unit
from semel.store.writer import Signal, Ticket, Writer

if TYPE_CHECKING:
    from semel.app import App

Place = Literal["before", "during", "after"]
PLACES: tuple[Place, ...] = ("before", "during", "after")
TTL_SECONDS = 100 * 365 * 86_400.0  # a lease that no test outlives: a life here ends by dying, never by being late


class Died(BaseException):
    """The process that this code plays has died. It unwinds what a real death would simply end; never catch it in a handler."""


class VirtualClock(Clock):
    """Time as the test says. It starts at the machine's own and then stands still, but for `move`."""

    def __init__(self) -> None:
        real = Clock()
        self._lock = threading.Lock()
        self._wall_ms, self._boot = float(real.raw_ms()), real.boot()
        super().__init__()

    def move(self, seconds: float) -> None:
        """Wall clock and CLOCK_BOOTTIME move on together."""
        with self._lock:
            self._wall_ms += seconds * 1000
            self._boot += seconds

    def raw_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return int(self._wall_ms)

    def boot(self) -> float:
        """Seconds."""
        return self._boot

    def pause(self, seconds: float) -> Sleep:
        """Whoever waits inside an attempt (backoff, a short settle) makes the time pass."""
        self.move(seconds)
        return Sleep(0.0)


@dataclass(frozen=True, slots=True)
class Sent:
    """One call that was really made: the effect's (or step's) own arguments, its key, and the token that went with it."""

    arguments: dict[str, Any]
    key: str
    token: int


@dataclass(slots=True)
class Act:
    """A `Sent`, and what the outside world knows of it. done: the call returned, at `at` seconds of CLOCK_BOOTTIME."""

    sent: Sent
    at: float
    done: bool = False
    result: Any = None


@dataclass(frozen=True, slots=True)
class Fake:
    """What stands in for an effect's or a step's function. own_lookup: its declared lookups are asked, not this record."""

    fn: Callable[..., Any]
    takes_submission: bool
    own_lookup: bool

    def call(self, submission: Submission | None, values: dict[str, Any]) -> Any:
        """Its result, or an awaitable of it."""
        return self.fn(submission, **values) if self.takes_submission else self.fn(**values)


def called(of: Effect | Step) -> str:
    """Its name here: an effect and a step may bear the same."""
    return of.name if isinstance(of, Effect) else f"step {of.name}"


def fake_of(of: Effect | Step, fn: Callable[..., Any], own_lookup: bool) -> Fake:
    """The fake, checked against the parameters of the effect, or step. Raises `Misuse`."""
    kind = "effect" if isinstance(of, Effect) else "step"
    what = f"the fake of {kind} {of.name}"
    if not callable(fn):
        raise Misuse(f"{what} is {fn!r}; give a function with the {kind}'s parameters: {of.parameters.signature}")
    parameters = list(inspect.signature(fn).parameters.values())
    first = parameters[0] if parameters else None
    takes = kind == "effect" and first is not None and first.name not in of.parameters.values and first.kind in (
        first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD,
    )  # fmt: skip
    names = dict.fromkeys(of.parameters.values)
    try:
        inspect.signature(fn).bind(*([None] if takes else []), **names)
    except TypeError as error:
        raise Misuse(f"{what} cannot be called as the {kind} is: {error}; its parameters are {of.parameters.signature}") from None
    return Fake(fn, takes, own_lookup)


class Stage:
    """The outside world of one harness: the fakes, the crashes to come, and all that was really called."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.fakes: dict[str, Fake] = {}
        self._crashes: dict[str, deque[Place]] = {}
        self._acts: dict[str, list[Act]] = {}
        self._lock = threading.Lock()

    def will_crash(self, of: Effect | Step, at: Place) -> None:
        """The next call of it that is not spoken for yet."""
        with self._lock:
            self._crashes.setdefault(called(of), deque()).append(at)

    def to_come(self) -> list[str]:
        """The crashes that have not happened."""
        with self._lock:
            return [f"{name} {place}" for name, places in sorted(self._crashes.items()) for place in places]

    def sent(self, of: Effect | Step) -> list[Sent]:
        """What was really called, in order."""
        with self._lock:
            return [act.sent for act in self._acts.get(called(of), [])]

    # --- effects ---

    def acting(self, life: Life, effect: Effect) -> Callable[..., Any]:
        """A function of the effect's colour that plays one call of it."""
        fake = self.fakes.get(effect.name)

        async def acts_async(submission: Submission, /, **values: Any) -> Any:
            with self._call(life, effect, fake, Sent(dict(values), submission.key, submission.token)) as act:
                if not act.done:
                    result = fake.call(submission, values) if fake else effect.fn(submission, **values)
                    act.result = await result if inspect.isawaitable(result) else result
                    act.done = True
            return act.result

        def acts(submission: Submission, /, **values: Any) -> Any:
            with self._call(life, effect, fake, Sent(dict(values), submission.key, submission.token)) as act:
                if not act.done:
                    result = fake.call(submission, values) if fake else effect.fn(submission, **values)
                    act.result = asyncio.run(_await(result)) if inspect.isawaitable(result) else result
                    act.done = True
            return act.result

        return acts_async if effect.is_async else acts

    def stepping(self, life: Life, step: Step, key: str, token: int) -> Callable[..., Any]:
        """A function of the step's colour that plays one call of it."""
        fake = self.fakes.get(called(step))

        async def steps_async(**values: Any) -> Any:
            with self._call(life, step, None, Sent(dict(values), key, token)):
                result = fake.call(None, values) if fake else step.fn(**values)
                return await result if inspect.isawaitable(result) else result

        def steps(**values: Any) -> Any:
            with self._call(life, step, None, Sent(dict(values), key, token)):
                result = fake.call(None, values) if fake else step.fn(**values)
                return asyncio.run(_await(result)) if inspect.isawaitable(result) else result

        return steps_async if step.is_async else steps

    @contextlib.contextmanager
    def _call(self, life: Life, of: Effect | Step, fake: Fake | None, sent: Sent) -> Iterator[Act]:
        """One call, from the intent on record to the outcome that is not yet, with the death that was asked for."""
        what = called(of)
        if life.died.is_set:
            raise Died("its process died before the call")
        place = self._crash(what)
        if place == "before":
            life.die(f"before the call of {what}")
        if place == "during":
            life.kill()  # the sender is gone, and what it has sent takes its course
        act = self._remembered(of, sent.key) if fake and isinstance(of, Effect) else None
        if act is None:
            act = self._note(what, sent)
        try:
            yield act
        finally:
            if place is not None:
                life.die(f"{place} the call of {what}")

    def _crash(self, what: str) -> Place | None:
        with self._lock:
            places = self._crashes.get(what)
            return places.popleft() if places else None

    def _note(self, what: str, sent: Sent) -> Act:
        act = Act(sent, self.clock.boot())
        with self._lock:
            self._acts.setdefault(what, []).append(act)
        return act

    def _remembered(self, effect: Effect, key: str) -> Act | None:
        """A provider that was declared to remember keys (`Resend`) answers a known one as before, and does nothing."""
        withins = [rung.within_ms for rung in effect.rungs if rung.kind == "resend"]
        with self._lock:
            for act in self._acts.get(effect.name, []) if withins else []:
                age_ms = (self.clock.boot() - act.at) * 1000
                if act.done and act.sent.key == key and any(within is None or age_ms < within for within in withins):
                    return act
        return None

    # --- lookups ---

    def looking(self, life: Life, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the lookup's colour: for a faked effect the answer is this record's."""

        async def looks_async(submission: Submission, /, **values: Any) -> Any:
            verdict = self._verdict(life, submission)
            return await fn(submission, **values) if verdict is None else verdict

        def looks(submission: Submission, /, **values: Any) -> Any:
            verdict = self._verdict(life, submission)
            return fn(submission, **values) if verdict is None else verdict

        return looks_async if is_async(fn) else looks

    def _verdict(self, life: Life, submission: Submission) -> Verdict | None:
        row = life.desk.store.effect(submission.tenant, submission.key)
        fake = self.fakes.get(row.name) if row is not None else None
        if row is None or fake is None or fake.own_lookup:
            return None
        with self._lock:
            found = [act for act in self._acts.get(row.name, []) if act.done and act.sent.key == submission.key]
        return Confirmed(found[0].result) if found else NotFound()


async def _await(result: Awaitable[Any]) -> Any:
    return await result


class MortalWriter(Writer):
    """Takes nothing more once its process is dead; what it had taken lands."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.dead = False

    def submit(self, unit: Unit, *, waited_for: bool = True) -> Ticket:
        """Raises `Died`."""
        if self.dead:
            if threading.current_thread() is self._thread:
                raise StoreUnavailable("its process is dead")  # a callback's; the writer's own thread must go on to the end
            raise Died("its process is dead")
        return super().submit(unit, waited_for=waited_for)


class Life(Runtime):
    """One process, as long as it lives. died: happens when it does."""

    def __init__(self, store: Store, effects: Registry[Effect], stage: Stage, on_death: Callable[[Life], None]) -> None:
        super().__init__(store, effects, ttl=TTL_SECONDS, kernel_timer=False, clock=stage.clock)
        self._mortal = MortalWriter(store)
        self.desk = Desk(store, self._mortal, stage.clock, self.desk.standing)
        self.died = Signal()
        self._stage, self._on_death = stage, on_death
        self._dying = threading.Lock()

    def die(self, why: str) -> NoReturn:
        """Be killed, and unwind the code that runs here. Raises `Died`."""
        self.kill()
        raise Died(f"the process died {why}, as the test said it would")

    def kill(self) -> None:
        """As SIGKILL would: nothing more reaches the store, and the session's death can be proved."""
        with self._dying:
            if self.died.is_set:
                return
            self._mortal.dead = True
            self._mortal.close()
            session = self.open_session
            if session is not None:
                session.stop(leave=False)
                self.desk.store.fence(session.id, None, "dead")
            self._on_death(self)
            self.died.set()

    # --- Runtime's own, where a stage differs ---

    def guarded(self, fn: Callable[..., Any], attempt: Attempt, doing: Doing, acting: Acting) -> Callable[..., Any]:
        """An effect's function, played."""
        known = attempt.ledger.effect(doing.key)
        effect = self.effects.get(known.name) if known is not None else None
        return super().guarded(fn if effect is None else self._stage.acting(self, effect), attempt, doing, acting)

    def stepping(self, step: Step, attempt: Attempt, key: str) -> Callable[..., Any]:
        """A step's function, played."""
        return self._stage.stepping(self, step, key, attempt.token)

    def lender(self, effect: Effect) -> Lends | None:
        """A fake writes nowhere."""
        return None if effect.name in self._stage.fakes else super().lender(effect)

    def looking(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A lookup's function, played."""
        return super().looking(self._stage.looking(self, fn))

    def observing(self, effect: Effect, attempt: Attempt) -> Callable[..., Any]:
        """As whom a fake would be sent: as what is bound, unless the test looks itself (`own_lookup=True`)."""
        fake, observer = self._stage.fakes.get(effect.name), effect.identity
        if fake is None or fake.own_lookup or observer is None:
            return super().observing(effect, attempt)
        return _answering(dict(attempt.ledger.state.bound), observer.is_async)

    def patience(self, timeout: timedelta | None) -> timedelta | None:
        """None at all: nothing happens here while anybody waits."""
        return timedelta(0)

    def close(self) -> None:
        """As on a graceful stop, but for the store, which outlives it."""
        self.desk.writer.close()
        session = self.open_session
        if session is not None:
            session.stop(leave=not self.codes and not session.held)


def _answering(value: Any, is_async: bool) -> Callable[..., Any]:
    """A function that returns `value`, whatever it is asked."""

    async def answers_async(**_: Any) -> Any:
        return value

    return answers_async if is_async else lambda **_: value


def declared(of: object, app: App) -> Effect | Step:
    """The declaration behind an effect's or a step's function. Raises `Misuse`."""
    effect, step = getattr(of, "semel_effect", None), getattr(of, "semel_step", None)
    if effect is None and step is None:
        raise Misuse(
            f"{getattr(of, '__name__', of)!r} is no effect and no step; name one that @app.effect(...) or @app.step() has made"
        )
    found = cast(Effect | Step, step if effect is None else effect)
    known = app.declared_steps.get(found.name) if effect is None else app.declared_effects.get(found.name)
    if known is not found:
        raise Misuse(f"{'step' if effect is None else 'effect'} {found.name} belongs to another app than this harness's")
    return found

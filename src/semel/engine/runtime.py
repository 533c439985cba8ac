"""What one App has at hand in one process: store, writer, session, watchdog. Made at first use, dropped at a fork."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.engine.acting import Acting, follow_anyio, follow_tasks
from semel.engine.acting import acting as acting_now
from semel.engine.arrival import Arrival, asked
from semel.engine.clock import Clock
from semel.engine.declare import Effect, Registry, Step, is_async
from semel.engine.keyring import Ring, redacting
from semel.engine.ledger import Desk
from semel.engine.observed import commit_of
from semel.engine.perform import Doing
from semel.engine.session import Learnt, Session, land
from semel.engine.standing import Paused, Standing
from semel.errors import Misuse
from semel.machine import effects as e
from semel.model import Awaits
from semel.observe import Fenced, Observer
from semel.observe.watch import Watch
from semel.store.contract import Change, Landed, Lends, Store
from semel.store.witness import Witness
from semel.store.writer import Writer
from semel.watchdog import Watchdog, watching_children

if TYPE_CHECKING:
    from semel.engine.attempt import Attempt

log = logging.getLogger("semel")
current: contextvars.ContextVar[Attempt | None] = contextvars.ContextVar("semel_attempt", default=None)
inside: contextvars.ContextVar[str] = contextvars.ContextVar("semel_inside", default="")
IN_EFFECT = "an effect"


def in_loop() -> bool:
    """Whether this thread runs an event loop now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Code:
    """The code of one submission, while it runs: the kernel timer stays armed until it has ended."""

    __slots__ = ("_doing", "_runtime", "began")

    def __init__(self, runtime: Runtime, doing: Doing) -> None:
        self._runtime, self._doing = runtime, doing
        self.began = runtime.desk.clock.boot()
        runtime.watchdog.enter()
        with runtime.lock:
            runtime.codes.add(self)

    def ended(self) -> None:
        """It returned or raised; only the first time counts."""
        with self._runtime.lock:
            if self not in self._runtime.codes:
                return
            self._runtime.codes.discard(self)
        self._runtime.watchdog.leave()

    def overdue(self, now: float) -> float:
        """Seconds beyond its timeout."""
        return now - self.began - self._doing.seconds


class Runtime:
    """The parts that procedures need, put together. kernel_timer: it lets itself be killed (R16). tenant: see `Desk`."""

    def __init__(
        self,
        store: Store,
        effects: Registry[Effect],
        *,
        ttl: float,
        kernel_timer: bool,
        clock: Clock | None = None,
        tenant: str | None = None,
    ) -> None:
        self.lock = threading.Lock()
        clock = clock or Clock()
        self.witness = Witness(store.info, store.missing)
        writer = Writer(store, committed=self.witness.committed)
        self.desk = Desk(store, writer, clock, Standing(store), tenant, self.witness.lost)
        self.paused = Paused(store)
        self.effects = effects
        self.ttl = ttl
        self.watchdog = Watchdog(kernel_timer)
        self.learnt = Learnt(clock)
        self.codes: set[Code] = set()
        self.on_fenced: Callable[[str], None] = lambda why: None
        self.forked = False
        self.app: Awaits | None = None
        self.approvers: Mapping[str, int] = {}
        self.watching: Watch | None = None
        self._ring: Ring | None = None
        self.accepted: Callable[[], bool] = lambda: False  # whether a person lets this code go on with what does not fit it
        self._session: Session | None = None
        self._arrival: Arrival | None = None
        self._opening = threading.Lock()
        self._come()

    def _come(self) -> None:
        """Whether what this process sees from now on is a measure: the store is new, or holds what was witnessed (R19)."""
        store, missing = self.desk.store, ""
        if not store.created:
            kept = self.witness.load()
            self.witness.trusted, missing, _ = asked(self.witness, self.desk, kept, store.info)
            if missing:
                log.error("semel: the store %s went back: it does not hold %s", store.info.place, missing)
            elif kept is not None:
                self.witness.adopt(kept.seen)
        else:
            self.witness.trusted = True
            self.witness.save()
        store.attach(self.witness.evidence)
        if not missing:  # else an epoch is about to begin, and who accepts tasks should know it
            self.desk.standing.read()  # now, where no event loop waits for it

    def session(self) -> Session:
        """This process's session; a new one if the old one was fenced and none of its code still runs.

        Raises `NotYet` while it must be watched whether the store went back, and whether all of before has stopped.
        """
        with self._opening:
            if self._session is None or (self._session.fenced and not self.codes):
                self._arrive()
                session = Session(
                    self.desk,
                    ttl=self.ttl,
                    watchdog=self.watchdog,
                    on_fenced=self._fenced,
                    learnt=self.learnt,
                    witness=self.witness,
                )
                session.overdue_by(self.overdue)
                session.on_fencing = self.note_fenced
                session.start()
                self._session = session
            if self._session.fenced:
                raise Misuse(
                    f"this process was fenced ({self._session.fenced}) and code of its last session still runs; restart it"
                )
            return self._session

    def _arrive(self) -> None:
        info = self.desk.store.info
        if self.ttl * 1000 > info.largest_ttl_ms and info.place != ":memory:":
            raise Misuse(
                f"lease={self.ttl:g} s is longer than this store permits ({info.largest_ttl_ms / 1000:g} s: for so long a "
                f"restored store waits before it acts); shorten it, or: semel migrate --largest-lease {self.ttl:g}"
            )
        if self._arrival is None:
            self._arrival = Arrival(self.desk, self.witness, ttl=self.ttl)
        epoch = self.witness.seen.epoch
        self.witness.arriving = True
        self._arrival.look()
        self._arrival, self.witness.arriving = None, False
        self._note_unfenced()
        if self.witness.seen.epoch != epoch:
            self.learnt.forget(set())

    def _note_unfenced(self) -> None:
        """Once for each store: what this process sends, nothing can stop (R4), and a store that went back must know it (R20)."""
        info = self.desk.store.info
        if self.unfenced and not info.unfenced and info.tenant is None:
            self.desk.store.note_unfenced()
            self.witness.known(self.desk.store.info)

    def _fenced(self, why: str) -> None:
        if not self.desk.store.still_here():  # what waits can never land: answer it now, not when patience is over
            threading.Thread(target=self.desk.writer.close, name="semel-close", daemon=True).start()
        self.on_fenced(why)

    @property
    def open_session(self) -> Session | None:
        """The session, if one was opened."""
        return self._session

    @property
    def unfenced(self) -> str:
        """Why nothing can stop this process's code ("" if the kernel can): recorded with each submission (R4)."""
        return "" if self.watchdog.enabled and self.watchdog.available else "process"

    def observe(self, observers: Sequence[Observer]) -> None:
        """Tell these of every commit from now on."""
        if not observers:
            return
        self.watching = watch = Watch(observers)
        self.desk.writer.observed = lambda units, outcomes, seconds, waited: watch.note(
            lambda: commit_of(units, outcomes, seconds, waited)
        )

    def committed(self, change: Change, outcome: Landed, seconds: float) -> None:
        """A change landed in a transaction that is not the writer's."""
        self.witness.committed([change], [outcome])
        if self.watching is not None:
            self.watching.note(lambda: commit_of([change], [outcome], seconds, 0.0))

    def note_fenced(self, session: str, how: str, own: bool) -> None:
        """Tell them that a session was fenced."""
        if self.watching is not None:
            at = self.desk.clock.wall_ms()
            self.watching.note(lambda: Fenced(session, how, own, at))

    def overdue(self) -> float:
        """The longest that any code has outlived its timeout, in seconds."""
        now = self.desk.clock.boot()
        with self.lock:
            return max((code.overdue(now) for code in self.codes), default=0.0)

    def entering(self, attempt: Attempt, doing: Doing) -> Code:
        """Arm."""
        return Code(self, doing)

    def watchdog_allows(self) -> bool:
        """Check, after arming."""
        return not self.watchdog.enabled or not self.watchdog.available or self.watchdog.check()

    def patience(self, timeout: timedelta | None) -> timedelta | None:
        """How long a caller may wait here for what others do; None: for ever."""
        return timeout

    def close(self) -> None:
        """Commit what waits, say goodbye if no code of ours can act any more, let go of the store."""
        self.desk.writer.close()
        self.witness.save(beside=True)
        if self._session is not None:
            held = bool(self._session.held)
            self._session.stop(leave=not self.codes and not held)
        self.desk.store.close()
        if self.watching is not None:
            self.watching.close()

    # --- the user's code, and where it stands ---

    def guarded(self, fn: Callable[..., Any], attempt: Attempt, doing: Doing, acting: Acting) -> Callable[..., Any]:
        """An effect's function: nothing of semel's may be called in it, and a child it makes is recorded first (R4)."""

        def about_to_spawn(event: str) -> None:
            command = e.MarkUnfenced(doing.key, doing.n, doing.token, "child")
            land(attempt.ledger, command)  # waits until it is durable; what it raises keeps the child from being made

        return _wrapped(fn, lambda: _InEffect(attempt, acting, about_to_spawn), doing.is_async)

    @property
    def ring(self) -> Ring:
        """The keys of redaction, as this process's environment had them when they were first asked for. Raises `Misuse`."""
        if self._ring is None:
            self._ring = Ring.from_environment()
        return self._ring

    @property
    def redacts(self) -> bool:
        """Whether any effect of this app redacts anything."""
        return bool(redacting(self.effects))

    def lender(self, effect: Effect) -> Lends | None:
        """Who lends an `Atomic` effect its connection; None: it is played, and needs none. Raises `Misuse`."""
        store = self.desk.store
        if not isinstance(store, Lends):
            raise Misuse(
                f"effect {effect.name} is Atomic(): it writes in the ledger's own database, and this ledger is SQLite, which "
                f"has one writer; use semel.App('postgresql://...'), or a Resend(within=None) or a Lookup"
            )
        return store

    def looking(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A lookup's function."""
        return _wrapped(fn, lambda: set_here(inside, "a lookup"))

    def judging(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """An effect's approve predicate."""
        return _wrapped(fn, lambda: set_here(inside, "an approve predicate"))

    def observing(self, effect: Effect, attempt: Attempt) -> Callable[..., Any]:
        """What tells as whom an effect would be sent."""
        assert effect.identity is not None
        return _wrapped(effect.identity.fn, lambda: set_here(inside, "an identity function"))

    def stepping(self, step: Step, attempt: Attempt, key: str) -> Callable[..., Any]:
        """A step's function."""
        return step.fn

    def handling(self, fn: Callable[..., Any], attempt: Attempt) -> Callable[..., Any]:
        """A task's handler."""
        return _wrapped(fn, lambda: set_here(current, attempt))


def _wrapped(
    fn: Callable[..., Any], around: Callable[[], contextlib.AbstractContextManager[None]], asynchronous: bool | None = None
) -> Callable[..., Any]:
    """asynchronous: whether it is, if that is known: who looks into a function is told to all audit hooks."""
    if is_async(fn) if asynchronous is None else asynchronous:

        async def in_loop(*args: Any, **kwargs: Any) -> Any:
            with around():
                return await fn(*args, **kwargs)

        return in_loop

    def in_thread(*args: Any, **kwargs: Any) -> Any:
        with around():
            return fn(*args, **kwargs)

    return in_thread


class set_here:  # noqa: N801  (used as a statement)
    """Give a context variable a value, for a while. A class, since a generator's would be felt at each effect."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: contextvars.ContextVar[Any], value: Any) -> None:
        self._variable, self._value = variable, value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._token)


class _InEffect:
    """While an effect's code runs, or what it started: whose it is, what it may not call, and what it leaves behind."""

    __slots__ = ("_acting", "_attempt", "_children", "_tokens")

    def __init__(self, attempt: Attempt, acting: Acting, about_to_spawn: Callable[[str], None]) -> None:
        self._attempt, self._acting = attempt, acting
        self._children = watching_children(about_to_spawn)

    def __enter__(self) -> None:
        self._tokens = (current.set(self._attempt), inside.set(IN_EFFECT), acting_now.set(self._acting))
        self._children.__enter__()
        follow_anyio()
        try:
            follow_tasks(asyncio.get_running_loop())
        except RuntimeError:
            pass  # there is none in a thread

    def __exit__(self, *_: object) -> None:
        self._children.__exit__(None, None, None)
        attempt, where, acting = self._tokens
        current.reset(attempt)
        inside.reset(where)
        acting_now.reset(acting)

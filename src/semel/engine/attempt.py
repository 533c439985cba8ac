"""One attempt at a task: reconcile what is unknown first, then run the handler, then end in exactly one way."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from semel.engine import fits, recover
from semel.engine.data import NotRecordable
from semel.engine.declare import Effect, Work
from semel.engine.drive import give_up_closed
from semel.engine.ledger import Ledger
from semel.engine.perform import Doing, describe
from semel.engine.requests import Await, Call, Raised, Request, Returned
from semel.engine.session import Session, read_effect
from semel.engine.veil import Veil
from semel.errors import Misuse, Refused, StoreUnavailable, Suspended
from semel.machine import effects as e
from semel.machine import keys as k
from semel.machine import limits as budgets
from semel.machine import recovery as r
from semel.machine import tasks
from semel.model import Code, Delivery, EffectState, Limits, Refusal
from semel.store.writer import Signal

if TYPE_CHECKING:
    from semel.engine.runtime import Runtime

GIVEN_BACK, OTHERS_MS = 10, 90_000  # how often, and for how long, what does not fit this code is left for a worker of other code
log = logging.getLogger("semel")
OUTLIVE_LEASES = 2  # code that outlives its time stops the beats a lease later; 3/4 of one after the last, the timer kills it
_ALONE = Signal()  # an effect in flight that nobody else waits for
RETRY_MS = 1000  # how soon a task looks again at what another task has in hand


@dataclass(frozen=True, slots=True)
class Exit:
    """How the attempt must end, decided while its code still runs. how: park, block, approval, wait, limit, fail, dead, gone.

    wait_ms: of a park. event, until: of a wait.
    """

    how: str
    why: str
    key: str = ""
    wait_ms: int = 0
    event: str = ""
    until: int = 0


class Attempt:
    """One delivery of a task to this process. `unfenced`: "" or why nothing can stop its code (R4)."""

    def __init__(
        self,
        runtime: Runtime,
        session: Session,
        ledger: Ledger,
        *,
        unfenced: str,
        limits: Limits | None = None,
        timeout_ms: int | None = None,
        hold_seconds: float = 0.0,
    ) -> None:
        self.runtime, self.session, self.ledger = runtime, session, ledger
        self.desk, self.clock = runtime.desk, runtime.desk.clock
        self.number, self.token = ledger.state.attempt, ledger.state.token
        self.unfenced = unfenced
        self.limit_effects = limits.effects if limits else None
        self._began = self.clock.boot()
        self._hold_until = self._began + hold_seconds
        self.said: dict[str, str] = {}
        self.declined = 0  # how often its code was told no, and could read it
        self.doing: dict[str, Doing] = {}
        self.looked_at: frozenset[str] | None = None  # in direct mode: the effects that were declared when it was asked
        self.exit: Exit | None = None
        # told when nothing of it runs any more, and only the store is waited for
        self.code_ended: Callable[[], object] = lambda: None
        self.stopping = False
        self._flights: dict[str, Signal] = {}
        self._steps: dict[str, int] = {}
        self._running = 0
        self._quiet = Signal()
        self._lock = threading.Lock()
        self._until = None if timeout_ms is None else self.clock.boot() + timeout_ms / 1000

    # --- effects in flight ---

    def enter(self, key: str) -> Signal | None:
        """Take the key, or get what tells when the one who has it is done."""
        with self._lock:
            there = self._flights.get(key)
            if there is None:
                self._flights[key] = _ALONE
                self._running += 1
            elif there is _ALONE:
                there = self._flights[key] = Signal()
            return there

    def leave(self, key: str) -> None:
        """Done with the key."""
        with self._lock:
            done = self._flights.pop(key)
            self._running -= 1
            quiet = self._quiet if not self._running else None
        if done is not _ALONE:
            done.set()
        if quiet is not None:
            quiet.set()

    def running(self) -> Signal | None:
        """What tells when no effect is in flight any more; None: none is."""
        with self._lock:
            if not self._running:
                return None
            self._quiet = Signal()
            return self._quiet

    def next_step(self, name: str, args: Any) -> str:
        """The key of the next step of that name with those arguments."""
        base = k.step_key(name, args, 0).rsplit(":", 1)[0]
        with self._lock:
            nth = self._steps[base] = self._steps.get(base, 0) + 1
        return f"{base}:{nth}"

    def mine(self, known: e.Effect) -> Generator[Request, Any, bool]:
        """Whether this attempt may settle it: its own task's, or a key whose owner is gone (R8)."""
        if known.key not in self.ledger.keys:
            return True
        owner = known.sent[-1].task
        if owner == self.ledger.state.id:
            return True
        row = yield from self.desk.off_loop(lambda: self.desk.store.task(self.ledger.tenant, owner))
        return row is None or row.delivery in (Delivery.DEAD_LETTERED, Delivery.ACKNOWLEDGED)

    def facts(self, known: e.Effect) -> r.Facts:
        """What this process knows for the ladder."""
        raw = self.clock.raw_ms()
        largest_ms = self.desk.store.info.largest_ttl_ms
        others = any(not sent.quiet and sent.session != self.session.id for sent in known.open)  # whose lease may be longer
        lease_ms = largest_ms if others else min(int(self.session.ttl * 1000), largest_ms)  # in memory it may be any length
        outlive_ms = OUTLIVE_LEASES * lease_ms
        return r.Facts(raw, self.clock.highest_ms, self.session.learnt.waited_ms(self.ledger.tenant, known), outlive_ms)

    @property
    def veil(self) -> Veil:
        """The redacted values that it has seen, which nothing that it records may show."""
        return self.ledger.veil

    @property
    def sender(self) -> tuple[str, int]:
        """Who sends what this attempt submits: no two attempts are called the same."""
        return self.ledger.state.id, self.number

    def doubt(self, scope: str) -> e.Doubt | None:
        """R20: what the store may have forgotten of this task's effects, or of the tenant's keys."""
        doubt = self.desk.standing.epoch.doubt(self.ledger.state if scope == "task" else None)
        return doubt and replace(doubt, unfenced=self.desk.store.info.unfenced)

    def abandon(self, key: str) -> None:
        """R17: the caller is gone before it called. If its intent landed, it is disproved: nothing was sent.

        Only what is durable counts: what this process only meant to write may stand there as a rival's.
        """
        stream = key if key in self.ledger.keys else self.ledger.state.id

        def disprove() -> None:
            try:
                known = read_effect(self.desk, self.ledger.tenant, stream, key)
            except StoreUnavailable:
                return  # the end of the attempt makes it ambiguous
            for s in known.open if known is not None else ():
                if (s.task, s.attempt) == self.sender and not s.lost:
                    why = "never called: its caller was gone"
                    self.ledger.post(e.Disprove(key, s.n, s.token, why, sender=self.sender))

        self.ledger.desk.writer.barrier().then(disprove)

    # --- suspending ---

    def look_at_time(self) -> None:
        """Between effects: whether the attempt may go on."""
        if self._until is not None and self.clock.boot() > self._until:
            raise self._left(Exit("fail", "the task's timeout was over"))
        self.look_at_limits()

    def ran_ms(self) -> int:
        """For how long it has held the task."""
        return int((self.clock.boot() - self._began) * 1000)

    def over(self) -> str:
        """Which limit of the task is exceeded, in words; "": none."""
        state = self.ledger.state
        return budgets.over(state.used, state.budget, 0 if state.budget.ms is None else self.ran_ms())

    def look_at_limits(self) -> None:
        """Raise `Suspended` if the task has used up more than it may."""
        if why := self.over():
            raise self.exceeded(why)

    def exceeded(self, why: str) -> Suspended:
        """A limit is exceeded: on record, so that a handler which swallows the exception starts nothing either."""
        self.ledger.post(tasks.Suspend(self.token, why))
        return self._left(Exit("limit", why))

    def suspend(self, refusal: Refusal, key: str, effect: Effect | None) -> Generator[Request, Any, NoReturn]:
        """The machine said no, and it is nothing for the agent to read."""
        if refusal.code in (Code.STALE_TOKEN, Code.FENCED):
            raise self._left(Exit("gone", refusal.message))
        if effect is not None and effect.scope == "tenant" and refusal.code in (Code.IN_FLIGHT, Code.UNKNOWN_OUTSTANDING):
            known = self.ledger.effect(key)
            generation = known.generation if known is not None else 0
            yield from self.ledger.commit(tasks.Join(self.token, key, effect.first_name, generation))
        cancelled = refusal.code is Code.CANCELLED
        raise (yield from self._suspended(Exit("park", refusal.message, key, 0 if cancelled else RETRY_MS)))

    def park(self, why: str, key: str, wait_ms: int) -> Generator[Request, Any, NoReturn]:
        """Give the task back until then."""
        raise (yield from self._suspended(Exit("park", why, key, wait_ms)))

    def block(self, why: str, key: str) -> Generator[Request, Any, NoReturn]:
        """Only a person can help."""
        raise (yield from self._suspended(Exit("block", why, key)))

    def left_blocked(self, why: str, key: str) -> Suspended:
        """Only a person can help, and that is on record already. For whoever holds the attempt to raise."""
        return self._left(Exit("block", why, key))

    def wait_for_approval(self, why: str, key: str) -> Generator[Request, Any, NoReturn]:
        """People decide whether `key` is sent (R21)."""
        raise (yield from self._suspended(Exit("approval", why, key)))

    def give_up(self, why: str, key: str) -> Generator[Request, Any, NoReturn]:
        """It would do more than a person has let it do: a dead letter, whatever its code does with the exception."""
        raise (yield from self._suspended(Exit("dead", why, key)))

    def suspend_fenced(self) -> Generator[Request, Any, Suspended]:
        """This process may start nothing more."""
        yield Await(self.ledger.desk.writer.barrier(), 1.0)
        return self._left(Exit("gone", self.session.fenced or "past the local deadline"))

    def _suspended(self, exit: Exit) -> Generator[Request, Any, Suspended]:
        """On record, so that the machine refuses what a handler starts that swallowed the exception (R11)."""
        if not self.ledger.state.suspended:
            yield from self.ledger.commit(tasks.Suspend(self.token, exit.why, exit.key))
        return self._left(exit)

    def _left(self, exit: Exit) -> Suspended:
        with self._lock:
            if self.exit is None or exit.how == "gone":
                self.exit = exit
        return Suspended(exit.why)

    def wait(self, key: str, event: str, until: int) -> Suspended:
        """It goes on when its time has come, or `event` is signalled; until then it holds no worker. For a handler to raise."""
        why = f"waits for {event}" if event else "sleeps"
        self.ledger.post(tasks.Suspend(self.token, why, key))
        return self._left(Exit("wait", why, key, event=event, until=until))

    def may_hold(self, seconds: float) -> bool:
        """Whether it may wait in place: a short while, or as long as its caller said that it would wait."""
        if self.stopping or self.exit is not None or not self.session.alive():
            return False
        return seconds <= recover.HOLD_SECONDS or self.clock.boot() + seconds <= self._hold_until

    def look_again(self) -> Generator[Request, Any, None]:
        """A person may have answered, or another task settled it: read what others wrote."""
        yield from self.desk.off_loop(self._look_again)

    def _look_again(self) -> None:
        row = self.desk.store.head(self.ledger.tenant, self.ledger.state.id)
        if row.seq > self.ledger.head.seq:
            self.ledger.refresh()
        for stream in self.ledger.keys.values():
            stream.refresh(self.desk.store)

    # --- the whole ---

    def reconcile(self) -> Generator[Request, Any, None]:
        """What is unknown is settled before anything else starts; suspends where it cannot be."""
        while True:
            unknown = self._first_unknown()
            if unknown is None:
                return
            if not (yield from self.mine(unknown)):
                yield from self.park(f"{unknown.name} of task {unknown.sent[-1].task} is unknown", unknown.key, RETRY_MS)
            effect = self.runtime.effects.get(unknown.name)
            if effect is None:
                why = f"effect {unknown.name!r} is unknown to this code; declare it, or name it in formerly="
                yield from self.block(why, unknown.key)
            elif why := fits.unsendable(unknown, effect):
                yield from self.block(f"the code has changed: {why}", unknown.key)
            else:
                yield from recover.climb(self, effect, unknown.key)

    def _first_unknown(self) -> e.Effect | None:
        state = self.ledger.state
        for key in [*sorted(state.unknown), *sorted(self.ledger.keys)]:
            known = self.ledger.effect(key)
            if known is not None and known.state is EffectState.AMBIGUOUS:
                return known
        return None

    def _has_answer(self, key: str) -> bool:
        """Whether what is unknown of it can be gone on with: settled, answered by a person, or by the call itself."""
        known = self.ledger.effect(key)
        if known is None or known.state is not EffectState.AMBIGUOUS or known.answered is not None:
            return known is not None
        return any(known.submission(x.n) in known.open and x.outcome != e.RAISED for x in known.evidence)

    def unfit(self, work: Work) -> Generator[Request, Any, Exit | None]:
        """How to end, if what is on record does not fit this code (R22): another worker's may be the one that it fits."""
        why = fits.unfit(self._place, self.ledger.state, self._shared(), self.runtime.effects, work)
        if not why or (yield from self.desk.off_loop(self.runtime.accepted)):
            return None
        sessions = yield from self.desk.off_loop(self.desk.store.sessions)
        if any(row.id != self.session.id for row in sessions) and self.number < GIVEN_BACK:
            return Exit("park", f"left for other code: {why}", wait_ms=OTHERS_MS)
        return Exit("block", f"the code has changed: {why}")

    @property
    def _place(self) -> fits.Place:
        return fits.Place(self.desk.store.info.application, self.ledger.tenant)

    def _shared(self) -> list[e.Effect]:
        return [stream.state.effect for stream in self.ledger.keys.values() if stream.state.effect is not None]

    def changed(self) -> Misuse | None:
        """In direct mode, of the effects that are declared by now: why the code would do again what is on record (R22)."""
        self.looked_at = frozenset(self.runtime.effects.names())
        why = fits.changed(self._place, self.ledger.state, self._shared(), self.runtime.effects)
        if not why:
            return None
        state = self.ledger.state
        return Misuse(
            f"the code of work {state.kind} {state.key} has changed: {why}. It would be done again under another key, so "
            f"nothing is sent; declare it as it was, or, for something else, as another effect (name=) or in another work"
        )

    def expect_unchanged(self, effect: Effect) -> None:
        """Raise `Misuse` if direct work comes to an effect that was declared since it began, and otherwise than on record."""
        if self.looked_at is not None and effect.name not in self.looked_at and (error := self.changed()) is not None:
            raise error

    def evidence_came(self) -> None:
        """An outcome has landed late (R2). If the task waits for a person because of it, it need not wait any more."""
        if self.ledger.state.delivery is Delivery.BLOCKED:
            self.ledger.post(tasks.Unblock("an answer came late", self.clock.wall_ms()))

    def end(self, reply: Returned | Raised, encode: Callable[[Any], Any]) -> Generator[Request, Any, None]:
        """End the attempt. The machine is asked, never the exception (R11): a swallowed suspension is one all the same."""
        while (busy := self.running()) is not None:
            give_up_closed()
            yield Await(busy)
        self.code_ended()
        yield from self._end(reply, encode)

    def _end(self, reply: Returned | Raised, encode: Callable[[Any], Any]) -> Generator[Request, Any, None]:
        now, fatal = self.clock.wall_ms(), False
        if self.exit is not None:
            yield from self._take_exit(self.exit, now)
            return
        if isinstance(reply, Returned):
            try:
                decided = yield from self.ledger.commit(
                    tasks.Finish(self.token, encode(reply.value), self.ran_ms()), guard=self.session.guard
                )
            except NotRecordable as error:
                reply, fatal = Raised(Misuse(f"the task's result cannot be recorded: {error}")), True
            else:
                if isinstance(decided, Refusal) and decided.code not in (Code.STALE_TOKEN, Code.FENCED):
                    yield from self.ledger.commit(tasks.Park(self.token, decided.message, now, self.ran_ms()))
                return
        error_of = reply.error
        if isinstance(error_of, Suspended) or self._first_unknown() is not None:
            yield from self.ledger.commit(tasks.Park(self.token, describe(error_of, self.veil), now, self.ran_ms()))
            return
        if isinstance(error_of, Refused) and error_of.code == Code.LIMIT_REACHED:  # of effects, which are counted for ever
            fatal = True
        why = describe(error_of, self.veil)
        yield from self.ledger.commit(tasks.Fail(self.token, why, now, random.random(), fatal, self.ran_ms()))

    def _take_exit(self, exit: Exit, now: int) -> Generator[Request, Any, None]:
        ran = self.ran_ms()
        if exit.how != "gone" and not self.ledger.state.ending and self.over():
            yield from self.ledger.commit(tasks.Exceed(self.token, now, ran))
        elif exit.how in ("park", "limit"):
            yield from self.ledger.commit(tasks.Park(self.token, exit.why, now + exit.wait_ms, ran))
        elif exit.how == "wait":
            yield from self.ledger.commit(tasks.Wait(self.token, exit.key, exit.event, exit.until, now, ran))
        elif exit.how == "block":
            decided = yield from self.ledger.commit(tasks.Block(self.token, exit.why, exit.key, ran=ran))
            yield from self.look_again()  # the answer may have come while the handler still ran, before there was a block
            if not isinstance(decided, Refusal) and self._has_answer(exit.key):
                yield from self.ledger.commit(tasks.Unblock("it was answered before it was blocked", now))
        elif exit.how == "approval":  # the machine does not block what was decided while the handler still ran
            yield from self.look_again()
            yield from self.ledger.commit(tasks.Block(self.token, exit.why, exit.key, approval=True, ran=ran))
        elif exit.how in ("fail", "dead"):
            fatal = exit.how == "dead"
            yield from self.ledger.commit(tasks.Fail(self.token, exit.why, now, random.random(), fatal, ran))


def prepare(attempt: Attempt) -> Generator[Request, Any, bool]:
    """Before the handler: reconcile, and end what was told to end. True: the handler may run."""
    try:
        yield from attempt.reconcile()
    except Suspended:
        yield from attempt._end(Raised(Suspended()), lambda value: value)
        return False
    if attempt.ledger.state.ending:
        decided = yield from attempt.ledger.commit(tasks.Conclude(attempt.token))
        if isinstance(decided, Refusal):
            yield from attempt.ledger.commit(tasks.Park(attempt.token, decided.message, attempt.clock.wall_ms() + RETRY_MS))
        return False
    if attempt.over():  # before this attempt, which can do no better
        yield from attempt.ledger.commit(tasks.Exceed(attempt.token, attempt.clock.wall_ms(), attempt.ran_ms()))
        return False
    return True


def prepare_direct(attempt: Attempt) -> Generator[Request, Any, bool]:
    """The same for work whose handler nobody declared. Raises `Misuse`, and gives it back, if its effects are others now."""
    if not (yield from prepare(attempt)):
        return False
    error = attempt.changed()
    if error is not None:
        attempt.exit = Exit("park", str(error))
        yield from attempt.end(Raised(Suspended()), lambda value: value)
        raise error
    return True


def run(attempt: Attempt, work: Work) -> Generator[Request, Any, None]:
    """A whole attempt at a declared task. What breaks outside its handler would break each time: then a person must look."""
    try:
        yield from _run(attempt, work)
    except StoreUnavailable:
        raise
    except Exception as error:
        told = error if not attempt.veil.active else None  # a traceback may hold what was redacted
        log.error("semel: task %s: the attempt broke (%s)", attempt.ledger.state.id, type(error).__name__, exc_info=told)
        if attempt.ledger.state.owned(attempt.token):
            attempt.exit = Exit("block", f"broke outside its handler: {describe(error, attempt.veil)}")
            yield from attempt.end(Raised(Suspended()), lambda value: value)


def _run(attempt: Attempt, work: Work) -> Generator[Request, Any, None]:
    if not (yield from prepare(attempt)):
        return
    unfit = yield from attempt.unfit(work)
    if unfit is not None:
        attempt.exit = unfit
        reply: Returned | Raised = Raised(Suspended())
    else:
        values = work.parameters.decode(attempt.ledger.state.args)
        answer = yield Call(attempt.runtime.handling(work.fn, attempt), work.is_async, (), values, inline=True)
        assert isinstance(answer, Returned | Raised)
        reply = answer
    try:
        yield from attempt.end(reply, attempt.veil.encoder(work.result))
    except StoreUnavailable:
        if attempt.session.alive():
            raise

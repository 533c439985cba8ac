"""The world of the explorer: workers that run the shipped procedures, a store, a provider, a person, and one clock.

A worker's attempt, its sweep and its claim are *actors*: the real code, each in a coroutine of its own (greenlet), which stops
wherever the code asks for something: a commit, a call, a lookup, a pause. What happens next is a choice with a name; `choices()`
gives those that are possible, and the search makes them. A world is made anew for each run, and the same choices lead to the
same world.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import procs_shims as shims
from greenlet import getcurrent, greenlet
from procs_store import Disk, Gone, Handle, Tables
from procs_writer import HandWriter

from semel.engine import attempt as attempts
from semel.engine.attempt import Attempt
from semel.engine.clock import Clock
from semel.engine.declare import Effect, Registry, Work
from semel.engine.ledger import Desk, Ledger
from semel.engine.perform import Doing, called, perform
from semel.engine.queue import Order, accepted, claim, enqueue, not_taken
from semel.engine.requests import Await, Call, Raised, Request, Returned, Sleep
from semel.engine.runtime import Runtime, current
from semel.engine.standing import Paused, Standing
from semel.errors import AlreadyDone, NotDone, StoreUnavailable, Suspended
from semel.machine import epochs
from semel.machine import journal as j
from semel.machine import tasks as t
from semel.model import Delivery, EffectState
from semel.store.contract import Change, Claims, Fenced
from semel.store.writer import Signal
from semel.watchdog import Watchdog

TENANT, QUEUE = "acme", "q"
TTL, TIMEOUT, SETTLE = 8.0, 5.0, 4.0  # seconds; a lookup may take longer than settle
START, WALL_MS = 1000.0, 1_700_000_000_000
Choice = Callable[[], None]


class Violation(AssertionError):
    """The promise is broken here."""


Chain = tuple[tuple[str, int], ...]  # calls, by name and argument, one after the other
Script = tuple[Chain, ...]  # side by side


@dataclass(frozen=True)
class Scenario:
    """What is played. scripts: by task key, what its handler calls. faults: so many at most.

    manner: how the provider takes a call: "acts" each time, "remembers" keys, or is asked for "create"-only writes.
    timer: the kernel kills a worker at its local deadline. hosts: False, and a death can be proved. paused: a freeze is a
    machine that stands still, timers included. hasty: people look while what was sent may still be under way. kinds: of faults;
    "call" is all that may become of a call, or "lost", "refused", "under way", "late".
    """

    name: str
    effects: Registry[Effect]
    works: Registry[Work]
    scripts: dict[str, Script]
    workers: int = 1
    faults: int = 1
    manner: str = "acts"
    repeats: bool = False
    timer: bool = True
    hosts: bool = False
    paused: bool = False
    hasty: bool = True
    kinds: frozenset[str] = frozenset({"kill", "freeze", "call", "reply"})
    persons: frozenset[str] = frozenset()  # what people may do beside answering: cancel, replay, deliver; look early
    settle: float = SETTLE


class WorldClock(Clock):
    """One clock for all; it moves by choice."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__()

    def raw_ms(self) -> int:
        return WALL_MS + int(self._world.now * 1000)

    def boot(self) -> float:
        return self._world.now


class Timer(Watchdog):
    """The kernel's timer on the world's clock: the world kills whoever is past its deadline while code runs."""

    def __init__(self, life: Life, enabled: bool) -> None:
        super().__init__(False)
        self._life = life
        self.enabled = self.available = enabled
        self.deadline = float("-inf")

    def extend(self, deadline: float) -> None:
        self.deadline = deadline

    def enter(self) -> None:
        self.running += 1
        if self.enabled and self._life.world.now >= self.deadline:
            self._life.kill()
            raise Gone

    def leave(self) -> None:
        self.running -= 1

    def check(self) -> bool:
        return self._life.world.now < self.deadline


@dataclass
class Flight:
    """One call of an effect's code. code: it runs, in its process. until: when what it has sent is dropped at the latest."""

    life: Life
    doing: Doing
    late: Callable[[Returned | Raised], None] | None
    code: bool = True
    timed_out: bool = False
    acted: bool = False
    until: float | None = None  # its sender is gone; what is under way acts before then, or never

    @property
    def able(self) -> bool:
        """Whether it can still act."""
        return not self.acted and (self.code or self.until is not None)


class EffectCall:
    """In place of an effect's function: what becomes of the call is a choice."""

    def __init__(self, effect: Effect, doing: Doing) -> None:
        self.effect, self.doing = effect, doing

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the world answers")


class LookupCall:
    """In place of a lookup's function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the world answers")


@dataclass(eq=False)
class Actor:
    """One procedure under way in a process."""

    name: str
    life: Life | None
    run: greenlet
    request: Any = None
    flight: Flight | None = None
    until: float = 0.0  # of a pause
    asked: str = ""  # the key that is looked up
    saw: str = ""  # what a slow lookup has found
    over: bool = False


class Life(Runtime):
    """One process of a worker: the shipped runtime, with the world's writer, clock and timer."""

    def __init__(self, world: World, name: str, pid: int) -> None:
        scenario = world.scenario
        self.world, self.name, self.pid = world, name, pid
        self.handle = Handle(world.disk, created=True)
        self.dead = self.frozen = self.used = False
        super().__init__(self.handle, scenario.effects, ttl=TTL, kernel_timer=False, clock=WorldClock(world))  # type: ignore[arg-type]
        self.writer = HandWriter(self.handle, self.witness.committed)
        self.desk = Desk(self.handle, self.writer, self.desk.clock, StillStanding(self.handle), None)  # type: ignore[arg-type]
        self.paused = Paused(self.handle)  # type: ignore[arg-type]
        self.watchdog = Timer(self, scenario.timer)
        world.opening_name, world.opening_pid = name, pid
        self.opened = self.session()
        self.opened._watched = {}

    def guarded(self, fn: Any, attempt: Attempt, doing: Doing, acting: Any) -> Any:
        known = attempt.ledger.effect(doing.key)
        assert known is not None
        effect = self.effects.get(known.name)
        assert effect is not None
        return EffectCall(effect, doing)

    def looking(self, fn: Any) -> Any:
        return LookupCall()

    @property
    def actors(self) -> list[Actor]:
        return [actor for actor in self.world.actors if actor.life is self and not actor.over]

    @property
    def working(self) -> bool:
        """Whether it has an attempt under way, or asks for one."""
        return any(" works" in actor.name for actor in self.actors)

    def kill(self) -> None:
        """SIGKILL: nothing of its memory is left; what it has sent takes its course."""
        if self.dead:
            return
        self.dead, self.frozen = True, False
        self.handle.dead = True
        world = self.world
        world.dead_pids.add(self.pid)
        for flight in world.flights:
            if flight.life is self and flight.code:
                flight.code = False
                flight.until = None if flight.acted else world.now + world.scenario.settle
        for actor in self.actors:
            actor.over = True
            if actor.run is not getcurrent():
                actor.run.throw(Gone)


class StillStanding(Standing):
    """Never reads by itself, on a thread: a process may be so far behind."""

    def keep_up(self) -> epochs.Epoch:
        return self.epoch


@dataclass
class Look:
    """What a person saw: whether it had happened, and which version of the record."""

    happened: bool
    version: int
    stopped: bool


@dataclass
class Provider:
    """What the outside world did: how often, by key; and the keys that it remembers."""

    manner: str
    acts: Counter[str] = field(default_factory=Counter)
    remembered: set[str] = field(default_factory=set)

    def take(self, key: str) -> Returned | Raised:
        """A call arrives."""
        known = key in self.remembered
        if self.manner == "remembers" and known:
            return Returned("done")
        if self.manner == "create" and known:
            return Raised(AlreadyDone("done"))
        self.acts[key] += 1
        self.remembered.add(key)
        return Returned("done")


class World:
    """See the module. trace: the choices so far."""

    def __init__(self, scenario: Scenario) -> None:
        shims.enter(self)
        self.scenario, self.now = scenario, START
        self.trace: list[str] = []
        self.faults = scenario.faults
        self.disk = Disk(Tables(int(TTL * 1000)))
        self.disk.landed = self.landed
        self.folded: dict[tuple[str, str], t.Task | t.Key] = {}
        self.provider = Provider(scenario.manner)
        self.actors: list[Actor] = []
        self.flights: list[Flight] = []
        self.looks: dict[str, Look] = {}
        self.intents: Counter[str] = Counter()
        self.opening_name, self.opening_pid = "", 0
        self.dead_pids: set[int] = set()
        self._numbers = 0
        self.main = getcurrent()
        self.clients = Handle(self.disk, created=True)
        self.client = Desk(
            self.clients, HandWriter(self.clients, lambda units, outcomes: None),  # type: ignore[arg-type]
            WorldClock(self), StillStanding(self.clients), None,  # type: ignore[arg-type]
        )  # fmt: skip
        for key in scenario.scripts:
            self.accept(key)
        self.lives: list[Life] = []
        self.born = 0
        for index in range(scenario.workers):
            self.lives.append(self.start(f"w{index + 1}"))

    # --- small things that the shims ask for ---

    def number(self) -> int:
        """A number that was not given before."""
        self._numbers += 1
        return self._numbers

    def proved_dead(self, pid: int) -> bool:
        """Whether another process of the machine can tell that this one is gone."""
        return not self.scenario.hosts and pid in self.dead_pids

    # --- running ---

    def block(self, request: Any) -> Any:
        """Called in an actor: stop until the world answers."""
        actor = next(actor for actor in self.actors if actor.run is getcurrent())
        if actor.life is not None and actor.life.dead:
            raise Gone
        return self.main.switch(request)

    def spawn(self, name: str, life: Life | None, work: Callable[[], Any]) -> Actor:
        """Begin a procedure, and run it to its first stop."""

        def run(_: None) -> None:
            with contextlib.suppress(Gone):
                work()

        actor = Actor(name, life, greenlet(run, self.main))
        self.actors.append(actor)
        self.resume(actor, None)
        return actor

    def resume(self, actor: Actor, answer: Any) -> None:
        """Give an actor its answer, and run it to its next stop."""
        actor.request = actor.flight = None
        actor.saw = ""
        request = actor.run.switch(answer)
        if actor.run.dead:
            actor.over = True
            self.actors.remove(actor)
            return
        actor.request = request
        if isinstance(request, Sleep):
            actor.until = self.now + request.seconds
        elif isinstance(request, Call) and isinstance(request.fn, EffectCall):
            self._called(actor, request)
        elif isinstance(request, Call) and isinstance(request.fn, LookupCall):
            actor.asked = request.args[0].key

    def _called(self, actor: Actor, call: Call) -> None:
        doing = call.fn.doing
        assert actor.life is not None
        stream = next((row.stream for row in self.disk.tables.effects.values() if row.key == doing.key), "")
        effect = self.effect_of(stream, doing.key)
        sent = effect.submission(doing.n) if effect is not None else None
        if sent is None or sent.token != doing.token:
            raise Violation(f"{self.short(doing.key)} is called, and its intent is not durable")
        actor.flight = Flight(actor.life, doing, call.late)
        self.flights.append(actor.flight)

    def settle(self) -> None:
        """Whoever has an answer goes on, until nobody has."""
        moved = True
        while moved:
            moved = False
            for actor in list(self.actors):
                life = actor.life
                if actor.over or (life is not None and (life.frozen or life.dead)):
                    continue
                if isinstance(actor.request, Await) and actor.request.signal.is_set:
                    self.resume(actor, actor.request.signal.value)
                    moved = True
        self.actors = [actor for actor in self.actors if not actor.over]

    def drive(self, procedure: Generator[Request, Any, Any]) -> Any:
        """The driver: as `drive.run`, but that the world answers."""
        answer: Any = None
        try:
            while True:
                try:
                    request = procedure.send(answer)
                except StopIteration as stop:
                    return stop.value
                if isinstance(request, Call) and not isinstance(request.fn, EffectCall | LookupCall):
                    try:
                        answer = Returned(request.fn(*request.args, **request.kwargs))
                    except Violation:
                        raise
                    except (Exception, Suspended) as error:
                        answer = Raised(error)
                elif isinstance(request, Await) and request.signal.is_set:
                    answer = request.signal.value
                else:
                    answer = self.block(request)
        finally:
            procedure.close()

    # --- what is on record ---

    def landed(self, change: Change) -> None:
        """A change was written: fold it, and look whether the promise still holds."""
        for part in change.parts:
            name = (part.tenant, part.stream)
            before = self.folded.get(name)
            for row in part.rows:
                event = row.event
                assert event is not None
                self._check_row(part.stream, before, event)
                before = self._after(before, part.stream, event, row.at)
            if before is not None:
                self.folded[name] = before

    def _after(self, before: t.Task | t.Key | None, stream: str, event: Any, at: int) -> t.Task | t.Key:
        if before is None:
            before = t.Task() if isinstance(event, j.Enqueued) else t.Key()
        return t.apply(before, event, at) if isinstance(before, t.Task) else t.apply_key(before, event, at)

    def _check_row(self, stream: str, before: t.Task | t.Key | None, event: Any) -> None:
        if isinstance(event, j.Claimed):
            assert isinstance(before, t.Task)
            if event.token <= before.token:
                raise Violation(f"the token of {stream} did not rise")
        if isinstance(event, j.Intended):
            self.intents[event.key] += 1
            if isinstance(before, t.Key) and event.token <= before.token:
                raise Violation(f"the token of {self.short(event.key)} did not rise")
            if not event.again and (unknown := self.unknown_of(event.task, event.key)):
                raise Violation(f"{event.task} intends {self.short(event.key)} while {self.short(unknown)} is unknown")
        if isinstance(event, j.Finished):
            assert isinstance(before, t.Task)
            if open_now := self.open_of(before):
                raise Violation(f"{stream} is finished, and {self.short(open_now)} is open")

    def task_of(self, name: str) -> t.Task:
        """A task as the store has it."""
        state = self.folded[TENANT, name]
        assert isinstance(state, t.Task)
        return state

    def effect_of(self, stream: str, key: str) -> Any:
        """An effect as the store has it."""
        state = self.folded.get((TENANT, stream))
        if isinstance(state, t.Key):
            return state.effect
        return state.effects.get(key) if state is not None else None

    def effects(self) -> list[tuple[str, Any]]:
        """All effects on record, with the stream in which they stand."""
        found = []
        for (_, stream), state in sorted(self.folded.items()):
            if isinstance(state, t.Key):
                found.extend([(stream, state.effect)] if state.effect else [])
            else:
                found.extend((stream, x) for _, x in sorted(state.effects.items()))
        return found

    def unknown_of(self, task: str, but: str) -> str:
        """A key of a task, other than this one, whose outcome is unknown."""
        state = self.task_of(task)
        for key in sorted(state.joined):
            known = self.effect_of(key, key)
            if key != but and known is not None and known.unknown:
                return key
        return next((key for key, x in sorted(state.effects.items()) if key != but and x.unknown), "")

    def open_of(self, state: t.Task) -> str:
        """A key of a task that has a submission open."""
        for key in sorted(state.joined):
            known = self.effect_of(key, key)
            if known is not None and any(s.task == state.id for s in known.open):
                return key
        return next((key for key, x in sorted(state.effects.items()) if x.open), "")

    def short(self, key: str) -> str:
        """A key as a person would call it."""
        names = {x.key: f"{x.name}({x.args and x.args.get('n')})" for _, x in self.effects()}
        return names.get(key, "an effect")

    # --- checks ---

    def check(self) -> None:
        """The promise, at this moment."""
        for _, x in self.effects():
            acts, name = self.provider.acts[x.key], self.short(x.key)
            if acts > 1 and not self.scenario.repeats:
                raise Violation(f"{name} happened {acts} times")
            if x.confirmed and not acts:
                raise Violation(f"{name} is confirmed, and it never happened")
            if x.state is EffectState.NOT_ATTEMPTED and x.sent and not self.scenario.repeats:
                if acts:
                    raise Violation(f"{name} is called clean, and it happened")
                if any(f.able for f in self.flights if f.doing.key == x.key):
                    raise Violation(f"{name} is called clean, and a sender of it can still act")

    def check_end(self) -> None:
        """At rest: nothing is stranded, the chain is whole, and the tables are what the journal tells."""
        from procs_form import disagreements

        for name, state in sorted(self.folded.items()):
            if isinstance(state, t.Task) and not (state.ended or state.delivery is Delivery.BLOCKED):
                raise Violation(f"{name[1]} is stranded: {state.delivery}, {state.why}")
        if wrong := disagreements(self):
            raise Violation(wrong)

    # --- beginnings ---

    def accept(self, key: str) -> str:
        """A task is accepted, or found to be there."""
        self.opening_name = f"task-{key}"
        task, ticket = enqueue(self.client, Order(TENANT, "work", key, {"key": key}, QUEUE))
        self.client.writer.land()  # type: ignore[attr-defined]
        return accepted(task, ticket.value)

    def start(self, worker: str) -> Life:
        """A new process of a worker."""
        self.born += 1
        return Life(self, f"{worker}.{self.born}", self.born)

    def work(self, life: Life) -> None:
        """What a worker does with one claim: as `Worker`, but for its event loop."""
        ticket, registered = claim(
            life.desk, life.opened, self.scenario.works, queues=(QUEUE,), kinds=("work",), limit=1, told=set(), paused=life.paused
        )
        ticket.wait()
        outcome = ticket.value
        not_taken(life.opened, registered, outcome)
        if isinstance(outcome, Fenced):
            life.opened.fence_self(outcome.why)
        if not isinstance(outcome, Claims) or not outcome.tasks:
            return
        (taken,) = outcome.tasks
        work = self.scenario.works.get(taken.task.kind)
        assert work is not None
        ledger = Ledger(life.desk, taken.tenant, taken.task, taken.head, f"session:{life.opened.id}")
        attempt = Attempt(life, life.opened, ledger, unfenced=life.unfenced, limits=work.limits)
        try:
            self.drive(attempts.run(attempt, work))
        except StoreUnavailable:
            pass
        finally:
            life.opened.held.drop(taken.tenant, taken.task.id, taken.task.token)

    def play(self, key: str) -> str:
        """A task's handler: its script, one call after the other."""
        attempt = current.get()
        assert attempt is not None
        script = self.scenario.scripts[key]
        if len(script) == 1:
            self._chain(attempt, script[0])
        else:
            self._side_by_side(attempt, script)
        return "all done"

    def _chain(self, attempt: Attempt, calls: Chain) -> None:
        for name, n in calls:
            self.call(attempt, name, n)

    def call(self, attempt: Attempt, name: str, n: int) -> None:
        """One call of a handler's; a definite no it can live with."""
        effect = self.scenario.effects.get(name)
        assert effect is not None
        try:
            self.drive(perform(attempt, called(attempt, effect, (n,), {})))
        except NotDone:
            pass

    def _side_by_side(self, attempt: Attempt, script: Script) -> None:
        """As `asyncio.gather`: the first error leaves at once, while the others run on."""
        ends: list[Signal] = []
        for calls in script:
            end = Signal()
            ends.append(end)

            def branch(calls: Chain = calls, end: Signal = end) -> None:
                try:
                    self._chain(attempt, calls)
                    end.set(None)
                except Violation:
                    raise
                except (Exception, Suspended) as error:
                    end.set(error)

            self.branch(branch)
        for end in ends:
            if not end.is_set:
                self.block(Await(end))
            if isinstance(end.value, BaseException):
                raise end.value

    def branch(self, work: Callable[[], None]) -> None:
        """A second procedure of the process that runs here; it begins when this one stops."""
        here = next(actor for actor in self.actors if actor.run is getcurrent())

        def run(_: None) -> None:
            with contextlib.suppress(Gone):
                work()

        ready = Signal()
        ready.set()
        number = sum(1 for actor in here.life.actors) if here.life is not None else 0
        self.actors.append(Actor(f"{here.name} ({number})", here.life, greenlet(run, self.main), Await(ready)))

    def close(self) -> None:
        """Let go of all that runs."""
        for life in self.lives:
            life.kill()

"""What befalls a world: clients, people, and the weather. All by the seed; after the storm only clients and people are left."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sim_agents

import semel
from semel.engine.queue import Order
from semel.errors import StoreUnavailable
from semel.model import Delivery

if TYPE_CHECKING:
    from sim_worlds import Machine, World

ENDED = (Delivery.ACKNOWLEDGED, Delivery.DEAD_LETTERED)
STORM = (6.0, 15.0)  # seconds of faults
CLOCK_BACK = 20.0  # seconds, all told, by which the wall clock is set back: less than `sim_outside.CLOCKS`
LOOK = 1.0  # how often it is looked whether all has ended


class Happenings:
    """The hands that move a world."""

    def __init__(self, world: World) -> None:
        self.world, self.random, self.count = world, world.random, world.counters
        self.until = self.random.uniform(*STORM)
        self.calm = self.done = False
        self._set_back = 0.0
        self._accepted, self._told = False, 0
        self.copied = 0.0

    def begin(self) -> None:
        """Let it come."""
        from sim_worlds import Machine

        world, draw = self.world, self.random
        self.people = Machine(world, "people", "office", timer=False)
        self.clients = Machine(world, "clients", "shop", timer=False)
        self.tenants = ("acme",) if draw.random() < 0.6 else ("acme", "umbra")
        self.count["tasks of two tenants"] += len(self.tenants) - 1
        self.orders = [self._order(i) for i in range(draw.randint(2, 6))]
        world.people_lane = world.sim.spawn(self.people, "people", self._people)
        world.sim.spawn(self.clients, "clients", self._clients)
        weather: list[tuple[Callable[[], object], int]] = [
            (self._kill, draw.choice((0, 1, 2, 4))), (self._freeze, draw.choice((0, 1, 3))),
            (self._away, draw.choice((0, 0, 1, 2))), (self._jump, draw.choice((0, 0, 2))), (self._stop, draw.choice((0, 0, 1))),
        ]  # fmt: skip
        for happens, times in weather:
            for _ in range(times):
                world.sim.at(draw.uniform(0.5, self.until), happens)
        if draw.random() < 0.2:
            at = draw.uniform(1.0, self.until)
            world.sim.at(at, self._copy)
            world.sim.at(draw.uniform(at, self.until), self._restore)
            if draw.random() < 0.25:  # and once more, as it was then
                world.sim.at(draw.uniform(at, self.until), self._restore)
        world.sim.at(self.until, self._clear_up)

    def over(self) -> bool:
        return self.done

    def _order(self, i: int) -> tuple[str, str, str, list[list[Any]]]:
        draw = self.random
        kind = draw.choice(("job", "job", "job", "thrifty", "chore"))
        if kind == "chore":
            plan: list[list[Any]] = [["ring", n] for n in range(draw.randint(1, 2))]
        else:
            plan = [[draw.choice(list(sim_agents.EFFECTS)), draw.randint(1, 3)] for _ in range(draw.randint(1, 3))]
            more = (["sleep", 2.0], ["wait", "go"], ["step", "a"], ["spend"], ["fail"])
            for _ in range(draw.choice((0, 0, 1, 2))):
                plan.insert(draw.randrange(len(plan) + 1), draw.choice(more))
        return draw.choice(self.tenants), kind, f"k{i}", plan

    # --- clients ---

    def _clients(self) -> None:
        """They enqueue, some of it twice; and again all that they know of, when the store went back."""
        sim, draw = self.world.sim, self.random
        app = self.world.app_of(self.clients)
        self.world.people_app = app
        known = list[tuple[str, str, str, list[list[Any]]]]()
        for order in self.orders:
            sim.block(draw.uniform(0.0, self.until / len(self.orders) * 0.8))
            known.append(order)
            self._accept(app, order)
            if draw.random() < 0.15:
                self.count["delivered twice"] += 1
                self._accept(app, draw.choice(known))
        self._accepted = True
        while True:
            sim.block(1.0)
            if (restored := self.world.restored) > self._told:
                sim.block(draw.uniform(0.0, 6.0))
                app = self.world.app_of(self.clients)
                for order in known:
                    self._accept(app, order)
                self._told = restored

    def _accept(self, app: semel.App, order: tuple[str, str, str, list[list[Any]]]) -> None:
        tenant, kind, key, plan = order
        for _ in range(50):
            try:
                app.accept(Order(tenant, kind, key, {"plan": plan}, "default"))
                return
            except StoreUnavailable:
                self.world.sim.block(1.0)
                app = self.world.app_of(self.clients)
        raise AssertionError(f"{kind} {key} was not accepted in a minute")

    # --- people ---

    def _people(self) -> None:
        """They look at what waits for them, and at the provider's books."""
        sim, draw = self.world.sim, self.random
        app: semel.App | None = None
        while True:
            sim.block(draw.uniform(1.5, 4.0))
            try:
                if app is None:
                    app = self.world.app_of(self.people)
                self._unknown(app)
                self._pending(app)
                self._tasks(app)
            except StoreUnavailable:
                self.count["people: the store did not answer"] += 1
                app = None
            if app is not None and draw.random() < 0.1:
                app.close()
                app = None

    def _try(self, what: str, act: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        try:
            act(*args, by="ann", **kwargs)
            self.count[what] += 1
        except semel.Refused as error:
            self.count[f"{what}: refused"] += 1
            self.count["people: stale views"] += error.code == "stale_view"
        except semel.Misuse:
            if not self.world.restored:  # what they have seen may be gone
                raise
            self.count["people: what they saw is gone"] += 1

    def _unknown(self, app: semel.App) -> None:
        store, sim, draw = app.runtime.desk.store, self.world.sim, self.random
        for row in store.unknown(None):
            task = store.task(row.tenant, row.task)
            waits = task is not None and task.delivery == Delivery.BLOCKED
            early = self.world.outside.under_way[row.key] > 0  # what was sent may act yet
            if not (waits or early) and draw.random() > 0.2:
                continue
            effect = store.effect(row.tenant, row.key)
            if effect is None:
                continue
            sim.block(draw.uniform(0.0, 0.3 if early else 2.0))
            self.count["people: looked too early"] += self.world.outside.under_way[row.key] > 0
            act = self.world.outside.books(row.key)
            verdict: semel.Verdict = semel.Confirmed(act.result) if act else semel.NotFound()
            at_large = [m for m in self.world.gone.values() if not (m.dead or m.timer)]
            if act is None and at_large and (self.calm or draw.random() < 0.2):
                self.count["people: stopped what nothing can fence"] += 1
                while at_large:
                    self.world.kill(at_large.pop(), "by people")
                continue  # and look again
            stopped = not at_large
            said = "people: it happened" if act else "people: it did not happen"
            self.world.story(f"people say of {row.key[:10]}, seen at {effect.version}: {said}")
            word = {"seen": effect.version, "process_stopped": stopped, "tenant": row.tenant}
            self._try(said, app.review.resolve, row.key, verdict, **word)

    def _pending(self, app: semel.App) -> None:
        for tenant in self.tenants:
            for view in app.review.pending(tenant=tenant):
                self.world.sim.block(self.random.uniform(0.0, 1.0))
                if self.random.random() < 0.8:
                    self._try("approvals", app.review.approve, view.key, seen=view.version, tenant=tenant)
                else:
                    self._try("denials", app.review.deny, view.key, seen=view.version, tenant=tenant)

    def _tasks(self, app: semel.App) -> None:
        store, draw = app.runtime.desk.store, self.random
        for row in store.tasks(None):
            ref: semel.Ref[Any] = semel.Ref(row.task, row.tenant, app=app)
            if row.delivery == Delivery.DEAD_LETTERED and draw.random() < 0.3:
                self._try("replays", app.review.replay, ref)
            elif row.delivery not in ENDED and draw.random() < (0.0 if self.calm else 0.02):
                self._try("cancels", app.review.cancel, ref)
            elif row.delivery not in ENDED and draw.random() < 0.1:
                self._try("signals", self._signal, app, ref)
        if self.calm and app.runtime.paused.now().of("default", "job") is not None:  # whoever paused it could not resume it
            self._try("resumes", app.review.resume, queue="default")
        if not self.calm and draw.random() < 0.03:
            self._try("pauses", app.review.pause, queue="default")
            self.world.sim.block(draw.uniform(1.0, 4.0))
            self._try("resumes", app.review.resume, queue="default")

    def _signal(self, app: semel.App, ref: semel.Ref[Any], *, by: str) -> None:
        app.signal(ref, "go", {"by": by})

    # --- the weather ---

    def _one(self) -> Machine | None:
        there = [m for m in self.world.machines if not m.dead]
        return self.random.choice(there) if there and not self.calm else None

    def _kill(self) -> None:
        if (machine := self._one()) is not None:
            self.count["kills"] += 1
            self.world.kill(machine)

    def _freeze(self) -> None:
        machine = self._one()
        if machine is None or machine.frozen:
            return
        long = self.random.uniform(0.1, 2.5) if self.random.random() < 0.5 else self.random.uniform(3.0, 14.0)
        self.count["freezes"] += 1
        self.world.story(f"{machine.name} is frozen for {long:.2f} s")
        machine.frozen = True
        self.world.sim.at(self.world.sim.now + long, lambda: self._thaw(machine))

    def _thaw(self, machine: Machine) -> None:
        if machine.frozen and not machine.dead:
            self.count["wakes"] += 1
            self.world.story(f"{machine.name} wakes")
        machine.woke = self.world.sim.now
        self.world.sim.thaw(machine)

    def _away(self) -> None:
        long = self.random.choice((0.3, 2.0, 6.0))
        self.world.story(f"the store is away for {long} s")
        self.count["times that the store was away"] += 1
        self.world.away_until = self.world.sim.now + long
        self.world.aways.append(self.world.away_until)

    def _jump(self) -> None:
        by = self.random.uniform(-12.0, 30.0)
        if by < 0:
            by = max(by, self._set_back - CLOCK_BACK)
            self._set_back -= by
        self.count["clock jumps"] += 1
        self.world.story(f"the wall clock jumps by {by:.1f} s")
        self.world.offset += by

    def _stop(self) -> None:
        machine = self._one()
        if machine is not None and machine.worker is not None and not machine.frozen:
            worker = machine.worker
            self.world.story(f"{machine.name} is told to stop")
            self.world.sim.spawn(machine, "signal", worker.stop)

    def _copy(self) -> None:
        self.world.story("the store is copied")
        self.copied = self.world.sim.now
        self.world.copy()

    def _restore(self) -> None:
        """As people do it: under the same name, or into the very file."""
        self.count["restores"] += 1
        self.world.restored += 1
        self.count["restored again"] += self.world.restored > 1
        replaced = self.random.random() < 0.5
        self.world.restore(replaced=replaced)
        self.count[f"restores {'under the same name' if replaced else 'in the very file'}"] += 1
        self.world.story(f"the store is restored as it was at {self.copied:.3f}{', under the same name' if replaced else ''}")

    def _clear_up(self) -> None:
        self.world.story("the storm is over")
        self.calm = True
        self.world.outside.faults, self.world.away_until, self.world.slowness = 0.0, -1.0, 0.0
        for machine in list(self.world.machines):
            self._thaw(machine)
        self._look()

    def _look(self) -> None:
        store = self.world.base
        sizes = store.sizes()
        tasks = store.counts(None)["delivery"]
        ended = all(state in ENDED for state, count in tasks.items() if count)
        heard = self._accepted and self._told == self.world.restored
        if heard and ended and not (sizes["ready"] or sizes["inflight"] or sizes["unknown"]):
            self.done = True
            return
        self.world.sim.at(self.world.sim.now + LOOK, self._look)

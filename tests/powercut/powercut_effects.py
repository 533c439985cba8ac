"""The power goes while an effect is performed: the whole engine on such a disk, and a provider that counts what it did.

The harness runs the app; each life's store is the shipped one, on what the last cut has left. The power goes at an operation
of the disk, or in the provider's hands: before it acts, or after it did and before anybody heard of it. Or the disk fails for
a while, and the same process goes on.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw
import pytest
from powercut_disk import SYNC, VFS, WRITE, Disk
from powercut_life import Violation

import semel
from semel.errors import Misuse, StoreUnavailable
from semel.machine import journal as j
from semel.store.sqlite import SQLite
from semel.store.witness import VARIABLE
from semel.testing import Died, Harness
from semel.testing.stage import TTL_SECONDS, Life

SETTLE = timedelta(seconds=30)
LONG = timedelta(minutes=10)
ROUNDS = 40  # of running until all is settled


class World:
    """The provider, and the plug. acts: what it did, by key; it remembers keys where it was declared to, unless it forgets."""

    def __init__(self, forgets: bool = False) -> None:
        self.forgets = forgets
        self.acts: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.plan: tuple[str, int] = ("", 0)
        self.lock = threading.Lock()
        self.pull: Callable[[], None] = lambda: None
        self.off = False

    def act(self, manner: str, key: str) -> str:
        """One request of a sender that is alive now."""
        with self.lock:
            if self.off:
                raise Died("the power is off")
            place, left = self.plan
            if place in ("before", "after"):
                self.plan = (place, left - 1)
            strikes = place in ("before", "after") and left == 1
            if strikes and place == "before":
                self.seen["the power goes before the provider acts"] += 1
            elif manner != "remembers" or not self.acts[key] or self.forgets:
                self.acts[key] += 1
            else:
                self.seen["it was sent again, and did nothing"] += 1
            if strikes and place == "after":
                self.seen["the power goes after the provider acted"] += 1
        if strikes:
            self.pull()
            raise Died("the power is off")
        return f"receipt of {key}"


world = World()
app = semel.App("sqlite:///semel-powercut-must-never-exist.db")


def look(submission: semel.Submission, order: str) -> semel.Verdict:
    world.seen["looked up"] += 1
    return semel.Confirmed(f"receipt of {submission.key}") if world.acts[submission.key] else semel.NotFound()


@app.effect(intent=("order",), recovery=semel.Resend(within=10 * timedelta(seconds=TTL_SECONDS)))
def charge(submission: semel.Submission, order: str) -> str:
    return world.act("remembers", submission.key)


@app.effect(intent=("order",), recovery=semel.Lookup(look, settle=SETTLE))
def mail(submission: semel.Submission, order: str) -> str:
    return world.act("looked up", submission.key)


@app.effect(intent=("order",), recovery=semel.Ask())
def ship(submission: semel.Submission, order: str) -> str:
    return world.act("opaque", submission.key)


@app.task(intent=("order",), retry=semel.Retry(max_crashes=50))
def deliver(order: str) -> list[str]:
    return [effect(order) for effect in (charge, mail, ship)]


class Powered(Life):
    """One process, which ends when the power does: nothing of it is said to the store any more."""

    def __init__(self, store: SQLite, harness: Plugged) -> None:
        super().__init__(store, app.declared_effects, harness._stage, harness._on_death)
        self._mortal._committed = self.witness.committed

    def kill(self) -> None:
        """The end."""
        with self._dying:
            if self.died.is_set:
                return
            self._mortal.dead = True
            self._mortal._closing = True
            self.died.set()
        session = self.open_session
        if session is not None:
            session.stop(leave=False)
        self._mortal.close()
        self._on_death(self)


class Plugged(Harness):
    """A harness whose store is on a disk that loses power, again and again, until it has done so `cuts` times."""

    def __init__(self, dice: random.Random, cuts: int) -> None:
        super().__init__(app)
        self.dice, self.cuts = dice, cuts
        self.disk = Disk(name="powered")
        self.life: Powered | None = None
        self.operations = self.fails = 0
        self.home = threading.current_thread()

    def __enter__(self) -> Self:
        """From here on, the app's store is on this disk."""
        self._store = SQLite(self.disk.place, vfs=VFS)
        self._store.permit_ttl(int(TTL_SECONDS * 1000))  # a life here ends by the power alone, never by being late
        self._before, app._runtime = app._runtime, None
        app._stage = self._new_life
        self.epoch = self._store.info.epoch
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.disk.ask = None
        super().__exit__(kind, error, trace)
        self.disk.remove()

    def plan(self) -> None:
        """When the power goes next."""
        world.off, world.pull = False, self.off
        if self.cuts == 0:
            world.plan = ("", 0)
            return
        self.cuts -= 1
        place = self.dice.choice(("operation", "operation", "before", "after", "fails"))
        world.plan = (place, self.dice.randint(1, 3 if place in ("before", "after") else 60))
        self.fails = self.dice.randint(1, 6)
        self.operations = 0
        self.disk.ask = self._operation

    def _operation(self, what: str, file: str) -> None:
        self.operations += what != "read"
        if not world.off and world.plan[0] == "operation" and self.operations > world.plan[1]:
            world.off = True
            world.seen["the power goes at an operation of the disk"] += 1
            if (life := self.life) is not None:  # this one, however late the thread comes to it
                threading.Thread(target=life.kill, daemon=True).start()  # whoever writes here holds locks
        if world.off:
            raise apsw.IOError("the power is off")
        if world.plan[0] == "fails" and what in (WRITE, SYNC) and self.operations > world.plan[1]:
            world.seen["the disk fails, and the power stays"] += 1
            self.fails -= 1
            if not self.fails:
                self.plan()  # it is mended
            raise self.dice.choice((apsw.IOError("disk I/O error"), apsw.FullError("database or disk is full")))

    def off(self) -> None:
        """The power is off, from now on."""
        world.off = True
        self.disk.ask = self._operation
        if self.life is not None:
            self.life.kill()

    def _new_life(self) -> Life:
        if threading.current_thread() is not self.home:
            raise Died("its process is dead")  # what is left of the code of a life before begins no other
        if world.off:
            self._come_back()
        assert self._store is not None
        self.life = Powered(self._store, self)
        return self.life

    def _come_back(self) -> None:
        """The power is back: the disk holds what the cut has left, and those who worked are dead."""
        assert self._store is not None
        with self._store._writer.lock:  # a thread of the life before may still be told that nothing works
            image = self.disk.after_cut(self.dice)
            self.disk.ask = None
            self._store._writer.raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._store.close()
        self.disk = Disk(image, name="powered")
        self._store = SQLite(self.disk.place, vfs=VFS)
        for row in self._store.sessions():
            self._store.fence(row.id, None, "dead")
        self.life = None
        self._look()
        self.plan()

    def _look(self) -> None:
        """What the cut has left of each effect."""
        assert self._store is not None
        for row in self._store.effects(None):
            if row.state == "submitted":
                world.seen[f"under way, {'and acted' if world.acts[row.key] else 'not acted'}: {row.name}"] += 1


def enduring(h: Plugged, do: Callable[[], Any]) -> Any:
    """Do it again until the power does not go in between."""
    while True:
        try:
            return do()
        except (StoreUnavailable, Misuse, Died, semel.Suspended):
            if not world.off:
                raise
        if h.life is not None:
            h.life.died.wait(10)
            h.life.kill()
        with app._opening:
            app._runtime = None


def person(h: Plugged) -> None:
    """Whoever is asked says the truth, once it is known that the sender is gone."""
    for view in app.effects.list(state="ambiguous"):
        if view.name == "ship":
            world.seen["a person is asked"] += 1
            verdict = semel.Confirmed(f"receipt of {view.key}") if world.acts[view.key] else semel.NotFound()
            app.review.resolve(view.key, verdict, by="ada", reason="I looked")


def deliver_through_cuts(
    seed: int, witness: Path, *, forgets: bool = False, tell: Callable[[str], None] = lambda line: None
) -> Counter[str]:
    """One order, delivered through some power cuts; what happened on the way. Raises `Violation`."""
    global world
    dice = random.Random(seed)
    world = World(forgets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(witness))
        with Plugged(dice, dice.randint(1, 4)) as h:
            deliver.enqueue("the first")  # whose witness is on file: without one a process watches for a lease's length
            h.run()
            world.acts.clear()
            h.plan()
            ref = enduring(h, lambda: deliver.enqueue(f"o{seed}"))
            for _ in range(ROUNDS):
                enduring(h, h.run)
                if enduring(h, lambda: app.tasks.get(ref).delivery) == "acknowledged":
                    break
                enduring(h, lambda: person(h))
                h.advance(LONG)
            for event in app.journal(ref):
                tell(f"  {event.seq:>3} {event.kind:<12} by {event.actor}: {event.body}")
            check(h, ref)
    return world.seen


def check(h: Plugged, ref: semel.Ref[Any]) -> None:
    """Each effect happened once, is confirmed, and nobody thinks that the store went back."""
    assert h._store is not None
    views = app.effects.list(task=ref)
    said = {view.name: (view.state.value, world.acts[view.key]) for view in views}
    if said != dict.fromkeys(("charge", "mail", "ship"), ("confirmed", 1)) or sum(world.acts.values()) != 3:
        raise Violation(f"each is to happen once, and be confirmed: {said}, acts {dict(world.acts)}, {app.tasks.get(ref)}")
    if h._store.reread().epoch != h.epoch:
        raise Violation("a new epoch has begun, and the store never went back")
    for tenant, stream in h._store.streams(("", ""), 100):
        if wrong := j.broken(h._store.rows(tenant, stream)):
            raise Violation(f"stream {stream}: {wrong}")


def many(seeds: range, witness: Path, *, forgets: bool = False) -> Counter[str]:
    """Many orders. forgets: a control, whose provider does not remember keys as it was declared to."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            seen.update(deliver_through_cuts(seed, witness / str(seed), forgets=forgets))
        except Exception as error:
            raise Violation(f"seed {seed}: {type(error).__name__}: {error}") from error
    return seen

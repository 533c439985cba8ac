"""`python -m semel.testing.crashtest.inside < SETTING`: one worker process of a crash test.

It runs the user's app as `semel worker` would, on the throw-away store. The shipped Runtime is subclassed where a
boundary lies: at each it looks whether a gate is armed (`room`), and there it parks until it is killed or let go.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from semel.app import App
from semel.engine.acting import Acting
from semel.engine.attempt import Attempt
from semel.engine.declare import is_async, milliseconds
from semel.engine.ledger import Desk
from semel.engine.perform import Doing
from semel.engine.runtime import Code, Runtime
from semel.errors import Misuse
from semel.machine import journal as j
from semel.store.contract import Change, Landed, Store
from semel.store.places import open_store, place_of
from semel.store.sqlite import SQLite
from semel.store.writer import Ticket, Writer
from semel.supervise import die_with_parent
from semel.testing.crashtest import watch
from semel.testing.crashtest.room import Room, Setting

PARENT_SECONDS = 0.2
RETURNED, FINISHED = "the handler", "the finish"


class Gates:
    """Where this process stands still: each boundary by the name of its effect or step, and the how-manieth it is."""

    def __init__(self, setting: Setting) -> None:
        self.room, self.during = Room(Path(setting.room)), setting.during
        self._lock = threading.Lock()
        self._of: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def named(self, name: str, key: str) -> str:
        """The gate of an effect or a step: its name, and which of that name it is in the order of their first sight."""
        with self._lock:
            if key not in self._of:
                self._counts[name] = self._counts.get(name, 0) + 1
                self._of[key] = f"{name}#{self._counts[name]}"
            return self._of[key]

    def of(self, event: j.Happened) -> str:
        """The gate that a row stands for, without its place; "": none."""
        if isinstance(event, j.Intended):
            return "" if event.again else f"{self.named(event.name, event.key)} intent"
        if isinstance(event, j.Confirmed):
            return f"{self._of[event.key]} outcome" if event.key in self._of else ""
        if isinstance(event, j.Stepped):
            return f"{self.named(event.name, event.key)} result"
        return FINISHED if isinstance(event, j.Finished) else ""

    def of_change(self, change: Change) -> list[str]:
        """Those of all its rows."""
        events = [row.event for part in change.parts for row in part.rows if row.event is not None]
        return [gate for gate in map(self.of, events) if gate]

    @contextlib.contextmanager
    def call(self, gate: str, key: str) -> Iterator[None]:
        """One call of an effect's function."""
        self.room.park(f"{gate} before")
        middle = None
        if self.room.armed(f"{gate} during"):
            middle = threading.Thread(target=self._middle, args=(gate,), name="semel-crashtest", daemon=True)
            middle.start()
        began = time.time()
        self.room.note(what="began", gate=gate, key=key)
        try:
            yield
        finally:
            self.room.note(what="ended", gate=gate, key=key, began=began)
            if middle is not None:
                middle.join()  # a call that was too quick does not get away
            self.room.park(f"{gate} after")

    def _middle(self, gate: str) -> None:
        time.sleep(self.during)
        self.room.park(f"{gate} during")


class GatedWriter(Writer):
    """Stands still before and after the commit of a row, in the writer's thread; in SQLite also within the transaction."""

    def __init__(self, store: Store, gates: Gates, committed: Callable[..., None]) -> None:
        super().__init__(store, committed=committed)
        self._gates = gates
        self._within: list[str] = []
        if isinstance(store, SQLite):
            store._writer.raw.set_commit_hook(self._in_transaction)

    def _commit(self, batch: list[Ticket]) -> list[Any]:
        changes = [ticket.unit for ticket in batch if isinstance(ticket.unit, Change)]
        self._within = [gate for change in changes for gate in self._gates.of_change(change)]
        for gate in self._within:
            self._gates.room.park(f"{gate} recording")
        outcomes = super()._commit(batch)
        landed = [t.unit for t, o in zip(batch, outcomes, strict=True) if isinstance(o, Landed) and isinstance(t.unit, Change)]
        for gate in [gate for change in landed for gate in self._gates.of_change(change)]:
            self._gates.room.park(f"{gate} recorded")
        return outcomes

    def _in_transaction(self) -> bool:
        """All is written, and nothing is committed. False: go on."""
        for gate in self._within:
            self._gates.room.park(f"{gate} within")
        return False


class Inside(Runtime):
    """The shipped runtime, with a gate at each boundary."""

    def __init__(self, store: Store, app: App, gates: Gates, *, ttl: float) -> None:
        timer = app._watchdog != "never"
        super().__init__(store, app.declared_effects, ttl=ttl, kernel_timer=timer, tenant=app.bound_to)
        self._gates = gates
        writer = GatedWriter(store, gates, self.witness.committed)
        self.desk = Desk(store, writer, self.desk.clock, self.desk.standing, self.desk.tenant)

    def _gate(self, attempt: Attempt, key: str) -> str:
        known = attempt.ledger.effect(key)
        return self._gates.named(known.name if known is not None else "?", key)

    def entering(self, attempt: Attempt, doing: Doing) -> Code:
        """Before the kernel timer is armed: who is frozen here wakes up again."""
        self._gates.room.park(f"{self._gate(attempt, doing.key)} entering")
        return super().entering(attempt, doing)

    def guarded(self, fn: Callable[..., Any], attempt: Attempt, doing: Doing, acting: Acting) -> Callable[..., Any]:
        """An effect's function, with a gate on each side of its call and one in the middle."""
        gate, key, gates = self._gate(attempt, doing.key), doing.key, self._gates

        async def calls_async(*args: Any, **kwargs: Any) -> Any:
            with gates.call(gate, key):
                return await fn(*args, **kwargs)

        def calls(*args: Any, **kwargs: Any) -> Any:
            with gates.call(gate, key):
                return fn(*args, **kwargs)

        return super().guarded(calls_async if is_async(fn) else calls, attempt, doing, acting)

    def committed(self, change: Change, outcome: Landed, seconds: float) -> None:
        """A confirm that landed with an `Atomic` effect's own writes."""
        super().committed(change, outcome, seconds)
        for gate in self._gates.of_change(change):
            self._gates.room.park(f"{gate} recorded")

    def handling(self, fn: Callable[..., Any], attempt: Attempt) -> Callable[..., Any]:
        """A task's handler, with a gate between its return and the finish."""

        def returned() -> None:
            gate = f"{RETURNED} after"
            if self._gates.room.armed(gate):
                self.desk.writer.barrier().wait()  # what it did is on record; a kill before that has a boundary of its own
                self._gates.room.park(gate)

        async def handles_async(*args: Any, **kwargs: Any) -> Any:
            result = await fn(*args, **kwargs)
            returned()
            return result

        def handles(*args: Any, **kwargs: Any) -> Any:
            result = fn(*args, **kwargs)
            returned()
            return result

        return super().handling(handles_async if is_async(fn) else handles, attempt)


def load(target: str) -> App:
    """The app that MODULE:app names."""
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert isinstance(found, App)
    return found


def hasten(app: App, setting: Setting) -> None:
    """A person's not_found is believed soon: who plays the person has looked. Lookup's settle at most as the user said."""
    ask, lookup = milliseconds(timedelta(seconds=setting.ask)), setting.settle
    for name in app.declared_effects.names():
        effect = app.declared_effects.get(name)
        assert effect is not None
        rungs = []
        for rung in effect.rungs:
            most = ask if rung.kind == "ask" else int(lookup * 1000) if rung.kind == "lookup" and lookup is not None else None
            rungs.append(rung if most is None else replace(rung, settle_ms=min(rung.settle_ms, most)))
        object.__setattr__(effect, "rungs", tuple(rungs))  # the functions that users call hold this very declaration


def prepare(app: App, setting: Setting) -> None:
    """The app works on the throw-away store alone, whatever its URL says. Raises `Misuse`."""
    gates = Gates(setting)

    def opens() -> Runtime:
        return Inside(open_store(setting.store), app, gates, ttl=setting.lease)

    app.load()
    hasten(app, setting)
    app._stage = opens


def guard(setting: Setting) -> None:
    """From now on no app of this process opens any store but the throw-away one: with the tested one's code comes others'."""
    opens = App.open_store

    def guarded(app: App) -> Store:
        if app._url == setting.store:
            return opens(app)
        if app is _there(setting.target):
            raise Misuse(
                f"{setting.target} opens its own store while it is imported, and a crash test leaves that alone; do it later"
            )
        raise Misuse(
            f"{whose(app)} is another app than {setting.target}, with a store of its own, and a crash test leaves that alone; "
            f"let both take theirs from $SEMEL_STORE (semel.App() without a URL), or declare its tasks on {setting.target}"
        )

    App.open_store = guarded  # type: ignore[method-assign, assignment]


def _there(target: str) -> object:
    """What MODULE:app names, as far as that has been imported."""
    module, _, name = target.partition(":")
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def whose(app: App) -> str:
    """MODULE:app, where it is to be found."""
    for module, there in list(sys.modules.items()):
        for name, value in list(vars(there).items()) if there is not None and module != "__main__" else ():
            if value is app:
                return f"{module}:{name}"
    return f"the app on {place_of(app._url).shown}"


def follow(parent: int) -> None:
    """End this process and its group soon after its parent has ended: off Linux the kernel does not see to it."""

    def watches() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watches, name="semel-crashtest-parent", daemon=True).start()


def main() -> None:
    """One worker process."""
    faulthandler.register(signal.SIGUSR1)
    setting = Setting.read(sys.stdin.read())
    die_with_parent(setting.parent)
    if sys.platform != "linux":
        follow(setting.parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    guard(setting)
    try:
        app = load(setting.target)
        prepare(app, setting)
    except Misuse as error:
        sys.exit(str(error))
    watch.install(app, Path(setting.log), setting.lose)
    app.run_worker(concurrency=20)


if __name__ == "__main__":
    main()

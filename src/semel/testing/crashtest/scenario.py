"""How each injection is played: up to the harm, and what must happen at once. The run's end is `World.finish`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from semel.model import Ref
from semel.testing.crashtest.inside import FINISHED, RETURNED
from semel.testing.crashtest.points import Boundary, Point
from semel.testing.crashtest.probes import Sandbox
from semel.testing.crashtest.world import Child, Stuck, World

LATE_SECONDS = 1.5  # the sandbox provider answers so late a call in whose middle its caller is stopped
LATE_MIDDLE = 0.25
WAKE_LEASES = 2.0  # so many leases a woken worker is watched for what it does


def play(world: World, point: Point) -> None:
    """Do the harm, and let the task end. Raises `Stuck`, `Interrupted`."""
    PLAYS[point.how](world, point.at)


def _kill_at(world: World, gate: str) -> None:
    world.room.arm(gate)
    world.enqueue()
    world.start()
    world.arrived(gate).kill()
    world.finish()


def _named(place: str) -> Callable[[World, Boundary | None], None]:
    def plays(world: World, at: Boundary | None) -> None:
        assert at is not None
        _kill_at(world, f"{at.gate} {place}")

    return plays


def _recorded(place: str) -> Callable[[World, Boundary | None], None]:
    def plays(world: World, at: Boundary | None) -> None:
        assert at is not None
        row = "outcome" if at.what == "effect" else "result"
        _kill_at(world, f"{at.gate} {row} {place}")

    return plays


def _in_the_middle(world: World, at: Boundary) -> Child:
    """Start, and wait until the call is under way: with the sandbox, its request is there, and its answer is late."""
    world.room.arm(f"{at.gate} before", f"{at.gate} during")
    world.enqueue()
    world.start()
    child = world.arrived(f"{at.gate} before")
    if world.provider is not None and isinstance(world.kit.counts, Sandbox):
        for manner, action in sorted(world.kit.counts.actions.get(at.name, ())):
            world.provider.fault("late", manner=manner, action=action, seconds=LATE_SECONDS)  # type: ignore[arg-type]
    world.room.open(f"{at.gate} before")
    world.arrived(f"{at.gate} during")
    return child


def killed_during(world: World, at: Boundary | None) -> None:
    """Nobody hears of what was sent."""
    assert at is not None
    _in_the_middle(world, at).kill()
    world.finish()


def killed_returned(world: World, at: Boundary | None) -> None:
    """The handler has returned; what it did may not all be on record."""
    _kill_at(world, f"{RETURNED} after")


def killed_finished(world: World, at: Boundary | None) -> None:
    """It is finished, and nobody was told."""
    _kill_at(world, f"{FINISHED} recorded")


def frozen_before(world: World, at: Boundary | None) -> None:
    """It wakes up when another has done its work: it must send nothing."""
    assert at is not None
    gate = f"{at.gate} entering"
    world.room.arm(gate)
    world.enqueue()
    world.start()
    first = world.arrived(gate)
    world.freeze(first)
    world.room.open(gate)
    world.start()
    world.finish()
    _wake(world, first)


def frozen_during(world: World, at: Boundary | None) -> None:
    """It is slow beyond its lease. The kernel ends it, unless the app does without the watchdog."""
    assert at is not None
    first = _in_the_middle(world, at)
    world.freeze(first)
    world.room.open(f"{at.gate} during")
    world.start()
    world.finish()
    _wake(world, first)


def _wake(world: World, first: Child) -> None:
    """Let it go on, and see what it does."""
    first.wake()
    end = threading.Event()
    for _ in range(int(WAKE_LEASES * world.kit.lease / 0.05)):
        if not first.alive or world.kit.stop.is_set():
            break
        end.wait(0.05)


def delivered_again(world: World, at: Boundary | None) -> None:
    """Twice at once, while it runs, and when it is done: it stays one task."""
    assert at is not None
    found: list[Ref[Any]] = []
    gate = f"{at.gate} before"
    world.room.arm(gate)
    both = [threading.Thread(target=lambda: found.append(world.enqueue())) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    world.start()
    world.start()
    world.arrived(gate)
    found.append(world.enqueue())
    world.room.open(gate)
    world.finish()
    found.append(world.enqueue())
    world.finish()
    if len({ref.id for ref in found}) != 1 or len(found) != 4:
        world.duplicates = f"delivered 4 times, it became {len({ref.id for ref in found})} tasks"


def killed_within(world: World, at: Boundary | None) -> None:
    """All workers at once, one of them within a transaction that is written and not committed."""
    assert at is not None
    gate = f"{at.gate} intent within"
    world.room.arm(gate)
    world.enqueue()
    world.start()
    world.start()
    world.arrived(gate)
    for child in world.workers:
        child.kill()
    world.finish()


def reply_lost(world: World, at: Boundary | None) -> None:
    """The first worker's call is answered, and the answer never arrives: what does the effect's function make of that?"""
    assert at is not None
    world.losing = at.name
    world.enqueue()
    world.start()
    world.losing = ""
    world.finish()
    world.lost = any(note["what"] == "lost" and note["name"] == at.name for note in world.watched())


def restored(world: World, at: Boundary | None) -> None:
    """The store is put back to what it was before the effect; who works on it then begins a new epoch (R20)."""
    assert at is not None
    before, after = f"{at.gate} intent recording", f"{at.gate} outcome recorded"
    world.room.arm(before, after)
    world.enqueue()
    world.start()
    world.arrived(before)
    world.stores.copy(world.url)
    world.room.open(before)
    child = world.arrived(after)
    _witnessed(world)
    child.kill()
    world.forgotten = world.effects()
    with world.reopened():
        world.stores.put_back(world.url)
    world.finish()


def _witnessed(world: World) -> None:
    """Wait for a beat: with each the worker writes down, outside the store, what it saw acknowledged (R19)."""
    path = world.app.runtime.witness.path
    assert path is not None
    arrived = time.time_ns()
    world.until("the worker beats", lambda: path.exists() and path.stat().st_mtime_ns > arrived)


def _cut(row: str, *, answered: bool) -> Callable[[World, Boundary | None], None]:
    """The worker's connection is cut at the COMMIT of a row: what landed, it must find out (R7)."""

    def plays(world: World, at: Boundary | None) -> None:
        assert at is not None
        atomic = at.rung == "atomic" and row == "outcome"  # committed with the effect's own writes, once its call has returned
        gate = f"{at.gate} after" if atomic else f"{at.gate} {row} recording"
        proxy = world.behind_proxy()
        world.room.arm(gate)
        world.enqueue()
        world.start()
        world.arrived(gate)
        if answered:
            proxy.lose_answer()
        else:
            proxy.lose_commit(text=atomic)
        world.room.open(gate)
        world.finish()
        if not proxy.cuts:
            raise Stuck("no connection was cut: its COMMIT never came")

    return plays


def terminated(world: World, at: Boundary | None) -> None:
    """What a server does that restarts: every connection ends, whatever was under way."""
    assert at is not None
    gate = f"{at.gate} intent recording"
    world.room.arm(gate)
    world.enqueue()
    world.start()
    world.start()
    world.arrived(gate)
    world.stores.terminate(world.url)
    world.room.open(gate)
    world.finish()


PLAYS: dict[str, Callable[[World, Boundary | None], None]] = {
    "killed_before": _named("before"),
    "killed_during": killed_during,
    "killed_after": _named("after"),
    "killed_recorded": _recorded("recorded"),
    "killed_recording": _recorded("recording"),
    "frozen_before": frozen_before,
    "frozen_during": frozen_during,
    "killed_returned": killed_returned,
    "killed_finished": killed_finished,
    "delivered_again": delivered_again,
    "killed_within": killed_within,
    "restored": restored,
    "reply_lost": reply_lost,
    "terminated": terminated,
    "cut_intent_before": _cut("intent", answered=False),
    "cut_intent_after": _cut("intent", answered=True),
    "cut_record_before": _cut("outcome", answered=False),
    "cut_record_after": _cut("outcome", answered=True),
}

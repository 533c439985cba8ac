"""What a restore made the store forget, and who could have known: the judge's own books, apart from the shipped witness.

Two windows of a restore lie outside the promise (docs/how-to/restore.md). Each is counted by its name, and is nothing else:
what was forgotten is done again while nobody who had seen some of it has had the time to look at the store since, or by one
who was at work beneath the restore and has not beaten since somebody looked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semel.machine import journal
from semel.store.contract import Change, Landed, Unit, Witnessed
from semel.store.witness import kept_of

if TYPE_CHECKING:
    from sim_outside import Act
    from sim_worlds import Machine, World

BEAT = 1.0  # seconds: each quarter of a lease
BENEATH = "window: put back beneath a worker that has not beaten since"
UNSEEN = "window: nobody who saw what was lost has looked since"


@dataclass(slots=True)
class Loss:
    """One restore. copied, stamp: everything that was recorded between these two is gone."""

    at: float
    copied: int
    stamp: int
    forgot: set[str]  # keys of which a submission is forgotten
    left: dict[str, int]  # how many events of each of these are left
    filed: bool  # something of it was on the witness file
    knew: set[Machine]  # the workers that had seen something of it, last of all that they saw
    noticed: float | None = None  # when one who had seen something of it first looked at the store

    def forgets(self, stamp: int | None) -> bool:
        return stamp is not None and self.copied < stamp <= self.stamp


@dataclass(slots=True)
class Losses:
    """Of one world."""

    world: World
    stamp: int = 0
    copied: int = 0
    stamps: dict[Any, int] = field(default_factory=dict)  # of each row and beat that was acknowledged
    all: list[Loss] = field(default_factory=list)
    beats: dict[Machine, list[float]] = field(default_factory=dict)  # when each beat began
    last: dict[Machine, dict[str, int]] = field(default_factory=dict)  # of the last row and beat that each saw acknowledged

    def landed(self, machine: Machine | None, units: list[Unit], outcomes: list[Any]) -> None:
        self.stamp += 1
        for unit, outcome in zip(units, outcomes, strict=True):
            if isinstance(unit, Change) and isinstance(outcome, Landed):
                for part in unit.parts:
                    self.stamps.update(((row.tenant, row.stream, row.seq, row.hash), self.stamp) for row in part.rows)
                    if machine is not None and part.rows:
                        self.last.setdefault(machine, {})["row"] = self.stamp

    def beaten(self, machine: Machine, session: str, number: int) -> None:
        self.stamp += 1
        self.stamps[session, number] = self.last.setdefault(machine, {})["beat"] = self.stamp

    def looked(self, seen: Witnessed) -> None:
        """A process asks the store whether it holds this."""
        for loss in self.all:
            if loss.noticed is None and self._forgets(loss, seen):
                loss.noticed = self.world.sim.now

    def _forgets(self, loss: Loss, seen: Witnessed) -> bool:
        return loss.forgets(self.stamps.get(seen.row)) or loss.forgets(self.stamps.get(seen.beat))

    def told(self) -> Counter[str]:
        """What the store holds now: of each key the number of its events, and behind "sent " that of its submissions."""
        found = Counter[str]()
        for tenant, stream in self.world.base.streams(("", ""), 1000):
            for row in self.world.base.rows(tenant, stream):
                event = journal.event_of(row)
                if isinstance(event, journal.OfEffect):
                    found[event.key] += 1
                    found[f"sent {event.key}"] += isinstance(event, journal.Intended)
        return found

    def copy(self) -> None:
        self.copied = self.stamp

    def restored(self, before: Counter[str]) -> None:
        """The store has gone back to the copy. before: what it held."""
        after = self.told()
        forgot = {key for key in before if after[f"sent {key}"] < before[f"sent {key}"]}
        loss = Loss(self.world.sim.now, self.copied, self.stamp, forgot, {key: after[key] for key in forgot}, False, set())
        loss.filed = any(self._forgets(loss, seen) for text in self.world.files.values() for seen in kept_of(text).all)
        loss.knew = {m for m in self.beats if not m.dead and any(loss.forgets(stamp) for stamp in self.last.get(m, {}).values())}
        self.all.append(loss)
        self.stamp += 1

    def window(self, act: Act) -> str:
        """In which window an act of what had happened before lies; "" if in none."""
        for loss in self.all:
            if act.key not in loss.forgot or act.sent < loss.at:
                continue
            sender = next(m for m in self.world.gone.values() if m.name == act.sender)
            unseen = loss.noticed is None or act.sent <= loss.noticed
            if unseen and not loss.filed and not any(self._had_time(m, loss, act.sent) for m in loss.knew):
                return UNSEEN
            looked = max((at for at in self.beats.get(sender, ()) if at < act.sent), default=0.0)
            if sender.began <= loss.at and looked <= min(loss.noticed or act.sent, loss.at + BEAT):
                return BENEATH
        return ""

    def untouched(self, key: str) -> bool:
        """Whether nobody has asked for a key, nor decided anything about it, since the store forgot what was sent."""
        found = self.told()[key]
        return any(key in loss.forgot and loss.left[key] == found for loss in self.all)

    def _had_time(self, knower: Machine, loss: Loss, until: float) -> bool:
        """Whether one who knew was there for long enough to have looked: two beats, and not frozen, with the store in reach."""
        since = max([loss.at, knower.woke, *(end for end in self.world.aways if end <= until)])
        died = knower.died if knower.died is not None else until
        return not knower.frozen and min(until, died) - since > 2 * BEAT

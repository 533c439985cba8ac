"""The store's incarnation: when it went back, what follows from that, and until when (R20). Its stream is `STREAM` of tenant "".

| command | from                         | to                                                                     |
|---------|------------------------------|------------------------------------------------------------------------|
| begin   | any, at the epoch it was seen | the next epoch: doubtful, its window open, not watched                |
| watched | not watched                  | watched: claims are given, and settle counts from here                 |
| close   | window open                  | closed: a task that is enqueued from now on is not in doubt            |
| lift    | doubtful                     | not doubtful: nothing is looked for any more, and the window is closed |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from semel.machine import journal as j
from semel.machine.effects import EPOCH_SHIFT, Decision, Doubt
from semel.machine.task_state import Task
from semel.model import Code, Refusal

TENANT, STREAM = "", "store"
HIGHEST = (1 << (63 - EPOCH_SHIFT)) - 1  # the highest epoch that a token can carry


@dataclass(frozen=True, slots=True)
class Epoch:
    """The store's epoch. epoch 0: the first, of which nothing is on record. since: the highest time the store still held."""

    epoch: int = 0
    incarnation: str = ""
    since: int = 0
    doubtful: bool = False
    window: bool = False
    watched: bool = True
    version: int = 0

    def doubt(self, task: Task | None) -> Doubt | None:
        """The doubt of a task, or (None) of a tenant-scoped key; derived, never written (R20)."""
        if not self.doubtful:
            return None
        if task is not None and task.epoch >= self.epoch and not task.doubt:
            return None
        return Doubt(self.epoch, self.since)


@dataclass(frozen=True, slots=True)
class Begin:
    """seen: the store's epoch, as the caller read it. witnessed: the highest epoch that its witness knows (R19).

    now: unix seconds. above: a higher number that a person knows of. since: see `Epoch`.
    """

    seen: int
    witnessed: int
    now: int
    incarnation: str
    since: int
    why: str
    above: int = 0


@dataclass(frozen=True, slots=True)
class Watched:
    epoch: int


@dataclass(frozen=True, slots=True)
class Close:
    why: str


@dataclass(frozen=True, slots=True)
class Lift:
    why: str


Command = Begin | Watched | Close | Lift


def decide(state: Epoch, command: Command) -> Decision | Refusal:
    """What `command` does to the store's epoch: events to append, or a named no. Pure."""
    if isinstance(command, Begin):
        return _begin(state, command)
    if isinstance(command, Watched):
        if state.epoch != command.epoch:
            return Refusal(Code.STALE_VIEW, f"the store is in epoch {state.epoch} by now")
        return Decision(() if state.watched else (j.EpochWatched(state.epoch),))
    if not state.doubtful:
        return Refusal(Code.STALE_VIEW, "nothing in this store is in doubt")
    if isinstance(command, Close):
        return Decision((j.WindowClosed(state.epoch, command.why),) if state.window else ())
    return Decision((j.DoubtLifted(state.epoch, command.why),))


def _begin(state: Epoch, c: Begin) -> Decision | Refusal:
    if state.epoch > c.seen or c.seen > c.witnessed:  # somebody else has noticed, and begun one
        return Refusal(Code.STALE_VIEW, f"the store is in epoch {max(state.epoch, c.seen)} by now")
    epoch = max(c.seen, c.witnessed, c.now, c.above) + 1
    if epoch > HIGHEST:
        return Refusal(Code.LIMIT_REACHED, f"an epoch is at most {HIGHEST}, not {epoch}")
    return Decision((j.EpochBegan(epoch, c.incarnation, c.seen, c.since, c.why),))


def apply(state: Epoch, event: j.Happened) -> Epoch:
    """The store's epoch after `event`. Pure."""
    state = replace(state, version=state.version + 1)
    if isinstance(event, j.EpochBegan):
        since = min(event.since, state.since) if state.doubtful else event.since  # what was in doubt still is
        return Epoch(event.epoch, event.incarnation, since, True, True, False, state.version)
    if isinstance(event, j.EpochWatched):
        return replace(state, watched=True)
    if isinstance(event, j.WindowClosed):
        return replace(state, window=False)
    if isinstance(event, j.DoubtLifted):
        return replace(state, doubtful=False, window=False)
    return state


def fold(rows: Iterable[j.Row], state: Epoch | None = None) -> Epoch:
    """The store's epoch, as its stream tells, from `state` on. Raises `ValueError` for a row that this version does not know."""
    state = state or Epoch()
    for row in rows:
        state = apply(state, row.event or j.event_of(row))
    return state

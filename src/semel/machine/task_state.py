"""What is on record of one task, and of one tenant-scoped key: each folded from its stream."""

from __future__ import annotations

from dataclasses import field

from immutables import Map

from semel.machine import foreseen, limits
from semel.machine import journal as j
from semel.machine.effect_state import Effect
from semel.machine.records import record
from semel.model import Delivery, Execution, Json


@record
class Waiting:
    """One wait on record. seq: where it began. event "": a sleep. until: milliseconds; 0: without end. over: given up."""

    seq: int
    event: str
    until: int
    over: bool = False


@record
class Task:
    """All that is on record of one task, folded from its stream. version: the seq of its last event."""

    id: str = ""
    kind: str = ""
    key: str = ""
    args: Json = None
    queue: str = ""
    priority: int = 0
    due: int = 0
    delivery: Delivery = Delivery.QUEUED
    execution: Execution = Execution.NOT_STARTED
    attempt: int = 0
    token: int = 0
    session: str = ""
    max_attempts: int = 5
    max_crashes: int = 5
    backoff_ms: int = 2000
    failures: int = 0
    crashes: int = 0
    alone: bool = False
    clean: bool = False
    suspended: str = ""
    ending: str = ""
    ending_why: str = ""  # what came since, while what was unknown was settled, is not why
    why: str = ""
    result: Json = None
    effects: Map[str, Effect] = field(default_factory=Map)
    names: Map[str, int] = field(default_factory=Map)  # by effect name: how many different ones; another generation is none
    steps: Map[str, tuple[int, Json]] = field(default_factory=Map)  # by step key: the seq and the result
    waits: Map[str, Waiting] = field(default_factory=Map)
    signals: Map[str, tuple[int, Json]] = field(default_factory=Map)  # by event: the seq and the payload
    waiting: str = ""  # the key of the wait for which it has no owner now
    bound: Map[str, str] = field(default_factory=Map)  # its identity
    watched: frozenset[str] = frozenset()  # the effects that observe as whom they are sent, said the code that bound it
    differed: j.Mismatched | None = None  # what was observed instead, if its last attempt ended so
    at_most: Map[str, int] | None = None  # by effect name: how many keys may be new since it was replayed; None: no limit
    fresh: Map[str, tuple[str, ...]] = field(default_factory=Map)  # by effect name: those that are, in their order
    ahead: Map[str, foreseen.Given] = field(default_factory=Map)  # by key: approvals of calls that are not on record yet
    batches: frozenset[str] = frozenset()  # the replays of many that it was part of
    epoch: int = 0  # of the store in which it was accepted
    doubt: bool = False  # accepted while the window of that epoch was open (R20)
    used: limits.Used = limits.NOTHING
    budget: limits.Budget = limits.UNLIMITED  # as declared where it was last claimed
    seen: int = 0  # when its attempt last put something on record
    joined: frozenset[str] = frozenset()
    submitted: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    version: int = 0
    behind: int = 0  # so many events, the last ones, changed nothing of its row (see `projection.task_row`)

    @property
    def ended(self) -> bool:
        """Whether nothing will run any more unless somebody replays it."""
        return self.delivery in (Delivery.ACKNOWLEDGED, Delivery.DEAD_LETTERED)

    def owned(self, token: int) -> bool:
        """Whether `token` is the one under which the task runs now."""
        return self.delivery is Delivery.LEASED and token == self.token


@record
class Key:
    """A tenant-scoped key, folded from its own stream (R8). token: its own counter, raised by each intent."""

    effect: Effect | None = None
    token: int = 0
    version: int = 0
    ahead: foreseen.Given = ()  # approvals that came before any call

    @property
    def owner(self) -> str:
        """The task whose submission came last."""
        return self.effect.sent[-1].task if self.effect and self.effect.sent else ""

    @property
    def unsettled(self) -> bool:
        """Whether a submission is open, its outcome unproved."""
        return bool(self.effect and self.effect.open)

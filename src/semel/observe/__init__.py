"""What semel tells whoever watches: one frozen record for each commit, handed to small integrations, one file each.

An observer is any callable that takes a `Record`. Put it into `app.observers` before the app's first use. It is called on a
thread of its own, in order; what it raises is logged, and nothing of the work waits for it. If it is too slow, records are
dropped, and the next one says how many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from semel.machine.journal import Row

__all__ = ["Claimed", "Commit", "Fenced", "Observer", "Record", "Stats", "Waiting"]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A task that an attempt at has begun. late_ms: how long it was due by then. at: milliseconds since the Unix epoch."""

    tenant: str
    task: str
    kind: str
    queue: str
    attempt: int
    token: int
    late_ms: int
    at: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction that was acknowledged to this process.

    rows: of the journal, in order, but for those of claims. claimed: what was claimed. refused: changes that did not land,
    since somebody else was faster. seconds: of the transaction. waited: seconds, from when the first of it was asked for until
    it was acknowledged. dropped: records before this one that nobody was given, since observers were too slow.
    """

    rows: tuple[Row, ...] = field(repr=False)
    claimed: tuple[Claimed, ...]
    refused: int
    seconds: float
    waited: float
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Fenced:
    """A session may start nothing more. how: watched, dead (another process fenced it), or why this process itself is.

    own: it was this process's. at: milliseconds since the Unix epoch.
    """

    session: str
    how: str
    own: bool
    at: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in a queue, of one kind. late_ms: how long the first of it has been due; 0: it is not yet."""

    queue: str
    kind: str
    waiting: int
    late_ms: int


@dataclass(frozen=True, slots=True)
class Stats:
    """The three ledgers in numbers, and what waits for whom. Times in milliseconds.

    delivery, execution, effects: how many in each state. unknown: effects whose outcome nobody knows; oldest_unknown_ms: the
    age of the oldest. dead: dead letters. approvals: tasks that wait for people to approve. at_work: attempts under way.
    sessions: living worker processes; fenced: how many ever were, by how. paused: what people have paused.
    """

    unknown: int
    oldest_unknown_ms: int
    dead: int
    approvals: int
    delivery: dict[str, int]
    execution: dict[str, int]
    effects: dict[str, int]
    at_work: int
    sessions: int
    fenced: dict[str, int]
    paused: tuple[str, ...]
    waiting: tuple[Waiting, ...]


Record = Commit | Fenced
Observer = Callable[[Record], None]

"""The events of the store itself, and those that may stand in any stream."""

from __future__ import annotations

from typing import ClassVar

from semel.machine.happened import Happened
from semel.machine.records import record
from semel.model import Json

__all__ = [
    "Declared", "DoubtLifted", "EpochBegan", "EpochWatched", "Paused", "Pruned", "Resumed", "Void", "WindowClosed",
]  # fmt: skip


@record
class EpochBegan(Happened):
    """The store went back (R20). before: the epoch until now. since: the highest time that it still holds, milliseconds."""

    kind: ClassVar[str] = "epoch_began"
    epoch: int
    incarnation: str
    before: int
    since: int
    why: str = ""


@record
class EpochWatched(Happened):
    """The largest permitted TTL has been watched since it began: no session of before can act any more."""

    kind: ClassVar[str] = "epoch_watched"
    epoch: int


@record
class WindowClosed(Happened):
    """A person says: what the store has forgotten has been enqueued again; a task that comes from now on is new."""

    kind: ClassVar[str] = "window_closed"
    epoch: int
    why: str = ""


@record
class DoubtLifted(Happened):
    """A person says: nothing that the store has forgotten is still to be looked for."""

    kind: ClassVar[str] = "doubt_lifted"
    epoch: int
    why: str = ""


@record
class Paused(Happened):
    """A person tells workers to claim nothing of it. what: all, queue, kind."""

    kind: ClassVar[str] = "paused"
    what: str
    name: str = ""
    why: str = ""


@record
class Resumed(Happened):
    """A person lets workers claim it again."""

    kind: ClassVar[str] = "resumed"
    what: str
    name: str = ""
    why: str = ""


@record
class Declared(Happened):
    """The code of a worker that starts, if it differs from that of the last one (R22). kinds, effects: by name, what identifies
    them. accepted: a person lets it go on with what does not fit it."""

    kind: ClassVar[str] = "declared"
    digest: str
    kinds: Json
    effects: Json
    accepted: bool = False
    reason: str = ""


@record
class Void(Happened):
    """Takes a seq whose change must never land (R7)."""

    kind: ClassVar[str] = "void"


@record
class Pruned(Happened):
    """The rows before this one were exported and taken away, by whom the row names; this is what is remembered (R22).

    rows: how many were. hash: of the last of them, hexadecimal. task, shared: the state of the task, or of the key.
    """

    kind: ClassVar[str] = "pruned"
    rows: int
    hash: str
    reason: str = ""
    task: Json = None
    shared: Json = None


EVENTS: tuple[type[Happened], ...] = (
    EpochBegan, EpochWatched, WindowClosed, DoubtLifted, Paused, Resumed, Declared, Void, Pruned,
)  # fmt: skip

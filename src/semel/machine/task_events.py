"""The events of tasks: in the stream of each."""

from __future__ import annotations

from typing import ClassVar

from semel.machine.happened import Happened
from semel.machine.records import record
from semel.model import Json

__all__ = [
    "Blocked", "Bound", "Cancelled", "Claimed", "DeadLettered", "Ending", "Enqueued", "Failed", "Finished", "GaveUp", "Joined",
    "LeaseLost", "Mismatched", "Parked", "Purged", "Replayed", "Signalled", "Spent", "Stepped", "Suspended", "Unblocked",
    "Waits",
]  # fmt: skip


@record
class Enqueued(Happened):
    kind: ClassVar[str] = "enqueued"
    task: str
    name: str
    key: str
    args: Json
    queue: str = "default"
    priority: int = 0
    due: int = 0
    epoch: int = 0  # of the store in which it was accepted; 0: the first
    doubt: bool = False  # accepted while the window of that epoch was open (R20)


@record
class Claimed(Happened):
    kind: ClassVar[str] = "claimed"
    attempt: int
    token: int
    session: str
    max_attempts: int = 5
    max_crashes: int = 5
    backoff_ms: int = 2000
    max_usd: str = ""  # exact decimal text; "": no limit
    max_tokens: int | None = None
    max_ms: int | None = None


@record
class Stepped(Happened):
    kind: ClassVar[str] = "stepped"
    key: str
    name: str
    result: Json = None


@record
class Spent(Happened):
    """What the code of an attempt says that it has spent, when it ran and whoever owns the task now. usd: exact decimal text."""

    kind: ClassVar[str] = "spent"
    attempt: int
    usd: str = "0"
    tokens: int = 0


@record
class Joined(Happened):
    """The task depends on a tenant-scoped key, which has a stream of its own."""

    kind: ClassVar[str] = "joined"
    key: str
    name: str = ""
    generation: int = 0


@record
class Suspended(Happened):
    """This attempt may start nothing more, whatever its code does with the exception (R11)."""

    kind: ClassVar[str] = "suspended"
    why: str
    key: str = ""


@record
class Parked(Happened):
    """The attempt ended unfinished, without fault: given back."""

    kind: ClassVar[str] = "parked"
    why: str
    due: int = 0
    key: str = ""  # of the wait for which it was
    ran: int = 0  # for how long the attempt held the task, milliseconds; so of the other ends


@record
class Finished(Happened):
    kind: ClassVar[str] = "finished"
    result: Json = None
    ran: int = 0


@record
class Failed(Happened):
    kind: ClassVar[str] = "failed"
    error: str
    due: int = 0
    ran: int = 0


@record
class LeaseLost(Happened):
    kind: ClassVar[str] = "lease_lost"
    session: str
    proof: str
    due: int = 0


@record
class Blocked(Happened):
    kind: ClassVar[str] = "blocked"
    why: str
    key: str = ""
    ran: int = 0


@record
class Unblocked(Happened):
    kind: ClassVar[str] = "unblocked"
    why: str = ""
    due: int = 0


@record
class Ending(Happened):
    """The task must end so, as soon as nothing of it is unknown: a reconcile-only attempt comes first."""

    kind: ClassVar[str] = "ending"
    how: str
    why: str = ""
    due: int = 0


@record
class Cancelled(Happened):
    kind: ClassVar[str] = "cancelled"
    why: str = ""


@record
class DeadLettered(Happened):
    kind: ClassVar[str] = "dead_lettered"
    why: str = ""
    ran: int = 0


@record
class Replayed(Happened):
    """at_most: by effect name, how many keys that are not on record by now may be sent after it; None: no such limit.

    batch: of which replay of many it is part.
    """

    kind: ClassVar[str] = "replayed"
    why: str = ""
    from_step: str = ""
    due: int = 0
    at_most: Json = None
    batch: str = ""


@record
class Purged(Happened):
    """Nobody will look after this dead letter any more. Its record stays, and so do its keys."""

    kind: ClassVar[str] = "purged"
    why: str = ""


@record
class Waits(Happened):
    """A wait begins, for `event` ("": only for time to pass). until: milliseconds since the Unix epoch; 0: without end."""

    kind: ClassVar[str] = "waits"
    key: str
    event: str = ""
    until: int = 0


@record
class GaveUp(Happened):
    """What a wait was for did not come in time."""

    kind: ClassVar[str] = "gave_up"
    key: str


@record
class Signalled(Happened):
    """Somebody outside says that `event` has happened. The first of a name counts; there is no second."""

    kind: ClassVar[str] = "signalled"
    event: str
    payload: Json = None


@record
class Bound(Happened):
    """As whom, and where, the task acts: names and values, added to those before. by: the person who gave them other values.
    watched: the effects that the code which binds them declares with identity=; none is sent without it any more (R22)."""

    kind: ClassVar[str] = "bound"
    identity: Json
    by: str = ""
    watched: tuple[str, ...] = ()


@record
class Mismatched(Happened):
    """Something else was observed than what is bound, or (None) nothing: this attempt may start nothing more."""

    kind: ClassVar[str] = "mismatched"
    why: str
    key: str = ""
    name: str = ""
    observed: Json = None


EVENTS: tuple[type[Happened], ...] = (
    Enqueued, Claimed, Stepped, Spent, Joined, Suspended, Parked, Finished, Failed, LeaseLost, Blocked, Unblocked, Ending,
    Cancelled, DeadLettered, Replayed, Purged, Waits, GaveUp, Signalled, Bound, Mismatched,
)  # fmt: skip

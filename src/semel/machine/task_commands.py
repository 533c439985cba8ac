"""What may be asked of the machine about one task. `tasks.decide` answers."""

from __future__ import annotations

from semel.machine.commands import Names
from semel.machine.limits import UNLIMITED, Budget
from semel.machine.records import record
from semel.model import Json


@record
class Claim:
    """direct: by its id, in the caller's own process, which may enter a task again that ended cleanly. epoch: the store's."""

    session: str
    epoch: int
    at: int
    max_attempts: int = 5
    max_crashes: int = 5
    backoff_ms: int = 2000
    direct: bool = False
    budget: Budget = UNLIMITED


@record
class Finish:
    """ran: for how long the attempt held the task, in milliseconds; so in the other ends of an attempt."""

    token: int
    result: Json = None
    ran: int = 0


@record
class Fail:
    """jitter: 0 to 1, from the caller, since the machine knows no chance. fatal: no further attempt can do better."""

    token: int
    error: str
    at: int
    jitter: float = 0.0
    fatal: bool = False
    ran: int = 0


@record
class Park:
    token: int
    why: str
    due: int
    ran: int = 0


@record
class Suspend:
    token: int
    why: str
    key: str = ""


@record
class Block:
    token: int
    why: str
    key: str = ""
    approval: bool = False  # it waits for people to approve `key`
    ran: int = 0


@record
class Spend:
    """What the attempt's code has spent. usd: exact decimal text. An older token says so too: it was spent all the same."""

    token: int
    attempt: int
    usd: str
    tokens: int


@record
class Exceed:
    """The attempt ends because a limit of its task is exceeded; so does the task."""

    token: int
    at: int
    ran: int = 0


@record
class Unblock:
    why: str
    at: int


@record
class Conclude:
    """The end that was put off until nothing is unknown."""

    token: int


@record
class LoseLease:
    """proof: "watched" (its beat stood still for a TTL), "dead" (its process is gone), "left" (it said so itself)."""

    session: str
    proof: str
    at: int


@record
class Step:
    token: int
    key: str
    name: str
    result: Json


@record
class Join:
    """The task depends on a tenant-scoped key that another task has in hand."""

    token: int
    key: str
    name: str
    generation: int = 0


@record
class Decline:
    token: int
    key: str
    name: str
    code: str
    args: Json


@record
class Cancel:
    why: str
    at: int


@record
class Replay:
    """at_most: by effect name, how many keys that are not on record may be sent after it; None: no such limit.

    seen: the version that was looked at (0: not said); then only that, and only a dead letter, is replayed. known: the caller
    knows of a step of that name, which the task may not have come to yet. batch: of which replay of many it is part.

    identity: names that are bound, and the values that they have from now on, says the person `by`.
    """

    why: str
    at: int
    from_step: str = ""
    at_most: dict[str, int] | None = None
    seen: int = 0
    known: bool = False
    batch: str = ""
    identity: Names = ()
    by: str = ""


@record
class Purge:
    """A person gives up a dead letter for good. seen: as in `Replay`."""

    why: str
    seen: int = 0


@record
class Bind:
    """The task acts as this from now on, and in each later attempt. watched: effects that the code declares with identity=."""

    token: int
    identity: Names
    watched: tuple[str, ...] = ()


@record
class Mismatch:
    """Not as what is bound: for effect `name` (`key`) something else was observed, or nothing (None)."""

    token: int
    why: str
    key: str = ""
    name: str = ""
    observed: Names | None = None


@record
class Wait:
    """The attempt ends, and the task goes on at `until` (milliseconds; 0: never by itself) or when `event` is signalled.

    key: of this wait in the task. event "": it only sleeps.
    """

    token: int
    key: str
    event: str
    until: int
    at: int
    ran: int = 0


@record
class GiveUp:
    """What was waited for did not come in time: on record, so that a replay takes the same way."""

    token: int
    key: str
    event: str
    until: int


@record
class Prune:
    """Take away the rows so far, which are exported: so many, the last with this hash. dead: even of a dead letter (R22)."""

    rows: int
    hash: str
    reason: str = ""
    dead: bool = False


@record
class Signal:
    """`event` has happened, says somebody outside. Only the first of a name counts."""

    event: str
    payload: Json
    at: int

"""The events that a journal tells of.

Events of effects stand in their task's stream; those of tenant-scoped keys in a stream of the key's own (R8).
"""

from __future__ import annotations

from typing import ClassVar

from semel.machine.records import record
from semel.model import Json

__all__ = [
    "Answered",
    "Approved",
    "Asked",
    "Assumed",
    "Blocked",
    "Bound",
    "Cancelled",
    "Claimed",
    "Confirmed",
    "DeadLettered",
    "Declared",
    "Declined",
    "Denied",
    "Disproved",
    "DoubtLifted",
    "Drifted",
    "Ending",
    "Enqueued",
    "EpochBegan",
    "EpochWatched",
    "Failed",
    "Finished",
    "Found",
    "GaveUp",
    "Happened",
    "Intended",
    "Joined",
    "Late",
    "LeaseLost",
    "Lost",
    "Mismatched",
    "OfEffect",
    "Parked",
    "Paused",
    "Pruned",
    "Purged",
    "Renewed",
    "Replayed",
    "Resumed",
    "Reversed",
    "SenderGone",
    "Signalled",
    "Spent",
    "Stepped",
    "Suspended",
    "Unblocked",
    "Unfenced",
    "Void",
    "Waits",
    "Watched",
    "WindowClosed",
    "KINDS",
]


@record
class Happened:
    """The root of all events."""

    kind: ClassVar[str] = ""


# --- of tasks -------------------------------------------------------------------------------------------------------


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


# --- of effects -----------------------------------------------------------------------------------------------------


@record
class OfEffect(Happened):
    """The root of the events of one effect."""

    key: str


@record
class Intended(OfEffect):
    """A submission is opened. args: recorded with the first one, and whenever a clean effect is called in other words."""

    kind: ClassVar[str] = "intended"
    n: int
    name: str
    task: str
    attempt: int
    token: int
    session: str
    args: Json = None
    digest: str = ""
    material: str = ""
    occurrence: str = ""
    generation: int = 0
    recovery: tuple[str, ...] = ()
    timeout_ms: int = 0
    unfenced: str = ""
    again: bool = False
    observed: Json = None  # the identity, if the effect observes it


@record
class Assumed(OfEffect):
    """A submission that a store which went back may have forgotten (R20): taken for one that was sent and lost.

    since: milliseconds since the Unix epoch; it cannot have been sent before.
    """

    kind: ClassVar[str] = "assumed"
    n: int
    name: str
    task: str
    attempt: int
    token: int
    since: int
    args: Json = None
    digest: str = ""
    material: str = ""
    occurrence: str = ""
    generation: int = 0
    recovery: tuple[str, ...] = ()
    unfenced: str = ""


@record
class Confirmed(OfEffect):
    kind: ClassVar[str] = "confirmed"
    n: int
    result: Json = None
    unrecorded: str = ""
    how: str = "returned"


@record
class Disproved(OfEffect):
    kind: ClassVar[str] = "disproved"
    n: int
    reason: str
    final: bool = False
    detail: Json = None


@record
class Lost(OfEffect):
    kind: ClassVar[str] = "lost"
    n: int
    why: str
    ended: bool = False
    fenced: bool = False
    dead: bool = False


@record
class Late(OfEffect):
    """An outcome from a token that is no longer current, or of a closed submission: evidence, never an overwrite (R2)."""

    kind: ClassVar[str] = "late"
    n: int
    outcome: str  # returned, not_done, raised
    result: Json = None
    reason: str = ""


@record
class Unfenced(OfEffect):
    """Nothing can stop what this submission started (a child, a fork): its not_found needs a person's word (R4)."""

    kind: ClassVar[str] = "unfenced"
    n: int
    why: str


@record
class SenderGone(OfEffect):
    """The session that sent an open submission is fenced; `dead`: its process is proved to be gone."""

    kind: ClassVar[str] = "sender_gone"
    n: int
    dead: bool = False


@record
class Found(OfEffect):
    """A verdict on an unknown effect, and where it comes from: evidence, a lookup, a person."""

    kind: ClassVar[str] = "found"
    verdict: str  # confirmed, not_found, conflict, unavailable
    how: str
    result: Json = None
    reason: str = ""
    final: bool = False
    observed: Json = None  # as whom a lookup asked


@record
class Answered(OfEffect):
    """A person says not_found: believed if it stands after a `Watched` (R4). stopped: they say the process has stopped."""

    kind: ClassVar[str] = "answered"
    reason: str = ""
    stopped: bool = False


@record
class Watched(OfEffect):
    """Settle is over, and no sender can act any more: what is found or answered from here on counts (R4).

    through: of the submissions up to this one. A person's not_found that came before does not count: they may have looked
    too early.
    """

    kind: ClassVar[str] = "watched"
    through: int


@record
class Asked(OfEffect):
    """The call is on record, and is sent only when so many people have approved it (R21).

    args: with the first such event of an effect; later ones say that another task asks too, or that approvals are void.
    now: by which time it was judged which approvals still count; it may be ahead of the row's (R13).
    """

    kind: ClassVar[str] = "asked"
    name: str
    task: str
    attempt: int
    approvers: int = 1
    args: Json = None
    digest: str = ""
    material: str = ""
    occurrence: str = ""
    generation: int = 0
    recovery: tuple[str, ...] = ()
    intent: tuple[str, ...] = ()
    now: int = 0


@record
class Approved(OfEffect):
    """A person lets the recorded call be sent. digest: of all its arguments. args: what is sent instead, if they edited it.

    expires: when it is void, milliseconds since the Unix epoch; 0: never. now: as in `Asked`, of the approvals before it.
    name: of the effect, if its call is not on record yet; then args are what is approved. early: it came before the call.
    """

    kind: ClassVar[str] = "approved"
    by: str
    digest: str
    reason: str = ""
    args: Json = None
    expires: int = 0
    now: int = 0
    name: str = ""
    early: bool = False


@record
class Denied(OfEffect):
    """A person says that the call is not to be sent; approvals that were given are void."""

    kind: ClassVar[str] = "denied"
    by: str
    reason: str = ""


@record
class Reversed(OfEffect):
    """A person takes back the verdict of a person, which stands at `seq` of this stream and stays there.

    reopens: the submissions that it had closed; their outcome is unknown again.
    """

    kind: ClassVar[str] = "reversed"
    by: str
    seq: int
    verdict: str  # confirmed, not_found
    reason: str = ""
    reopens: tuple[int, ...] = ()


@record
class Renewed(OfEffect):
    """A person opens the next generation of a provably clean effect: its next call has a key of its own (R9)."""

    kind: ClassVar[str] = "renewed"
    by: str
    generation: int
    reason: str = ""


@record
class Drifted(OfEffect):
    """The same intent in other words: what was recorded was given (R9), or, approved by a person, was sent (R21)."""

    kind: ClassVar[str] = "drifted"
    args: Json
    digest: str
    attempt: int


@record
class Declined(OfEffect):
    """A call that the machine refused and that the agent was told of."""

    kind: ClassVar[str] = "declined"
    code: str
    name: str
    args: Json = None
    attempt: int = 0


# --- of the store itself --------------------------------------------------------------------------------------------


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


KINDS: dict[str, type[Happened]] = {
    cls.kind: cls
    for cls in (
        Enqueued, Claimed, Stepped, Spent, Joined, Suspended, Parked, Finished, Failed, LeaseLost, Blocked, Unblocked, Ending,
        Cancelled, DeadLettered, Replayed, Purged, Bound, Mismatched, Waits, GaveUp, Signalled, Intended, Confirmed, Disproved,
        Lost, Late, Unfenced, SenderGone, Found, Answered, Watched, Asked, Approved, Denied, Reversed, Renewed, Drifted,
        Declined, Assumed, EpochBegan, EpochWatched, WindowClosed, DoubtLifted, Paused, Resumed, Declared, Void, Pruned,
    )
}  # fmt: skip

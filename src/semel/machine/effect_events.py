"""The events of effects: in their task's stream; those of tenant-scoped keys in a stream of the key's own (R8)."""

from __future__ import annotations

from typing import ClassVar

from semel.machine.happened import Happened
from semel.machine.records import record
from semel.model import Json

__all__ = [
    "Answered", "Approved", "Asked", "Assumed", "Confirmed", "Declined", "Denied", "Disproved", "Drifted", "Found", "Intended",
    "Late", "Lost", "OfEffect", "Renewed", "Reversed", "SenderGone", "Unfenced", "Watched",
]  # fmt: skip


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


EVENTS: tuple[type[Happened], ...] = (
    Intended, Assumed, Confirmed, Disproved, Lost, Late, Unfenced, SenderGone, Found, Answered, Watched, Asked, Approved,
    Denied, Reversed, Renewed, Drifted, Declined,
)  # fmt: skip

"""What may be asked of the machine about one effect. `effects.decide` answers."""

from __future__ import annotations

from semel.machine.records import record
from semel.model import Json

RETURNED = "returned"
Names = tuple[tuple[str, str], ...]


@record
class Observed:
    """What an effect's `identity=` function saw just before. identity: names and values; None: it saw nothing. why: why not."""

    identity: Names | None = None
    why: str = "it was not looked at"


PENDING = Observed()  # it is looked at when the machine says that all else permits the call to be sent


@record
class Doubt:
    """The store went back and began `epoch`; whatever was sent after `since` (milliseconds) it may have forgotten (R20).

    unfenced: by a process that nothing could stop, for all that is known (R4).
    """

    epoch: int
    since: int
    unfenced: bool = False


@record
class Intend:
    """Open a submission of a key. said: the wording that this attempt has already used for it, if any (R9).

    doubt: there may be submissions of it of which the store knows nothing; then the first is assumed, not opened (R20).
    approvers: so many people must approve it first (R21); intent: the arguments that they cannot edit. at: now, in ms.
    observed: as whom it would be sent, if the effect observes an identity.
    """

    key: str
    name: str
    args: Json
    digest: str
    material: str
    task: str
    attempt: int
    token: int
    session: str
    occurrence: str = ""
    generation: int = 0
    recovery: tuple[str, ...] = ()
    timeout_ms: int = 0
    unfenced: str = ""
    again: bool = False
    said: str | None = None
    limit: int | None = None
    per_task: int | None = None
    doubt: Doubt | None = None
    approvers: int = 0
    intent: tuple[str, ...] = ()
    at: int = 0
    observed: Observed | None = None


@record
class Confirm:
    key: str
    n: int
    token: int
    result: Json = None
    unrecorded: str = ""
    how: str = RETURNED
    sender: tuple[str, int] | None = None  # the task and attempt whose submission it is: two rivals may mean one token (R8)


@record
class Disprove:
    key: str
    n: int
    token: int
    reason: str
    final: bool = False
    detail: Json = None
    sender: tuple[str, int] | None = None


@record
class Lose:
    key: str
    n: int
    token: int
    why: str
    ended: bool
    sender: tuple[str, int] | None = None


@record
class MarkUnfenced:
    key: str
    n: int
    token: int
    why: str


@record
class NoteSenderGone:
    """The engine read that `session` is fenced; dead: with proof of its process's death."""

    key: str
    session: str
    dead: bool


@record
class Settle:
    """A verdict by evidence or lookup. waited_ms: how long the asking process has known every sender to be quiet.

    seen: how many submissions there were when it was asked (0: not said); a not_found says nothing of later ones.
    settled: for submissions up to which settle was on record as over when it was asked: what lands later says nothing of then.
    observed: as whom it was asked, if the effect observes an identity.
    """

    key: str
    token: int
    verdict: str
    how: str
    result: Json = None
    reason: str = ""
    waited_ms: int = -1
    settle_ms: int = 0
    seen: int = 0
    observed: Observed | None = None
    settled: int = 0


@record
class NoteWatched:
    """The engine has watched settle pass, with every sender quiet (R4). waited_ms: as in `Settle`. seen: submissions so far."""

    key: str
    seen: int
    waited_ms: int
    settle_ms: int


@record
class Answer:
    """A person's verdict. seen: the version of the effect that they looked at (R21)."""

    key: str
    verdict: str
    by: str
    seen: int
    result: Json = None
    reason: str = ""
    stopped: bool = False


@record
class Approve:
    """A person lets the recorded call be sent (R21). seen: the version that they looked at. at: now, in milliseconds.

    args, digest: what is to be sent instead, if they edited it. expires: when the approval is void, in ms; 0: never.
    ahead: the effect's name, of a call that may not be on record yet; args and digest are the call, and `seen` is not looked at.
    """

    key: str
    by: str
    seen: int
    at: int
    reason: str = ""
    args: Json = None
    digest: str = ""
    expires: int = 0
    ahead: str = ""


@record
class Deny:
    """A person says that the call is not to be sent, or takes back an approval that was not used. ahead: as in `Approve`."""

    key: str
    by: str
    seen: int
    reason: str = ""
    ahead: str = ""


@record
class Renew:
    """A person opens the next generation of an effect that is provably clean (R9). seen: the version that they looked at."""

    key: str
    by: str
    seen: int
    reason: str = ""


@record
class Reverse:
    """A person takes back the last verdict of a person. seen: the version that they looked at. at: now, in milliseconds."""

    key: str
    by: str
    seen: int
    at: int
    reason: str = ""


@record
class Credit:
    """Reconciliation reads late evidence first: believe what came in late about submission `n`, of that submission (R1)."""

    key: str
    n: int
    token: int


@record
class Void:
    """Rule out submission `n` of an `Atomic` effect: its confirm is not on record, and from now on cannot be (R7).

    token: of the attempt that asks. sender: its task and attempt, if it is its own submission, whose COMMIT was not answered.
    """

    key: str
    n: int
    token: int
    sender: tuple[str, int] | None = None


EffectCommand = (
    Intend | Confirm | Disprove | Lose | MarkUnfenced | NoteSenderGone | Settle | Credit | Answer | Approve | Deny | Reverse
    | Renew | Void | NoteWatched
)  # fmt: skip

"""What is on record of one key, and what its task says about who calls: all that a decision about an effect rests on."""

from __future__ import annotations

from semel.machine import journal as j
from semel.machine import reversal
from semel.machine.commands import RETURNED, Names
from semel.machine.records import record
from semel.model import EffectState, Json

ATOMIC = "atomic"  # the rung of an effect that writes in the ledger's own database


@record
class Sent:
    """One submission on record. open: its outcome is not proved. lost: nobody waits for it any more.

    What may be said of its sender: ended (its code returned or raised), fenced (its session is fenced, and the kernel
    kills what is not), dead (its process is proved to be gone). unfenced: "" | "process" | "child" (R4). assumed: nobody
    remembers it; the store went back, and may have forgotten it (R20). observed: as whom it was sent.
    """

    n: int
    task: str
    attempt: int
    token: int
    session: str
    at: int
    open: bool = True
    lost: bool = False
    ended: bool = False
    fenced: bool = False
    dead: bool = False
    unfenced: str = ""
    assumed: bool = False
    observed: Names = ()

    @property
    def quiet(self) -> bool:
        """Whether its sender can act no more."""
        if self.ended and self.unfenced != "child":  # else its code has ended, and what it made acts on
            return True
        return self.unfenced != "child" and (self.dead or (self.fenced and not self.unfenced))

    @property
    def beyond_proof(self) -> bool:
        """Whether only a person's word can quiet it: no waiting teaches more."""
        return bool(self.unfenced) and (self.ended or self.fenced) and not self.quiet


@record
class Evidence:
    """What came in when it could no longer decide anything by itself (R2)."""

    n: int
    outcome: str
    result: Json
    reason: str
    at: int


@record
class Effect:
    """All that is on record of one key. clean_since: when it was first sent since it was last provably clean (R1).

    asked: the call as it was asked for, if people must approve it; asked_at: since when it waits; askers: the tasks that
    wait for it; args, digest: what is sent, which they may have edited (R21); word: the verdict that a person may take back;
    renewed: what opened its next generation. settled: settle is known to be over for submissions up to this one.
    """

    key: str
    name: str
    args: Json
    digest: str
    material: str
    occurrence: str
    generation: int
    recovery: tuple[str, ...]
    sent: tuple[Sent, ...] = ()
    clean_since: int = 0
    confirmed: bool = False
    result: Json = None
    unrecorded: str = ""
    declined: j.Disproved | None = None
    evidence: tuple[Evidence, ...] = ()
    answered: j.Answered | None = None
    conflict: str = ""
    barred: str = ""
    unavailable: int = 0
    unavailable_since: int = 0
    lost_at: int = 0
    asked: j.Asked | None = None
    asked_at: int = 0
    askers: frozenset[str] = frozenset()
    approvals: tuple[j.Approved, ...] = ()
    denied: j.Denied | None = None
    word: reversal.Word | None = None
    renewed: j.Renewed | None = None
    version: int = 0
    settled: int = 0

    @property
    def task(self) -> str:
        """The task that sent it last, or, if it was never sent, that asked for it last."""
        return self.sent[-1].task if self.sent else self.asked.task if self.asked else ""

    @property
    def waiting(self) -> bool:
        """Whether it waits for people to approve or deny it (R21)."""
        if self.asked is None or self.denied is not None or self.declined is not None or self.told is not None or self.renewed:
            return False
        return self.state is EffectState.NOT_ATTEMPTED and len(self.approvals) < self.asked.approvers

    def worded(self, digest: str) -> bool:
        """Whether a call in these words is the recorded one: as it was asked for, or as it was edited and sent."""
        return digest == self.digest or (self.asked is not None and digest == self.asked.digest)

    @property
    def open(self) -> tuple[Sent, ...]:
        """The submissions whose outcome is not proved."""
        return tuple([s for s in self.sent if s.open])

    @property
    def state(self) -> EffectState:
        """The state, read off the submissions."""
        if self.confirmed:
            return EffectState.CONFIRMED
        state = EffectState.NOT_ATTEMPTED
        for s in self.sent:
            if s.open and not s.lost:
                return EffectState.SUBMITTED
            if s.open:
                state = EffectState.AMBIGUOUS
        return state

    @property
    def unknown(self) -> bool:
        """Whether an earlier submission's outcome is unknown, even while a further one is in flight (R1)."""
        return any(s.lost for s in self.open)

    @property
    def quiet(self) -> bool:
        """Whether no sender of an open submission can act any more."""
        return all(s.quiet for s in self.open)

    @property
    def watched(self) -> bool:
        """Whether the record says that settle is over for all that is open: nothing of it can act any more (R4)."""
        return all(s.n <= self.settled for s in self.open)

    @property
    def unfenced(self) -> bool:
        """Whether a person's not_found needs their word that a process has stopped (R4)."""
        return any(s.unfenced and not s.quiet and s.n > self.settled for s in self.open)

    @property
    def atomic(self) -> bool:
        """Whether what is open of it was sent in the transaction of its confirm: then the journal says what happened."""
        return self.recovery[:1] == (ATOMIC,)

    @property
    def told(self) -> Evidence | None:
        """Late evidence that it happened. True of the key for ever, even if what it speaks of was closed by a not_found."""
        return next((found for found in self.evidence if found.outcome == RETURNED), None)

    def submission(self, n: int) -> Sent | None:
        """Submission `n`, counted from 1."""
        return self.sent[n - 1] if 0 < n <= len(self.sent) else None


@record
class Standing:
    """What the rest of the task says about the caller.

    current: its token is the task's, and the task is leased. suspended: why this attempt may start nothing.
    unknown: a key, other than this one, whose outcome is unknown. used, used_here: different effects so far, in all and
    of this name. clean: the work before this attempt ended cleanly (R9). cancelled: a person cancelled the task. over: which
    limit of the task is exceeded. new: the key is not one of the task's yet, though other tasks may have it (R8). bound: the
    task's identity. beyond: why the key may not be sent after the replay that the task is in (R23). ahead: approvals that
    came before the call.
    """

    current: bool = True
    suspended: str = ""
    unknown: str = ""
    used: int = 0
    used_here: int = 0
    clean: bool = False
    cancelled: bool = False
    over: str = ""
    new: bool = False
    bound: Names = ()
    beyond: str = ""
    ahead: tuple[j.Approved, ...] = ()


@record
class Decision:
    """What is to be appended; and, for a key that is already decided, the effect whose record is the answer."""

    events: tuple[j.Happened, ...] = ()
    recorded: Effect | None = None

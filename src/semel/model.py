"""The nouns. States are StrEnums, values are frozen, and nothing here does anything but hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, TypeVar

from semel.errors import Misuse

if TYPE_CHECKING:
    pass

T = TypeVar("T")
Json = Any  # what json.loads gives: None, bool, int, float, str, list, dict


class Delivery(StrEnum):
    """Who has the task?"""

    QUEUED = "queued"
    LEASED = "leased"
    BLOCKED = "blocked"
    ACKNOWLEDGED = "acknowledged"
    DEAD_LETTERED = "dead_lettered"


class Execution(StrEnum):
    """What do we know of the work?"""

    NOT_STARTED = "not_started"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"


class EffectState(StrEnum):
    """What can we prove about the world? There is no "failed": proof that nothing happened is not_attempted."""

    NOT_ATTEMPTED = "not_attempted"
    SUBMITTED = "submitted"
    CONFIRMED = "confirmed"
    AMBIGUOUS = "ambiguous"


class Code(StrEnum):
    """The named refusals, in their order of precedence (R3): the first that holds is the answer."""

    STALE_TOKEN = "stale_token"  # noqa: S105 - not a password
    FENCED = "fenced"
    TENANT_MISMATCH = "tenant_mismatch"
    IDENTITY_MISMATCH = "identity_mismatch"
    UNKNOWN_OUTSTANDING = "unknown_outstanding"
    IN_FLIGHT = "in_flight"
    INTENT_CHANGED = "intent_changed"
    ALREADY_DONE = "already_done"
    LIMIT_REACHED = "limit_reached"
    APPROVAL_REQUIRED = "approval_required"
    DENIED = "denied"
    CANCELLED = "cancelled"
    STALE_VIEW = "stale_view"


READABLE = frozenset({Code.ALREADY_DONE, Code.INTENT_CHANGED, Code.LIMIT_REACHED, Code.DENIED})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A decision that says no, by name. `result` is the recorded result of already_done."""

    code: Code
    message: str
    result: Json = None


# Verdicts: what a lookup, or a person, says of an effect whose outcome is unknown.


@dataclass(frozen=True, slots=True)
class Confirmed:
    """It happened; `result` is recorded as the effect's result (data, as the effect's return annotation)."""

    result: object


@dataclass(frozen=True, slots=True)
class NotFound:
    """It was looked for, where it would be, and is not there."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Something is there that is not ours: a person must look."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The provider cannot say now; asked again after `retry_after`, else with backoff."""

    reason: str
    retry_after: timedelta | None = field(default=None, kw_only=True)


Verdict = Confirmed | NotFound | Conflict | Unavailable


class Submission:
    """One try at an effect's external call, as the effect's function sees it.

    key: send it to the provider. token: the fencing number, only rises. seconds_left: seconds until this submission's
    timeout; read it again before each request and hand it to the client as its timeout. connection: with `Atomic()` only.
    """

    __slots__ = ("_deadline", "_now", "attempt", "connection", "key", "number", "task_id", "tenant", "token")

    def __init__(
        self,
        *,
        key: str,
        token: int,
        tenant: str,
        task_id: str,
        attempt: int,
        number: int,
        deadline: float,
        now: Callable[[], float],
    ) -> None:
        self.key = key
        self.token = token
        self.tenant = tenant
        self.task_id = task_id
        self.attempt = attempt
        self.number = number
        self.connection: Any = None
        self._deadline = deadline
        self._now = now

    @property
    def seconds_left(self) -> float:
        """Seconds until the timeout of this submission; never below zero."""
        return max(0.0, self._deadline - self._now())

    def __repr__(self) -> str:
        return f"Submission(key={self.key!r}, token={self.token}, task_id={self.task_id!r}, attempt={self.attempt})"


# Recoveries: an effect's declared way out of the unknown. The order in the list is the ladder; a person is its end.


class Recovery:
    """An effect's declared way out of the unknown."""


def _not_negative(name: str, value: timedelta) -> None:
    if not isinstance(value, timedelta):
        raise Misuse(f"{name} must be a datetime.timedelta, not {value!r}; write {name}=timedelta(seconds=30)")
    if value < timedelta(0):
        raise Misuse(f"{name} is negative ({value}); write a duration of zero or more")


class Ask(Recovery):
    """A person decides, with the evidence on the screen. The default, and the end of every ladder.

    settle: how long after the sender is known to be gone a person's not_found is believed (default 5 minutes).
    """

    def __init__(self, *, settle: timedelta = timedelta(minutes=5)) -> None:
        _not_negative("settle", settle)
        self.settle = settle


class Atomic(Recovery):
    """The effect writes in the ledger's own database, in the transaction that confirms it."""


class Repeat(Recovery):
    """A duplicate is a shrug: run it again. At least once, by choice."""


class Resend(Recovery):
    """Send the recorded call again, byte for byte, with the same key.

    within: how long the provider remembers the key. None: a conditional write (create-only, expected version), for ever.
    """

    def __init__(self, *, within: timedelta | None) -> None:
        if within is not None:
            _not_negative("within", within)
            if within == timedelta(0):
                raise Misuse("Resend(within=0) can never be used; leave it out, or write how long the provider remembers")
        self.within = within


class Lookup(Recovery):
    """Ask the provider by key or marker.

    fn(submission, ...) names any of the effect's parameters and returns a Verdict. settle has no default: the longest
    time in which provider, proxies and queues may act on a request whose sender is gone, plus the lookup's lag.
    """

    def __init__(self, fn: Callable[Concatenate[Submission, ...], Verdict | Awaitable[Verdict]], *, settle: timedelta) -> None:
        if not callable(fn):
            raise Misuse(f"Lookup takes a function, not {fn!r}; write Lookup(find_it, settle=timedelta(seconds=30))")
        _not_negative("settle", settle)
        self.fn = fn
        self.settle = settle


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a task is tried. Failures (its own exceptions) and crashes (its worker died) are counted apart.

    backoff: the first wait after a failure; doubled each time, up to 1 hour.
    """

    max_attempts: int = field(default=5, kw_only=True)
    max_crashes: int = field(default=5, kw_only=True)
    backoff: timedelta = field(default=timedelta(seconds=2), kw_only=True)

    def __post_init__(self) -> None:
        for name in ("max_attempts", "max_crashes"):
            if getattr(self, name) < 1:
                raise Misuse(f"Retry({name}={getattr(self, name)}) never runs the task; write 1 or more")
        _not_negative("backoff", self.backoff)


MOST_USD_DIGITS, MOST_USD_PLACES = 15, 18
MOST_TOKENS = 1 << 53


def exact_usd(value: object, what: str) -> Decimal:
    """An amount of money, exact. Raises `Misuse` that names `what`."""
    if isinstance(value, float):
        raise Misuse(f"{what} is the float {value!r}, which is not exact; write it as text or as a Decimal: usd={str(value)!r}")
    if isinstance(value, bool) or not isinstance(value, Decimal | str | int):
        raise Misuse(f"{what} is {value!r}; write an amount as text or as a Decimal: usd='0.03'")
    try:
        usd = Decimal(value)
    except ArithmeticError:
        raise Misuse(f"{what} is {value!r}, which is no number; write an amount as text or as a Decimal: usd='0.03'") from None
    if not usd.is_finite() or usd < 0:
        raise Misuse(f"{what} is {value!r}; an amount is finite and not negative: usd='0.03'")
    _, digits, exponent = usd.as_tuple()
    if usd and (usd.adjusted() >= MOST_USD_DIGITS or int(exponent) < -MOST_USD_PLACES or len(digits) > 40):
        raise Misuse(
            f"{what} is {value!r}; an amount has at most {MOST_USD_DIGITS} digits before the point and {MOST_USD_PLACES} behind "
            f"it: round it up"
        )
    return usd.copy_abs() if usd else Decimal(0)


def whole_number(value: object, what: str) -> int:
    """A number of things. Raises `Misuse` that names `what`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TOKENS:
        raise Misuse(f"{what} is {value!r}; write a whole number, not below zero: 1200")
    return value


@dataclass(frozen=True, slots=True)
class Limits:
    """What one task may use up. effects: how many different effects. usd, tokens: see `semel.spend`. seconds: of running.

    What goes beyond a limit dead-letters the task, with the reason. A replay by a person lets usd, tokens and seconds count
    afresh; effects are counted for ever. usd is exact: text or a Decimal.
    """

    effects: int | None = field(default=None, kw_only=True)
    usd: Decimal | str | None = field(default=None, kw_only=True)
    tokens: int | None = field(default=None, kw_only=True)
    seconds: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("effects", "tokens"):
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), f"Limits({name}=)")
        if self.usd is not None:
            exact_usd(self.usd, "Limits(usd=)")
        s = self.seconds
        if s is not None and (isinstance(s, bool) or not isinstance(s, int | float) or not 0 < s < MOST_TOKENS):
            raise Misuse(f"Limits(seconds=) is {s!r}; write how many seconds its attempts may run in all: seconds=600")


class Awaits(Protocol):
    """Gives results of tasks; an App."""

    def result_of(self, ref: Ref[Any], timeout: timedelta | None) -> Any: ...
    async def aresult_of(self, ref: Ref[Any], timeout: timedelta | None) -> Any: ...


@dataclass(frozen=True, slots=True)
class Ref(Generic[T]):
    """A task's address: its id and its tenant."""

    id: str
    tenant: str
    app: Awaits | None = field(default=None, compare=False, repr=False, kw_only=True)

    def result(self, timeout: timedelta | None = None) -> T:
        """Wait for the task's recorded result. Raises `Unsettled` when it is not done within `timeout` (None: for ever)."""
        return self._app().result_of(self, timeout)  # type: ignore[no-any-return]

    async def aresult(self, timeout: timedelta | None = None) -> T:
        """The awaitable twin of `result`."""
        return await self._app().aresult_of(self, timeout)  # type: ignore[no-any-return]

    def _app(self) -> Awaits:
        if self.app is None:
            raise Misuse("this Ref was made by hand; take one from app.tasks.get(id) to wait for its result")
        return self.app


@dataclass(frozen=True, slots=True)
class Pruned:
    """What `app.review.prune` took away, or would: tasks and tenant-scoped keys, and how many rows of the journal.

    stayed: how many that were old enough stayed all the same, by why.
    """

    tasks: int
    keys: int
    rows: int
    stayed: dict[str, int]


@dataclass(frozen=True, slots=True)
class Event:
    """One row of a journal. at: milliseconds since the Unix epoch, by the writer's clock. hash: hex, chained."""

    stream: str
    seq: int
    kind: str
    actor: str
    token: int
    at: int
    body: dict[str, Json]
    hash: str


@dataclass(frozen=True, slots=True)
class TaskView:
    """What is known of a task: its ledgers of delivery and execution. due: milliseconds since the Unix epoch.

    version: of the last change to any of this; what is submitted and confirmed by an attempt that goes on is none.
    """

    ref: Ref[Any]
    kind: str
    key: str
    queue: str
    delivery: Delivery
    execution: Execution
    attempt: int
    token: int
    failures: int
    crashes: int
    due: int
    why: str
    version: int
    unknown: int = 0

    @property
    def id(self) -> str:
        """The task's id."""
        return self.ref.id


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Which dead letters: all of these must hold; what is left out holds for every one.

    why: text that the reason holds, in any case. since, until: when it was given up (with a time zone; until excluded).
    effect: it has an effect in this state.
    """

    kind: str = field(default="", kw_only=True)
    queue: str = field(default="", kw_only=True)
    why: str = field(default="", kw_only=True)
    since: datetime | None = field(default=None, kw_only=True)
    until: datetime | None = field(default=None, kw_only=True)
    effect: EffectState | str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            if (at := getattr(self, name)) is not None and at.tzinfo is None:
                raise Misuse(f"{name}={at} has no time zone; write datetime.now(timezone.utc) - ...")
        if self.effect and self.effect not in set(EffectState):
            raise Misuse(f"effect={self.effect!r} is no state of an effect; it is one of {', '.join(EffectState)}")


@dataclass(frozen=True, slots=True)
class EffectView:
    """What can be proved of an effect. args and result are data; evidence is what came in late."""

    key: str
    tenant: str
    task_id: str
    name: str
    state: EffectState
    args: Json
    result: Json
    submissions: int
    occurrence: str
    generation: int
    evidence: tuple[Json, ...]
    why: str
    since: int
    version: int

"""What a store must do. Synchronous and batch-first; it runs on threads of its own, and decides nothing.

Every write is a `Change` that was decided elsewhere, on a known version and hash, and lands whole or not at all (R5).
Many changes of many streams share one transaction. A claim is decided inside the transaction that found its candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from semel.machine.journal import GENESIS, Row
from semel.machine.projection import EffectRow, InflightRow, Tables, TaskRow, UnknownRow
from semel.machine.records import record
from semel.machine.tasks import Task

LARGEST_TTL_MS = 60_000  # unless the store was told otherwise


class Head(NamedTuple):
    """Where a stream stands: the seq and the hash of its last row; (0, 32 zero bytes) before the first."""

    seq: int
    hash: bytes


@record
class Guard:
    """Claims and intents land only under it: the own session, unfenced, of this epoch, its beat not behind (R5).

    seen: the last row that its process saw acknowledged (tenant, stream, seq, hash): a store that does not hold it went back.
    """

    session: str
    epoch: int
    beat: int
    seen: tuple[str, str, int, bytes] | None = None


@record
class Part:
    """One stream's share of a change: rows that follow `expect`, and what they do to the tables."""

    tenant: str
    stream: str
    expect: Head
    rows: tuple[Row, ...]
    tables: Tables


@record
class Change:
    """One decision. id: random, in every row (R7). checks: streams that must still stand where they stood when decided.

    create: (tenant, kind, key, task) of a task that this change brings into being; if the key is taken, nothing lands.
    epoch: what the store's epoch becomes with it (0: it stays); its stream is the compare-and-set.
    """

    id: str
    parts: tuple[Part, ...]
    guard: Guard | None = None
    checks: tuple[tuple[str, str, int], ...] = ()
    create: tuple[str, str, str, str] | None = None
    epoch: int = 0


@record
class Birth(Change):
    """A change that brings a task into being, and does nothing else: one part, of the one row with which its stream begins.

    It stands there as any other change does; what more is known of it (`journal.born`, `projection.of_birth`: all of it follows
    from the event), a store may make use of.
    """


def is_birth(change: Change) -> bool:
    """Whether it is a `Birth`, and rests on nothing but its key: one under a guard, say, is a change as any other."""
    if type(change) is not Birth or change.guard is not None or change.checks or change.epoch or len(change.parts) != 1:
        return False
    create, part = change.create, change.parts[0]
    return create is not None and part.stream == create[3] and part.tenant == create[0] and part.expect == (0, GENESIS)


@dataclass(frozen=True, slots=True)
class ClaimUnit:
    """Take up to `limit` tasks that are due. decide(tenant, rows) gives the change that claims one, and what it becomes.

    A task for which it gives None, or raises, is passed over: the next one is looked at in its place, and the next claims
    may begin behind it for a while. Units may be given again (R7), so it may be asked twice. task: claim this one (tenant,
    id), due or not, instead of looking in the queues. tenant: only tasks of this one; those of others in the same queues are
    walked past. beside: a stream of which a store that is asked over a network may tell, in the answer that brings tasks,
    where it stood once they had been found: told(seq, at), and at is when (time.monotonic) that was asked.
    """

    guard: Guard
    at: int
    limit: int
    decide: Callable[[str, list[Row]], tuple[Change, Task] | None]
    queues: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    task: tuple[str, str] | None = None
    tenant: str | None = None
    beside: tuple[str, str] | None = None
    told: Callable[[int, float], None] = lambda seq, at: None


Unit = Change | ClaimUnit


@dataclass(frozen=True, slots=True)
class Landed:
    """It is durable."""


@dataclass(frozen=True, slots=True)
class Stale:
    """A stream has moved on: decide again. stream: which."""

    stream: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """The guard did not hold: this session may claim and intend nothing more."""

    why: str


@dataclass(frozen=True, slots=True)
class Exists:
    """The key is taken: it is this task."""

    task: str


@dataclass(frozen=True, slots=True)
class Broken:
    """It breaks a rule of the database (a type, a unique key): a bug. It did not land, and never can; the others did."""

    why: str


@dataclass(frozen=True, slots=True)
class Busy:
    """It waits for a lock that somebody outside holds: it has not landed, and the others did. Give it again.

    So is every unit that stands behind it in one of its streams. The writer does that; nobody else sees it.
    """


@dataclass(frozen=True, slots=True)
class ClaimedTask:
    """A task that was claimed: its tenant, its rows, the claim's own included."""

    tenant: str
    task: Task
    head: Head


@dataclass(frozen=True, slots=True)
class Claims:
    """The answer to a ClaimUnit. more: there were so many that cannot be claimed that it did not look at all; ask again."""

    tasks: tuple[ClaimedTask, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Undone:
    """A lent transaction ended without its commit, with proof. error: what ended it."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The COMMIT of a lent transaction was sent, and not answered (R7). error: what came instead."""

    error: BaseException


Outcome = Landed | Stale | Fenced | Exists | Claims | Broken | Busy


class SessionRow(NamedTuple):
    """One worker process's life. ttl_ms: its beat must move within that. left: it said goodbye. Times in milliseconds."""

    id: str
    beat: int
    nonce: str
    ttl_ms: int
    epoch: int
    host: str
    boot_id: str
    pid_ns: int
    time_ns: int
    pid: int
    start_time: int
    fenced: str
    started: int


class Age(NamedTuple):
    """How long nothing has happened in a stream. state: delivery of a task, or of an effect. at, kind: of its last row."""

    tenant: str
    stream: str
    state: str
    at: int
    kind: str


class StoreInfo(NamedTuple):
    """id: this store, random. application: the namespace of its keys. epoch: its incarnation.

    place: where it is, without a password. durability: of what was acknowledged, if its server is lost: "alone" (it is
    lost too), "synchronous" (a standby has it), "asynchronous" (a standby takes over without the last of it).
    largest_ttl_ms: the largest TTL that a session may have. unfenced: a process without the kernel timer has worked.
    tenant: the only one that this handle's database role may touch; None: there is no such fence.
    """

    id: str
    application: str
    epoch: int
    dialect: str
    place: str
    durability: str = "alone"
    largest_ttl_ms: int = LARGEST_TTL_MS
    tenant: str | None = None
    unfenced: bool = False


class Depth(NamedTuple):
    """What waits in a queue, of one kind. first_due: milliseconds since the Unix epoch; it may be yet to come."""

    queue: str
    kind: str
    waiting: int
    first_due: int


class Tally(NamedTuple):
    """What an operator looks at first. oldest_unknown: since when, milliseconds since the Unix epoch; 0: nothing is unknown.

    asking: tasks that wait for an approval. at_work: attempts under way. sessions: how many, by how they were fenced ("":
    alive). depths: what waits, by queue and kind.
    """

    unknown: int
    oldest_unknown: int
    asking: int
    at_work: int
    sessions: dict[str, int]
    depths: tuple[Depth, ...]


class Around(NamedTuple):
    """What a session looks at beside each beat, in one. sessions: that live. standing: where the store's own stream stands.

    held: by the asking session. orphans: whether `orphans` has any. unknown: the oldest.
    """

    info: StoreInfo
    sessions: list[SessionRow]
    standing: Head
    held: list[InflightRow]
    orphans: bool
    unknown: list[UnknownRow]


class Witnessed(NamedTuple):
    """What a process saw acknowledged (R19). row: tenant, stream, seq, hash. beat: a session's id and its number.

    at: when the last of it was (milliseconds since the Unix epoch; 0: nothing was). The store went back later, if it did.
    """

    epoch: int
    row: tuple[str, str, int, bytes] | None
    beat: tuple[str, int] | None
    at: int = 0


def what_is_missing(seen: Witnessed, hash_there: bytes | None, beat_there: int | None) -> str:
    """What a store does not hold of what was witnessed, in words; "" if it holds all."""
    if seen.row is not None and hash_there != seen.row[3]:
        return f"row {seen.row[2]} of {seen.row[1]}" + (" as it was" if hash_there is not None else "")
    if seen.beat is not None and (beat_there is None or beat_there < seen.beat[1]):
        return f"beat {seen.beat[1]} of session {seen.beat[0]}"
    return ""


class Store(Protocol):
    """The contract. Methods marked (writer) are called by one thread; the others by any.

    created: this very handle made the store, so nobody has used it before.
    """

    info: StoreInfo
    created: bool

    def commit(self, units: Sequence[Unit]) -> list[Outcome]:
        """(writer) One transaction; an outcome for each unit, in their order. Claims are looked for after all changes.

        Raises `StoreUnavailable` if nothing is known of it: the same units may be given again. A unit that cannot land is
        answered so and takes nobody along, not even one that breaks a rule of the database.
        """
        ...

    def close(self) -> None:
        """Let go of everything; the second time does nothing. What is asked afterwards raises `StoreUnavailable`."""
        ...

    def still_here(self) -> bool:
        """Whether this is still the store that was opened (R15), and has not gone back since."""
        ...

    def attach(self, witness: Callable[[], Sequence[Witnessed]]) -> None:
        """Ask on every further connect whether the store holds what `witness()` tells (R19); else it is not `still_here`."""
        ...

    def reread(self) -> StoreInfo:
        """`info`, as it is now: the epoch may have moved."""
        ...

    def permit_ttl(self, ms: int) -> None:
        """The largest TTL that a session may have from now on, milliseconds (R20)."""
        ...

    def note_unfenced(self) -> None:
        """A process that nothing can stop works from now on: what it sent may act later, in another epoch too (R4, R20)."""
        ...

    def missing(self, seen: Witnessed) -> str:
        """What of this the store does not hold, as a person would say it; "" if it holds all (R19)."""
        ...

    def highest_at(self, until: int | None) -> int:
        """The highest time in the journal that is not above `until`, milliseconds since the Unix epoch; 0: there is none.

        None: the highest that a session has written. Walks the journal: for a restore.
        """
        ...

    # sessions, on a connection of their own
    def open_session(self, row: SessionRow) -> None: ...
    def beat(self, session: str, known: Sequence[str], nonce: str, number: int) -> bool:
        """Compare-and-set on the own beat: one of `known` nonces gives way to `nonce`.

        False: fenced, or this is not the store any more in which the session was opened (its epoch, its file; R15).
        """
        ...

    def fence(self, session: str, nonce: str | None, how: str) -> bool:
        """Compare-and-set on a watched beat (None: whatever it is). how: watched, dead, left."""
        ...

    def sessions(self) -> list[SessionRow]:
        """Those that are not fenced."""
        ...

    def session(self, id: str) -> SessionRow | None: ...

    def around(self, session: str, tenant: str | None, most: int) -> Around:
        """What that session looks at beside each beat; up to `most` of what is unknown. `info` is read again, too."""
        ...

    # reads
    def head(self, tenant: str, stream: str) -> Head: ...
    def rows(self, tenant: str, stream: str, after: int = 0) -> list[Row]: ...
    def journals(self, streams: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[Row]]:
        """The rows of each of these streams (tenant, stream); none: an empty list."""
        ...

    def task(self, tenant: str, task: str) -> TaskRow | None: ...
    def find_task(self, tenant: str, kind: str, key: str) -> str | None: ...
    def tasks(
        self,
        tenant: str | None,
        *,
        delivery: str = "",
        execution: str = "",
        kind: str = "",
        queue: str = "",
        after: str = "",
        limit: int = 100,
    ) -> list[TaskRow]:
        """By id, newest first; `after`: the last id of the page before."""
        ...

    def tasks_after(self, after: tuple[str, str], limit: int) -> list[TaskRow]:
        """In the order of (tenant, id): to walk them all."""
        ...

    def unfinished(
        self, tenant: str | None, begun: Sequence[str], every: Sequence[str], after: tuple[str, str], visits: int
    ) -> tuple[list[TaskRow], tuple[str, str] | None]:
        """Unfinished tasks in the order of (tenant, id): those of a kind in `begun` that have begun, all of a kind in `every`.

        Goes past `visits` tasks behind `after`, whatever they are; and after which to go on (None: there are no more).
        """
        ...

    def ages(self, tenant: str | None, after: tuple[str, str], limit: int, *, keys: bool = False) -> list[Age]:
        """Tasks, or tenant-scoped keys, in the order of (tenant, id), a page at a time."""
        ...

    def effect(self, tenant: str | None, key: str) -> EffectRow | None: ...
    def effects(
        self, tenant: str | None, *, state: str = "", task: str = "", after: str = "", limit: int = 100
    ) -> list[EffectRow]:
        """By key; `after`: the last key of the page before."""
        ...

    def effects_after(self, after: tuple[str, str], limit: int) -> list[EffectRow]:
        """In the order of (tenant, key): to walk them all."""
        ...

    def unknown(self, tenant: str | None, *, limit: int = 100) -> list[UnknownRow]:
        """The unknown-work queue, oldest first."""
        ...

    def held(self, session: str) -> list[InflightRow]:
        """The tasks that are leased to a session."""
        ...

    def orphans(self, after: InflightRow | None, limit: int, tenant: str | None = None) -> list[tuple[InflightRow, str]]:
        """Tasks of fenced or missing sessions, with how the session was fenced ("missing" if there is none); a page at a time."""
        ...

    def counts(self, tenant: str | None) -> dict[str, dict[str, int]]:
        """How many of each state, by ledger: delivery, execution, effect."""
        ...

    def tally(self, tenant: str | None) -> Tally:
        """What is unknown, waits, and is at work; the sessions are everybody's."""
        ...

    def next_due(self, queues: Sequence[str], kinds: Sequence[str], tenant: str | None = None) -> int | None:
        """When the first waiting task of these falls due (milliseconds since the Unix epoch); None: none waits."""
        ...

    def foreign(self, queues: Sequence[str], kinds: Sequence[str], tenant: str | None = None) -> list[tuple[str, str]]:
        """(queue, kind) of tasks that wait in these queues and are of none of these kinds."""
        ...

    def streams(self, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
        """(tenant, stream), in order: to walk the whole journal."""
        ...

    def heads(self, after: tuple[str, str], limit: int) -> list[tuple[str, str, int, bytes]]:
        """(tenant, stream, seq, hash) of the last row of each stream, in the order of `streams`."""
        ...

    def holds(self, tables: Tables) -> list[str]:
        """Which of these rows the tables do not hold, exactly so: a sentence each."""
        ...

    def sizes(self) -> dict[str, int]:
        """How many rows each table has: task, ready, inflight, effect, unknown, task_key."""
        ...

    def changed(self) -> int:
        """A number that moves when another process has written: a hint to look, never the only reason."""
        ...

    def hear(self, told: Callable[[], None] | None) -> bool:
        """Have `told` called, on whatever thread, soon after another process has queued something; None: no more.

        A hint too: it may come for nothing, and never. False: nothing tells here, and `changed` is to be asked often.
        """
        ...


ENDED_BY_ITSELF = "the function ended its transaction by itself, and nobody knows with what in it"


class Lent(Protocol):
    """A transaction of one `Atomic` effect's, open from the beginning; used by one thread at a time."""

    @property
    def strange(self) -> bool:
        """Whether the function ended it by itself, and nobody knows with what in it."""
        ...

    def connection(self, is_async: bool) -> Any:
        """A connection of the driver's, for the effect's function, in this transaction; it can neither commit nor close it."""
        ...

    def take_back(self) -> None:
        """The function has ended: nothing more is done on its connection."""
        ...

    def land(self, change: Change) -> Landed | Stale | Fenced | Busy | Broken | Undone | Unanswered:
        """Write `change` beside what the function wrote, and commit both.

        After Stale and Busy the transaction is open still. Broken: the function ended it by itself; nobody knows with what.
        """
        ...

    def passing(self, error: BaseException) -> bool:
        """Whether it is the database's or the network's trouble of the moment (a deadlock, a cut), and no mistake."""
        ...

    def end(self) -> None:
        """Roll back what is open, and give the connection back. The second time nothing happens."""
        ...


@runtime_checkable
class Lends(Protocol):
    """A store in whose database an effect may write, in the transaction of its confirm (`Atomic`)."""

    def lend(self, seconds: float, idle_seconds: float) -> Lent:
        """Begin a transaction, waiting for a free connection, within `seconds`. Raises `StoreUnavailable`.

        One statement in it may take `seconds`; when it stands still for `idle_seconds`, the server ends it.
        """
        ...

"""Lives on one disk: the shipped store at real work, the power cut at any moment of it, and what must then be there.

One life is run, and its disk's log kept. Each cut makes what the disk holds after losing power at one operation of that
log, by chance; the shipped store is opened on it, and must hold exactly what it held after the last acknowledged
transaction, or after that and the whole of the one that was under way. One of the disks so left is where the next life
goes on. The work is the random history of tests/differential, by the shipped machine, ledger and writer.
"""

from __future__ import annotations

import functools
import itertools
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import apsw
from powercut_disk import Disk, Image

from semel.engine import ledger, own
from semel.engine.arrival import asked, begin
from semel.engine.ledger import Desk
from semel.engine.session import begin_taking_back
from semel.machine import journal as j
from semel.machine import pauses, projection, tasks
from semel.machine.journal import Row
from semel.model import Refusal
from semel.store import sqlitefile
from semel.store.contract import Landed, Outcome, SessionRow, Unit, Witnessed
from semel.store.sqlite import SQLite
from semel.store.witness import Kept, Witness
from semel.store.writer import Ticket, Writer

sys.path.insert(0, str(Path(__file__).parents[1] / "differential"))

import history

TABLES = ("meta", "journal", "task", "task_key", "ready", "inflight", "effect", "unknown", "session")
ALL = ";".join(f"SELECT '{table}', * FROM {table}" for table in TABLES)  # in the order of their keys: WITHOUT ROWID
Dump = list[tuple[Any, ...]]


class Violation(AssertionError):
    """The store did what it must not."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The ids of changes, tasks and stores, which chance gives, are those of the seed: a run is the same again."""
    dice = random.Random(seed)

    def uuid7() -> str:
        counted = next(counter)
        return f"01a00000-{counted >> 12:04x}-7{counted & 0xFFF:03x}-8{dice.getrandbits(12):03x}-{dice.getrandbits(48):012x}"

    counter = itertools.count()
    with (
        mock.patch.object(ledger._random, "eight", lambda: dice.randbytes(8)),
        mock.patch("uuid_utils.uuid7", uuid7),
        mock.patch("uuid_utils.uuid4", lambda: uuid.UUID(bytes=dice.randbytes(16), version=4)),
        mock.patch.object(sqlitefile, "time", SimpleNamespace(time=lambda: history.NOW / 1000, monotonic=time.monotonic)),
    ):
        yield


def dump(store: SQLite) -> Dump:
    """All that a store holds."""
    return list(store._writer.raw.execute(ALL))


@dataclass(frozen=True)
class Mark:
    """A transaction. begun, acked: the place in the disk's log. after: all that the store then held, and its witness."""

    what: str
    begun: int
    acked: int
    after: Dump
    seen: Witnessed


class Noted(SQLite):
    """The shipped store; each of its transactions is noted, with when it was acknowledged."""

    def __init__(self, disk: Disk, *, pages: int, synchronous: str = "", before: Mark | None = None) -> None:
        self.disk = disk
        self.marks: list[Mark] = [before] if before is not None else []
        seen = before.seen if before is not None else Witnessed(0, None, None)
        self.seen: Callable[[], Witnessed] = lambda: seen
        super().__init__(disk.place, vfs=disk.vfs)
        raw = self._writer.raw
        for connection in self._connections:
            connection.raw.wal_autocheckpoint(pages)  # often, so that cuts in the middle of it are many
        if synchronous:
            raw.execute(f"PRAGMA synchronous={synchronous}")
        self.note("opened", 0)

    def note(self, what: str, begun: int) -> None:
        """It is acknowledged."""
        self.marks.append(Mark(what, begun, len(self.disk.log), dump(self), self.seen()))

    def witnessed(self) -> None:
        """The witness knows of the last one, too."""
        self.marks[-1] = replace(self.marks[-1], seen=self.seen())

    def commit(self, units: Sequence[Unit]) -> list[Outcome]:
        """One transaction."""
        begun = len(self.disk.log)
        outcomes = super().commit(units)
        if any(isinstance(unit, history.Change) for unit in units) or len(self.disk.log) > begun:
            self.note("commit", begun)
            check_told(units, outcomes, self.marks[-1].after)
        return outcomes

    def open_session(self, row: SessionRow) -> None:
        """One transaction."""
        begun = len(self.disk.log)
        super().open_session(row)
        self.note("open_session", begun)

    def beat(self, session: str, known: Sequence[str], nonce: str, number: int) -> bool:
        """One transaction."""
        begun = len(self.disk.log)
        beaten = super().beat(session, known, nonce, number)
        self.note("beat", begun)
        return beaten

    def fence(self, session: str, nonce: str | None, how: str) -> bool:
        """One transaction."""
        begun = len(self.disk.log)
        fenced = super().fence(session, nonce, how)
        self.note("fence", begun)
        return fenced

    def permit_ttl(self, ms: int) -> None:
        """One transaction."""
        begun = len(self.disk.log)
        super().permit_ttl(ms)
        self.note("permit_ttl", begun)


class Hand(Writer):
    """The shipped writer, on this thread: what is submitted is committed when it is told to, and by `land` at once."""

    def __init__(self, store: SQLite, witness: Witness) -> None:
        super().__init__(store, patience=0, committed=lambda units, outcomes: self._witness(units, outcomes))
        self._of, self._by = store, witness
        self.at_once = False

    def submit(self, unit: Unit, *, waited_for: bool = True) -> Ticket:
        """Not on the writer's thread."""
        self.tickets.append(Ticket(unit))
        if self.at_once:
            self.give()
        return self.tickets[-1] if self.tickets else self._last

    def _witness(self, units: list[Unit], outcomes: list[Outcome]) -> None:
        self._by.committed(units, outcomes)
        if isinstance(self._of, Noted):
            self._of.witnessed()

    @functools.cached_property
    def tickets(self) -> list[Ticket]:
        """What waits."""
        return []

    def give(self) -> None:
        """Commit what waits, as the shipped thread does."""
        batch, self.tickets[:] = list(self.tickets), []
        if batch:
            self._last = batch[-1]
            random.seed(self.commits)  # the share of the oldest is drawn
            for ticket, outcome in zip(batch, self._commit(batch), strict=True):
                ticket.set(outcome)


class Work(history.History):
    """The random history of tests/differential, on one store, through the shipped writer, over several lives."""

    def __init__(self, store: SQLite, seed: int, life: int, now: int) -> None:
        super().__init__([store], seed)
        self.store, self.life, self._opened = store, life, 0
        self.clock.now = now
        self.witness = Witness(store.info, store.missing)
        self.witness.path = None  # its file is on another disk: what it would say is `seen`
        if isinstance(store, Noted):
            self.witness.adopt(store.seen())
            store.seen = lambda: self.witness.seen
        self.collects = self.hand = Hand(store, self.witness)
        self.desk = Desk(store, self.hand, self.clock, self.desk.standing)
        self.tasks = [(row.tenant, row.task) for row in store.tasks(None, limit=1000)]

    def flush(self) -> None:
        """Commit what waits."""
        waited = list(self.hand.tickets)
        self.hand.give()
        for ticket in waited:
            if isinstance(ticket.value, BaseException):
                raise ticket.value
        for name, ticket in self._named:
            self.done[f"{name}:{type(ticket.value).__name__}"] += 1
            if isinstance(ticket.value, history.Claims):
                self.done[f"{name}:taken"] += len(ticket.value.tasks)
        self._named.clear()
        self._ledgers.clear()

    def open_session(self) -> None:
        """A session, that the witness knows of."""
        self.flush()
        number, info = self._opened, self.store.info
        self._opened += 1
        row = SessionRow(
            f"session-{self.life:03}-{number:03}", 0, "n0", history.TTL_MS, info.epoch, "h", "b", 1, 1, number, 1, "",
            self.clock.now,
        )  # fmt: skip
        self.store.open_session(row)
        self._beaten(row)
        self.lives.append(history.Life(row))

    def beat(self) -> None:
        """A beat, that the witness knows of."""
        super().beat()
        living = [life.row for life in self.lives if not life.fenced]
        if living:
            row = self.dice.choice(living)
            self._beaten(row)

    def _beaten(self, row: SessionRow) -> None:
        self.witness.beaten(row.id, row.beat, self.store.info, self.store.info.epoch, self.clock.now)
        if isinstance(self.store, Noted):
            self.store.witnessed()

    @contextmanager
    def landing(self) -> Iterator[None]:
        """What waits for its own ticket is committed at once."""
        self.flush()
        self.hand.at_once = True
        try:
            yield
        finally:
            self.hand.at_once = False

    def pause(self) -> None:
        """The store's own stream of what people have paused."""
        scope = pauses.Scope(pauses.QUEUE, self.dice.choice(history.QUEUES))
        command = self.dice.choice((pauses.Halt, pauses.Resume))(scope, "so")
        with self.landing():
            told = own.land(self.desk, pauses.STREAM, pauses.fold, lambda state: pauses.decide(state, command), "person:ann")
        self.done[f"pause:{'no' if isinstance(told, Refusal) else 'yes'}"] += 1

    def epoch(self) -> None:
        """The store's own stream of epochs; the sessions of the one before are of no use any more."""
        with self.landing():
            told = begin(self.desk, self.store.info, self.store.info.epoch, None, "said so", "person:ann")
        assert not isinstance(told, Refusal)
        self.witness.begin(self.store.reread())
        self.lives.clear()
        self.done["epoch"] += 1
        self.open_session()

    def recover(self) -> None:
        """What the next life does first: fence those who died with the power, and take back what they held."""
        for row in self.store.sessions():
            assert self.store.fence(row.id, row.nonce, "dead")
        for row, how in self.store.orphans(None, 100):
            with self.landing():
                _, _, proposed = begin_taking_back(self.desk, row, how, "session:x")
            assert proposed.ticket is not None and isinstance(proposed.ticket.value, Landed)
            self.done["taken back"] += 1

    def run(self, batches: int) -> None:
        """One life's work."""
        self.recover()
        self.open_session()
        self.enqueue()
        self.claim()
        operations = [
            self.enqueue, self.enqueue, self.enqueue_again, self.claim, self.claim, self.claim_one, *[self.task_command] * 6,
            *[self.effect] * 9, *[self.tenant_effect] * 4, self.settle, self.settle, self.answer, self.rival, self.beat,
            self.fence, self.pause,
        ]  # fmt: skip
        for _ in range(batches):
            self.clock.now += self.dice.randrange(5_000)
            for _ in range(self.dice.randint(1, 4)):
                self.dice.choice(operations)()
            self.flush()
        if self.dice.random() < 0.1:
            self.epoch()


# --- what must hold ---


def check_told(units: Sequence[Unit], outcomes: Sequence[Outcome], held: Dump) -> None:
    """What was told to have landed is there, as it was given. Raises `Violation`."""
    rows = [
        row for unit, outcome in zip(units, outcomes, strict=True)
        if isinstance(unit, history.Change) and isinstance(outcome, Landed) for part in unit.parts for row in part.rows
    ]  # fmt: skip
    wanted = {(row.tenant, row.stream, row.seq, row.hash) for row in rows}
    for outcome in outcomes:
        if isinstance(outcome, history.Claims):
            wanted.update((one.tenant, one.task.id, *one.head) for one in outcome.tasks)
    if missing := wanted - {(*record[1:4], record[10]) for record in held if record[0] == "journal"}:
        raise Violation(f"told to have landed, and not there: {sorted(missing)[:2]}")


def rows_of(held: Dump) -> dict[tuple[str, str], list[Row]]:
    """The journal of a dump, by stream."""
    found: dict[tuple[str, str], list[Row]] = {}
    for record in held:
        if record[0] == "journal":
            found.setdefault(record[1:3], []).append(Row(*record[1:]))
    return found


@functools.lru_cache(maxsize=4096)
def _tables(tenant: str, stream: str, head: bytes, rows: tuple[Row, ...]) -> tuple[tuple[Any, ...], ...]:
    """What the tables must hold of one stream, by the machine's fold of its rows; its chain must be whole."""
    if said := j.broken(list(rows)):
        raise Violation(f"stream {stream}: {said}")
    if tenant == "":
        return ()
    if rows[0].kind == j.Enqueued.kind:
        task = tasks.fold(list(rows))
        written = projection.of_task(tenant, None, task, task.effects)
        key = [("task_key", tenant, task.kind, task.key, task.id)]
    else:
        written, key = projection.of_key(tenant, stream, tasks.Key(), tasks.fold_key(list(rows))), []
    return tuple(
        (name, *row)
        for name, found in (("task", (written.task,)), ("ready", (written.ready,)), ("inflight", (written.inflight,)),
                            ("effect", written.effects), ("unknown", written.unknown))
        for row in found if row is not None
    ) + tuple(key)  # fmt: skip


def check_whole(held: Dump) -> None:
    """Every chain is whole, and the tables are what the journal tells. Raises `Violation`."""
    wanted = [
        row for (tenant, stream), rows in rows_of(held).items() for row in _tables(tenant, stream, rows[-1].hash, tuple(rows))
    ]
    found = [record for record in held if record[0] not in ("journal", "meta", "session")]
    if sorted(wanted) != sorted(found):
        odd = set(wanted) ^ set(found)
        raise Violation(f"the tables are not what the journal tells: {sorted(odd)[:4]}")


def check_history(marks: list[Mark]) -> None:
    """Of the life itself: nothing that was acknowledged has changed afterwards, and all is whole."""
    before: dict[tuple[str, str], list[Row]] = {}
    for mark in marks:
        rows = rows_of(mark.after)
        for stream, old in before.items():
            if rows.get(stream, [])[: len(old)] != old:
                raise Violation(f"stream {stream} has not kept its rows after {mark.what}")
        before = rows
        check_whole(mark.after)


def went_back(store: SQLite, seen: Witnessed) -> str:
    """What the shipped arrival says of a store, to one whose witness saw this; "" if it did not go back."""
    witness = Witness(store.info, store.missing)
    desk = Desk(store, None, history.FixedClock(), None)  # type: ignore[arg-type]  (it asks, and writes nothing)
    return asked(witness, desk, Kept(store.info.id, store.info.place, "alone", seen), store.info).missing


def acked_by(marks: list[Mark], at: int) -> int:
    """The last transaction that was acknowledged at that place of the log; -1: none."""
    return max((n for n, mark in enumerate(marks) if mark.acked <= at), default=-1)


@contextmanager
def opened(image: Image, kind: type[Disk] = Disk) -> Iterator[SQLite]:
    """The shipped store on what a disk holds; what it writes is lost."""
    disk = kind(image)
    try:
        store = SQLite(disk.place, vfs=disk.vfs)
        try:
            yield store
        finally:
            for connection in store._connections:
                connection.raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            store.close()
    finally:
        disk.remove()


@dataclass
class Tally:
    """What a campaign did. lost: what was acknowledged and is missing, or worse: only a control may have any."""

    cuts: int = 0
    lives: int = 0
    acked: int = 0
    intents: int = 0
    lost: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Together."""
        self.cuts, self.lives, self.acked = self.cuts + other.cuts, self.lives + other.lives, self.acked + other.acked
        self.intents += other.intents
        self.lost.extend(other.lost)
        self.seen.update(other.seen)


@dataclass(frozen=True)
class Ways:
    """How a campaign is run. synchronous, lies: of a control."""

    lives: int = 4
    batches: int = 8
    cuts: int = 40  # of each life
    synchronous: str = ""
    lies: bool = False
    kind: type[Disk] = Disk

    @property
    def control(self) -> bool:
        """It must lose something, or the instrument sees nothing."""
        return bool(self.synchronous or self.lies)


def judge(image: Image, marks: list[Mark], at: int, tally: Tally, ways: Ways, *, deep: bool) -> Dump | None:
    """Open the store on what is left, and compare. What it holds ([]: there is no store yet); None: it lost something.

    Raises `Violation`.
    """
    done = acked_by(marks, at)
    before = marks[done] if done >= 0 else None
    under_way = marks[done + 1] if done + 1 < len(marks) and marks[done + 1].begun <= at else None
    try:
        with opened(image, ways.kind) as store:
            held, made = dump(store), store.created
            gone = went_back(store, before.seen) if before is not None else ""
            if deep:
                said = store._writer.raw.execute("PRAGMA integrity_check; PRAGMA user_version").fetchall()
                if said != [("ok",), (sqlitefile.SCHEMA,)]:
                    raise Violation(f"integrity_check and the schema's version: {said}")
                check_whole(held)
                tally.seen["integrity checks"] += 1
    except Exception as error:
        if not ways.control:
            raise Violation(f"after a cut at operation {at}: {type(error).__name__}: {error}") from error
        tally.lost.append(f"the store cannot be read: {type(error).__name__}")
        return None
    if before is None:
        tally.seen["cut before there was a store"] += 1
        if any(record[0] != "meta" for record in held):
            raise Violation(f"after a cut at operation {at}: there is work in a store that was only being made")
        return [] if made else held
    if held == before.after or (under_way is not None and held == under_way.after):
        if gone:
            raise Violation(f"a false alarm: the witness says that the store does not hold {gone}")
        tally.seen["nothing of the one under way" if held == before.after else "the one under way is there, whole"] += 1
        return held
    _lost(held, before, gone, tally)
    if not ways.control:
        raise Violation(f"after a cut at operation {at}: {tally.lost[-1]}")
    return None


def _lost(held: Dump, before: Mark, gone: str, tally: Tally) -> None:
    """Say what is not as it was."""
    there = {record[:4] for record in held if record[0] == "journal"}
    missing = [record for record in before.after if record[0] == "journal" and record[:4] not in there]
    intents = [record for record in missing if record[4] == j.Intended.kind]
    tally.seen["an acknowledged intent is lost"] += bool(intents)
    tally.seen["and the witness notices"] += bool(intents and gone)
    named = ", ".join(f"row {r[3]} of {r[2]} ({r[4]})" for r in missing[:3]) or "what the tables held"
    tally.lost.append(f"{before.what} was acknowledged; not there: {named}; the witness misses: {gone or 'nothing'}")

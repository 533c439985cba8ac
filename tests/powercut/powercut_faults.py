"""A disk that fails: an error at one operation, at some, or at all from there on, until it is mended. At every operation in turn.

The process goes on with its work. Each failure is told as `StoreUnavailable`, and nothing else; what was acknowledged is
there, through all of it and after a power cut at the end; what was not is there whole or not at all; once the disk is
mended, the same open store works again. After a failed sync nothing of it becomes durable by a later sync (fsyncgate).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import apsw
from powercut_campaign import of_schema_1, prepared
from powercut_disk import DELETE, SYNC, TRUNCATE, VFS, WRITE, Disk, Image
from powercut_life import Dump, Noted, Violation, Work, acked_by, check_whole, dump, history, opened, seeded, went_back

from semel.errors import Misuse, SemelError, StoreUnavailable
from semel.store import writer
from semel.store.contract import Change, Outcome, SessionRow, Unit
from semel.store.sqlite import SQLite

NOW = history.NOW
SECONDS = 60.0  # the writer's patience; its pauses take no time here
BATCHES, BATCHES_AFTER, CUTS = 3, 2, 3


def _error(name: str, code: int) -> Callable[[], apsw.Error]:
    def made() -> apsw.Error:
        error: apsw.Error = getattr(apsw, name)("database or disk is full" if name == "FullError" else "disk I/O error")
        error.extendedresult = code
        return error

    return made


# What fails, and how. A sync fails once and the kernel forgets what was to be written.
KINDS: dict[str, tuple[str, Callable[[], apsw.Error]]] = {
    "read": ("read", _error("IOError", apsw.SQLITE_IOERR_READ)),
    "write": (WRITE, _error("IOError", apsw.SQLITE_IOERR_WRITE)),
    "full": (WRITE, _error("FullError", apsw.SQLITE_FULL)),
    "sync": (SYNC, _error("IOError", apsw.SQLITE_IOERR_FSYNC)),
    "truncate": (TRUNCATE, _error("IOError", apsw.SQLITE_IOERR_TRUNCATE)),
    "delete": (DELETE, _error("IOError", apsw.SQLITE_IOERR_DELETE)),
    "open": ("open", _error("CantOpenError", apsw.SQLITE_CANTOPEN)),
}
LASTING = {"once": 1, "for a while": 4, "until it is mended": 10**9}


@dataclass
class Faults:
    """Fails so many operations of one kind from the nth on."""

    kind: str
    nth: int  # counted from 1; 0: none, only count
    lasting: str = "once"
    met: int = 0
    failed: int = 0

    def __call__(self, what: str, file: str) -> None:
        operation, error = KINDS[self.kind]
        if what != operation:
            return
        self.met += 1
        if self.nth and self.nth <= self.met < self.nth + LASTING[self.lasting]:
            self.failed += 1
            raise error()


@dataclass
class Told:
    """What a run of many faults has met."""

    runs: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, other: Told) -> None:
        self.runs += other.runs
        self.seen.update(other.seen)


class Tried(Noted):
    """The shipped store; what was tried since the last acknowledgement is kept."""

    def __init__(self, disk: Disk) -> None:
        self.tried: list[Unit] = []
        self.ever: list[Unit] = []
        self.of_session = False
        super().__init__(disk, pages=6)

    def note(self, what: str, begun: int) -> None:
        """It is acknowledged: this is what must be there from now on."""
        ask, self.disk.ask = self.disk.ask, None  # we look; the store does not
        super().note(what, begun)
        self.disk.ask = ask
        self.tried, self.of_session = [], False

    def commit(self, units: Sequence[Unit]) -> list[Outcome]:
        self.tried.extend(units)
        self.ever.extend(units)
        return super().commit(units)

    def open_session(self, row: SessionRow) -> None:
        self.of_session = True
        super().open_session(row)

    def beat(self, session: str, known: Sequence[str], nonce: str, number: int) -> bool:
        self.of_session = True
        return super().beat(session, known, nonce, number)

    def fence(self, session: str, nonce: str | None, how: str) -> bool:
        self.of_session = True
        return super().fence(session, nonce, how)


class Enduring(Work):
    """Work that goes on when the store does not answer, as a worker does."""

    def __init__(self, store: SQLite, seed: int, life: int, patience: float, told: Told) -> None:
        super().__init__(store, seed, life, NOW + life * 10_000_000)
        self.hand._patience, self.told = patience, told
        self.sent: dict[str, list[str]] = {}

    def enduring(self, operation: Callable[[], None]) -> None:
        """Do one thing. Raises `Violation` for any error but the one that is promised."""
        try:
            operation()
        except StoreUnavailable as error:
            told(error)
            self.told.seen["told that the store does not answer"] += 1
            self.hand.tickets.clear()
            self._named.clear()
            self._ledgers.clear()

    def flush(self) -> None:
        """Commit what waits."""
        try:
            super().flush()
        finally:
            self._named.clear()
            self._ledgers.clear()

    def beat(self) -> None:
        """R15: any nonce that was sent since the acknowledged one may be the one that the store holds."""
        self.flush()
        life = self.dice.choice(self.lives)
        known = self.sent.setdefault(life.row.id, [life.row.nonce])
        number, nonce = life.row.beat + 1, f"n{len(known)}.{life.row.beat}.{self.dice.random()}"
        sent = list(known)
        known.append(nonce)
        if self.store.beat(life.row.id, sent, nonce, number) is life.fenced:
            raise Violation("a beat was refused, and its session is not fenced" if not life.fenced else "a fenced session beats")
        if not life.fenced:
            life.row, self.sent[life.row.id] = life.row._replace(beat=number, nonce=nonce), [nonce]
            self._beaten(life.row)

    def fence(self) -> None:
        """What a session does to others is of no interest here."""

    def work(self, batches: int) -> None:
        """Random work, without the rare."""
        self.enduring(self.recover)
        for first in (self.open_session, self.enqueue, self.claim):
            self.enduring(first)
        operations = [
            self.enqueue, self.enqueue, self.claim, self.claim_one, *[self.task_command] * 3, *[self.effect] * 6,
            *[self.tenant_effect] * 3, self.beat, self.pause,
        ]  # fmt: skip
        for _ in range(batches):
            for _ in range(self.dice.randint(1, 3)):
                if self.lives or self.store is None:
                    self.enduring(self.dice.choice(operations))
            self.enduring(self.flush)


def told(error: Exception) -> None:
    """The promised error, in clear words."""
    if "did not answer: " not in str(error) or not str(error).rpartition(": ")[2]:
        raise Violation(f"a disk's failure is told so: {type(error).__name__}: {error}") from error


def plausible(held: Dump, before: Dump, tried: list[Unit], of_session: bool) -> bool:
    """Raise `Violation` unless all that was acknowledged is there, and of what was not, each change whole or nothing.

    Whether anything of it is there.
    """
    had, has = ({record for record in d if record[0] == "journal"} for d in (before, held))
    if had - has:
        raise Violation(f"acknowledged, and gone: {sorted(had - has)[:2]}")
    more = has - had
    changes = [unit for unit in tried if isinstance(unit, Change)]
    for change in changes:
        rows = {(r.tenant, r.stream, r.seq, r.hash) for part in change.parts for r in part.rows}
        there = {r for r in rows if r in {(x[1], x[2], x[3], x[10]) for x in more}}
        if there and there != rows:
            raise Violation(f"a part of change {change.id} is there: {there} of {rows}")
    ids = {change.id for change in changes}
    claims = any(not isinstance(unit, Change) for unit in tried)
    if odd := [x for x in more if x[9] not in ids and not (claims and x[4] == "claimed")]:
        raise Violation(f"nobody wrote this: {odd[:2]}")
    if not of_session and [x for x in before if x[0] == "session"] != [x for x in held if x[0] == "session"]:
        raise Violation("the sessions are not as they were")
    if not more and not of_session and before != held:
        raise Violation(f"the tables changed by themselves: {sorted(set(before) ^ set(held))[:2]}")
    check_whole(held)
    return bool(more)


def count(seed: int, kind: str) -> int:
    """How many operations of a kind the work of a seed has."""
    faults = Faults(kind, 0)
    endure(seed, faults, random.Random(seed), 0)
    return faults.met


def endure(seed: int, faults: Faults, dice: random.Random, cuts: int) -> Told:
    """Work on a disk that fails there; mend it; go on; cut the power. Raises `Violation`."""
    result = Told(1)
    with seeded(seed), mock.patch.object(writer, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda s: None)):
        disk = Disk(dict(prepared()))
        store = Tried(disk)
        try:
            work = Enduring(store, seed, 0, -1.0 if faults.lasting == "until it is mended" else SECONDS, result)
            disk.ask = faults
            work.work(BATCHES)
            disk.ask = None
            _looked_at(store, result)
            _cut(disk, store, dice, result, cuts)  # before it goes on: what failed may be on the disk
            if faults.nth:
                _goes_on(store, seed, result)
                _cut(disk, store, dice, result, cuts)
                _cut_before(disk, store, dice, result, cuts)
        finally:
            disk.ask = None
            store._writer.raw.close(True)
            disk.remove()
    if faults.failed:
        result.seen[f"{faults.kind} failed {faults.lasting}"] += 1
    return result


def _looked_at(store: Tried, result: Told) -> None:
    """The disk is mended, and nobody has written since: through the open store, and what it says of itself."""
    held = dump(store)
    result.seen["landed, and not acknowledged"] += plausible(held, store.marks[-1].after, store.tried, store.of_session)
    if (said := store._writer.raw.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
        raise Violation(f"integrity_check says {said}")


def _goes_on(store: Tried, seed: int, result: Told) -> None:
    """The same process on the same open store, as if nothing had been."""
    after = Told()
    more = Enduring(store, seed + 1, 1, SECONDS, after)
    more.work(BATCHES_AFTER)
    if after.seen:
        raise Violation("the disk is mended, and the store does not work")
    result.seen["went on"] += 1


def _cut(disk: Disk, store: Tried, dice: random.Random, result: Told, cuts: int) -> None:
    """What is there after a cut now, and what the witness says."""
    mark = store.marks[-1]
    for _ in range(cuts):
        with opened(disk.after_cut(dice)) as again:
            plausible(dump(again), mark.after, store.tried, store.of_session)
            if gone := went_back(again, mark.seen):
                raise Violation(f"a false alarm, or a loss: the store does not hold {gone}")
        result.seen["cut"] += 1


def _cut_before(disk: Disk, store: Tried, dice: random.Random, result: Told, cuts: int) -> None:
    """What is there after a cut at any moment of all that."""
    for _ in range(cuts):
        at = dice.randrange(1, len(disk.log) + 1)
        mark = store.marks[acked_by(store.marks, at)]
        with opened(disk.after_cut(dice, at)) as again:
            plausible(dump(again), mark.after, store.ever, True)
        result.seen["cut"] += 1


# --- all in turn ---


def every(seeds: range, lastings: Sequence[str] = tuple(LASTING), cuts: int = CUTS) -> Told:
    """Each kind of failure, at each operation of the work of each seed, once, for a while, and until it is mended."""
    told = Told()
    for seed in seeds:
        for kind in KINDS:
            for nth in range(1, count(seed, kind) + 1):
                for lasting in lastings:
                    faults = Faults(kind, nth, lasting)
                    try:
                        told.add(endure(seed, faults, random.Random(seed * 10_000 + nth), cuts))
                    except Exception as error:
                        raise Violation(f"seed {seed}, {faults}: {type(error).__name__}: {error}") from error
    return told


def every_opening() -> Told:
    """The same as the store is made, migrated, or opened after a cut."""
    told = Told()
    for beginning in BEGINNINGS:
        for kind in KINDS:
            counted = Faults(kind, 0)
            open_and_fail(beginning, counted)
            for nth in range(1, counted.met + 1):
                for lasting in LASTING:
                    told.add(open_and_fail(beginning, Faults(kind, nth, lasting)))
    return told


# --- as it opens ---

BEGINNINGS: dict[str, Callable[[], Image]] = {
    "opened": lambda: _after_work(),
    "migrated": lambda: dict(of_schema_1()),
    "made": dict,
}


def _after_work() -> Image:
    """A store whose log holds what its file does not hold yet."""
    with seeded(3):
        disk = Disk(dict(prepared()))
        store = SQLite(disk.place, vfs=VFS)
        Work(store, 3, 0, NOW).run(4)
        image = disk.after_cut(random.Random(3))
        store._writer.raw.close(True)
        disk.remove()
    return image


class Opening(SQLite):
    """Closing writes too; SQLite tells nobody when that fails, but a VFS in Python would."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        super().__init__(disk.place, vfs=VFS)

    def close(self) -> None:
        self.disk.ask = None
        super().close()


def open_and_fail(beginning: str, faults: Faults) -> Told:
    """Open a store on a disk that fails there; then mend it, and open it again. Raises `Violation`."""
    result, image = Told(1), BEGINNINGS[beginning]()
    held: Any = None
    if image:
        with opened(image) as store:
            held = dump(store)
    disk = Disk(image)
    disk.ask = faults
    try:
        with seeded(5):
            Opening(disk).close()
    except SemelError as error:
        if not isinstance(error, Misuse):
            told(error)
        result.seen[f"told in opening: {type(error).__name__}"] += 1
    except Exception as error:
        raise Violation(f"{beginning}: {faults}: {type(error).__name__}: {error}") from error
    disk.ask = None
    for left in (disk.after_cut(random.Random(faults.nth)), {n: bytes(disk.files[node]) for n, node in disk.names.items()}):
        with opened(left) as store:
            if held is not None and dump(store) != held:
                raise Violation(f"{beginning}: {faults}: the store is another one")
            check_whole(dump(store))
    disk.remove()
    if faults.failed:
        result.seen[f"{faults.kind} failed as the store was {beginning}"] += 1
    return result

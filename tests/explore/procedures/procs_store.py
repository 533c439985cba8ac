"""A store in plain Python for the explorer: what it holds is a few dicts, so a search can make one in microseconds.

Which changes of a batch land is judged by the shipped judge (`store/batch.py`), as in SQLite and PostgreSQL; only the tables
are dicts. A `Handle` is one process's way to it: dead with its process, and pointed at another copy by nobody but a restore.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from semel.errors import StoreUnavailable
from semel.machine.journal import Row
from semel.machine.projection import EffectRow, InflightRow, ReadyRow, TaskRow, UnknownRow
from semel.store.around import asked_singly
from semel.store.batch import NOWHERE, Batch, Facts, SessionFacts, by_rank, unguarded
from semel.store.contract import (
    Around,
    Change,
    ClaimedTask,
    Claims,
    ClaimUnit,
    Fenced,
    Head,
    Landed,
    Outcome,
    SessionRow,
    StoreInfo,
    Unit,
    Witnessed,
    what_is_missing,
)

Stream = tuple[str, str]


class Tables:
    """What is on the disk. A copy of it is a backup."""

    def __init__(self, largest_ttl_ms: int) -> None:
        self.journal: dict[Stream, list[Row]] = {}
        self.tasks: dict[Stream, TaskRow] = {}
        self.keys: dict[tuple[str, str, str], str] = {}
        self.ready: set[ReadyRow] = set()
        self.inflight: set[InflightRow] = set()
        self.effects: dict[Stream, EffectRow] = {}
        self.unknown: dict[Stream, UnknownRow] = {}
        self.sessions: dict[str, SessionRow] = {}
        self.epoch, self.unfenced = 1, False
        self.largest_ttl_ms = largest_ttl_ms

    def backup(self) -> Tables:
        """A copy, as a restore would bring it back."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, dict | set) else value)
        other.journal = {stream: list(rows) for stream, rows in self.journal.items()}
        return other

    def commit(self, units: Sequence[Unit], landed: Callable[[Change], None]) -> list[Outcome]:
        """One transaction: the changes first, then the claims. landed: told of each change that is written."""
        batch = Batch(self._facts(units))
        outcomes: dict[int, Outcome] = {}
        for at, unit in enumerate(units):
            if isinstance(unit, Change):
                outcomes[at] = batch.change(unit)
        written = self._write(batch)
        for unit in units:
            if isinstance(unit, Change) and unit.id in written:
                landed(unit)
        for at, unit in enumerate(units):
            if isinstance(unit, ClaimUnit):
                outcomes[at] = self._claim(unit, landed)
        return [outcomes[at] for at in range(len(units))]

    def _facts(self, units: Sequence[Unit]) -> Facts:
        heads = {stream: self.head(stream) for stream in self.journal}
        sessions = {
            row.id: SessionFacts(row.epoch, row.beat, row.fenced, living=not row.fenced) for row in self.sessions.values()
        }
        ids = {
            (p.tenant, p.stream, p.rows[-1].seq): self._id(p.tenant, p.stream, p.rows[-1].seq)
            for unit in units if isinstance(unit, Change) for p in unit.parts if p.rows
        }  # fmt: skip
        held = {unit.guard.seen: self.holds_row(unit.guard.seen) for unit in units if unit.guard and unit.guard.seen}
        return Facts(heads, dict(self.keys), sessions, held, self.epoch, ids)

    def _id(self, tenant: str, stream: str, seq: int) -> str | None:
        rows = self.journal.get((tenant, stream), [])
        return rows[seq - 1].id if seq <= len(rows) else None

    def head(self, stream: Stream) -> Head:
        """Where a stream stands."""
        rows = self.journal.get(stream)
        return Head(rows[-1].seq, rows[-1].hash) if rows else NOWHERE

    def holds_row(self, seen: tuple[str, str, int, bytes]) -> bool:
        """Whether this very row is there."""
        rows = self.journal.get(seen[:2], [])
        return seen[2] <= len(rows) and rows[seen[2] - 1].hash == seen[3]

    def _write(self, batch: Batch) -> set[str]:
        """The ids of the changes that were written: what had landed before is answered, and not written again (R7)."""
        writes = batch.writes()
        if writes is None:
            return set()
        for *key, task in writes.keys:
            self.keys[key[0], key[1], key[2]] = task
        for row in writes.rows:
            stream = self.journal.setdefault((row.tenant, row.stream), [])
            if row.seq != len(stream) + 1:
                raise Torn(f"row {row.seq} of {row.stream} was let in behind row {len(stream)}")
            stream.append(row)
        self.tasks.update({row[:2]: row for row in writes.tasks})
        self.ready = (self.ready - set(writes.ready_gone)) | set(writes.ready)
        self.inflight = (self.inflight - set(writes.inflight_gone)) | set(writes.inflight)
        self.effects.update({row[:2]: row for row in writes.effects})
        for gone in writes.unknown_gone:
            self.unknown.pop(gone, None)
        self.unknown.update({row[:2]: row for row in writes.unknown})
        self.epoch = writes.epoch or self.epoch
        return {row.id for row in writes.rows}

    def _claim(self, unit: ClaimUnit, landed: Callable[[Change], None]) -> Outcome:
        facts = self._facts([unit])
        if why := unguarded(unit.guard, facts):
            return Fenced(why)
        due = [
            row for row in sorted(self.ready, key=by_rank)
            if row.queue in unit.queues and row.kind in unit.kinds and row.due <= unit.at
        ]  # fmt: skip
        wanted = [unit.task] if unit.task else [(row.tenant, row.task) for row in due]
        taken: list[ClaimedTask] = []
        for stream in wanted:
            rows = self.journal.get(stream, [])
            if len(taken) == unit.limit or not rows or (decided := unit.decide(stream[0], list(rows))) is None:
                continue
            change, after = decided
            batch = Batch(self._facts([change]))
            if isinstance(batch.change(change), Landed):
                self._write(batch)
                landed(change)
                taken.append(ClaimedTask(stream[0], after, self.head(stream)))
        return Claims(tuple(taken))


class Torn(AssertionError):
    """The judge let a row in that has no place: in a database the primary key would be violated."""


class Disk:
    """Where the tables are: a restore puts an earlier copy there. writes: how many transactions there were."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.landed: Callable[[Change], None] = lambda change: None


class Gone(BaseException):
    """The process that asks is dead: nothing of it runs any more."""


class Handle:
    """One process's connection to the store."""

    def __init__(self, disk: Disk, *, created: bool) -> None:
        self._disk, self.created = disk, created
        self.dead = False
        self.reread()

    @property
    def _now(self) -> Tables:
        if self.dead:
            raise Gone
        return self._disk.tables

    # --- writes ---

    def commit(self, units: Sequence[Unit]) -> list[Outcome]:
        return self._now.commit(units, self._disk.landed)

    def open_session(self, row: SessionRow) -> None:
        self._now.sessions[row.id] = row

    def beat(self, session: str, known: Sequence[str], nonce: str, number: int) -> bool:
        row = self._now.sessions.get(session)
        if row is None or row.fenced or row.nonce not in known or row.epoch != self._now.epoch:
            return False
        self._now.sessions[session] = row._replace(beat=number, nonce=nonce)
        return True

    def fence(self, session: str, nonce: str | None, how: str) -> bool:
        row = self._now.sessions.get(session)
        if row is None or row.fenced or nonce not in (None, row.nonce):
            return False
        self._now.sessions[session] = row._replace(fenced=how)
        return True

    def permit_ttl(self, ms: int) -> None:
        self._now.largest_ttl_ms = ms
        self.reread()

    def note_unfenced(self) -> None:
        self._now.unfenced = True
        self.reread()

    # --- reads ---

    def reread(self) -> StoreInfo:
        now = self._now
        self.info = StoreInfo(
            "store", "app", now.epoch, "sqlite", ":memory:", largest_ttl_ms=now.largest_ttl_ms, unfenced=now.unfenced
        )
        return self.info

    def still_here(self) -> bool:
        return True

    def hear(self, told: Callable[[], None] | None) -> bool:
        return False

    def close(self) -> None: ...

    def attach(self, witness: Callable[[], Sequence[Witnessed]]) -> None: ...

    def missing(self, seen: Witnessed) -> str:
        now = self._now
        rows = now.journal.get(seen.row[:2], []) if seen.row else []
        there = rows[seen.row[2] - 1].hash if seen.row and seen.row[2] <= len(rows) else None
        beaten = now.sessions.get(seen.beat[0]) if seen.beat else None
        return what_is_missing(seen, there, beaten.beat if beaten else None)

    def highest_at(self, until: int | None) -> int:
        times = [row.at for rows in self._now.journal.values() for row in rows if until is None or row.at <= until]
        return max(times, default=0)

    def sessions(self) -> list[SessionRow]:
        return [row for row in self._now.sessions.values() if not row.fenced]

    def session(self, id: str) -> SessionRow | None:
        return self._now.sessions.get(id)

    def head(self, tenant: str, stream: str) -> Head:
        return self._now.head((tenant, stream))

    def rows(self, tenant: str, stream: str, after: int = 0) -> list[Row]:
        return self._now.journal.get((tenant, stream), [])[after:]

    def task(self, tenant: str, task: str) -> TaskRow | None:
        return self._now.tasks.get((tenant, task))

    def tasks(self, tenant: str | None, *, delivery: str = "", after: str = "", limit: int = 100, **_: Any) -> list[TaskRow]:
        rows = sorted(self._now.tasks.values(), key=lambda row: row.task, reverse=True)
        return [row for row in rows if delivery in ("", row.delivery) and (not after or row.task < after)][:limit]

    def effect(self, tenant: str | None, key: str) -> EffectRow | None:
        return next((row for row in self._now.effects.values() if row.key == key and tenant in (None, row.tenant)), None)

    def unknown(self, tenant: str | None, *, limit: int = 100) -> list[UnknownRow]:
        return sorted(self._now.unknown.values(), key=lambda row: row.since)[:limit]

    def held(self, session: str) -> list[InflightRow]:
        return sorted(row for row in self._now.inflight if row.session == session)

    def orphans(self, after: InflightRow | None, limit: int, tenant: str | None = None) -> list[tuple[InflightRow, str]]:
        found = []
        for row in sorted(self._now.inflight):
            session = self._now.sessions.get(row.session)
            if (session is None or session.fenced) and (after is None or row > after):
                found.append((row, session.fenced if session else "missing"))
        return found[:limit]

    def around(self, session: str, tenant: str | None, most: int) -> Around:
        return asked_singly(self, session, tenant, most)

    def journals(self, streams: Sequence[Stream]) -> dict[Stream, list[Row]]:
        return {stream: self.rows(*stream) for stream in streams}

    def streams(self, after: Stream, limit: int) -> list[Stream]:
        return [stream for stream in sorted(self._now.journal) if stream > after][:limit]


def unavailable() -> StoreUnavailable:
    """What a store says that did not answer."""
    return StoreUnavailable("the store did not answer")

"""The contract on PostgreSQL 14 or later, through psycopg 3: many processes on many machines over one database.

READ COMMITTED. A batch is one round trip: what it rests on is locked, asked for, written, by arrays, and committed; or none
of it, if anything has moved on (`pgexpect`). Then it is two: what it rests on is locked and read; what lands is written and
committed. Between the two a rival may commit: then a row of ours meets its primary key, the whole transaction is undone,
and judged again on what is there now (R5). Nothing is ever dropped on a conflict: the next row would land on a rival's.
One order over all tables: living, task and effect (checks), ready, task_key, journal, task, inflight, effect, unknown.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from psycopg import errors

from semel.errors import StoreUnavailable
from semel.machine import epochs
from semel.machine.journal import GENESIS, Row
from semel.machine.projection import EffectRow, InflightRow, Tables, TaskRow, UnknownRow
from semel.store import forks, pgschema
from semel.store.around import answered
from semel.store.batch import touched
from semel.store.contract import (
    LARGEST_TTL_MS,
    Age,
    Around,
    Broken,
    Busy,
    Change,
    ClaimUnit,
    Depth,
    Head,
    Outcome,
    SessionRow,
    StoreInfo,
    Tally,
    Unit,
    Witnessed,
    what_is_missing,
)
from semel.store.pgatomic import Lender, Lent
from semel.store.pgclaims import Floors, Group, Pair
from semel.store.pglink import BY_INDEX, LOCKED, PLAIN_PLANS, UNAVAILABLE, Link, int_array, target, text_array
from semel.store.pglisten import Hints
from semel.store.pgpipe import Answer
from semel.store.pgwrite import NotAsExpected, Transaction

LOCK_MS = 200  # a change that waits longer for a lock leaves the batch
BUSY_MS = 20  # the same, for one that is known to, or may be the one
CAREFUL_SECONDS = 1.0  # after a hope in vain: each writes a line into the server's log
MOST_REDONE = 50  # of which each means that a rival has committed
TOO_MUCH = (errors.ProgramLimitExceeded, errors.OutOfMemory, errors.InternalError_)  # it may be one of them, or their sum
RACES = ("journal_pkey", "task_key_pkey")
log = logging.getLogger("semel")

WRITER = {**PLAIN_PLANS, "lock_timeout": f"{LOCK_MS}ms", "statement_timeout": "20s"}
READER = {**BY_INDEX, "lock_timeout": "500ms", "statement_timeout": "25s"}
BEATS = {**PLAIN_PLANS, "lock_timeout": "1s", "statement_timeout": "2500ms"}


def _in_vain(error: Exception, units: Sequence[Unit]) -> bool:
    """Whether a hopeful transaction met what a careful one may not: what has moved on, or a task that cannot be claimed."""
    if any(isinstance(unit, ClaimUnit) for unit in units):  # it passes over what is held, or breaks a rule
        return isinstance(error, LOCKED) or not isinstance(error, (*UNAVAILABLE, StoreUnavailable))
    return isinstance(error, errors.InvalidTextRepresentation | errors.UniqueViolation)


class Postgres:
    """A store in a PostgreSQL database, in a schema named semel. At most four connections, and two for `Atomic` effects.

    No I/O is shared with a fork.

    url: postgresql://user@host:port,host:port/database, or a libpq connection string; `?pgbouncer=1`: a pool in transaction
    mode is in between.
    """

    def __init__(self, url: str) -> None:
        self._where = target(url)
        self._pid = os.getpid()
        self._closed = False
        self._strange = ""  # why this is not the store that was opened
        self._busy: set[str] = set()  # changes that wait for a lock, by id
        self._doubt = False  # a commit was not answered: the next must be waited for by itself (R7)
        self._careful_until = 0.0
        self._floors = Floors()
        self._witness: Callable[[], Sequence[Witnessed]] = tuple
        more = self._first_look()
        self._writer = Link(self._where, "writer", patience=25, settings={**WRITER, **more}, check=self._check)
        self._reader = Link(self._where, "reader", patience=30, settings={**READER, **more}, check=self._check)
        self._beats = Link(self._where, "beats", patience=3, settings={**BEATS, **more}, check=self._check)
        hints = Link(self._where, "hints", patience=5, settings={})
        self._hints = Hints(None if self._where.pgbouncer else hints)
        self._links = [self._writer, self._reader, self._beats, hints]
        self._lender = Lender(self._where, {**WRITER, **more}, self._check)
        forks.opened(self)

    def _first_look(self) -> dict[str, str]:
        """Check the server, make the schema or check it. What must be set on every connection besides."""
        link = Link(self._where, "opening", patience=90, settings={"statement_timeout": "80s"})
        try:
            with link.answered():
                found = pgschema.server(link)
                pgschema.check_server(found, self._where.place)
                meta, self.created = pgschema.prepare(link, self._where.place)
                tenant = pgschema.whose(link, self._where.place)
        finally:
            link.close()
        self._learn(meta, found, tenant)
        return {"synchronous_commit": "on"} if pgschema.raised(found) else {}

    def _learn(self, meta: Mapping[str, str], found: pgschema.Server, tenant: str | None) -> None:
        self.info = StoreInfo(
            meta["id"], meta["application"], int(meta["epoch"]), "postgres", self._where.place,
            pgschema.durability(found, several=self._where.several), int(meta.get("largest_ttl_ms", LARGEST_TTL_MS)), tenant,
            "unfenced" in meta,
        )  # fmt: skip

    def _check(self, link: Link) -> None:
        """On each new connection: this must still be the store that was opened (R15), and not have gone back (R19)."""
        server, meta = link.pipe(("server", None), ("meta", None))
        known = dict(meta.rows)
        if known.get("id") != self.info.id:
            other = StoreUnavailable(f"{self._where.place} holds another store now; start this process again")
            self._strange = str(other)
            raise other
        self._learn(known, pgschema.Server(*server.rows[0]), self.info.tenant)
        for seen in self._witness():
            if self.info.epoch <= seen.epoch and (gone := self._missing(link, seen)):
                error = StoreUnavailable(
                    f"{self._where.place} went back: it does not hold {gone}, which it had acknowledged; start this process "
                    f"again, and see: semel restore"
                )
                self._strange = str(error)
                raise error
        self._strange = ""

    def _missing(self, link: Link, seen: Witnessed) -> str:
        if self.info.epoch < seen.epoch:
            return f"epoch {seen.epoch}"
        row = dict(zip(("tenant", "stream", "seq", "hash"), seen.row or (None,) * 4, strict=True))
        ((held, beaten),) = link.pipe(("witnessed", {**row, "session": seen.beat[0] if seen.beat else None}))[0].rows
        return what_is_missing(seen, bytes(held) if held is not None else None, beaten)

    # --- the handle ---

    @property
    def locks(self) -> list[Any]:
        """Nothing that a fork must wait for: the child only lets go of the sockets, whatever its parent is doing on them."""
        return []

    @property
    def file(self) -> tuple[int, int] | None:
        """There is none."""
        return None

    def close(self) -> None:
        """Close the connections; the second time nothing happens. In a forked child: leave the parent's alone."""
        if os.getpid() != self._pid:
            self._hints.abandon()
            self._lender.abandon()
            for link in self._links:
                link.abandon()
        elif not self._closed:
            self._closed = True
            self._hints.close()
            self._lender.close()
            for link in self._links:
                link.close()
            forks.closed(self)
        self._closed = True

    def still_here(self) -> bool:
        """Whether the newest connection found the store that was opened (R15). The epoch is asked in each beat and guard."""
        return not self._strange

    def attach(self, witness: Callable[[], Sequence[Witnessed]]) -> None:
        """Ask on every further connect whether the database still holds what was witnessed (R19)."""
        self._witness = witness

    def reread(self) -> StoreInfo:
        """What the database says of itself now."""
        server, meta = self._read(("server", None), ("meta", None))
        self._learn(dict(meta.rows), pgschema.Server(*server.rows[0]), self.info.tenant)
        return self.info

    def permit_ttl(self, ms: int) -> None:
        """The largest TTL that a session may have from now on."""
        self._reader.transaction(("put_meta", ("largest_ttl_ms", str(ms))))
        self.reread()

    def note_unfenced(self) -> None:
        """A process that nothing can stop works from now on."""
        self._reader.transaction(("put_meta", ("unfenced", "1")))
        self.reread()

    def missing(self, seen: Witnessed) -> str:
        """What of this the database does not hold. Each beat asks, and waits for no long read."""
        with self._beats.lock, self._beats.answered():
            return self._missing(self._beats, seen)

    def highest_at(self, until: int | None) -> int:
        """The highest time in the journal, up to then."""
        return int(self._one("highest_at", {"until": until})[0])

    # --- writes ---

    def commit(self, units: Sequence[Unit]) -> list[Outcome]:
        """One transaction for all; what cannot land is answered, and takes nobody along.

        What waits for a lock is answered `Busy`. Given again, it is tried in a transaction of its own, and not long.
        """
        with self._writer.lock:
            fresh, waiting = self._sorted_out(units)
            try:
                with self._writer.answered():
                    outcomes = dict(zip(fresh, self._land([units[at] for at in fresh], LOCK_MS), strict=True))
                    again = self._land([units[at] for at in waiting], BUSY_MS)
            except StoreUnavailable:
                self._doubt = True
                raise
            outcomes.update(zip(waiting, again, strict=True))
            told = [outcomes[at] for at in range(len(units))]
            if self._busy or Busy in map(type, told):
                self._remember_busy(units, told)
            return told

    def _remember_busy(self, units: Sequence[Unit], told: Sequence[Outcome]) -> None:
        for unit, outcome in zip(units, told, strict=True):
            if isinstance(outcome, Busy) and isinstance(unit, Change) and unit.id:
                self._busy.add(unit.id)
            elif self._busy and isinstance(unit, Change):
                self._busy.discard(unit.id)

    def _sorted_out(self, units: Sequence[Unit]) -> tuple[list[int], list[int]]:
        """Which units are new, and which are known to wait for a lock, or stand behind one that is."""
        if not self._busy:
            return list(range(len(units))), []
        waiting: list[int] = []
        behind: set[tuple[str, str]] = set()
        for at, unit in enumerate(units):
            if isinstance(unit, Change) and (unit.id in self._busy or touched(unit) & behind):
                waiting.append(at)
                behind |= touched(unit)
        return [at for at in range(len(units)) if at not in set(waiting)], waiting

    def _land(self, units: Sequence[Unit], wait_ms: int) -> list[Outcome]:
        """Land what can; the culprit of a trouble is found by halves."""
        if not units:
            return []
        for _ in range(MOST_REDONE):
            try:
                return self._transaction(units, wait_ms)
            except errors.UniqueViolation as error:
                self._writer.roll_back()
                trouble: Exception = error
                if error.diag.constraint_name not in RACES:
                    break
            except LOCKED:
                self._writer.roll_back()
                if len(units) == 1:
                    return [Busy()]
                return self._halves(units, min(wait_ms, BUSY_MS))
            except TOO_MUCH as error:
                self._writer.roll_back()
                if len(units) == 1 and not isinstance(error, errors.ProgramLimitExceeded):
                    raise
                trouble = error
                break
            except errors.InsufficientPrivilege as error:  # another tenant's row, or a right that this role has not
                self._writer.roll_back()
                trouble = error
                break
            except (*UNAVAILABLE, StoreUnavailable):
                raise
            except Exception as error:
                self._writer.roll_back()
                trouble = error
                break
        if len(units) == 1:
            log.error("semel: a change breaks a rule of the database, and can never land", exc_info=trouble)
            return [Broken(f"{type(trouble).__name__}: {trouble}")]
        return self._halves(units, wait_ms)

    def _halves(self, units: Sequence[Unit], wait_ms: int) -> list[Outcome]:
        half = len(units) // 2
        outcomes = self._land(units[:half], wait_ms)
        behind: set[tuple[str, str]] = set()
        for unit, outcome in zip(units[:half], outcomes, strict=True):
            if isinstance(unit, Change) and outcome == Busy():
                behind |= touched(unit)
        rest: list[Unit] = []
        held: set[int] = set()
        for at, unit in enumerate(units[half:]):
            if isinstance(unit, Change) and touched(unit) & behind:  # not stale: what it follows may yet land
                behind |= touched(unit)
                held.add(at)
            else:
                rest.append(unit)
        others = iter(self._land(rest, wait_ms))
        return [*outcomes, *(Busy() if at in held else next(others) for at in range(len(units) - half))]

    def _transaction(self, units: Sequence[Unit], wait_ms: int) -> list[Outcome]:
        """Hopefully; carefully if that was in vain, and for a while after it was in vain on the server."""
        if not self._doubt and time.monotonic() >= self._careful_until:
            try:
                return self._attempt(units, wait_ms, hopeful=True)
            except NotAsExpected:
                pass
            except Exception as error:
                self._careful_until = time.monotonic() + CAREFUL_SECONDS
                if not _in_vain(error, units):
                    raise
                self._writer.roll_back()
        return self._attempt(units, wait_ms, hopeful=False)

    def _attempt(self, units: Sequence[Unit], wait_ms: int, *, hopeful: bool) -> list[Outcome]:
        wait_ms = wait_ms if wait_ms != LOCK_MS else 0
        transaction = Transaction(self._writer, self._floors, doubt=self._doubt, wait_ms=wait_ms, hint=self._riding)
        outcomes = transaction.run(units, hopeful=hopeful)
        self._doubt = self._doubt and not transaction.wrote
        if transaction.hinted:
            self._hints.rode(self._writer.behind)
        elif transaction.wrote:
            self._hints.tell(queued=transaction.queued)
        return outcomes

    def _riding(self) -> str:
        return self._hints.riding(self._writer.server())  # known before it speaks: nobody is to hear himself

    def lend(self, seconds: float, idle_seconds: float) -> Lent:
        """A transaction for an `Atomic` effect, on a connection beside the four; of those there are two at most."""
        return self._lender.lend(seconds, idle_seconds)

    # --- sessions ---

    def open_session(self, row: SessionRow) -> None:
        """A new life."""
        self._beats.transaction(("open_session", tuple(row)))

    def beat(self, session: str, known: Sequence[str], nonce: str, number: int) -> bool:
        """Compare-and-set on the own beat. False: fenced, or not this store any more."""
        call = ("beat", {"id": session, "known": text_array(known), "nonce": nonce, "number": number})
        return self._beats.transaction(call)[0].changed == 1

    def fence(self, session: str, nonce: str | None, how: str) -> bool:
        """Compare-and-set on a watched beat. Waits for what that session has under way, half a second at most."""
        calls = ("lock_to_fence", {"id": session}), ("fence", {"id": session, "nonce": nonce, "how": how})
        return len(self._reader.transaction(*calls)[1].rows) == 1

    def sessions(self) -> list[SessionRow]:
        """Those that are not fenced."""
        return [SessionRow(*row) for row in self._all("living")]

    def session(self, id: str) -> SessionRow | None:
        """One session, fenced or not."""
        row = self._one("session", (id,))
        return SessionRow(*row) if row else None

    def around(self, session: str, tenant: str | None, most: int) -> Around:
        """What a session looks at beside each beat, in one statement."""
        (row,) = self._all("around", {
            "epochs": epochs.TENANT, "standing": epochs.STREAM, "own": session, "tenant": tenant, "most": most,
        })  # fmt: skip
        self._learn(json.loads(row[0]), pgschema.Server(*row[1:10]), self.info.tenant)
        return answered(self.info, row[10:])

    # --- reads ---

    def _read(self, *calls: tuple[str, Any]) -> list[Answer]:
        """Read; once more on a fresh connection if the one at hand turns out to be cut."""
        with self._reader.lock:
            had = self._reader.pid
            try:
                return self._reader.transaction(*calls)
            except StoreUnavailable:
                if not had or self._reader.pid:
                    raise
            return self._reader.transaction(*calls)

    def _all(self, name: str, params: Any = None) -> list[Any]:
        return self._read((name, params))[0].rows

    def _one(self, name: str, params: Any = None) -> Any:
        return next(iter(self._all(name, params)), None)

    def head(self, tenant: str, stream: str) -> Head:
        """Where a stream stands."""
        row = self._one("head", (tenant, stream))
        return Head(*row) if row else Head(0, GENESIS)

    def rows(self, tenant: str, stream: str, after: int = 0) -> list[Row]:
        """A stream's rows, in order."""
        return [Row(*row) for row in self._all("rows", (tenant, stream, after))]

    def journals(self, streams: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[Row]]:
        """The rows of each of these, in one statement."""
        found: dict[tuple[str, str], list[Row]] = {stream: [] for stream in streams}
        given = {"tenants": text_array(s[0] for s in found), "streams": text_array(s[1] for s in found)}
        for row in self._all("rows_of", given):
            found[row[0], row[1]].append(Row(*row))
        return found

    def task(self, tenant: str, task: str) -> TaskRow | None:
        """One task's row."""
        row = self._one("task", (tenant, task))
        return TaskRow(*row) if row else None

    def find_task(self, tenant: str, kind: str, key: str) -> str | None:
        """The id of the task of that key."""
        row = self._one("find_task", (tenant, kind, key))
        return row[0] if row else None

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
        """Tasks, newest first."""
        wanted = {"delivery": delivery, "execution": execution, "kind": kind, "queue": queue, "after": after, "limit": limit}
        if tenant is None:  # all are of one, mostly: then they lie in order
            first, last = self._one("tenants")
            tenant = first if first == last else None
        return [TaskRow(*row) for row in self._all("tasks" if tenant is None else "tasks_of", {"tenant": tenant, **wanted})]

    def tasks_after(self, after: tuple[str, str], limit: int) -> list[TaskRow]:
        """All tasks, in order, a page at a time."""
        return [TaskRow(*row) for row in self._all("tasks_after", (*after, limit))]

    def unfinished(
        self, tenant: str | None, begun: Sequence[str], every: Sequence[str], after: tuple[str, str], visits: int
    ) -> tuple[list[TaskRow], tuple[str, str] | None]:
        """Unfinished tasks that have begun, or are of certain kinds, in order."""
        owner, id = max(after, (tenant or "", ""))
        page = {"tenant": tenant, "owner": owner, "after": id, "visits": visits}
        found = self._all("unfinished", {**page, "begun": text_array(begun), "every": text_array(every)})
        more = bool(found) and found[-1][-2] == visits
        return [TaskRow(*row[:-2]) for row in found if row[-1]], (found[-1][0], found[-1][1]) if more else None

    def ages(self, tenant: str | None, after: tuple[str, str], limit: int, *, keys: bool = False) -> list[Age]:
        """Tasks or tenant-scoped keys, in order."""
        page = {"tenant": tenant, "owner": after[0], "after": after[1], "limit": limit}
        return [Age(*row) for row in self._all("key_ages" if keys else "ages", page)]

    def effect(self, tenant: str | None, key: str) -> EffectRow | None:
        """One effect's row."""
        row = self._one("effect_of_any_tenant", (key,)) if tenant is None else self._one("effect", (tenant, key))
        return EffectRow(*row) if row else None

    def effects(
        self, tenant: str | None, *, state: str = "", task: str = "", after: str = "", limit: int = 100
    ) -> list[EffectRow]:
        """Effects, by key."""
        wanted = {"tenant": tenant, "state": state, "task": task, "after": after, "limit": limit}
        return [EffectRow(*row) for row in self._all("effects" if tenant is None else "effects_of", wanted)]

    def effects_after(self, after: tuple[str, str], limit: int) -> list[EffectRow]:
        """All effects, in order, a page at a time."""
        return [EffectRow(*row) for row in self._all("effects_after", (*after, limit))]

    def unknown(self, tenant: str | None, *, limit: int = 100) -> list[UnknownRow]:
        """The unknown-work queue, oldest first."""
        return [UnknownRow(*row) for row in self._all("unknown", {"tenant": tenant, "limit": limit})]

    def held(self, session: str) -> list[InflightRow]:
        """The tasks that are leased to a session."""
        return [InflightRow(*row) for row in self._all("held", (session,))]

    def orphans(self, after: InflightRow | None, limit: int, tenant: str | None = None) -> list[tuple[InflightRow, str]]:
        """Tasks of fenced or missing sessions."""
        place = dict(zip(("session", "after", "task"), after or ("", "", ""), strict=True))
        rows = self._all("orphans", {**place, "limit": limit, "tenant": tenant})
        return [(InflightRow(*row[:3]), row[3]) for row in rows]

    def counts(self, tenant: str | None) -> dict[str, dict[str, int]]:
        """How many of each state, by ledger."""
        ledgers = ("delivery", "execution", "effect")
        answers = self._read(*((f"count_{ledger}", {"tenant": tenant}) for ledger in ledgers))
        return {ledger: dict(answer.rows) for ledger, answer in zip(ledgers, answers, strict=True)}

    def tally(self, tenant: str | None) -> Tally:
        """What is unknown, waits, and is at work."""
        of, whose = ("tally_unknown", "tally_tasks", "tally_depths"), {"tenant": tenant}
        unknown, tasks, depths, sessions = (
            answer.rows for answer in self._read(*((name, whose) for name in of), ("tally_sessions", None))
        )
        (many, oldest), (asking, at_work) = unknown[0], tasks[0]
        return Tally(many, oldest, asking, at_work, dict(sessions), tuple(Depth(*row) for row in depths))

    def next_due(self, queues: Sequence[str], kinds: Sequence[str], tenant: str | None = None) -> int | None:
        """When the first waiting task of these falls due."""
        pairs = [(queue, kind) for queue in queues for kind in kinds]
        fresh: list[Group] | None = None

        def look(due: Sequence[Pair]) -> list[Group]:
            nonlocal fresh
            found = self._look(due)
            fresh = found if set(due) == set(pairs) else None
            return found

        groups = self._floors.groups(pairs, look)
        if not groups or (fresh is not None and (tenant is None or not fresh)):  # a full look, just now, has told already
            return min((group.floor for group in fresh or ()), default=None)
        columns = list(zip(*groups, strict=True))
        found = self._all("dues", {
            "queues": text_array(columns[0]), "kinds": text_array(columns[1]), "ranks": int_array(columns[2]),
            "floors": int_array(columns[3]), "tenant": tenant,
        })  # fmt: skip
        return min((due for (due,) in found), default=None)

    def _look(self, pairs: Sequence[Pair]) -> list[Group]:
        wanted = {"queues": text_array(p[0] for p in pairs), "kinds": text_array(p[1] for p in pairs)}
        return [Group(*row) for row in self._all("look", wanted)]

    def foreign(self, queues: Sequence[str], kinds: Sequence[str], tenant: str | None = None) -> list[tuple[str, str]]:
        """What waits in these queues and is of none of these kinds."""
        found = self._all("kinds", {"queues": text_array(queues), "tenant": tenant})
        return [(queue, kind) for queue, kind in found if kind not in kinds]

    def streams(self, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
        """All streams, in order, a page at a time."""
        return [(row[0], row[1]) for row in self._all("streams", (*after, limit))]

    def heads(self, after: tuple[str, str], limit: int) -> list[tuple[str, str, int, bytes]]:
        """Where all streams stand, in order, a page at a time."""
        return [(row[0], row[1], row[2], bytes(row[3])) for row in self._all("heads_after", (*after, limit))]

    def holds(self, tables: Tables) -> list[str]:
        """Which of these rows the tables do not hold exactly so."""
        wrong = []
        if tables.task is not None:
            found = self.task(tables.task.tenant, tables.task.task)
            if found != tables.task:
                wrong.append(f"task row is {found}, the journal says {tables.task}")
        for name, row in (("ready", tables.ready), ("inflight", tables.inflight)):
            if row is not None and not self._all(f"has_{name}", tuple(row)):
                wrong.append(f"{name} row is missing: {row}")
        for effect in tables.effects:
            held = self.effect(effect.tenant, effect.key)
            if held != effect:
                wrong.append(f"effect row is {held}, the journal says {effect}")
        for unknown in tables.unknown:
            there = self._one("unknown_row", unknown[:2])
            if there is None or UnknownRow(*there) != unknown:
                wrong.append(f"unknown row is {there}, the journal says {unknown}")
        return wrong

    def sizes(self) -> dict[str, int]:
        """How many rows each table has."""
        return dict(zip(("task", "ready", "inflight", "effect", "unknown", "task_key"), self._one("sizes"), strict=True))

    def changed(self) -> int:
        """Moves soon after another process has written, if the hint came through (`pglisten`)."""
        if self._closed:
            raise StoreUnavailable("the store is closed; make a new semel.App to go on")
        return self._hints.changed()

    def hear(self, told: Callable[[], None] | None) -> bool:
        """By NOTIFY; through a pool none comes."""
        return self._hints.hear(told)

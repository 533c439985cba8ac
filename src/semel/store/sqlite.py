"""The contract on SQLite, through apsw. WAL, synchronous=FULL, BEGIN IMMEDIATE; several processes on one file."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from semel.errors import StoreUnavailable
from semel.machine.journal import GENESIS, Row
from semel.machine.projection import EffectRow, InflightRow, Tables, TaskRow, UnknownRow
from semel.store import forks, guardfile, sqlitefile
from semel.store.around import asked_singly
from semel.store.bell import Bell
from semel.store.contract import (
    LARGEST_TTL_MS,
    Age,
    Around,
    Broken,
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
from semel.store.passed import Passed
from semel.store.sqlitewrite import BUSY, SQL, UNAVAILABLE, Writing

BUSY_SECONDS = 30.0
STATEMENTS = 256  # that are kept prepared; each row of `executemany` takes the place of the oldest
log = logging.getLogger("semel")


class Connection:
    """One apsw connection, and the lock that lets one thread use it at a time (and a fork wait for a quiet moment)."""

    def __init__(self, place: str, *, busy_seconds: float = BUSY_SECONDS, vfs: str | None = None) -> None:
        self.lock = threading.RLock()
        self.raw = apsw.Connection(place, vfs=vfs, statementcachesize=STATEMENTS)
        if vfs is not None:
            self.raw.execute("PRAGMA locking_mode=exclusive")  # before WAL is met: a VFS in Python has no shared memory
        self._patience = busy_seconds
        self._waiting_since = 0.0
        self.raw.set_busy_handler(self._busy)
        self.raw.execute("PRAGMA temp_store=memory")

    def _busy(self, tried: int) -> bool:
        """Another process writes: wait a moment of chance length, so that two do not step in time."""
        now = time.monotonic()
        if tried == 0:
            self._waiting_since = now
        if now - self._waiting_since > self._patience:
            return False
        time.sleep(random.uniform(0.0002, 0.002))
        return True

    def all(self, name: str, params: Sequence[Any] = ()) -> list[Any]:
        """The rows of a named statement."""
        with self.lock, translated():
            return list(self.raw.execute(SQL[name], tuple(params)))

    def one(self, name: str, params: Sequence[Any] = ()) -> Any:
        """The first row of a named statement, or None."""
        rows = self.all(name, params)
        return rows[0] if rows else None

    def change(self, name: str, params: Sequence[Any] = ()) -> int:
        """Run a named statement as a transaction of its own; how many rows it changed."""
        with self.lock, translated():
            self.raw.execute(SQL[name], tuple(params))
            return self.raw.changes()


class translated:  # noqa: N801  (used as a statement)
    """apsw's errors as ours: nothing is known of what was under way. A class: a generator would be felt at each commit."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, BUSY):
            raise StoreUnavailable(f"the store is busy ({error}): another process holds its write lock") from error
        if isinstance(error, UNAVAILABLE):
            raise StoreUnavailable(f"the store did not answer: {error}") from error


class SQLite:
    """A store in one file, or in memory (`:memory:`), for several processes of one machine.

    vfs: for tests of the disk. The name of a registered apsw VFS in which `place` is a file, for this handle alone: no path
    of this machine names it, so nothing is asked of paths, and no POSIX lock or inode of it can be lost.
    """

    def __init__(self, place: str, *, vfs: str | None = None) -> None:
        self.place, self._vfs = place, vfs
        self.memory = place == ":memory:"
        self._alone = self.memory or vfs is not None  # one connection for all
        self._path = None if self._alone else Path(place).absolute()  # a relative one would follow the process's folder
        self._log_path = self._path and Path(f"{self._path}-wal")
        self._connections: list[Connection] = []
        self._guarded: str | None = None
        self._inode: tuple[int, int] | None = None
        self._log: tuple[int, int] | None = None
        self._bell = Bell(Path(f"{self._path}-wal") if self._path else None)
        with forks.lock:
            if self._path:
                sqlitefile.check_place(self._path)
                forks.check(self._path)
                self._guarded = guardfile.guard(self._path)
            try:
                self._open()
            except BaseException:
                self.close()
                raise
            forks.opened(self)

    def _open(self) -> None:
        with translated():
            self._writer = self._connect()
            self._writing = Writing(self._writer.raw, Passed())
            self.created = sqlitefile.prepare(self._writer.raw, self.place)
            self._reader = self._writer if self._alone else self._connect()
            self._beats = self._writer if self._alone else self._connect()
            for connection in self._connections:
                sqlitefile.pragmas(connection.raw)
        self._inode = sqlitefile.inode(self._path)
        self.reread()
        self._log = sqlitefile.inode(self._log_path)

    def _connect(self) -> Connection:
        connection = Connection(str(self._path or self.place), vfs=self._vfs)
        self._connections.append(connection)
        return connection

    @property
    def locks(self) -> list[Any]:
        """What a fork must hold, so that no transaction is under way in it."""
        return [connection.lock for connection in self._connections]

    @property
    def file(self) -> tuple[int, int] | None:
        """The device and inode of the open file."""
        return self._inode

    def close(self) -> None:
        """Close the connections; the second time nothing happens."""
        with forks.lock:
            self._bell.close()
            for connection in reversed(self._connections):
                with connection.lock:
                    if not self.still_here():  # what is in our log must not be written into what is there now
                        with contextlib.suppress(apsw.ConnectionClosedError):
                            connection.raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                    connection.raw.close()
            forks.closed(self)
            guarded, self._guarded = self._guarded, None
            if guarded:
                guardfile.release(guarded)

    def still_here(self) -> bool:
        """Whether the path still names the file that is open (R15), and its log: a restored copy in its place is another store.

        What is copied *into* the open file takes its log away, or nothing that we write into that would be found again.
        """
        return (sqlitefile.inode(self._path), sqlitefile.inode(self._log_path)) == (self._inode, self._log)

    def attach(self, witness: Callable[[], Sequence[Witnessed]]) -> None:
        """A file that is open cannot go back; one that is put in its place is noticed by its inode."""

    def reread(self) -> StoreInfo:
        """What the file says of itself now."""
        meta = dict(self._writer.all("meta"))
        largest = int(meta.get("largest_ttl_ms", LARGEST_TTL_MS))
        shown = self.place if self._path is None else str(self._path.resolve())
        self.info = StoreInfo(
            meta["id"], meta["application"], int(meta["epoch"]), "sqlite", shown, largest_ttl_ms=largest,
            unfenced="unfenced" in meta,
        )  # fmt: skip
        return self.info

    def permit_ttl(self, ms: int) -> None:
        """The largest TTL that a session may have from now on."""
        self._beats.change("put_meta", ("largest_ttl_ms", str(ms)))
        self.reread()

    def note_unfenced(self) -> None:
        """A process that nothing can stop works from now on."""
        self._beats.change("put_meta", ("unfenced", "1"))
        self.reread()

    def missing(self, seen: Witnessed) -> str:
        """What of this the file does not hold."""
        row, beat = seen.row, seen.beat
        held = self._beats.one("hash_at", row) if row else None  # each beat asks, and waits for no long read
        beaten = self._beats.one("beat_of", beat[:1]) if beat else None
        return what_is_missing(seen, held[0] if held else None, beaten[0] if beaten else None)

    def highest_at(self, until: int | None) -> int:
        """The highest time in the journal, up to then."""
        return int(self._reader.one("highest_at", (until, until))[0])

    # --- writes ---

    def commit(self, units: Sequence[Unit]) -> list[Outcome]:
        """One transaction for all; what cannot land is answered, and takes nobody along."""
        with self._writer.lock, translated():
            self._must_be_here()
            outcomes = self._land(units)
            self._must_be_here()  # only now: the file may have gone while we wrote
            self._bell.ring(units)
            return outcomes

    def _must_be_here(self) -> None:
        """What is written into a file that no path names any more is lost, and must not be acknowledged."""
        if not self.still_here():
            raise StoreUnavailable(f"the store {self.place} was removed or replaced while it was open; start this process again")

    def _land(self, units: Sequence[Unit]) -> list[Outcome]:
        try:
            return self._transaction(units)
        except (*BUSY, *UNAVAILABLE):
            raise
        except Exception as error:  # one of them breaks a rule: find out which, by halves
            if len(units) <= 1:
                log.exception("semel: a change breaks a rule of the database, and can never land")
                return [Broken(f"{type(error).__name__}: {error}") for _ in units]
            half = len(units) // 2
            return [*self._land(units[:half]), *self._land(units[half:])]

    def _transaction(self, units: Sequence[Unit]) -> list[Outcome]:
        raw, writing = self._writer.raw, self._writing
        if raw.in_transaction:  # a rollback failed
            raw.execute("ROLLBACK")
        raw.execute("BEGIN IMMEDIATE")
        try:
            writing.begin()
            outcomes = writing.change({at: unit for at, unit in enumerate(units) if isinstance(unit, Change)})
            for at, unit in enumerate(units):
                if isinstance(unit, ClaimUnit):
                    outcomes[at] = writing.claim(unit)
            raw.execute("COMMIT")
            writing.committed()
            return [outcomes[at] for at in range(len(units))]
        finally:
            if raw.in_transaction:
                with contextlib.suppress(apsw.Error):
                    raw.execute("ROLLBACK")

    # --- sessions ---

    def open_session(self, row: SessionRow) -> None:
        """A new life."""
        self._beats.change("open_session", row)

    def beat(self, session: str, known: Sequence[str], nonce: str, number: int) -> bool:
        """Compare-and-set on the own beat. False: fenced, or not this store any more."""
        beaten = self._beats.change("beat", (number, nonce, session, json.dumps(list(known)))) == 1
        return beaten and self.still_here()  # in this order: the file may be replaced meanwhile

    def fence(self, session: str, nonce: str | None, how: str) -> bool:
        """Compare-and-set on a watched beat."""
        return self._beats.change("fence", (session, how, nonce)) == 1

    def sessions(self) -> list[SessionRow]:
        """Those that are not fenced."""
        return [SessionRow(*row) for row in self._beats.all("living")]

    def session(self, id: str) -> SessionRow | None:
        """One session, fenced or not."""
        row = self._reader.one("session", (id,))
        return SessionRow(*row) if row else None

    def around(self, session: str, tenant: str | None, most: int) -> Around:
        """What a session looks at beside each beat."""
        return asked_singly(self, session, tenant, most)

    # --- reads ---

    def head(self, tenant: str, stream: str) -> Head:
        """Where a stream stands."""
        row = self._reader.one("head", (tenant, stream))
        return Head(*row) if row else Head(0, GENESIS)

    def rows(self, tenant: str, stream: str, after: int = 0) -> list[Row]:
        """A stream's rows, in order."""
        return [Row(*row) for row in self._reader.all("rows", (tenant, stream, after))]

    def journals(self, streams: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[Row]]:
        """The rows of each of these."""
        return {stream: self.rows(*stream) for stream in streams}

    def task(self, tenant: str, task: str) -> TaskRow | None:
        """One task's row."""
        row = self._reader.one("task", (tenant, task))
        return TaskRow(*row) if row else None

    def find_task(self, tenant: str, kind: str, key: str) -> str | None:
        """The id of the task of that key."""
        row = self._reader.one("find_task", (tenant, kind, key))
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
        if tenant is None:  # all are of one, mostly: then they lie in order
            first, last = self._reader.one("tenants")
            tenant = first if first == last else None
        name = "tasks" if tenant is None else "tasks_of"
        return [TaskRow(*row) for row in self._reader.all(name, (tenant, delivery, execution, kind, queue, after, limit))]

    def tasks_after(self, after: tuple[str, str], limit: int) -> list[TaskRow]:
        """All tasks, in order, a page at a time."""
        return [TaskRow(*row) for row in self._reader.all("tasks_after", (*after, limit))]

    def unfinished(
        self, tenant: str | None, begun: Sequence[str], every: Sequence[str], after: tuple[str, str], visits: int
    ) -> tuple[list[TaskRow], tuple[str, str] | None]:
        """Unfinished tasks that have begun, or are of certain kinds, in order."""
        start = max(after, (tenant or "", ""))
        more = self._reader.one("nth_task", (tenant, *start, visits - 1))
        end = more or self._reader.one("last_task", (tenant, *start)) or start
        found = self._reader.all("unfinished", (*start, *end, json.dumps(list(begun)), json.dumps(list(every))))
        return [TaskRow(*row) for row in found], more

    def ages(self, tenant: str | None, after: tuple[str, str], limit: int, *, keys: bool = False) -> list[Age]:
        """Tasks or tenant-scoped keys, in order."""
        return [Age(*row) for row in self._reader.all("key_ages" if keys else "ages", (tenant, *after, limit))]

    def effect(self, tenant: str | None, key: str) -> EffectRow | None:
        """One effect's row."""
        row = self._reader.one("effect_of_any_tenant", (key,)) if tenant is None else self._reader.one("effect", (tenant, key))
        return EffectRow(*row) if row else None

    def effects(
        self, tenant: str | None, *, state: str = "", task: str = "", after: str = "", limit: int = 100
    ) -> list[EffectRow]:
        """Effects, by key."""
        name = "effects" if tenant is None else "effects_of"
        return [EffectRow(*row) for row in self._reader.all(name, (tenant, state, task, after, limit))]

    def effects_after(self, after: tuple[str, str], limit: int) -> list[EffectRow]:
        """All effects, in order, a page at a time."""
        return [EffectRow(*row) for row in self._reader.all("effects_after", (*after, limit))]

    def unknown(self, tenant: str | None, *, limit: int = 100) -> list[UnknownRow]:
        """The unknown-work queue, oldest first."""
        return [UnknownRow(*row) for row in self._reader.all("unknown", (tenant, limit))]

    def held(self, session: str) -> list[InflightRow]:
        """The tasks that are leased to a session."""
        return [InflightRow(*row) for row in self._beats.all("held", (session,))]

    def orphans(self, after: InflightRow | None, limit: int, tenant: str | None = None) -> list[tuple[InflightRow, str]]:
        """Tasks of fenced or missing sessions."""
        rows = self._reader.all("orphans", (*(after or ("", "", "")), limit, tenant))
        return [(InflightRow(*row[:3]), row[3]) for row in rows]

    def counts(self, tenant: str | None) -> dict[str, dict[str, int]]:
        """How many of each state, by ledger."""
        return {ledger: dict(self._reader.all(f"count_{ledger}", (tenant,))) for ledger in ("delivery", "execution", "effect")}

    def tally(self, tenant: str | None) -> Tally:
        """What is unknown, waits, and is at work."""
        ((unknown, oldest),) = self._reader.all("tally_unknown", (tenant,))
        ((asking, at_work),) = self._reader.all("tally_tasks", (tenant,))
        depths = self._reader.all("tally_depths", (tenant,))
        sessions = dict(self._reader.all("tally_sessions"))
        return Tally(unknown, oldest, asking, at_work, sessions, tuple(Depth(*row) for row in depths))

    def next_due(self, queues: Sequence[str], kinds: Sequence[str], tenant: str | None = None) -> int | None:
        """When the first waiting task of these falls due."""
        firsts = (first for queue in queues for kind in kinds for _, first in self._reader.all("ranks", (queue, kind, tenant)))
        return min(firsts, default=None)

    def foreign(self, queues: Sequence[str], kinds: Sequence[str], tenant: str | None = None) -> list[tuple[str, str]]:
        """What waits in these queues and is of none of these kinds."""
        return [(q, kind) for q in queues for (kind,) in self._reader.all("kinds", (q, tenant)) if kind not in kinds]

    def streams(self, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
        """All streams, in order, a page at a time."""
        return [(row[0], row[1]) for row in self._reader.all("streams", (*after, limit))]

    def heads(self, after: tuple[str, str], limit: int) -> list[tuple[str, str, int, bytes]]:
        """Where all streams stand, in order, a page at a time."""
        return [(row[0], row[1], row[2], bytes(row[3])) for row in self._reader.all("heads_after", (*after, limit))]

    def holds(self, tables: Tables) -> list[str]:
        """Which of these rows the tables do not hold exactly so."""
        wrong = []
        if tables.task is not None:
            found = self.task(tables.task.tenant, tables.task.task)
            if found != tables.task:
                wrong.append(f"task row is {found}, the journal says {tables.task}")
        for name, row in (("ready", tables.ready), ("inflight", tables.inflight)):
            if row is not None and not self._reader.all(f"has_{name}", row):
                wrong.append(f"{name} row is missing: {row}")
        for effect in tables.effects:
            held = self.effect(effect.tenant, effect.key)
            if held != effect:
                wrong.append(f"effect row is {held}, the journal says {effect}")
        for unknown in tables.unknown:
            there = self._reader.one("unknown_row", unknown[:2])
            if there is None or UnknownRow(*there) != unknown:
                wrong.append(f"unknown row is {there}, the journal says {unknown}")
        return wrong

    def sizes(self) -> dict[str, int]:
        """How many rows each table has."""
        return dict(zip(("task", "ready", "inflight", "effect", "unknown", "task_key"), self._reader.one("sizes"), strict=True))

    def changed(self) -> int:
        """SQLite's own counter of other connections' commits."""
        with self._reader.lock, translated():
            return sqlitefile.number(self._reader.raw, "PRAGMA data_version")

    def hear(self, told: Callable[[], None] | None) -> bool:
        """By the kernel, where it can."""
        return self._bell.hear(told)

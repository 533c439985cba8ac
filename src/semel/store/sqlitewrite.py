"""Inside a write transaction on SQLite: nobody else writes, so every compare-and-set is a read followed by an insert."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import apsw

from semel.machine.journal import Row
from semel.machine.projection import ReadyRow
from semel.machine.tasks import Task
from semel.store.batch import Batch, Facts, SessionFacts, Stream, by_age, by_rank, unguarded
from semel.store.contract import Change, ClaimedTask, Claims, ClaimUnit, Fenced, Head, Landed, Outcome
from semel.store.passed import BEFORE_ALL, Asked, Found, Group, Passed, Starts, Walk, share_of_oldest
from semel.store.sqlfile import statements
from semel.store.turns import one_by_one

SQL = statements("sqlite.sql")
MOST_HEADS = 10_000  # that are remembered
KEYS_AT_ONCE = {n: SQL["find_tasks"].replace("(?, ?, ?)", ", ".join(["(?, ?, ?)"] * n)) for n in (64, 8)}
_of_journal = attrgetter("tenant", "stream", "seq", "kind", "actor", "token", "at", "body", "id", "hash")
log = logging.getLogger("semel")

# What says nothing of the write that was under way: it may be given again.
UNAVAILABLE = (
    apsw.IOError, apsw.FullError, apsw.CantOpenError, apsw.ReadOnlyError, apsw.CorruptError, apsw.NotADBError, apsw.NoMemError,
    apsw.ProtocolError, apsw.InterruptError, apsw.PermissionsError, apsw.ConnectionClosedError,
)  # fmt: skip
BUSY = (apsw.BusyError, apsw.LockedError)


class _Asked(dict[Any, Any]):
    """Facts that are read when they are asked for: inside a write transaction nobody else can change them."""

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, key: Any) -> Any:
        found = self[key] = self._ask(key)
        return found

    def get(self, key: Any, default: Any = None) -> Any:
        found = self[key]
        return default if found is None else found

    def __contains__(self, key: object) -> bool:
        return True  # whatever is asked for is known


Decided = tuple[Change, Task]  # what claims a task, and what it becomes


def _taken(batch: Batch, change: Change, after: Task) -> ClaimedTask | None:
    if not isinstance(batch.change(change), Landed):
        return None
    part = change.parts[0]
    return ClaimedTask(part.tenant, after, Head(part.rows[-1].seq, part.rows[-1].hash))


class Writing:
    """The write transactions of one connection, one after the other: the changes of each are judged by `batch.Batch`, on what
    the tables hold, and written together.

    Where the streams stand that it wrote or read last is remembered, and the sessions as it read them (it writes none itself,
    and an epoch has them read anew). That is what the tables hold for as long as SQLite's data version stands still, by which
    its own pages in memory stand or fall: nobody has written since, by whatever connection.
    """

    def __init__(self, raw: apsw.Connection, passed: Passed) -> None:
        self._raw, self._passed = raw, passed
        self._version: int | None = None  # the data version at the end of the last transaction; None: it did not end well
        self._walks: list[Walk] = []
        self.facts = Facts(
            heads=_Asked(self._head),
            keys=_Asked(self._key),
            sessions=_Asked(self._session),
            ids=_Asked(self._id),
            held=_Asked(self._holds),
        )

    def begin(self) -> None:
        """A transaction that may write has begun."""
        facts = self.facts
        if self._version != self._raw.data_version() or len(facts.heads) > MOST_HEADS:
            facts.heads.clear()
            facts.sessions.clear()
        self._version = None
        for known in (facts.keys, facts.ids, facts.held, self._walks):
            if known:
                known.clear()

    def committed(self) -> None:
        """It is committed."""
        self._version = self._raw.data_version()
        for walk in self._walks:
            self._passed.learn(walk)

    def _all(self, name: str, params: Sequence[Any]) -> list[Any]:
        return self._raw.execute(SQL[name], tuple(params)).fetchall()

    def _first(self, name: str, params: Sequence[Any]) -> Any:
        return next(iter(self._all(name, params)), None)

    def _head(self, stream: tuple[str, str]) -> Head | None:
        row = self._first("head", stream)
        return Head(*row) if row else None

    def _key(self, key: tuple[str, str, str]) -> str | None:
        row = self._first("find_task", key)
        return row[0] if row else None

    def _session(self, session: str) -> SessionFacts | None:
        row = self._first("guard", (session,))
        if row is None:
            return None
        self.facts.epoch = row[3]
        return SessionFacts(row[0], row[1], row[2], living=True)

    def _ask_keys(self, keys: Sequence[tuple[str, str, str]]) -> None:
        """Which tasks these are, many in one question; what is left over is asked for by itself, when it is needed."""
        at = 0
        for count, question in KEYS_AT_ONCE.items():
            while len(keys) - at >= count:
                some = keys[at : at + count]
                known: dict[Any, Any] = dict.fromkeys(some)
                for row in self._raw.execute(question, [part for key in some for part in key]):
                    known[row[:3]] = row[3]
                self.facts.keys.update(known)
                at += count

    def _holds(self, seen: tuple[str, str, int, bytes]) -> bool:
        found = self._first("hash_at", seen)
        return found is not None and found[0] == seen[3]

    def _id(self, row: tuple[str, str, int]) -> str | None:
        found = self._first("id_at", row)
        return found[0] if found else None

    def change(self, units: dict[int, Change]) -> dict[int, Outcome]:
        """Judge them one after the other, and write what lands."""
        self._ask_keys([unit.create[:3] for unit in units.values() if unit.create])
        batch = Batch(self.facts)
        outcomes = {at: batch.change(unit) for at, unit in units.items()}
        self._write(batch)
        return outcomes

    def _write(self, batch: Batch) -> None:
        """Write what was kept, in one order over all tables; from then on it is what the tables hold."""
        writes = batch.writes(apart=True)
        if writes is None:
            return
        rows = [_of_journal(row) for row in writes.rows]
        for name, found in (
            ("insert_key", writes.keys), ("insert_journal", rows), ("take_away", writes.pruned), ("put_task", writes.tasks),
            ("delete_ready", writes.ready_gone), ("insert_ready", writes.ready),
            ("delete_inflight", writes.inflight_gone), ("insert_inflight", writes.inflight),
            ("put_effect", writes.effects), ("delete_unknown", writes.unknown_gone), ("insert_unknown", writes.unknown),
        ):  # fmt: skip
            if found:
                self._raw.executemany(SQL[name], found)
            if name == "insert_key" and writes.born:
                self._write_born(writes.born)
        if writes.epoch:
            self._raw.execute(SQL["set_epoch"], (str(writes.epoch),))
            self.facts.sessions.clear()  # the epoch is read with them
        batch.learn()

    def _write_born(self, births: Sequence[Change]) -> None:
        parts = [birth.parts[0] for birth in births]
        self._raw.executemany(SQL["insert_journal"], [_of_journal(part.rows[0]) for part in parts])
        self._raw.executemany(SQL["insert_task"], [part.tables.task[:7] for part in parts])  # type: ignore[index]
        self._raw.executemany(SQL["insert_ready"], [part.tables.ready for part in parts if part.tables.ready])

    # --- claims ---

    def claim(self, unit: ClaimUnit) -> Outcome:
        """Find what is due, let the machine decide, write it: in this transaction, so no rival can be in between."""
        if why := unguarded(unit.guard, self.facts):
            return Fenced(why)
        if unit.task:
            return Claims(tuple(one for one in self._take(unit, [unit.task], 1) if one))

        def take(rows: Sequence[ReadyRow], most: int) -> Iterator[Asked]:
            taken = self._take(unit, [(row.tenant, row.task) for row in rows], most)
            return (Asked(row, one, refused=one is None) for row, one in zip(rows, taken, strict=False))

        def find(limit: int, turns: int, starts: Starts) -> Found:
            rows = self._candidates(unit, limit, starts)
            turned = one_by_one(self._passed.turns, unit, turns if len(rows) == limit else 0, self._all)
            return Found(rows, [row for row in turned if row not in rows])

        walk = self._passed.walk(unit, find, take)
        self._walks.append(walk)
        return walk.claims

    def _take(self, unit: ClaimUnit, keys: Sequence[Stream], most: int) -> list[ClaimedTask | None]:
        """Claim up to `most` of these, in order: what came of each that was asked. None: it cannot be claimed, and is passed
        over, since it must keep nobody behind it from its turn.
        """
        asked: list[Decided | None] = []
        decided: list[Decided] = []
        for key in keys:
            if len(decided) == most:
                break
            asked.append(one := self._decide(unit, key))
            if one:
                decided.append(one)
        written = iter(self._write_claims(decided) if decided else ())
        return [one and next(written) for one in asked]

    def _decide(self, unit: ClaimUnit, key: Stream) -> Decided | None:
        rows = [Row(*row) for row in self._all("rows", (*key, 0))]
        if not rows:
            return None
        self.facts.heads[key] = Head(rows[-1].seq, rows[-1].hash)
        try:
            return unit.decide(key[0], rows)
        except Exception:
            log.exception("semel: task %s cannot be claimed, and is passed over", key[1])
            return None

    def _write_claims(self, decided: Sequence[Decided]) -> list[ClaimedTask | None]:
        """What became of each. They are written together, but for one that breaks a rule of the database."""
        batch = Batch(self.facts)
        taken = [_taken(batch, *one) for one in decided]
        self._raw.execute("SAVEPOINT claim")
        try:
            self._write(batch)
        except (*BUSY, *UNAVAILABLE):
            raise
        except Exception:
            self._raw.execute("ROLLBACK TO claim")
            if len(decided) == 1:
                log.exception("semel: task %s cannot be claimed, and is passed over", decided[0][0].parts[0].stream)
                taken = [None]
            else:
                taken = [one for each in decided for one in self._write_claims([each])]
        self._raw.execute("RELEASE claim")
        return taken

    def _candidates(self, unit: ClaimUnit, limit: int, starts: Starts) -> list[ReadyRow]:
        """Up to `limit` that are due: by priority, then by due; and before them the share of those that have waited longest."""
        ranks = sorted(
            (rank, max(first, starts.get((queue, kind, rank), BEFORE_ALL).due), queue, kind)
            for queue in dict.fromkeys(unit.queues)
            for kind in dict.fromkeys(unit.kinds)
            for rank, first in self._all("ranks", (queue, kind, unit.tenant))
            if first <= unit.at
        )
        count = share_of_oldest(limit)
        found: list[ReadyRow] = []
        more = False
        for rank, _, queue, kind in ranks:
            more = len(found) >= limit and found[-1].rank != rank
            if more:
                break
            found.extend(self._waiting(unit, (queue, kind, rank), limit, starts))
        found.sort(key=by_rank)
        if not more and len(found) <= limit:
            return found
        oldest = self._oldest(unit, ranks, count, starts)
        return [*oldest, *(r for r in found if r not in oldest)][:limit]

    def _oldest(self, unit: ClaimUnit, ranks: list[tuple[int, int, str, str]], count: int, starts: Starts) -> list[ReadyRow]:
        """They are among those ranks whose first are the oldest."""
        found: list[ReadyRow] = []
        for rank, _, queue, kind in sorted(ranks, key=lambda r: (r[1], r[0], *r[2:]))[:count]:
            found.extend(self._waiting(unit, (queue, kind, rank), count, starts))
        return sorted(found, key=by_age)[:count]

    def _waiting(self, unit: ClaimUnit, group: Group, limit: int, starts: Starts) -> list[ReadyRow]:
        after = starts.get(group, BEFORE_ALL)
        return [ReadyRow(*row) for row in self._all("candidates", (*group, unit.at, limit, unit.tenant, *after))]

"""One transaction of the writer on PostgreSQL: what the batch rests on is locked and read, judged, written, committed.

Hopeful, it writes as if everything stood as the batch was decided on, and asks in the same round trip whether it does; if
not, the server refuses all of it, and it is done anew the careful way: what is there is read first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import psycopg
from psycopg import errors

from semel.machine.journal import GENESIS, Row
from semel.machine.projection import EffectRow, InflightRow, ReadyRow, TaskRow, UnknownRow
from semel.store.batch import Batch, Facts, SessionFacts, Stream, Writes, by_age, by_rank, unguarded
from semel.store.contract import Change, ClaimedTask, Claims, ClaimUnit, Fenced, Guard, Head, Landed, Outcome, Unit, is_birth
from semel.store.passed import BEFORE_ALL, Asked, Found, Place, Starts, Walk, share_of_oldest
from semel.store.pgclaims import FEW, Floors, Group, Pair
from semel.store.pgexpect import expected
from semel.store.pglink import LOCKED, UNAVAILABLE, Call, Link, bytes_array, int_array, text_array
from semel.store.pgpipe import Answer
from semel.store.turns import LOOK_AHEAD, Chosen, Line

log = logging.getLogger("semel")

_JOURNAL = ("tenant", "stream", "seq", "kind", "actor", "token", "at", "body", "id", "hash")
_of_journal = attrgetter(*_JOURNAL)
AS_BORN = ("queued", "not_started", 0, 0, "", 0, 0, 0, 1, "")  # a task's row from `delivery` on, as `insert_task` says it too
_NUMBERS = frozenset(
    ("seq", "token", "at", "rank", "due", "priority", "attempt", "failures", "crashes", "unknown", "version", "since")
)
_TOGETHER = 128  # births in one statement: the server writes these while the next are sent
_FEW = 3  # rows by themselves; so many cost the server less than arrays do, which it takes apart
_ONE = {"insert_journal": "insert_journal_row", "put_task": "put_task_row", "put_effect": "put_effect_row"}
_TYPES = {
    name: bytes if name == "hash" else int if name in _NUMBERS else str
    for name in (*_JOURNAL, *TaskRow._fields, *EffectRow._fields)
}


class NotAsExpected(Exception):
    """A hopeful transaction was in vain: nothing was written."""


class Transaction:
    """Used once. wrote: whether it wrote anything, so that its commit was waited for wherever commits are kept. queued: whether
    it queued anything. hinted: whether that was said right behind its commit.

    doubt: an earlier commit was not answered (R7). wait_ms: for a lock; 0: as the connection is set. hint: asked, if something is
    queued, for what says so ("": it is said by somebody else).
    """

    def __init__(self, link: Link, floors: Floors, *, doubt: bool, wait_ms: int, hint: Callable[[], str] = str) -> None:
        self._link, self._floors = link, floors
        self._unsent: list[Call] = []  # goes ahead of what is asked next
        self._hopeful = False
        self._doubt, self._wait_ms, self._hint = doubt, wait_ms, hint
        self._facts = Facts()
        self._raced = False  # a rival was faster, or still is at it, where a claim was written
        self._asked: set[Stream] = set()  # tasks that a claim has asked for
        self._refused: set[Stream] = set()  # those of them that cannot be claimed
        self._rows: dict[Stream, list[Row]] = {}  # of candidates, as they were found
        self._walks: list[Walk] = []
        self._chosen = Chosen()
        self.wrote = self.queued = self.hinted = False

    def run(self, units: Sequence[Unit], *, hopeful: bool = False) -> list[Outcome]:
        """An outcome for each. Raises psycopg's errors; then nothing has landed, or (a lost COMMIT) nothing is known.

        hopeful: raises `NotAsExpected` if it was in vain; then nothing has landed.
        """
        changes = [(at, unit) for at, unit in enumerate(units) if isinstance(unit, Change)]
        claims = [(at, unit) for at, unit in enumerate(units) if isinstance(unit, ClaimUnit)]
        if not claims and not any(change.parts or change.guard or change.create for _, change in changes):
            return [Landed() for _ in units]  # barriers
        self._hopeful = hopeful
        first: list[Call] = [("begin", None), *self._link.locals(**self._lock_timeout())]
        given = [change for _, change in changes], [claim.guard for _, claim in claims]
        if hopeful:
            batch, outcomes = self._hope(first, changes, *given)
        else:
            self._begin(first, *given)
            batch, outcomes = self._judge(changes)
        self._unsent += self._writing(batch.writes(apart=True))
        for at, unit in claims:
            outcomes[at] = self._claim(unit)
        if not self.wrote and (batch.told or self._doubt):
            self._unsent.append(("emit", None))
            self.wrote = True
        if self.wrote or changes or not all(outcome == Claims(()) for outcome in outcomes.values()):
            self._commit()
        else:  # nobody rests on it: what it has locked would be logged with a commit, and that synced
            self._ask(("rollback", None))
        for walk in self._walks:
            self._floors.passed.learn(walk)
        return [outcomes[at] for at in range(len(units))]

    def _commit(self) -> None:
        ahead, self._unsent = self._unsent, []
        behind = self._hint() if self.queued else ""
        answers = self._link.pipe(*ahead, ("commit", None), behind=behind)
        self.hinted = bool(behind)
        self._link.must_be_committed(answers[-1])

    def _ask(self, *calls: Call) -> list[Answer]:
        """In one round trip with all that was not sent yet."""
        ahead, self._unsent = self._unsent, []
        return self._link.pipe(*ahead, *calls)[len(ahead) :]

    def within(self, change: Change) -> Outcome:
        """Judge and write one change in a transaction that is open already, and do not commit."""
        self._begin(self._link.locals(**self._lock_timeout()), [change], [])
        batch, outcomes = self._judge([(0, change)])
        if calls := self._writing(batch.writes()):
            self._link.pipe(*calls)
        return outcomes[0]

    # --- hoping ---

    def _hope(
        self, first: Sequence[Call], changes: Sequence[tuple[int, Change]], bare: Sequence[Change], claims: Sequence[Guard]
    ) -> tuple[Batch, dict[int, Outcome]]:
        """What all of them are, if they land. Nothing is sent yet. Raises `NotAsExpected` if they cannot."""
        found = expected(bare, claims)
        if found is None:
            raise NotAsExpected
        self._facts, question = found
        batch = Batch(self._facts)
        outcomes: dict[int, Outcome] = {at: batch.change(change) for at, change in changes}
        if batch.told or not all(isinstance(outcome, Landed) for outcome in outcomes.values()):
            raise NotAsExpected
        if guards := sorted(self._facts.sessions):
            self._unsent = [("lock_living", {"ids": text_array(guards)})]
        self._unsent = [*first, *self._unsent, *_locking(bare), *question]
        return batch, outcomes

    # --- reading ---

    def _begin(self, first: Sequence[Call], changes: Sequence[Change], claims: Iterable[Guard]) -> None:
        """One round trip: the transaction is open, what must not move is locked, what is there is known."""
        given = [*(c.guard for c in changes if c.guard), *claims]
        guards = sorted({guard.session for guard in given})
        newest = {guard.session: guard.seen for guard in given if guard.seen is not None}  # who holds it holds all before
        streams = sorted({(p.tenant, p.stream) for c in changes if not is_birth(c) for p in c.parts} | _checked(changes))
        keys = sorted({c.create[:3] for c in changes if c.create})
        calls: list[Call] = [*first]
        if guards:
            calls += [("lock_living", {"ids": text_array(guards)}), ("guards", {"ids": text_array(guards)})]
        if newest:
            owners, names, seqs, ends = zip(*newest.values(), strict=True)
            rows = {"tenants": text_array(owners), "streams": text_array(names), "seqs": int_array(seqs)}
            calls.append(("hashes", {**rows, "hashes": bytes_array(ends)}))
        calls += _locking(changes)
        if streams:
            calls.append(("heads", _streams(streams)))
        if keys:
            tenants, kinds, names = zip(*keys, strict=True)
            calls.append(("keys", {"tenants": text_array(tenants), "kinds": text_array(kinds), "keys": text_array(names)}))
        answers = {name: answer.rows for (name, _), answer in zip(calls, self._link.pipe(*calls), strict=True)}
        living = {row[0] for row in answers.get("lock_living", ())}
        for id, epoch, beat, fenced, store in answers.get("guards", ()):
            self._facts.sessions[id] = SessionFacts(epoch, beat, fenced, id in living)
            self._facts.epoch = store
        there = {(*row[:3], bytes(row[3])) for row in answers.get("hashes", ())}
        self._facts.held = {g.seen: newest[g.session] in there for g in given if g.seen is not None}
        self._facts.heads = {(row[0], row[1]): Head(row[2], row[3]) for row in answers.get("heads", ())}
        self._facts.keys = {(row[0], row[1], row[2]): row[3] for row in answers.get("keys", ())}

    def _lock_timeout(self) -> dict[str, str]:
        return {"lock_timeout": f"{self._wait_ms}ms"} if self._wait_ms else {}

    def _judge(self, changes: Sequence[tuple[int, Change]]) -> tuple[Batch, dict[int, Outcome]]:
        """What lands; a second time if the ids of some rows decide (R7)."""
        batch = Batch(self._facts)
        outcomes: dict[int, Outcome] = {at: batch.change(change) for at, change in changes}
        if batch.wanted:
            wanted = sorted(set(batch.wanted))
            tenants, streams, seqs = zip(*wanted, strict=True)
            params = {"tenants": text_array(tenants), "streams": text_array(streams), "seqs": int_array(seqs)}
            self._facts.ids.update(dict.fromkeys(wanted))
            self._facts.ids.update({(row[0], row[1], row[2]): row[3] for row in self._ask(("ids", params))[0].rows})
            batch = Batch(self._facts)
            outcomes = {at: batch.change(change) for at, change in changes}
        return batch, outcomes

    # --- writing ---

    def _writing(self, writes: Writes | None) -> list[Call]:
        if writes is None:
            return []
        calls = statements_of(writes, singly=True)
        self.wrote = self.wrote or bool(calls)
        ready = [*writes.ready, *(row for birth in writes.born if (row := birth.parts[0].tables.ready))]
        self.queued = self.queued or bool(ready)
        self._floors.lower(ready)
        return calls

    # --- claims ---

    def _claim(self, unit: ClaimUnit) -> Outcome:
        """Find what is due, let the machine decide, write it. What is looked at is locked, and no rival sees it."""
        if why := unguarded(unit.guard, self._facts):
            return Fenced(why)
        if unit.task:
            taken = self._take(unit, [unit.task], 1)
            if not taken and self._raced:  # a rival was in between: decide on what is there now
                taken = self._take(unit, [unit.task], 1)
            return Claims(tuple(taken))
        return self._claim_due(unit)

    def _claim_due(self, unit: ClaimUnit) -> Claims:
        def take(rows: Sequence[ReadyRow], most: int) -> list[Asked]:
            keys = [(row.tenant, row.task) for row in rows]
            taken = {(one.tenant, one.task.id): one for one in self._take(unit, keys, most)}
            return [
                Asked(row, taken.get(key), key in self._refused)
                for row, key in zip(rows, keys, strict=True)
                if key in self._asked
            ]

        walk = self._floors.passed.walk(unit, lambda *wanted: self._candidates(unit, *wanted), take)
        self._walks.append(walk)
        return walk.claims

    def _candidates(self, unit: ClaimUnit, limit: int, turns: int, starts: Starts) -> Found:
        """Up to `limit` that are due: by priority, then by due; and the share of those that have waited longest first."""
        pairs = list(dict.fromkeys((queue, kind) for queue in unit.queues for kind in unit.kinds))  # whoever names one twice
        self._chosen = Chosen()  # what another claim of this transaction chose is none of this one's
        if not turns and not starts and self._floors.light(pairs):
            wanted = {"queues": text_array(p[0] for p in pairs), "kinds": text_array(p[1] for p in pairs)}
            more = {"at": unit.at, "limit": limit + 1, "tenant": unit.tenant}
            few = self._answers(unit, limit, [("few", {**wanted, **more})])["few"]
            if len(few) <= limit:
                return Found(few)
        groups = self._floors.groups(pairs, self._look)
        places = [(g, max(Place(g.floor), starts.get(g[:3], BEFORE_ALL))) for g in groups if g.floor <= unit.at]
        count = share_of_oldest(limit)
        if not places:
            return Found(())
        calls = [("candidates", _places(unit, places, limit + 1))]  # one more: whether that is all
        if count and len(places) > 1:  # in a group alone they are the first anyhow
            calls.append(("longest_waiting", _places(unit, places, count)))
        calls += self._in_turn(unit, turns)
        answers = self._answers(unit, limit, calls)
        found = answers["candidates"]
        if len(found) <= limit:
            return Found(found)
        oldest = sorted({*found, *answers.get("longest_waiting", ())}, key=by_age)[:count]
        first = set(oldest)
        rows = [*oldest, *(r for r in found if r not in first)][:limit]
        return Found(rows, [row for row in answers.get("in_turn", ()) if row not in rows])

    def _in_turn(self, unit: ClaimUnit, turns: int) -> list[Call]:
        """Ask for those whose turn it is; and, for the next claim, who comes then."""
        self._chosen = self._floors.passed.turns.choose(unit, turns) if turns else Chosen()
        calls: list[Call] = []
        if self._chosen.lines:
            calls.append(("in_turn", _in_turn(unit, self._chosen)))
        if look := self._chosen.look:
            wanted = {"queues": text_array(p[0] for p in look.pairs), "kinds": text_array(p[1] for p in look.pairs)}
            calls.append(("lines", {**wanted, "tenant": look.after.tenant, "rank": look.after.rank, "most": LOOK_AHEAD}))
        return calls

    def _answers(self, unit: ClaimUnit, limit: int, calls: Sequence[Call]) -> dict[str, list[ReadyRow]]:
        began = time.monotonic()
        beside: list[Call] = [("head", unit.beside)] if unit.beside else []  # last: it stood there when all had been found
        rows = {name: answer.rows for (name, _), answer in zip([*calls, *beside], self._ask(*calls, *beside), strict=True)}
        for head in (rows.pop("head") or [(0, GENESIS)]) if beside else ():
            unit.told(head[0], began)
        found, turns = rows.pop("lines", ()), self._floors.passed.turns
        answers: dict[str, list[ReadyRow]] = {}
        for name in {"few", "candidates"} & rows.keys():
            answers[name] = self._with_rows(rows.pop(name))
        little = len(self._rows) <= min(limit, FEW)
        self._floors.found(little, time.monotonic() - began if "few" in answers else None)
        answers |= {name: [ReadyRow(*row) for row in given] for name, given in rows.items()}
        turns.gave(self._chosen, answers.get("in_turn", ()))
        if look := self._chosen.look:
            turns.saw(look, unit.at, [(Line(*row[:4]), row[4]) for row in found], time.monotonic() - began)
        return answers

    def _with_rows(self, answered: Sequence[tuple[Any, ...]]) -> list[ReadyRow]:
        """The candidates, in order; the journal of each is kept at hand."""
        self._rows = {}
        found: dict[Stream, ReadyRow] = {}
        for at in answered:
            key = at[4:6]
            if key not in found:
                found[key], self._rows[key] = ReadyRow(*at[:6]), []
            self._rows[key].append(Row(*key, *at[6:]))
        return sorted(found.values(), key=by_rank)

    def _look(self, pairs: Sequence[Pair]) -> list[Group]:
        wanted = {"queues": text_array(p[0] for p in pairs), "kinds": text_array(p[1] for p in pairs)}
        return [Group(*row) for row in self._ask(("look", wanted))[0].rows]

    def _take(self, unit: ClaimUnit, keys: Sequence[Stream], most: int) -> list[ClaimedTask]:
        """Claim up to `most` of these, or pass them over: what cannot be claimed must keep nobody behind it from its turn."""
        self._asked, self._refused = set(), set()
        if not keys:
            return []
        histories: dict[Stream, list[Row]] = {key: self._rows.pop(key, []) for key in keys}
        if unread := [key for key in keys if not histories[key]]:
            for row in self._ask(("rows_of", _streams(unread)))[0].rows:
                histories[row[0], row[1]].append(Row(*row))
        decided: list[tuple[Stream, tuple[Change, Any]]] = []
        for key in keys:
            if len(decided) == most:
                break
            self._asked.add(key)
            if one := self._decide(unit, key, histories[key]):
                decided.append((key, one))
            else:
                self._refused.add(key)
        for key, rows in histories.items():
            if rows:
                self._facts.heads[key] = Head(rows[-1].seq, rows[-1].hash)
        taken = self._write_claims(decided)
        if taken is None:  # one of them breaks a rule, or a rival was faster: each by itself
            singly = [self._write_claims([one]) for one in decided] if len(decided) > 1 else []
            taken = [claimed for one in singly if one for claimed in one]
        return taken

    def _decide(self, unit: ClaimUnit, key: Stream, rows: list[Row]) -> tuple[Change, Any] | None:
        try:
            return unit.decide(key[0], rows) if rows else None
        except Exception:
            log.exception("semel: task %s cannot be claimed, and is passed over", key[1])
            return None

    def _write_claims(self, decided: Sequence[tuple[Stream, tuple[Change, Any]]]) -> list[ClaimedTask] | None:
        """Write them together; None: it could not be, and nothing was written."""
        batch = Batch(self._facts)
        taken = []
        for (tenant, _), (change, after) in decided:
            if isinstance(batch.change(change), Landed):
                last = change.parts[0].rows[-1]
                taken.append(ClaimedTask(tenant, after, Head(last.seq, last.hash)))
        wrote = self.wrote
        if self._hopeful:
            self._unsent += self._writing(batch.writes())
            return taken
        try:
            if calls := self._writing(batch.writes()):
                self._ask(("savepoint", None), *calls, ("release", None))
        except (psycopg.Error, TypeError, ValueError) as error:
            if isinstance(error, UNAVAILABLE) and not isinstance(error, LOCKED):
                raise
            if isinstance(error, (*LOCKED, errors.UniqueViolation)):
                self._raced = True
            elif len(decided) == 1:
                self._refused.add(decided[0][0])
                log.exception("semel: task %s cannot be claimed, and is passed over", decided[0][0][1])
            if self._link.failed:  # else it was found out before anything was sent, the savepoint too
                self._ask(("rollback_to", None))
            self.wrote = wrote
            return None
        return taken


def statements_of(writes: Writes, *, singly: bool = False) -> list[Call]:
    """The statements that write a batch, one for each kind, in the one order. singly: what is few of a kind, row by row."""
    born = [row[:7] for row in writes.tasks if row[7:] == AS_BORN]
    others = [row for row in writes.tasks if row[7:] != AS_BORN] if len(born) < len(writes.tasks) else []
    kinds: tuple[tuple[str, Sequence[str], Sequence[Any]], ...] = (
        ("delete_ready", ReadyRow._fields, writes.ready_gone),
        ("insert_key", ("tenant", "kind", "key", "task"), writes.keys),
        ("insert_journal", _JOURNAL, [_of_journal(row) for row in writes.rows]),
        ("take_away", ("tenant", "stream", "seq"), writes.pruned),
        ("insert_task", TaskRow._fields[:7], born),
        ("put_task", TaskRow._fields, others),
        ("insert_ready", ReadyRow._fields, writes.ready),
        ("delete_inflight", InflightRow._fields, writes.inflight_gone),
        ("insert_inflight", InflightRow._fields, writes.inflight),
        ("put_effect", EffectRow._fields, writes.effects),
        ("delete_unknown", ("tenant", "key"), writes.unknown_gone),
        ("insert_unknown", UnknownRow._fields, writes.unknown),
    )
    calls: list[Call] = []
    for name, fields, rows in kinds:
        if name == "insert_journal":
            calls += _beginnings(writes.born)
        if not rows:
            continue
        if singly and len(rows) <= _FEW and name in _ONE:
            calls += [(_ONE[name], _single(fields, row)) for row in rows]
        else:
            calls.append((name, _columns(fields, rows)))
    if writes.epoch:
        calls.append(("set_epoch", (str(writes.epoch),)))
    return calls


def _checked(changes: Sequence[Change]) -> set[Stream]:
    return {(tenant, stream) for c in changes if c.checks for tenant, stream, _ in c.checks}


def _locking(changes: Sequence[Change]) -> list[Call]:
    """A stream that is checked must not move until we have committed: its row is locked, task or tenant-scoped key.

    One that this batch writes too is locked as for writing: two that share a lock and both want to write wait for each other.
    """
    checked = _checked(changes)
    if not checked:
        return []
    written = {(p.tenant, p.stream) for c in changes for p in c.parts}
    calls: list[Call] = []
    for table in ("tasks", "effects"):
        for suffix, streams in (("", checked - written), ("_to_write", checked & written)):
            if streams:
                calls.append((f"lock_{table}{suffix}", _streams(sorted(streams))))
    return calls


def _places(unit: ClaimUnit, places: Sequence[tuple[Group, Place]], limit: int) -> dict[str, Any]:
    """What `candidates` is asked: behind which place in each group."""
    queues, kinds, ranks, _ = zip(*(group for group, _ in places), strict=True)
    dues, tenants, tasks = zip(*(place for _, place in places), strict=True)
    return {
        "queues": text_array(queues), "kinds": text_array(kinds), "ranks": int_array(ranks), "dues": int_array(dues),
        "tenants": text_array(tenants), "tasks": text_array(tasks), "at": unit.at, "limit": limit, "tenant": unit.tenant,
    }  # fmt: skip


def _in_turn(unit: ClaimUnit, chosen: Chosen) -> dict[str, Any]:
    lines, behind = zip(*chosen.lines, strict=True)
    queues, kinds, tenants, ranks = zip(*lines, strict=True)
    dues, tasks = zip(*behind, strict=True)
    return {
        "queues": text_array(queues), "kinds": text_array(kinds), "tenants": text_array(tenants), "ranks": int_array(ranks),
        "dues": int_array(dues), "tasks": text_array(tasks), "at": unit.at, "each": chosen.each,
    }  # fmt: skip


def _streams(streams: Sequence[Stream]) -> dict[str, str]:
    tenants, names = zip(*streams, strict=True)
    return {"tenants": text_array(tenants), "streams": text_array(names)}


def _columns(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    return {name: _array(name)(values) for name, values in zip(fields, zip(*rows, strict=True), strict=True)}


def _beginnings(births: Sequence[Change]) -> list[Call]:
    return [("insert_born", _born(births[n : n + _TOGETHER])) for n in range(0, len(births), _TOGETHER)]


def _born(births: Sequence[Change]) -> dict[str, str]:
    """What `insert_born` is told of these: the rest of their rows follows from it."""
    tenants, kinds, keys, tasks = zip(*[birth.create for birth in births], strict=True)
    parts = [birth.parts[0] for birth in births]
    rows = [part.rows[0] for part in parts]
    queues, priorities, dues = zip(*[part.tables.task[4:7] for part in parts], strict=True)  # type: ignore[index]
    return {
        "tenant": text_array(tenants), "kind": text_array(kinds), "key": text_array(keys), "task": text_array(tasks),
        "queue": text_array(queues), "priority": int_array(priorities), "due": int_array(dues),
        "actor": text_array([row.actor for row in rows]), "at": int_array([row.at for row in rows]),
        "body": text_array([row.body for row in rows]), "id": text_array([row.id for row in rows]),
        "hash": bytes_array([row.hash for row in rows]),
    }  # fmt: skip


def _single(fields: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    """One row's values. Raises `TypeError` for what is not of its column's type, as the arrays do (None is NULL)."""
    for name, value in zip(fields, row, strict=True):
        if value is not None and type(value) is not _TYPES[name] and not isinstance(value, _TYPES[name]):
            raise TypeError(f"{name} is no {_TYPES[name].__name__} but a {type(value).__name__}")
    return dict(zip(fields, row, strict=True))


def _array(name: str) -> Callable[[Any], str]:
    if name == "hash":
        return bytes_array
    return int_array if name in _NUMBERS else text_array

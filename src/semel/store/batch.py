"""The store-neutral half of a group commit: which changes of a batch land, on the facts as the store holds them, and what
has to be written. Pure: no I/O. Every stream's rows form a chain, the first checked against the facts, the rest against
the batch (R5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from semel.machine.events import Pruned
from semel.machine.journal import GENESIS, Row
from semel.machine.projection import EffectRow, InflightRow, ReadyRow, Tables, TaskRow, UnknownRow
from semel.store.contract import Change, Exists, Fenced, Guard, Head, Landed, Outcome, Stale, is_birth

NOWHERE = Head(0, GENESIS)
Stream = tuple[str, str]  # tenant, name
_PRUNED = Pruned.kind
_place = attrgetter("tenant", "stream", "seq")
_stream = itemgetter(0)
LANDED = Landed()


class SessionFacts(NamedTuple):
    """A session as the store holds it; living: it is not fenced, and cannot be until this transaction is over."""

    epoch: int
    beat: int
    fenced: str
    living: bool


@dataclass(slots=True)
class Facts:
    """What the store holds of all that a batch speaks of. heads, keys: what is not there is left out. ids: by the row."""

    heads: dict[Stream, Head] = field(default_factory=dict)
    keys: dict[tuple[str, str, str], str] = field(default_factory=dict)
    sessions: dict[str, SessionFacts] = field(default_factory=dict)
    held: dict[tuple[str, str, int, bytes], bool] = field(default_factory=dict)  # of each guard's `seen`
    epoch: int = 0
    ids: dict[tuple[str, str, int], str | None] = field(default_factory=dict)


@dataclass(slots=True)
class Writes:
    """All that a batch writes, in the order of the keys: the same in every transaction."""

    ready_gone: list[ReadyRow]
    keys: list[tuple[str, str, str, str]]
    rows: list[Row]
    tasks: list[TaskRow]
    ready: list[ReadyRow]
    inflight_gone: list[InflightRow]
    inflight: list[InflightRow]
    effects: list[EffectRow]
    unknown_gone: list[Stream]
    unknown: list[UnknownRow]
    epoch: int = 0  # what the store's epoch becomes; 0: it stays
    born: list[Change] = field(default_factory=list)  # of these only the keys stand in the other lists
    pruned: list[tuple[str, str, int]] = field(default_factory=list)  # tombstones: the rows before each of them go (R22)


class Batch:
    """Changes, judged one after the other. `wanted`: rows whose ids decide (R7); learn them, and judge anew."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.wanted: list[tuple[str, str, int]] = []
        self.told = False  # something is answered from what is on record, and not from what is written now
        self._heads: dict[Stream, Head] = {}
        self._born: dict[Stream, Change] = {}  # what nothing else in the batch goes on from
        self._keys: dict[tuple[str, str, str], str] = {}
        self._ids: set[str] = set()
        self._rows: list[Row] = []
        self._tables: list[Tables] = []
        self._epoch = 0

    def change(self, change: Change) -> Outcome:
        """Judge one, and keep it if it lands."""
        if is_birth(change):
            return self._birth(change)
        if change.create and (task := self._taken(change.create)):
            self.told = True
            return Landed() if task == change.create[3] else Exists(task)
        for p in change.parts:
            if self._head(p.tenant, p.stream) != p.expect:
                return Landed() if self._has_landed(change) else Stale(p.stream)
        for tenant, stream, seq in change.checks:
            if self._head(tenant, stream).seq != seq:
                return Stale(stream)
        if change.guard and (why := unguarded(change.guard, self.facts)):
            return Fenced(why)
        if change.create:
            self._keys[change.create[:3]] = change.create[3]
        self._epoch = max(self._epoch, change.epoch)
        for part in change.parts:
            if self._born:
                self._goes_on((part.tenant, part.stream))
            self._rows.extend(part.rows)
            if part.rows:
                self._heads[part.tenant, part.stream] = Head(part.rows[-1].seq, part.rows[-1].hash)
                self._ids.add(change.id)
            self._tables.append(part.tables)
        return Landed()

    def _birth(self, change: Change) -> Outcome:
        """Where its stream stands need not be asked, if its key is new: see `pgexpect`."""
        tenant, kind, key, task = change.create  # type: ignore[misc]
        taken = self._keys.get((tenant, kind, key)) or self.facts.keys.get((tenant, kind, key))
        if taken:
            self.told = True
            return LANDED if taken == task else Exists(taken)
        self._keys[tenant, kind, key] = task
        self._goes_on((tenant, task))  # another key's birth under this id: the journal's primary key must meet both
        self._born[tenant, task] = change
        return LANDED

    def _goes_on(self, stream: Stream) -> None:
        """What was born here is changed further: only the last state of its rows is written."""
        birth = self._born.pop(stream, None)
        if birth is not None:
            (part,) = birth.parts
            self._heads[stream] = _end(birth)
            self._rows.extend(part.rows)
            self._tables.append(part.tables)

    def _taken(self, create: tuple[str, str, str, str]) -> str | None:
        return self._keys.get(create[:3]) or self.facts.keys.get(create[:3])

    def _head(self, tenant: str, stream: str) -> Head:
        if birth := self._born.get((tenant, stream)):
            return _end(birth)
        return self._heads.get((tenant, stream)) or self.facts.heads.get((tenant, stream), NOWHERE)

    def _has_landed(self, change: Change) -> bool:
        """R7: after a lost reply the same change comes again, and finds its own id where it would have been written."""
        if change.id in self._ids:
            return True
        last = [(p.tenant, p.stream, p.rows[-1].seq) for p in change.parts if p.rows]
        self.wanted.extend(row for row in last if row not in self.facts.ids)
        landed = bool(last) and all(self.facts.ids.get(row) == change.id for row in last)
        self.told = self.told or landed
        return landed

    def learn(self) -> None:
        """What was kept has been written: the facts are as the store holds them now."""
        self.facts.heads.update(self._heads)
        self.facts.keys.update(self._keys)
        for stream in self._born:
            self.facts.heads.pop(stream, None)

    def writes(self, *, apart: bool = False) -> Writes | None:
        """What was kept; None: nothing. apart: what is born here, and no more than that, stands in `born`, in its order."""
        if not (self._rows or self._tables or self._keys):
            return None
        if not apart:
            for stream in list(self._born):
                self._goes_on(stream)
        tasks: dict[Stream, TaskRow] = {}  # only the last state of each row is written; its first two columns are its key
        effects: dict[Stream, EffectRow] = {}
        ready: dict[ReadyRow, int] = {}
        inflight: dict[InflightRow, int] = {}
        unknown: dict[Stream, UnknownRow | None] = {}
        gone: set[Stream] = set()
        for task, ready_gone, ready_new, held_gone, held, changed, unknown_gone, unknown_new in self._tables:  # once over all
            if task is not None:
                tasks[task[:2]] = task
            for effect in changed:
                effects[effect[:2]] = effect
            if ready_gone is not None or ready_new is not None:
                _count(ready, ready_gone, ready_new)
            if held_gone is not None or held is not None:
                _count(inflight, held_gone, held)
            if unknown_gone or unknown_new:
                unknown.update(dict.fromkeys(unknown_gone))
                gone.update(unknown_gone)
                unknown.update({row[:2]: row for row in unknown_new})
        rows = sorted(self._rows, key=_place)
        return Writes(
            ready_gone=sorted(row for row, sign in ready.items() if sign < 0),
            keys=sorted((*key, task) for key, task in self._keys.items()),
            rows=rows,
            tasks=sorted(tasks.values()),
            ready=sorted(row for row, sign in ready.items() if sign > 0),
            inflight_gone=sorted(row for row, sign in inflight.items() if sign < 0),
            inflight=sorted(row for row, sign in inflight.items() if sign > 0),
            effects=sorted(effects.values()),
            unknown_gone=sorted(gone),
            unknown=sorted(row for row in unknown.values() if row is not None),
            epoch=self._epoch,
            born=[birth for _, birth in sorted(self._born.items(), key=_stream)],
            pruned=[(row.tenant, row.stream, row.seq) for row in rows if row.kind == _PRUNED],
        )


def by_rank(row: ReadyRow) -> tuple[Any, ...]:
    """The order in which what waits is claimed: by priority, then by due. Ties go the same way in every store."""
    return row.rank, row.due, row


def by_age(row: ReadyRow) -> tuple[Any, ...]:
    """The order of what has waited longest, whatever its priority."""
    return row.due, row.rank, row


def unguarded(guard: Guard, facts: Facts) -> str:
    """Why a guard does not hold; "" if it does."""
    session = facts.sessions.get(guard.session)
    if session is None:
        return "the store does not know this session"
    if session.fenced or not session.living:
        return f"this session is fenced ({session.fenced or 'at this moment'})"
    if session.epoch != guard.epoch or facts.epoch != guard.epoch:
        return f"the store is in epoch {facts.epoch}, this session of {guard.epoch}"
    if session.beat < guard.beat:
        return "the store holds an older beat than it acknowledged: it went back"
    if guard.seen is not None and not facts.held.get(guard.seen):
        return f"the store does not hold row {guard.seen[2]} of {guard.seen[1]}, which it acknowledged: it went back"
    return ""


def queues(unit: object) -> bool:
    """Whether it lets a task wait to be claimed."""
    if isinstance(unit, Change):
        for part in unit.parts:  # asked of each unit: `any` takes thrice as long
            if part.tables.ready is not None:
                return True
    return False


def touched(change: Change) -> set[Stream]:
    """The streams on whose place a change rests, and its key."""
    streams = {(p.tenant, p.stream) for p in change.parts} | {check[:2] for check in change.checks}
    if change.create:
        streams.add((change.create[0], "\0".join(change.create[1:3])))
    return streams


def _end(birth: Change) -> Head:
    row = birth.parts[0].rows[0]
    return Head(row.seq, row.hash)


def _count(pointers: dict[Any, int], gone: Any, new: Any) -> None:
    """Pointers that a batch both inserts and deletes need not be written at all."""
    if gone is not None:
        pointers[gone] = pointers.get(gone, 0) - 1
    if new is not None:
        pointers[new] = pointers.get(new, 0) + 1

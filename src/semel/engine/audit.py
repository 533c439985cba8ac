"""Verifying a store: every chain is whole, every table is what the journal says, and nothing that was signed is gone.

What is wrong is named by what was done to it: see `Wrong`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from semel.engine.heads import Archives, Pending, Signed, Walk
from semel.engine.pages import every_effect, every_head, every_stream, every_task
from semel.machine import epochs, pauses, projection, tampering, tasks
from semel.machine import journal as j
from semel.machine.journal import Row
from semel.machine.projection import Tables, TaskRow
from semel.machine.words import count
from semel.model import Delivery
from semel.store.contract import Store

TABLES = ("task", "ready", "inflight", "effect", "unknown", "task_key")
CLIPPED = 60  # characters of a value that a message shows
REMEMBERED = 1000  # streams of which it is known for a while what effects they tell of
AGAIN = 20  # how often a stream is read again that is written while it is checked
PASSES, PATIENCE_SECONDS = 3, 10.0  # everything is checked again, if only the numbers of rows differ and others write
BACKDATED_MS = 86_400_000  # a change waits minutes for its store, and never so long


class Wrong(NamedTuple):
    """One thing that is wrong. what: by name, what was done.

    Rows: changed, removed, moved (reordered), inserted, truncated (the last ones are gone), added (past semel), rewritten (a
    whole history, anew), foreign (a stream that is not of here), read and fold (they cannot be read). Tables: table, key, size.
    The store: replaced, went_back. The signed file: signature. The exports of what was pruned: archive.
    """

    tenant: str
    stream: str
    what: str
    text: str


@dataclass(slots=True)
class Report:
    """What was checked, and what is wrong with it. note: what could not be compared, and why.

    last: the sum of the seqs of all last rows; more than `rows` where some were pruned. heads: how many were signed, and held.
    """

    streams: int = 0
    rows: int = 0
    last: int = 0
    wrong: list[Wrong] = field(default_factory=list)
    want: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    found: dict[str, int] = field(default_factory=dict)
    note: str = ""
    heads: int = 0

    def noted(self, words: str) -> None:
        """Add to what could not be compared."""
        self.note = f"{self.note}; {words}" if self.note else words


class AtWork(NamedTuple):
    """A leased task, looked at: last, the last row of its stream; known, the last one that its own row knows."""

    last: int
    known: int


Leased = dict[tuple[str, str], AtWork]  # by (tenant, task); no more than there are streams


class Expected(NamedTuple):
    """What a stream says that the tables must hold; key: (tenant, kind, key) of a task."""

    tables: Tables
    key: tuple[str, str, str] | None


def verify(
    store: Store,
    looked: Callable[[int, int], None] = lambda n, of: None,
    *,
    signed: Signed | None = None,
    pruned: Sequence[Path] = (),
) -> Report:
    """Check everything. What others write meanwhile is read again, so that a store at work is not called broken.

    looked: told, stream by stream, how many have been checked, and of how many. signed: where the streams stood when an
    operator signed for it. pruned: the files to which rows were exported before they were pruned. Raises `Misuse` for files.
    """
    began = time.monotonic()
    quiet = True
    for _ in range(PASSES):
        report = _pass(store, looked, signed, pruned)
        if report.want == report.found:
            break
        quiet = _grown(store) == (report.streams, report.last)
        if quiet or time.monotonic() - began > PATIENCE_SECONDS:
            break
    if report.want != report.found:
        if quiet:
            report.wrong += _surplus(store, report)
        else:
            report.noted("others wrote all the while, so the numbers of rows were not compared: run it again when they are done")
    return report


def _pass(store: Store, looked: Callable[[int, int], None], signed: Signed | None, pruned: Sequence[Path]) -> Report:
    report, pending, leased = Report(), list[Pending](), Leased()
    streams = list(every_stream(store))  # as they are now: a store at work may grow as fast as it is checked
    walk = _begin(store, report, signed)
    for tenant, stream in streams:
        if walk is not None:
            report.wrong += [_gone(*head[:3]) for head in walk.before(tenant, stream)]
        rows, expected, wrong = _stream(store, tenant, stream, leased)
        report.streams += 1
        looked(report.streams, len(streams))
        report.rows += len(rows)
        report.last += rows[-1].seq if rows else 0
        report.wrong += wrong
        if walk is not None and rows:
            report.wrong += _against(walk, rows, report, pending)
        if expected is not None:
            _count(report.want, expected.tables)
            report.want["task_key"] += expected.key is not None
    if walk is not None:
        report.wrong += [_gone(*head[:3]) for head in walk.rest()]
    report.wrong += _ends_at_work(store, leased)
    if pending or pruned:
        _from_archives(report, pending, pruned)
    report.found = store.sizes()
    return report


# --- what was signed --------------------------------------------------------------------------------------------------


def _begin(store: Store, report: Report, signed: Signed | None) -> Walk | None:
    """Compare what is said of the store as a whole; and what to compare its streams with."""
    info = store.reread()
    if (text := _epoch_differs(store)) is not None:
        report.wrong.append(Wrong(epochs.TENANT, epochs.STREAM, "table", text))
    if signed is None:
        return None
    if signed.note:
        report.noted(signed.note)
    if signed.wrong:
        report.wrong.append(Wrong("", "", "signature", signed.wrong))
        return None
    if signed.store != info.id:
        text = f"the heads are of store {signed.store}, and this is store {info.id}: another store is in its place"
        report.wrong.append(Wrong("", "", "replaced", text))
        return None
    if signed.epoch > info.epoch:
        text = f"the heads were taken in epoch {signed.epoch}, and the store is in epoch {info.epoch}: it went back"
        report.wrong.append(Wrong("", "", "went_back", text))
    if signed.tenant is not None and signed.tenant != info.tenant:
        report.noted(f"the heads are of tenant {signed.tenant} alone: nothing is signed of others")
    return Walk(signed, info.tenant if signed.tenant is None else signed.tenant)


def _epoch_differs(store: Store) -> str | None:
    """The epoch in the table against its row in the journal; looked at again, since one may just have begun."""
    text = None
    for _ in range(AGAIN):
        try:
            told = epochs.fold(store.rows(epochs.TENANT, epochs.STREAM)).epoch
        except ValueError:
            return None  # that it cannot be read is told with its stream
        if not told or told == store.reread().epoch:
            return None
        text = f"table meta: epoch is {store.reread().epoch}, the journal says {told}"
    return text


def _gone(tenant: str, stream: str, seq: int) -> Wrong:
    return Wrong(tenant, stream, "removed", f"the whole stream is missing, of which {seq} rows were signed")


def _against(walk: Walk, rows: list[Row], report: Report, pending: list[Pending]) -> Iterator[Wrong]:
    """One stream's rows, and what was signed of it."""
    tenant, stream = rows[0].tenant, rows[0].stream
    head = walk.of(tenant, stream)
    if head is None:
        if walk.covers(tenant) and rows[0].at < walk.at - BACKDATED_MS and rows[0].kind != tampering.PRUNED:
            yield Wrong(
                tenant, stream, "foreign", "its first row is dated before the heads were signed, and the stream is not among them"
            )
        return
    report.heads += 1
    try:
        start = tampering.start_of(rows)
    except ValueError:
        return  # it is told of already
    if head.seq > rows[-1].seq:
        text = f"the journal ends with row {rows[-1].seq}, and row {head.seq} was signed: the last rows are missing"
        yield Wrong(tenant, stream, "truncated", text)
    elif head.seq < start.seq:
        pending.append(Pending(tenant, stream, head.seq, head.hash, start.seq, start.hash))
    else:
        held = start.hash if head.seq == start.seq else next((row.hash for row in rows if row.seq == head.seq), None)
        if held is not None and held != head.hash:
            text = f"row {head.seq} is not the one that was signed: the history was written anew"
            yield Wrong(tenant, stream, "rewritten", text)


def _from_archives(report: Report, pending: list[Pending], pruned: Sequence[Path]) -> None:
    """What was pruned since it was signed is proved by the exports, if they are here."""
    archives = Archives(pending)
    for path in pruned:
        archives.read(path)
    report.wrong += [Wrong(tenant, stream, "archive", text) for tenant, stream, text in archives.wrong]
    if absent := archives.absent():
        tenant, stream, seq = absent[0][:3]
        report.noted(
            f"what was signed of {count(len(absent), 'stream')} was pruned since, and is proved only by the exports of those "
            f"prunes (--pruned FILE): row {seq} of {stream}, tenant {tenant}, is the first"
        )


def _grown(store: Store) -> tuple[int, int]:
    """How many streams and rows there are now. Whatever is written writes a row: if there are no more, nobody wrote."""
    heads = [seq for _, _, seq, _ in every_head(store)]
    return len(heads), sum(heads)


def _count(want: dict[str, int], tables: Tables) -> None:
    for name, rows in (("task", tables.task), ("ready", tables.ready), ("inflight", tables.inflight)):
        want[name] += rows is not None
    want["effect"] += len(tables.effects)
    want["unknown"] += len(tables.unknown)


# --- one stream -----------------------------------------------------------------------------------------------------


def _stream(store: Store, tenant: str, stream: str, leased: Leased) -> tuple[list[Row], Expected | None, list[Wrong]]:
    """One stream's rows, what the tables must hold of it, and what is wrong. leased: where it is put, if its task is leased."""
    for _ in range(AGAIN):
        try:
            rows = store.rows(tenant, stream)
        except Exception as error:  # a damaged page, or what is no text: the other streams are checked all the same
            return [], None, [Wrong(tenant, stream, "read", f"its rows cannot be read: {type(error).__name__}: {error}")]
        if not rows:
            return [], None, [Wrong(tenant, stream, "removed", "its rows were taken out while it was looked at")]
        leased.pop((tenant, stream), None)  # as it was read before
        expected, wrong = _check(store, tenant, stream, rows, leased)
        if not wrong or store.head(tenant, stream).seq == rows[-1].seq:
            break
    return rows, expected, wrong


def _check(store: Store, tenant: str, stream: str, rows: list[Row], leased: Leased) -> tuple[Expected | None, list[Wrong]]:
    wrong: list[Wrong] = []
    try:
        wrong += [Wrong(tenant, stream, fault.what, fault.text) for fault in tampering.faults(rows)]
    except ValueError as error:  # what is no text, or no tombstone
        wrong.append(Wrong(tenant, stream, "changed", f"a row holds what semel has not written: {error}"))
    try:
        expected = fold(tenant, stream, rows)
    except Exception as error:  # whatever a changed row does to the fold, it is a finding
        wrong.append(Wrong(tenant, stream, "fold", f"the journal cannot be read back: {type(error).__name__}: {error}"))
        return None, wrong
    wrong += [Wrong(tenant, stream, *said) for said in _ends(store, expected.tables, rows[-1].seq, leased)]
    wrong += [Wrong(tenant, stream, "table", text) for text in _tables(store, expected.tables, rows[-1].seq)]
    if expected.key is not None and (holder := store.find_task(*expected.key)) != stream:
        kind, key = expected.key[1:]
        wrong.append(Wrong(tenant, stream, "key", f"the key {key!r} of {kind} belongs to {holder or 'no task'} in task_key"))
    return expected, wrong


def fold(tenant: str, stream: str, rows: list[Row]) -> Expected:
    """What the rows say that the tables must hold. Raises whatever a damaged row makes the fold raise."""
    if any(row.kind == j.Enqueued.kind for row in rows) or _pruned_task(rows):
        state = tasks.fold(rows)
        tables = projection.of_task(tenant, None, state, state.effects.keys())
        if state.id != stream:
            raise ValueError(f"the stream tells of task {state.id!r}")
        return Expected(tables, (tenant, state.kind, state.key))
    if (tenant, stream) == (epochs.TENANT, epochs.STREAM):
        epochs.fold(rows)
        return Expected(Tables(), None)
    if (tenant, stream) == (pauses.TENANT, pauses.STREAM):
        pauses.fold(rows)
        return Expected(Tables(), None)
    key = tasks.fold_key(rows)
    if key.effect is not None and key.effect.key != stream:
        raise ValueError(f"the stream is no task's, and tells of effect {key.effect.key!r}")
    return Expected(projection.of_key(tenant, stream, tasks.Key(), key), None)


def _pruned_task(rows: list[Row]) -> bool:
    """Whether the stream is a task's whose first rows were pruned (R22)."""
    return rows[0].kind == tampering.PRUNED and json.loads(rows[0].body).get("task") is not None


def _ends(store: Store, tables: Tables, last: int, leased: Leased) -> Iterator[tuple[str, str]]:
    """Where the tables say that the stream ends. A row at the end proves nothing by itself, nor does that there is none."""
    known: int | None = None
    if (want := tables.task) is not None:
        held = store.task(want.tenant, want.task)
        if held is not None and held.version <= last and Delivery.LEASED in (held.delivery, want.delivery):
            leased[want.tenant, want.task] = AtWork(last, held.version)  # the rows of its effects may know more of it
            return
        known = held and held.version
    elif tables.effects and (row := store.effect(tables.effects[0].tenant, tables.effects[0].key)) is not None:
        known = row.version
    if known is not None and known > last:
        yield _truncated(last, known)
    elif known is not None and known < last and tables.task is not None:
        yield _added(last, known)


def _truncated(last: int, known: int) -> tuple[str, str]:
    return "truncated", f"the journal ends with row {last}, and its table knows row {known}: the last rows are missing"


def _added(last: int, known: int) -> tuple[str, str]:
    return "added", f"its table knows nothing after row {known}, and the journal ends with row {last}"


def _ends_at_work(store: Store, leased: Leased) -> Iterator[Wrong]:
    """While an attempt goes on, its effects' rows may know more of its task's stream than the task's own row, also those of which
    the journal says nothing (any more). They are found by no key of the task's: all are looked at, once for all leased tasks.

    Whoever works goes on meanwhile, and the order of the reads makes up for it, since no version ever falls: the effects are read
    after the rows, so they know at least those; and the end of a stream after the effects, so it has at least what they know.
    """
    known = {place: one.known for place, one in leased.items()}
    for row in every_effect(store) if leased else ():
        place = (row.tenant, row.task)
        if row.stream == row.task and place in known:
            known[place] = max(known[place], row.version)
    for place, (last, _) in leased.items():
        if known[place] < last:
            yield Wrong(*place, *_added(last, known[place]))
        elif known[place] > last and (end := store.head(*place).seq) < known[place]:
            yield Wrong(*place, *_truncated(end, known[place]))


def _tables(store: Store, tables: Tables, last: int) -> Iterator[str]:
    """The store says whether it holds them; where a row differs, in which columns."""
    if not store.holds(tables):
        return
    if tables.task is not None and tables.task.delivery == Delivery.LEASED:
        held = store.task(tables.task.tenant, tables.task.task)
        if held is not None and tables.task.version < held.version <= last:  # an older semel moved it with every event
            tables = tables._replace(task=tables.task._replace(version=held.version))
    if tables.task is not None and store.holds(Tables(task=tables.task)):
        yield f"table task: {_differs(store.task(tables.task.tenant, tables.task.task), tables.task)}"
    for effect in tables.effects:
        if store.holds(Tables(effects=(effect,))):
            yield f"table effect, {effect.name} {effect.key}: {_differs(store.effect(effect.tenant, effect.key), effect)}"
    if store.holds(Tables(ready=tables.ready)):
        yield "table ready: the row by which a worker would find the task is missing, so nobody claims it"
    if store.holds(Tables(inflight=tables.inflight)):
        yield "table inflight: the row by which a sweep would find the task is missing"
    for unknown in tables.unknown:
        if store.holds(Tables(unknown=(unknown,))):
            yield f"table unknown: {unknown.name} {unknown.key} is unknown, and the queue does not say so"


def _differs(held: Any, want: Any) -> str:
    if held is None:
        return "the row is missing"
    columns = zip(want._fields, held, want, strict=True)
    return "; ".join(f"{name} is {_shown(a)}, the journal says {_shown(b)}" for name, a, b in columns if a != b)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= CLIPPED else text[: CLIPPED - 1] + "…"


# --- rows that no journal tells of ----------------------------------------------------------------------------------


def _surplus(store: Store, report: Report) -> list[Wrong]:
    """The numbers differ: name what is too much, where it can be named."""
    wrong = [
        Wrong("", "", "size", f"table {name} has {report.found[name]} rows, the journal tells of {report.want[name]}")
        for name in TABLES
        if report.found[name] != report.want[name]
    ]
    differ = {name for name in TABLES if report.found[name] != report.want[name]}
    if "task" in differ:
        wrong += [Wrong(t.tenant, t.task, "table", "table task: no journal tells of this task") for t in _lone_tasks(store)]
    if "effect" in differ:
        told = lru_cache(REMEMBERED)(partial(_told, store))  # else a task with many effects is read for each of them
        for row in every_effect(store):
            asked = row.tenant, row.stream, row.stream == row.key
            if row.key not in told(*asked) and row.key not in _told(store, *asked):  # what began since that was read is no fault
                wrong.append(Wrong(row.tenant, row.key, "table", f"table effect: no journal tells of this {row.name}"))
    if "unknown" in differ:
        for unknown in store.unknown(None, limit=report.found["unknown"] + 1):
            held = store.effect(unknown.tenant, unknown.key)
            if held is None or held.state != "ambiguous":
                wrong.append(Wrong(unknown.tenant, unknown.key, "table", f"table unknown: this {unknown.name} is not unknown"))
    return wrong


def _lone_tasks(store: Store) -> Iterator[TaskRow]:
    return (row for row in every_task(store) if store.head(row.tenant, row.task).seq == 0)


def _told(store: Store, tenant: str, stream: str, shared: bool) -> frozenset[str]:
    """The effects of which a stream tells, a key's own (shared) or a task's; none, if it cannot be read."""
    rows = store.rows(tenant, stream)
    try:
        return frozenset(tasks.fold(rows).effects) if not shared else frozenset([stream] if tasks.fold_key(rows).effect else ())
    except Exception:
        return frozenset()

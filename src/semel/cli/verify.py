"""`semel verify`: every chain is whole, and every table is what the journal says, row for row and in number."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from semel.cli import output as out
from semel.cli.reach import every_effect, every_task
from semel.machine import effects as e
from semel.machine import epochs, projection, tasks
from semel.machine import journal as j
from semel.machine.journal import Row
from semel.machine.projection import Tables, TaskRow
from semel.model import Json
from semel.store.contract import Store

PAGE = 1000
TABLES = ("task", "ready", "inflight", "effect", "unknown")
AGAIN = 20  # how often a stream is read again that is written while it is checked
PASSES, PATIENCE_SECONDS = 3, 10.0  # everything is checked again, if only the numbers of rows differ and others write
SHOWN = 20


class Wrong(NamedTuple):
    """One thing that is wrong. what: read, chain, fold, table, key or size."""

    tenant: str
    stream: str
    what: str
    text: str


@dataclass(slots=True)
class Report:
    """What was checked, and what is wrong with it. note: what could not be compared, and why."""

    streams: int = 0
    rows: int = 0
    heads: int = 0
    wrong: list[Wrong] = field(default_factory=list)
    want: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    found: dict[str, int] = field(default_factory=dict)
    note: str = ""


class Expected(NamedTuple):
    """What a stream says that the tables must hold; key: (tenant, kind, key) of a task."""

    tables: Tables
    key: tuple[str, str, str] | None


def verify(store: Store, looked: Callable[[int, int], None] = lambda n, of: None) -> Report:
    """Check everything. What others write meanwhile is read again, so that a store at work is not called broken.

    looked: told, stream by stream, how many have been checked, and of how many.
    """
    began = time.monotonic()
    quiet = True
    for _ in range(PASSES):
        report = _pass(store, looked)
        if report.want == report.found:
            break
        quiet = _grown(store) == (report.streams, report.heads)
        if quiet or time.monotonic() - began > PATIENCE_SECONDS:
            break
    if report.want != report.found:
        if quiet:
            report.wrong += _surplus(store, report)
        else:
            report.note = "others wrote all the while, so the numbers of rows were not compared: run it again when they are done"
    return report


def _pass(store: Store, looked: Callable[[int, int], None]) -> Report:
    report = Report()
    streams = list(_streams(store))  # as they are now: a store at work may grow as fast as it is checked
    for tenant, stream in streams:
        rows, expected, wrong = check(store, tenant, stream)
        report.streams += 1
        looked(report.streams, len(streams))
        report.rows += len(rows)
        report.heads += rows[-1].seq if rows else 0  # more than there are rows, where some were pruned
        report.wrong += wrong
        if expected is not None:
            _count(report.want, expected.tables)
    report.found = store.sizes()
    return report


def _grown(store: Store) -> tuple[int, int]:
    """How many streams and rows there are now. Whatever is written writes a row: if there are no more, nobody wrote."""
    heads = [store.head(tenant, stream).seq for tenant, stream in _streams(store)]
    return len(heads), sum(heads)


def _streams(store: Store) -> Iterator[tuple[str, str]]:
    after = ("", "")
    while page := store.streams(after, PAGE):
        yield from page
        after = page[-1]


def _count(want: dict[str, int], tables: Tables) -> None:
    for name, rows in (("task", tables.task), ("ready", tables.ready), ("inflight", tables.inflight)):
        want[name] += rows is not None
    want["effect"] += len(tables.effects)
    want["unknown"] += len(tables.unknown)


# --- one stream -----------------------------------------------------------------------------------------------------


def check(store: Store, tenant: str, stream: str) -> tuple[list[Row], Expected | None, list[Wrong]]:
    """One stream's rows, what the tables must hold of it, and what is wrong."""
    for _ in range(AGAIN):
        try:
            rows = store.rows(tenant, stream)
        except Exception as error:  # a damaged page, or what is no text: the other streams are checked all the same
            return [], None, [Wrong(tenant, stream, "read", f"its rows cannot be read: {type(error).__name__}: {error}")]
        expected, wrong = _check(store, tenant, stream, rows)
        if not wrong or store.head(tenant, stream).seq == rows[-1].seq:
            break
    return rows, expected, wrong


def _check(store: Store, tenant: str, stream: str, rows: list[Row]) -> tuple[Expected | None, list[Wrong]]:
    wrong: list[Wrong] = []
    try:
        if (broken := j.broken(rows)) is not None:
            wrong.append(Wrong(tenant, stream, "chain", broken))
    except UnicodeError as error:
        wrong.append(Wrong(tenant, stream, "chain", f"a row holds what is no text: {error}"))
    try:
        expected = fold(tenant, stream, rows)
    except Exception as error:  # whatever a changed row does to the fold, it is a finding
        wrong.append(Wrong(tenant, stream, "fold", f"the journal cannot be read back: {type(error).__name__}: {error}"))
        return None, wrong
    wrong += [Wrong(tenant, stream, "table", text) for text in _tables(store, expected.tables)]
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
    return Expected(projection.of_key(tenant, stream, tasks.Key(), tasks.fold_key(rows)), None)


def _pruned_task(rows: list[Row]) -> bool:
    """Whether the stream is a task's whose first rows were pruned."""
    first = j.event_of(rows[0].kind, rows[0].body) if rows[0].kind == j.Pruned.kind else None
    return isinstance(first, j.Pruned) and first.task is not None


def _tables(store: Store, tables: Tables) -> Iterator[str]:
    """The store says whether it holds them; where a row differs, in which columns."""
    if not store.holds(tables):
        return
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
    return out.clipped(repr(value), 60)


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
        for row in every_effect(store):
            if read_effect(store, row.tenant, row.stream, row.key) is None:
                wrong.append(Wrong(row.tenant, row.key, "table", f"table effect: no journal tells of this {row.name}"))
    if "unknown" in differ:
        for unknown in store.unknown(None, limit=report.found["unknown"] + 1):
            held = store.effect(unknown.tenant, unknown.key)
            if held is None or held.state != "ambiguous":
                wrong.append(Wrong(unknown.tenant, unknown.key, "table", f"table unknown: this {unknown.name} is not unknown"))
    return wrong


def _lone_tasks(store: Store) -> Iterator[TaskRow]:
    return (row for row in every_task(store) if store.head(row.tenant, row.task).seq == 0)


def read_effect(store: Store, tenant: str, stream: str, key: str) -> e.Effect | None:
    """An effect as its stream tells of it; None if it does not, or cannot be read."""
    rows = store.rows(tenant, stream)
    try:
        return tasks.fold_key(rows).effect if stream == key else tasks.fold(rows).effects.get(key)
    except Exception:
        return None


# --- saying it ------------------------------------------------------------------------------------------------------


def as_data(report: Report) -> dict[str, Json]:
    """For programs."""
    return {
        "whole": not report.wrong, "streams": report.streams, "rows": report.rows, "tables": report.found, "note": report.note,
        "wrong": [wrong._asdict() for wrong in report.wrong],
    }  # fmt: skip


def show(report: Report) -> None:
    """For people."""
    checked = f"{out.count(report.rows, 'row')} in {out.count(report.streams, 'stream')}"
    held = ", ".join(f"{n} {name}" for name, n in report.found.items())
    if not report.wrong:
        out.verdict(f"WHOLE  Every chain is intact: {checked}. The tables are what the journal says ({held} rows).", "good")
    else:
        out.verdict(f"BROKEN  {out.count(len(report.wrong), 'thing')} wrong, in {checked}.", "bad")
        out.say("Stop the workers, keep a copy of the file, and find out who wrote to it.")
    for wrong in report.wrong[:SHOWN]:
        out.say()
        if wrong.stream:
            out.indented(f"{wrong.stream}  (tenant {wrong.tenant})", 2, style="bold")
        out.indented(wrong.text, 9, first=f"  {wrong.what}")
    if len(report.wrong) > SHOWN:
        out.say()
        out.say(f"... and {len(report.wrong) - SHOWN} more: semel verify --json")
    if report.note:
        out.say(f"Note: {report.note}.")

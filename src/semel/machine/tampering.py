"""What was done to the rows of one stream, by name: changed, removed, moved, inserted. Pure.

The chain alone shows what was done inside of a stream. That its last rows are gone, or that all of it was written anew,
shows against what is kept elsewhere: the tables beside it, signed heads, an export.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from semel.machine import journal as j
from semel.machine.journal import Row

PRUNED = "pruned"  # the kind of a tombstone, which may be the first row of a stream (R22)
FOLLOWS = "follows another row than it was written after"
NEAR = 8  # how far a row is looked for that was moved: its place is guessed from its hash


class Fault(NamedTuple):
    """One thing that was done. what: changed, removed, moved, inserted. seq: where."""

    what: str
    seq: int
    text: str


class Start(NamedTuple):
    """After which row a stream's rows begin: (0, 32 zero bytes), or the last row that was pruned."""

    seq: int
    hash: bytes


def start_of(rows: list[Row]) -> Start:
    """What the first row says that it follows. Raises `ValueError` for a tombstone that says nothing."""
    if not rows or rows[0].kind != PRUNED:
        return Start(0, j.GENESIS)
    body = json.loads(rows[0].body)
    if not isinstance(body, dict) or not isinstance(body.get("hash"), str):
        raise ValueError(f"the tombstone in row {rows[0].seq} does not say what it stands for")
    return Start(rows[0].seq - 1, bytes.fromhex(body["hash"]))


def faults(rows: list[Row], start: Start | None = None) -> list[Fault]:
    """Everything that is wrong with the chain of one stream's rows. Raises `ValueError` for what is no text or no tombstone."""
    return _as_runs(list(_each(rows, start if start is not None else start_of(rows))))


def _each(rows: list[Row], start: Start) -> Iterator[Fault]:
    seq, previous, shift, fitted = start.seq, start.hash, 0, 0  # fitted: so many rows before this one are in order
    for n, row in enumerate(rows):
        place = row.seq - shift
        if row.seq != seq + shift + 1:
            yield _gap(seq + shift + 1, row.seq)
            place, shift, fitted = row.seq, 0, 0
        elif written(row, place, previous) == row.hash:
            fitted += 1
        elif many := _inserted_before(rows, n, place, min(fitted, NEAR), start):
            yield _inserted(rows[n - many : n])
            place, shift, fitted = place - many, shift + many, 1
        elif (fault := _misfit(rows, n, place, fitted > 0 or n == 0)) is not None:
            if fault.what == "changed" and n + 1 < len(rows) and written(rows[n + 1], place, previous) == rows[n + 1].hash:
                yield _inserted(rows[n : n + 1])
                shift += 1
                continue
            yield fault
            fitted = 0
        seq, previous = place, row.hash


def _inserted_before(rows: list[Row], n: int, place: int, most: int, start: Start) -> int:
    """How many rows before this one were written by somebody else: without them it is in order."""
    for many in range(1, most + 1):
        before = rows[n - many - 1].hash if n > many else start.hash
        if written(rows[n], place - many, before) == rows[n].hash:
            return many
    return 0


def _inserted(rows: list[Row]) -> Fault:
    first, last = rows[0], rows[-1]
    which = f"row {first.seq} ({first.kind}) was" if len(rows) == 1 else f"rows {first.seq} to {last.seq} were"
    return Fault("inserted", first.seq, f"{which} inserted: the rows after were written without")


def written(row: Row, seq: int, previous: bytes) -> bytes:
    """The hash of the row, had it been written at `seq`, after a row whose hash is `previous`."""
    return j.chain(
        previous, tenant=row.tenant, stream=row.stream, seq=seq, kind=row.kind, actor=row.actor, token=row.token, at=row.at,
        body=row.body, id=row.id,
    )  # fmt: skip


def _gap(first: int, next: int) -> Fault:
    if next < first:
        return Fault("moved", next, f"row {next} stands after row {first - 1}")
    gone = f"row {first} is missing" if next == first + 1 else f"rows {first} to {next - 1} are missing"
    return Fault("removed", first, f"{gone} (the next is {next})")


def _misfit(rows: list[Row], n: int, place: int, alone: bool) -> Fault | None:
    """A row that does not follow the one before it. alone: the one before is in order; else that may be why."""
    row = rows[n]
    near = [j.GENESIS, *(other.hash for other in rows[max(0, n - NEAR) : n + NEAR])]
    for seq in range(max(1, place - NEAR), place + NEAR):
        if any(written(row, seq, previous) == row.hash for previous in near):
            if seq != place:
                return Fault("moved", row.seq, f"row {row.seq} ({row.kind}) was written as row {seq}")
            return None if not alone else Fault("changed", row.seq, f"row {row.seq} ({row.kind}) {FOLLOWS}")
    return Fault("changed", row.seq, f"row {row.seq} ({row.kind}) was changed, or {FOLLOWS}")


def _as_runs(found: list[Fault]) -> list[Fault]:
    """One fault for many rows that were moved one after the other."""
    kept: list[Fault] = []
    run: list[Fault] = []
    for fault in [*found, Fault("", 0, "")]:
        if fault.what == "moved" and (not run or fault.seq == run[-1].seq + 1):
            run.append(fault)
            continue
        if len(run) > 3:
            kept.append(Fault("moved", run[0].seq, f"rows {run[0].seq} to {run[-1].seq} stand elsewhere than they were written"))
        else:
            kept += run
        run = [fault] if fault.what == "moved" else []
        kept += [fault] if fault.what not in ("moved", "") else []
    return kept

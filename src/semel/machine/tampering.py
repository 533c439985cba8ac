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
    seq, previous, shift = start.seq, start.hash, 0
    for n, row in enumerate(rows):
        if row.seq != seq + shift + 1:
            yield _gap(seq + shift + 1, row.seq)
            shift = 0
        elif written(row, row.seq - shift, previous) != row.hash:
            if n + 1 < len(rows) and written(rows[n + 1], row.seq - shift, previous) == rows[n + 1].hash:
                yield Fault(
                    "inserted", row.seq, f"row {row.seq} ({row.kind}) was inserted: the rows after it were written without it"
                )
                shift += 1
                continue
            yield _misfit(rows, n)
        seq, previous = row.seq - shift, row.hash


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


def _misfit(rows: list[Row], n: int) -> Fault:
    """A row that does not follow the one before it."""
    row = rows[n]
    near = rows[max(0, n - NEAR) : n + NEAR]
    for seq in range(max(1, row.seq - NEAR), row.seq + NEAR):
        for previous in [j.GENESIS, *(other.hash for other in near)] if seq != row.seq else ():
            if written(row, seq, previous) == row.hash:
                return Fault("moved", row.seq, f"row {row.seq} ({row.kind}) was written as row {seq}")
    return Fault("changed", row.seq, f"row {row.seq} ({row.kind}) was changed, or follows another row than it was written after")


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

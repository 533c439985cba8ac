"""The journal: the text of its events, and the chain of hashes. Rows are inserted and never touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, field, fields
from typing import Any

from semel.machine.compact import compact, encoder
from semel.machine.events import *  # noqa: F403 - `journal` is where users find them
from semel.machine.events import KINDS, Happened, Pruned
from semel.machine.records import record
from semel.model import Json

GENESIS = bytes(32)  # the hash before the first row


# The fields of each kind with the value that need not be written; JSON knows no tuples, so those are named too.
_FIELDS = {
    kind: tuple((f.name, f.default if f.default is not MISSING else MISSING) for f in fields(cls)) for kind, cls in KINDS.items()
}
_TUPLES = {"recovery", "intent", "reopens", "watched"}
_escape = encoder(ascii_only=True)


@record
class Row:
    """One row of the journal. at: milliseconds since the Unix epoch. id: random, one for each change (R7)."""

    tenant: str
    stream: str
    seq: int
    kind: str
    actor: str
    token: int
    at: int
    body: str
    id: str
    hash: bytes
    event: Happened | None = field(default=None, compare=False, repr=False)


def body_of(event: Happened) -> str:
    """The text of an event: compact JSON; a field that holds its default is left out."""
    kept: dict[str, Any] = {}
    for name, default in _FIELDS[event.kind]:
        value = getattr(event, name)
        if value is default:
            continue
        if value != default or default is MISSING or type(value) is not type(default):
            kept[name] = value
    text = compact(kept)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, of an error that names a file, say: an outcome must be recorded all the same
        return _escape(kept)
    return text


def event_of(kind: str, body: str) -> Happened:
    """The event of a row's text. Raises `ValueError` for a kind or a field that this version does not know."""
    cls = KINDS.get(kind)
    if cls is None:
        raise ValueError(f"the journal holds an event {kind!r} that this version of semel does not know")
    values: dict[str, Any] = json.loads(body)
    for name in _TUPLES.intersection(values):
        values[name] = tuple(values[name])
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"the journal holds an event {kind!r} with fields that this version does not know") from error


def chain(
    previous: bytes, *, tenant: str, stream: str, seq: int, kind: str, actor: str, token: int, at: int, body: str, id: str
) -> bytes:
    """The hash of a row: SHA-256 over the row before and every column, each with its length, so that none can be shifted."""
    number, fence, time = str(seq), str(token), str(at)
    said = (
        f"{len(tenant)}:{tenant}{len(stream)}:{stream}{len(number)}:{number}{len(kind)}:{kind}{len(actor)}:{actor}"
        f"{len(fence)}:{fence}{len(time)}:{time}{len(id)}:{id}{len(body)}:{body}"
    )
    if said.isascii():  # then each length is that of its bytes; all at once, since each call by itself is felt
        return hashlib.sha256(previous + said.encode()).digest()
    parts = [part.encode() for part in (tenant, stream, number, kind, actor, fence, time, id, body)]
    return hashlib.sha256(previous + b"".join([b"%d:%b" % (len(part), part) for part in parts])).digest()


def seal(
    events: tuple[Happened, ...], *, tenant: str, stream: str, seq: int, previous: bytes, actor: str, token: int, at: int, id: str
) -> tuple[Row, ...]:
    """The rows of `events`, to follow the row `seq` whose hash is `previous`."""
    rows: list[Row] = []
    for event in events:
        seq += 1
        body = body_of(event)
        previous = chain(
            previous, tenant=tenant, stream=stream, seq=seq, kind=event.kind, actor=actor, token=token, at=at, body=body, id=id
        )
        rows.append(Row(tenant, stream, seq, event.kind, actor, token, at, body, id, previous, event))
    return tuple(rows)


def broken(rows: list[Row], seq: int = 0, previous: bytes = GENESIS) -> str | None:
    """What is wrong with the chain of one stream's rows, or None if it is whole. A pruned one begins with its tombstone (R22)."""
    if rows and seq == 0 and rows[0].seq > 1 and rows[0].kind == Pruned.kind:
        try:
            seq, previous = rows[0].seq - 1, bytes.fromhex(json.loads(rows[0].body)["hash"])
        except (ValueError, LookupError, TypeError):
            return f"row {rows[0].seq} (pruned) does not say what it follows"
    for row in rows:
        if row.seq != seq + 1:
            return f"row {seq + 1} is missing (the next is {row.seq})"
        want = chain(
            previous,
            tenant=row.tenant,
            stream=row.stream,
            seq=row.seq,
            kind=row.kind,
            actor=row.actor,
            token=row.token,
            at=row.at,
            body=row.body,
            id=row.id,
        )
        if want != row.hash:
            return f"row {row.seq} ({row.kind}) was changed, or follows another row than it was written after"
        seq, previous = row.seq, row.hash
    return None


def as_mapping(event: Happened) -> Mapping[str, Json]:
    """An event's body as plain data, defaults included."""
    return {name: getattr(event, name) for name, _ in _FIELDS[event.kind]}

"""The journal: the text of its events, and the chain of hashes. Rows are inserted and never touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, field, fields
from typing import Any

from semel.machine.compact import compact, encoder
from semel.machine.events import *  # noqa: F403 - `journal` is where users find them
from semel.machine.events import KINDS, Enqueued, Happened, OfEffect, Pruned
from semel.machine.records import record
from semel.model import Json

GENESIS = bytes(32)  # the hash before the first row


_SAID = ("task", "token", "session", "n", "attempt")  # see `_said_by`


def _may_be_left_out(cls: type[Happened], name: str, default: object) -> bool:
    """A field that the row may say. It has no default: a semel that does not know of this cannot read the row, nor misread it."""
    return default is MISSING and (name in _SAID or (name == "key" and issubclass(cls, OfEffect)))


# The fields of each kind with the value that need not be written; JSON knows no tuples, so those are named too.
_FIELDS = {
    kind: tuple((f.name, f.default, _may_be_left_out(cls, f.name, f.default)) for f in fields(cls)) for kind, cls in KINDS.items()
}
_LEFT_OUT = {kind: tuple(name for name, _, left_out in known if left_out) for kind, known in _FIELDS.items()}
_TUPLES = {"recovery", "intent", "reopens", "watched"}
_ACTOR = "session:"
_escape = encoder(ascii_only=True)
_text = json.encoder.encode_basestring  # as `compact` writes a text


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


def _said_by(stream: str, token: int, actor: str) -> dict[str, Any]:
    """What the body of an event need not say: its row does (the columns are under the hash as the body is), or it is the first
    try of something."""
    return {
        "task": stream, "key": stream, "token": token, "n": 1, "attempt": 1,
        "session": actor.removeprefix(_ACTOR) if actor.startswith(_ACTOR) else MISSING,
    }  # fmt: skip


def body_of(event: Happened, *, stream: str, token: int, actor: str) -> str:
    """The text of an event: compact JSON; left out is what holds its default, and what the row says by itself."""
    kept: dict[str, Any] = {}
    said = _said_by(stream, token, actor)
    for name, default, left_out in _FIELDS[event.kind]:
        value = getattr(event, name)
        if left_out:
            default = said[name]
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


def body_of_birth(event: Enqueued) -> str:
    """What `body_of` says of it in the stream that it begins, at half the price. A test compares them."""
    said = f'{{"name":{_text(event.name)},"key":{_text(event.key)},"args":{compact(event.args)}'
    if event.queue != "default":
        said += f',"queue":{_text(event.queue)}'
    if event.priority:
        said += f',"priority":{event.priority:d}'
    if event.due:
        said += f',"due":{event.due:d}'
    if event.epoch:
        said += f',"epoch":{event.epoch:d}'
    said += ',"doubt":true}' if event.doubt else "}"
    return said if said.isascii() else body_of(event, stream=event.task, token=0, actor="")


def told_by(row: Row) -> dict[str, Any]:
    """What a row tells, by name: its body's fields, and those that were left out since its columns say them.

    Raises `ValueError` for a kind that this version does not know, or what is no JSON object.
    """
    left_out = _LEFT_OUT.get(row.kind)
    if left_out is None:
        raise ValueError(f"the journal holds an event {row.kind!r} that this version of semel does not know")
    values = json.loads(row.body)
    if not isinstance(values, dict):
        raise ValueError(f"the journal holds an event {row.kind!r} that tells nothing")
    if left_out:
        said = _said_by(row.stream, row.token, row.actor)
        for name in left_out:
            if name not in values and said[name] is not MISSING:  # an older semel has written them all
                values[name] = said[name]
    return values


def event_of(row: Row) -> Happened:
    """The event that a row tells of. Raises `ValueError` for a kind or a field that this version does not know."""
    values = told_by(row)
    for name in _TUPLES.intersection(values):
        values[name] = tuple(values[name])
    try:
        return KINDS[row.kind](**values)
    except TypeError as error:
        raise ValueError(f"the journal holds an event {row.kind!r} with fields that this version does not know") from error


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
        body = body_of(event, stream=stream, token=token, actor=actor)
        previous = chain(
            previous, tenant=tenant, stream=stream, seq=seq, kind=event.kind, actor=actor, token=token, at=at, body=body, id=id
        )
        rows.append(Row(tenant, stream, seq, event.kind, actor, token, at, body, id, previous, event))
    return tuple(rows)


def born(event: Enqueued, *, tenant: str, actor: str, at: int, id: str) -> Row:
    """The row with which a task's stream begins, as `seal` makes it, at half the price. A test compares them."""
    body, task, time = body_of_birth(event), event.task, str(at)
    said = (
        f"{len(tenant)}:{tenant}{len(task)}:{task}1:18:enqueued{len(actor)}:{actor}1:0{len(time)}:{time}{len(id)}:{id}"
        f"{len(body)}:{body}"
    )
    if not said.isascii():
        return seal((event,), tenant=tenant, stream=task, seq=0, previous=GENESIS, actor=actor, token=0, at=at, id=id)[0]
    hash = hashlib.sha256(GENESIS + said.encode()).digest()
    return Row(tenant, task, 1, "enqueued", actor, 0, at, body, id, hash, event)


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
    return {name: getattr(event, name) for name, _, _ in _FIELDS[event.kind]}

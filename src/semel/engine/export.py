"""Exports of the journal, for a machine without the database. Lines of JSON:

    {"semel":"journal","version":1,"store":...,"application":...,"epoch":...,"at":...,"whole":true,...}
    {"stream":["default","01J..."],"after":0,"before":"000...","head":[12,"9f86d0..."]}
    {"tenant":"default","stream":"01J...","seq":1,...,"hash":...}       the rows of that stream, as machine/export.py has them
    {"streams":1,"rows":12,"digest":...}

after, before: seq and hash of the row that the first one follows. head: where the stream stood in the store. digest: SHA-256 of
all that stands before the last line. Whoever has the file can make another of the same form: it is the signed heads, kept
elsewhere, that show which one is the true one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from semel.engine.audit import Wrong
from semel.engine.files import create, lines_of
from semel.engine.heads import Signed, Walk
from semel.engine.pages import every_stream
from semel.machine import journal as j
from semel.machine import tampering, tasks
from semel.machine.export import line_of, row_of
from semel.machine.journal import Row
from semel.machine.words import count
from semel.model import Json
from semel.store.contract import Store

VERSION = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """What is exported: all; or of one tenant, one task with the keys that it shares, one stretch of time (milliseconds)."""

    tenant: str | None = None
    task: str | None = None
    since: int | None = None
    until: int | None = None

    @property
    def whole(self) -> bool:
        """Whether it is everything."""
        return self == Asked()


# --- writing ----------------------------------------------------------------------------------------------------------


def export(store: Store, path: Path, asked: Asked, at: int, looked: Callable[[int], None] = lambda n: None) -> tuple[int, int]:
    """Write it into a new file, a stream in memory at a time; how many streams, how many rows. Raises `Misuse`."""
    with create(path) as file:
        return write(store, file, asked, at, looked)


def write(
    store: Store, file: IO[bytes], asked: Asked, at: int, looked: Callable[[int], None] = lambda n: None
) -> tuple[int, int]:
    """The same, into a file that is open."""
    info, digest, streams, count = store.reread(), hashlib.sha256(), 0, 0

    def put(line: str) -> None:
        data = line.encode() + b"\n"
        digest.update(data)
        file.write(data)

    head = {"semel": "journal", "version": VERSION, "store": info.id, "application": info.application, "epoch": info.epoch,
            "at": at, "whole": asked.whole and info.tenant is None, **asdict(asked)}  # fmt: skip
    put(_text(head))
    for n, (tenant, stream) in enumerate(_wanted(store, asked)):
        looked(n)
        rows = store.rows(tenant, stream)
        first, last = _within(rows, asked)
        if first >= last:
            continue
        before = tampering.start_of(rows) if first == 0 else tampering.Start(rows[first - 1].seq, rows[first - 1].hash)
        put(_text({
            "stream": [tenant, stream], "after": before.seq, "before": before.hash.hex(),
            "head": [rows[-1].seq, rows[-1].hash.hex()],
        }))  # fmt: skip
        for row in rows[first:last]:
            put(line_of(row))
        streams, count = streams + 1, count + last - first
    put(_text({"streams": streams, "rows": count, "digest": digest.hexdigest()}))
    return streams, count


def _text(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"))


def _wanted(store: Store, asked: Asked) -> Iterable[tuple[str, str]]:
    if asked.task is not None:
        assert asked.tenant is not None
        joined = tasks.fold(store.rows(asked.tenant, asked.task)).joined
        return sorted({(asked.tenant, stream) for stream in (asked.task, *joined)})
    return (place for place in every_stream(store) if asked.tenant is None or place[0] == asked.tenant)


def _within(rows: list[Row], asked: Asked) -> tuple[int, int]:
    """The stretch of rows from the first to the last that is of that time, without a gap: clocks may differ a little."""
    since = asked.since if asked.since is not None else -(1 << 63)
    until = asked.until if asked.until is not None else 1 << 63
    of_it = [n for n, row in enumerate(rows) if since <= row.at < until]
    return (of_it[0], of_it[-1] + 1) if of_it else (0, 0)


# --- checking ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Checked:
    """What an export holds, and what is wrong with it. notes: what it cannot prove."""

    header: dict[str, Json] = field(default_factory=dict)
    streams: int = 0
    rows: int = 0
    heads: int = 0
    wrong: list[Wrong] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check(path: Path, signed: Signed | None = None) -> Checked:
    """Check an export by itself, and against heads, without any database. Raises `Misuse` for a file that cannot be read."""
    checking = _Checking(path, signed)
    for line in lines_of(path):
        checking.take(line)
    return checking.end()


class _Checking:
    """The lines of an export, one after the other; the rows of one stream are held at a time."""

    def __init__(self, path: Path, signed: Signed | None) -> None:
        self.found, self._name, self._signed = Checked(), path.name, signed
        self._digest, self._n = hashlib.sha256(), 0
        self._stream: dict[str, Any] | None = None
        self._rows: list[Row] = []
        self._last: dict[str, Any] | None = None
        self._place = ("", "")
        self._walk: Walk | None = None
        self._middle = self._cut = self._unproved = 0

    def take(self, line: bytes) -> None:
        """One line."""
        self._n += 1
        try:
            if self._last is not None:
                raise ValueError("it stands after the end")
            if line.startswith(b'{"tenant":'):
                self._row(row_of(line.decode()))
            else:
                self._other(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            self._say("changed", f"line {self._n} is not what semel has written: {error}")
        self._digest.update(line)

    def _other(self, data: dict[str, Any]) -> None:
        if "semel" in data:
            if self._n != 1 or data["semel"] != "journal" or data["version"] != VERSION:
                raise ValueError(f"it is no export of version {VERSION}")
            self.found.header = {str(name): value for name, value in data.items()}
            self._compare(data)
            return
        self._close()
        if "stream" in data:
            tenant, stream = data["stream"]
            if (tenant, stream) <= self._place:
                raise ValueError("its stream is not in its place")
            self._place, self._stream = (tenant, stream), data
        else:
            self._last = data
            if (data["streams"], data["rows"]) != (self.found.streams, self.found.rows):
                counted = f"{data['streams']} streams and {data['rows']} rows"
                self._say("removed", f"its last line counts {counted}; here are {self.found.streams} and {self.found.rows}")
            if data["digest"] != self._digest.hexdigest():
                self._say("changed", "the file is not the one that was written: its digest is another")

    def _compare(self, header: dict[str, Any]) -> None:
        if self._signed is None:
            return
        if self._signed.note:
            self.found.notes.append(self._signed.note)
        if self._signed.wrong:
            self._say("signature", self._signed.wrong)
        elif self._signed.store != header["store"]:
            self._say("replaced", f"the heads are of store {self._signed.store}, and this is an export of {header['store']}")
        else:
            self._walk = Walk(self._signed, self._signed.tenant)

    def _row(self, row: Row) -> None:
        if self._stream is None or (row.tenant, row.stream) != self._place:
            if self.found.header:
                raise ValueError(f"the row is of {row.stream}, and stands among those of another stream")
            self._close()  # a bare file of rows: what was pruned
            self._place, self._stream = (row.tenant, row.stream), {}
        self._rows.append(row)

    def _close(self) -> None:
        """The rows of a stream are all here."""
        stream, rows = self._stream, self._rows
        self._stream, self._rows = None, []
        if stream is None:
            return
        self.found.streams += 1
        self.found.rows += len(rows)
        tenant, name = self._place
        if not rows:
            self._say("removed", "none of its rows is here", tenant, name)
            return
        try:
            start = tampering.Start(stream["after"], bytes.fromhex(stream["before"])) if stream else tampering.start_of(rows)
            self._begins(rows, start)
            for fault in tampering.faults(rows, start):
                self._say(fault.what, fault.text, tenant, name)
        except ValueError as error:
            self._say("changed", f"a row holds what semel has not written: {error}", tenant, name)
            return
        if stream:
            self._ends(rows, *stream["head"])
        self._against(rows, start)

    def _begins(self, rows: list[Row], start: tampering.Start) -> None:
        if start.seq == 0 and start.hash != j.GENESIS:
            raise ValueError("it says that something stands before the first row")
        if start.seq and rows[0].kind == tampering.PRUNED and start != tampering.start_of(rows):
            raise ValueError("its tombstone stands for other rows than the file says")
        self._middle += bool(start.seq)

    def _ends(self, rows: list[Row], seq: int, hash: str) -> None:
        last = rows[-1]
        if last.seq == seq and last.hash.hex() == hash:
            return
        if last.seq >= seq:
            self._say("changed", f"row {last.seq} is not the last one that the file names", last.tenant, last.stream)
        elif self.found.header.get("until") is None:
            text = f"its rows end with {last.seq}, and the stream stood at {seq} when it was exported"
            self._say("truncated", text, last.tenant, last.stream)
        else:
            self._cut += 1

    def _against(self, rows: list[Row], start: tampering.Start) -> None:
        if self._walk is None:
            return
        tenant, stream = rows[0].tenant, rows[0].stream
        self._missed(self._walk.before(tenant, stream))
        head = self._walk.of(tenant, stream)
        if head is None:
            return
        held = start.hash if head.seq == start.seq else next((row.hash for row in rows if row.seq == head.seq), None)
        if held is None and (self.found.header["whole"] and not start.seq):
            self._say("truncated", f"its rows end with {rows[-1].seq}, and row {head.seq} was signed", tenant, stream)
        elif held is None:
            self._unproved += 1
        elif held != head.hash:
            self._say("rewritten", f"row {head.seq} is not the one that was signed: the history was written anew", tenant, stream)
        else:
            self.found.heads += 1

    def _missed(self, heads: Iterator[Any]) -> None:
        for head in heads:
            if self.found.header["whole"]:
                text = f"the whole stream is missing, of which {head.seq} rows were signed"
                self._say("removed", text, head.tenant, head.stream)
            else:
                self._unproved += 1

    def end(self) -> Checked:
        """All lines have been taken."""
        self._close()
        found = self.found
        if not self._n:
            self._say("removed", "the file is empty")
        elif not found.header:
            found.notes.append(
                "it has no first line (a prune writes none), so whether something is missing at its end is not known"
            )
        elif self._last is None:
            self._say("truncated", "its last line is missing: the end of the file is gone")
        if self._walk is not None:
            self._missed(self._walk.rest())
        for number, one, many, words in (
            (self._middle, "stream begins", "streams begin",
             "in the middle: that the rows before were the true ones is not proved by this file"),
            (self._cut, "stream goes on", "streams go on", "after the time that was asked for"),
            (self._unproved, "signed head is", "signed heads are", "of rows that this file does not hold"),
        ):  # fmt: skip
            if number:
                found.notes.append(f"{count(number, one, many)} {words}")
        if found.header and self._walk is None and not any(one.what == "replaced" for one in found.wrong):
            found.notes.append("that it is the true history is not proved without signed heads (--heads FILE)")
        return found

    def _say(self, what: str, text: str, tenant: str = "", stream: str = "") -> None:
        self.found.wrong.append(Wrong(tenant, stream, what, text))

"""Statements sent to PostgreSQL in one go, by libpq's own calls: a cursor of psycopg's takes ten times as long for each.

A statement is prepared on a connection when it is first used there; its values go as text, whose types the server knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

_PLACE = re.compile(rb"%(?:\((\w+)\))?s")


class Answer(NamedTuple):
    """What one statement gave."""

    rows: list[tuple[Any, ...]]
    changed: int
    tag: str


class Statement(NamedTuple):
    """A statement as the server reads it. places: the name of each value, in their order; none: they come in their order."""

    name: bytes
    text: bytes
    places: tuple[str, ...]

    def values(self, params: Any) -> list[bytes | None] | None:
        """What is sent of these. Raises `ValueError`, `TypeError`, psycopg's `DataError`."""
        if params is None:
            return None
        return [_text(value) for value in ([params[name] for name in self.places] if self.places else params)]


def statement(name: str, text: bytes) -> Statement:
    """Of a text with psycopg's placeholders, all named or none."""
    places: dict[str, int] = {}
    count = 0

    def numbered(found: re.Match[bytes]) -> bytes:
        nonlocal count
        count += 1
        return b"$%d" % (places.setdefault(found[1].decode(), len(places) + 1) if found[1] else count)

    return Statement(name.encode(), _PLACE.sub(numbered, text), tuple(places))


def _text(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        if "\0" in value:
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return value.encode()
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int):
        return b"%d" % value
    raise TypeError(f"a statement takes no {type(value).__name__}")


class Pipe:
    """What a connection is asked through. Its text is UTF-8. prepared: whether statements may be kept on it."""

    def __init__(self, raw: psycopg.Connection[Any], statements: Mapping[str, Statement], *, prepared: bool) -> None:
        self.raw, self._statements = raw, statements
        self._kept: set[str] | None = set() if prepared else None
        self._loads = Transformer(raw)
        self.behind: psycopg.Error | None = None  # why what was sent behind the last calls failed

    def run(
        self, calls: Sequence[tuple[str, Any]], behind: str = "", answered: Callable[[], None] = lambda: None
    ) -> list[Answer]:
        """One round trip. Raises psycopg's errors: the first one; what came after it was not done.

        All of it is made before any of it is sent: while the server waits for the rest of a pipeline, no timeout of its own
        runs, and a process that is stopped just then would hold its locks for ever (R14).

        behind: a statement without values that follows if the calls, which end with a COMMIT, have succeeded. What it says is
        not answered, and if it fails nothing else has. answered: called between what the server says of them and of it.
        """
        given = [*calls, *([(behind, None)] if behind else [])]
        sent = [(name, what := self._statements[name], what.values(params)) for name, params in given]
        pgconn = self.raw.pgconn
        pgconn.enter_pipeline_mode()
        try:
            made = [self._send(pgconn, *one) for one in sent]
            pgconn.pipeline_sync()
            results = self.raw.wait(_answered(pgconn, len(calls) + sum(made[: len(calls)]), answered))
        except BaseException:  # an interrupt, say: nobody knows where it stands
            pgconn.finish()
            raise
        pgconn.exit_pipeline_mode()
        return self._answers([name for name, _, _ in sent], made, results, len(calls))

    def _send(self, pgconn: PGconn, name: str, what: Statement, values: list[bytes | None] | None) -> bool:
        """Whether it is prepared first."""
        if self._kept is None:
            pgconn.send_query_params(what.text, values)
            return False
        if new := name not in self._kept:
            pgconn.send_prepare(what.name, what.text)
            self._kept.add(name)
        pgconn.send_query_prepared(what.name, values)
        return new

    def _answers(self, names: Sequence[str], made: Sequence[bool], results: Iterable[PGresult], count: int) -> list[Answer]:
        """Of the first `count`; one more is what was sent behind them."""
        found: list[Answer] = []
        error, each = None, iter(results)
        for name, new in zip(names, made, strict=True):
            if new and (result := next(each)).status != ExecStatus.COMMAND_OK:
                assert self._kept is not None
                self._kept.discard(name)
                error = error or _error(result)
            result = next(each)
            if result.status in (ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED):
                error = error or _error(result)
            elif error is None:
                found.append(self._answer(result))
        for result in each:  # what is committed without a COMMIT may fail after its last statement
            error = error or _error(result)
        self.behind = error if len(names) > count <= len(found) else None
        if error is not None and self.behind is None:
            raise error
        return found[:count]

    def _answer(self, result: PGresult) -> Answer:
        rows: list[tuple[Any, ...]] = []
        if result.ntuples:
            self._loads.set_pgresult(result, format=Format.TEXT)
            rows = self._loads.load_rows(0, result.ntuples, tuple)
        changed = result.command_tuples
        return Answer(rows, -1 if changed is None else changed, (result.command_status or b"").decode())


def _error(result: PGresult) -> psycopg.Error | None:
    return errors.error_from_result(result) if result.status == ExecStatus.FATAL_ERROR else None


def _answered(pgconn: PGconn, first: int, answered: Callable[[], None]) -> PQGen[list[PGresult]]:
    """All that is answered to what was sent, up to the end of the pipeline. answered: called after so many, the first ones."""
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:  # the server may wait until we have taken what it says
            pgconn.consume_input()
    results: list[PGresult] = []
    while pgconn.status == ConnStatus.OK:
        while pgconn.is_busy():
            yield Wait.R
            pgconn.consume_input()
        if (result := pgconn.get_result()) is None:
            continue  # the end of one statement's
        if result.status == ExecStatus.PIPELINE_SYNC:
            return results
        results.append(result)
        if len(results) == first:
            answered()  # libpq has read no further: notices of what comes next are not told yet
    raise next(filter(None, map(_error, results)), psycopg.OperationalError("the connection was lost"))

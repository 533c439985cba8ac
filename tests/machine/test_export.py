"""Rows of the journal as lines, and back."""

from __future__ import annotations

import json

import pytest

from semel.machine import export
from semel.machine import journal as j

ROWS = j.seal(
    (j.Enqueued("t1", "bill", "inv_1", ["\u2028 é \x00 \"\\"]), j.Failed("half \ud83d a character"), j.Finished(None)),
    tenant="acme", stream="t1", seq=0, previous=j.GENESIS, actor="session:s", token=7, at=123, id="abc",
)  # fmt: skip


def test_a_row_comes_back_from_its_line_exactly_and_its_chain_holds() -> None:
    lines = [export.line_of(row) for row in ROWS]
    back = [export.row_of(line) for line in lines]
    assert tuple(back) == ROWS
    assert j.broken(back) is None


def test_a_line_is_one_line_of_ascii() -> None:
    for row in ROWS:
        line = export.line_of(row)
        assert line.isascii() and len(line.splitlines()) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.pop("id"), lambda row: row.update(more=1), lambda row: row.update(seq="1"),
        lambda row: row.update(seq=True), lambda row: row.update(body={}), lambda row: row.update(hash="zz"),
    ],
)  # fmt: skip
def test_what_is_no_row_is_refused(change) -> None:  # type: ignore[no-untyped-def]
    row = json.loads(export.line_of(ROWS[0]))
    change(row)
    with pytest.raises(ValueError):
        export.row_of(json.dumps(row))


@pytest.mark.parametrize("line", ["", "[]", "null", "{", '"text"'])
def test_what_is_no_object_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        export.row_of(line)

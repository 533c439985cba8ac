"""What was done to the rows of a stream is found, and named. Each way by itself, and any way at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.machine import journal as j
from semel.machine import tampering
from semel.machine.journal import Row

EVENTS = (j.Enqueued("t1", "bill", "k", {}), *(j.Stepped(f"s{n}", "draft", n) for n in range(8)), j.Finished("done"))


def rows() -> list[Row]:
    return list(j.seal(EVENTS, tenant="acme", stream="t1", seq=0, previous=j.GENESIS, actor="a", token=1, at=1000, id="x"))


def numbered(found: list[Row]) -> list[Row]:
    return [replace(row, seq=n) for n, row in enumerate(found, 1)]


def sealed(row: Row, previous: bytes) -> Row:
    """As somebody writes it who knows how."""
    return replace(row, hash=tampering.written(row, row.seq, previous))


def changed(found: list[Row]) -> list[Row]:
    return [replace(row, body="{}") if row.seq == 4 else row for row in found]


def changed_and_sealed(found: list[Row]) -> list[Row]:
    """Its own hash fits again; the row after it does not."""
    return [sealed(replace(row, body="{}"), found[2].hash) if row.seq == 4 else row for row in found]


def removed(found: list[Row]) -> list[Row]:
    return [row for row in found if row.seq not in (4, 5)]


def removed_first(found: list[Row]) -> list[Row]:
    return found[1:]


def removed_and_numbered(found: list[Row]) -> list[Row]:
    return numbered([row for row in found if row.seq != 4])


def swapped(found: list[Row]) -> list[Row]:
    return numbered([*found[:3], found[4], found[3], *found[5:]])


def inserted(found: list[Row]) -> list[Row]:
    return numbered([*found[:3], replace(found[3], body="{}"), *found[3:]])


def inserted_and_sealed(found: list[Row]) -> list[Row]:
    more = sealed(replace(found[3], body="{}"), found[2].hash)
    return numbered([*found[:3], more, sealed(replace(more, seq=5), more.hash), *found[3:]])


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (changed, [("changed", 4, "was changed, or follows another row than it was written after")]),
        (changed_and_sealed, [("changed", 5, "follows another row")]),
        (removed, [("removed", 4, "rows 4 to 5 are missing (the next is 6)")]),
        (removed_first, [("removed", 1, "row 1 is missing (the next is 2)")]),
        (removed_and_numbered, [("changed", 4, "was changed, or"), ("moved", 5, "rows 5 to 9 stand elsewhere")]),
        (swapped, [("moved", 4, "row 4 (stepped) was written as row 5"), ("moved", 5, "row 5 (stepped) was written as row 4")]),
        (inserted, [("inserted", 4, "row 4 (stepped) was inserted: the rows after were written without")]),
        (inserted_and_sealed, [("inserted", 4, "rows 4 to 5 were inserted")]),
    ],
)
def test_what_was_done_is_named(do: Callable[[list[Row]], list[Row]], said: list[tuple[str, int, str]]) -> None:
    found = tampering.faults(do(rows()))
    assert [(fault.what, fault.seq) for fault in found] == [(what, seq) for what, seq, _ in said]
    assert all(words in fault.text for fault, (_, _, words) in zip(found, said, strict=True)), found


def test_two_things_are_both_named() -> None:
    found = [replace(row, actor="eve") if row.seq in (2, 9) else row for row in rows() if row.seq != 5]
    assert [(fault.what, fault.seq) for fault in tampering.faults(found)] == [("changed", 2), ("removed", 5), ("changed", 9)]


def test_what_is_whole_has_no_fault() -> None:
    assert tampering.faults(rows()) == [] and tampering.faults(rows()[:3]) == [] and tampering.faults([]) == []


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_is_done_inside_of_a_stream_is_found(data: st.DataObject) -> None:
    """Any order, any rows left out or twice, any column changed: the rest is a beginning of it, or there is a fault."""
    was = rows()
    now = [was[n] for n in data.draw(st.lists(st.integers(0, len(was) - 1), min_size=1, max_size=12))]
    if data.draw(st.booleans()):
        now = numbered(now)
    for _ in range(data.draw(st.integers(0, 2))):
        n = data.draw(st.integers(0, len(now) - 1))
        now[n] = replace(now[n], **data.draw(st.sampled_from(({"at": 7}, {"kind": "void"}, {"token": 9}, {"id": "y"}))))
    assert bool(tampering.faults(now)) == (now != was[: len(now)])
    assert bool(tampering.faults(now)) == (j.broken(now) is not None)


# --- streams that begin with a tombstone ---


def tombstone(after: Row, hash: str) -> Row:
    body = json.dumps({"rows": after.seq, "hash": hash})
    bare = replace(after, seq=after.seq + 1, kind="pruned", body=body, event=None)
    return sealed(bare, after.hash)


def test_a_pruned_stream_begins_where_its_tombstone_says() -> None:
    last = rows()[-1]
    stone = tombstone(last, last.hash.hex())
    assert tampering.start_of([stone]) == (last.seq, last.hash)
    more = sealed(replace(last, seq=stone.seq + 1), stone.hash)
    assert tampering.faults([stone, more]) == []
    assert [f.what for f in tampering.faults([stone, replace(more, actor="eve")])] == ["changed"]


def test_a_tombstone_that_stands_for_other_rows_is_a_fault() -> None:
    last = rows()[-1]
    assert [fault.what for fault in tampering.faults([tombstone(last, "00" * 32)])] == ["changed"]
    with pytest.raises(ValueError, match="does not say what it stands for"):
        tampering.faults([replace(last, kind="pruned", body="{}")])

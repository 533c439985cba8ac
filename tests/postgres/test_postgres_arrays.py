"""Arrays are written as PostgreSQL reads them, whatever is in the text."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semel.machine.projection import EffectRow
from semel.store.batch import Writes
from semel.store.pglink import bytes_array, int_array, text_array
from semel.store.pgwrite import _columns, _single, statements_of

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


@pytest.fixture(scope="module")
def raw(server_url: str) -> Any:
    with psycopg.connect(server_url, autocommit=True) as found:
        yield found


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.none() | TEXT), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), st.lists(st.none() | st.binary()))
def test_what_is_written_is_read(raw: Any, texts: list[Any], numbers: list[Any], blobs: list[Any]) -> None:
    params = text_array(texts), int_array(numbers), bytes_array(blobs)
    row = raw.execute("SELECT %s::text[], %s::bigint[], %s::bytea[]", params).fetchone()
    assert row == (texts, numbers, blobs)


def test_odd_texts(raw: Any) -> None:
    odd = ["", "NULL", "null", "{", "}", ",", '"', "\\", '\\"', "a\nb", " x ", "{a,b}", "é", "😀"]
    assert raw.execute("SELECT %s::text[]", (text_array(odd),)).fetchone() == (odd,)
    assert text_array([]) == int_array([]) == bytes_array([]) == "{}"


@pytest.mark.parametrize("bad", [["a\0b"], ["a", "\0"], ["\0", None], [None, 1], [1]])
def test_what_is_no_text_is_refused(bad: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        text_array(bad)


def test_a_float_is_no_number() -> None:
    with pytest.raises(ValueError):
        int_array([1.5])


def test_a_row_by_itself_takes_what_its_array_would() -> None:
    row = EffectRow("t", "k", "s", "s", "charge", "submitted", 2)
    assert _single(EffectRow._fields, row) == row._asdict()
    for wrong in (row._replace(name=1), row._replace(version="2"), row._replace(version=2.0)):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            _single(EffectRow._fields, wrong)
        with pytest.raises((TypeError, ValueError)):
            _columns(EffectRow._fields, [wrong])


def test_few_rows_are_written_by_themselves_and_many_as_arrays() -> None:
    rows = [EffectRow("t", f"k{n}", "s", "s", "charge", "submitted", 2) for n in range(100)]
    names = {n: [name for name, _ in statements_of(_effects(rows[:n]), singly=True)] for n in (1, 3, 4, 100)}
    assert names == {1: ["put_effect_row"], 3: ["put_effect_row"] * 3, 4: ["put_effect"], 100: ["put_effect"]}
    assert [name for name, _ in statements_of(_effects(rows[:1]))] == ["put_effect"], "but on a connection that is not ours"


def _effects(rows: list[EffectRow]) -> Writes:
    return Writes([], [], [], [], [], [], [], rows, [], [])

"""Records: what a dataclass with the same fields is, and copies of them."""

from __future__ import annotations

import dataclasses
import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.machine import compact, events, tasks
from semel.machine.records import record, replace


@record
class Root:
    name: str


@record
class Leaf(Root):
    n: int = 0
    more: dict[str, int] = dataclasses.field(default_factory=dict, compare=False, repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    name: str
    n: int = 0
    more: dict[str, int] = dataclasses.field(default_factory=dict, compare=False, repr=False)


@given(st.text(), st.integers(), st.text(), st.integers())
def test_a_record_is_what_a_frozen_dataclass_of_the_same_fields_is(name: str, n: int, other: str, m: int) -> None:
    leaf, plain = Leaf(name, n), Plain(name, n)
    assert dataclasses.astuple(leaf) == dataclasses.astuple(plain)
    assert repr(leaf).replace("Leaf", "Plain") == repr(plain)
    assert hash(leaf) == hash(plain)
    assert (leaf == Leaf(other, m)) == (plain == Plain(other, m))
    assert leaf != plain and isinstance(leaf, Root)
    assert Leaf(name).more is not Leaf(name).more, "each has a default of its own"


@given(st.sampled_from([*events.KINDS.values(), *get_args(tasks.Command), tasks.Task]), st.data())
def test_a_changed_copy_is_what_dataclasses_make_of_it_and_leaves_the_first_as_it_was(cls: type, data: st.DataObject) -> None:
    fields = [f.name for f in dataclasses.fields(cls)]
    first = cls(**{name: object() for name in fields})
    before = [getattr(first, name) for name in fields]
    changes = {name: object() for name in data.draw(st.sets(st.sampled_from(fields)) if fields else st.just(set()))}
    changed = replace(first, **changes)
    assert type(changed) is cls
    assert [getattr(changed, name) for name in fields] == [
        getattr(dataclasses.replace(first, **changes), name) for name in fields
    ]
    assert [getattr(first, name) for name in fields] == before


def test_a_record_has_no_other_fields() -> None:
    with pytest.raises(AttributeError):
        replace(Leaf("a"), nmae="b")
    with pytest.raises(AttributeError):
        Leaf("a").nmae = "b"  # type: ignore[attr-defined]


def test_the_encoder_that_is_kept_writes_what_a_new_one_writes_and_refuses_what_it_refuses() -> None:
    value = {"b": [1, -0.0, 1e16, 2**70, True, None, ()], "a": '\x7f\u2028é\ud83d"\\', "": {}}
    assert compact.compact(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert compact.encoder(ascii_only=True)(value) == json.dumps(value, separators=(",", ":"))
    assert compact.encoder(in_order=True)(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    for wrong, error in ((float("nan"), ValueError), (float("inf"), ValueError), ({1, 2}, TypeError), ([b""], TypeError)):
        with pytest.raises(error):
            compact.compact(wrong)
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        compact.compact(endless)

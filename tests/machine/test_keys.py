"""Keys: what identifies an effect is in them, nothing else is, and they never change between releases."""

from __future__ import annotations

import base64
import hashlib
import json
import string
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.errors import Misuse
from semel.machine import keys as k

TEXT = st.text(max_size=8)
INTENT = st.recursive(
    st.none() | st.booleans() | st.integers(-k.MAX_INTEGER, k.MAX_INTEGER) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
INTENTS = st.dictionaries(TEXT, INTENT, max_size=3)
PARTS: dict[str, Any] = {
    "application": "app-1", "tenant": "acme", "scope": ("task", "bill", "inv_42"), "name": "charge",
    "intent": {"invoice_id": "inv_42", "cents": 4200}, "occurrence": "", "generation": 0,
}  # fmt: skip


def key(**changes: Any) -> str:
    return k.effect_key(**{**PARTS, **changes})


def typed(value: Any) -> str:
    """A form in which 1, True and "1" differ, and the order of names does not matter."""
    return json.dumps(value, sort_keys=True, default=list)


# --- canonical form ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "x"]}, '{"a":[true,null,"x"],"b":1}'),
        ({}, "{}"), ([], "[]"), ("", '""'), (-0.0, "0"), (1e21, "1e+21"), (0.1, "0.1"),
        ({"é": 1, "e": 2}, '{"e":2,"é":1}'),
        ({"\ufb33": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ufb33":1}'),  # by UTF-16 code units, as RFC 8785 wants
        ("\u20ac$\x0f\nA'\"\\", '"\u20ac$\\u000f\\nA\'\\"\\\\"'),
    ],
)  # fmt: skip
def test_the_canonical_form_is_that_of_rfc_8785(value: Any, text: str) -> None:
    assert k.canonical(value) == text.encode()
    assert k.digest(value) == hashlib.sha256(text.encode()).hexdigest()[:32]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner) | st.tuples(inner, inner),
)


@settings(max_examples=150, deadline=None)
@given(ANYTHING)
def test_whatever_writes_it_the_canonical_form_is_to_the_byte_that_of_the_reference(value: Any) -> None:
    try:
        wanted = rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError):
        with pytest.raises(Misuse, match="not canonical JSON"):
            k.canonical(value)
    else:
        assert k.canonical(value) == wanted


def test_what_is_nested_as_deep_as_the_reference_goes_has_a_canonical_form() -> None:
    value: Any = {"a": 1}
    for _ in range(600):
        value = {"a": [value]} if _ % 2 else [value]
    assert k.canonical(value) == rfc8785.dumps(value)


@settings(max_examples=100, deadline=None)
@given(INTENTS, st.randoms())
def test_the_canonical_form_does_not_know_the_order_of_arguments(intent: dict[str, Any], chance: Any) -> None:
    items = list(intent.items())
    chance.shuffle(items)
    assert k.canonical(dict(items)) == k.canonical(intent)
    assert key(intent=dict(items)) == key(intent=intent)


@settings(max_examples=200, deadline=None)
@given(INTENT, INTENT)
def test_two_values_share_a_canonical_form_only_if_they_are_the_same(one: Any, other: Any) -> None:
    assert (k.canonical(one) == k.canonical(other)) == (typed(one) == typed(other))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, -(2**53), "\ud800", {"\udfff": 1}, [{"a": "x\udcff"}]])
def test_what_is_no_json_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(Misuse, match="not canonical JSON"):
        k.canonical(value)


# --- what may identify ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "place", "why"),
    [
        (0.5, "charge: intent amount", "float"),
        (float("nan"), "charge: intent amount", "float"),
        (1.0, "charge: intent amount", "float"),
        (2**53, "charge: intent amount", "beyond 2^53 - 1"),
        (-(2**53), "charge: intent amount", "beyond 2^53 - 1"),
        ("\ud800", "charge: intent amount", "half a character"),
        ("ok\udcff", "charge: intent amount", "half a character"),
        ({"a": {"b": [1, 2, 0.5]}}, "charge: intent amount.a.b[2]", "float"),
        ([{"x": "\udcff"}], "charge: intent amount[0].x", "half a character"),
        ({"a": [0, 2**60]}, "charge: intent amount.a[1]", "beyond 2^53 - 1"),
        ({"\ud800": 1}, "charge: intent amount: the name", "half a character"),
    ],
)
def test_what_cannot_identify_is_refused_by_its_place(value: Any, place: str, why: str) -> None:
    with pytest.raises(Misuse) as refused:
        k.check_intent(value, "charge: intent amount")
    assert str(refused.value).startswith(place) and why in str(refused.value)


@pytest.mark.parametrize("value", [None, True, False, 0, 2**53 - 1, -(2**53) + 1, "", "é\U0001f600\x00", [], {"a": [{"b": "c"}]}])
def test_what_identifies_is_accepted(value: Any) -> None:
    k.check_intent(value, "intent")
    assert key(intent={"x": value}) != key(intent={"x": "another"})


@settings(max_examples=150, deadline=None)
@given(st.recursive(INTENT | st.floats() | st.text(st.characters(), max_size=4) | st.integers(),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=3), inner,
                                                                                max_size=3), max_leaves=5))  # fmt: skip
def test_whatever_passes_the_check_has_a_key(value: Any) -> None:
    """Else the mistake would come up later, without its place."""
    try:
        k.check_intent(value, "intent")
    except Misuse:
        return
    key(intent={"x": value})


# --- the key of an effect ---------------------------------------------------------------------------------------------


def test_a_key_is_safe_as_a_header_a_file_name_and_an_id() -> None:
    made = key()
    assert len(made) == 36 and made.startswith("sml_")
    assert set(made[4:]) <= set(string.ascii_lowercase + string.digits)


OTHERS: dict[str, Any] = {
    "application": "app-2", "tenant": "acme2", "scope": ("tenant",), "name": "charge2", "intent": {"invoice_id": "inv_43"},
    "occurrence": "after-fix", "generation": 1,
}  # fmt: skip


@pytest.mark.parametrize("part", OTHERS)
def test_each_part_is_in_the_key(part: str) -> None:
    assert key(**{part: OTHERS[part]}) != key()


def test_every_part_is_tried() -> None:
    assert set(OTHERS) == set(PARTS) == set(k.effect_key.__annotations__) - {"return"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"tenant": "a", "application": "bc"}, {"tenant": "ab", "application": "c"}),
        ({"scope": ("task", "a", "bc")}, {"scope": ("task", "ab", "c")}),
        ({"scope": ("task", "a")}, {"scope": ("task",), "name": "a"}),
        ({"intent": {"x": "1"}}, {"intent": {"x": 1}}),
        ({"intent": {"x": 1}}, {"intent": {"x": True}}),
        ({"intent": {"x": None}}, {"intent": {}}),
        ({"intent": {"x": "null"}}, {"intent": {"x": None}}),
        ({"intent": {"x": ["a", "b"]}}, {"intent": {"x": ["b", "a"]}}),
        ({"occurrence": "1", "generation": 0}, {"occurrence": "", "generation": 1}),
        ({"occurrence": "x", "name": "charge"}, {"occurrence": "", "name": "chargex"}),
        ({"intent": {"x": "é"}}, {"intent": {"x": "e\u0301"}}),  # what looks alike is not the same
    ],
)
def test_parts_that_look_alike_do_not_meet_in_a_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert key(**one) != key(**other)


WHOLE = st.fixed_dictionaries({
    "application": TEXT, "tenant": TEXT, "name": TEXT, "intent": INTENTS, "occurrence": TEXT, "generation": st.integers(0, 3),
    "scope": st.lists(TEXT, min_size=1, max_size=3).map(tuple),
})  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(WHOLE, WHOLE, st.sets(st.sampled_from(sorted(PARTS))))
def test_no_two_different_lists_of_parts_meet_in_a_key(one: dict[str, Any], other: dict[str, Any], same: set[str]) -> None:
    other = {**other, **{part: one[part] for part in same}}
    assert (k.effect_key(**one) == k.effect_key(**other)) == (typed(one) == typed(other))


def test_keys_never_change_between_releases() -> None:
    """If this fails, what was done before the upgrade would be done again: a key's derivation is for ever."""
    assert key() == "sml_5ccutfcgzqdimvaoretnahnrtlawyvrl"
    assert (
        key(tenant="ü", scope=("tenant",), intent={}, occurrence="after-fix", generation=2)
        == "sml_jrz2mc6u4sagnric3ceyg5l7igvthidl"
    )
    assert k.digest({"to": "a@example.org", "body": "héllo"}) == "d033785d6424ea3a948de7f319499436"


# --- the keys of tasks and steps --------------------------------------------------------------------------------------


def test_the_key_of_a_task_is_its_intent_where_that_is_one_short_string() -> None:
    assert k.task_key({"invoice_id": "inv_42"}) == "inv_42"
    for intent in ({"a": "x", "b": "y"}, {"a": 1}, {"a": ""}, {"a": "x" * 101}, {"a": None}, {}, {"a": "two\nlines"}):
        assert k.task_key(intent).startswith("int_") and len(k.task_key(intent)) == 36, intent


def test_the_key_of_a_task_never_changes_between_releases() -> None:
    assert k.task_key({"a": "x", "b": 2}) == "int_768ca668c0f84dd39bf269e25c9a3f0a"


def test_nobody_can_write_the_digest_of_another_task() -> None:
    long = {"id": "x" * 200}
    assert k.task_key({"id": k.task_key(long)}) != k.task_key(long)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([("a",), ("a", "b")]), st.data())
def test_no_two_intents_of_one_task_share_a_key(names: tuple[str, ...], data: st.DataObject) -> None:
    one, other = (data.draw(st.fixed_dictionaries(dict.fromkeys(names, INTENT))) for _ in range(2))
    assert (k.task_key(one) == k.task_key(other)) == (typed(one) == typed(other))


def test_the_key_of_a_step_is_its_name_its_arguments_and_its_turn() -> None:
    made = {k.step_key("draft", {"id": "a"}, 1), k.step_key("draft", {"id": "a"}, 2), k.step_key("draft", {"id": "b"}, 1),
            k.step_key("draw", {"id": "a"}, 1)}  # fmt: skip
    assert len(made) == 4
    assert k.step_key("a:b", {}, 3).rsplit(":", 2)[0] == "a:b", "a replay finds the name again"
    assert k.step_key("draft", {"b": 1, "a": 2}, 1) == k.step_key("draft", {"a": 2, "b": 1}, 1)


@given(st.binary(min_size=20, max_size=20))
def test_the_letters_of_a_key_are_base_32(digest: bytes) -> None:
    assert k._base32(digest) == base64.b32encode(digest).decode("ascii").lower()

"""The journal: events keep their form as text, and no row can be changed, taken out or moved without it being seen."""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, fields, replace
from typing import Any, get_type_hints

import pytest
from histories import ROW, read_back
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.machine import epochs, limits, task_apply
from semel.machine import journal as j
from semel.machine import tasks as t

TEXT = st.text(st.characters(), max_size=12)  # lone surrogates included: an error may name a file
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
STRATEGIES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT, int: st.integers(-(2**63), 2**63), int | None: st.none() | st.integers(), bool: st.booleans(), Any: DATA,
    tuple[str, ...]: st.lists(TEXT, max_size=3).map(tuple),
    tuple[int, ...]: st.lists(st.integers(1, 9), max_size=3).map(tuple),
}  # fmt: skip


def events_of(kind: type[j.Happened]) -> st.SearchStrategy[j.Happened]:
    """Events of a kind, each field either left at its default or drawn from its type."""
    types = get_type_hints(kind)
    drawn = {}
    for field in fields(kind):
        value = STRATEGIES[types[field.name]]
        drawn[field.name] = value if field.default is MISSING else st.just(field.default) | value
    return st.builds(kind, **drawn)


def identical(a: j.Happened, b: j.Happened) -> bool:
    """Equal, and of equal types: 1 is not True, and a list is no tuple."""
    return a == b and repr(a) == repr(b)


# --- events as text ---------------------------------------------------------------------------------------------------


COLUMNS = {
    "stream": TEXT,
    "token": st.integers(-(2**63), 2**63),
    "actor": st.builds("".join, st.tuples(st.just("session:"), TEXT)) | TEXT,
}
SAYS = {"task": "stream", "key": "stream", "token": "token", "session": "actor"}  # which column says what a field says


@pytest.mark.parametrize("kind", j.KINDS)
def test_an_event_comes_back_from_its_row_as_it_was(kind: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(events_of(j.KINDS[kind]), st.fixed_dictionaries(COLUMNS), st.sets(st.sampled_from(sorted(SAYS))))
    def comes_back(event: j.Happened, columns: dict[str, Any], same: set[str]) -> None:
        for name in same & set(j.as_mapping(event)):
            prefix = "session:" if name == "session" else ""
            columns[SAYS[name]] = prefix + value if isinstance(value := getattr(event, name), str) else value
        assert identical(read_back(event, **columns), event)
        assert j.as_mapping(event).keys() == {field.name for field in fields(event)}

    comes_back()


@pytest.mark.parametrize("kind", j.KINDS)
def test_a_field_that_holds_its_default_is_not_written(kind: str) -> None:
    types = get_type_hints(j.KINDS[kind])
    needed = {f.name: {str: "x", int: 7}.get(types[f.name]) for f in fields(j.KINDS[kind]) if f.default is MISSING}
    event = j.KINDS[kind](**needed)
    assert set(json.loads(j.body_of(event, stream="s", token=1, actor="person:ann"))) == set(needed)
    assert identical(read_back(event), event)


def left_out(event: j.Happened, **columns: Any) -> set[str]:
    """What is not in its text, of that which it must have."""
    column: dict[str, Any] = {"stream": "t1", "token": 9, "actor": "session:s1", **columns}
    written = set(json.loads(j.body_of(event, **column)))
    return {f.name for f in fields(event) if f.default is MISSING} - written


def test_what_its_row_says_is_not_written_and_whatever_differs_is() -> None:
    intended = j.Intended("sml_1", 1, "charge", "t1", 1, 9, "s1")
    assert left_out(intended) == {"n", "task", "attempt", "token", "session"}
    assert left_out(intended, stream="sml_1") == {"key", "n", "attempt", "token", "session"}, "a tenant-scoped key's stream"
    assert left_out(intended, stream="t2", token=8, actor="session:s2") == {"n", "attempt"}
    for actor in ("s1", "person:s1", "session:", "kit"):
        assert "session" not in left_out(intended, actor=actor)
    assert left_out(replace(intended, n=2, attempt=True, token=9.0)) == {"task", "session"}, "1 is not True"  # type: ignore[arg-type]
    assert left_out(j.Claimed(1, 9, "s1")) == {"attempt", "token", "session"}
    assert left_out(j.Enqueued("t1", "bill", "t1", {})) == {"task"}, "the key of a task is no effect's"
    assert left_out(j.Stepped("t1", "mark")) == set()


def test_a_semel_that_does_not_know_that_a_field_may_be_left_out_cannot_misread_the_row() -> None:
    """It would refuse it: no such field has a default. One that has is what its default says, for ever."""
    for kind, names in j._LEFT_OUT.items():
        assert {f.default for f in fields(j.KINDS[kind]) if f.name in names} <= {MISSING}


FIRST = (  # as the first versions wrote the events of `stream()`
    ("enqueued", '{"task":"t1","name":"bill","key":"inv_1","args":{"id":"inv_1"}}'),
    ("claimed", '{"attempt":1,"token":4294967297,"session":"s1"}'),
    (
        "intended",
        '{"key":"sml_1","n":1,"name":"charge","task":"t1","attempt":1,"token":4294967297,"session":"s1","args":{"cents":5},'
        '"digest":"d","material":"m"}',
    ),
    ("confirmed", '{"key":"sml_1","n":1,"result":"ch_1"}'),
    ("finished", '{"result":"sent"}'),
    ("replayed", '{"why":"by alice","due":7}'),
)


def test_rows_in_which_an_older_semel_wrote_everything_tell_the_same() -> None:
    for event, (kind, body) in zip(EVENTS, FIRST, strict=True):
        for columns in ({"stream": "t1", "token": 1 << 32 | 1}, {"stream": "t2", "token": 8, "actor": "person:ann"}):
            assert identical(j.event_of(j.Row(**{**ROW, **columns}, kind=kind, body=body)), event)  # type: ignore[arg-type]


def test_what_equals_a_default_and_is_none_is_written() -> None:
    """`0 == False`: a result of 0 is no result of None, and a final=0 would not be final=False."""
    for result in (0, False, "", [], {}, 0.0):
        assert identical(read_back(j.Finished(result)), j.Finished(result))
    mistyped = j.Disproved("sml_1", 1, "refused", final=0)  # type: ignore[arg-type]
    assert identical(read_back(mistyped), mistyped), "the hash is of what was said, to the letter"


def test_every_event_class_has_a_kind_of_its_own_and_is_known() -> None:
    defined = {cls for cls in vars(j).values() if isinstance(cls, type) and issubclass(cls, j.Happened)}
    assert defined - {j.Happened, j.OfEffect} == set(j.KINDS.values())
    assert len(j.KINDS) == len(set(j.KINDS.values()))
    assert all(j.KINDS[kind].kind == kind for kind in j.KINDS)


OPEN = epochs.Epoch(epoch=5, doubtful=True, window=True, watched=False)
EPOCHS = [(epochs.Epoch(), j.EpochBegan(5, "i", 4, 1000)), (OPEN, j.EpochWatched(5)), (OPEN, j.WindowClosed(5)),
          (OPEN, j.DoubtLifted(5))]  # fmt: skip


def test_every_event_is_applied_or_is_known_to_change_nothing() -> None:
    """A new event that no fold knows of would be written and never read."""
    read_by_effects = {cls for cls in j.KINDS.values() if issubclass(cls, j.OfEffect)}
    of_the_epoch = {j.EpochBegan, j.EpochWatched, j.WindowClosed, j.DoubtLifted}
    of_the_store = of_the_epoch | {j.Paused, j.Resumed}  # pauses: test_cells_pauses
    assert all(epochs.apply(before, event) != replace(before, version=1) for before, event in EPOCHS)
    assert {type(event) for _, event in EPOCHS} == of_the_epoch
    of_their_own = {j.Pruned, j.Declared}  # test_rules_retention, test_declarations
    read = read_by_effects | set(task_apply._APPLY) | set(limits._AFTER)
    assert set(j.KINDS.values()) - read == {j.Void} | of_the_store | of_their_own


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("exploded", "{}"), ("finished", '{"result":1,"mood":"good"}'), ("failed", '{"due":1}'), ("finished", "[]"),
        ("finished", "{"), ("", "{}"), ("intended", '{"recovery":["ask"]}'), ("claimed", "[]"), ("claimed", "1"),
    ],
)  # fmt: skip
def test_what_this_version_does_not_know_is_refused_by_name(kind: str, body: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        j.event_of(j.Row(**ROW, kind=kind, body=body))


def test_a_row_whose_actor_is_no_session_does_not_say_which_it_was() -> None:
    with pytest.raises(ValueError, match="fields that this version does not know"):
        j.event_of(j.Row(**{**ROW, "actor": "person:ann"}, kind="claimed", body="{}"))


def test_not_a_number_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        read_back(j.Finished(float("nan")))


def test_a_row_without_its_event_folds_like_one_with_it() -> None:
    rows = stream()
    assert t.fold(replace(row, event=None) for row in rows) == t.fold(rows)


# --- the chain --------------------------------------------------------------------------------------------------------

EVENTS: tuple[j.Happened, ...] = (
    j.Enqueued("t1", "bill", "inv_1", {"id": "inv_1"}),
    j.Claimed(1, 1 << 32 | 1, "s1"),
    j.Intended("sml_1", 1, "charge", "t1", 1, 1 << 32 | 1, "s1", {"cents": 5}, "d", "m"),
    j.Confirmed("sml_1", 1, "ch_1"),
    j.Finished("sent"),
    j.Replayed("by alice", "", 7),
)


def stream(events: tuple[j.Happened, ...] = EVENTS, start: int = 0, previous: bytes = j.GENESIS) -> list[j.Row]:
    """Rows, as three changes would have sealed them."""
    rows: list[j.Row] = []
    for n, event in enumerate(events):
        rows += j.seal(
            (event,), tenant="acme", stream="t1", seq=start + n, previous=rows[-1].hash if rows else previous,
            actor="session:s1", token=n, at=1000 + n, id=f"c{n // 2}",
        )  # fmt: skip
    return rows


def test_a_whole_chain_is_whole_from_any_row_on() -> None:
    rows = stream()
    assert j.broken(rows) is None
    for cut in range(1, len(rows)):
        assert j.broken(rows[cut:], cut, rows[cut - 1].hash) is None


def test_events_sealed_together_or_one_by_one_make_the_same_chain() -> None:
    together = j.seal(EVENTS, tenant="a", stream="s", seq=0, previous=j.GENESIS, actor="x", token=1, at=1, id="c")
    previous, alone = j.GENESIS, list[j.Row]()
    for n, event in enumerate(EVENTS):
        alone += j.seal((event,), tenant="a", stream="s", seq=n, previous=previous, actor="x", token=1, at=1, id="c")
        previous = alone[-1].hash
    assert list(together) == alone


CHANGED: dict[str, Any] = {
    "tenant": "evil", "stream": "t2", "kind": "parked", "actor": "session:s2", "token": 99, "at": 1, "body": "{}", "id": "zz",
    "hash": bytes(32),
}  # fmt: skip


@pytest.mark.parametrize("column", CHANGED)
@pytest.mark.parametrize("n", range(len(EVENTS)))
def test_a_changed_column_is_found(column: str, n: int) -> None:
    rows = stream()
    rows[n] = replace(rows[n], **{column: CHANGED[column]})
    assert f"row {n + 1}" in str(j.broken(rows))


def test_every_column_is_tried() -> None:
    assert set(CHANGED) | {"seq", "event"} == {field.name for field in fields(j.Row)}


@pytest.mark.parametrize("n", range(len(EVENTS) - 1))
def test_a_row_that_was_taken_out_is_found(n: int) -> None:
    rows = stream()
    del rows[n]
    assert j.broken(rows) == f"row {n + 1} is missing (the next is {n + 2})"


@pytest.mark.parametrize("n", range(len(EVENTS) - 1))
def test_a_row_that_was_taken_out_and_covered_up_is_found(n: int) -> None:
    rows = stream()
    covered = rows[:n] + [replace(row, seq=row.seq - 1) for row in rows[n + 1 :]]
    assert f"row {n + 1} (" in str(j.broken(covered))


@pytest.mark.parametrize("n", range(len(EVENTS) - 1))
def test_two_rows_that_changed_places_are_found(n: int) -> None:
    rows = stream()
    rows[n], rows[n + 1] = rows[n + 1], rows[n]
    assert j.broken(rows) is not None
    swapped = [*stream()[:n], replace(rows[n], seq=n + 1), replace(rows[n + 1], seq=n + 2), *rows[n + 2 :]]
    assert j.broken(swapped) is not None


def test_a_middle_that_was_cut_out_is_found_also_when_the_rest_is_sealed_anew() -> None:
    rows = stream()
    assert j.broken(rows[:2] + rows[4:]) is not None
    anew = stream(EVENTS[3:], start=3, previous=j.GENESIS)
    assert f"row {anew[0].seq}" in str(j.broken([*rows[:3], *anew]))


def test_a_row_that_is_told_twice_or_slipped_in_is_found() -> None:
    rows = stream()
    assert j.broken([*rows[:3], rows[2], *rows[3:]]) is not None
    slipped = j.seal((j.Confirmed("sml_2", 1),), tenant="acme", stream="t1", seq=2, previous=rows[1].hash, actor="x",
                     token=0, at=1, id="c9")  # fmt: skip
    assert "row 4" in str(j.broken([*rows[:2], *slipped, *rows[3:]]))


def test_what_was_cut_off_at_the_end_is_seen_only_by_who_remembers_the_head() -> None:
    """Why R19 has a witness, and the tables hold the version: the chain itself cannot know how long it was."""
    rows = stream()
    assert j.broken(rows[:-1]) is None
    assert rows[-2].hash != rows[-1].hash


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_two_rows_with_the_same_text_in_other_columns_share_a_hash(data: st.DataObject) -> None:
    """The boundaries are part of the hash: what moves from the end of one column to the start of the next changes it."""
    names = ["tenant", "stream", "kind", "actor", "id", "body"]
    plain = st.text("ab:1", min_size=0, max_size=4)
    one = {name: data.draw(plain) for name in names}
    whole = "".join(one.values())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), min_size=5, max_size=5)))
    other = dict(zip(names, (whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)), strict=True))
    first, second = (j.chain(j.GENESIS, seq=1, token=1, at=1, **columns) for columns in (one, other))
    assert (first == second) == (one == other)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_hash_is_over_each_column_behind_the_number_of_its_bytes(data: st.DataObject) -> None:
    text = st.text("ab:1ä€😀", max_size=4)
    tenant, stream, kind, actor, id, body = (data.draw(text) for _ in range(6))
    hasher = hashlib.sha256(j.GENESIS)
    for column in (tenant, stream, "12", kind, actor, "3", "45", id, body):
        hasher.update(f"{len(column.encode())}:{column}".encode())
    told = {"tenant": tenant, "stream": stream, "kind": kind, "actor": actor, "id": id, "body": body}
    assert j.chain(j.GENESIS, seq=12, token=3, at=45, **told) == hasher.digest()


def test_the_numbers_have_boundaries_too() -> None:
    columns = {"tenant": "a", "stream": "s", "kind": "k", "actor": "x", "body": "{}", "id": "c"}
    hashes = {j.chain(j.GENESIS, seq=s, token=n, at=m, **columns) for s, n, m in ((1, 11, 1), (1, 1, 11), (11, 1, 1))}
    assert len(hashes) == 3


def test_the_hash_of_a_known_row_never_changes() -> None:
    """Journals outlive releases: if this fails, every journal in the world is broken."""
    rows = stream()
    assert rows[0].hash.hex() == PINNED[0] and rows[-1].hash.hex() == PINNED[1]
    assert rows[0].body == '{"name":"bill","key":"inv_1","args":{"id":"inv_1"}}'
    hashes = [j.GENESIS]
    for row, (kind, body) in zip(rows, FIRST, strict=True):
        columns = {name: getattr(row, name) for name in ("tenant", "stream", "seq", "actor", "token", "at", "id")}
        hashes.append(j.chain(hashes[-1], kind=kind, body=body, **columns))
    assert hashes[1].hex() == OF_THE_FIRST[0] and hashes[-1].hex() == OF_THE_FIRST[1]


PINNED = (
    "1d6d292ea0541e283a1595b3fc28dbbf0fc23439efbdbcdc59cf0d23497e78ff",
    "fcff0cdfa69ca0b048be4cf30da67bee66ec29d5758b5d7462af1c9ba581a010",
)
OF_THE_FIRST = (
    "d664e6640360dc2a06f7237e80af96a85f3a302672fd4f200dcf3871d51a7256",
    "ecb1c836a497670ae55de129e7f4a1a52254441a4d3acbed0587d5ef7c65b47b",
)

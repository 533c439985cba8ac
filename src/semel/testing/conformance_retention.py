"""What a store must do with a tombstone (R22): what stands before it goes, whatever else stays, and is held all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from semel.machine import journal as j
from semel.machine import retention, tasks
from semel.machine.projection import EffectRow, Tables
from semel.store.contract import Age, Guard, Landed, Stale, Store, Witnessed
from semel.testing.conformance_kit import AT, TENANT, Stream, claimed, claiming, commit, one, session, task

Make = Callable[[], Store]


def stone(stream: Stream) -> j.Pruned:
    """A tombstone for what stands in the stream now."""
    return j.Pruned(stream.head.seq, stream.head.hash.hex())


def grown(store: Store, name: str, rows: int = 3) -> Stream:
    """A stream with so many rows."""
    change, stream = Stream(name).then(*[j.Void()] * rows)
    assert one(store, change) == Landed()
    return stream


class Retention:
    """Rows before a tombstone go with it, in its transaction; its chain and its witnesses go on."""

    def test_what_stands_before_a_tombstone_goes_with_it_and_nothing_else(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        stream, neighbour = grown(store, "s"), grown(store, "s2")
        change, after = stream.then(stone(stream))
        assert one(store, change) == Landed()
        assert [row.seq for row in other.rows(TENANT, "s")] == [4] and other.head(TENANT, "s") == after.head
        assert [row.seq for row in other.rows(TENANT, neighbour.name)] == [1, 2, 3]
        more, _ = after.then()
        assert one(other, more) == Landed()
        assert [row.seq for row in store.rows(TENANT, "s")] == [4, 5] and j.broken(store.rows(TENANT, "s")) is None

    def test_a_tombstone_that_is_late_takes_nothing_away(self, make_store: Make) -> None:
        store = make_store()
        stream = grown(store, "s")
        late, _ = stream.then(stone(stream))
        first, _ = stream.then()
        assert commit(store, first, late) == [Landed(), Stale("s")]
        assert [row.seq for row in store.rows(TENANT, "s")] == [1, 2, 3, 4]

    def test_a_tombstone_and_what_follows_it_may_land_together(self, make_store: Make) -> None:
        store = make_store()
        stream = grown(store, "s")
        change, after = stream.then(stone(stream))
        more, _ = after.then()
        assert commit(store, change, more) == [Landed(), Landed()]
        assert [row.seq for row in store.rows(TENANT, "s")] == [4, 5]

    def test_a_tombstone_given_again_finds_itself(self, make_store: Make) -> None:
        store = make_store()
        stream = grown(store, "s")
        change, _ = stream.then(stone(stream))
        assert one(store, change) == Landed()
        assert one(store, change) == Landed()
        assert [row.seq for row in store.rows(TENANT, "s")] == [4]

    def test_a_stream_is_pruned_as_often_as_it_grows(self, make_store: Make) -> None:
        store = make_store()
        stream = grown(store, "s")
        for _ in range(2):
            change, stream = stream.then(stone(stream))
            assert one(store, change) == Landed()
            change, stream = stream.then()
            assert one(store, change) == Landed()
        assert [row.seq for row in store.rows(TENANT, "s")] == [6, 7] and j.broken(store.rows(TENANT, "s")) is None

    def test_what_was_pruned_is_not_missed_by_its_witnesses(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        stream = grown(store, "s")
        seen = [(TENANT, "s", row.seq, row.hash) for row in store.rows(TENANT, "s")]
        change, after = stream.then(stone(stream))
        assert one(store, change) == Landed()
        guard = session(store)
        for row in seen:
            assert store.missing(Witnessed(store.info.epoch, row, None)) == ""
            under, after = after.then(guard=replace(guard, seen=row))
            assert one(other, under) == Landed()

    def test_what_never_was_before_a_tombstone_is_missed(self, make_store: Make) -> None:
        store = make_store()
        stream = grown(store, "s")
        change, after = stream.then(stone(stream))
        assert one(store, change) == Landed()
        forged = (TENANT, "s", 3, b"x" * 32)
        guard = session(store)
        for row in (forged, (TENANT, "s", 5, stream.head.hash), (TENANT, "other", 1, stream.head.hash)):
            assert store.missing(Witnessed(store.info.epoch, row, None)), row
            under, _ = after.then(guard=Guard(guard.session, guard.epoch, guard.beat, row))
            assert not isinstance(one(store, under), Landed), row

    def test_a_pruned_task_keeps_its_key_and_is_claimed_by_its_id(self, make_store: Make) -> None:
        store = make_store()
        guard = session(store)
        created, known = task("k")
        assert claimed((commit(store, created, claiming(guard)))[1]) == ["k"]
        rows = store.rows(TENANT, known.state.id)
        head = store.head(TENANT, known.state.id)
        done, ended = replace(known, state=tasks.fold(rows), head=head).then(j.Finished("r"))
        left = retention.plain(replace(ended.state, version=ended.state.version + 1))
        pruned, after = ended.then(j.Pruned(3, ended.head.hash.hex(), task=left))
        assert commit(store, done, pruned) == [Landed(), Landed()]
        assert store.find_task(TENANT, known.state.kind, "k") == known.state.id
        assert claimed(one(store, claiming(guard, task=(TENANT, known.state.id)))) == ["k"]
        assert [row.seq for row in store.rows(TENANT, known.state.id)] == [after.head.seq, after.head.seq + 1]

    def test_ages_are_listed_in_order_a_page_at_a_time(self, make_store: Make) -> None:
        store = make_store()
        made = [task(f"k{n}", id=f"t{n}") for n in range(3)] + [task("k", tenant="globex", id="t0")]
        assert commit(store, *(change for change, _ in made)) == [Landed()] * 4
        first = store.ages(None, ("", ""), 2)
        assert first == [Age(TENANT, f"t{n}", "queued", AT, "enqueued") for n in range(2)]
        assert [age[:2] for age in store.ages(None, first[-1][:2], 9)] == [(TENANT, "t2"), ("globex", "t0")]
        assert [age.stream for age in store.ages("globex", ("", ""), 9)] == ["t0"]

    def test_a_tenant_scoped_key_has_an_age_and_a_tasks_own_effect_has_none(self, make_store: Make) -> None:
        store = make_store()
        rows = (
            EffectRow(TENANT, "k1", "t", "k1", "mail", "confirmed", 1),
            EffectRow(TENANT, "k2", "t", "t", "pay", "confirmed", 1),
        )
        change, _ = Stream("k1").then(tables=Tables(effects=rows))
        assert one(store, change) == Landed()
        shared, own = store.ages(TENANT, ("", ""), 9, keys=True)
        assert shared == Age(TENANT, "k1", "confirmed", AT, "void")
        assert own.stream == "k2" and own.at > AT * 1000 and own.kind == ""

"""Conformance: how changes land (R5, R7), under guards and checks, many in one transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from semel.machine import journal as j
from semel.machine.projection import EffectRow, InflightRow, Tables, UnknownRow
from semel.store.contract import Broken, Exists, Fenced, Guard, Head, Landed, Outcome, Stale, Store
from semel.testing.conformance_kit import (
    QUEUE,
    TENANT,
    Stream,
    Writers,
    bad,
    broken_guards,
    change_id,
    claiming,
    commit,
    one,
    session,
    task,
    together,
)

Make = Callable[[], Store]


def racing(first: Callable[[], Outcome], second: Callable[[], Outcome]) -> list[Outcome]:
    """Both at the same moment, on threads of their own."""
    ready, outcomes = threading.Barrier(2), list[Outcome]()

    def run(call: Callable[[], Outcome]) -> None:
        ready.wait()
        outcomes.append(call())

    threads = [threading.Thread(target=run, args=(call,)) for call in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


class Changes:
    """Each lands whole or not at all, on the version and hash it was decided on, and takes nobody along."""

    # --- compare-and-set ---

    def test_a_change_lands_and_reads_back_as_it_was_written(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        change, stream = Stream("s").then(j.Void(), j.Void(), j.Void())
        assert other.head(TENANT, "s") == Head(0, j.GENESIS)
        assert one(store, change) == Landed()
        assert other.head(TENANT, "s") == stream.head
        assert other.rows(TENANT, "s") == list(change.parts[0].rows)
        assert other.rows(TENANT, "s", after=2) == list(change.parts[0].rows[2:])
        assert j.broken(other.rows(TENANT, "s")) is None

    def test_a_change_on_an_older_version_is_stale(self, make_store: Make) -> None:
        store = make_store()
        first, stream = Stream("s").then()
        rival, _ = Stream("s").then()
        assert commit(store, first) == [Landed()]
        assert commit(store, rival) == [Stale("s")]
        assert store.head(TENANT, "s") == stream.head

    def test_a_change_on_a_version_that_never_came_to_be_is_stale(self, make_store: Make) -> None:
        store = make_store()
        _, ahead = Stream("s").then()
        assert one(store, ahead.then()[0]) == Stale("s")
        assert store.rows(TENANT, "s") == []

    def test_the_hash_counts_and_not_the_version_alone(self, make_store: Make) -> None:
        """A store that went back and was written again has the same versions, and is another history."""
        store = make_store()
        landed, _ = Stream("s").then()
        _, elsewhere = Stream("s").then()
        assert one(store, landed) == Landed()
        assert one(store, elsewhere.then()[0]) == Stale("s")

    def test_streams_of_two_tenants_are_two(self, make_store: Make) -> None:
        store = make_store()
        one_, two = Stream("s", "one").then(), Stream("s", "two").then()
        assert commit(store, one_[0], two[0]) == [Landed(), Landed()]
        assert store.head("one", "s") == one_[1].head
        assert store.head("two", "s") == two[1].head

    def test_of_two_racers_one_lands(self, make_store: Make) -> None:
        first, second = make_store(), make_store()
        writers = Writers(first, second)
        stream = Stream("s")
        try:
            for _ in range(30):
                (mine, mine_after), (others, others_after) = stream.then(), stream.then()
                outcomes = racing(lambda c=mine: writers.give(first, c), lambda c=others: writers.give(second, c))  # type: ignore[misc]
                assert sorted(map(type, outcomes), key=str) == [Landed, Stale], outcomes
                head = first.head(TENANT, "s")
                stream = mine_after if mine_after.head == head else others_after
                assert stream.head == head
        finally:
            writers.close()

    # --- one transaction for many ---

    def test_rows_of_one_stream_in_one_batch_form_a_chain(self, make_store: Make) -> None:
        store = make_store()
        changes, stream = [], Stream("s")
        for _ in range(20):
            change, stream = stream.then(j.Void(), j.Void())
            changes.append(change)
        assert commit(store, *changes) == [Landed()] * 20
        rows = store.rows(TENANT, "s")
        assert len(rows) == 40
        assert j.broken(rows) is None
        assert store.head(TENANT, "s") == stream.head

    def test_of_two_rivals_in_one_batch_the_first_lands(self, make_store: Make) -> None:
        store = make_store()
        mine, after = Stream("s").then()
        rival, behind = Stream("s").then()
        assert commit(store, mine, rival, behind.then()[0]) == [Landed(), Stale("s"), Stale("s")]
        assert store.head(TENANT, "s") == after.head

    def test_a_stale_change_refuses_all_behind_it_in_its_stream_and_nobody_else(self, make_store: Make) -> None:
        store = make_store()
        assert one(store, Stream("s").then()[0]) == Landed()
        stale, s = Stream("s").then()
        behind, s = s.then()
        farther, _ = s.then()
        other, t = Stream("t").then()
        more, t = t.then()
        assert commit(store, other, stale, behind, more, farther) == [
            Landed(), Stale("s"), Stale("s"), Landed(), Stale("s")
        ]  # fmt: skip
        assert len(store.rows(TENANT, "s")) == 1
        assert store.head(TENANT, "t") == t.head

    def test_what_is_refused_leaves_nothing_behind(self, make_store: Make) -> None:
        store = make_store()
        assert one(store, Stream("s").then()[0]) == Landed()
        tables = Tables(
            inflight=InflightRow("x", TENANT, "s"),
            effects=(EffectRow(TENANT, "e", "s", "s", "charge", "submitted", 1),),
            unknown=(UnknownRow(TENANT, "e", "s", "charge", 1),),
        )
        assert one(store, Stream("s").then(tables=tables)[0]) == Stale("s")
        assert one(store, Stream("u").then(tables=tables, guard=Guard("nobody", store.info.epoch, 0))[0]) != Landed()
        assert store.sizes() == {"task": 0, "ready": 0, "inflight": 0, "effect": 0, "unknown": 0, "task_key": 0}

    def test_a_change_of_two_streams_lands_in_both_or_in_neither(self, make_store: Make) -> None:
        store = make_store()
        assert one(store, Stream("moved").then()[0]) == Landed()
        for order in (("moved", "free"), ("free", "moved")):
            identity = change_id()
            change = together(*(Stream(name).then(id=identity)[0] for name in order))
            assert one(store, change) == Stale("moved")
            assert store.rows(TENANT, "free") == []
        identity = change_id()
        both = together(*(Stream(name).then(id=identity)[0] for name in ("a", "b")))
        assert one(store, both) == Landed()
        assert [len(store.rows(TENANT, name)) for name in ("a", "b")] == [1, 1]

    def test_half_of_a_refused_change_does_not_carry_what_is_behind_it(self, make_store: Make) -> None:
        store = make_store()
        assert one(store, Stream("moved").then()[0]) == Landed()
        identity = change_id()
        free, after = Stream("free").then(id=identity)
        both = together(free, Stream("moved").then(id=identity)[0])
        assert commit(store, both, after.then()[0]) == [Stale("moved"), Stale("free")]
        assert store.rows(TENANT, "free") == []

    def test_what_breaks_a_rule_of_the_database_takes_nobody_along(self, make_store: Make) -> None:
        store = make_store()
        good, first = zip(*(Stream(f"g{n}").then() for n in range(5)), strict=True)
        broken = bad(Stream("s"))
        behind, _ = Stream("s", head=Head(broken.parts[0].rows[0].seq, broken.parts[0].rows[0].hash)).then()
        outcomes = commit(store, good[0], good[1], broken, good[2], behind, good[3], bad(Stream("u")), good[4])
        assert [type(o) for o in outcomes] == [Landed, Landed, Broken, Landed, Stale, Landed, Broken, Landed]
        assert [store.head(TENANT, f"g{n}") for n in range(5)] == [stream.head for stream in first]
        assert store.rows(TENANT, "s") == store.rows(TENANT, "u") == []

    def test_what_breaks_a_rule_is_answered_and_the_next_batch_goes_on(self, make_store: Make) -> None:
        store = make_store()
        assert isinstance(one(store, bad(Stream("s"))), Broken)
        assert one(store, Stream("s").then()[0]) == Landed()

    def test_outcomes_come_in_the_order_of_the_units(self, make_store: Make) -> None:
        store = make_store()
        guard = session(store)
        change, known = task("k")
        outcomes = commit(store, claiming(guard), Stream("s").then()[0], change, Stream("s").then()[0])
        assert outcomes[1:] == [Landed(), Landed(), Stale("s")]
        assert [t.task.id for t in outcomes[0].tasks] == [known.state.id], "claims are looked for after all changes"  # type: ignore[union-attr]

    # --- checks ---

    def test_a_check_holds_while_the_stream_stands_where_it_stood(self, make_store: Make) -> None:
        store = make_store()
        assert one(store, Stream("watched").then()[0]) == Landed()
        change, _ = Stream("s").then(checks=((TENANT, "watched", 1), (TENANT, "never", 0)))
        assert one(store, change) == Landed()
        assert len(store.rows(TENANT, "watched")) == 1, "a check writes nothing"

    def test_a_check_that_fails_names_the_stream_and_nothing_lands(self, make_store: Make) -> None:
        store = make_store()
        assert one(store, Stream("watched").then()[0]) == Landed()
        for seen in (0, 2):
            assert one(store, Stream("s").then(checks=((TENANT, "watched", seen),))[0]) == Stale("watched")
        assert store.rows(TENANT, "s") == []

    def test_a_check_sees_what_its_own_batch_has_done(self, make_store: Make) -> None:
        store = make_store()
        moves, _ = Stream("watched").then()
        before, _ = Stream("a").then(checks=((TENANT, "watched", 0),))
        after, _ = Stream("b").then(checks=((TENANT, "watched", 0),))
        right, _ = Stream("c").then(checks=((TENANT, "watched", 1),))
        assert commit(store, before, moves, after, right) == [Landed(), Landed(), Stale("watched"), Landed()]

    # --- guards ---

    def test_a_guard_holds_for_the_own_unfenced_session(self, make_store: Make) -> None:
        store = make_store()
        guard = session(store, nonce="n0")
        assert one(store, Stream("a").then(guard=guard)[0]) == Landed()
        assert store.beat(guard.session, ["n0"], "n1", 1)
        assert one(store, Stream("b").then(guard=guard)[0]) == Landed(), "the store's beat may be ahead of the guard's"
        assert one(store, Stream("c").then(guard=replace(guard, beat=1))[0]) == Landed()

    def test_an_intent_under_a_guard_that_does_not_hold_is_fenced(self, make_store: Make) -> None:
        store = make_store()
        for guard in broken_guards(store):
            intent, stream = Stream("s").then(guard=guard)
            other, _ = Stream(f"t-{change_id()}").then()
            outcomes = commit(store, intent, other, stream.then()[0])
            assert [type(o) for o in outcomes] == [Fenced, Landed, Stale], guard
            assert outcomes[0].why, "it says why"  # type: ignore[union-attr]
        assert store.rows(TENANT, "s") == []

    def test_an_outcome_needs_no_guard(self, make_store: Make) -> None:
        """What happened is put on record even by a session that was fenced meanwhile."""
        store = make_store()
        guard = session(store)
        intent, stream = Stream("s").then(guard=guard)
        assert one(store, intent) == Landed()
        assert store.fence(guard.session, None, "watched")
        assert one(store, stream.then()[0]) == Landed()

    def test_a_fence_of_another_handle_counts_in_the_next_transaction(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        guard = session(store)
        first, stream = Stream("s").then(guard=guard)
        assert one(store, first) == Landed()
        assert other.fence(guard.session, None, "watched")
        assert isinstance(one(store, stream.then(guard=guard)[0]), Fenced)

    # --- create ---

    def test_a_key_that_is_taken_says_by_which_task(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        first, known = task("k")
        second, refused = task("k")
        assert one(store, first) == Landed()
        assert one(other, second) == Exists(known.state.id)
        assert other.find_task(TENANT, known.state.kind, "k") == known.state.id
        assert other.rows(TENANT, refused.state.id) == []
        assert other.task(TENANT, refused.state.id) is None

    def test_a_key_is_taken_once_in_one_batch(self, make_store: Make) -> None:
        store = make_store()
        changes, known = zip(*(task("k") for _ in range(3)), strict=True)
        outcomes = commit(store, *changes, known[1].then(j.Stepped("s", "s"))[0])
        assert outcomes == [Landed(), Exists(known[0].state.id), Exists(known[0].state.id), Stale(known[1].state.id)]
        assert store.sizes()["task"] == store.sizes()["ready"] == 1

    def test_the_same_key_of_another_tenant_or_kind_is_another_task(self, make_store: Make) -> None:
        store = make_store()
        made = [task("k"), task("k", tenant="other"), task("k", kind="ship")]
        assert commit(store, *(change for change, _ in made)) == [Landed()] * 3
        found = [store.find_task(known.tenant, known.state.kind, "k") for _, known in made]
        assert found == [known.state.id for _, known in made]
        assert store.find_task(TENANT, "bill", "other key") is None

    def test_a_key_is_not_taken_by_a_change_that_is_refused(self, make_store: Make) -> None:
        store = make_store()
        change, known = task("k")
        refused = replace(change, guard=Guard("nobody", store.info.epoch, 0))
        assert isinstance(one(store, refused), Fenced)
        outcomes = commit(store, refused, change)
        assert outcomes[1] == Landed()
        assert store.find_task(TENANT, known.state.kind, "k") == known.state.id

    # --- R7: lost replies ---

    def test_a_change_given_again_after_it_landed_has_landed_and_is_not_written_twice(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        change, stream = Stream("s").then(j.Void(), j.Void())
        assert one(store, change) == Landed()
        assert one(other, change) == Landed()
        assert commit(store, Stream("t").then()[0], change) == [Landed(), Landed()]
        assert len(store.rows(TENANT, "s")) == 2
        more, _ = stream.then()
        assert one(store, more) == Landed()
        assert one(store, change) == Landed(), "even when others have built on it"
        assert len(store.rows(TENANT, "s")) == 3

    def test_a_batch_given_again_finds_itself(self, make_store: Make) -> None:
        store = make_store()
        rival, _ = Stream("stale").then()
        assert one(store, rival) == Landed()
        made, known = task("k")
        first, s = Stream("s").then()
        second, s = s.then()
        identity = change_id()
        both = together(Stream("a").then(id=identity)[0], Stream("b").then(id=identity)[0])
        batch = (made, first, Stream("stale").then()[0], second, both)
        wanted = [Landed(), Landed(), Stale("stale"), Landed(), Landed()]
        assert commit(store, *batch) == wanted
        sizes = store.sizes()
        assert commit(store, *batch) == wanted
        assert store.sizes() == sizes
        assert store.head(TENANT, "s") == s.head
        assert store.head(TENANT, known.state.id) == known.head

    def test_a_change_that_is_twice_in_one_batch_is_written_once(self, make_store: Make) -> None:
        store = make_store()
        change, _ = Stream("s").then()
        made, known = task("k")
        assert commit(store, change, change, made, made) == [Landed()] * 4
        assert len(store.rows(TENANT, "s")) == len(store.rows(TENANT, known.state.id)) == 1

    def test_a_change_given_again_under_a_guard_that_broke_since_has_landed(self, make_store: Make) -> None:
        store = make_store()
        guard = session(store)
        change, _ = Stream("s").then(guard=guard)
        assert one(store, change) == Landed()
        assert store.fence(guard.session, None, "watched")
        assert one(store, change) == Landed()

    def test_the_same_events_under_another_id_are_another_change(self, make_store: Make) -> None:
        store = make_store()
        assert one(store, Stream("s").then(id="first")[0]) == Landed()
        assert one(store, Stream("s").then(id="second")[0]) == Stale("s")

    def test_a_task_and_its_queue_are_there_at_once(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        change, known = task("k")
        assert one(store, change) == Landed()
        row = other.task(TENANT, known.state.id)
        assert row is not None
        assert (row.key, row.queue, row.delivery, row.version) == ("k", QUEUE, "queued", 1)
        assert other.next_due([QUEUE], [known.state.kind]) == known.state.due

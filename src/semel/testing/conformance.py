"""A suite of tests that any Store must pass (see `semel.store.contract`). Yours too:

    import pytest
    from semel.testing.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def make_store(self, my_database):
            opened = []

            def make():
                opened.append(MyStore(my_database))
                return opened[-1]

            yield make
            for store in opened:
                store.close()

`make_store()` opens one more handle on the same, at first empty, store: another connection, as another process has it. A
store that lives in one process and has but one handle returns that one again. Each test gets a store of its own.

The kit writes rows of its own making, with times of its own (`AT`); it tests what the engine relies on, not how the store
does it. Killing a process, the machine's power and the plans of queries are for the store's own tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from semel.errors import StoreUnavailable
from semel.store.contract import LARGEST_TTL_MS, Fenced, Guard, Landed, SessionRow, Stale, Store, Witnessed
from semel.testing.conformance_changes import Changes
from semel.testing.conformance_claims import Claiming
from semel.testing.conformance_kit import AT, Stream, change_id, claiming, commit, one, session, task, wrong
from semel.testing.conformance_retention import Retention
from semel.testing.conformance_tables import Projections
from semel.testing.conformance_tenants import Tenants

Make = Callable[[], Store]


class Sessions:
    """One life of one process each: compare-and-set on the beat, by the process itself and by those who watch it."""

    def test_a_session_reads_as_it_was_opened(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        row = SessionRow("s", 3, "n0", 15_000, store.info.epoch, "host", "boot", 11, 12, 13, 14, "", AT)
        store.open_session(row)
        assert other.session("s") == row
        assert other.sessions() == [row]
        assert other.session("nobody") is None

    def test_a_beat_gives_way_to_the_next_by_any_nonce_that_may_have_landed(self, make_store: Make) -> None:
        store = make_store()
        guard = session(store, nonce="n0")
        assert store.beat(guard.session, ["n0"], "n1", 1)
        assert store.beat(guard.session, ["n0", "n1"], "n2", 2), "n0 was acknowledged, n1 sent since"
        found = store.session(guard.session)
        assert found is not None
        assert (found.beat, found.nonce) == (2, "n2")

    def test_a_beat_on_another_nonce_is_refused(self, make_store: Make) -> None:
        store = make_store()
        guard = session(store, nonce="n0")
        assert store.beat(guard.session, ["n0"], "n1", 1)
        assert not store.beat(guard.session, ["n0"], "n9", 2), "the store holds n1: this one went back, or is another's"
        assert not store.beat(guard.session, [], "n9", 2)
        found = store.session(guard.session)
        assert found is not None
        assert (found.beat, found.nonce) == (1, "n1")

    def test_a_fenced_or_unknown_session_beats_no_more(self, make_store: Make) -> None:
        store = make_store()
        guard = session(store, nonce="n0")
        assert store.fence(guard.session, "n0", "watched")
        assert not store.beat(guard.session, ["n0"], "n1", 1)
        assert not store.beat("nobody", ["n0"], "n1", 1)

    def test_a_session_of_another_epoch_beats_no_more(self, make_store: Make) -> None:
        store = make_store()
        guard = session(store, nonce="n0", epoch=store.info.epoch + 1)
        assert not store.beat(guard.session, ["n0"], "n1", 1)

    def test_a_session_beats_for_itself_alone(self, make_store: Make) -> None:
        store = make_store()
        mine, others = session(store, nonce="same"), session(store, nonce="same")
        assert store.beat(mine.session, ["same"], "n1", 1)
        found = store.session(others.session)
        assert found is not None
        assert (found.beat, found.nonce) == (0, "same")

    def test_a_fence_holds_only_for_the_beat_that_was_watched(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        guard = session(store, nonce="n0")
        assert store.beat(guard.session, ["n0"], "n1", 1)
        assert not other.fence(guard.session, "n0", "watched"), "it has beaten since"
        assert store.beat(guard.session, ["n1"], "n2", 2)
        assert other.fence(guard.session, "n2", "watched")
        assert not store.beat(guard.session, ["n2"], "n3", 3)

    def test_a_session_is_fenced_once_and_the_store_keeps_how(self, make_store: Make) -> None:
        store = make_store()
        for how in ("left", "dead", "watched"):
            guard = session(store)
            assert store.fence(guard.session, None, how), "None: whatever its beat is"
            assert not store.fence(guard.session, None, "again")
            found = store.session(guard.session)
            assert found is not None
            assert found.fenced == how
        assert not store.fence("nobody", None, "dead")

    def test_only_the_living_are_listed(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        guards = [session(store, f"s{at}") for at in range(3)]
        assert other.fence(guards[1].session, None, "left")
        assert {row.id for row in store.sessions()} == {"s0", "s2"}


class Handles:
    """What a store is, seen from several handles and over a handle's life."""

    def test_handles_of_one_store_know_it_by_the_same_name(self, make_store: Make) -> None:
        first, second = make_store(), make_store()
        assert first.info.id
        assert first.info.application
        assert first.info.epoch > 0
        assert second.info[:4] == first.info[:4]

    def test_it_is_still_the_store_that_was_opened(self, make_store: Make) -> None:
        assert make_store().still_here()

    def test_what_one_handle_was_acknowledged_the_other_reads(self, make_store: Make) -> None:
        first, second = make_store(), make_store()
        for n in range(5):
            writer, reader = (first, second) if n % 2 else (second, first)
            change, known = task(f"k{n}")
            assert one(writer, change) == Landed()
            assert reader.head(known.tenant, known.state.id) == known.head

    def test_a_handle_notices_that_another_has_written(self, make_store: Make) -> None:
        first, second = make_store(), make_store()
        before = first.changed()
        assert first.changed() == before, "nobody has written"
        assert one(second, Stream("s").then()[0]) == Landed()
        assert (first.changed() != before) is (first is not second), "a store of one handle has no others"

    def test_who_hears_is_told_that_another_has_queued_something(self, make_store: Make) -> None:
        first, second = make_store(), make_store()
        told = threading.Event()
        first.changed()
        if not first.hear(told.set) or first is second:
            assert first is second or first.hear(None) is False
            return
        for n in range(200):  # a hint may come for nothing, and the first may be lost
            assert one(second, task(f"k{n}")[0]) == Landed()
            if told.wait(0.1):
                break
        assert told.is_set(), "nobody said so"
        first.hear(None)
        time.sleep(0.05)
        told.clear()
        assert one(second, task("last")[0]) == Landed()
        assert not told.wait(0.1), "it hears no more"

    def test_a_closed_handle_is_closed(self, make_store: Make) -> None:
        store = make_store()
        guard = session(store)
        store.close()
        store.close()
        wrong(lambda: store.commit([Stream("s").then()[0]]), StoreUnavailable)
        wrong(lambda: store.commit([claiming(guard)]), StoreUnavailable)
        wrong(lambda: store.head("acme", "s"), StoreUnavailable)
        wrong(lambda: store.beat(guard.session, ["n0"], "n1", 1), StoreUnavailable)
        wrong(store.changed, StoreUnavailable)

    def test_a_batch_may_be_empty_and_a_change_may_be_nothing(self, make_store: Make) -> None:
        from semel.store.contract import Change

        store = make_store()
        assert commit(store) == []
        assert one(store, Change("", ())) == Landed(), "a writer's barrier"
        assert one(store, Change(change_id(), (), Guard("nobody", store.info.epoch, 0))) != Landed(), "and is guarded"


class GoingBack:
    """What a witness asks (R19), and what a new epoch does (R20)."""

    def test_a_witness_is_told_what_is_not_there(self, make_store: Make) -> None:
        store = make_store()
        guard = session(store)
        change, known = Stream("s").then()
        assert one(store, change) == Landed()
        row, epoch = (known.tenant, "s", known.head.seq, known.head.hash), store.info.epoch
        for seen in (Witnessed(epoch, None, None), Witnessed(epoch, row, None), Witnessed(epoch, row, (guard.session, 0))):
            assert store.missing(seen) == ""
        for seen in (
            Witnessed(epoch, (known.tenant, "s", known.head.seq, bytes(32)), None), Witnessed(epoch, ("", *row[1:]), None),
            Witnessed(epoch, (known.tenant, "s", known.head.seq + 1, row[3]), None), Witnessed(epoch, row, ("nobody", 0)),
            Witnessed(epoch, row, (guard.session, 1)),
        ):  # fmt: skip
            assert store.missing(seen), seen
        assert store.beat(guard.session, ["n0"], "n1", 1)
        assert store.missing(Witnessed(epoch, row, (guard.session, 1))) == ""
        assert store.missing(Witnessed(epoch, row, (guard.session, 0))) == "", "it has beaten since"

    def test_no_guard_holds_where_what_was_acknowledged_is_not_there(self, make_store: Make) -> None:
        """Between two beats the store may go back, and nobody connects anew: each claim and intent looks."""
        store = make_store()
        guard = session(store)
        change, stream = Stream("s").then()
        assert one(store, change) == Landed()
        seen = (stream.tenant, "s", stream.head.seq, stream.head.hash)
        assert one(store, task("k")[0]) == Landed()
        for lost in ((*seen[:2], seen[2] + 1, seen[3]), (*seen[:3], bytes(32)), ("zeta", *seen[1:])):
            blind = replace(guard, seen=lost)
            assert isinstance(one(store, stream.then(guard=blind)[0]), Fenced), lost
            assert isinstance(one(store, claiming(blind)), Fenced), lost
        aware = replace(guard, seen=seen)
        outcomes = commit(
            store, Stream("t").then(guard=replace(guard, seen=(*seen[:3], bytes(32))))[0], stream.then(guard=aware)[0]
        )
        assert outcomes[1] == Landed(), "who holds the newest holds all before"
        assert one(store, claiming(aware)) != Fenced("")

    def test_the_highest_time_is_the_journals(self, make_store: Make) -> None:
        store = make_store()
        assert store.highest_at(None) == store.highest_at(AT) == 0
        assert one(store, Stream("s").then()[0]) == Landed()
        assert [store.highest_at(until) for until in (AT - 1, AT, AT + 1)] == [0, AT, AT]
        assert store.highest_at(None) == 0, "no session has written it"

    def test_a_new_epoch_lands_with_its_row_and_every_handle_reads_it(self, make_store: Make) -> None:
        first, second = make_store(), make_store()
        old = session(first)
        change, stream = Stream("store").then()
        change = replace(change, epoch=first.info.epoch + 7)
        rival = replace(Stream("store").then()[0], epoch=first.info.epoch + 9)
        assert commit(first, change, rival) == [Landed(), Stale("store")], "one of two racers begins it"
        assert one(second, rival) == Stale("store")
        assert [store.reread().epoch for store in (first, second)] == [old.epoch + 7] * 2
        assert first.info.epoch == old.epoch + 7
        assert isinstance(one(second, stream.then(guard=old)[0]), Fenced), "what was begun before may begin nothing"
        assert not second.beat(old.session, ["n0"], "n1", 1)
        assert one(second, stream.then(guard=session(second))[0]) == Landed()

    def test_the_largest_ttl_is_the_stores(self, make_store: Make) -> None:
        first, second = make_store(), make_store()
        assert first.reread().largest_ttl_ms == LARGEST_TTL_MS
        first.permit_ttl(90_000)
        assert [store.reread().largest_ttl_ms for store in (first, second)] == [90_000] * 2


class StoreConformance(Changes, Claiming, Projections, Tenants, Sessions, Handles, GoingBack, Retention):
    """Subclass it, and give it the fixture `make_store`; pytest finds the rest (see the module's docstring)."""

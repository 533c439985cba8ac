"""The conformance kit's tests of tenants: one store, and what is one tenant's is nobody else's."""

from __future__ import annotations

from collections.abc import Callable

from semel.machine.projection import EffectRow, InflightRow, Tables, UnknownRow
from semel.store.contract import Claims, Landed, Store
from semel.testing.conformance_claims import accept, without_repeats
from semel.testing.conformance_kit import AT, KIND, QUEUE, TENANT, Stream, change_id, claimed, claiming, one, session, task

Make = Callable[[], Store]
OTHER = "globex"


class Tenants:
    """The tenant leads every key; a claim, and what a worker asks before it claims, may be of one tenant alone."""

    def test_the_same_effect_key_in_two_tenants_is_two_effects(self, make_store: Make) -> None:
        store, other, key = make_store(), make_store(), f"sml_{change_id()}"
        rows = [EffectRow(name, key, "t", "t", "charge", "ambiguous", 1) for name in (TENANT, OTHER)]
        for row in rows:
            tables = Tables(effects=(row,), unknown=(UnknownRow(row.tenant, key, "t", "charge", AT),))
            assert one(store, Stream("t", row.tenant).then(tables=tables)[0]) == Landed()
        assert [other.effect(name, key) for name in (TENANT, OTHER)] == rows
        assert [row.tenant for row in other.unknown(OTHER)] == [OTHER]
        settled = Tables(effects=(rows[1]._replace(state="confirmed", version=2),), unknown_gone=((OTHER, key),))
        change, _ = Stream("t", OTHER, other.head(OTHER, "t")).then(tables=settled)
        assert one(store, change) == Landed()
        assert other.effect(TENANT, key) == rows[0], "the other's is still unknown"
        assert [row.tenant for row in other.unknown(None)] == [TENANT]

    def test_a_claim_of_one_tenant_walks_past_the_others(self, make_store: Make) -> None:
        store = make_store()
        accept(store, *(task(f"o{n}", tenant=OTHER, priority=9 * (n % 2), due=AT - 100 + n) for n in range(30)))
        accept(store, *(task(f"m{n}", due=AT - n) for n in range(4)))
        guard = session(store)
        outcome = one(store, claiming(guard, limit=3, tenant=TENANT))
        assert isinstance(outcome, Claims)
        assert {taken.tenant for taken in outcome.tasks} == {TENANT}
        assert len(outcome.tasks) == 3
        assert len(claimed(one(store, claiming(guard, limit=3, tenant=TENANT)))) == 1
        assert claimed(one(store, claiming(guard, tenant=TENANT))) == []
        assert claimed(one(store, claiming(guard, tenant="nobody"))) == []
        assert len(claimed(one(store, claiming(guard, limit=100)))) == 30, "a claim of none takes all"

    def test_what_waits_for_one_tenant_says_nothing_of_the_others(self, make_store: Make) -> None:
        store = make_store()
        accept(
            store,
            task("a", tenant=OTHER, due=AT + 1), task("b", due=AT + 7), task("c", tenant=OTHER, kind="ship", due=AT),
            task("d", kind="post", due=AT + 3),
        )  # fmt: skip
        assert store.next_due([QUEUE], [KIND, "ship"], TENANT) == AT + 7
        assert store.next_due([QUEUE], [KIND, "ship"], OTHER) == AT
        assert store.next_due([QUEUE], [KIND, "ship"], "nobody") is None
        assert store.next_due([QUEUE], [KIND, "ship"]) == AT
        assert store.foreign([QUEUE], [KIND], TENANT) == [(QUEUE, "post")]
        assert store.foreign([QUEUE], [KIND], OTHER) == [(QUEUE, "ship")]
        assert store.foreign([QUEUE], [KIND], "nobody") == []

    def test_orphans_of_one_tenant_come_page_by_page(self, make_store: Make) -> None:
        store = make_store()
        rows = [InflightRow("gone", name, f"t{n}") for n in range(3) for name in (TENANT, OTHER)]
        for row in rows:
            assert one(store, Stream(row.task, row.tenant).then(tables=Tables(inflight=row))[0]) == Landed()
        mine = [row for row in rows if row.tenant == TENANT]
        assert store.orphans(None, 2, TENANT) == [(row, "missing") for row in mine[:2]]
        assert store.orphans(mine[1], 2, TENANT) == [(mine[2], "missing")]
        assert store.orphans(None, 10, "nobody") == []
        assert len(store.orphans(None, 10)) == len(rows)

    # --- each tenant in its turn ---

    def test_tenants_that_came_later_do_not_wait_behind_all_that_one_has_queued(self, make_store: Make) -> None:
        store = make_store()
        accept(store, *(task(f"big{n}", tenant="big", priority=n % 3, due=AT - 1000) for n in range(1000)))
        accept(store, *(task(f"late{n}", tenant=f"tenant-{n}", priority=-(n % 2), due=AT - n) for n in range(9)))
        guard, late, claims = session(store), list[str](), 0
        while len(late) < 9 and claims < 50:
            claims += 1
            keys = claimed(one(store, claiming(guard, limit=10)))
            assert len(keys) == 10
            mine = [key for key in keys if key.startswith("late")]
            assert len(mine) <= 3, "a share, and no more"
            late += mine
        assert sorted(late) == [f"late{n}" for n in range(9)], "all of them"
        assert claims <= 8, "within the first few claims"

    def test_of_the_turns_every_tenant_has_its_own(self, make_store: Make) -> None:
        """Whatever others wait for: what is not due, what cannot be claimed, what is of another priority, kind or queue."""
        store = make_store()
        accept(store, *(task(f"big{n}", tenant="big", priority=9) for n in range(300)))
        accept(store, *(task(f"later{n}", tenant=f"patient-{n}", due=AT + 1) for n in range(100)))
        accept(store, *(task(f"no{n}", tenant="a-stuck", due=AT - 5 + n) for n in range(3)), task("behind", tenant="a-stuck"))
        accept(store, *(task(f"b{n}", tenant="busy", kind=("ship", KIND)[n % 2], due=AT - n % 3) for n in range(40)))
        accept(store, task("low", tenant="busy", queue="q2", priority=-5), task("urgent", tenant="zealous", priority=5))
        accept(store, task("calm", tenant="zealous"))
        guard, got = session(store), list[str]()
        kinds, queues = (KIND, "ship"), (QUEUE, "q2")
        for _ in range(28):
            unit = claiming(guard, limit=8, queues=queues, kinds=kinds, refuse=lambda task: task.key.startswith("no"))
            got += claimed(one(store, unit))
        assert len(got) == 28 * 8 and without_repeats(got)
        assert {"behind", "low", "urgent", "calm"} <= set(got), "none of them waits for the 300"
        assert got.index("urgent") < got.index("calm"), "its own priorities hold"
        assert sum(key.startswith("big") for key in got) >= 28 * 5, "it is a share"

    def test_a_worker_of_one_tenant_has_no_turns_for_others(self, make_store: Make) -> None:
        store = make_store()
        accept(store, *(task(f"{name}{n}", tenant=name) for name in ("a", "b") for n in range(20)))
        guard = session(store)
        keys = [key for _ in range(4) for key in claimed(one(store, claiming(guard, limit=4, tenant="b")))]
        assert len(keys) == 16 and all(key.startswith("b") for key in keys)

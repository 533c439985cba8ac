"""Conformance: claims. Who gets which task, in which order, and never twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from semel.machine import journal as j
from semel.machine import tasks
from semel.machine.projection import InflightRow
from semel.model import Delivery
from semel.store.contract import Broken, Change, Claims, Fenced, Guard, Landed, Stale, Store
from semel.testing.conformance_kit import (
    AT,
    KIND,
    QUEUE,
    TENANT,
    Known,
    Stream,
    Writers,
    bad,
    broken_guards,
    claimed,
    claiming,
    commit,
    one,
    session,
    task,
)

Make = Callable[[], Store]


def accept(store: Store, *made: tuple[Change, Known]) -> list[Known]:
    """Have them accepted, in one transaction."""
    outcomes = commit(store, *(change for change, _ in made))
    assert outcomes == [Landed()] * len(made), outcomes
    return [known for _, known in made]


def until_none(writers: Writers, store: Store, guard: Guard, limit: int) -> list[str]:
    """Claim until nothing is left; the keys."""
    got: list[str] = []
    while keys := claimed(writers.give(store, claiming(guard, limit=limit))):
        got.extend(keys)
    return got


def without_repeats(keys: Iterable[str]) -> bool:
    """Whether none is there twice."""
    found = list(keys)
    return len(found) == len(set(found))


class Claiming:
    """A claim takes what is due: by priority, then by due, with a share for what has waited longest."""

    # --- what a claim does ---

    def test_a_claimed_task_is_leased_and_leaves_the_queue(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        (known,) = accept(store, task("k"))
        guard = session(store)
        outcome = one(store, claiming(guard))
        assert isinstance(outcome, Claims)
        (taken,) = outcome.tasks
        assert (taken.tenant, taken.task.id) == (TENANT, known.state.id)
        assert (taken.task.delivery, taken.task.session, taken.task.attempt) == (Delivery.LEASED, guard.session, 1)
        assert other.head(TENANT, known.state.id) == taken.head
        assert tasks.fold(other.rows(TENANT, known.state.id)) == taken.task
        assert other.held(guard.session) == [InflightRow(guard.session, TENANT, known.state.id)]
        assert other.sizes()["ready"] == 0
        assert other.next_due([QUEUE], [KIND]) is None
        assert claimed(one(store, claiming(guard))) == []

    def test_nothing_to_claim_is_an_answer(self, make_store: Make) -> None:
        store = make_store()
        assert one(store, claiming(session(store))) == Claims(())

    def test_a_task_enqueued_in_the_same_batch_can_be_claimed(self, make_store: Make) -> None:
        store = make_store()
        outcomes = commit(store, task("k")[0], claiming(session(store)))
        assert claimed(outcomes[1]) == ["k"]

    def test_two_claims_in_one_batch_share(self, make_store: Make) -> None:
        store = make_store()
        accept(store, *(task(f"k{n}") for n in range(5)))
        first, second = session(store), session(store)
        outcomes = commit(store, claiming(first, limit=3), claiming(second, limit=3), claiming(second, limit=3))
        assert [len(claimed(outcome)) for outcome in outcomes] == [3, 2, 0]
        assert without_repeats(claimed(outcomes[0]) + claimed(outcomes[1]))

    # --- which ---

    def test_priority_comes_first_then_due(self, make_store: Make) -> None:
        store = make_store()
        accept(
            store,
            task("low", priority=-1, due=AT - 50), task("b", due=AT - 20), task("high", priority=7, due=AT - 1),
            task("a", due=AT - 30), task("b2", kind="ship", due=AT - 25), task("c", kind="ship", due=AT - 10),
            task("higher", kind="ship", priority=9, due=AT),
        )  # fmt: skip
        keys = claimed(one(store, claiming(session(store), kinds=(KIND, "ship"))))
        assert keys == ["higher", "high", "a", "b2", "b", "c", "low"]

    def test_a_limit_takes_the_first_ones(self, make_store: Make) -> None:
        store = make_store()
        high = [task(f"h{n}", priority=5, due=AT - 100 + n) for n in range(4)]
        accept(store, *(task(f"l{n}", due=AT - 10 + n) for n in range(4)), *reversed(high))
        guard = session(store)
        assert sorted(claimed(one(store, claiming(guard, limit=3)))) == ["h0", "h1", "h2"], "the longest waiting are high ones"
        assert claimed(one(store, claiming(guard, limit=0))) == []

    def test_nothing_is_claimed_before_it_is_due(self, make_store: Make) -> None:
        store = make_store()
        accept(store, task("first", priority=9, due=AT + 1), task("now", due=AT), task("later", due=AT + 1))
        guard, asked = session(store), list[str]()
        assert claimed(one(store, claiming(guard, refuse=lambda t: bool(asked.append(t.key))))) == ["now"]  # type: ignore[func-returns-value]
        assert asked == ["now"], "of the others the store does not even ask"
        assert claimed(one(store, claiming(guard, at=AT))) == []
        assert claimed(one(store, claiming(guard, at=AT + 1))) == ["first", "later"]

    def test_only_its_own_queues_and_kinds(self, make_store: Make) -> None:
        store = make_store()
        accept(store, *(task(f"{q}-{k}", queue=q, kind=k) for q in ("q1", "q2") for k in ("k1", "k2")))
        guard = session(store)
        assert claimed(one(store, claiming(guard, queues=("q1",), kinds=("k2",)))) == ["q1-k2"]
        assert claimed(one(store, claiming(guard, queues=("q1", "q3"), kinds=("k2", "k3")))) == []
        assert claimed(one(store, claiming(guard, queues=(), kinds=("k1",)))) == []
        assert claimed(one(store, claiming(guard, queues=("q1",), kinds=()))) == []
        assert claimed(one(store, claiming(guard, queues=("q1", "q2", "q1"), kinds=("k1",)))) == ["q1-k1", "q2-k1"]

    def test_tasks_of_all_tenants_are_claimed(self, make_store: Make) -> None:
        store = make_store()
        accept(store, task("a", tenant="one", due=AT - 1), task("b", tenant="two"))
        outcome = one(store, claiming(session(store)))
        assert isinstance(outcome, Claims)
        assert [(t.tenant, t.task.key) for t in outcome.tasks] == [("one", "a"), ("two", "b")]

    def test_what_waits_longest_gets_its_share(self, make_store: Make) -> None:
        """However many of a higher priority keep coming: a claim of one task in so many is for the oldest."""
        store = make_store()
        accept(store, task("old", due=AT - 1_000_000), *(task(f"h{n}", priority=9) for n in range(300)))
        guard = session(store)
        got: list[str] = []
        while "old" not in got and len(got) < 250:
            got.extend(claimed(one(store, claiming(guard, limit=1))))
        assert "old" in got

    def test_the_share_is_a_share(self, make_store: Make) -> None:
        store = make_store()
        accept(store, *(task(f"o{n}", due=AT - 1000 - n) for n in range(60)), *(task(f"h{n}", priority=9) for n in range(60)))
        keys = claimed(one(store, claiming(session(store), limit=40)))
        assert len(keys) == 40
        assert 1 <= sum(key.startswith("o") for key in keys) < 20, "some, and not most"

    def test_two_thousand_priorities_are_claimed_in_order(self, make_store: Make) -> None:
        store = make_store()
        accept(store, *(task(f"{n}", priority=n - 1000) for n in range(2001)))
        guard = session(store)
        assert claimed(one(store, claiming(guard, limit=2001))) == [str(n) for n in range(2000, -1, -1)]

    # --- passed over ---

    def test_what_cannot_be_claimed_is_passed_over_and_the_next_is_taken(self, make_store: Make) -> None:
        store = make_store()
        accept(store, *(task(f"no{n}", priority=9, due=AT - 10) for n in range(10)), task("yes"))
        guard = session(store)
        keys = claimed(one(store, claiming(guard, limit=1, refuse=lambda t: t.key.startswith("no"))))
        assert keys == ["yes"], "those before it do not keep it from its turn"
        assert store.sizes()["ready"] == 10

    def test_a_decision_that_raises_takes_nobody_along(self, make_store: Make) -> None:
        """An event of a later version, say: the task is for others."""
        store = make_store()
        accept(store, task("poison", priority=9), task("sound"))

        def refuse(state: tasks.Task) -> bool:
            if state.key == "poison":
                raise ValueError("an event that this version does not know")
            return False

        outcomes = commit(store, Stream("s").then()[0], claiming(session(store), limit=1, refuse=refuse), Stream("t").then()[0])
        assert claimed(outcomes[1]) == ["sound"]
        assert [outcomes[0], outcomes[2]] == [Landed(), Landed()]

    def test_a_claim_that_breaks_a_rule_of_the_database_is_passed_over(self, make_store: Make) -> None:
        store = make_store()
        accept(store, task("poison", priority=9), task("sound"))
        unit = claiming(session(store), limit=1)

        def decide(tenant: str, rows: list[j.Row]) -> tuple[Change, tasks.Task] | None:
            decided = unit.decide(tenant, rows)
            if decided is None or decided[1].key != "poison":
                return decided
            part = decided[0].parts[0]
            bad = replace(part, rows=(replace(part.rows[0], kind=None),))  # type: ignore[arg-type]
            return replace(decided[0], parts=(bad,)), decided[1]

        outcomes = commit(store, Stream("s").then()[0], replace(unit, decide=decide))
        assert outcomes[0] == Landed()
        assert claimed(outcomes[1]) == ["sound"]
        assert claimed(one(store, unit)) == ["poison"], "it is as it was"

    def test_a_decision_on_another_version_is_passed_over(self, make_store: Make) -> None:
        store = make_store()
        (known,) = accept(store, task("k"))
        guard = session(store)
        unit = claiming(guard)
        outcome = one(store, replace(unit, decide=lambda tenant, rows: (Stream(known.state.id).then()[0], known.state)))
        assert outcome == Claims(())
        assert claimed(one(store, unit)) == ["k"]

    def test_a_claim_beside_a_change_that_breaks_a_rule_is_answered(self, make_store: Make) -> None:
        store = make_store()
        made, _ = task("k")
        outcomes = commit(store, claiming(session(store)), made, bad(Stream("s")), claiming(session(store)))
        assert isinstance(outcomes[2], Broken)
        assert outcomes[1] == Landed()
        assert sorted([*claimed(outcomes[0]), *claimed(outcomes[3])]) == ["k"]

    def test_however_many_cannot_be_claimed_nobody_behind_them_starves(self, make_store: Make) -> None:
        store = make_store()
        accept(store, *(task(f"no{n}", priority=n % 3, due=AT - 10) for n in range(1000)), task("yes"))
        guard, asked, claims = session(store), list[str](), list[Claims]()

        def refuse(state: tasks.Task) -> bool:
            asked.append(state.key)
            return state.key.startswith("no")

        while not claims or not claims[-1].tasks:
            assert len(claims) < 20, "it starves"
            outcome = one(store, claiming(guard, limit=3, refuse=refuse))
            assert isinstance(outcome, Claims)
            claims.append(outcome)
        assert claimed(claims[-1]) == ["yes"]
        assert without_repeats(asked), "each claim went on where the one before had given up"
        assert [found.more for found in claims] == [True] * (len(claims) - 1) + [False]
        asked.clear()
        accept(store, task("next"))
        assert claimed(one(store, claiming(guard, limit=3, refuse=refuse))) == ["next"]
        assert len(asked) < 100, "those before it are known"

    def test_what_is_claimed_between_those_that_cannot_be_is_claimed_once(self, make_store: Make) -> None:
        store = make_store()
        accept(store, *(task(f"{'yes' if n % 4 else 'no'}{n}", priority=-(n % 5), due=AT - n % 7) for n in range(400)))
        guard, got = session(store), list[str]()
        while True:
            outcome = one(store, claiming(guard, limit=7, refuse=lambda t: t.key.startswith("no")))
            assert isinstance(outcome, Claims)
            got.extend(claimed(outcome))
            if not (outcome.tasks or outcome.more):
                break
        assert sorted(got) == sorted(f"yes{n}" for n in range(400) if n % 4)

    # --- one by its id ---

    def test_one_task_by_its_id_due_or_not_in_whatever_queue(self, make_store: Make) -> None:
        store = make_store()
        later, direct, _ = accept(store, task("later", due=AT + 10**9), task("direct", queue=""), task("other"))
        guard = session(store)
        for known in (later, direct):
            unit = claiming(guard, queues=(), kinds=(), task=(TENANT, known.state.id), limit=1)
            assert claimed(one(store, unit)) == [known.state.key]
            assert claimed(one(store, unit)) == [], "it is leased"
        assert len(store.held(guard.session)) == 2

    def test_a_task_of_direct_mode_is_in_no_queue(self, make_store: Make) -> None:
        store = make_store()
        accept(store, task("direct", queue=""))
        assert store.sizes()["ready"] == 0
        assert claimed(one(store, claiming(session(store), queues=("", QUEUE)))) == []

    def test_a_task_that_is_not_there_is_not_claimed(self, make_store: Make) -> None:
        store = make_store()
        (known,) = accept(store, task("k"))
        guard = session(store)
        for tenant, name in ((TENANT, "no such task"), ("other", known.state.id)):
            outcomes = commit(store, Stream(name).then()[0], claiming(guard, task=(tenant, name + "?")))
            assert outcomes[1] == Claims(())

    # --- guards ---

    def test_a_claim_under_a_guard_that_does_not_hold_is_fenced(self, make_store: Make) -> None:
        store = make_store()
        (known,) = accept(store, task("k"))
        for guard in broken_guards(store):
            for unit in (claiming(guard), claiming(guard, task=(TENANT, known.state.id))):
                outcomes = commit(store, unit, Stream("s").then()[0])
                assert isinstance(outcomes[0], Fenced), guard
                assert outcomes[1] in (Landed(), Stale("s"))
        assert claimed(one(store, claiming(session(store)))) == ["k"]

    # --- never twice ---

    def test_two_handles_never_claim_the_same_task(self, make_store: Make) -> None:
        first, second = make_store(), make_store()
        accept(first, *(task(f"k{n}") for n in range(200)))
        writers, got = Writers(first, second), list[str]()

        def work(store: Store) -> None:
            got.extend(until_none(writers, store, session(store), 3))

        threads = [threading.Thread(target=work, args=(store,)) for store in (first, second, first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writers.close()
        assert without_repeats(got)
        assert len(got) == 200

    def test_a_task_given_back_is_claimed_anew(self, make_store: Make) -> None:
        store = make_store()
        (known,) = accept(store, task("k"))
        first, second = session(store), session(store)
        outcome = one(store, claiming(first))
        assert isinstance(outcome, Claims)
        (taken,) = outcome.tasks
        back, _ = Known(taken.task, taken.head).then(j.Parked("given back", AT))
        outcomes = commit(store, back, claiming(second))
        assert claimed(outcomes[1]) == ["k"]
        again = store.task(TENANT, known.state.id)
        assert again is not None
        assert (again.session, again.attempt, again.token > taken.task.token) == (second.session, 2, True)
        assert store.held(first.session) == []

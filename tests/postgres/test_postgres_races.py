"""Known traps: two real connections, both interleavings."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest
from rivals import Doing, Rival, until

from semel.machine import journal as j
from semel.model import Delivery
from semel.store.contract import Busy, Change, Claims, Exists, Fenced, Head, Landed, Stale
from semel.store.pglink import text_array
from semel.store.postgres import Postgres
from semel.testing.conformance_kit import TENANT, Stream, claimed, claiming, one, session, task, together

Make = Callable[[], Postgres]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks are waited for as long as these tests take to look."""
    monkeypatch.setattr("semel.store.postgres.LOCK_MS", 20_000)
    monkeypatch.setitem(__import__("semel.store.postgres", fromlist=["WRITER"]).WRITER, "lock_timeout", "20s")


@pytest.mark.usefixtures("patient")
class TestAppends:
    """R5: a row that is dropped because a rival was faster must not let the next one land on the rival's."""

    def batch(self, store: Postgres) -> tuple[Doing, Stream]:
        first, s = Stream("s").then()
        second, s = s.then()
        other, _ = Stream("t").then()
        return Doing(lambda: store.commit([first, second, other])), s

    @pytest.mark.parametrize("careful", [False, True])
    def test_a_rival_commits_what_we_wait_for(self, make_store: Make, rival: Rival, careful: bool) -> None:
        store = make_store()
        store._careful_until = math.inf if careful else 0.0
        theirs, s = Stream("s").then()
        rival.appends(theirs)
        doing, _ = self.batch(store)
        until(rival.waited_for, "our insert waits for the rival's")
        rival.raw.commit()
        assert doing.result() == [Stale("s"), Stale("s"), Landed()]
        assert store.head(TENANT, "s") == s.head
        assert j.broken(store.rows(TENANT, "s")) is None

    def test_a_rival_rolls_back_what_we_wait_for(self, make_store: Make, rival: Rival) -> None:
        store = make_store()
        rival.appends(Stream("s").then()[0])
        doing, s = self.batch(store)
        until(rival.waited_for, "our insert waits for the rival's")
        rival.raw.rollback()
        assert doing.result() == [Landed(), Landed(), Landed()]
        assert store.head(TENANT, "s") == s.head

    @pytest.mark.parametrize("commits", [True, False])
    def test_a_key_that_a_rival_is_taking(self, make_store: Make, rival: Rival, commits: bool) -> None:
        store = make_store()
        mine, known = task("k")
        theirs, taken = task("k")
        assert theirs.create is not None
        rival.raw.execute("INSERT INTO semel.task_key VALUES (%s, %s, %s, %s)", theirs.create)
        doing = Doing(lambda: store.commit([mine]))
        until(rival.waited_for, "our key waits for the rival's")
        (rival.raw.commit if commits else rival.raw.rollback)()
        assert doing.result() == [Exists(taken.state.id) if commits else Landed()]
        assert store.find_task(TENANT, known.state.kind, "k") == (taken if commits else known).state.id

    @pytest.mark.parametrize("commits", [True, False])
    def test_a_check_of_a_stream_on_which_a_rival_writes(self, make_store: Make, rival: Rival, commits: bool) -> None:
        """R8: a joined key that is being lost, while another branch intends."""
        store = make_store()
        change, known = task("watched")
        assert one(store, change) == Landed()
        rival.appends(known.then(j.Stepped("x", "x"))[0])
        intent, _ = Stream("s").then(checks=((TENANT, known.state.id, 1),))
        doing = Doing(lambda: store.commit([intent]))
        until(rival.waited_for, "the check waits for the rival")
        (rival.raw.commit if commits else rival.raw.rollback)()
        assert doing.result() == [Stale(known.state.id) if commits else Landed()]

    def test_what_a_check_rests_on_cannot_move_before_it_has_landed(self, make_store: Make, rival: Rival) -> None:
        store, other = make_store(), make_store()
        change, known = task("watched")
        assert one(store, change) == Landed()
        blocked, _ = Stream("z").then()
        rival.appends(blocked)
        intent, _ = Stream("s").then(checks=((TENANT, known.state.id, 1),))
        doing = Doing(lambda: store.commit([intent, Stream("z").then()[0]]))
        until(rival.waited_for, "the batch has locked what it checks, and waits")
        moving = Doing(lambda: other.commit([known.then(j.Stepped("x", "x"))[0]]))
        until(lambda: _blocked(rival) >= 2, "the append waits for the check")
        assert not moving.done
        rival.raw.rollback()
        assert doing.result() == [Landed(), Landed()]
        assert moving.result() == [Landed()]

    def test_what_is_checked_and_written_in_one_batch_is_locked_as_for_writing(self, make_store: Make, rival: Rival) -> None:
        """Two that share a lock, and then both want to write, would wait for each other."""
        store = make_store()
        change, known = task("k")
        assert one(store, change) == Landed()
        rival.run("lock_tasks", {"tenants": text_array([TENANT]), "streams": text_array([known.state.id])})
        intent, _ = Stream("s").then(checks=((TENANT, known.state.id, 1),))
        doing = Doing(lambda: store.commit([intent, known.then(j.Stepped("x", "x"))[0]]))
        until(rival.waited_for, "the batch waits for the rival's share")
        waiting = rival.admin.execute("SELECT query FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0")
        assert [row[0] for row in waiting if "FOR NO KEY UPDATE" in row[0]], "before it has written anything"
        rival.raw.rollback()
        assert doing.result() == [Landed(), Landed()]

    def test_batches_that_meet_in_opposite_order_all_end(self, make_store: Make) -> None:
        first, second = make_store(), make_store()
        for _ in range(10):
            names = [f"s{n}" for n in range(20)]
            streams = [Stream(name, head=first.head(TENANT, name)) for name in names]
            mine = [s.then()[0] for s in streams]
            theirs = [s.then()[0] for s in reversed(streams)]
            doing = Doing(lambda units=mine: first.commit(units))
            outcomes = second.commit(theirs)[::-1]
            for a, b in zip(doing.result(), outcomes, strict=True):
                assert {type(a), type(b)} == {Landed, Stale}


@pytest.mark.usefixtures("patient")
class TestSharedKeys:
    """R8: two tasks intend one tenant-scoped key, each in its own stream and the key's; both intents land in both or neither."""

    def intents(self) -> tuple[Change, Change]:
        mine, theirs = (
            together(*(Stream(name).then(id=id)[0] for name in (of, "key"))) for of, id in (("mine", "i1"), ("theirs", "i2"))
        )
        return mine, theirs

    @pytest.mark.parametrize("commits", [True, False])
    def test_of_two_intents_at_once_one_lands(self, make_store: Make, rival: Rival, commits: bool) -> None:
        store = make_store()
        mine, theirs = self.intents()
        rival.appends(theirs)
        doing = Doing(lambda: store.commit([mine, Stream("other").then()[0]]))
        until(rival.waited_for, "our row of the key waits for the rival's")
        (rival.raw.commit if commits else rival.raw.rollback)()
        assert doing.result() == [Stale("key") if commits else Landed(), Landed()]
        assert len(store.rows(TENANT, "mine")) == (0 if commits else 1), "in both streams or in neither"
        assert [row.id for row in store.rows(TENANT, "key")] == ["i2" if commits else "i1"]

    def test_however_two_processes_meet_one_lands(self, make_store: Make) -> None:
        first, second = make_store(), make_store()
        for n in range(20):
            mine, theirs = (
                together(*(Stream(name).then(id=id)[0] for name in (f"{of}{n}", f"key{n}")))
                for of, id in (("a", f"i{n}"), ("b", f"j{n}"))
            )
            doing = Doing(lambda change=mine: first.commit([change]))
            outcomes = [*second.commit([theirs]), *doing.result()]
            assert sorted(type(o).__name__ for o in outcomes) == ["Landed", "Stale"]
            assert len(first.rows(TENANT, f"a{n}")) + len(first.rows(TENANT, f"b{n}")) == len(first.rows(TENANT, f"key{n}")) == 1


@pytest.mark.usefixtures("patient")
class TestFences:
    """R5: a token guard without a row lock lets a stale intent in under READ COMMITTED."""

    @pytest.mark.parametrize("commits", [True, False])
    def test_an_intent_while_its_session_is_being_fenced(self, make_store: Make, rival: Rival, commits: bool) -> None:
        store = make_store()
        guard = session(store)
        rival.run("lock_to_fence", {"id": guard.session})
        assert rival.run("fence", {"id": guard.session, "nonce": None, "how": "watched"})
        doing = Doing(lambda: store.commit([Stream("s").then(guard=guard)[0], Stream("t").then()[0]]))
        until(rival.waited_for, "the intent waits for the fence")
        (rival.raw.commit if commits else rival.raw.rollback)()
        outcomes = doing.result()
        assert [type(o) for o in outcomes] == [Fenced if commits else Landed, Landed]
        assert len(store.rows(TENANT, "s")) == (0 if commits else 1)

    def test_a_fence_while_an_intent_is_under_way(self, make_store: Make, rival: Rival) -> None:
        store, other = make_store(), make_store()
        guard = session(store)
        rival.appends(Stream("z").then()[0])
        intent, _ = Stream("s").then(guard=guard)
        doing = Doing(lambda: store.commit([intent, Stream("z").then()[0]]))
        until(rival.waited_for, "the batch holds the session, and waits")
        reaper = Rival(store_url(rival))
        fencing = Doing(lambda: reaper.run("lock_to_fence", {"id": guard.session}))
        until(lambda: _blocked(rival) >= 2, "the fence waits for the intent")
        assert store.beat(guard.session, ["n0"], "n1", 1), "and the beat for neither"
        rival.raw.rollback()
        assert doing.result() == [Landed(), Landed()]
        fencing.result()
        assert reaper.run("fence", {"id": guard.session, "nonce": "n0", "how": "watched"}) == [], "it has beaten since"
        reaper.close()
        assert other.fence(guard.session, "n1", "watched")
        assert isinstance(one(store, Stream("s2").then(guard=guard)[0]), Fenced)

    def test_a_fence_while_a_claim_is_under_way(self, make_store: Make, rival: Rival) -> None:
        """R17: the claim that was open commits before the fence does, and whoever looks then finds the task."""
        store, other = make_store(), make_store()
        change, known = task("k")
        assert one(store, change) == Landed()
        guard = session(store)
        rival.appends(known.then(j.Stepped("x", "x"))[0])
        claim = Doing(lambda: store.commit([claiming(guard)]))
        until(rival.waited_for, "the claim has found the task, and waits to write")
        reaper = Rival(store_url(rival))
        fencing = Doing(lambda: reaper.run("lock_to_fence", {"id": guard.session}))
        until(lambda: _blocked(rival) >= 2, "the fence waits for the claim")
        rival.raw.rollback()
        assert claimed(claim.result()[0]) == ["k"]
        fencing.result()
        assert other.orphans(None, 10) == [], "not yet"
        assert reaper.run("fence", {"id": guard.session, "nonce": None, "how": "watched"})
        reaper.raw.commit()
        reaper.close()
        assert [(row.task, how) for row, how in other.orphans(None, 10)] == [(known.state.id, "watched")]
        assert isinstance(one(store, claiming(guard)), Fenced)

    def test_of_two_reapers_one_fences(self, make_store: Make) -> None:
        first, second = make_store(), make_store()
        for _ in range(10):
            guard = session(first)
            doing = Doing(lambda g=guard: second.fence(g.session, "n0", "dead"))
            mine = first.fence(guard.session, "n0", "watched")
            assert sorted([mine, doing.result()]) == [False, True]


class TestClaims:
    """SKIP LOCKED, and what it does not skip."""

    @pytest.mark.usefixtures("patient")
    def test_what_a_rival_is_claiming_is_skipped_and_not_waited_for(self, make_store: Make, rival: Rival) -> None:
        store = make_store()
        changes = [task(f"k{n}", due=100 + n)[0] for n in range(4)]
        assert store.commit(changes) == [Landed()] * 4
        rival.raw.execute("SELECT 1 FROM semel.ready WHERE due IN (100, 102) FOR UPDATE")
        guard = session(store)
        began = time.monotonic()
        assert claimed(one(store, claiming(guard, limit=2))) == ["k1", "k3"]
        assert claimed(one(store, claiming(guard, limit=2))) == []
        assert time.monotonic() - began < 15, "the rival holds them for as long as it likes"
        rival.raw.rollback()
        assert claimed(one(store, claiming(guard, limit=4))) == ["k0", "k2"], "the rival gave them back"

    @pytest.mark.parametrize("commits", [True, False])
    def test_a_task_on_which_a_rival_writes_is_passed_over(self, make_store: Make, rival: Rival, commits: bool) -> None:
        store = make_store()
        made = [task(f"k{n}", due=100 + n) for n in range(3)]
        store.commit([change for change, _ in made])
        rival.appends(made[0][1].then(j.Stepped("x", "x"))[0])
        guard = session(store)
        outcomes = store.commit([Stream("s").then()[0], claiming(guard)])
        assert outcomes[0] == Landed()
        assert claimed(outcomes[1]) == ["k1", "k2"]
        assert {row.task for row in store.held(guard.session)} == {known.state.id for _, known in made[1:]}
        (rival.raw.commit if commits else rival.raw.rollback)()
        assert claimed(one(store, claiming(guard))) == ["k0"]

    @pytest.mark.parametrize("careful", [False, True])
    def test_a_claim_by_id_is_decided_again_if_a_rival_was_faster(self, make_store: Make, rival: Rival, careful: bool) -> None:
        store = make_store()
        store._careful_until = math.inf if careful else 0.0
        change, known = task("k")
        store.commit([change])
        unit = claiming(session(store), task=(TENANT, known.state.id))
        seen: list[int] = []

        def decide(tenant: str, rows: list[j.Row]):  # type: ignore[no-untyped-def]
            if not seen:  # between what we read and what we write
                rival.appends(known.then(j.Stepped("x", "x"))[0])
                rival.raw.commit()
            seen.append(rows[-1].seq)
            return unit.decide(tenant, rows)

        outcome = one(store, type(unit)(unit.guard, unit.at, unit.limit, decide, task=unit.task))
        assert isinstance(outcome, Claims)
        assert [t.task.delivery for t in outcome.tasks] == [Delivery.LEASED]
        assert seen == [1, 2]
        assert store.head(TENANT, known.state.id).seq == 3


class TestLocks:
    """What waits for a lock leaves the batch; nobody waits with it."""

    def test_a_key_that_a_user_holds_delays_that_key_alone(self, make_store: Make, rival: Rival) -> None:
        store = make_store()
        guard = session(store)
        held, _ = task("held")
        assert held.create is not None
        rival.raw.execute("INSERT INTO semel.task_key VALUES (%s, %s, %s, 'theirs')", held.create[:3])
        others = [task(f"k{n}") for n in range(20)]
        intent, s = Stream("s").then(guard=guard)
        outcomes = store.commit([*(c for c, _ in others[:10]), held, *(c for c, _ in others[10:]), intent])
        assert outcomes == [Landed()] * 10 + [Busy()] + [Landed()] * 11
        assert store.commit([s.then()[0], held]) == [Landed(), Busy()]
        assert store.beat(guard.session, ["n0"], "n1", 1)
        rival.raw.rollback()
        assert store.commit([held]) == [Landed()]

    def test_what_stands_behind_it_in_its_stream_waits_too(self, make_store: Make, rival: Rival) -> None:
        store = make_store()
        rival.appends(Stream("s").then()[0])
        first, s = Stream("s").then()
        second, s = s.then()
        other, _ = Stream("t").then()
        assert store.commit([first, other, second]) == [Busy(), Landed(), Busy()]
        rival.raw.rollback()
        assert store.commit([first, second]) == [Landed(), Landed()]
        assert store.head(TENANT, "s") == s.head

    def test_an_own_commit_that_is_still_undecided_is_waited_for(self, make_store: Make, rival: Rival) -> None:
        """R7: our transaction's reply was lost, and its server process has not ended it yet. A bare look would say: absent."""
        for commits in (True, False):
            store = make_store()
            change, s = Stream(f"s{commits}").then()
            rival.appends(change)
            assert store.commit([change]) == [Busy()]
            (rival.raw.commit if commits else rival.raw.rollback)()
            assert store.commit([change]) == [Landed()]
            assert store.head(TENANT, s.name) == s.head
            assert store.head(TENANT, "nothing") == Head(0, j.GENESIS)


def _blocked(rival: Rival) -> int:
    row = rival.admin.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
    ).fetchone()
    assert row is not None
    return int(row[0])


def store_url(rival: Rival) -> str:
    """The URL that a rival is connected to."""
    info = rival.raw.info
    return f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"

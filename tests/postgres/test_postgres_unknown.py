"""R7 on PostgreSQL: a COMMIT whose reply is lost, or counts for nothing; connections that are cut, frozen, or not ours."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from rivals import Doing, Rival, until

from pgproxy import Proxy
from pgserver import emptied
from semel.errors import StoreUnavailable
from semel.machine import journal as j
from semel.store.contract import Fenced, Landed
from semel.store.pglisten import Hints
from semel.store.postgres import Postgres
from semel.testing.conformance_kit import TENANT, Stream, claimed, claiming, commit, one, session, task
from semel.testing.postgres import Cluster

Make = Callable[[], Postgres]


@pytest.fixture
def behind(proxy: Proxy) -> Iterator[Postgres]:
    """A store behind the proxy, whose connections are open."""
    store = Postgres(proxy.url)
    store._hints.close()  # or a hint might be the request, or the answer, that is lost
    store._hints = Hints(None)
    assert one(store, Stream("warm").then()[0]) == Landed()
    store.head(TENANT, "warm")
    yield store
    store.close()


class TestLostReplies:
    """Nothing is known of what was under way; the same units are given again."""

    def test_a_commit_that_landed_finds_itself(self, behind: Postgres, proxy: Proxy) -> None:
        guard = session(behind)
        known = [Stream(f"s{n}").then(guard=guard) for n in range(5)]
        created, other = task("k")
        units = [*(change for change, _ in known), created]
        proxy.cut_at_reply = b"COMMIT\0"
        with pytest.raises(StoreUnavailable):
            behind.commit(units)
        assert proxy.cuts == 1
        assert behind.commit(units) == [Landed()] * 6
        for _, stream in known:
            assert behind.head(TENANT, stream.name) == stream.head
        assert behind.find_task(TENANT, other.state.kind, "k") == other.state.id

    @pytest.mark.parametrize(("after", "careful"), [(0, False), (0, True), (1, True)])
    def test_a_commit_that_never_reached_the_server_lands_then(
        self, behind: Postgres, proxy: Proxy, after: int, careful: bool
    ) -> None:
        change, stream = Stream("s").then()
        behind._careful_until = math.inf if careful else 0.0
        proxy.lose_request(after)
        with pytest.raises(StoreUnavailable):
            behind.commit([change])
        assert proxy.cuts == 1
        assert behind.commit([change]) == [Landed()]
        assert behind.rows(TENANT, "s") == list(change.parts[0].rows)
        assert behind.head(TENANT, "s") == stream.head

    def test_a_claim_whose_reply_is_lost_is_on_record_and_found(self, behind: Postgres, proxy: Proxy) -> None:
        """R17: the session holds a task that it does not know; its own look finds it."""
        guard = session(behind)
        change, known = task("k")
        behind.commit([change])
        proxy.cut_at_reply = b"COMMIT\0"
        with pytest.raises(StoreUnavailable):
            behind.commit([claiming(guard)])
        assert claimed(one(behind, claiming(guard))) == []
        assert [row.task for row in behind.held(guard.session)] == [known.state.id]

    def test_a_beat_whose_reply_is_lost_gives_way_to_the_next(self, behind: Postgres, proxy: Proxy) -> None:
        guard = session(behind, nonce="n0")
        proxy.cut_at_reply = b"UPDATE 1\0"
        with pytest.raises(StoreUnavailable):
            behind.beat(guard.session, ["n0"], "n1", 1)
        assert behind.beat(guard.session, ["n0", "n1"], "n2", 1)

    def test_a_read_on_a_cut_connection_is_asked_again(self, behind: Postgres, rival: Rival) -> None:
        rival.admin.execute("SELECT pg_terminate_backend(%s, 5000)", (behind._reader.pid,))
        assert behind.head(TENANT, "warm").seq == 1

    def test_a_server_that_answers_nothing_hangs_nobody(self, behind: Postgres, proxy: Proxy) -> None:
        guard = session(behind, nonce="n0")
        proxy.frozen.set()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            behind.beat(guard.session, ["n0"], "n1", 1)
        assert time.monotonic() - began < 20, "its patience is 3 seconds"
        proxy.frozen.clear()
        until(lambda: _beats(behind, guard.session), "it beats again")


def _beats(store: Postgres, name: str) -> bool:
    try:
        return store.beat(name, ["n0", "n1"], "n1", 1)
    except StoreUnavailable:
        return False


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A server of our own: whether commits wait for a standby is set for the whole of it."""
    found = Cluster()
    yield found
    found.close()


class TestWarnings:
    """A cancelled wait for a synchronous standby reports success with a warning, and the row can vanish at a failover."""

    @pytest.fixture
    def database(self, own_cluster: Cluster) -> str:
        return emptied(own_cluster.url)

    @pytest.fixture
    def no_standby(self, make_store: Make, rival: Rival) -> Iterator[Postgres]:
        store = make_store()
        assert one(store, Stream("warm").then()[0]) == Landed()
        rival.admin.execute("SET synchronous_commit = local")
        rival.admin.execute("CHECKPOINT")  # the checkpointer is who makes the setting known, and it may be busy
        self.standbys(rival, "ANY 1 (nobody)")
        probes: list[Doing] = []

        def known() -> bool:
            if not probes or probes[-1].done:
                probes.append(Doing(lambda: rival.raw.execute("SELECT pg_logical_emit_message(true, '', ''); COMMIT; BEGIN")))
            sql = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'"
            return bool(rival.admin.execute(sql, (rival.raw.info.backend_pid,)).fetchone())

        until(known, "commits wait for a standby")
        yield store
        self.standbys(rival, "")
        probes[-1].result()

    def standbys(self, rival: Rival, names: str) -> None:
        rival.admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        rival.admin.execute("SELECT pg_reload_conf()")

    def waits(self, rival: Rival, store: Postgres) -> Callable[[], bool]:
        sql = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'"
        return lambda: bool(rival.admin.execute(sql, (store._writer.pid,)).fetchone())

    def test_a_cancelled_wait_is_no_answer_and_the_next_commit_waits(self, no_standby: Postgres, rival: Rival) -> None:
        change, stream = Stream("s").then()
        doing = Doing(lambda: no_standby.commit([change]))
        until(self.waits(rival, no_standby), "the commit waits for a standby")
        rival.admin.execute("SELECT pg_cancel_backend(%s)", (no_standby._writer.pid,))
        with pytest.raises(StoreUnavailable, match="warning"):
            doing.result()
        assert rival.admin.execute("SELECT count(*) FROM semel.journal WHERE stream = 's'").fetchone() == (1,), "it is there"
        again = Doing(lambda: no_standby.commit([change]))
        until(self.waits(rival, no_standby), "it has landed, and yet its commit waits: it wrote something")
        assert not again.done
        self.standbys(rival, "")
        assert again.result() == [Landed()]
        assert no_standby.head(TENANT, "s") == stream.head

    def test_a_terminated_wait_is_no_answer_either(self, no_standby: Postgres, rival: Rival) -> None:
        change, _ = Stream("s").then()
        doing = Doing(lambda: no_standby.commit([change]))
        until(self.waits(rival, no_standby), "the commit waits for a standby")
        rival.admin.execute("SELECT pg_terminate_backend(%s)", (no_standby._writer.pid,))
        with pytest.raises(StoreUnavailable):
            doing.result()
        self.standbys(rival, "")
        assert no_standby.commit([change]) == [Landed()]

    def test_warnings_are_heard_whatever_the_role_is_set_to(self, make_store: Make, rival: Rival) -> None:
        rival.admin.execute(f"ALTER DATABASE {rival.admin.info.dbname} SET client_min_messages = error")
        try:
            link = make_store()._writer
            link.pipe(("begin", None))
            link.pipe(("begin", None))  # answered with a warning: a transaction is open already
            assert link.warnings
            link.roll_back()
        finally:
            rival.admin.execute(f"ALTER DATABASE {rival.admin.info.dbname} RESET client_min_messages")


class TestHandles:
    """What a handle does when the store, or the process, is not what it was."""

    def test_another_store_in_its_place_is_refused(self, make_store: Make, rival: Rival) -> None:
        store = make_store()
        guard = session(store)
        assert store.still_here()
        rival.admin.execute("UPDATE semel.meta SET value = 'another' WHERE name = 'id'")
        ours = "application_name LIKE 'semel%' AND datname = current_database()"
        sql = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {ours}"
        rival.admin.execute(sql)
        with pytest.raises(StoreUnavailable):
            store.commit([Stream("s").then()[0]])
        with pytest.raises(StoreUnavailable, match="another store"):
            store.commit([Stream("s").then()[0]])
        with pytest.raises(StoreUnavailable):
            store.beat(guard.session, ["n0"], "n1", 1)
        assert not store.still_here()

    def test_a_new_epoch_fences_what_is_of_the_old_one(self, make_store: Make, rival: Rival) -> None:
        store = make_store()
        guard = session(store)
        rival.admin.execute("UPDATE semel.meta SET value = (value::bigint + 1)::text WHERE name = 'epoch'")
        assert isinstance(one(store, Stream("s").then(guard=guard)[0]), Fenced)
        assert not store.beat(guard.session, ["n0"], "n1", 1)

    def test_a_forked_child_leaves_the_parents_connections_alone(self, make_store: Make) -> None:
        store = make_store()
        change, stream = Stream("s").then()
        assert one(store, change) == Landed()
        store.head(TENANT, "s")
        store.changed()
        until(store._hints.listening.is_set, "it listens")
        before = [link.pid for link in store._links]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.head(TENANT, "s")
            except StoreUnavailable:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child's handle is closed"
        assert one(store, stream.then()[0]) == Landed()
        assert store.head(TENANT, "s").seq == 2
        assert [link.pid for link in store._links] == before

    def test_at_most_four_connections(self, make_store: Make, rival: Rival) -> None:
        store = make_store()
        guard = session(store)
        for n in range(3):
            assert one(store, Stream(f"s{n}").then(guard=guard)[0]) == Landed()
            assert store.beat(guard.session, [f"n{n}"], f"n{n + 1}", n + 1)
            store.head(TENANT, "s0"), store.changed(), store.sessions(), store.next_due(["q"], ["k"])
        sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'semel%' AND datname = current_database()"
        assert rival.admin.execute(sql).fetchone() == (4,)

    def test_hints_that_fail_fail_nothing(self, make_store: Make, rival: Rival) -> None:
        store = make_store()
        store.changed()
        until(store._hints.listening.is_set, "it listens")
        listener = store._links[3].pid
        rival.admin.execute("SELECT pg_terminate_backend(%s, 5000)", (listener,))
        seen = store.changed()
        assert one(store, Stream("s").then()[0]) == Landed()
        until(lambda: store.changed() != seen, "without a listener it moves with time")
        until(store._hints.listening.is_set, "it listens again")

    def test_behind_a_pool_nothing_is_left_on_the_connection(self, database: str, rival: Rival) -> None:
        store = Postgres(database + "?pgbouncer=1")
        try:
            guard = session(store)
            change, _ = task("k")
            assert commit(store, change, claiming(guard))[0] == Landed()
            assert store.beat(guard.session, ["n0"], "n1", 1)
            assert store.fence(guard.session, "n1", "watched")
            for link in (store._writer, store._reader, store._beats):
                raw = link._raw
                assert raw is not None
                assert raw.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
                assert raw.execute("SHOW enable_hashjoin").fetchone() == ("on",)
                assert raw.execute("SHOW lock_timeout").fetchone() == ("0",)
            link = store._writer
            link.pipe(("begin", None), *link.locals())
            assert link._raw is not None
            assert link._raw.execute("SHOW enable_hashjoin").fetchone() == ("off",)
            assert link._raw.execute("SHOW lock_timeout").fetchone() == ("200ms",)
            link.roll_back()
            seen = store.changed()
            until(lambda: store.changed() != seen, "there is no listener behind a pool: it moves with time")
            assert store._links[3].pid == 0
        finally:
            store.close()

    def test_a_handle_without_a_server_says_so(self) -> None:
        with pytest.raises(StoreUnavailable, match="did not answer"):
            Postgres("postgresql://nobody@127.0.0.1:1/none?connect_timeout=2")


def test_the_journal_is_insert_only(make_store: Make, rival: Rival) -> None:
    store = make_store()
    assert one(store, Stream("s").then()[0]) == Landed()
    for sql in ("UPDATE semel.journal SET body = '{}'", "DELETE FROM semel.journal", "TRUNCATE semel.journal"):
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            rival.admin.execute(sql)
    assert j.broken(store.rows(TENANT, "s")) is None

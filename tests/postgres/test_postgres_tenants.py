"""Tenants on PostgreSQL: the database itself keeps their roles apart, whatever a role says to it in SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, ClassVar

import psycopg
import pytest
from psycopg import errors, sql
from tenant_roles import role_of

import semel
from semel.cli.verify import verify
from semel.errors import Misuse
from semel.machine.projection import InflightRow
from semel.store.contract import Broken, Claims, Exists, Landed, Store
from semel.store.pglink import target
from semel.store.postgres import Postgres
from semel.testing.conformance import Sessions
from semel.testing.conformance_claims import Claiming
from semel.testing.conformance_kit import AT, KIND, QUEUE, TENANT, claimed, claiming, one, session, task

MINE, THEIRS = TENANT, "globex"
OF_TENANTS = ("journal", "task", "task_key", "ready", "inflight", "effect", "unknown")
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def roles(own_database: str) -> Iterator[dict[str, str]]:
    """The URL of a role of each tenant."""
    Postgres(own_database).close()
    with role_of(own_database, MINE) as mine, role_of(own_database, THEIRS) as theirs:
        yield {MINE: mine, THEIRS: theirs}


@pytest.fixture
def stores(roles: dict[str, str], database: str) -> Iterator[dict[str, Postgres]]:
    """A handle of each tenant's role, and one of the owner ("")."""
    found = {name: Postgres(url) for name, url in {**roles, "": database}.items()}
    yield found
    for store in found.values():
        store.close()


@pytest.fixture
def filled(stores: dict[str, Postgres]) -> dict[str, Postgres]:
    """Both tenants have a row in each table: what waits, what is held, what is unknown."""
    for name in (MINE, THEIRS):
        store = stores[name]
        guard = session(store, f"session-{name}")
        made = [task(f"k{n}", tenant=name, id=f"{name}-{n}") for n in range(2)]
        assert store.commit([change for change, _ in made]) == [Landed()] * 2
        assert len(claimed(one(store, claiming(guard, limit=1)))) == 1
        with psycopg.connect(target_url(store)) as raw:
            raw.execute("INSERT INTO semel.effect VALUES (%s, 'e', 't', 't', 'charge', 'ambiguous', 1)", (name,))
            raw.execute("INSERT INTO semel.unknown VALUES (%s, 'e', 't', 'charge', 1)", (name,))
    return stores


def target_url(store: Postgres) -> str:
    return psycopg.conninfo.make_conninfo("", **{k: v for k, v in store._where.params.items() if k != "target_session_attrs"})


class TestAsATenantsRole(Claiming, Sessions):
    """Claims, locks and beats of the conformance kit, by a role that may touch one tenant's rows alone."""

    test_tasks_of_all_tenants_are_claimed: ClassVar = None  # it has one

    @pytest.fixture
    def make_store(self, roles: dict[str, str], database: str) -> Iterator[Callable[[], Store]]:
        opened: list[Postgres] = []

        def make() -> Postgres:
            opened.append(Postgres(roles[MINE]))
            return opened[-1]

        yield make
        for store in opened:
            store.close()


# --- what a role can do in SQL ---


@pytest.mark.parametrize("table", OF_TENANTS)
def test_a_role_neither_sees_nor_changes_a_row_of_another_tenant(
    filled: dict[str, Postgres], roles: dict[str, str], table: str
) -> None:
    name = sql.Identifier("semel", table)
    rows = sql.SQL("SELECT * FROM {} WHERE tenant = %s").format(name)
    with psycopg.connect(target_url(filled[""]), autocommit=True) as owner, psycopg.connect(roles[MINE], autocommit=True) as raw:
        theirs = owner.execute(rows, (THEIRS,)).fetchall()
        assert theirs
        assert raw.execute(rows, (MINE,)).fetchall()
        assert raw.execute(rows, (THEIRS,)).fetchall() == []
        assert raw.execute(sql.SQL("SELECT count(*) FROM {} WHERE tenant <> %s").format(name), (MINE,)).fetchone() == (0,)
        values = sql.SQL(", ").join(sql.Literal(value) for value in theirs[0])
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
            raw.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(name, values))
        for statement in ("UPDATE {} SET tenant = tenant WHERE tenant = %s", "DELETE FROM {} WHERE tenant = %s"):
            try:
                assert raw.execute(sql.SQL(statement).format(name), (THEIRS,)).rowcount == 0
            except errors.InsufficientPrivilege as error:
                assert "permission denied for table" in str(error)
        with pytest.raises(errors.InsufficientPrivilege):
            raw.execute(sql.SQL("UPDATE {} SET tenant = %s").format(name), (THEIRS,))
        with pytest.raises(errors.InsufficientPrivilege):
            raw.execute(sql.SQL("TRUNCATE {}").format(name))
        assert owner.execute(rows, (THEIRS,)).fetchall() == theirs


def test_an_agents_role_writes_to_the_journal_and_never_changes_it(filled: dict[str, Postgres], roles: dict[str, str]) -> None:
    with psycopg.connect(roles[MINE], autocommit=True) as raw:
        for statement in ("UPDATE semel.journal SET body = '{}'", "DELETE FROM semel.journal", "TRUNCATE semel.journal"):
            with pytest.raises(errors.InsufficientPrivilege, match="permission denied"):
                raw.execute(statement)
        with pytest.raises(errors.InsufficientPrivilege):
            raw.execute("ALTER TABLE semel.journal DISABLE TRIGGER ALL")
        with pytest.raises(errors.InsufficientPrivilege):
            raw.execute("SET session_replication_role = replica")
    with psycopg.connect(target_url(filled[""]), autocommit=True) as owner:
        for statement in ("UPDATE semel.journal SET body = '{}'", "DELETE FROM semel.journal", "TRUNCATE semel.journal"):
            with pytest.raises(errors.IntegrityConstraintViolation, match="insert only"):
                owner.execute(statement)


def test_a_role_cannot_make_itself_another_tenants(filled: dict[str, Postgres], roles: dict[str, str]) -> None:
    role = target(roles[MINE]).params["user"]
    with psycopg.connect(roles[MINE], autocommit=True) as raw:
        assert raw.execute("SELECT role, tenant FROM semel.tenant_role").fetchall() == [(role, MINE)]
        for statement in (
            f"UPDATE semel.tenant_role SET tenant = '{THEIRS}'", "DELETE FROM semel.tenant_role",
            f"INSERT INTO semel.tenant_role VALUES ('x', '{THEIRS}')", f"SELECT semel.let_in('{role}', '{THEIRS}')",
            f"SET ROLE {target(roles[THEIRS]).params['user']}", "UPDATE semel.meta SET value = '1'",
            "CREATE TABLE semel.x (y int)",
            "ALTER TABLE semel.task DISABLE ROW LEVEL SECURITY", f"CREATE POLICY x ON semel.task USING (tenant = '{THEIRS}')",
        ):  # fmt: skip
            with pytest.raises(errors.InsufficientPrivilege):
                raw.execute(statement)  # type: ignore[call-overload]
        raw.execute("SET row_security = off")
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
            raw.execute("SELECT * FROM semel.task")


def test_operators_of_its_own_do_not_help_a_role(filled: dict[str, Postgres], roles: dict[str, str]) -> None:
    """Whose it is must not depend on how the role's search_path reads the sign "="."""
    database = sql.Identifier(target(roles[MINE]).params["dbname"])
    role = sql.Identifier(target(roles[MINE]).params["user"])
    with psycopg.connect(target_url(filled[""]), autocommit=True) as owner:
        owner.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(database, role))
        with psycopg.connect(roles[MINE], autocommit=True) as raw:
            raw.execute("CREATE SCHEMA evil")
            raw.execute("CREATE FUNCTION evil.yes(name, name) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true'")
            raw.execute("CREATE FUNCTION evil.yes(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true'")
            for kind in ("name", "text"):
                raw.execute(f"CREATE OPERATOR evil.= (LEFTARG = {kind}, RIGHTARG = {kind}, FUNCTION = evil.yes)")  # type: ignore[arg-type]
            raw.execute("SET search_path = evil, pg_catalog")
            assert raw.execute("SELECT 'a'::name = 'b'::name").fetchone() == (True,), "the trap is set"
            assert raw.execute("SELECT semel.my_tenant()").fetchone() == (MINE,)
            assert raw.execute("SELECT DISTINCT tenant FROM semel.task").fetchall() == [(MINE,)]
            raw.execute("DROP SCHEMA evil CASCADE")


def test_a_taken_key_of_another_tenant_tells_nothing(filled: dict[str, Postgres], roles: dict[str, str]) -> None:
    """Free or taken, the answer is the same: every key begins with the tenant, and the policy is asked first."""
    said = set()
    with psycopg.connect(roles[MINE], autocommit=True) as raw:
        for key in ("k0", "nobody has this"):
            with pytest.raises(errors.InsufficientPrivilege) as found:
                raw.execute("INSERT INTO semel.task_key VALUES (%s, %s, %s, 't')", (THEIRS, KIND, key))
            said.add(str(found.value))
        for stream in (f"{THEIRS}-0", "nobody has this"):
            with pytest.raises(errors.InsufficientPrivilege) as found:
                raw.execute("INSERT INTO semel.journal VALUES (%s, %s, 1, 'k', 'a', 0, 0, '', '', '')", (THEIRS, stream))
            said.add(str(found.value))
    assert len(said) == 2, said


# --- sessions ---


def test_a_role_cannot_fence_or_beat_for_a_session_that_is_not_its_tenants(
    filled: dict[str, Postgres], roles: dict[str, str]
) -> None:
    shared = session(filled[""], "session-of-all", nonce="n0")
    for victim in (shared.session, f"session-{THEIRS}"):
        assert not filled[MINE].fence(victim, None, "dead")
        assert not filled[MINE].beat(victim, ["n0"], "n9", 9)
        with psycopg.connect(roles[MINE], autocommit=True) as raw:
            assert raw.execute("UPDATE semel.session SET fenced = 'x' WHERE id = %s", (victim,)).rowcount == 0
            assert raw.execute("DELETE FROM semel.living WHERE id = %s", (victim,)).rowcount == 0
            with pytest.raises(errors.InsufficientPrivilege):
                raw.execute("INSERT INTO semel.living (id, tenant) VALUES ('x', %s)", (THEIRS,))
            with pytest.raises(errors.InsufficientPrivilege):
                raw.execute("UPDATE semel.session SET tenant = '' WHERE id = %s", (f"session-{MINE}",))
            with pytest.raises(errors.InsufficientPrivilege):
                raw.execute("DELETE FROM semel.session")
        found = filled[""].session(victim)
        assert found is not None and found.fenced == "" and found.nonce == "n0"
    assert filled[MINE].fence(f"session-{MINE}", "n0", "watched")
    assert filled[""].fence(f"session-{THEIRS}", "n0", "watched"), "who works for all looks after all"


def test_a_role_sees_the_sessions_that_may_hold_its_tasks_and_no_others(filled: dict[str, Postgres]) -> None:
    session(filled[""], "session-of-all")
    assert {row.id for row in filled[MINE].sessions()} == {f"session-{MINE}", "session-of-all"}
    assert filled[MINE].session(f"session-{THEIRS}") is None
    assert {row.id for row in filled[""].sessions()} == {f"session-{MINE}", f"session-{THEIRS}", "session-of-all"}


def test_a_task_that_a_worker_of_all_tenants_holds_is_no_orphan_to_its_tenant(stores: dict[str, Postgres]) -> None:
    """A holder that the role could not see would count as missing, and its task would be taken from it while it runs."""
    guard = session(stores[""], "session-of-all")
    assert one(stores[MINE], task("k", id="t")[0]) == Landed()
    assert claimed(one(stores[""], claiming(guard))) == ["k"]
    assert stores[MINE].orphans(None, 10) == []
    assert stores[""].fence(guard.session, None, "dead")
    assert stores[MINE].orphans(None, 10) == [(InflightRow(guard.session, MINE, "t"), "dead")]
    assert stores[THEIRS].orphans(None, 10) == []


# --- through semel ---


def test_a_handle_reads_and_claims_its_tenants_alone_and_cannot_write_anothers(filled: dict[str, Postgres]) -> None:
    store = filled[MINE]
    assert store.info.tenant == MINE and filled[""].info.tenant is None
    assert {row.tenant for row in store.tasks(None)} == {row.tenant for row in store.unknown(None)} == {MINE}
    assert store.effect(None, "e") == store.effect(MINE, "e") and store.effect(THEIRS, "e") is None
    assert store.head(THEIRS, f"{THEIRS}-0").seq == 0 and store.find_task(THEIRS, KIND, "k0") is None
    assert store.counts(None) == store.counts(MINE) != filled[""].counts(None)
    assert store.sizes()["task"] == 2 and filled[""].sizes()["task"] == 4
    assert {tenant for tenant, _ in store.streams(("", ""), 100)} == {MINE}
    (mine, _), (theirs, _) = task("new"), task("new", tenant=THEIRS)
    outcomes = store.commit([theirs, mine])
    assert isinstance(outcomes[0], Broken) and outcomes[1] == Landed(), "what it may not do takes nobody along"
    taken = one(store, claiming(session(store)))
    assert isinstance(taken, Claims) and {t.tenant for t in taken.tasks} == {MINE}
    assert one(store, claiming(session(store), task=(THEIRS, f"{THEIRS}-1"))) == Claims(())
    assert store.next_due([QUEUE], [KIND]) is None and filled[THEIRS].next_due([QUEUE], [KIND]) == AT


def test_the_same_key_of_two_roles_is_two_tasks(stores: dict[str, Postgres]) -> None:
    ids = {}
    for name in (MINE, THEIRS):
        change, known = task("k", tenant=name)
        assert one(stores[name], change) == Landed()
        ids[name] = known.state.id
    for name in (MINE, THEIRS):
        assert one(stores[name], task("k", tenant=name)[0]) == Exists(ids[name])


def shop(url: str, **more: Any) -> tuple[semel.App, Any, list[tuple[str, str]]]:
    """An app with one task, and what its effect did: (tenant, invoice)."""
    app, sent = semel.App(url, lease=timedelta(seconds=5), **more), list[tuple[str, str]]()

    @app.effect(intent=("invoice",))
    def charge(submission: semel.Submission, invoice: str) -> str:
        sent.append((submission.tenant, invoice))
        if invoice == "lost":
            raise TimeoutError("no answer")
        return f"paid {invoice}"

    @app.task(intent=("invoice",))
    def bill(invoice: str) -> str:
        return charge(invoice)

    return app, bill, sent


def test_an_app_of_a_tenants_role_does_all_of_its_work(roles: dict[str, str], database: str) -> None:
    mine, bill, sent = shop(roles[MINE], tenant=MINE)
    theirs, their_bill, their_sent = shop(roles[THEIRS], tenant=THEIRS)
    refs = [bill.enqueue("inv"), bill.enqueue("lost")]
    their_ref = their_bill.enqueue("inv")
    mine.run_worker(until_idle=True)
    assert sorted(sent) == [(MINE, "inv"), (MINE, "lost")] and their_sent == []
    assert refs[0].result(DAY) == "paid inv"
    (unknown,) = mine.effects.list(state="ambiguous")
    mine.review.resolve(unknown.key, semel.Confirmed("paid by hand"), by="ann")
    mine.run_worker(until_idle=True)
    assert refs[1].result(DAY) == "paid by hand"
    theirs.run_worker(until_idle=True)
    assert their_ref.result(DAY) == "paid inv" and their_sent == [(THEIRS, "inv")]
    assert [view.ref.tenant for view in theirs.tasks.list()] == [THEIRS]
    with pytest.raises(Misuse, match="there is no task"):
        theirs.tasks.get(refs[0].id)
    with theirs.work("pr-1", kind="agent"):
        pass
    every = semel.App(database)
    assert len(every.tasks.list(tenant=MINE)) == 2 and len(every.tasks.list(tenant=THEIRS)) == 2
    assert verify(every.runtime.desk.store).wrong == []
    assert verify(mine.runtime.desk.store).wrong == [], "of its own tenant"
    for app in (mine, theirs, every):
        app.close()


def test_a_worker_of_all_and_one_of_a_tenant_share_the_work(roles: dict[str, str], database: str) -> None:
    every, bill, sent = shop(database)
    bill.using(tenant=THEIRS).enqueue("inv")
    bill.using(tenant=MINE).enqueue("inv")
    mine, _, my_sent = shop(roles[MINE], tenant=MINE)
    mine.run_worker(until_idle=True)
    assert my_sent == [(MINE, "inv")]
    every.run_worker(until_idle=True)
    assert sent == [(THEIRS, "inv")]
    for app in (mine, every):
        app.close()


@pytest.mark.parametrize("tenant", ["default", None, THEIRS])
def test_an_app_of_another_tenant_than_its_roles_is_misuse(roles: dict[str, str], database: str, tenant: str | None) -> None:
    _, bill, _ = shop(roles[MINE], tenant=tenant)
    with pytest.raises(Misuse, match=f"tenant='{MINE}'"):
        bill.using(tenant=tenant or MINE).enqueue("inv")


def test_a_role_that_nobody_let_in_is_told_how(database: str) -> None:
    with role_of(database, None) as nobody:
        with pytest.raises(Misuse, match=r"permission denied.*semel migrate --tenant-role ROLE=TENANT"):
            Postgres(nobody)
        with psycopg.connect(database, autocommit=True) as admin:
            role = target(nobody).params["user"]
            admin.execute(sql.SQL("GRANT USAGE ON SCHEMA semel TO {}").format(sql.Identifier(role)))
            admin.execute(sql.SQL("GRANT ALL ON ALL TABLES IN SCHEMA semel TO {}").format(sql.Identifier(role)))
            with pytest.raises(Misuse, match=f"--tenant-role {role}=TENANT"):
                Postgres(nobody)
            admin.execute(sql.SQL("ALTER ROLE {} BYPASSRLS").format(sql.Identifier(role)))
            Postgres(nobody).close()


def test_a_tenants_role_that_no_policy_holds_is_refused(database: str) -> None:
    with role_of(database, "initech", may="BYPASSRLS") as loose, pytest.raises(Misuse, match="NOBYPASSRLS"):
        Postgres(loose)

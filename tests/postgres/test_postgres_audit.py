"""`semel audit verify` on PostgreSQL: each tampering, done by a superuser with the triggers off, is found and named; and what
a role of an agent, the owner, and a superuser may do to the journal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import errors, sql
from tenant_roles import role_of

import semel
import tampering_lab as lab
from pgserver import emptied
from semel.engine import audit, heads
from semel.store.postgres import Postgres


@dataclass
class Place:
    """A store, and heads of it that were signed."""

    url: str
    folder: Path

    def verified(self, *, signed: bool = True, url: str = "") -> audit.Report:
        compared = heads.signed_at(self.folder / "heads.jsonl", self.folder / "signer.pub") if signed else None
        store = Postgres(url or self.url)
        try:
            return audit.verify(store, signed=compared)
        finally:
            store.close()


@pytest.fixture(scope="module")
def worked(own_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Filled and signed once; a copy of each table stays beside it."""
    emptied(own_database)
    place = Place(own_database, tmp_path_factory.mktemp("audit"))
    lab.work(own_database)
    heads.generate(place.folder / "signer")
    store = Postgres(own_database)
    key = heads.private_key(str(place.folder / "signer.key"))
    assert heads.sign(store, place.folder / "heads.jsonl", key, int(time.time() * 1000))[0] == 5
    store.close()
    with psycopg.connect(own_database) as admin:
        admin.execute("DROP SCHEMA IF EXISTS kept CASCADE")
        admin.execute("CREATE SCHEMA kept")
        for table in (*lab.MIXED, "meta"):
            admin.execute(f"CREATE TABLE kept.{table} AS TABLE semel.{table}")
    yield place
    with psycopg.connect(own_database) as admin:
        admin.execute("DROP SCHEMA kept CASCADE")


@pytest.fixture
def raw(worked: Place) -> Iterator[psycopg.Connection]:
    """A superuser, for whom the triggers sleep; what it does is undone."""
    with psycopg.connect(worked.url, autocommit=True) as admin:
        admin.execute("SET session_replication_role = replica")
        yield admin
        for table in (*lab.MIXED, "meta"):
            admin.execute(f"DELETE FROM semel.{table}")
            admin.execute(f"INSERT INTO semel.{table} SELECT * FROM kept.{table}")


def execute(raw: psycopg.Connection) -> lab.Execute:
    def run(text: str, *values: object) -> list[object]:
        done = raw.execute(text.format(s="semel.", v="%s"), values or None)  # type: ignore[arg-type]
        return list(done.fetchall()) if done.description else []

    return run


def test_what_nobody_touched_is_whole_and_holds_what_was_signed(worked: Place) -> None:
    found = worked.verified()
    assert (found.wrong, found.note, found.heads, found.streams) == ([], "", 5, 5)


@pytest.mark.parametrize("tampering", lab.TAMPERINGS, ids=lambda t: t.name)
def test_each_tampering_is_named(worked: Place, raw: psycopg.Connection, tampering: lab.Tampering) -> None:
    run = execute(raw)
    tampering.do(run, lab.stream_of(run, "k1"))
    found = worked.verified().wrong
    assert any(one.what == tampering.what and tampering.words in one.text for one in found), found
    alone = worked.verified(signed=False).wrong
    named = any(one.what == tampering.what and tampering.words in one.text for one in alone)
    assert (alone == []) if tampering.signed else named, alone


def test_a_verdict_that_was_taken_back_leaves_the_store_whole(worked: Place, raw: psycopg.Connection) -> None:
    app, _ = lab.shop(worked.url)
    (unknown,) = app.effects.list(state="ambiguous")
    app.review.resolve(unknown.key, semel.Confirmed("paid cut"), by="ann")
    app.review.correct(unknown.key, by="bob", reason="it was another's receipt")
    assert app.effects.get(unknown.key).state == "ambiguous"
    task = app.tasks.get(next(task.id for task in app.tasks.list(kind="bill") if task.key == "k3"))
    app.close()
    assert (task.delivery, task.execution) == ("queued", "unknown")
    assert worked.verified().wrong == []


# --- who may do what to the journal ---

ATTEMPTS = (
    "UPDATE semel.journal SET body = '{}'",
    "UPDATE semel.journal SET hash = hash WHERE seq = 1",
    "DELETE FROM semel.journal",
    "DELETE FROM semel.journal WHERE seq = (SELECT max(seq) FROM semel.journal)",
    "TRUNCATE semel.journal",
    "TRUNCATE semel.task, semel.journal CASCADE",
    "INSERT INTO semel.journal SELECT * FROM semel.journal ON CONFLICT (tenant, stream, seq) DO UPDATE SET body = '{}'",
    "MERGE INTO semel.journal j USING semel.journal k ON j.seq = k.seq WHEN MATCHED THEN DELETE",
)
OWNERS_ALONE = (
    "ALTER TABLE semel.journal DISABLE TRIGGER ALL",
    "ALTER TABLE semel.journal DISABLE TRIGGER journal_is_never_changed",
    "DROP TRIGGER journal_is_never_changed ON semel.journal",
    "CREATE OR REPLACE FUNCTION semel.the_journal_is_insert_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE RULE quiet AS ON INSERT TO semel.journal DO INSTEAD NOTHING",
    "CREATE TRIGGER mine BEFORE INSERT ON semel.journal FOR EACH ROW EXECUTE FUNCTION semel.the_journal_is_insert_only()",
    "ALTER TABLE semel.journal RENAME TO gone",
    "ALTER TABLE semel.journal OWNER TO current_user",
    "ALTER TABLE semel.journal DISABLE ROW LEVEL SECURITY",
    "DROP TABLE semel.journal",
    "DROP SCHEMA semel CASCADE",
    "SET session_replication_role = replica",
    "GRANT UPDATE, DELETE ON semel.journal TO current_user",
)


def refused_as_privilege(raw: psycopg.Connection, statement: str) -> None:
    if statement.startswith("MERGE") and raw.info.server_version < 150000:
        return
    if statement.startswith("GRANT"):  # who holds nothing to give is only warned
        notices: list[str] = []
        raw.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
        try:
            raw.execute(statement)
        except errors.InsufficientPrivilege:
            return
        assert notices, statement
        return
    with pytest.raises(errors.InsufficientPrivilege, match=r"permission denied|must be owner|must be able to"):
        raw.execute(statement)


def test_an_agents_role_inserts_and_reads_and_can_do_nothing_else_to_the_journal(worked: Place, raw: psycopg.Connection) -> None:
    before = raw.execute("SELECT * FROM semel.journal ORDER BY tenant, stream, seq").fetchall()
    with role_of(worked.url, "default") as url, psycopg.connect(url, autocommit=True) as agent:
        for statement in (*ATTEMPTS, *OWNERS_ALONE):
            refused_as_privilege(agent, statement)
        for statement in ATTEMPTS[:3]:  # after it tried to grant itself the right
            refused_as_privilege(agent, statement)
        assert agent.execute("SELECT count(*) FROM semel.journal").fetchone() == (len(before),)
        run = execute(agent)
        row = lab.rows_of(run, lab.stream_of(run, "k1"))[-1]
        with pytest.raises(errors.UniqueViolation):
            lab.put(run, row)
    assert raw.execute("SELECT * FROM semel.journal ORDER BY tenant, stream, seq").fetchall() == before


def test_rows_that_an_agents_role_adds_past_semel_are_named(worked: Place, raw: psycopg.Connection) -> None:
    """It may insert, which its own worker must. What it writes so is on record under its name, and does not fit the tables."""
    with role_of(worked.url, "default") as url, psycopg.connect(url, autocommit=True) as agent:
        run = execute(agent)
        lab.append(run, lab.stream_of(run, "k1"), lab.j.Cancelled("by eve"))
    assert [one.what for one in worked.verified().wrong][:1] == ["added"]


def test_an_owner_who_is_no_superuser_is_stopped_by_the_triggers(worked: Place, raw: psycopg.Connection) -> None:
    """It can take them away, as whoever owns a table can; the heads show what it does then."""
    with role_of(worked.url, None) as url, psycopg.connect(url, autocommit=True) as owner:
        name = sql.Identifier(owner.info.user)
        raw.execute(sql.SQL("GRANT USAGE ON SCHEMA semel TO {}").format(name))
        raw.execute(sql.SQL("ALTER TABLE semel.journal OWNER TO {}").format(name))
        raw.execute(sql.SQL("ALTER TABLE semel.task OWNER TO {}").format(name))
        try:
            for statement in ATTEMPTS:
                if statement.startswith("MERGE") and owner.info.server_version < 150000:
                    continue
                with pytest.raises(errors.IntegrityConstraintViolation, match="insert only"):
                    owner.execute(statement)
            with pytest.raises(errors.InsufficientPrivilege):
                owner.execute("SET session_replication_role = replica")
        finally:
            raw.execute("ALTER TABLE semel.journal OWNER TO current_user")
            raw.execute("ALTER TABLE semel.task OWNER TO current_user")


def test_a_tenants_role_verifies_its_own_streams_against_the_owners_heads(worked: Place, raw: psycopg.Connection) -> None:
    with role_of(worked.url, "default") as mine, role_of(worked.url, "globex") as theirs:
        assert worked.verified(url=mine).wrong == [] and worked.verified(url=mine).heads == 5
        found = worked.verified(url=theirs)
        assert (found.wrong, found.heads, found.streams) == ([], 0, 0)

"""`semel doctor` and `semel migrate` on real servers, one of them set badly on purpose."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tenant_roles import as_role, role_of
from typer.testing import CliRunner, Result

import semel
from pgproxy import Proxy
from semel.cli import main
from semel.store import pgfacts, pgschema
from semel.store.pglink import target
from semel.store.postgres import Postgres
from semel.testing import postgres

BAD = """
fsync = off
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
max_prepared_transactions = 5
max_connections = 20
"""
GREETING = b"K\x00\x00\x00\x0c"  # the process's number follows, and a secret
COLOUR = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "NO_COLOR")


def run(*args: str, code: int = 0) -> Result:
    """Run one command in this process."""
    done = CliRunner().invoke(main.cli, args, env={**dict.fromkeys(COLOUR), "COLUMNS": "80"})
    assert done.exit_code == code, f"semel {args}: {done.exit_code}\n{done.output}\n{done.exception!r}"
    assert "--json" in args or [line for line in done.stdout.splitlines() if len(line) > 80] == []
    return done


def levels(url: str, code: int = 1) -> dict[str, str]:
    """What doctor says of each check."""
    found: dict[str, Any] = json.loads(run("doctor", "--store", url, "--json", code=code).stdout)
    return {finding["check"]: finding["level"] for finding in found["findings"]}


@pytest.fixture(scope="module")
def bad_server() -> Iterator[str]:
    server = postgres.Cluster(settings=BAD)
    try:
        yield server.url
    finally:
        server.close()


def test_a_badly_set_server_is_found_out(bad_server: str) -> None:
    database = f"semel_doctor_{os.getpid()}"
    with psycopg.connect(bad_server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'SQL_ASCII'").format(sql.Identifier(database)))
        admin.execute("ALTER SYSTEM SET synchronous_commit = off")
        admin.execute("SELECT pg_reload_conf()")
    url = bad_server.rsplit("/", 1)[0] + f"/{database}"
    found = levels(url)
    for check in ("fsync", "full_page_writes", "encoding", "autovacuum"):
        assert found[check] == "danger", check
    for check in ("wal_level", "synchronous_commit", "schema"):
        assert found[check] == "warn", check
    said = run("doctor", "--store", url, code=1).stdout
    assert said.startswith("DANGER  4 dangers, 3 warnings, ")
    assert "type  ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();" in said
    assert "semel migrate --store URL" in said
    with psycopg.connect(url) as raw:
        assert raw.execute("SELECT to_regnamespace('semel')").fetchone() == (None,), "looking has made nothing"
    assert "stores text as SQL_ASCII" in run("migrate", "--store", url, code=2).stderr


def test_what_holds_dead_rows_and_connections_is_found_out(bad_server: str) -> None:
    held = [psycopg.connect(bad_server) for _ in range(16)]
    held[0].execute("SELECT 1")  # and is idle in a transaction from here
    held[1].autocommit = True
    held[1].execute("BEGIN; CREATE TABLE IF NOT EXISTS public.x (y int); PREPARE TRANSACTION 'left behind'")
    try:
        facts = pgfacts.examine(bad_server)
        assert facts.snapshot is not None and facts.snapshot.state == "idle in transaction"
        assert facts.prepared is not None and facts.prepared[0] == "left behind"
        assert levels(bad_server)["connections"] == "danger"
    finally:
        held[1].execute("ROLLBACK PREPARED 'left behind'")
        for raw in held:
            raw.close()


def test_a_good_store_is_well_and_its_work_is_counted(database: str) -> None:
    app = semel.App(database)

    @app.effect(intent=("x",))
    def charge(submission: semel.Submission, x: str) -> str:
        raise TimeoutError

    with pytest.raises(semel.Unsettled), app.work("k", kind="loop"):
        charge("a")
    found = levels(database, code=1)
    assert found["unknown"] == "warn"
    assert {check for check, level in found.items() if level == "danger"} == {"autovacuum"}, "as the test server is set"
    said = run("doctor", "--store", database, code=1).stdout
    assert "1 living, 0 fenced; the longest lease is 15 s" in said and "1 effect, the oldest for" in said
    assert f"version {pgschema.SCHEMA}, epoch " in said
    app.close()


def test_a_standby_or_a_read_only_database_is_found_out(database: str) -> None:
    name = sql.Identifier(target(database).params["dbname"])
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
        try:
            assert levels(database)["writable"] == "danger"
        finally:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))
    assert levels(database)["writable"] == "ok"


def test_a_role_that_sees_little_says_so(database: str) -> None:
    with role_of(database, None) as nobody:
        found = levels(nobody)
        assert (found["role"], found["schema"]) == ("warn", "warn")
        assert "permission denied" in run("doctor", "--store", nobody, code=1).stdout
    with role_of(database, "acme") as mine:
        assert levels(mine)["role"] == "ok"
        said = run("doctor", "--store", mine, code=1).stdout
        assert ", of tenant acme" in said and "not shown to this role" in said


class Pool(Proxy):
    """Greets with a number of its own for the server's process, as a pool does."""

    def _pump(self, source: socket.socket, sink: socket.socket, is_request: bool) -> None:
        data = b"" if is_request else source.recv(1 << 20)
        while data:
            at = data.find(GREETING)
            sink.sendall(data if at < 0 else data[: at + 5] + b"\x00\x00\x00\x01" + data[at + 9 :])
            data = source.recv(1 << 20) if at < 0 else b""
        super()._pump(source, sink, is_request)


def test_a_pool_in_between_is_noticed(database: str) -> None:
    assert levels(database)["pool"] == "ok"
    assert levels(f"{database}?pgbouncer=1")["pool"] == "warn"
    pool = Pool(database)
    try:
        assert levels(pool.url)["pool"] == "danger"
        assert levels(f"{pool.url}?pgbouncer=1")["pool"] == "ok"
    finally:
        pool.close()


def test_a_server_that_does_not_answer_is_an_error() -> None:
    assert "the store did not answer" in run("doctor", "--store", "postgresql://127.0.0.1:1/x?connect_timeout=2", code=1).stderr
    assert "postgresql://user@host" in run("doctor", "--store", "postgresql://h/d?no_such=1", code=2).stderr


# --- migrate ---


def test_migrate_makes_a_schema_and_says_which(empty_database: str) -> None:
    first = json.loads(run("migrate", "--store", empty_database, "--json").stdout)
    assert (first["before"], first["after"]) == (0, pgschema.SCHEMA)
    assert f"has schema version {pgschema.SCHEMA} already" in " ".join(run("migrate", "--store", empty_database).stdout.split())
    Postgres(empty_database).close()


def test_migrate_upgrades_and_lets_roles_in(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as raw:
        raw.execute("CREATE SCHEMA semel")
        raw.execute('CREATE TABLE semel.meta (name text COLLATE "C" PRIMARY KEY, value text NOT NULL)')
        raw.execute(pgschema.text(pgschema.MIGRATIONS[1]).encode())
        for pair in (("schema", "1"), ("id", "a"), ("application", "b"), ("epoch", "7")):
            raw.execute("INSERT INTO semel.meta VALUES (%s, %s)", pair)
    with role_of(empty_database, None) as nobody:
        role = target(nobody).params["user"]
        said = " ".join(run("migrate", "--store", empty_database, "--tenant-role", f"{role}=acme").stdout.split())
        assert f"is upgraded from schema version 1 to {pgschema.SCHEMA}" in said
        assert f"Role {role} reads and writes the rows of tenant acme, and of no other." in said
        run("migrate", "--store", empty_database, "--tenant-role", f"{role}=acme")
        app = semel.App(nobody, tenant="acme")
        with app.work("k", kind="loop"):
            pass
        app.close()
        assert (
            "is of tenant 'acme' already"
            in run("migrate", "--store", empty_database, "--tenant-role", f"{role}=globex", code=2).stderr
        )
        assert (
            "only the owner of the schema lets roles in"
            in run("migrate", "--store", nobody, "--tenant-role", f"{role}=acme", code=2).stderr
        )
        assert f"version {pgschema.SCHEMA} already" in " ".join(run("migrate", "--store", nobody).stdout.split())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["acme_app"], "is not ROLE=TENANT"),
        (["a=acme", "a=globex"], "names a twice"),
        (["no_such_role=acme"], "has no role 'no_such_role'"),
        (["semel=acme"], "no policy can keep role semel in tenant 'acme'"),
    ],
)
def test_a_role_that_cannot_be_a_tenants_is_misuse(database: str, given: list[str], said: str) -> None:
    owner = target(database).params["user"]
    more = [word for text in given for word in ("--tenant-role", text.replace("semel=", f"{owner}="))]
    assert said.replace("role semel", f"role {owner}") in run("migrate", "--store", database, *more, code=2).stderr


def test_a_role_that_may_not_make_a_schema_is_misuse(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as raw:
        raw.execute("DROP ROLE IF EXISTS semel_guest")
        raw.execute("CREATE ROLE semel_guest LOGIN")
        try:
            said = run("migrate", "--store", as_role(empty_database, "semel_guest"), code=2).stderr
            assert "GRANT CREATE ON DATABASE" in said
        finally:
            raw.execute("DROP ROLE semel_guest")

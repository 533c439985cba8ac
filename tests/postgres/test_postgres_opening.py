"""Opening a store on PostgreSQL: one schema, whoever comes first; what it says of the server's settings."""

from __future__ import annotations

import logging
import threading

import psycopg
import pytest
from rivals import Doing

from semel.errors import Misuse
from semel.store.pglink import target
from semel.store.places import place_of
from semel.store.postgres import Postgres


def test_ten_that_start_at_once_make_one_schema(empty_database: str) -> None:
    together = threading.Barrier(10)

    def start() -> Postgres:
        together.wait()
        return Postgres(empty_database)

    stores = [doing.result(60) for doing in [Doing(start) for _ in range(10)]]
    assert len({store.info for store in stores}) == 1
    assert stores[0].info.epoch > 1_700_000_000
    for store in stores:
        store.close()


def test_a_newer_schema_is_refused_and_left_alone(empty_database: str) -> None:
    database = empty_database
    Postgres(database).close()
    with psycopg.connect(database, autocommit=True) as raw:
        raw.execute("UPDATE semel.meta SET value = '99' WHERE name = 'schema'")
        with pytest.raises(Misuse, match=r"version 99.*pip install -U semel"):
            Postgres(database)
        assert raw.execute("SELECT value FROM semel.meta WHERE name = 'schema'").fetchone() == ("99",)
        raw.execute("DROP SCHEMA semel CASCADE")


def test_a_schema_of_something_else_is_refused(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as raw:
        raw.execute("CREATE SCHEMA semel")
        raw.execute("CREATE TABLE semel.meta (name text, value text)")
        raw.execute("INSERT INTO semel.meta VALUES ('mine', 'x')")
        with pytest.raises(Misuse, match="something else's"):
            Postgres(empty_database)
        raw.execute("DROP SCHEMA semel CASCADE")


def test_a_role_that_may_not_make_the_schema_is_told_how(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as raw:
        raw.execute("DROP ROLE IF EXISTS semel_guest")
        raw.execute("CREATE ROLE semel_guest LOGIN")
        try:
            with pytest.raises(Misuse, match="GRANT CREATE ON DATABASE"):
                Postgres(empty_database.replace("://semel@", "://semel_guest@"))
        finally:
            raw.execute("DROP ROLE semel_guest")


def test_a_weak_setting_is_told_of_and_not_used(database: str, caplog: pytest.LogCaptureFixture) -> None:
    name = target(database).params["dbname"]
    with psycopg.connect(database, autocommit=True) as raw:
        raw.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        try:
            with caplog.at_level(logging.WARNING, "semel"):
                store = Postgres(database)
            assert "synchronous_commit=off" in caplog.text
            for link in (store._writer, store._beats):
                link.pipe(("begin", None))
                assert link._raw is not None
                assert link._raw.execute("SHOW synchronous_commit").fetchone() == ("on",)
                link.roll_back()
            store.close()
        finally:
            raw.execute(f"ALTER DATABASE {name} RESET synchronous_commit")


def test_search_path_is_not_relied_on(database: str) -> None:
    name = target(database).params["dbname"]
    with psycopg.connect(database, autocommit=True) as raw:
        raw.execute("CREATE TABLE IF NOT EXISTS public.journal (x int)")
        raw.execute(f"ALTER DATABASE {name} SET search_path = public")
        try:
            store = Postgres(database)
            assert store.sizes()["task"] == 0
            store.close()
        finally:
            raw.execute(f"ALTER DATABASE {name} RESET search_path")
            raw.execute("DROP TABLE public.journal")


@pytest.mark.parametrize(
    "url", ["postgresql://u:secret@h:1,i:2/d", "postgres://u:secret@h/d?pgbouncer=1", "host=h password=secret"]
)
def test_urls(url: str) -> None:
    found = target(url)
    assert "secret" not in found.place
    assert found.params["password"] == "secret"
    assert found.pgbouncer is ("pgbouncer" in url)
    assert found.params["target_session_attrs"] == "read-write"
    assert target("postgresql://h/d?target_session_attrs=any").params["target_session_attrs"] == "any"


def test_a_url_that_is_none_is_misuse() -> None:
    with pytest.raises(Misuse, match="postgresql://user@host"):
        target("postgresql://h/d?no_such_option=1")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://semel:s3cr/et@db.example/app",
        "postgresql://semel:12/s3cr@db.example/app",
        "postgresql://semel:12@s3cr@db.example:1/app",
        "postgresql://semel:12#s3cr@db.example:1/app",
        "postgresql://semel:s3cr?et@db.example/app",
        "host=h password=s3cr dbname=d",
        "password=s3cr://h",
        "s3cr@h/d",
    ],
)
def test_no_part_of_a_password_is_shown(url: str) -> None:
    with pytest.raises(Misuse) as told:
        place_of(url)
    assert not any(part in str(told.value) for part in ("s3cr", "12", "et@"))
    assert told.value.__cause__ is None


@pytest.mark.parametrize("url", ["postgresql://u:a%2Fb%40c%23@h:1,i:2/d", "postgresql://h,i:5/d", "postgresql://[::1]:5/d"])
def test_what_is_escaped_and_what_libpq_takes_is_no_misuse(url: str) -> None:
    found = target(url)
    assert found.params.get("password", "a/b@c#") == "a/b@c#" and found.place.endswith("/d")


def test_a_url_without_a_host_is_libpqs_own_default() -> None:
    """As psql takes it: a local socket, or what PGHOST says."""
    found = target("postgresql:///work?host=/run/pg&pgbouncer=1")
    assert (found.params["dbname"], found.params["host"], found.pgbouncer) == ("work", "/run/pg", True)
    assert "host" not in target("postgresql://").params

"""A database that an older semel has written is read, verified and gone on with."""

from __future__ import annotations

import psycopg

import older_lab as lab
from semel.store import pgschema
from semel.store.postgres import Postgres


def test_a_store_of_an_older_semel_is_read_verified_and_continued(empty_database: str) -> None:
    def age() -> None:
        with psycopg.connect(empty_database, autocommit=True) as raw:
            raw.execute("UPDATE semel.meta SET value = '4' WHERE name = 'schema'")

    assert pgschema.SCHEMA == 5, "or the version has to be another here"
    lab.is_read_verified_and_continued(empty_database, lambda: Postgres(empty_database), age)

"""A file that an older semel has written is read, verified and gone on with; what is left out since is no less proved."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import older_lab as lab
import tampering_lab
from semel.cli.verify import verify
from semel.store import sqlitefile
from semel.store.sqlite import SQLite
from semel.testing.conformance_kit import TENANT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def owner(path: Path, *statements: str) -> None:
    """Whoever owns the file, the triggers being gone."""
    raw = apsw.Connection(str(path))
    for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        raw.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        raw.execute(statement)
    raw.close()


def test_a_store_of_an_older_semel_is_read_verified_and_continued(path: Path) -> None:
    def age() -> None:
        raw = apsw.Connection(str(path))
        raw.execute("PRAGMA user_version=3")
        raw.close()

    assert sqlitefile.SCHEMA == 4, "or the version has to be another here"
    lab.is_read_verified_and_continued(f"sqlite:///{path}", lambda: SQLite(str(path)), age)
    tampering_lab.work_on(f"sqlite:///{path}")  # one that was done is replayed: what it did is taken from the record
    store = SQLite(str(path))
    assert verify(store).wrong == []
    store.close()


@pytest.mark.parametrize(
    ("done", "what"),
    [
        ("DELETE FROM journal WHERE seq = 4", "truncated"),  # the confirmation
        ("DELETE FROM journal WHERE seq >= 3", "truncated"),  # all that the task's own row says nothing of
        ("DELETE FROM journal WHERE seq >= 2", "truncated"),
        ("UPDATE effect SET version = 3, state = 'submitted'", "added"),
        ("UPDATE task SET version = 1", "table"),
        ("UPDATE task SET version = 3", ""),  # as an older semel left it
    ],
)  # fmt: skip
def test_where_a_stream_ends_is_known_while_its_task_runs(path: Path, done: str, what: str) -> None:
    """The row of its task is not written with each effect; those of the effects are."""
    store = SQLite(str(path))
    lab.begun(store)
    assert [row.version for row in store.tasks(TENANT)] == [2] and verify(store).wrong == []
    store.close()
    owner(path, done)
    store = SQLite(str(path))
    assert what in [found.what for found in verify(store).wrong] or (what, verify(store).wrong) == ("", [])
    store.close()

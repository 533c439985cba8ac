"""`semel audit verify` on SQLite: each tampering, done by whoever owns the file, is found and named."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import tampering_lab as lab
from semel.engine import audit, heads
from semel.store.sqlite import SQLite


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, a key pair, and the heads of the store, signed."""
    folder = tmp_path_factory.mktemp("audit")
    lab.work(f"sqlite:///{folder / 'store.db'}")
    heads.generate(folder / "signer")
    store = SQLite(str(folder / "store.db"))
    assert (
        heads.sign(store, folder / "heads.jsonl", heads.private_key(str(folder / "signer.key")), int(time.time() * 1000))[0] == 5
    )
    store.close()
    return folder


@pytest.fixture
def place(worked: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    shutil.copytree(worked, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def raw(place: Path) -> Iterator[apsw.Connection]:
    """Whoever owns the file, the triggers being gone."""
    found = apsw.Connection(str(place / "store.db"))
    for (name,) in found.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        found.execute(f"DROP TRIGGER {name}")
    yield found
    found.close()


def execute(raw: apsw.Connection) -> lab.Execute:
    return lambda sql, *values: raw.execute(sql.format(s="", v="?"), values).fetchall()


def verified(place: Path, *, signed: bool = True) -> audit.Report:
    compared = heads.signed_at(place / "heads.jsonl", place / "signer.pub") if signed else None
    store = SQLite(str(place / "store.db"))
    try:
        return audit.verify(store, signed=compared)
    finally:
        store.close()


def test_what_nobody_touched_is_whole_and_holds_what_was_signed(place: Path) -> None:
    found = verified(place)
    assert (found.wrong, found.note, found.heads, found.streams) == ([], "", 5, 5)


@pytest.mark.parametrize("tampering", lab.TAMPERINGS, ids=lambda t: t.name)
def test_each_tampering_is_named(place: Path, raw: apsw.Connection, tampering: lab.Tampering) -> None:
    run = execute(raw)
    tampering.do(run, lab.stream_of(run, "k1"))
    raw.close()
    found = verified(place).wrong
    assert any(one.what == tampering.what and tampering.words in one.text for one in found), found
    alone = verified(place, signed=False).wrong
    named = any(one.what == tampering.what and tampering.words in one.text for one in alone)
    assert (alone == []) if tampering.signed else named, alone


def test_a_file_that_was_put_back_is_named_by_what_it_lacks(worked: Path, place: Path) -> None:
    """An old copy with the same id: its chains and tables agree, and only what was signed later shows it."""
    later = place / "later"
    later.mkdir()
    for name in ("store.db", "store.db.witness", "signer.key", "signer.pub"):
        shutil.copy(place / name, later / name)
    lab.work_on(f"sqlite:///{later / 'store.db'}")
    store = SQLite(str(later / "store.db"))
    heads.sign(store, later / "heads.jsonl", heads.private_key(str(later / "signer.key")), int(time.time() * 1000))
    store.close()
    shutil.copy(worked / "store.db", later / "store.db")
    for rest in ("store.db-wal", "store.db-shm"):
        (later / rest).unlink(missing_ok=True)
    assert verified(later, signed=False).wrong == []
    found = verified(later).wrong
    assert sorted(one.what for one in found) == ["removed", "truncated"], found

"""Nobody else in the process may open the store's files, by whatever name; everybody may open everything else."""

# ruff: noqa: PTH123, SIM115  (open() in every shape is what is tested)

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_lab import run_python

from semel.errors import Misuse
from semel.store import guardfile
from semel.store.contract import Landed
from semel.store.sqlite import SQLite
from semel.testing.conformance_kit import TENANT, Stream, one

LOCKED = """
import apsw, sys
try:
    apsw.Connection(sys.argv[1]).execute("BEGIN IMMEDIATE")
    print("free")
except apsw.BusyError:
    print("locked")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "my agent.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLite]:
    store = SQLite(str(path))
    assert one(store, Stream("s").then()[0]) == Landed()
    yield store
    store.close()


def refused(path: Path | str | bytes, *, only_open: bool = False) -> None:
    """By open() in each of its shapes, and by the standard library's sqlite3."""
    with pytest.raises(Misuse, match="another process"):
        open(path, "rb")
    with pytest.raises(Misuse):
        os.open(path, os.O_RDONLY)
    if not only_open:
        with pytest.raises(Misuse):
            sqlite3.connect(path)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_the_database_and_what_lies_beside_it(store: SQLite, path: Path, suffix: str) -> None:
    file = path.with_name(path.name + suffix)
    assert file.exists()
    refused(str(file))
    refused(file)
    refused(os.fsencode(file))
    with pytest.raises(Misuse):
        file.read_bytes()
    with pytest.raises(Misuse):
        shutil.copy(file, file.with_name("copy"))


def test_what_it_protects_is_real(store: SQLite, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the guard away, one open() and close() of the -shm hands the write lock to another process."""
    store._writer.raw.execute("BEGIN IMMEDIATE")
    assert run_python(LOCKED, path) == "locked"
    monkeypatch.setattr(guardfile, "_files", ())
    path.with_name(path.name + "-shm").read_bytes()
    monkeypatch.undo()
    assert run_python(LOCKED, path) == "free"
    store._writer.raw.execute("ROLLBACK")


def test_by_a_relative_path(store: SQLite, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path.parent / "sub").mkdir()
    monkeypatch.chdir(path.parent / "sub")
    refused(f"../{path.name}")
    refused(f"./../sub/..//{path.name}")


def test_by_a_link(store: SQLite, path: Path) -> None:
    (path.parent / "soft").symlink_to(path.name)
    (path.parent / "hard").hardlink_to(path)
    (path.parent / "folder").symlink_to(path.parent)
    for name in ("soft", "hard", f"folder/{path.name}", "folder/soft"):
        refused(path.parent / name)


def test_by_a_uri(store: SQLite, path: Path) -> None:
    quoted = str(path).replace(" ", "%20")
    for uri in (f"file:{path}", f"file:{quoted}?mode=ro", f"file://{quoted}", f"file://localhost{quoted}?immutable=1#part"):
        with pytest.raises(Misuse):
            sqlite3.connect(uri, uri=True)


def test_through_a_link_by_which_the_store_was_opened(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("real.db")
    store = SQLite(str(tmp_path / "link.db"))
    refused(tmp_path / "link.db")
    refused(tmp_path / "real.db")
    refused(tmp_path / "real.db-wal")
    store.close()


def test_everything_else_is_free(store: SQLite, path: Path) -> None:
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    for suffix in ("", "-wal", "-shm"):
        file = elsewhere / (path.name + suffix)
        file.write_text("mine")
        assert file.read_text() == "mine"
    other = sqlite3.connect(elsewhere / "other.db")
    other.execute("CREATE TABLE t (x)")
    other.close()
    sqlite3.connect(":memory:").close()
    sqlite3.connect("").close()
    with open(os.open(elsewhere / path.name, os.O_RDONLY)) as by_number:
        assert by_number.read() == "mine"
    with pytest.raises(FileNotFoundError):
        open(elsewhere / "nothing")
    with pytest.raises(ValueError, match="null"):
        open("nul\0l")


def test_allowed_again_after_the_last_handle_is_closed(path: Path) -> None:
    first, second = SQLite(str(path)), SQLite(str(path))
    refused(path)
    first.close()
    first.close()
    refused(path)
    second.close()
    assert path.read_bytes()
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT count(*) FROM journal").fetchall() == [(0,)]
    raw.close()
    third = SQLite(str(path))
    refused(path)
    third.close()
    path.read_bytes()


def test_another_process_may_read(store: SQLite, path: Path) -> None:
    code = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM journal').fetchone()[0])"
    assert run_python(code, path) == "1"
    assert store.head(TENANT, "s").seq == 1


def test_files_are_opened_on_other_threads_while_stores_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    stop, wrong = threading.Event(), list[BaseException]()

    def read() -> None:
        try:
            while not stop.is_set():
                (tmp_path / "mine").read_text()
        except BaseException as error:
            wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(40):
        SQLite(str(tmp_path / f"{n % 4}.db")).close()
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []

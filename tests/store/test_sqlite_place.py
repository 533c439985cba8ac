"""Where semel's file may be, what it may be, and what happens when it is taken away or replaced."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from store_lab import play

from semel.errors import Misuse, StoreUnavailable
from semel.machine.events import Pruned
from semel.store import sqlfile, sqlitefile
from semel.store.contract import Landed
from semel.store.sqlfile import text
from semel.store.sqlite import SQLite
from semel.testing.conformance_kit import TENANT, Stream, claiming, commit, one, session, task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def refused(path: Path | str, *words: str) -> None:
    with pytest.raises(Misuse) as caught:
        SQLite(str(path))
    for word in words:
        assert word in str(caught.value), str(caught.value)


# --- what the file may be ---


def test_a_file_that_is_not_a_database(path: Path) -> None:
    for content in (b"hello, I am a letter\n", b"no", b"SQLite format 3\0" + b"\xff" * 5000, os.urandom(100_000)):
        path.write_bytes(content)
        refused(path, "not a SQLite database", "semel.App(")
        assert path.read_bytes() == content, "nothing is changed"


def test_a_database_of_something_else(path: Path) -> None:
    raw = apsw.Connection(str(path))
    raw.execute("CREATE TABLE theirs (x)")
    raw.close()
    before = path.read_bytes()
    refused(path, "something else", "semel.App(")
    assert path.read_bytes() == before


@pytest.mark.parametrize("pragma", ["application_id=77", "user_version=1", "user_version=9"])
def test_an_empty_database_that_somebody_else_has_marked(path: Path, pragma: str) -> None:
    raw = apsw.Connection(str(path))
    raw.execute(f"PRAGMA {pragma}")
    raw.close()
    refused(path, "something else")


def test_a_schema_of_a_later_version(path: Path) -> None:
    SQLite(str(path)).close()
    raw = apsw.Connection(str(path))
    raw.execute(f"PRAGMA user_version={sqlitefile.SCHEMA + 1}")
    raw.close()
    before = path.read_bytes()
    refused(path, f"version {sqlitefile.SCHEMA + 1}", "pip install -U semel")
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    store = SQLite(str(path))
    first = store.info
    store.close()
    again = SQLite(str(path))
    assert again.info == first
    again.close()


def test_an_interrupted_opening_leaves_no_half_schema(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlitefile, "text", lambda file: sqlfile.text(file) + "\nCREATE TABLE task (twice);")
    with pytest.raises(apsw.SQLError):
        SQLite(str(path))
    monkeypatch.undo()
    store = SQLite(str(path))
    assert one(store, task("k")[0]) == Landed()
    store.close()


def test_opening_waits_for_one_who_opens_it_too(path: Path) -> None:
    """SQLite does not: the change to a write-ahead log fails at once where any other statement would wait."""
    raw = apsw.Connection(str(path))
    raw.execute("BEGIN IMMEDIATE")
    later = threading.Timer(0.3, lambda: raw.execute("COMMIT"))
    later.start()
    store = SQLite(str(path))
    later.join()
    raw.close()
    assert one(store, Stream("s").then()[0]) == Landed()
    store.close()


def test_a_library_whose_log_is_not_safe_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("3.46.0", "3.51.2", "3.9.1"):
        monkeypatch.setattr(apsw, "sqlite_lib_version", lambda version=version: version)
        refused(path, version, "pip install -U apsw")
    for version in ("3.51.3", "3.54.1", "4.0.0"):
        sqlitefile.check_library(version)


def test_every_connection_is_durable(path: Path) -> None:
    store = SQLite(str(path))
    for connection in store._connections:
        assert connection.raw.execute("PRAGMA synchronous").fetchall() == [(2,)], "FULL"
        assert connection.raw.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
    store.close()


# --- where it may be ---


def test_a_folder_that_is_missing_or_a_file_that_is_a_folder(tmp_path: Path) -> None:
    refused(tmp_path / "no" / "such" / "store.db", "does not exist", "mkdir -p")
    refused(tmp_path, "is a folder")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "is not a file")
    refused(tmp_path / ("x" * 300), "cannot be reached")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    refused(tmp_path / "circle")


def test_a_file_or_folder_without_the_right_to_write() -> None:
    """Played by a user without the rights of root, in a folder that such a user can reach."""
    open_folder = Path(tempfile.mkdtemp())
    try:
        for name, mode in (("shut", 0o555), ("blind", 0o000), ("free", 0o777)):
            (open_folder / name).mkdir()
            SQLite(str(open_folder / name / "store.db")).close()
            (open_folder / name / "store.db").chmod(0o666)
            (open_folder / name).chmod(mode)
        SQLite(str(open_folder / "free" / "read.db")).close()
        (open_folder / "free" / "read.db").chmod(0o444)
        (open_folder / "free" / "write.db").write_bytes(b"")
        (open_folder / "free" / "write.db").chmod(0o222)
        open_folder.chmod(0o755)
        names = ("shut/store.db", "shut/new.db", "blind/store.db", "free/read.db", "free/write.db", "free/store.db")
        ((shut, new, blind, read, write, free),) = play("without_rights", 1, *(open_folder / name for name in names))
        assert "cannot be written" in shut
        assert "cannot be written" in new
        assert "cannot be reached" in blind
        assert "cannot be read and written" in read
        assert "cannot be read and written" in write
        assert free == "opened"
    finally:
        (open_folder / "blind").chmod(0o755)
        (open_folder / "shut").chmod(0o755)
        shutil.rmtree(open_folder)


MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:40 / /mnt/net rw - nfs4 server:/export rw
31 30 0:41 / /mnt/net/local rw - ext4 /dev/b rw
32 22 0:42 / /mnt/with\\040space rw - cifs //server/share rw
33 22 0:43 / /mnt/later rw - nfs server:/a rw
34 22 0:43 / /mnt/later rw - ext4 /dev/c rw
35 22 0:44 / /mnt/network rw master:2 propagate_from:3 - fuse.sshfs host: rw
36 22 254:1 /x/agent.db /data/agent.db rw - ext4 /dev/root rw
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)
    monkeypatch.setattr(sqlitefile, "MOUNTINFO", table)
    return table


@pytest.mark.parametrize(
    ("place", "point", "kind"),
    [
        ("/srv/agent.db", "/", "ext4"),
        ("/mnt/net/deep/agent.db", "/mnt/net", "nfs4"),
        ("/mnt/network/agent.db", "/mnt/network", "fuse.sshfs"),
        ("/mnt/net/local/agent.db", "/mnt/net/local", "ext4"),
        ("/mnt/with space/agent.db", "/mnt/with space", "cifs"),
        ("/mnt/later/agent.db", "/mnt/later", "ext4"),
        ("/data/agent.db", "/data/agent.db", "ext4"),
    ],
)
def test_the_kernels_table_of_mounts(mounts: Path, place: str, point: str, kind: str) -> None:
    assert sqlitefile.filesystem(Path(place)) == (Path(point), kind)


def test_the_real_table_tells_what_df_tells(tmp_path: Path) -> None:
    said = subprocess.run(["df", "--output=target,fstype", str(tmp_path)], capture_output=True, text=True, check=True).stdout
    target, kind = said.splitlines()[-1].rsplit(maxsplit=1)
    assert sqlitefile.filesystem(tmp_path.resolve()) == (Path(target.strip()), kind)


def test_without_a_table_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlitefile, "MOUNTINFO", Path("/no/such/table"))
    assert sqlitefile.filesystem(Path("/")) == (None, "")


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
def test_a_network_file_system_is_refused(mounts: Path, path: Path, kind: str) -> None:
    mounts.write_text(MOUNTS + f"40 22 0:50 / {path.parent.resolve()} rw - {kind} server:/export rw\n")
    refused(path, "network file system", kind, "local disk")
    assert not path.exists()


def test_a_file_that_is_mounted_alone_is_refused(mounts: Path, path: Path) -> None:
    """Two containers that share the one file would each have a log of their own beside it."""
    mounts.write_text(MOUNTS + f"40 22 254:1 / {path.resolve()} rw - ext4 /dev/root rw\n")
    path.touch()
    refused(path, "mount its folder")


# --- when it goes ---


@pytest.fixture
def store(path: Path) -> Iterator[SQLite]:
    store = SQLite(str(path))
    yield store
    store.close()


def gone(store: SQLite) -> None:
    """It is no more what was opened: it says so, does not beat, and acknowledges nothing."""
    assert not store.still_here()
    assert not store.beat("s", ["n0"], "n1", 1)
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        store.commit([Stream("s").then()[0]])


def test_a_restored_copy_in_its_place_is_another_store(path: Path) -> None:
    SQLite(str(path)).close()
    shutil.copy(path, path.with_name("backup.db"))
    store = SQLite(str(path))
    session(store, "s")
    assert store.still_here()
    assert store.beat("s", ["n0"], "n0", 0)
    path.with_name("backup.db").rename(path)
    gone(store)
    store.close()


def test_a_file_that_was_removed(store: SQLite, path: Path) -> None:
    session(store, "s")
    path.unlink()
    gone(store)


def test_a_link_that_points_elsewhere(tmp_path: Path) -> None:
    for name in ("a.db", "b.db"):
        SQLite(str(tmp_path / name)).close()
    (tmp_path / "link.db").symlink_to("a.db")
    store = SQLite(str(tmp_path / "link.db"))
    session(store, "s")
    assert store.still_here()
    (tmp_path / "new").symlink_to("b.db")
    (tmp_path / "new").rename(tmp_path / "link.db")
    gone(store)
    store.close()


def test_nothing_is_acknowledged_that_went_into_a_file_that_was_removed_meanwhile(store: SQLite, path: Path) -> None:
    (known,) = [known for change, known in [task("k")] if one(store, change) == Landed()]
    unit = claiming(session(store))

    def decide(tenant: str, rows: object) -> None:
        path.unlink()

    object.__setattr__(unit, "decide", decide)
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        store.commit([unit])
    assert known.head.seq == 1


def test_a_relative_path_does_not_follow_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SQLite("store.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert store.still_here()
    assert one(store, Stream("s").then()[0]) == Landed()
    store.close()
    assert list(Path.cwd().iterdir()) == []
    again = SQLite(str(tmp_path / "store.db"))
    assert again.head(TENANT, "s").seq == 1
    again.close()


def test_a_store_that_cannot_be_opened_lets_go_of_its_file(path: Path) -> None:
    path.write_bytes(b"not a database")
    refused(path)
    assert path.read_bytes() == b"not a database", "the guard is gone too"
    held = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    assert path not in held, "no descriptor is left"


def test_a_store_of_version_one_is_upgraded_as_it_is(path: Path) -> None:
    raw = apsw.Connection(str(path))
    raw.execute(text(sqlitefile.MIGRATIONS[1]))
    raw.executemany("INSERT INTO meta VALUES (?, ?)", [("id", "a"), ("application", "b"), ("epoch", "1700000000")])
    raw.execute(f"PRAGMA application_id={sqlitefile.APPLICATION_ID}")
    raw.execute("PRAGMA user_version=1")
    raw.close()
    store = SQLite(str(path))
    assert store.info[:3] == ("a", "b", 1_700_000_000) and not store.created
    change, stream = Stream("s").then()
    stone, _ = stream.then(Pruned(1, stream.head.hash.hex()))
    assert commit(store, change, stone) == [Landed(), Landed()]
    assert [row.seq for row in store.rows(TENANT, "s")] == [2], "what version 1 would not have let go"
    store.close()
    raw = apsw.Connection(str(path))
    assert sqlitefile.number(raw, "PRAGMA user_version") == sqlitefile.SCHEMA
    raw.close()

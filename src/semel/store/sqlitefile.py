"""What must hold of a SQLite file before semel trusts it with money."""

from __future__ import annotations

import os
import time
from pathlib import Path

import apsw
import uuid_utils

from semel.errors import Misuse
from semel.store.sqlfile import text

APPLICATION_ID = 0x53454D4C  # "SEML", in the file's header
SCHEMA = 1
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "fuse.sshfs", "fuse.s3fs",
           "fuse.glusterfs", "fuse.ceph", "fuse.rclone")  # fmt: skip


def check_place(path: Path) -> None:
    """Raise `Misuse` for a place where SQLite's locks or durability do not hold, or where we may not write."""
    folder = path.resolve().parent
    if not folder.is_dir():
        raise Misuse(f"the store's folder {folder} does not exist; make it: mkdir -p {folder}")
    if path.is_dir():
        raise Misuse(f"the store {path} is a folder; name a file in it: sqlite:///{path}/agent.db")
    target = path if path.exists() else folder
    if not os.access(target, os.W_OK) or not os.access(folder, os.W_OK):
        raise Misuse(f"the store {path} cannot be written (SQLite writes its folder too); mend: chmod u+w {target}")
    kind = filesystem(folder)
    if kind in NETWORK:
        raise Misuse(
            f"the store {path} is on a network file system ({kind}), where SQLite's locks do not hold; "
            f"use a local disk, or PostgreSQL for several machines"
        )


def filesystem(folder: Path) -> str:
    """The type of the file system that holds `folder`, by the kernel's own table; "" where there is none."""
    best, kind = "", ""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        if (folder == Path(point) or Path(point) in folder.parents) and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def pragmas(raw: apsw.Connection) -> None:
    """Durable at each commit; the log is checkpointed now and then by whoever commits."""
    raw.execute("PRAGMA synchronous=FULL")
    raw.execute("PRAGMA foreign_keys=OFF")
    raw.execute("PRAGMA cache_size=-16384")
    raw.execute("PRAGMA trusted_schema=OFF")


def prepare(raw: apsw.Connection, place: str) -> int:
    """Make the schema, or check that it is ours and of this version. The epoch. Raises `Misuse`; nothing is changed then."""
    try:
        return _prepare(raw, place)
    except apsw.NotADBError as error:
        raise Misuse(f"{place} is not a SQLite database; name another file: semel.App('sqlite:///agent.db')") from error
    except (apsw.ReadOnlyError, apsw.CantOpenError) as error:
        raise Misuse(f"the store {place} cannot be opened for writing ({error}); mend its permissions") from error


def _prepare(raw: apsw.Connection, place: str) -> int:
    _check(raw, place)
    mode = raw.execute("PRAGMA journal_mode=WAL").fetchall()[0][0]
    if place != ":memory:" and mode != "wal":
        raise Misuse(f"{place} is on a file system without shared memory (journal mode {mode}, not WAL); use a local disk")
    pragmas(raw)
    raw.execute("BEGIN IMMEDIATE")
    try:
        if _check(raw, place) == 0:
            raw.execute(text("sqlite_schema.sql"))
            new = {"id": str(uuid_utils.uuid4()), "application": str(uuid_utils.uuid4()), "epoch": str(int(time.time()))}
            raw.executemany("INSERT INTO meta (name, value) VALUES (?, ?)", list(new.items()))
            raw.execute(f"PRAGMA application_id={APPLICATION_ID}")
            raw.execute(f"PRAGMA user_version={SCHEMA}")
        epoch = number(raw, "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'epoch'")
        raw.execute("COMMIT")
        return epoch
    finally:
        if raw.in_transaction:
            raw.execute("ROLLBACK")


def _check(raw: apsw.Connection, place: str) -> int:
    """The schema's version, 0 for an empty file."""
    application = number(raw, "PRAGMA application_id")
    version = number(raw, "PRAGMA user_version")
    tables = number(raw, "SELECT count(*) FROM sqlite_master")
    if tables and application != APPLICATION_ID:
        raise Misuse(f"{place} is a database of something else; give semel a file of its own: semel.App('sqlite:///agent.db')")
    if version > SCHEMA:
        raise Misuse(f"{place} has schema version {version}, and this semel knows {SCHEMA}; upgrade: pip install -U semel")
    return version


def number(raw: apsw.Connection, sql: str) -> int:
    """The one integer that a statement gives."""
    found = raw.execute(sql).fetchall()[0][0]
    assert isinstance(found, int)
    return found


def inode(path: Path | None) -> tuple[int, int] | None:
    """The device and inode that a path names now; None where it names nothing."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

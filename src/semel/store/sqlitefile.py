"""What must hold of a SQLite file before semel trusts it with money."""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path

import apsw
import uuid_utils

from semel.errors import Misuse
from semel.store.sqlfile import text

APPLICATION_ID = 0x53454D4C  # "SEML", in the file's header
SCHEMA = 4
MIGRATIONS = {  # to each version, from the one before
    1: "sqlite_schema.sql", 2: "sqlite_schema_2.sql", 3: "sqlite_schema_3.sql", 4: "sqlite_schema_4.sql",
}  # fmt: skip
OPENING_SECONDS = 30.0
OLDEST_LIBRARY = (3, 51, 3)  # before it, a checkpoint beside a commit of another process could lose what was committed
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "fuse.sshfs", "fuse.s3fs",
           "fuse.glusterfs", "fuse.ceph", "fuse.rclone", "fuse.gcsfuse", "fuse.juicefs", "fuse.mountpoint-s3", "fuse.blobfuse2",
           "beegfs", "orangefs")  # fmt: skip
MOUNTINFO = Path("/proc/self/mountinfo")


def check_place(path: Path) -> None:
    """Raise `Misuse` for a place where SQLite's locks or durability do not hold, or where we may not write."""
    try:
        _check_writable(path)
        point, kind = filesystem(path.resolve())
    except (OSError, ValueError, RuntimeError) as error:  # the last: a circle of links, before Python 3.13
        raise Misuse(
            f"the store {path} cannot be reached ({error}); name another file, or mend its folder's permissions"
        ) from error
    if kind in NETWORK:
        raise Misuse(
            f"the store {path} is on a network file system ({kind}), where SQLite's locks do not hold; put it on a local disk"
        )
    if point == path.resolve():
        raise Misuse(
            f"the store {path} is mounted as a single file, and SQLite keeps what was committed last in a second file beside "
            f"it; mount its folder instead"
        )


def _check_writable(path: Path) -> None:
    folder = path.resolve().parent
    if not folder.is_dir():
        raise Misuse(f"the store's folder {folder} does not exist; make it: mkdir -p {folder}")
    if path.is_dir():
        raise Misuse(f"the store {path} is a folder; name a file in it: sqlite:///{path}/agent.db")
    if path.exists() and not path.is_file():
        raise Misuse(f"the store {path} is not a file; name another: semel.App('sqlite:///agent.db')")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise Misuse(f"the store {path} cannot be read and written; mend: chmod u+rw {path}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Misuse(f"the folder {folder} cannot be written, and SQLite writes beside its file; mend: chmod u+wx {folder}")


def filesystem(path: Path) -> tuple[Path | None, str]:
    """The mount point that holds `path`, and the type of its file system, by the kernel's own table; None, "" without one."""
    best: tuple[Path | None, str] = (None, "")
    try:
        lines = MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return best
    for line in lines:
        left, _, right = line.partition(" - ")
        point = Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), left.split()[4]))
        inside = path == point or point in path.parents
        if inside and (best[0] is None or len(point.parts) >= len(best[0].parts)):  # of two on one point, the later is on top
            best = point, right.split()[0]
    return best


def pragmas(raw: apsw.Connection) -> None:
    """Durable at each commit; the log is checkpointed now and then by whoever commits."""
    raw.execute("PRAGMA synchronous=FULL")
    raw.execute("PRAGMA foreign_keys=OFF")
    raw.execute("PRAGMA cache_size=-16384")
    raw.execute("PRAGMA trusted_schema=OFF")
    raw.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else a statement is planned anew for each value that it is given


def prepare(raw: apsw.Connection, place: str) -> bool:
    """Make the schema (True) or upgrade it, or check that it is ours. Raises `Misuse`; nothing is changed then."""
    check_library(apsw.sqlite_lib_version())
    try:
        return _prepare(raw, place)
    except apsw.NotADBError as error:
        raise Misuse(f"{place} is not a SQLite database; name another file: semel.App('sqlite:///agent.db')") from error
    except (apsw.ReadOnlyError, apsw.CantOpenError) as error:
        raise Misuse(f"the store {place} cannot be opened for writing ({error}); mend its permissions") from error


def check_library(version: str) -> None:
    """Raise `Misuse` for a SQLite in which the log can be lost; apsw's wheels carry a later one."""
    if tuple(map(int, version.split("."))) < OLDEST_LIBRARY:
        wanted = ".".join(map(str, OLDEST_LIBRARY))
        raise Misuse(f"apsw uses SQLite {version}, and only from {wanted} on its log is safe; upgrade: pip install -U apsw")


def _prepare(raw: apsw.Connection, place: str) -> bool:
    raw.execute("BEGIN")  # one view for all that is asked: another process may be making the schema at this moment
    try:
        _check(raw, place)
    finally:
        if raw.in_transaction:  # SQLite ends it by itself when the disk fails
            raw.execute("ROLLBACK")
    mode = _to_wal(raw)
    if place != ":memory:" and mode != "wal":
        raise Misuse(f"{place} is on a file system without shared memory (journal mode {mode}, not WAL); use a local disk")
    pragmas(raw)
    raw.execute("BEGIN IMMEDIATE")
    try:
        version = _check(raw, place)
        new_here = version == 0
        for step in range(version + 1, SCHEMA + 1):
            raw.execute(text(MIGRATIONS[step]))
        if new_here:
            new = {"id": str(uuid_utils.uuid4()), "application": str(uuid_utils.uuid4()), "epoch": str(int(time.time()))}
            raw.executemany("INSERT INTO meta (name, value) VALUES (?, ?)", list(new.items()))
            raw.execute(f"PRAGMA application_id={APPLICATION_ID}")
        if version != SCHEMA:
            raw.execute(f"PRAGMA user_version={SCHEMA}")
        raw.execute("COMMIT")
        return new_here
    finally:
        if raw.in_transaction:
            raw.execute("ROLLBACK")


def _to_wal(raw: apsw.Connection) -> str:
    """The journal mode afterwards. Unlike any other statement this one does not wait while another process does the same."""
    end = time.monotonic() + OPENING_SECONDS
    while True:
        try:
            return str(raw.execute("PRAGMA journal_mode=WAL").fetchall()[0][0])
        except apsw.BusyError:
            if time.monotonic() > end:
                raise
            time.sleep(random.uniform(0.001, 0.01))


def _check(raw: apsw.Connection, place: str) -> int:
    """The schema's version, 0 for an empty file."""
    application = number(raw, "PRAGMA application_id")
    version = number(raw, "PRAGMA user_version")
    tables = number(raw, "SELECT count(*) FROM sqlite_master")
    if (tables or application or version) and application != APPLICATION_ID:
        raise Misuse(f"{place} is a database of something else; give semel a file of its own: semel.App('sqlite:///agent.db')")
    if version > SCHEMA:
        raise Misuse(f"{place} has schema version {version}, and this semel knows {SCHEMA}; upgrade: pip install -U semel")
    return version if tables else 0


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
        found = os.stat(path)  # noqa: PTH116  (twice for each commit: `path.stat()` takes half as long again)
    except OSError:
        return None
    return found.st_dev, found.st_ino

"""Looking at a SQLite file. Nothing is changed, and nothing is made."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw

from semel.store.health import SQLiteFacts, StoreFacts
from semel.store.sqlfile import statements
from semel.store.sqlitefile import APPLICATION_ID, filesystem, number

SQL = statements("sqlite_doctor.sql")
BUSY_MS = 5000


def examine(place: str) -> SQLiteFacts:
    """Look at the file, which is there. It is read as its other readers read it, beside whoever writes."""
    path = Path(place).absolute()
    found = SQLiteFacts(
        place=place,
        now=time.time_ns() // 1_000_000,
        library=apsw.sqlite_lib_version(),
        journal_mode="",
        check="",
        filesystem=filesystem(path.resolve())[1],
        size_bytes=_size(path),
        wal_bytes=_size(Path(f"{path}-wal")),
        free_bytes=shutil.disk_usage(path.parent).free,
        processes=_processes(path),
    )
    try:
        raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)  # a reader of a log needs its shared memory
        try:
            raw.set_busy_timeout(BUSY_MS)
            return _inside(raw, found)
        finally:
            raw.close()
    except apsw.Error as error:
        return replace(found, check=found.check or str(error), why_no_store=str(error))


def _inside(raw: apsw.Connection, found: SQLiteFacts) -> SQLiteFacts:
    raw.execute("PRAGMA query_only=ON")
    mode = str(raw.execute("PRAGMA journal_mode").fetchall()[0][0])
    said = [str(line) for (line,) in raw.execute("PRAGMA quick_check(5)")]
    found = replace(found, journal_mode=mode, check="ok" if said == ["ok"] else "; ".join(said))
    if number(raw, "PRAGMA application_id") != APPLICATION_ID:
        return replace(found, why_no_store="the file is a database of something else, or empty")
    schema = number(raw, "PRAGMA user_version")
    row: list[Any] = list(raw.execute(SQL["doctor_store"]).fetchall()[0])
    return replace(found, store=StoreFacts(schema, *row))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _processes(path: Path) -> tuple[int, ...]:
    """The processes that have the file open, as far as this user may see."""
    try:
        file = path.stat()
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]  # noqa: PTH208
    except OSError:
        return ()
    return tuple(sorted(pid for pid in pids if _has_open(pid, file)))


def _has_open(pid: int, file: os.stat_result) -> bool:
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            try:
                held = entry.stat()
            except OSError:
                continue
            if (held.st_dev, held.st_ino) == (file.st_dev, file.st_ino):
                return True
    except OSError:
        pass
    return False

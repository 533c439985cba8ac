"""What `semel doctor` finds out about a store, as data: nothing here judges. Times and lengths of time in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Standby(NamedTuple):
    """One server that streams from this one. sync_state: quorum, sync, potential, async; "" if this role may not see it."""

    name: str
    state: str
    sync_state: str
    lag_ms: int
    lag_bytes: int


class Snapshot(NamedTuple):
    """The oldest transaction of another connection."""

    pid: int
    name: str
    state: str
    age_ms: int


class Slot(NamedTuple):
    """A replication slot. xmin_age: transactions whose dead rows it keeps. kept_bytes: of the log, kept for it."""

    name: str
    active: bool
    wal_status: str
    xmin_age: int
    kept_bytes: int


class TableFacts(NamedTuple):
    """A table's rows by the statistics. vacuumed_at: milliseconds since the Unix epoch; 0: never."""

    name: str
    live: int
    dead: int
    vacuumed_at: int


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What semel keeps in it. unknown_since: when the oldest became unknown, 0 without one. lease_ms: the longest."""

    schema: int
    epoch: int
    living: int = 0
    fenced: int = 0
    lease_ms: int = 0
    unknown: int = 0
    unknown_since: int = 0


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """A PostgreSQL server, as one connection sees it. settings: as in pg_settings, for this role and database.

    ahead_ms: how far the server's clock is ahead of this machine's; round_trip_ms: of the question. tenant: of the role.
    sees_all: the role may see what other roles do. pooled: the server's process is not the one that greeted us, so a pool
    is in between; says_pooled: the URL says so. store: None if there is none; why_no_store: "", or what kept us from it.
    """

    place: str
    now: int
    settings: Mapping[str, str]
    role: str
    tenant: str | None = None
    sees_all: bool = True
    in_recovery: bool = False
    ahead_ms: int = 0
    round_trip_ms: int = 0
    pooled: bool = False
    says_pooled: bool = False
    frozen_age: int = 0
    size_bytes: int = 0
    connections: int = 1
    standbys: tuple[Standby, ...] = ()
    snapshot: Snapshot | None = None
    prepared: tuple[str, int] | None = None
    slots: tuple[Slot, ...] = ()
    tables: tuple[TableFacts, ...] = ()
    store: StoreFacts | None = None
    why_no_store: str = ""


@dataclass(frozen=True, slots=True)
class SQLiteFacts:
    """A SQLite file. check: what PRAGMA quick_check says, "ok" if the file is whole. processes: that have it open, but this.

    filesystem: its type, "" if the kernel does not say. free_bytes: left on its disk.
    """

    place: str
    now: int
    library: str
    journal_mode: str
    check: str
    filesystem: str
    size_bytes: int
    wal_bytes: int
    free_bytes: int
    processes: tuple[int, ...] = ()
    store: StoreFacts | None = None
    why_no_store: str = ""

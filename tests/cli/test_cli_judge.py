"""From facts to findings: each check can be well, and each can be bad; what is bad says why, and what to type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from semel.cli import judge
from semel.store.health import PostgresFacts, Slot, Snapshot, SQLiteFacts, Standby, StoreFacts, TableFacts

NOW = 1_800_000_000_000
MINUTE, HOUR = 60_000, 3_600_000
SETTINGS = {
    "server_version": "18.1 (Debian)", "server_version_num": "180001", "server_encoding": "UTF8", "fsync": "on",
    "full_page_writes": "on", "synchronous_commit": "on", "synchronous_standby_names": "", "wal_level": "replica",
    "autovacuum": "on", "max_connections": "100", "superuser_reserved_connections": "3", "transaction_read_only": "off",
}  # fmt: skip
STORE = StoreFacts(schema=2, epoch=7, living=2, fenced=1, lease_ms=15_000)
SERVER = PostgresFacts(
    "postgresql://h:5432/d", NOW, SETTINGS, "app", round_trip_ms=2, size_bytes=9 << 20, connections=5,
    tables=(TableFacts("ready", 100, 9, NOW),), store=STORE,
)  # fmt: skip
FILE = SQLiteFacts("agent.db", NOW, "3.51.3", "wal", "ok", "ext4", 1 << 20, 0, 50 << 30, (4, 5), STORE)
QUORUM = Standby("s1", "streaming", "quorum", 3, 100)
ASYNC = Standby("s2", "streaming", "async", 3, 100)


def server(settings: dict[str, str] | None = None, **facts: Any) -> list[judge.Finding]:
    changed = replace(SERVER, settings={**SETTINGS, **(settings or {})}, **facts)
    return judge.of_postgres(changed, schema=2, oldest_server=140_000)


def file(**facts: Any) -> list[judge.Finding]:
    return judge.of_sqlite(replace(FILE, **facts), schema=2, oldest_library=(3, 51, 3), network=("nfs", "cifs"))


def bad(findings: list[judge.Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.check) for finding in findings if finding.level != "ok"]


def test_a_good_server_and_a_good_file_have_nothing_to_mend() -> None:
    for found in (server(), file()):
        assert bad(found) == [] and judge.worst(found) == "ok"
        assert not any(finding.why or finding.mend for finding in found)
    assert {finding.check for finding in server()} >= {
        "server", "schema", "role", "writable", "encoding", "clock", "fsync", "full_page_writes", "synchronous_commit",
        "wal_level", "standbys", "oldest snapshot", "autovacuum", "wraparound", "bloat", "connections", "pool", "sessions",
        "unknown",
    }  # fmt: skip


S = dict[str, str]
SERVERS: list[tuple[S, dict[str, Any], list[tuple[str, str]]]] = [
    ({"server_version_num": "130004"}, {}, [("danger", "server")]),
    ({"server_encoding": "SQL_ASCII"}, {}, [("danger", "encoding")]),
    ({"fsync": "off"}, {}, [("danger", "fsync")]),
    ({"full_page_writes": "off"}, {}, [("danger", "full_page_writes")]),
    ({"synchronous_commit": "off"}, {}, [("warn", "synchronous_commit")]),
    ({"synchronous_commit": "local"}, {}, []),
    ({"synchronous_commit": "remote_write"}, {}, []),
    ({"synchronous_commit": "local", "synchronous_standby_names": "*"}, {"standbys": (QUORUM,)},
     [("warn", "synchronous_commit")]),
    ({"synchronous_commit": "remote_write", "synchronous_standby_names": "*"}, {"standbys": (QUORUM,)},
     [("danger", "synchronous_commit")]),
    ({"synchronous_commit": "remote_apply", "synchronous_standby_names": "*"}, {"standbys": (QUORUM,)}, []),
    ({"wal_level": "minimal"}, {}, [("warn", "wal_level")]),
    ({"autovacuum": "off"}, {}, [("danger", "autovacuum")]),
    ({"transaction_read_only": "on"}, {}, [("danger", "writable")]),
    ({}, {"in_recovery": True}, [("danger", "writable")]),
    ({"synchronous_standby_names": "*"}, {"standbys": (QUORUM, ASYNC)}, []),
    ({"synchronous_standby_names": "*"}, {}, [("danger", "standbys")]),
    ({"synchronous_standby_names": "*"}, {"standbys": (ASYNC,)}, [("danger", "standbys")]),
    ({"synchronous_standby_names": "*"}, {"standbys": (Standby("s1", "", "", 0, 0),), "sees_all": False}, [("warn", "role")]),
    ({}, {"standbys": (ASYNC,)}, [("warn", "standbys")]),
    ({"synchronous_standby_names": "*"}, {"standbys": (QUORUM._replace(lag_ms=31_000),)}, [("warn", "lag")]),
    ({"synchronous_standby_names": "*"}, {"standbys": (QUORUM._replace(lag_bytes=2 << 30),)}, [("warn", "lag")]),
    ({}, {"ahead_ms": 4_900}, []),
    ({}, {"ahead_ms": -6_000}, [("warn", "clock")]),
    ({}, {"ahead_ms": 6_000, "round_trip_ms": 3_000}, []),  # it may be the answer that was slow
    ({}, {"ahead_ms": 61_000}, [("danger", "clock")]),
    ({}, {"ahead_ms": -HOUR}, [("danger", "clock")]),
    ({}, {"snapshot": Snapshot(7, "psql", "idle in transaction", 30_000)}, []),
    ({}, {"snapshot": Snapshot(7, "psql", "idle in transaction", 2 * MINUTE)}, [("warn", "oldest snapshot")]),
    ({}, {"snapshot": Snapshot(7, "", "active", 31 * MINUTE)}, [("danger", "oldest snapshot")]),
    ({}, {"prepared": ("tx", 30_000)}, []),
    ({}, {"prepared": ("tx", 2 * MINUTE)}, [("warn", "prepared")]),
    ({}, {"prepared": ("tx", HOUR)}, [("danger", "prepared")]),
    ({}, {"slots": (Slot("a", True, "reserved", 5, 9 << 30), Slot("b", False, "reserved", 0, 1))}, []),
    ({}, {"slots": (Slot("a", False, "extended", 0, 5 << 30),)}, [("warn", "slot")]),
    ({}, {"slots": (Slot("a", True, "reserved", 2_000_000, 0),)}, [("warn", "slot")]),
    ({}, {"slots": (Slot("a", False, "lost", 0, 0),)}, [("warn", "slot")]),
    ({}, {"frozen_age": 1_100_000_000}, [("warn", "wraparound")]),
    ({}, {"frozen_age": 1_900_000_000}, [("danger", "wraparound")]),
    ({}, {"tables": (TableFacts("ready", 10, 9_000, 0), TableFacts("task", 10**6, 10**5, NOW))}, []),
    ({}, {"tables": (TableFacts("ready", 10, 11_000, 0),)}, [("warn", "bloat")]),
    ({}, {"tables": (TableFacts("ready", 5_000, 20_000, NOW),)}, []),
    ({}, {"tables": (TableFacts("effect", 20_000, 20_000, NOW - HOUR),)}, [("warn", "bloat")]),
    ({}, {"connections": 78}, [("warn", "connections")]),
    ({}, {"connections": 96}, [("danger", "connections")]),
    ({}, {"pooled": True}, [("danger", "pool")]),
    ({}, {"says_pooled": True}, [("warn", "pool")]),
    ({}, {"pooled": True, "says_pooled": True}, []),
    ({}, {"sees_all": False}, [("warn", "role")]),
    ({}, {"sees_all": False, "tenant": "acme"}, []),
    ({}, {"store": None}, [("warn", "schema")]),
    ({}, {"store": replace(STORE, schema=1)}, [("warn", "schema")]),
    ({}, {"store": replace(STORE, schema=3)}, [("danger", "schema")]),
    ({}, {"store": replace(STORE, unknown=3, unknown_since=NOW - HOUR)}, [("warn", "unknown")]),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "facts", "expected"), SERVERS)
def test_a_server_is_judged(settings: S, facts: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    found = server(settings, **facts)
    assert bad(found) == expected
    assert judge.worst(found) == (expected[0][0] if expected else "ok")
    assert all(finding.why.endswith(".") and finding.mend for finding in found if finding.level != "ok")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"library": "3.46.0"}, [("danger", "library")]),
        ({"journal_mode": "delete"}, [("danger", "journal mode")]),
        ({"check": "row 3 missing from index"}, [("danger", "integrity")]),
        ({"filesystem": "nfs"}, [("danger", "file system")]),
        ({"filesystem": "tmpfs"}, [("danger", "file system")]),
        ({"filesystem": ""}, []),
        ({"free_bytes": 500 << 20}, [("warn", "size")]),
        ({"free_bytes": 50 << 20}, [("danger", "size")]),
        ({"wal_bytes": 300 << 20}, [("warn", "log")]),
        ({"store": None, "why_no_store": "the file is a database of something else"}, [("warn", "schema")]),
        ({"store": replace(STORE, schema=9)}, [("danger", "schema")]),
        ({"store": replace(STORE, unknown=1, unknown_since=NOW - MINUTE)}, [("warn", "unknown")]),
    ],
)
def test_a_file_is_judged(facts: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    found = file(**facts)
    assert bad(found) == expected
    assert all(finding.why.endswith(".") and finding.mend for finding in found if finding.level != "ok")


def test_the_worst_comes_first() -> None:
    found = server({"wal_level": "minimal", "fsync": "off"}, store=replace(STORE, unknown=1, unknown_since=NOW))
    assert [finding.level for finding in found][:4] == ["danger", "warn", "warn", "ok"]


def test_findings_are_said_in_words() -> None:
    said = {finding.check: finding.found for finding in server(ahead_ms=61_000, snapshot=Snapshot(7, "", "active", 31 * MINUTE))}
    assert said["clock"] == "this machine is 1 min 1 s behind the database"
    assert said["oldest snapshot"] == "31 min: a connection without a name, active"
    assert said["server"] == "PostgreSQL 18.1, 9 MB"
    assert said["sessions"] == "2 living, 1 fenced; the longest lease is 15 s"
    said = {finding.check: finding.found for finding in file(store=replace(STORE, unknown=1, unknown_since=NOW - MINUTE))}
    assert said["unknown"] == "1 effect, the oldest for 1 min"
    assert said["processes"] == "2 others (4, 5)"


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 kB"),
        (9 << 20, "9 MB"),
        (3 << 29, "1.5 GB"),
        (50 << 30, "50 GB"),
        (3 << 40, "3.0 TB"),
    ],
)
def test_sizes(n: int, said: str) -> None:
    assert judge.size(n) == said

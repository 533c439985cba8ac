"""From what a store is like to what that means: pure. Each finding says what was found, why it matters, what to type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from semel.cli.output import count, duration
from semel.machine.recovery import margin_ms
from semel.store.health import PostgresFacts, SQLiteFacts, StoreFacts, TableFacts

Level = Literal["ok", "warn", "danger"]
LEVELS: tuple[Level, ...] = ("danger", "warn", "ok")  # the worst first

CLOCK_WARN_MS, CLOCK_DANGER_MS = 5_000, margin_ms(86_400_000)  # beyond the margin no age is believed (R13)
HELD_WARN_MS, HELD_DANGER_MS = 60_000, 30 * 60_000  # a transaction that stays open
LAG_MS, LAG_BYTES = 30_000, 1 << 30
KEPT_BYTES = 4 << 30
SLOT_XMIN_AGE = 1_000_000
FROZEN_WARN, FROZEN_DANGER = 1_000_000_000, 1_800_000_000  # of about 2.1 thousand million
DEAD_ROWS = 10_000
POINTERS = ("ready", "inflight", "living", "session", "unknown")  # small and busy: their dead rows outnumber them for a while
CONNECTIONS_WARN, CONNECTIONS_DANGER = 0.8, 0.95
WAL_BYTES = 256 << 20
FREE_WARN, FREE_DANGER = 1 << 30, 100 << 20
RELOAD = "SELECT pg_reload_conf();"


class Finding(NamedTuple):
    """One check. why and mend: "" where all is well."""

    level: Level
    check: str
    found: str
    why: str = ""
    mend: str = ""


def well(check: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding("ok", check, found)


def worst(findings: list[Finding]) -> Level:
    """Of all findings."""
    return min((finding.level for finding in findings), key=LEVELS.index, default="ok")


def ranked(findings: list[Finding]) -> list[Finding]:
    """The worst first; else as they came."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def size(n: int) -> str:
    """Bytes in words."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit != "GB" or n >= 10 else f"{n:.1f} {unit}"
        n = n / 1024  # type: ignore[assignment]
    return f"{n:.1f} TB"


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


def of_postgres(facts: PostgresFacts, *, schema: int, oldest_server: int) -> list[Finding]:
    """All findings. schema: the version that this semel knows; oldest_server: the least one, as 140000."""
    return ranked([
        _server(facts, oldest_server), *_schema(facts.store, facts.why_no_store, schema), _role(facts), _primary(facts),
        _encoding(facts), _clock(facts), _fsync(facts), _full_page_writes(facts), _synchronous_commit(facts), _wal_level(facts),
        *_standbys(facts), _snapshot(facts), *_prepared(facts), *_slots(facts), _autovacuum(facts), _frozen(facts),
        *_bloat(facts), _connections(facts), _pool(facts), *_work(facts.store, facts.now),
    ])  # fmt: skip


def _server(facts: PostgresFacts, oldest: int) -> Finding:
    found = f"PostgreSQL {facts.settings.get('server_version', '?').split()[0]}, {size(facts.size_bytes)}"
    if int(facts.settings.get("server_version_num", "0")) < oldest:
        return Finding("danger", "server", found, f"semel needs PostgreSQL {oldest // 10000} or later.", "upgrade the server")
    return well("server", found)


def _role(facts: PostgresFacts) -> Finding:
    if facts.tenant is not None:
        return well("role", f"{facts.role}, of tenant {facts.tenant}: what is said of work is its alone")
    if not facts.sees_all:
        return Finding(
            "warn", "role", f"{facts.role}, which may not see what other roles do",
            "Open transactions and standbys of others are left out of what is said here.", f"GRANT pg_monitor TO {facts.role};",
        )  # fmt: skip
    return well("role", facts.role)


def _primary(facts: PostgresFacts) -> Finding:
    if facts.in_recovery:
        return Finding(
            "danger", "writable", "no: this server is a standby", "semel writes, and a standby only reads.",
            "name all servers in the URL: postgresql://user@host1,host2/database",
        )  # fmt: skip
    if facts.settings.get("transaction_read_only") == "on":
        return Finding(
            "danger", "writable", "no: transactions are read only by default", "semel writes.",
            f"ALTER ROLE {facts.role} SET default_transaction_read_only = off;",
        )  # fmt: skip
    return well("writable", "yes, this is the primary")


def _encoding(facts: PostgresFacts) -> Finding:
    encoding = facts.settings.get("server_encoding", "?")
    if encoding != "UTF8":
        return Finding(
            "danger", "encoding", encoding, "Not every text of an agent can be stored in it.",
            "createdb -E UTF8 -T template0 semel, and name that database in the URL",
        )  # fmt: skip
    return well("encoding", encoding)


def _clock(facts: PostgresFacts) -> Finding:
    ahead, unsure = facts.ahead_ms, facts.round_trip_ms // 2
    apart = max(0, abs(ahead) - unsure)
    found = f"{duration(abs(ahead))} apart, give or take {duration(max(1, unsure))}"
    if apart <= CLOCK_WARN_MS:
        return well("clock", found)
    found = f"this machine is {duration(abs(ahead))} {'behind' if ahead > 0 else 'ahead of'} the database"
    return Finding(
        "danger" if apart > CLOCK_DANGER_MS else "warn", "clock", found,
        f"How old a submission is, is measured by both clocks. Beyond {duration(CLOCK_DANGER_MS)} no age is believed, and what "
        f"could be sent again goes to the next rung: a lookup, or a person.",
        "chronyc tracking (on both machines), and let a time service set them",
    )  # fmt: skip


def _fsync(facts: PostgresFacts) -> Finding:
    if facts.settings.get("fsync") == "off":
        return Finding(
            "danger", "fsync", "off", "A power cut can lose or corrupt what was acknowledged.",
            f"ALTER SYSTEM SET fsync = on; {RELOAD}",
        )  # fmt: skip
    return well("fsync", "on")


def _full_page_writes(facts: PostgresFacts) -> Finding:
    if facts.settings.get("full_page_writes") == "off":
        return Finding(
            "danger", "full_page_writes", "off", "A power cut in the middle of writing a page destroys it.",
            f"ALTER SYSTEM SET full_page_writes = on; {RELOAD}",
        )  # fmt: skip
    return well("full_page_writes", "on")


def _synchronous_commit(facts: PostgresFacts) -> Finding:
    value, replicated = facts.settings.get("synchronous_commit", "?"), _wants_standbys(facts)
    mend = f"ALTER SYSTEM SET synchronous_commit = on; {RELOAD}"
    if value == "remote_write" and replicated:
        return Finding(
            "danger", "synchronous_commit", value,
            "A standby answers before its disk has it: if both machines lose power, what was acknowledged is lost.", mend,
        )  # fmt: skip
    if value == "off" or (value == "local" and replicated):
        lost = "a crash" if value == "off" else "a failover"
        return Finding(
            "warn", "synchronous_commit", value,
            f"What is acknowledged can be lost in {lost}. semel's own connections use on all the same; a transaction of yours, "
            f"in which you enqueue, does not.", mend,
        )  # fmt: skip
    return well("synchronous_commit", value)


def _wants_standbys(facts: PostgresFacts) -> bool:
    return bool(facts.settings.get("synchronous_standby_names"))


def _wal_level(facts: PostgresFacts) -> Finding:
    level = facts.settings.get("wal_level", "?")
    if level == "minimal":
        return Finding(
            "warn", "wal_level", level, "Neither a standby nor a continuous backup can be made from this log.",
            "ALTER SYSTEM SET wal_level = replica; and restart the server",
        )  # fmt: skip
    return well("wal_level", level)


def _standbys(facts: PostgresFacts) -> Iterator[Finding]:
    kinds = [standby.sync_state for standby in facts.standbys]
    kept = sum(kind in ("quorum", "sync") for kind in kinds)
    names = ", ".join(f"{s.name} ({s.sync_state or 'not shown to this role'})" for s in facts.standbys)
    if _wants_standbys(facts) and not kept and not (kinds and not facts.sees_all):
        yield Finding(
            "danger", "standbys", f"synchronous ones are wanted, and none is connected{': ' + names if names else ''}",
            "Every commit waits for one, so no work goes on.",
            "start a standby (SELECT * FROM pg_stat_replication; shows those that are connected)",
        )  # fmt: skip
    elif not kinds:
        yield well("standbys", "none: the disk and its backups are the only copies")
    elif facts.sees_all and not kept:
        yield Finding(
            "warn", "standbys", f"asynchronous: {names}",
            "A failover to one of them can lose what was acknowledged. That is outside the promise: semel goes on only when a "
            "person has said that the old primary is down.",
            f"ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; {RELOAD}",
        )  # fmt: skip
    else:
        yield well("standbys", names)
    slow = [s for s in facts.standbys if s.lag_ms > LAG_MS or s.lag_bytes > LAG_BYTES]
    for standby in slow:
        yield Finding(
            "warn", "lag", f"{standby.name} is {duration(standby.lag_ms)} and {size(standby.lag_bytes)} behind",
            "A failover takes as long as it takes to catch up, and sessions may be fenced meanwhile.",
            "look at that machine's disk and network",
        )  # fmt: skip
    if kinds and not slow:
        yield well("lag", f"at most {duration(max(s.lag_ms for s in facts.standbys))}")


def _held(age_ms: int) -> Level:
    return "danger" if age_ms > HELD_DANGER_MS else "warn" if age_ms > HELD_WARN_MS else "ok"


def _snapshot(facts: PostgresFacts) -> Finding:
    held = facts.snapshot
    if held is None:
        return well("oldest snapshot", "no transaction of others is open" if facts.sees_all else "not shown to this role")
    found = f"{duration(held.age_ms)}: {held.name or 'a connection without a name'}, {held.state}"
    if _held(held.age_ms) == "ok":
        return well("oldest snapshot", found)
    return Finding(
        _held(held.age_ms), "oldest snapshot", found,
        "While it is open no dead row can be removed, and what it has locked waits for it.",
        f"SELECT pg_terminate_backend({held.pid}); and SET idle_in_transaction_session_timeout where it comes from",
    )  # fmt: skip


def _prepared(facts: PostgresFacts) -> Iterator[Finding]:
    if facts.prepared is None:
        return
    name, age_ms = facts.prepared
    found = f"{name!r}, {duration(age_ms)} ago"
    if _held(age_ms) == "ok":
        yield well("prepared", found)
    else:
        yield Finding(
            _held(age_ms), "prepared", found, "A prepared transaction keeps its locks and dead rows, even over a restart.",
            f"COMMIT PREPARED '{name}'; or ROLLBACK PREPARED '{name}';",
        )  # fmt: skip


def _slots(facts: PostgresFacts) -> Iterator[Finding]:
    for slot in facts.slots:
        mend = f"SELECT pg_drop_replication_slot('{slot.name}'); if nobody needs it any more"
        if slot.wal_status == "lost":
            yield Finding(
                "warn", "slot", f"{slot.name}: the log that it needs is gone",
                "Whoever streams from it cannot go on, and must be made anew.", mend,
            )  # fmt: skip
        elif slot.xmin_age > SLOT_XMIN_AGE:
            yield Finding(
                "warn", "slot", f"{slot.name} keeps dead rows of {slot.xmin_age} transactions",
                "Tables grow, and claims slow down, until it moves on.", mend,
            )  # fmt: skip
        elif not slot.active and slot.kept_bytes > KEPT_BYTES:
            yield Finding(
                "warn", "slot", f"{slot.name} is used by nobody, and keeps {size(slot.kept_bytes)} of the log",
                "It grows until the disk is full; then nothing can be written.", mend,
            )  # fmt: skip
        else:
            yield well("slot", f"{slot.name}, {'in use' if slot.active else 'not in use'}")


def _autovacuum(facts: PostgresFacts) -> Finding:
    if facts.settings.get("autovacuum") == "off":
        return Finding(
            "danger", "autovacuum", "off",
            "Dead rows are never removed: claims slow down, and in the end nothing can be written.",
            f"ALTER SYSTEM SET autovacuum = on; {RELOAD}",
        )  # fmt: skip
    return well("autovacuum", "on")


def _frozen(facts: PostgresFacts) -> Finding:
    found = f"{facts.frozen_age / 1e6:.0f} million of 2100 million transactions"
    if facts.frozen_age <= FROZEN_WARN:
        return well("wraparound", found)
    return Finding(
        "danger" if facts.frozen_age > FROZEN_DANGER else "warn", "wraparound", found,
        "When the numbers are used up the server writes nothing more, until they are.", "VACUUM (FREEZE); in this database",
    )  # fmt: skip


def _bloat(facts: PostgresFacts) -> Iterator[Finding]:
    bad = [t for t in facts.tables if _bloated(t)]
    for table in bad:
        ago = f"vacuumed {duration(facts.now - table.vacuumed_at)} ago" if table.vacuumed_at else "never vacuumed"
        yield Finding(
            "warn", "bloat", f"{table.name}: {table.dead} dead rows beside {table.live}, {ago}",
            "Claims and reads walk over them. An open transaction, a slot, or a vacuum that cannot keep up is why.",
            f"VACUUM semel.{table.name}; (end the oldest snapshot first)",
        )  # fmt: skip
    if facts.tables and not bad:
        most = max(facts.tables, key=lambda t: t.dead)
        yield well("bloat", f"{most.name} has most dead rows: {most.dead}" if most.dead else "no dead rows")


def _bloated(table: TableFacts) -> bool:
    return table.dead > DEAD_ROWS and table.dead > table.live * (5 if table.name in POINTERS else 0.5)


def _connections(facts: PostgresFacts) -> Finding:
    room = int(facts.settings.get("max_connections", "100")) - int(facts.settings.get("superuser_reserved_connections", "3"))
    found, share = f"{facts.connections} of {room} in use", facts.connections / max(1, room)
    if share < CONNECTIONS_WARN:
        return well("connections", found)
    return Finding(
        "danger" if share >= CONNECTIONS_DANGER else "warn", "connections", found,
        "A process of semel uses up to 4, and one that gets none can neither work nor beat.",
        "ALTER SYSTEM SET max_connections = ...; and restart the server; or put PgBouncer in between (?pgbouncer=1)",
    )  # fmt: skip


def _pool(facts: PostgresFacts) -> Finding:
    if facts.pooled and not facts.says_pooled:
        return Finding(
            "danger", "pool", "one is in between, and the URL does not say so",
            "In transaction mode each transaction may have another connection: settings that semel makes (durable commits "
            "among them) are another's then, and prepared statements fail.",
            "add ?pgbouncer=1 to the URL",
        )  # fmt: skip
    if facts.says_pooled and not facts.pooled:
        return Finding(
            "warn", "pool", "none is in between, and the URL says that one is",
            "Wake-ups are not heard, so work starts at the next look, and each transaction says its settings anew.",
            "take ?pgbouncer=1 out of the URL",
        )  # fmt: skip
    return well("pool", "in between, and the URL says so" if facts.pooled else "none in between")


# --- SQLite ---------------------------------------------------------------------------------------------------------


def of_sqlite(facts: SQLiteFacts, *, schema: int, oldest_library: tuple[int, ...], network: tuple[str, ...]) -> list[Finding]:
    """All findings. schema, oldest_library, network: what this semel knows, and on what it relies."""
    return ranked([
        _library(facts, oldest_library), *_schema(facts.store, facts.why_no_store, schema), _whole(facts), _journal_mode(facts),
        well("synchronous", "FULL: semel sets it on each connection"), _filesystem(facts, network), _disk(facts), _wal(facts),
        _processes(facts), *_work(facts.store, facts.now),
    ])  # fmt: skip


def _library(facts: SQLiteFacts, oldest: tuple[int, ...]) -> Finding:
    if tuple(map(int, facts.library.split("."))) < oldest:
        return Finding(
            "danger", "library", f"SQLite {facts.library}",
            f"Before {'.'.join(map(str, oldest))} a checkpoint beside another process's commit could lose what was committed.",
            "pip install -U apsw",
        )  # fmt: skip
    return well("library", f"SQLite {facts.library}")


def _whole(facts: SQLiteFacts) -> Finding:
    if facts.check != "ok":
        return Finding(
            "danger", "integrity", facts.check or "it could not be checked", "The file is damaged, or is not what it should be.",
            "stop the workers, keep a copy of the file (with its -wal), and put a backup in its place",
        )  # fmt: skip
    return well("integrity", "quick_check finds nothing wrong")


def _journal_mode(facts: SQLiteFacts) -> Finding:
    if facts.journal_mode not in ("wal", ""):
        return Finding(
            "danger", "journal mode", facts.journal_mode, "semel's stores are in WAL mode: somebody has changed it.",
            "start a worker: it sets the mode, or says why it cannot",
        )  # fmt: skip
    return well("journal mode", facts.journal_mode or "not known")


def _filesystem(facts: SQLiteFacts, network: tuple[str, ...]) -> Finding:
    if facts.filesystem in network:
        return Finding(
            "danger", "file system", f"{facts.filesystem}, over a network", "SQLite's locks do not hold there.",
            "put the file on a local disk",
        )  # fmt: skip
    if facts.filesystem in ("tmpfs", "ramfs"):
        return Finding(
            "danger", "file system", f"{facts.filesystem}, in memory", "It is gone when the machine stops, and all keys with it.",
            "put the file on a disk",
        )  # fmt: skip
    return well("file system", facts.filesystem or "the kernel does not say")


def _disk(facts: SQLiteFacts) -> Finding:
    found = f"{size(facts.size_bytes)}, {size(facts.free_bytes)} free on its disk"
    if facts.free_bytes >= FREE_WARN:
        return well("size", found)
    return Finding(
        "danger" if facts.free_bytes < FREE_DANGER else "warn", "size", found,
        "On a full disk no intent can be recorded, so nothing is done.", "df -h, and make room",
    )  # fmt: skip


def _wal(facts: SQLiteFacts) -> Finding:
    if facts.wal_bytes > WAL_BYTES:
        return Finding(
            "warn", "log", size(facts.wal_bytes), "A reader that stays open keeps the log from being put into the file.",
            f"lsof {facts.place}, and end the process that reads it all the time",
        )  # fmt: skip
    return well("log", size(facts.wal_bytes))


def _processes(facts: SQLiteFacts) -> Finding:
    pids = ", ".join(map(str, facts.processes[:6]))
    return well("processes", f"{count(len(facts.processes), 'other', 'others')} {f'({pids})' if pids else ''}".strip())


# --- both -----------------------------------------------------------------------------------------------------------


def _schema(store: StoreFacts | None, why: str, known: int) -> Iterator[Finding]:
    if store is None:
        yield Finding(
            "warn", "schema", why or "there is no store here yet", "semel could not look into it.", "semel migrate --store URL"
        )  # fmt: skip
    elif store.schema > known:
        yield Finding(
            "danger", "schema", f"version {store.schema}; this semel knows {known}", "A newer semel has written it.",
            "pip install -U semel",
        )  # fmt: skip
    elif store.schema < known:
        yield Finding(
            "warn", "schema", f"version {store.schema}; this semel makes {known} of it",
            "The next process of an owner's upgrades it; one of another role cannot.", "semel migrate --store URL",
        )  # fmt: skip
    else:
        yield well("schema", f"version {store.schema}, epoch {store.epoch}")


def _work(store: StoreFacts | None, now: int) -> Iterator[Finding]:
    if store is None:
        return
    longest = f"; the longest lease is {duration(store.lease_ms)}" if store.living else ""
    yield well("sessions", f"{store.living} living, {store.fenced} fenced{longest}")
    if store.unknown:
        yield Finding(
            "warn", "unknown", f"{count(store.unknown, 'effect')}, the oldest for {duration(now - store.unknown_since)}",
            "Their tasks start nothing else until they are settled.", "semel unknown --all-tenants",
        )  # fmt: skip
    else:
        yield well("unknown", "none")

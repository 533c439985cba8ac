"""`semel doctor` and `semel migrate`: looking after a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from semel.cli import judge, output, reach
from semel.cli.decide import who
from semel.engine import startcheck
from semel.errors import Misuse
from semel.model import Json
from semel.store import sqlitefacts, sqlitefile
from semel.store.places import Place, open_store, place_of
from semel.store.witness import Witness

STYLE = {"ok": "green", "warn": "yellow", "danger": "bold red"}
TONE = {"ok": "good", "warn": "wait", "danger": "bad"}
WORD = {"ok": "WELL", "warn": "WARNING", "danger": "DANGER"}


# --- doctor ---------------------------------------------------------------------------------------------------------


class Examined(NamedTuple):
    """A store, and all that was found."""

    place: str
    findings: list[judge.Finding]

    @property
    def level(self) -> judge.Level:
        """The worst of them."""
        return judge.worst(self.findings)


def examine(url: str) -> Examined:
    """Look at the store of a URL. Raises `Misuse` if its file is not there, `StoreUnavailable` if its server does not answer."""
    place = place_of(url)
    if place.dialect == "postgres":
        from semel.store import pgfacts, pgschema

        found = pgfacts.examine(place.where)
        return Examined(found.place, judge.of_postgres(found, schema=pgschema.SCHEMA, oldest_server=pgschema.OLDEST_SERVER))
    reach.check_there(url)
    facts = sqlitefacts.examine(place.where)
    return Examined(facts.place, judge.of_sqlite(
        facts, schema=sqlitefile.SCHEMA, oldest_library=sqlitefile.OLDEST_LIBRARY, network=sqlitefile.NETWORK,
    ))  # fmt: skip


def as_data(found: Examined) -> dict[str, Json]:
    """For programs."""
    return {"store": found.place, "level": found.level, "findings": [finding._asdict() for finding in found.findings]}


def show(found: Examined) -> None:
    """For people: what there is, in a table; then what to do."""
    bad = [finding for finding in found.findings if finding.level != "ok"]
    counted = {level: sum(finding.level == level for finding in found.findings) for level in judge.LEVELS}
    parts = [output.count(counted["danger"], "danger")] * bool(counted["danger"])
    parts += [output.count(counted["warn"], "warning")] * bool(counted["warn"])
    parts.append(output.count(counted["ok"], "check is well", "checks are well"))
    output.verdict(f"{WORD[found.level]}  {', '.join(parts)}: {found.place}", TONE[found.level])
    output.say()
    output.table(
        ("LEVEL", "CHECK", "FOUND"),
        ((Text(f.level, style=STYLE[f.level]), f.check, output.clean(f.found)) for f in found.findings),
    )
    for finding in bad:
        output.say()
        output.indented(f"{finding.check}: {finding.found}", 8, style="bold", first=finding.level.ljust(8))
        output.indented(finding.why, 8)
        output.indented(finding.mend, 8, style="cyan", first="  mend")


# --- migrate --------------------------------------------------------------------------------------------------------


LONGEST_LEASE = 3600


class Migrated(NamedTuple):
    """What was done. before: the schema's version; 0: there was none."""

    place: str
    before: int
    after: int
    roles: dict[str, str]
    largest_lease: float | None = None


def roles_of(texts: Sequence[str]) -> dict[str, str]:
    """ROLE=TENANT, as often as it was given. Raises `Misuse`."""
    found: dict[str, str] = {}
    for text in texts:
        role, sign, tenant = text.partition("=")
        if not (role and sign and tenant):
            raise Misuse(f"--tenant-role {text!r} is not ROLE=TENANT; write --tenant-role acme_app=acme")
        if found.setdefault(role, tenant) != tenant:
            raise Misuse(f"--tenant-role names {role} twice; a role is of one tenant: make another role")
    return found


def migrate(url: str, roles: dict[str, str], largest_lease: float | None = None) -> Migrated:
    """Make the schema, or upgrade it; then let roles in, and permit longer leases. Raises `Misuse`, `StoreUnavailable`."""
    if largest_lease is not None and not 1 <= largest_lease <= LONGEST_LEASE:
        raise Misuse(f"--largest-lease {largest_lease:g} is no lease; write seconds, 1 to {LONGEST_LEASE}: --largest-lease 60")
    done = _migrate(url, roles)
    if largest_lease is not None:
        _permit(url, largest_lease)
    return done._replace(largest_lease=largest_lease)


def _permit(url: str, seconds: float) -> None:
    store = open_store(url)
    try:
        longer = max((row.ttl_ms for row in store.sessions()), default=0)
        if longer > seconds * 1000:
            raise Misuse(f"a process with a lease of {longer / 1000:g} s is at work; stop it first, or write more than that")
        store.permit_ttl(int(seconds * 1000))
        witness = Witness(store.info, store.missing)
        witness.trusted = (kept := witness.load()) is not None and kept.seen.epoch == store.info.epoch
        if kept is not None and witness.trusted:
            witness.adopt(kept.seen)
            witness.known(store.info)
    finally:
        store.close()


def _migrate(url: str, roles: dict[str, str]) -> Migrated:
    place = place_of(url)
    if place.dialect == "postgres":
        from semel.store import pgschema

        before, after = pgschema.migrate(place.where, roles)
        return Migrated(place.shown, before, after, roles)
    if roles:
        raise Misuse("--tenant-role is for PostgreSQL: whoever may read a SQLite file reads all of it; give each tenant a file")
    before = _version_of(place)
    open_store(url).close()
    return Migrated(place.shown, before, sqlitefile.SCHEMA, {})


def _version_of(place: Place) -> int:
    """Of a SQLite file; opening it raises `Misuse` for any version but this."""
    if place.where == ":memory:":
        raise Misuse("a store in memory lives in its own process alone; name one in a file: --store sqlite:///agent.db")
    path = Path(place.where)
    if not (path.exists() and path.stat().st_size):
        return 0
    with path.open("rb") as file:  # without opening it as a database: another's is refused later, in words
        return int.from_bytes(file.read(64)[60:], "big") or sqlitefile.SCHEMA


def migrated_data(done: Migrated) -> dict[str, Json]:
    """For programs."""
    return {
        "store": done.place,
        "before": done.before,
        "after": done.after,
        "tenant_roles": dict(done.roles),
        "largest_lease": done.largest_lease,
    }


def tell(done: Migrated) -> None:
    """For people."""
    if done.before == done.after:
        output.say(f"{done.place} has schema version {done.after} already; nothing to do.")
    elif done.before:
        output.say(f"{done.place} is upgraded from schema version {done.before} to {done.after}.")
    else:
        output.say(f"{done.place} has a schema now: version {done.after}.")
    for role, tenant in done.roles.items():
        output.say(f"Role {role} reads and writes the rows of tenant {tenant}, and of no other.")
    if done.largest_lease is not None:
        output.say(f"A lease may be {done.largest_lease:g} s long now; for so long a restored store waits before it acts.")


def accept(target: str, by: str | None, reason: str) -> list[str]:
    """A person lets an app's code go on with tasks that it does not fit (R22): what that is. Raises `Misuse`."""
    name = who(by)
    if not reason.strip():
        raise Misuse("it is on record for ever why: write --reason 'charge was renamed; looked through all 12 by hand'")
    with reach.closing(reach.load_app(target)) as app:
        app.load()
        return startcheck.check(app.runtime.desk, app.code, app.bound_to, by=name, reason=reason.strip()).lines()


def tell_accepted(lines: Sequence[str]) -> None:
    """For people."""
    if not lines:
        output.say("There is nothing to accept: every unfinished task fits this code.")
        return
    output.verdict("ACCEPTED  Workers of this very code start, and go on with these as if they fitted:", "wait")
    for line in lines:
        output.indented(line, 4)
    output.say("What is blocked goes on after: semel replay TASK --by YOU")

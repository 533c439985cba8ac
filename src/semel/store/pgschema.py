"""What must hold of a PostgreSQL before semel trusts it with money: its version and settings, and the schema."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

import uuid_utils
from psycopg import errors

from semel.errors import Misuse
from semel.store.pglink import Link, target
from semel.store.sqlfile import text

SCHEMA = 5
MIGRATIONS = {  # to each version, from the one before
    1: "postgres_schema.sql", 2: "postgres_schema_2.sql", 3: "postgres_schema_3.sql", 4: "postgres_schema_4.sql",
    5: "postgres_schema_5.sql",
}  # fmt: skip
OLDEST_SERVER = 140000
TRIES = 50  # of which each loses to another process that makes the schema at this moment
log = logging.getLogger("semel")


class Server(NamedTuple):
    """What the server says of itself. version: as 150004."""

    version: int
    encoding: str
    synchronous_commit: str
    fsync: str
    full_page_writes: str
    standbys: str
    read_only: str
    in_recovery: bool
    walsenders: int


def is_there(link: Link) -> bool:
    """Whether the database has a store in it."""
    return bool(link.pipe(("has_meta", None))[0].rows[0][0])


def has_store(url: str) -> bool:
    """Whether the database that a URL names has a store in it. Raises `StoreUnavailable` if it does not answer."""
    link = Link(target(url), "looking", patience=15, settings={})
    try:
        with link.answered():
            return is_there(link)
    finally:
        link.close()


def migrate(url: str, roles: Mapping[str, str]) -> tuple[int, int]:
    """Make the schema or upgrade it, and let roles in for their tenants; its version before (0: none) and after.

    Raises `Misuse` (then no role was let in), `StoreUnavailable`.
    """
    link = Link(target(url), "migrate", patience=90, settings={"statement_timeout": "80s"})
    place = link.where.place
    try:
        with link.answered():
            must_work(server(link), place)
            before = _version_or_none(link, place)
            after = int(prepare(link, place)[0]["schema"])
            for role, tenant in roles.items():
                _let_in(link, place, role, tenant)
            return before, after
    finally:
        link.close()


def _version_or_none(link: Link, place: str) -> int:
    try:
        meta = _meta(link)
    except errors.InsufficientPrivilege:
        return 0  # prepare says what is missing
    return _version(meta, place) if meta else 0


def _let_in(link: Link, place: str, role: str, tenant: str) -> None:
    found = link.pipe(("roles", (role,)))[0].rows
    if not found:
        raise Misuse(f"{place} has no role {role!r}; make it: CREATE ROLE {role} LOGIN PASSWORD '...'")
    bypasses, already = found[0]
    if bypasses:
        raise Misuse(
            f"no policy can keep role {role} in tenant {tenant!r}: it owns the schema, is a superuser, or has BYPASSRLS; make a "
            f"role of its own: CREATE ROLE {role}_of_{tenant} LOGIN PASSWORD '...'"
        )
    if already not in (None, tenant):
        raise Misuse(
            f"role {role} is of tenant {already!r} already, and a role is of one; make another role, or take its row out of "
            f"semel.tenant_role first: DELETE"
        )
    try:
        link.pipe(("let_in", (role, tenant)))
    except errors.InsufficientPrivilege as error:
        raise Misuse(f"{place}: {str(error).splitlines()[0]}; only the owner of the schema lets roles in") from error


def server(link: Link) -> Server:
    """Ask it."""
    return Server(*link.pipe(("server", None))[0].rows[0])


def check_server(found: Server, place: str) -> None:
    """Raise `Misuse` where semel cannot work; warn where an acknowledged write may be lost."""
    must_work(found, place)
    for setting, value in (("fsync", found.fsync), ("full_page_writes", found.full_page_writes)):
        if value == "off":
            log.warning("semel: %s has %s=off: a power cut can lose or corrupt what was acknowledged; set it on", place, setting)
    if raised(found):
        log.warning(
            "semel: %s has synchronous_commit=%s, with which an acknowledged write can be lost; semel's own connections use on",
            place, found.synchronous_commit,
        )  # fmt: skip


def must_work(found: Server, place: str) -> None:
    """Raise `Misuse` where semel cannot work."""
    if found.version < OLDEST_SERVER:
        raise Misuse(f"{place} is PostgreSQL {found.version // 10000}; semel needs 14 or later: upgrade the server")
    if found.encoding != "UTF8":
        raise Misuse(f"{place} stores text as {found.encoding}; make a database for it: createdb -E UTF8 -T template0 semel")


def raised(found: Server) -> bool:
    """Whether semel must ask for more than the server is set to."""
    return found.synchronous_commit == "off" or (bool(found.standbys) and found.synchronous_commit == "local")


def durability(found: Server, *, several: bool) -> str:
    """What becomes of what was acknowledged if this server is lost: see `StoreInfo`. several: the URL names more than one."""
    if found.standbys:
        return "synchronous"
    return "asynchronous" if several or found.walsenders else "alone"


def prepare(link: Link, place: str) -> tuple[dict[str, str], bool]:
    """Make the schema, or check that it is ours and of this version. Its meta rows, and whether it was made. Raises `Misuse`.

    Any number of processes may do so at once: the whole is one transaction, and the catalog's unique keys let one through.
    """
    made = False
    for _ in range(TRIES):
        try:
            meta = _meta(link)
            if meta and _version(meta, place) == SCHEMA:
                return meta, made
            made = _migrate(link, place)
        except (errors.UniqueViolation, errors.DuplicateSchema, errors.DuplicateTable, errors.InternalError_):
            link.roll_back()  # another process was faster, or is in the middle of it
            time.sleep(0.02)
        except errors.InsufficientPrivilege as error:
            link.roll_back()
            raise Misuse(
                f"{place}: {str(error).splitlines()[0]}; its role may not make or upgrade the schema; as an owner: GRANT CREATE "
                f"ON DATABASE ... TO its role, or run once with an owner's URL: semel migrate (a tenant's role is let in by "
                f"semel migrate --tenant-role ROLE=TENANT)"
            ) from error
    raise Misuse(f"{place}: the schema could not be made in {TRIES} tries; look into the server's log")


def whose(link: Link, place: str) -> str | None:
    """The tenant of the role that asks; None: it works for all. Raises `Misuse` for a role that is neither."""
    fenced, tenant, role = link.pipe(("whose", None))[0].rows[0]
    if fenced and tenant is None:
        raise Misuse(
            f"{place}: role {role} is of no tenant, so it sees nothing; let it in with an owner's URL: semel migrate "
            f"--tenant-role {role}=TENANT; one that works for all tenants owns the schema, or: ALTER ROLE {role} BYPASSRLS"
        )
    if tenant is not None and not fenced:
        raise Misuse(
            f"{place}: role {role} is tenant {tenant!r}'s, and no policy keeps it there (it owns the schema, is a superuser, or "
            f"has BYPASSRLS); take one away: ALTER ROLE {role} NOSUPERUSER NOBYPASSRLS, or delete it from semel.tenant_role"
        )
    return None if tenant is None else str(tenant)


def _meta(link: Link) -> dict[str, str]:
    if not is_there(link):
        return {}
    return {str(name): str(value) for name, value in link.pipe(("meta", None))[0].rows}


def _version(meta: dict[str, str], place: str) -> int:
    if "schema" not in meta or "application" not in meta:
        raise Misuse(f"{place} has a schema named semel that is something else's; give semel a database of its own")
    version = int(meta["schema"])
    if version > SCHEMA:
        raise Misuse(f"{place} has schema version {version}, and this semel knows {SCHEMA}; upgrade: pip install -U semel")
    return version


def _migrate(link: Link, place: str) -> bool:
    """From whatever version it has to this one, in one transaction, alone; True: from nothing."""
    link.pipe(("begin", None), *link.locals(lock_timeout="60s"))
    if not link.pipe(("has_schema", None))[0].rows[0][0]:  # one that is there needs no right to make one
        link.pipe(("create_schema", None))
    link.pipe(("create_meta", None), ("lock_meta", None))
    meta = _meta(link)  # read under the lock
    version = _version(meta, place) if meta else 0
    for step in range(version + 1, SCHEMA + 1):
        link.script(text(MIGRATIONS[step]))
    new = {"schema": str(SCHEMA)}
    if not meta:
        new |= {"id": str(uuid_utils.uuid4()), "application": str(uuid_utils.uuid4()), "epoch": str(int(time.time()))}
    answers = link.pipe(*(("put_meta", row) for row in new.items()), ("commit", None))
    link.must_be_committed(answers[-1])
    return not meta

"""Database roles of tenants, for a while."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

import psycopg
from psycopg import sql

from semel.store.pglink import target

_numbers = itertools.count()


@contextlib.contextmanager
def role_of(url: str, tenant: str | None, *, may: str = "") -> Iterator[str]:
    """The URL of a new login role that is let in for a tenant (None: for none). may: attributes, as BYPASSRLS."""
    role = f"semel_{tenant or 'nobody'}_{os.getpid()}_{next(_numbers)}"
    name = sql.Identifier(role)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret' {}").format(name, sql.SQL(may)))
        if tenant is not None:
            admin.execute("SELECT semel.let_in(%s::name, %s)", (role, tenant))
    try:
        yield as_role(url, role)
    finally:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", (role,))
            if admin.execute("SELECT to_regclass('semel.tenant_role') IS NOT NULL").fetchone() == (True,):
                admin.execute("DELETE FROM semel.tenant_role WHERE role = %s", (role,))
            admin.execute(sql.SQL("DROP OWNED BY {}").format(name))
            admin.execute(sql.SQL("DROP ROLE {}").format(name))


def as_role(url: str, role: str) -> str:
    """The same database, asked by another role."""
    there = target(url).params
    return f"postgresql://{role}:secret@{there['host']}:{there['port']}/{there['dbname']}"

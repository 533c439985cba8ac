"""Which store a URL names, and how it is opened."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from semel.errors import Misuse
from semel.store.contract import Store


class Place(NamedTuple):
    """Where a store is. where: a file, ":memory:", or the whole URL of a database. shown: without a password."""

    dialect: Literal["sqlite", "postgres"]
    where: str
    shown: str


def place_of(url: str) -> Place:
    """The place that a store's URL names. Raises `Misuse` for what cannot be one; nothing is opened."""
    scheme, colon, rest = url.partition("://")
    if scheme in ("postgresql", "postgres") and colon:
        return Place("postgres", url, _postgres().target(url).place)
    if scheme != "sqlite" or not colon:
        shown = f" ({scheme[:20]!r})" if colon and scheme.isalnum() else ""  # what is no URL may hold a password anywhere
        raise Misuse(
            f"the store's URL has no scheme that semel knows{shown}; write "
            f"semel.App('sqlite:///agent.db') or semel.App('postgresql://user@host/database')"
        )
    file = rest.removeprefix("/")
    if not rest.startswith("/") or not file:
        raise Misuse(
            f"the store {url!r} names no file; write 'sqlite:///agent.db' (three slashes) or 'sqlite:////var/lib/agent.db' (four)"
        )
    return Place("sqlite", file, file)


def open_store(url: str) -> Store:
    """Open the store that a URL names. Raises `Misuse`, and `StoreUnavailable` if its server does not answer."""
    place = place_of(url)
    if place.dialect == "postgres":
        _postgres()
        from semel.store.postgres import Postgres

        return Postgres(place.where)
    from semel.store.sqlite import SQLite

    return SQLite(place.where)


def _postgres() -> Any:
    """The module that reads URLs of PostgreSQL, which is an extra."""
    try:
        from semel.store import pglink
    except ModuleNotFoundError as error:
        raise Misuse(f"a PostgreSQL store needs psycopg ({error}); install it: pip install 'semel[postgres]'") from error
    return pglink

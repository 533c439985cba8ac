"""A row of the journal as one line of JSON, and back: what is exported can be checked, by its hashes, without a database."""

from __future__ import annotations

import json
from typing import Any

from semel.machine.journal import Row

_TEXTS = ("tenant", "stream", "kind", "actor", "body", "id")
_NUMBERS = ("seq", "token", "at")
_NAMES = frozenset((*_TEXTS, *_NUMBERS, "hash"))


def line_of(row: Row) -> str:
    """One line, in ASCII, without its end. body: the text as it was hashed; hash: as hexadecimal digits."""
    kept = {name: getattr(row, name) for name in ("tenant", "stream", "seq", "kind", "actor", "token", "at", "id", "body")}
    return json.dumps({**kept, "hash": bytes(row.hash).hex()}, separators=(",", ":"))


def row_of(line: str) -> Row:
    """The row of a line. Raises `ValueError` for what no `line_of` has written."""
    kept: Any = json.loads(line)
    if not isinstance(kept, dict) or kept.keys() != _NAMES:
        raise ValueError("the line holds no row of a journal")
    if not all(type(kept[name]) is str for name in (*_TEXTS, "hash")) or not all(type(kept[name]) is int for name in _NUMBERS):
        raise ValueError("a column of the row is of another type")
    return Row(**{**kept, "hash": bytes.fromhex(kept["hash"])})

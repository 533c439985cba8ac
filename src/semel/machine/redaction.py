"""Redaction: what stands on record instead of a value that must not, and how it is proved which value it was. Pure.

A marker is a keyed digest (HMAC-SHA256) of the value's canonical form, with the place it stood in mixed in: whoever holds
the key can prove that a value is the one, and whoever does not cannot find it by trying, however few values there are.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from semel.machine import keys
from semel.model import Json

MARK = "semel:redacted"  # the one name in a marker; an argument that holds it is refused
SHOWN = "[redacted]"  # what stands in a text instead of a value
FORM = "hmac-sha256"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stood: equal values in different places have different markers."""

    tenant: str
    effect: str
    field: str


def key_id(key: bytes) -> str:
    """Which key it is, for the record: eight hex digits, of which nothing of the key can be learnt."""
    return hmac.new(key, b"semel redaction key id", hashlib.sha256).hexdigest()[:8]


def keyed_digest(key: bytes, place: Place, value: Json) -> str:
    """The HMAC of `value` in its place, hex. Raises `Misuse` for what has no canonical form."""
    text = keys.canonical(cast(Json, ["semel redaction 1", place.tenant, place.effect, place.field, value]))
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def marker(key: bytes, place: Place, value: Json) -> Json:
    """What is recorded instead of `value`."""
    return {MARK: f"{FORM}:{key_id(key)}:{keyed_digest(key, place, value)}"}


def mark_of(data: Json) -> tuple[str, str] | None:
    """The id of the key and the digest, if `data` is a marker."""
    if not isinstance(data, Mapping) or data.keys() != {MARK} or not isinstance(data[MARK], str):
        return None
    form, _, rest = data[MARK].partition(":")
    id, colon, digest = rest.partition(":")
    return (id, digest) if form == FORM and colon else None


def looks_marked(data: Json) -> bool:
    """Whether `data` could be taken for a marker: no ordinary argument may."""
    return isinstance(data, Mapping) and MARK in data


def without_values(data: Json) -> Json:
    """The same, with markers as people are shown them."""
    if (mark := mark_of(data)) is not None:
        return f"{SHOWN} {mark[0]}:{mark[1][:16]}"
    return {name: without_values(inner) for name, inner in data.items()} if isinstance(data, Mapping) else data

"""Redaction: what stands on record instead of a value that must not, and how it is proved which value it was. Pure.

A marker is a keyed digest (HMAC-SHA256) of the value's canonical form, with the place it stood in mixed in: whoever holds
the key can prove that a value is the one, and whoever does not cannot find it by trying, however few values there are.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from semel.machine import keys
from semel.model import Json

MARK = "semel:redacted"  # the one name in a marker; an argument that holds it is refused
SHOWN = "[redacted]"  # what stands in a text instead of a value
FORM = "hmac-sha256"
LEAST = 4  # characters: a shorter text stands in every other one, and is not sought
PART_DIGITS, MOST_PARTS = 16, 100
_PLAIN = (str, int, type(None))  # looked at first: to ask whether something is a mapping takes longer


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stood: equal values in different places have different markers."""

    tenant: str
    effect: str
    field: str


@dataclass(frozen=True, slots=True)
class Mark:
    """What a marker says: the id of its key, the digest of the value, those of its parts."""

    key_id: str
    digest: str
    parts: frozenset[str]


def key_id(key: bytes) -> str:
    """Which key it is, for the record: eight hex digits, of which nothing of the key can be learnt."""
    return hmac.new(key, b"semel redaction key id", hashlib.sha256).hexdigest()[:8]


def keyed_digest(key: bytes, place: Place, value: Json) -> str:
    """The HMAC of `value` in its place, hex. Raises `Misuse` for what has no canonical form."""
    text = keys.canonical(cast(Json, ["semel redaction 1", place.tenant, place.effect, place.field, value]))
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def leaves(value: Json) -> Iterator[str]:
    """The texts within a value, and its numbers as they are written. The names in it are not."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def part_digest(key: bytes, place: Place, text: str) -> str:
    """The HMAC of one text within a value, shortened: by it that text is known again where it must not be recorded."""
    return keyed_digest(key, Place(place.tenant, place.effect, f"{place.field}/part"), text)[:PART_DIGITS]


def marker(key: bytes, place: Place, value: Json) -> Json:
    """What is recorded instead of `value`: its digest, and, if it is made of others, those of its texts."""
    parts = sorted({part_digest(key, place, text) for text in leaves(value) if len(text) >= LEAST})
    if not isinstance(value, Mapping | list | tuple):
        parts = []
    return {MARK: ":".join([FORM, key_id(key), keyed_digest(key, place, value), *parts[:MOST_PARTS]])}


def mark_of(data: Json) -> Mark | None:
    """What a marker says, if `data` is one."""
    if isinstance(data, _PLAIN) or not isinstance(data, Mapping):
        return None
    if data.keys() != {MARK} or not isinstance(data[MARK], str):
        return None
    form, *said = data[MARK].split(":")
    return Mark(said[0], said[1], frozenset(said[2:])) if form == FORM and len(said) > 1 else None


def looks_marked(data: Json) -> bool:
    """Whether `data` could be taken for a marker: no ordinary argument may."""
    return isinstance(data, Mapping) and MARK in data


def without_values(data: Json) -> Json:
    """The same, with markers as people are shown them."""
    if (mark := mark_of(data)) is not None:
        return f"{SHOWN} {mark.key_id}:{mark.digest[:16]}"
    return {name: without_values(inner) for name, inner in data.items()} if isinstance(data, Mapping) else data

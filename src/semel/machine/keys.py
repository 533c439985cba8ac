"""From an intent to a key: what the work is meant to do, and nothing of how or when it is tried."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import rfc8785

from semel.errors import Misuse
from semel.machine.compact import encoder
from semel.model import Json

DIGESTED = "int_"
MAX_INTEGER = 2**53 - 1  # RFC 8785 (I-JSON): beyond it, readers disagree about the number
_in_order = encoder(in_order=True)
_ALWAYS = frozenset((str, bool, type(None)))
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_TEN_BITS = [first + second for first in _LETTERS for second in _LETTERS]


def canonical(value: Json) -> bytes:
    """The RFC 8785 form of `value`. Raises `Misuse` for what is not JSON: NaN, integers beyond 2^53 - 1, lone surrogates."""
    try:
        return _in_order(value).encode() if _is_ordinary(value) else rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError) as error:
        raise Misuse(f"not canonical JSON: {error}; pass large integers and exact decimals as strings") from error


def _is_ordinary(value: Any) -> bool:
    try:
        return _ordinary(value)
    except RecursionError:  # the other one goes deeper
        return False


def _ordinary(value: Any) -> bool:
    """Whether Python's encoder writes it as RFC 8785 does: no float, no huge integer, no name that would be sorted otherwise."""
    kind = type(value)
    if kind in _ALWAYS:
        return True
    if kind is int:
        return bool(-MAX_INTEGER <= value <= MAX_INTEGER)
    if kind is dict:
        for name in value:
            if type(name) is not str or not name.isascii():
                return False
        value = value.values()
    elif kind is not list:
        return False
    return all(map(_ordinary, [inner for inner in value if type(inner) not in _ALWAYS]))


def digest(value: Json) -> str:
    """SHA-256 of the canonical form, hex, shortened to 128 bits: two wordings are the same iff their digests are."""
    return hashlib.sha256(canonical(value)).hexdigest()[:32]


def check_intent(value: Json, path: str) -> None:
    """Refuse what cannot identify an effect: a float says 0.1 + 0.2, a huge integer is read differently elsewhere.

    Raises `Misuse` that names the place, as `path` and what follows it.
    """
    if isinstance(value, float):
        raise Misuse(f"{path} is a float ({value!r}), and a float cannot identify an effect: write cents as an int, or a str")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_INTEGER:
        raise Misuse(f"{path} is an integer beyond 2^53 - 1, which JSON readers do not agree on: pass it as a str")
    if isinstance(value, str) and not _is_text(value):
        raise Misuse(f"{path} holds half a character ({value!r:.60}), which is no text: decode it with errors='replace'")
    if isinstance(value, dict):
        for name, inner in value.items():
            check_intent(name, f"{path}: the name {name!r:.60}")
            check_intent(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            check_intent(inner, f"{path}[{index}]")


def _is_text(value: str) -> bool:
    """Whether it has no lone surrogates: half a character has no bytes, so nothing can be derived from it or store it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def effect_key(
    application: str, tenant: str, scope: tuple[str, ...], name: str, intent: Json, occurrence: str, generation: int
) -> str:
    """The key of an effect: 36 characters, safe as an HTTP header, a file name and a database id.

    scope: ("task", kind, task key), or ("tenant",). The parts are hashed as one canonical array, so that no two
    different lists of parts can meet in one key.
    """
    parts = canonical(cast(Json, [application, tenant, list(scope), name, intent, occurrence, generation]))
    return "sml_" + _base32(hashlib.sha256(parts).digest()[:20])


def _base32(digest: bytes) -> str:
    """Twenty bytes in base 32, in small letters. The library's takes twice as long, and each call of an effect comes by here."""
    number = int.from_bytes(digest, "big")
    return "".join([_TEN_BITS[number >> shift & 1023] for shift in range(150, -1, -10)])


def task_key(intent: Json) -> str:
    """The key of a task, from its intent: readable where it is one short printable string, else a digest."""
    values = list(intent.values())
    only = values[0] if len(values) == 1 and isinstance(values[0], str) else ""
    if 0 < len(only) <= 100 and only.isprintable() and not only.startswith(DIGESTED):  # or it could be another's digest
        return only
    return DIGESTED + digest(intent)


def step_key(name: str, args: Json, nth: int) -> str:
    """The key of a step: its name, its arguments, and the how-manieth such call in the attempt."""
    return f"{name}:{digest(args)}:{nth}"

"""The keys of redaction: from the environment, never from the store, and never written anywhere."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from semel.engine.declare import Effect, Registry
from semel.errors import Misuse
from semel.machine import redaction as r
from semel.model import Json

VARIABLE = "SEMEL_REDACTION_KEY"
LEAST_BYTES = 32
MAKE = f'export {VARIABLE}=$(python -c "import secrets; print(secrets.token_hex(32))")'


def key_of(text: str) -> bytes:
    """A key from hex or base64. Raises `Misuse`, which does not say what was written."""
    key = b""
    try:
        key = bytes.fromhex(text) if re.fullmatch(r"[0-9a-fA-F]+", text) else base64.b64decode(_padded(text), validate=True)
    except (ValueError, binascii.Error):
        pass
    if len(key) < LEAST_BYTES:
        raise Misuse(
            f"{VARIABLE} holds what is no key of at least {LEAST_BYTES} bytes in hex or base64 (several: a comma between them, "
            f"the one in use first); make one, and keep it: {MAKE}"
        )
    return key


def _padded(text: str) -> str:
    """Base64 of either alphabet, whole."""
    text = text.replace("-", "+").replace("_", "/").rstrip("=")
    return text + "=" * (-len(text) % 4)


@dataclass(frozen=True, slots=True, repr=False)
class Ring:
    """The keys: the first is in use, the others prove what was recorded under them."""

    keys: tuple[bytes, ...] = ()
    _by_id: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Ring:
        """The keys of these texts. Raises `Misuse`."""
        keys = tuple(key_of(text.strip()) for text in texts)
        return cls(keys, {r.key_id(key): key for key in keys})

    @classmethod
    def from_environment(cls) -> Ring:
        """The keys of this process; none if nothing is set. Raises `Misuse`."""
        said = os.environ.get(VARIABLE, "").strip()
        return cls.of(said.split(",")) if said else cls()

    def key(self, what: str) -> bytes:
        """The one in use. Raises `Misuse` if there is none."""
        if not self.keys:
            raise Misuse(
                f"{what} needs a key that is not in the store: {VARIABLE} is not set; make one once, keep it safe, and give it "
                f"to every process that works on this store: {MAKE}"
            )
        return self.keys[0]

    def holds(self, id: str) -> bool:
        """Whether a value that was recorded under this key can be proved."""
        return id in self._by_id

    def matches(self, place: r.Place, data: Json, value: Json) -> bool:
        """Whether the marker `data` is this value's. False, too, if its key is not here."""
        mark = r.mark_of(data)
        key = self._by_id.get(mark.key_id) if mark is not None else None
        return mark is not None and key is not None and hmac.compare_digest(r.keyed_digest(key, place, value), mark.digest)

    def has_part(self, place: r.Place, mark: r.Mark, text: str) -> bool:
        """Whether the text is in the value of a marker. False, too, if its key is not here."""
        key = self._by_id.get(mark.key_id)
        return key is not None and bool(mark.parts) and r.part_digest(key, place, text) in mark.parts


def redacting(effects: Registry[Effect]) -> list[str]:
    """The effects that redact anything."""
    return [name for name in effects.names() if (known := effects.get(name)) is not None and known.redact]


def expect_key(effects: Registry[Effect]) -> None:
    """Raise `Misuse` where an effect redacts and there is no key, before anything has happened."""
    for name in redacting(effects)[:1]:
        Ring.from_environment().key(f"effect {name} redacts, and that")

"""Signed heads: where every stream stood, kept where whoever writes to the store cannot write. Lines of JSON:

    {"semel":"heads","version":1,"store":...,"application":...,"epoch":...,"tenant":null,"at":...}
    ["default","01J...",12,"9f86d0..."]         tenant, stream, seq and hash of its last row; one a stream, in order
    {"streams":1,"rows":12,"digest":...,"public":...,"signature":...}

digest: SHA-256 of all that stands before the last line. signature: Ed25519, of `semel heads` and the digest. Who has the store
can write any chain anew, and who has the key cannot be without it: the two must not be in one hand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from semel.engine.files import create, lines_of
from semel.engine.pages import every_head
from semel.errors import Misuse
from semel.machine import tampering
from semel.machine.export import row_of
from semel.machine.journal import Row
from semel.store.contract import Store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNED = b"semel heads\n"
VERSION = 1
PEM = "-----BEGIN"


# --- keys -------------------------------------------------------------------------------------------------------------


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise Misuse("signing needs a library that is not installed: pip install 'semel[audit]'") from None
    return ed25519


def generate(name: Path) -> tuple[Path, Path]:
    """A new key pair, NAME.key (for its owner alone) and NAME.pub. Raises `Misuse` if one is there."""
    key = _ed25519().Ed25519PrivateKey.generate()
    from cryptography.hazmat.primitives import serialization as s

    private = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    public = key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    made = name.with_name(f"{name.name}.key"), name.with_name(f"{name.name}.pub")
    for path, data, mode in ((made[0], private, 0o600), (made[1], public, 0o644)):
        with create(path, mode) as file:
            file.write(data)
    return made


def private_key(key: str) -> Ed25519PrivateKey:
    """The key of a file, or of a text in PEM. Raises `Misuse`."""
    ed25519 = _ed25519()
    found = _load(key, "load_pem_private_key", password=None)
    if not isinstance(found, ed25519.Ed25519PrivateKey):
        raise Misuse("the key to sign with is no private Ed25519 key; make one: semel audit keygen")
    return cast("Ed25519PrivateKey", found)


def public_key(path: Path) -> Ed25519PublicKey:
    """The public key of a file. Raises `Misuse`."""
    ed25519 = _ed25519()
    found = _load(str(path), "load_pem_public_key")
    if not isinstance(found, ed25519.Ed25519PublicKey):
        raise Misuse(f"{path} is no public Ed25519 key; it is the .pub file that semel audit keygen has made")
    return cast("Ed25519PublicKey", found)


def _load(key: str, loader: str, **how: Any) -> Any:
    from cryptography.hazmat.primitives import serialization

    try:
        data = key.encode() if key.startswith(PEM) else Path(key).read_bytes()
        return getattr(serialization, loader)(data, **how)
    except OSError as error:
        raise Misuse(f"the key {key} cannot be read ({error.strerror}); make one: semel audit keygen") from error
    except (ValueError, TypeError) as error:
        what = "the key that was given" if key.startswith(PEM) else key
        raise Misuse(f"{what} is not the key that is wanted, in PEM without a password; make one: semel audit keygen") from error


def _raw(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes_raw()


# --- writing ----------------------------------------------------------------------------------------------------------


def sign(store: Store, path: Path, key: Ed25519PrivateKey | None, at: int) -> tuple[int, int]:
    """Write where every stream stands into a new file; how many streams, how many rows. Raises `Misuse`."""
    info, digest, streams, rows = store.reread(), hashlib.sha256(), 0, 0
    head = {
        "semel": "heads", "version": VERSION, "store": info.id, "application": info.application, "epoch": info.epoch,
        "tenant": info.tenant, "at": at,
    }  # fmt: skip
    with create(path) as file:
        _line(file, head, digest)
        for tenant, stream, seq, hash in every_head(store):
            _line(file, [tenant, stream, seq, hash.hex()], digest)
            streams, rows = streams + 1, rows + seq
        sum = digest.digest()
        _line(file, {
            "streams": streams, "rows": rows, "digest": sum.hex(), "public": _raw(key.public_key()).hex() if key else "",
            "signature": key.sign(SIGNED + sum).hex() if key else "",
        }, digest)  # fmt: skip
    return streams, rows


def _line(file: IO[bytes], data: Any, digest: Any) -> None:
    line = json.dumps(data, separators=(",", ":")).encode() + b"\n"
    digest.update(line)
    file.write(line)


# --- reading ----------------------------------------------------------------------------------------------------------


class SignedHead(NamedTuple):
    """Where one stream stood."""

    tenant: str
    stream: str
    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Signed:
    """A file of heads. wrong: why it proves nothing, if so. note: how much it proves. Iterated, its heads in order."""

    path: Path
    store: str = ""
    epoch: int = 0
    tenant: str | None = None
    at: int = 0
    streams: int = 0
    wrong: str = ""
    note: str = ""

    def __iter__(self) -> Iterator[SignedHead]:
        """The heads, read again line by line."""
        for n, line in enumerate(lines_of(self.path)):
            if 0 < n <= self.streams:
                tenant, stream, seq, hash = json.loads(line)
                yield SignedHead(tenant, stream, seq, bytes.fromhex(hash))


def signed_at(path: Path, public: Path | None) -> Signed:
    """A file of heads, checked: that it is whole, and who has signed it. Raises `Misuse` if there is none."""
    key = public_key(public) if public is not None else None
    digest, streams, rows, previous = hashlib.sha256(), 0, 0, ("", "")
    first: dict[str, Any] = {}
    last: dict[str, Any] | None = None
    try:
        for n, line in enumerate(lines_of(path)):
            data = json.loads(line)
            if last is not None:
                raise ValueError("something stands after its end")
            if n == 0:
                if not isinstance(data, dict) or data.get("semel") != "heads" or data.get("version") != VERSION:
                    raise ValueError(f"it is no file of heads of version {VERSION}")
                first = data
            elif isinstance(data, dict):
                last = data
                break_at = digest.digest()
            else:
                tenant, stream, seq, hash = data
                if (tenant, stream) <= previous or len(bytes.fromhex(hash)) != 32:
                    raise ValueError(f"line {n + 1} is not in its place")
                streams, rows, previous = streams + 1, rows + seq, (tenant, stream)
            digest.update(line)
        if last is None:
            raise ValueError("its end is missing")
        wrong, note = _signature(last, break_at, key)
        if (last["streams"], last["rows"], last["digest"]) != (streams, rows, break_at.hex()):
            raise ValueError("it was changed: its heads are not those that its last line counts")
        return Signed(path, first["store"], first["epoch"], first["tenant"], first["at"], streams, wrong, note)
    except (ValueError, KeyError, TypeError) as error:
        return Signed(path, wrong=f"{path.name} proves nothing: {error}")


def _signature(last: dict[str, Any], digest: bytes, key: Ed25519PublicKey | None) -> tuple[str, str]:
    """(why it proves nothing, how much it proves)."""
    signature = bytes.fromhex(last["signature"])
    if key is None:
        signed = "its signature was not checked (--public-key FILE)" if signature else "it is not signed"
        return "", f"the heads prove as much as the place in which they were kept: {signed}"
    if not signature:
        return "the file of heads is not signed, and a public key was given", ""
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, SIGNED + digest)
    except InvalidSignature:
        whose = "it was changed" if last["public"] == _raw(key).hex() else "another key has signed it, or it was changed"
        return f"the file of heads is not what was signed: {whose}", ""
    return "", ""


class Walk:
    """The heads beside the streams of a store, both in order. tenant: only of this one (None: of all)."""

    def __init__(self, signed: Signed, tenant: str | None) -> None:
        self.at, self._tenant = signed.at, tenant
        self._heads = iter(head for head in signed if self.covers(head.tenant))
        self._next = next(self._heads, None)

    def covers(self, tenant: str) -> bool:
        """Whether what was signed of this tenant is compared."""
        return self._tenant is None or tenant in (self._tenant, "")

    def before(self, tenant: str, stream: str) -> Iterator[SignedHead]:
        """Those of streams that should have come before this one."""
        while self._next is not None and self._next[:2] < (tenant, stream):
            yield self._next
            self._next = next(self._heads, None)

    def of(self, tenant: str, stream: str) -> SignedHead | None:
        """That of this stream, if it was signed."""
        found = self._next
        if found is None or found[:2] != (tenant, stream):
            return None
        self._next = next(self._heads, None)
        return found

    def rest(self) -> Iterator[SignedHead]:
        """Those of which no stream was left."""
        while self._next is not None:
            yield self._next
            self._next = next(self._heads, None)


# --- what was pruned since --------------------------------------------------------------------------------------------


class Pending(NamedTuple):
    """A head that was signed before its row was pruned; and what the stream begins with now."""

    tenant: str
    stream: str
    seq: int
    hash: bytes
    start: int
    start_hash: bytes


@dataclass(slots=True)
class Archives:
    """The exports of prunes, against heads. wrong: (tenant, stream, why)."""

    pending: Iterable[Pending]
    wrong: list[tuple[str, str, str]] = field(default_factory=list)
    _wanted: dict[tuple[str, str], Pending] = field(default_factory=dict)
    _known: dict[tuple[str, str], dict[int, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._wanted = {(one.tenant, one.stream): one for one in self.pending}

    def read(self, path: Path) -> None:
        """Read one export; its chains are checked. Raises `Misuse` if it cannot be read."""
        for rows in streams_of(path):
            one = self._wanted.get((rows[0].tenant, rows[0].stream))
            try:
                found, start = tampering.faults(rows), tampering.start_of(rows)
            except ValueError as error:
                self.wrong.append((rows[0].tenant, rows[0].stream, f"{path.name}: {error}"))
                continue
            self.wrong += [(rows[0].tenant, rows[0].stream, f"{path.name}: {fault.text}") for fault in found]
            if one is not None and not found:
                known = self._known.setdefault((one.tenant, one.stream), {})
                wanted = {one.seq, one.start, rows[-1].seq}
                known.update({row.seq: row.hash for row in rows if row.seq in wanted})
                if start.seq and known.setdefault(start.seq, start.hash) != start.hash:
                    self.wrong.append((one.tenant, one.stream, f"{path.name} does not go on where the export before it ended"))

    def absent(self) -> list[Pending]:
        """The heads that no export proves; those that one contradicts are told in `wrong`."""
        left = []
        for place, one in self._wanted.items():
            known = self._known.get(place, {})
            if one.seq not in known or one.start not in known:
                left.append(one)
            elif (known[one.seq], known[one.start]) != (one.hash, one.start_hash):
                row = one.seq if known[one.seq] != one.hash else one.start
                self.wrong.append((*place, f"row {row} of the export is not the one that was signed, or that the store knows"))
        return left


def streams_of(path: Path) -> Iterator[list[Row]]:
    """The rows of an export, stream by stream; lines that are no rows are passed over. Raises `Misuse`."""
    rows: list[Row] = []
    for n, line in enumerate(lines_of(path)):
        if not line.startswith(b'{"tenant":'):
            continue
        try:
            row = row_of(line.decode())
        except ValueError as error:
            raise Misuse(f"{path}, line {n + 1}: {error}; it is no export of semel's, or a damaged one") from error
        if rows and ((row.tenant, row.stream) != (rows[0].tenant, rows[0].stream) or row.seq <= rows[-1].seq):
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows

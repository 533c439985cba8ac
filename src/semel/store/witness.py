"""The witness: what this process saw acknowledged, kept outside the store, in memory and in a small file (R19).

A store that does not hold it has gone back: it was restored, or a standby took over that had not received the last of it.
The file of a SQLite store lies beside it (`agent.db.witness`), that of a database in $XDG_STATE_HOME/semel, or both in
$SEMEL_WITNESS: a disk that is not restored together with the store. Processes of one machine share it; the highest epoch
stays. Without a file a process has no witness at first, and watches for those who have one (`engine/arrival.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from semel.errors import Misuse, StoreUnavailable
from semel.machine.journal import Row
from semel.store.contract import LARGEST_TTL_MS, Change, Landed, StoreInfo, Unit, Witnessed

VARIABLE = "SEMEL_WITNESS"
MOST_BESIDE = 8  # of those who have ended, on file
TRIES = 5  # to write the file, of which each means that another process has written it meanwhile
SAVE_SECONDS = 1.0  # how often the file is written at most, but for beats
log = logging.getLogger("semel")


class Kept(NamedTuple):
    """What a file holds. place, durability: of the store, when it was last seen. also: what others saw who have ended."""

    store: str
    place: str
    durability: str
    seen: Witnessed
    largest_ttl_ms: int = LARGEST_TTL_MS
    unfenced: bool = False
    also: tuple[Witnessed, ...] = ()

    @property
    def all(self) -> tuple[Witnessed, ...]:
        """All that the store must hold."""
        return (self.seen, *self.also)


def path_of(info: StoreInfo) -> Path | None:
    """Where the witness of a store is kept; None: nowhere, since the store lives in this process alone.

    The name holds the place: a copy of a database elsewhere has the same id. A tenant's role sees its own rows alone.
    """
    if info.place == ":memory:":
        return None
    given = os.environ.get(VARIABLE)
    digest = hashlib.sha256(info.place.encode()).hexdigest()[:8]
    name = f"{info.id}.{digest}.json" if info.tenant is None else f"{info.id}.{digest}.{quote(info.tenant, safe='')}.json"
    if given:
        return Path(given) / name
    if info.dialect == "sqlite":
        return Path(f"{info.place}.witness")
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "semel" / name


def elsewhere(path: Path, info: StoreInfo) -> list[Path]:
    """Witnesses of the same store at other places: a hint, where there is none of this place."""
    if path.name.endswith(".witness"):
        return []
    tail = path.name[len(info.id) + 9 :]  # behind the digest
    return [found for found in path.parent.glob(f"{info.id}.????????{tail}") if found != path]


class Witness:
    """One process's witness of one store."""

    def __init__(self, info: StoreInfo, missing: Callable[[Witnessed], str] = lambda seen: "") -> None:
        check_folder()
        self._info, self._missing = info, missing
        self.path = path_of(info)
        self._seen = Witnessed(info.epoch, None, None)
        self._lock = threading.RLock()
        self._written = ""  # what this process wrote last
        self._saved_at = -SAVE_SECONDS
        self._beating = False
        self._fresh = False  # `_info` is what the store says of itself now, and not when this process came
        self._new = True  # something is known that the file may not hold
        self._complained = False
        self.trusted = False  # what this process sees is a measure: it knows, or has watched, that the store did not go back
        self.gone = ""  # what this process or another one of this machine saw, in this epoch, and the store does not hold
        self._shown = False  # by the file: what this process saw besides must not crowd out the proof
        self.arriving = False  # it is finding out whether the store went back
        self.arrived = False  # it has found out, and has had a session since

    # --- what is seen ---

    @property
    def seen(self) -> Witnessed:
        """The last that this process saw acknowledged."""
        return self._seen

    def _something(self) -> bool:
        return self._seen.row is not None or self._seen.beat is not None

    def evidence(self) -> tuple[Witnessed, ...]:
        """What the store must hold: what this process saw, and what others of this machine, who work there too, put on file."""
        if self.arriving:  # it looks into that itself, and may find that a new epoch must begin
            return ()
        if self._lock.acquire(blocking=False):  # else another thread is at it, and may wait for the very link that asks here
            try:
                self.save(ask=False, beside=True)  # whoever comes next must know it, even if this process goes
            finally:
                self._lock.release()
        kept = self.load() if self.trusted else None  # one that is not sure yet must come in, to look into it
        return (self._seen, *kept.all) if kept is not None and kept.place == self._info.place else (self._seen,)

    def others(self) -> tuple[Witnessed, ...]:
        """What others put on file in this epoch, since this process wrote there."""
        text = self._text(self.path) if self.trusted and self.path is not None else None
        if self.path is None or text is None or text == self._written:
            return ()
        kept = self._parsed(self.path, text)
        return tuple(seen for seen in kept.all if seen.epoch == self._seen.epoch) if kept is not None else ()

    def begin(self, info: StoreInfo) -> None:
        """From here on the store is in this epoch; what was seen before is no measure of it any more.

        An epoch before the one that was seen is none that begins: the store went back.
        """
        with self._lock:
            self._info = info
            if self._seen.epoch < info.epoch:
                row = self._seen.row
                began = row if row is not None and row[0] == "" else None  # it was this process that began the epoch
                self._seen, self._new = Witnessed(info.epoch, began, None, self._seen.at if began else 0), True
                self.gone, self._shown = "", False

    def known(self, info: StoreInfo) -> None:
        """The store says this of itself now."""
        with self._lock:
            self._info, self._new, self._fresh = info, True, True
        self.save()

    def adopt(self, seen: Witnessed) -> None:
        """What the file said, and the store holds: a measure for this process too."""
        with self._lock:
            if seen.epoch == self._seen.epoch and self._seen.row is None and self._seen.beat is None:
                self._seen, self._new = seen, False

    def lost(self, row: Row, epoch: int) -> None:
        """This row was acknowledged in that epoch, and the store does not hold it: a measure that nothing takes the place of."""
        with self._lock:
            if self._seen.epoch == epoch and not self.gone:
                self.gone = f"row {row.seq} of {row.stream}"
                seen = (row.tenant, row.stream, row.seq, row.hash)
                self._seen, self._new = self._seen._replace(row=seen, at=row.at), True
        self.save(ask=False, beside=True)  # at once: this process may be killed before its next beat

    def shown(self, gone: str) -> None:
        """The store does not hold this, which another process has put on file."""
        with self._lock:
            self.gone, self._shown = gone, True

    def committed(self, units: Sequence[Unit], outcomes: Sequence[object]) -> None:
        """A transaction was acknowledged: its last row is held from now on. The first is put on file at once."""
        first = False
        if self.gone:
            return
        for unit, outcome in zip(reversed(units), reversed(outcomes), strict=True):
            if isinstance(unit, Change) and unit.parts and isinstance(outcome, Landed) and unit.parts[-1].rows:
                row = unit.parts[-1].rows[-1]
                first = self._seen.row is None
                with self._lock:
                    epoch, _, beat, at = self._seen
                    self._seen = Witnessed(epoch, (row.tenant, row.stream, row.seq, row.hash), beat, max(row.at, at))
                    self._new = True
                break
        if first or (not self._beating and time.monotonic() - self._saved_at >= SAVE_SECONDS):
            self.save()

    def beaten(self, session: str, number: int, info: StoreInfo, epoch: int, at: int) -> None:
        """A beat was acknowledged, at this time (milliseconds), by a store that says this of itself now."""
        with self._lock:
            if self._seen.epoch == epoch and not self.gone:
                self._info = info
                self._seen, self._new = self._seen._replace(beat=(session, number), at=max(at, self._seen.at)), True
        self._beating = self._fresh = True
        self.save()

    # --- the file ---

    def load(self) -> Kept | None:
        """What the file holds (of another place, where there is none of this); None if there is none, or of another store."""
        if self.path is None:
            return None
        text = self._text(self.path)
        if text is None:
            found = [kept for path in elsewhere(self.path, self._info) if (kept := self._parsed(path, self._text(path)))]
            return max(found, key=lambda kept: (kept.seen.epoch, kept.seen.at), default=None)
        return self._parsed(self.path, text)

    def _text(self, path: Path) -> str | None:
        try:
            return path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("semel: the witness %s cannot be read (%s), and counts for nothing", path, error)
            return None

    def _parsed(self, path: Path, text: str | None) -> Kept | None:
        if text is None:
            return None
        try:
            kept = kept_of(text)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            log.warning("semel: the witness %s cannot be read (%s), and counts for nothing", path, error)
            return None
        if kept.store != self._info.id:
            log.warning("semel: %s was another store when this machine last saw it; it is taken for a new one", self._info.place)
            return None
        return kept

    def testify(self) -> None:
        """This process stops: what it saw is on file from now on, beside what another has put there, whatever that one saw.

        Whoever comes next, or writes there, asks the store for all of it.
        """
        with self._lock:
            self._new = self._new or self._something()
        self.save(ask=False, beside=True)

    def save(self, *, ask: bool = True, beside: bool = False) -> None:
        """Write the file, whole or not at all. One that knows of a later epoch, or of something later, is left alone, and so is
        one that another process wrote, until the store was asked (ask) whether it still holds that: it may be all that shows
        that the store went back. Then ours goes beside it (beside), or waits. For the same reason nothing is written before
        this process can trust what it sees.
        """
        if self.path is None or not self.trusted:
            return
        with self._lock:
            if not self._new:
                return
            self._saved_at = time.monotonic()
            try:
                for _ in range(TRIES):
                    if (written := self._try(self.path, ask, beside)) is not None:
                        self._new = not written
                        break
            except OSError as error:
                if not self._complained:
                    log.warning(
                        "semel: the witness %s cannot be written (%s): without it a restored store is not recognised after a "
                        "restart; mend the folder's permissions, or name another: export SEMEL_WITNESS=/path/to/folder",
                        self.path, error,
                    )  # fmt: skip
                self._complained = True

    def _try(self, path: Path, ask: bool, beside: bool) -> bool | None:
        """Whether the file was written; None: another process was faster, and what that one put there was not looked at."""
        text = self._text(path)
        kept = self._parsed(path, text) if text != self._written else self._own()
        if kept is None or self._gives_way(kept, self._seen, text, ask):
            return self._write(path, self._seen, kept, text)
        if beside and self._something() and not self._shown and kept.seen.epoch == self._seen.epoch:
            return self._write(path, kept.seen, kept, text, latest((*kept.also, self._seen)))
        return False

    def _own(self) -> Kept | None:
        return kept_of(self._written) if self._written else None

    def _gives_way(self, kept: Kept, seen: Witnessed, text: str | None, ask: bool) -> bool:
        if (kept.seen.epoch, kept.seen.at) > (seen.epoch, seen.at):
            return False
        # Who beats need not ask for its own: it could not have beaten on a store that went back. Who only accepts tasks could.
        if (text == self._written and not kept.also and self._beating) or kept.seen.epoch < seen.epoch:
            return True
        if not ask:
            return False
        try:
            gone = next(filter(None, map(self._missing, kept.all)), "")
        except StoreUnavailable:
            return False
        if gone:
            self.shown(gone)
            log.error("semel: the store %s went back: it does not hold %s", self._info.place, gone)
        return not gone

    def _write(
        self, path: Path, seen: Witnessed, kept: Kept | None, there: str | None, also: Sequence[Witnessed] = ()
    ) -> bool | None:
        info = self._info
        before = kept if kept is not None and kept.seen.epoch == seen.epoch else None
        durability = "asynchronous" if before and before.durability == "asynchronous" else info.durability  # it had one
        text = json.dumps({
            "store": info.id, "place": info.place, "durability": durability, **as_json(seen),
            **({"also": [as_json(one) for one in also]} if also else {}),
            "largest_ttl_ms": before.largest_ttl_ms if before and not self._fresh else info.largest_ttl_ms,
            "unfenced": info.unfenced or bool(before and before.unfenced),
        })  # fmt: skip
        if not self._put(path, text, there):
            return None
        self._written = text
        return True

    def _put(self, path: Path, text: str, there: str | None) -> bool:
        """Durably, and all of it or nothing; False: it is not as it was looked at any more."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if self._text(path) != there:
                return False
            draft.replace(path)
            return True
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


def latest(seen: Iterable[Witnessed]) -> list[Witnessed]:
    """Of what those saw who have ended, the last few: any of it that is gone shows that the store went back."""
    return sorted(dict.fromkeys(seen), key=lambda one: one.at)[-MOST_BESIDE:]


def as_json(seen: Witnessed) -> dict[str, Any]:
    """As a file holds it."""
    row = [*seen.row[:3], seen.row[3].hex()] if seen.row else None
    return {"epoch": seen.epoch, "row": row, "beat": list(seen.beat) if seen.beat else None, "at": seen.at}


def seen_of(data: Mapping[str, Any]) -> Witnessed:
    """What a file's part holds. Raises ValueError, KeyError, TypeError or IndexError."""
    row, beat = data["row"], data["beat"]
    return Witnessed(
        int(data["epoch"]),
        (str(row[0]), str(row[1]), int(row[2]), bytes.fromhex(row[3])) if row else None,
        (str(beat[0]), int(beat[1])) if beat else None,
        int(data["at"]),
    )


def kept_of(text: str) -> Kept:
    """What a file's text holds. Raises ValueError, KeyError, TypeError or IndexError."""
    data = json.loads(text)
    return Kept(
        str(data["store"]), str(data["place"]), str(data["durability"]), seen_of(data), int(data["largest_ttl_ms"]),
        bool(data["unfenced"]), tuple(map(seen_of, data.get("also", ()))),
    )  # fmt: skip


def check_folder() -> None:
    """Raise `Misuse` if $SEMEL_WITNESS names what cannot be a folder."""
    given = os.environ.get(VARIABLE)
    if given and Path(given).exists() and not Path(given).is_dir():
        raise Misuse(f"{VARIABLE}={given} is not a folder; name one: export {VARIABLE}=/var/lib/semel")

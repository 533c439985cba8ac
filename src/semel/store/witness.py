"""The witness: what this process saw acknowledged, kept outside the store, in memory and in a small file (R19).

A store that does not hold it has gone back: it was restored, or a standby took over that had not received the last of it.
The file of a SQLite store lies beside it (`agent.db.witness`), that of a database in $XDG_STATE_HOME/semel, or both in
$SEMEL_WITNESS: a disk that is not restored together with the store. Processes of one machine share it; the highest epoch
stays. Without a file a process has no witness at first, and watches for those who have one (`engine/arrival.py`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from semel.errors import Misuse
from semel.store.contract import Change, Landed, StoreInfo, Unit, Witnessed

VARIABLE = "SEMEL_WITNESS"
SAVE_SECONDS = 1.0  # how often the file is written at most, but for beats
log = logging.getLogger("semel")


class Kept(NamedTuple):
    """What a file holds. place, durability: of the store, when it was last seen."""

    store: str
    place: str
    durability: str
    seen: Witnessed


def path_of(info: StoreInfo) -> Path | None:
    """Where the witness of a store is kept; None: nowhere, since the store lives in this process alone."""
    if info.place == ":memory:":
        return None
    given = os.environ.get(VARIABLE)
    name = f"{info.id}.json" if info.tenant is None else f"{info.id}.{quote(info.tenant, safe='')}.json"  # it sees its own alone
    if given:
        return Path(given) / name
    if info.dialect == "sqlite":
        return Path(f"{info.place}.witness")
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "semel" / name


class Witness:
    """One process's witness of one store."""

    def __init__(self, info: StoreInfo) -> None:
        check_folder()
        self._info = info
        self.path = path_of(info)
        self._seen = Witnessed(info.epoch, None, None)
        self._lock = threading.Lock()
        self._saved_at = -SAVE_SECONDS
        self._beating = False
        self._new = True  # something is known that the file may not hold
        self._complained = False
        self.trusted = False  # what this process sees is a measure: it knows, or has watched, that the store did not go back

    # --- what is seen ---

    @property
    def seen(self) -> Witnessed:
        """The last that this process saw acknowledged."""
        return self._seen

    def evidence(self) -> tuple[Witnessed, ...]:
        """What the store must hold: what this process saw, and what others of this machine, who work there too, put on file."""
        self.save()  # whoever comes next must know it, even if this process goes
        kept = self.load() if self.trusted else None  # one that is not sure yet must come in, to look into it
        return (self._seen, kept.seen) if kept is not None and kept.place == self._info.place else (self._seen,)

    def begin(self, info: StoreInfo) -> None:
        """From here on the store is in this epoch; what was seen before is no measure of it any more.

        An epoch before the one that was seen is none that begins: the store went back.
        """
        with self._lock:
            self._info = info
            if self._seen.epoch < info.epoch:
                self._seen, self._new = Witnessed(info.epoch, None, None), True

    def adopt(self, seen: Witnessed) -> None:
        """What the file said, and the store holds: a measure for this process too."""
        with self._lock:
            if seen.epoch == self._seen.epoch and self._seen.row is None and self._seen.beat is None:
                self._seen, self._new = seen, False

    def committed(self, units: Sequence[Unit], outcomes: Sequence[object]) -> None:
        """A transaction was acknowledged: its last row is held from now on."""
        for unit, outcome in zip(reversed(units), reversed(outcomes), strict=True):
            if isinstance(unit, Change) and unit.parts and isinstance(outcome, Landed) and unit.parts[-1].rows:
                row = unit.parts[-1].rows[-1]
                with self._lock:
                    self._seen = self._seen._replace(
                        row=(row.tenant, row.stream, row.seq, row.hash), at=max(row.at, self._seen.at)
                    )
                    self._new = True
                break
        if not self._beating and time.monotonic() - self._saved_at >= SAVE_SECONDS:
            self.save()

    def beaten(self, session: str, number: int, info: StoreInfo, epoch: int, at: int) -> None:
        """A beat was acknowledged, at this time (milliseconds), by a store that says this of itself now."""
        with self._lock:
            if self._seen.epoch == epoch:
                self._info = info
                self._seen, self._new = self._seen._replace(beat=(session, number), at=max(at, self._seen.at)), True
        self._beating = True
        self.save()

    # --- the file ---

    def load(self) -> Kept | None:
        """What the file holds; None if there is none, or it is of another store."""
        if self.path is None:
            return None
        try:
            data = json.loads(self.path.read_text("utf-8"))
            row, beat = data["row"], data["beat"]
            seen = Witnessed(
                int(data["epoch"]),
                (str(row[0]), str(row[1]), int(row[2]), bytes.fromhex(row[3])) if row else None,
                (str(beat[0]), int(beat[1])) if beat else None,
                int(data["at"]),
            )
            kept = Kept(str(data["store"]), str(data["place"]), str(data["durability"]), seen)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            log.warning("semel: the witness %s cannot be read (%s), and counts for nothing", self.path, error)
            return None
        if kept.store != self._info.id:
            log.warning("semel: %s was another store when this machine last saw it; it is taken for a new one", self._info.place)
            return None
        return kept

    def save(self) -> None:
        """Write the file, whole or not at all. One that knows of a later epoch, or of something later, is left alone.

        Nothing is written before this process can trust what it sees: the file may be all that shows that the store went back.
        """
        if self.path is None or not self.trusted:
            return
        with self._lock:
            if not self._new:
                return
            self._saved_at = time.monotonic()
            seen, info = self._seen, self._info
            try:
                if self._is_later(seen):
                    return
                self._write(self.path, seen, info)
                self._new = False
            except OSError as error:
                if not self._complained:
                    log.warning(
                        "semel: the witness %s cannot be written (%s): without it a restored store is not recognised after a "
                        "restart; mend the folder's permissions, or name another: export SEMEL_WITNESS=/path/to/folder",
                        self.path, error,
                    )  # fmt: skip
                self._complained = True

    def _is_later(self, seen: Witnessed) -> bool:
        assert self.path is not None
        try:
            data = json.loads(self.path.read_text("utf-8"))
            return bool(data["store"] == self._info.id and (data["epoch"], data["at"]) > (seen.epoch, seen.at))
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _write(self, path: Path, seen: Witnessed, info: StoreInfo) -> None:
        row = [*seen.row[:3], seen.row[3].hex()] if seen.row else None
        text = json.dumps({
            "store": info.id, "place": info.place, "durability": info.durability, "epoch": seen.epoch, "row": row,
            "beat": list(seen.beat) if seen.beat else None, "at": seen.at,
        })  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


def check_folder() -> None:
    """Raise `Misuse` if $SEMEL_WITNESS names what cannot be a folder."""
    given = os.environ.get(VARIABLE)
    if given and Path(given).exists() and not Path(given).is_dir():
        raise Misuse(f"{VARIABLE}={given} is not a folder; name one: export {VARIABLE}=/var/lib/semel")

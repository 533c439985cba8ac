"""Gates: places at which a worker process parks itself, until whoever runs the crash test kills, freezes or lets it go."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

PAUSE_SECONDS = 0.004
LONGEST = 160


@dataclass(frozen=True)
class Setting:
    """What a worker process is told. lease, during, settle, ask: seconds; settle: Lookup's at most (None: as declared).

    during: how long after its beginning a call is in the middle. lose: the effect whose first reply is lost.
    """

    target: str
    store: str
    room: str
    parent: int
    log: str
    lease: float
    during: float = 0.0
    settle: float | None = None
    ask: float = 0.2
    lose: str = ""

    def text(self) -> str:
        """As one line. It holds the store's URL, and so perhaps a password."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """The same, back."""
        return cls(**json.loads(text))


class Room:
    """A folder that both sides see: what is armed, who has come to it, what is open, and what processes noted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _file(self, gate: str, what: str) -> Path:
        name = quote(gate, safe=" #")
        if len(name) > LONGEST:  # an effect's name may have 200 letters of any script; a file's, 255 bytes
            name = f"{name[: LONGEST // 2]}~{sha256(gate.encode()).hexdigest()}"
        return self.path / f"{name}.{what}"

    # --- outside ---

    def arm(self, *gates: str) -> None:
        """The first process that comes to each gate parks there."""
        for gate in gates:
            self._file(gate, "armed").touch()

    def at(self, gate: str) -> int | None:
        """The pid of the process that has parked there."""
        try:
            return int(self._file(gate, "at").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def open(self, gate: str) -> None:
        """Let it go on."""
        self._file(gate, "open").touch()

    def notes(self) -> list[dict[str, Any]]:
        """What processes noted, in order; a line that a kill has cut is left out."""
        path = self.path / "notes"
        found = []
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    # --- inside ---

    def armed(self, gate: str) -> bool:
        """Whether somebody waits for a process at this gate."""
        return self._file(gate, "armed").exists()

    def park(self, gate: str) -> None:
        """Stand still here if the gate is armed and nobody was here before, until it is opened."""
        mine = self._file(gate, f"armed.{os.getpid()}")
        try:
            self._file(gate, "armed").rename(mine)
        except FileNotFoundError:
            return
        mine.write_text(str(os.getpid()))
        mine.rename(self._file(gate, "at"))
        open_now = self._file(gate, "open")
        while not open_now.exists():
            time.sleep(PAUSE_SECONDS)

    def note(self, **what: Any) -> None:
        """A line for the other side; lines of several processes do not mix."""
        line = json.dumps({**what, "pid": os.getpid(), "at": time.time()}) + "\n"
        notes = os.open(self.path / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(notes, line.encode())
        finally:
            os.close(notes)

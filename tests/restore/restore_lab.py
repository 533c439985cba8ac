"""A laboratory whose store can be taken back: real worker processes, a real provider that counts."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from going_back import Place
from lab import APPS as WIRE
from lab import Lab, until

import semel
from semel.machine import epochs
from semel.machine import journal as j
from semel.machine.effects import EPOCH_SHIFT
from semel.testing.provider import Request

__all__ = ["RestoreLab", "until"]
HERE = Path(__file__).parent / "apps"
SOURCE = Path(semel.__file__).parents[1]  # what is tested here, in the workers too: a copy, under sabotage
LEASE = timedelta(seconds=2)


class RestoreLab(Lab):
    """A lab on a store that goes back."""

    def __init__(self, root: Path, place: Place, **env: str) -> None:
        self.place = place
        path = ":".join(str(folder) for folder in (SOURCE, HERE, WIRE))
        super().__init__(root, place.url, **{"PYTHONPATH": path, "CRASH_LEASE": str(LEASE.total_seconds()), **env})

    def open_app(self) -> semel.App:
        return semel.App(self.url, lease=LEASE)

    def keeper(self, lease: float = LEASE.total_seconds()) -> Any:
        """A worker."""
        return self.worker("keeper", script="run_worker.py", CRASH_LEASE=str(lease))

    def give(self, action: str, ref: str = "") -> semel.Ref[Any]:
        """Accept a task that does this, once."""
        return self.enqueue("work", f"{action}.{ref or action}", action=action, ref=ref or action)

    def back_up(self, name: str = "backup") -> None:
        self.app.close()
        self.place.back_up(name)
        self.app = self.open_app()

    def go_back(self, name: str = "backup") -> None:
        """All that is under way is lost with its machine, and the store goes back."""
        for worker in self.workers:
            if worker.alive:
                worker.kill()
        self.app.close()
        self.place.go_back(name)
        self.app = self.open_app()

    def epoch(self) -> epochs.Epoch:
        """As the store tells."""
        return epochs.fold(self.app.runtime.desk.store.rows(epochs.TENANT, epochs.STREAM))

    def has_begun(self) -> bool:
        """Whether somebody has noticed."""
        return any(r.kind == j.EpochBegan.kind for r in self.app.runtime.desk.store.rows(epochs.TENANT, epochs.STREAM))

    def sent(self, ref: str) -> list[Request]:
        """The requests that asked the provider to do this."""
        keys = {act.key for act in self.acts() if act.body["ref"] == ref}
        return [r for r in self.provider.requests() if r.method != "GET" and r.key in keys]


def epoch_of(token: int | None) -> int:
    """Of a token."""
    assert token is not None
    return token >> EPOCH_SHIFT

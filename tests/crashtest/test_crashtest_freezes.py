"""Who is frozen holds no lock of the store: else nobody could take over, and the run would be stuck."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import apsw
import pytest

from semel.testing.crashtest import world
from semel.testing.crashtest.stores import Files
from semel.testing.crashtest.world import Child, Stuck, World


class Committing:
    """A worker that is in the middle of a commit so often when it is stopped."""

    def __init__(self, file: Path, times: int) -> None:
        self.db, self.left = apsw.Connection(str(file)), times
        self.did: list[str] = []

    def freeze(self) -> None:
        self.did.append("frozen")
        if self.left:
            self.left -= 1
            self.db.execute("BEGIN IMMEDIATE")

    def wake(self) -> None:
        self.did.append("woken")
        self.db.execute("COMMIT")


def frozen(file: Path, times: int) -> list[str]:
    child = Committing(file, times)
    at = cast(Any, SimpleNamespace(stores=Files(), url=f"sqlite:///{file}"))
    try:
        World.freeze(at, cast(Child, child))
    finally:
        child.db.close()
    return child.did


def test_one_who_is_in_the_middle_of_a_commit_is_stopped_again(tmp_path: Path) -> None:
    assert frozen(tmp_path / "a.db", 0) == ["frozen"]
    assert frozen(tmp_path / "b.db", 2) == ["frozen", "woken"] * 2 + ["frozen"]


def test_one_who_always_is_makes_the_run_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "MOST_FREEZES", 2)
    with pytest.raises(Stuck, match="in the middle of a commit"):
        frozen(tmp_path / "a.db", 9)

"""Throw-away stores: a file for each run, or a database for each run beside the one that the user named."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Stores:
    """Makes them."""

    postgres: bool = False

    def new(self, folder: Path) -> str:
        """The URL of a new one."""
        return f"sqlite:///{folder / 'agent.db'}"


@contextlib.contextmanager
def stores_at(url: str) -> Iterator[Stores]:
    """Those of one crash test, gone at its end."""
    yield Stores()

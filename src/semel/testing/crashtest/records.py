"""What one run leaves for the diagnosis, and what the diagnosis says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Run:
    """One run of the task. point: the injection, as the table names it; the dry run's is "dry run".

    logs: what the watch wrote, a file for each process, oldest first. counted: effects at the resource by key (nothing
    without a probe). journal: the rows of the task's stream and of the keys that it joined, in order, as dictionaries:
    tenant, stream, seq, kind, actor, token, at (milliseconds since the Unix epoch), body (decoded).
    """

    point: str
    logs: list[Path] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    journal: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Fault:
    """A mistake of the user's own code. name: of its kind. where: "file.py:12". what happens, and how to mend it."""

    name: str
    where: str
    what: str
    mend: str

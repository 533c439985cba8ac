"""The root of all events: something that has happened, and stands in a journal."""

from __future__ import annotations

from typing import ClassVar

from semel.machine.records import record


@record
class Happened:
    """The root of all events."""

    kind: ClassVar[str] = ""

"""`semel crashtest`: the user's own task in real worker processes, killed, frozen and cut at every boundary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.testing.crashtest.records import Fault
    from semel.testing.crashtest.report import Report, Row

__all__ = ["Fault", "Report", "Row"]

_IN = {"Fault": "records", "Report": "report", "Row": "report"}


def __getattr__(name: str) -> Any:
    """Import what is asked for: a worker process needs none of it."""
    module = _IN.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"semel.testing.crashtest.{module}"), name)

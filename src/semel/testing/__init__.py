"""For tests of programs that use semel: a harness with a clock of its own, and a sandbox provider (`semel.testing.provider`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.testing.harness import Harness
    from semel.testing.stage import Died, Sent, VirtualClock

__all__ = ["Died", "Harness", "Sent", "VirtualClock"]

_IN = {"Harness": "harness", "Died": "stage", "Sent": "stage", "VirtualClock": "stage"}


def __getattr__(name: str) -> Any:
    """Import what is asked for: a sandbox provider's process needs no worker."""
    module = _IN.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"semel.testing.{module}"), name)

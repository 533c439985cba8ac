"""semel (Latin: once): each effect of an unattended agent on the outside world happens once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.app import App
    from semel.app import current_work as current
    from semel.decorated import Call, Effect, Executes, Task, bind, sleep, spend, wait_for
    from semel.direct import Work
    from semel.engine.dead import Handled
    from semel.engine.planned import Planned
    from semel.errors import AlreadyDone, Misuse, NotDone, Refused, SemelError, StoreUnavailable, Suspended, Unsettled
    from semel.machine.forecast import Forecast
    from semel.model import (
        Ask,
        Atomic,
        Confirmed,
        Conflict,
        DeadLetters,
        Delivery,
        EffectState,
        EffectView,
        Event,
        Execution,
        Limits,
        Lookup,
        NotFound,
        Recovery,
        Ref,
        Repeat,
        Resend,
        Retry,
        Submission,
        TaskView,
        Unavailable,
        Verdict,
    )

__version__ = "0.1.0"

__all__ = [
    "AlreadyDone",
    "App",
    "Ask",
    "Atomic",
    "Call",
    "Confirmed",
    "Conflict",
    "DeadLetters",
    "Delivery",
    "Effect",
    "EffectState",
    "EffectView",
    "Event",
    "Executes",
    "Execution",
    "Forecast",
    "Handled",
    "Limits",
    "Lookup",
    "Misuse",
    "NotDone",
    "NotFound",
    "Planned",
    "Recovery",
    "Ref",
    "Refused",
    "Repeat",
    "Resend",
    "Retry",
    "SemelError",
    "StoreUnavailable",
    "Submission",
    "Suspended",
    "Task",
    "TaskView",
    "Unavailable",
    "Unsettled",
    "Verdict",
    "Work",
    "bind",
    "current",
    "sleep",
    "spend",
    "wait_for",
]

_IN = {
    "app": ("App",),
    "decorated": ("Call", "Effect", "Executes", "Task", "bind", "sleep", "spend", "wait_for"),
    "direct": ("Work",),
    "engine.dead": ("Handled",),
    "engine.planned": ("Planned",),
    "errors": ("AlreadyDone", "Misuse", "NotDone", "Refused", "SemelError", "StoreUnavailable", "Suspended", "Unsettled"),
    "machine.forecast": ("Forecast",),
}
_HOME = {name: home for home, names in _IN.items() for name in names}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import what is asked for, once: a sandbox provider or a test run that loads our pytest plugin needs no engine."""
        import importlib

        if name not in __all__:
            try:  # a module of ours: `semel.errors` is found without importing it by name
                return importlib.import_module(f"{__name__}.{name}" if name[0] != "_" else "")
            except (ModuleNotFoundError, ValueError) as error:
                if getattr(error, "name", None) not in (None, f"{__name__}.{name}"):
                    raise  # it is there, and what it needs is not
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        home, there = ("app", "current_work") if name == "current" else (_HOME.get(name, "model"), name)
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{home}"), there)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

"""semel (Latin: once): each effect of an unattended agent on the outside world happens once."""

from semel.app import App
from semel.app import current_work as current
from semel.decorated import Effect, Executes, Task, bind, sleep, spend, wait_for
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

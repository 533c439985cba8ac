"""What a procedure may ask of the driver that runs it. Not frozen: a frozen one takes three times as long to make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from semel.store.writer import Signal


@dataclass(slots=True)
class Await:
    """Wait until it happens; answered with its value. seconds: at most so long, then None is the answer."""

    signal: Signal
    seconds: float | None = None


@dataclass(slots=True)
class Sleep:
    """Let time pass."""

    seconds: float


@dataclass(slots=True)
class Call:
    """Call the user's code; answered with Returned, Raised or TimedOut. late: told the end of what outlived its timeout."""

    fn: Callable[..., Any]
    is_async: bool
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    late: Callable[[Returned | Raised], None] | None = None
    inline: bool = False  # may run in the driver's own thread: nothing has to outlive it


@dataclass(slots=True)
class Returned:
    value: Any


@dataclass(slots=True)
class Raised:
    error: BaseException


@dataclass(slots=True)
class TimedOut:
    """Its time is over, and its code may still be running."""


Reply = Returned | Raised | TimedOut
Request = Await | Sleep | Call

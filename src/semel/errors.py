"""Every error that semel raises, under one root. A message says what happened, why, and the line to type next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from semel.model import Ref

Why = Literal["leased", "queued", "unknown", "blocked", "dead_lettered", "cancelled"]


class SemelError(Exception):
    """The root of semel's errors."""


class Misuse(SemelError):
    """Your code or configuration, with the mend. Nothing has changed."""


class StoreUnavailable(SemelError):
    """The store did not answer. What was not acknowledged may or may not be on record; it will be read again."""


class Refused(SemelError):
    """The machine said no, and the agent may read it.

    `code` is one of already_done, intent_changed, limit_reached, denied; `result` is the recorded result of already_done.
    """

    def __init__(self, code: str, message: str = "", result: Any = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.result = result


class NotDone(SemelError):
    """Proof that nothing happened; raise it inside an effect.

    `retry=True` is tried again with backoff, up to the effect's `tries`; `retry=False` is recorded, and raised again
    whenever the same effect is called. `detail` is recorded with it (data only).
    """

    def __init__(self, reason: str, *, retry: bool = True, detail: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry
        self.detail = dict(detail or {})


class AlreadyDone(SemelError):
    """It exists already, and bears our key; raise it inside an effect. `result` is recorded as the effect's result."""

    def __init__(self, result: object) -> None:
        super().__init__("already done")
        self.result = result


class Unsettled(SemelError):
    """Leaves run, work and result: the task is accepted and safe on record, and not finished."""

    def __init__(self, ref: Ref[Any], why: Why, message: str = "") -> None:
        super().__init__(message or f"task {ref.id} is {why}; see: semel why {ref.id}")
        self.ref = ref
        self.why: Why = why


class Suspended(BaseException):
    """Unwinds a handler whose attempt is over. Never catch it: the machine refuses whatever such a handler starts next."""

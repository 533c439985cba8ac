"""What people type, read in one way by every command: lengths of time, moments, and whether they mean it."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta

from rich.console import Console

from semel.cli import output as out
from semel.errors import Misuse

_LENGTH = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _length(text: str) -> timedelta | None:
    found = _LENGTH.fullmatch(text.strip())
    return timedelta(**{_UNITS[found[2]]: int(found[1])}) if found is not None else None


def length_of(option: str, text: str | None, *, zero: bool = False) -> timedelta | None:
    """A length of time: 90s, 30m, 2h, 7d. zero: it may be none at all. Raises `Misuse`."""
    if text is None:
        return None
    length = timedelta(0) if text.strip() == "0" else _length(text)
    if length is None or (not length and not zero):
        raise Misuse(f"{option} {out.clipped(text, 40)!r} is no length of time; write 90s, 30m, 2h or 7d")
    return length


def moment_of(option: str, text: str | None) -> datetime | None:
    """A time, or how long ago: 2026-01-31T03:00+01:00, 2h, 7d; without a zone it is local. Raises `Misuse`."""
    if text is None:
        return None
    try:
        ago = _length(text)
        return datetime.now().astimezone() - ago if ago is not None else datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise Misuse(f"{option} {out.clipped(text, 40)!r} is no time; write 2h or 7d (ago), or 2026-01-31T03:00+01:00") from None


def ms_of(option: str, text: str | None) -> int | None:
    """The same, as milliseconds since the Unix epoch."""
    then = moment_of(option, text)
    return None if then is None else int(then.timestamp() * 1000)


def can_ask(yes: bool, as_json: bool, look: str) -> None:
    """Raise `Misuse` where somebody must be asked, and nobody can be. look: how to see first what would happen."""
    if not yes and (as_json or not sys.stdin.isatty()):
        raise Misuse(f"this is done only if somebody means it, and nobody is here to be asked; look first ({look}), then --yes")


def confirmed(question: str) -> bool:
    """Whether they mean it. Asked on standard error: standard output is for what came of it."""
    Console(stderr=True, highlight=False, markup=False).print(f"{question} [y/N] ", end="")
    return input().strip().lower() in ("y", "yes")

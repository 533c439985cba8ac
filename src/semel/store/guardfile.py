"""Nobody else in this process may open a store's file: closing another descriptor of it drops its POSIX locks.

It was tried: 20 of 20 acknowledged commits were lost so. The standard library's sqlite3 is another SQLite with
descriptors of its own, and so is a plain open(). An audit hook refuses both; apsw's own connections know each other.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from semel.errors import Misuse

_guarded: dict[str, int] = {}  # real path -> how many stores hold it
_names: frozenset[str] = frozenset()
_installed = False
_SUFFIXES = ("", "-wal", "-shm")


def guard(path: Path) -> None:
    """Refuse, from now on, that anything but apsw opens `path` in this process."""
    global _installed
    if not _installed:
        sys.addaudithook(_hook)
        _installed = True
    real = str(path.resolve())
    _guarded[real] = _guarded.get(real, 0) + 1
    _renew()


def release(path: Path) -> None:
    """The store let go of its file."""
    real = str(path.resolve())
    _guarded[real] = _guarded.get(real, 1) - 1
    if _guarded[real] <= 0:
        del _guarded[real]
    _renew()


def _renew() -> None:
    global _names
    _names = frozenset(os.path.basename(real) + suffix for real in _guarded for suffix in _SUFFIXES)  # noqa: PTH119


def _hook(event: str, args: tuple[object, ...]) -> None:
    if not _names or event not in ("open", "sqlite3.connect") or not args:
        return
    name = args[0]
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    if not isinstance(name, str | os.PathLike):
        return
    plain = os.fspath(name).removeprefix("file:").split("?")[0]
    base = plain.rsplit("/", 1)[-1]
    if base not in _names or base.endswith("-shm"):
        return
    real = os.path.realpath(plain)
    if any(real == held + suffix for held in _guarded for suffix in _SUFFIXES):
        raise Misuse(
            f"{plain} is open as semel's store, and opening it by {event} in the same process would drop the store's locks "
            f"when it is closed again, and lose commits; read it with app.tasks, app.effects and app.journal, or from "
            f"another process"
        )

"""Nobody else in this process may open a store's files: closing another descriptor of one drops its POSIX locks.

It was tried: with the database, 20 of 20 acknowledged commits were lost so; with its -shm, another process got the write
lock in the middle of a transaction. The standard library's sqlite3 is another SQLite with descriptors of its own, and so
is a plain open(). An audit hook refuses both, by whatever name (a link, a relative path); apsw's own connections know
each other. It sees neither ATTACH, nor a path relative to a descriptor (dir_fd), nor what a C library opens by itself.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from urllib.parse import unquote

from semel.errors import Misuse

_guarded: dict[str, int] = {}  # real path -> how many stores hold it
_files: tuple[str, ...] = ()  # all that is refused; replaced, never changed, since any thread may be reading it
_lock = threading.Lock()
_installed = False
_SUFFIXES = ("", "-wal", "-shm")


def guard(path: Path) -> str:
    """Refuse, from now on, that anything but apsw opens `path` in this process. What to give to `release`."""
    global _installed
    real = str(path.resolve())
    with _lock:
        if not _installed:
            sys.addaudithook(_hook)
            _installed = True
        _guarded[real] = _guarded.get(real, 0) + 1
        _renew()
    return real


def release(real: str) -> None:
    """The store let go of its file."""
    with _lock:
        _guarded[real] -= 1
        if not _guarded[real]:
            del _guarded[real]
        _renew()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it


os.register_at_fork(after_in_child=_after_fork_in_child)


def _renew() -> None:
    global _files
    _files = tuple(real + suffix for real in _guarded for suffix in _SUFFIXES)


def _hook(event: str, args: tuple[object, ...]) -> None:
    if not _files or event not in ("open", "sqlite3.connect") or not args:
        return
    name = args[0]
    if isinstance(name, os.PathLike):
        name = os.fspath(name)
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    if not isinstance(name, str):
        return
    for plain in _meant(name, event):
        opened = _identity(plain)
        if opened is not None and any(opened == _identity(file) for file in _files):
            raise Misuse(
                f"{plain} is open as semel's store, and opening it by {event} in the same process would drop the store's "
                f"locks when it is closed again, and lose commits; read it with app.tasks, app.effects and app.journal, or "
                f"from another process"
            )


def _meant(name: str, event: str) -> tuple[str, ...]:
    """The paths that a name may stand for: sqlite3 takes URIs too."""
    if event == "open" or not name.startswith("file:"):
        return (name,)
    path = unquote(name.removeprefix("file:").split("?")[0].split("#")[0])
    if path.startswith("//"):
        path = "/" + path[2:].partition("/")[2]
    return (name, path)


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode: a file has many names."""
    try:
        found = os.stat(path)  # noqa: PTH116  (any open() of the process comes by here)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino

"""Where code runs in a watched worker process: in which handler, effect or lookup, and at which of the user's own lines."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import semel
from semel.decorated import _in_step
from semel.engine import acting

Kind = Literal["handler", "effect", "lookup", "aside"]  # aside: an identity function or an approve predicate
Place = tuple[str, int, str]  # file, line, function

_SEMEL = str(Path(semel.__file__).parent) + os.sep
_TESTING = str(Path(semel.__file__).parent / "testing") + os.sep
_LIBRARIES = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_MOST = 30  # frames of the user's own that are kept


@dataclass(eq=False)
class Scene:
    """One run of one of the user's functions. n: of the submission. lose: its first reply is to be lost; lost: it was."""

    kind: Kind
    name: str = ""
    task: str = ""
    attempt: int = 0
    key: str = ""
    n: int = 0
    lose: bool = False
    lost: bool = False
    acts: int = 0  # what it was seen to open, connect to, send or start
    writes: int = 0  # requests in clear that may change something
    reads: int = 0
    after: int = 0  # requests that may change something, and connections, after the loss
    after_reads: int = 0
    clear: bool = False  # its bytes could be read
    key_sent: bool = False
    coroutine: Any = None
    thread: int = field(default_factory=threading.get_ident)

    def told(self) -> dict[str, Any]:
        """Which it is, for a record."""
        named = {"name": self.name, "task": self.task, "attempt": self.attempt, "key": self.key, "n": self.n}
        return {name: value for name, value in named.items() if value}


current: ContextVar[Scene | None] = ContextVar("semel_scene", default=None)


def here() -> Scene | None:
    """The scene of this code; None in a step, which may be repeated, and outside any."""
    found = current.get()
    return None if found is None or _in_step.get() else found


# --- the record ---------------------------------------------------------------------------------------------------------


class Log:
    """Lines of JSON, each written at once: a killed process has told all that it saw."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, what: str, **told: Any) -> None:
        """One record."""
        line = json.dumps({"what": what, "at": time.time(), "pid": os.getpid(), **told}, default=repr)
        os.write(self._fd, line.encode() + b"\n")


# --- the user's own lines -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stack:
    """own: the user's lines, innermost first. via: the library modules between the innermost and what happens now."""

    own: tuple[Place, ...]
    via: frozenset[str]
    semels: bool = False  # it is semel that does it


class Files:
    """Whose a file is. declared: the files of functions that an app declares, which are the user's wherever they stand."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def declare(self, file: str) -> None:
        """This one is the user's."""
        self._known[file] = "user"

    def whose(self, file: str) -> str:
        """user, semel or library."""
        found = self._known.get(file)
        if found is None:
            found = self._known[file] = self._judged(file)
        return found

    def _judged(self, file: str) -> str:
        if file.startswith("<"):
            return "library"
        if file.startswith(_SEMEL):
            return "library" if file.startswith(_TESTING) or file == acting.__file__ else "semel"  # that stands in pools' way
        if file.startswith(_LIBRARIES) or f"{os.sep}site-packages{os.sep}" in file:
            return "library"
        return "user"


files = Files()


def lines_here() -> tuple[Place, ...]:
    """The user's lines that called semel."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _ends(frame) and files.whose(frame.f_code.co_filename) != "user":
        frame = frame.f_back
    return _of_frames(frame).own


def waits_at(scene: Scene) -> Stack:
    """Where a scene's own code waits for what runs here, in another task or thread."""
    return _of_coroutine(scene.coroutine) if scene.coroutine is not None else _of_thread(scene.thread)


def stack_here(scene: Scene | None = None) -> Stack:
    """The user's lines that led here. If there are none (a task or a thread of a library's), where `scene` waits."""
    found = _of_frames(sys._getframe(1))
    if found.own or found.semels or scene is None:
        return found
    waiting = waits_at(scene)
    return Stack(waiting.own, found.via | waiting.via, waiting.semels)


def _of_frames(frame: FrameType | None) -> Stack:
    own: list[Place] = []
    via: set[str] = set()
    while frame is not None and len(own) < _MOST and not _ends(frame):
        whose = files.whose(frame.f_code.co_filename)
        if whose == "semel":
            return Stack(tuple(own), frozenset(via), not own)
        if whose == "user":
            own.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        elif not own:
            via.add(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return Stack(tuple(own), frozenset(via))


def _ends(frame: FrameType) -> bool:
    """What is further out has started the loop or the thread, and not what runs in it."""
    module, name = frame.f_globals.get("__name__"), frame.f_code.co_name
    return (module == "asyncio.events" and name == "_run") or (module == "threading" and name.startswith("_bootstrap"))


def _of_thread(thread: int) -> Stack:
    if thread == threading.get_ident():
        return Stack((), frozenset())
    return _of_frames(sys._current_frames().get(thread))


def _of_coroutine(coroutine: Any) -> Stack:
    """Where a coroutine waits: from its own frame down to the innermost that it awaits."""
    own: list[Place] = []
    semels = False
    while coroutine is not None:
        frame = _first(coroutine, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            whose = files.whose(frame.f_code.co_filename)
            if whose == "user":
                own.insert(0, (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            if whose != "library":
                semels = whose == "semel"
        coroutine = _first(coroutine, "cr_await", "gi_yieldfrom", "ag_await")
    return Stack(tuple(own[:_MOST]), frozenset(), semels)


def _first(thing: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(thing, name, None)) is not None), None)

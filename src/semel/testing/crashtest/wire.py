"""What code does to the outside world, as Python sees it: connections, requests in clear, processes, files, databases.

An audit hook sees what is opened; `socket` and `ssl` are watched for what is sent, under the encryption too where it is
Python's own. What a C library does by itself (libpq, gRPC, uvloop) is not seen, and nothing is said of it.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import sqlite3
import ssl
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from semel.testing.crashtest.scene import Log, Scene, current, here, stack_here

READS = ("GET", "HEAD", "OPTIONS", "TRACE", "CONNECT")
_REQUEST = re.compile(rb"([A-Z]{3,10}) (\S+) HTTP/1\.[01]\r\n")
_HOST = re.compile(rb"\r\nhost: *([^\r\n]+)", re.IGNORECASE)
_SIGN_ON = re.compile(r"token|oauth|login|auth\b", re.IGNORECASE)  # asking for a token again is harmless
_WRITES_SQL = re.compile(r"\s*(insert|update|delete|replace|create|drop|alter)\b", re.IGNORECASE)
_QUOTED_TABLE = re.compile(r'\b(into|from|update|table) "(\w+)"', re.IGNORECASE)
_VALUE = re.compile(r"""['"`]|\b[xXbBeE]'|--|/\*|(?<![\w$])-?\d|\$""")
_PLAIN_SEGMENT = re.compile(r"[A-Za-z_.-]{1,24}|v\d+")
_LOOKED_AT = 1 << 16  # bytes of what is sent
# Packages that do something of their own on the way to what the user asked of them: logs, telemetry, imports.
_HARMLESS_VIA = {
    "logging", "loguru", "structlog", "concurrent_log_handler", "opentelemetry", "sentry_sdk", "ddtrace", "newrelic", "logfire",
    "langsmith", "langfuse", "warnings", "importlib", "tempfile", "platform", "ctypes", "uuid", "linecache", "py_compile",
    "multiprocessing", "coverage",
}  # fmt: skip
_PROCESSES = {"subprocess.Popen": 0, "os.system": 0, "os.posix_spawn": 0, "os.spawn": 1, "pty.spawn": 0}


@dataclass(frozen=True)
class Request:
    """The head of an HTTP request."""

    method: str
    path: str
    host: str

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.method in READS

    def __str__(self) -> str:
        return f"{self.method} {tame_path(self.path)}"


# What is told goes into reports and logs, which are read by more people than may know what the code handles: no values.


def tame_path(path: str) -> str:
    """The first segment of a URL's path, unless it may be a secret itself; what follows may be one, or somebody's name."""
    first, _, rest = path.partition("?")[0].removeprefix("/").partition("/")
    if _PLAIN_SEGMENT.fullmatch(first) is None:
        return "/…" if first else "/"
    return f"/{first}/…" if rest else f"/{first}"


def tame_sql(statement: str) -> str:
    """A statement up to its first value."""
    words = _QUOTED_TABLE.sub(r"\1 \2", " ".join(statement.split()))
    value = _VALUE.search(words)
    cut = value.start() if value is not None else len(words)
    return words[: min(cut, 60)].rstrip() + (" …" if cut < len(words) else "")


def program_of(words: Sequence[str]) -> str:
    """What is started, without its arguments: of a command for a shell, its first word that sets no variable."""
    line = words[0] if len(words) == 1 else ""
    named = next((word for word in line.split() if not re.match(r"\w+=", word)), "") or words[0]
    return named.strip("'\"();&|")[:100]


class Wire:
    """Watches this process from `open` on, to its end."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._names: dict[str, str] = {}  # of addresses, as they were resolved
        self._awaits: weakref.WeakKeyDictionary[Any, tuple[Scene, Request]] = weakref.WeakKeyDictionary()
        self._dead: weakref.WeakSet[Any] = weakref.WeakSet()
        self._told: weakref.WeakKeyDictionary[Any, Scene] = weakref.WeakKeyDictionary()  # pipes whose bytes mean nothing to us
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # of pipes
        self._by_file: dict[int, int] = {}
        self._next = itertools.count(1)
        self._scratch: set[str] = set()
        self._busy = threading.local()

    def open(self) -> None:
        """Begin."""
        sys.addaudithook(self._audit)
        _watch_names(self._names)
        _watch_pools()
        sqlite3.connect = self._connecting_sqlite(sqlite3.connect)  # type: ignore[assignment]
        for kind, sends in (
            (socket.socket, ("send", "sendall")),
            (ssl.SSLSocket, ("send", "write")),
            (ssl.SSLObject, ("write",)),
        ):
            for name in sends:
                _replace(kind, name, self._sending)
        _replace(socket.socket, "sendmsg", self._sending_many)
        for kind, name in (
            (socket.socket, "recv"),
            (socket.socket, "recv_into"),
            (ssl.SSLSocket, "read"),
            (ssl.SSLObject, "read"),
        ):
            _replace(kind, name, self._receiving)

    # --- audit events ---

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "tempfile.mkdtemp" or event == "tempfile.mkstemp":
            self._scratch.add(str(args[0]))
            return
        watcher = _WATCHERS.get(event) or (_a_process if event in _PROCESSES else None)
        if watcher is None or getattr(self._busy, "on", False):
            return
        scene = here()
        if scene is None or scene.kind == "aside":
            return
        self._busy.on = True
        try:
            watcher(self, scene, event, args)
        except Exception as error:  # the user's code goes on, and the tests of the watch see it
            self._log.note("broken", event=event, error=repr(error))
        finally:
            self._busy.on = False

    def _number(self, pipe: Any) -> int:
        """Which connection it is."""
        if pipe not in self._numbers:
            known = (
                self._by_file.get(pipe.fileno()) if isinstance(pipe, ssl.SSLSocket) else None
            )  # made of one that had connected
            self._numbers[pipe] = known or next(self._next)
            if isinstance(pipe, socket.socket):
                self._by_file[pipe.fileno()] = self._numbers[pipe]
        return self._numbers[pipe]

    def outside(self, scene: Scene, act: str, to: str, **more: Any) -> None:
        """Something was done: counted in a lookup and in an effect; in a handler it is told, with the line."""
        scene.acts += 1
        if scene.kind != "handler":
            return
        stack = stack_here(scene)
        if stack.own and not stack.semels and not {module.partition(".")[0] for module in stack.via} & _HARMLESS_VIA:
            self._log.note("outside", act=act, to=to, frames=stack.own, **more, **scene.told())

    def connecting(self, scene: Scene, event: str, args: tuple[Any, ...]) -> None:
        """A connection is opened."""
        pipe, address = args
        if pipe.type != socket.SOCK_STREAM:
            return  # datagrams: names, logs, metrics
        if scene.kind == "effect" and scene.lost:
            self._again(scene, "", self._name(address))
        self.outside(scene, "connect", self._name(address), pipe=self._number(pipe))

    def opening(self, scene: Scene, event: str, args: tuple[Any, ...]) -> None:
        """A file is opened."""
        path, mode, flags = args
        if not isinstance(path, str | bytes):
            return
        name = os.fsdecode(path)
        writes = bool(set(mode) & set("wxa+")) if isinstance(mode, str) else bool(flags & (os.O_WRONLY | os.O_RDWR))
        if not writes:
            scene.acts += scene.kind == "lookup"
        elif not self.passing(name):
            self.outside(scene, "write", name)

    def moving(self, scene: Scene, event: str, args: tuple[Any, ...]) -> None:
        """A file is removed or renamed."""
        name = os.fsdecode(args[0]) if isinstance(args[0], str | bytes) else ""
        of_a_folder = event == "os.remove" and args[-1] not in (None, -1)  # part of a removal that is told as a whole
        if name and not of_a_folder and not self.passing(name):
            self.outside(scene, "write", name)

    def _connecting_sqlite(self, real: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
        """A database file is opened: what is written is told when it is."""

        def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection, scene = real(*args, **kwargs), here()
            if scene is not None:
                scene.acts += 1
                if scene.kind == "handler":
                    named = args[0] if args else kwargs.get("database")
                    file = os.fsdecode(named) if isinstance(named, str | bytes | os.PathLike) else ""
                    connection.set_trace_callback(partial(self._statement, file))
            return connection

        return connect

    def _statement(self, file: str, statement: str) -> None:
        scene = here()
        if scene is not None and _WRITES_SQL.match(statement):
            self.outside(scene, "sql", tame_sql(statement), file=file)

    def passing(self, name: str) -> bool:
        """Whether a file is nobody's outside world: a device, a cache, or scratch that Python made for this process."""
        path = str(Path(name).absolute())
        if path.startswith("/dev/") or any(path == one or path.startswith(one + os.sep) for one in self._scratch):
            return True
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
        return path.startswith(cache + os.sep) or "__pycache__" in path

    def _name(self, address: Any) -> str:
        if isinstance(address, tuple) and len(address) >= 2:
            return f"{self._names.get(str(address[0]), address[0])}:{address[1]}"
        return os.fsdecode(address) if isinstance(address, str | bytes) else str(address)

    # --- what is sent ---

    def _sending(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def send(pipe: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
            self._sent(pipe, data)
            return real(pipe, data, *args, **kwargs)

        return send

    def _sending_many(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def sendmsg(pipe: Any, buffers: Any, *args: Any) -> Any:
            buffers = list(buffers)
            self._sent(pipe, b"".join(bytes(one) for one in buffers[:16]))
            return real(pipe, buffers, *args)

        return sendmsg

    def _sent(self, pipe: Any, data: Any) -> None:
        scene = here()
        if scene is None or scene.kind == "aside" or getattr(self._busy, "on", False):
            return
        self._busy.on = True
        try:
            self._judge(scene, pipe, bytes(memoryview(data).cast("B")[:_LOOKED_AT]))
        except Exception as error:
            self._log.note("broken", event="send", error=repr(error))
        finally:
            self._busy.on = False

    def _judge(self, scene: Scene, pipe: Any, data: bytes) -> None:
        if isinstance(pipe, socket.socket) and not _is_outside(pipe):
            return
        if scene.key and scene.key.encode() in data:
            scene.key_sent = True
        begins = _REQUEST.match(data)
        if begins:
            host = _HOST.search(data)
            request = Request(begins[1].decode(), begins[2].decode(), host[1].decode() if host else "")
            self._told[pipe] = scene
            self._requested(scene, pipe, request)
        elif self._told.get(pipe) is not scene:
            self._told[pipe] = scene
            to = self._name(pipe.getpeername()) if isinstance(pipe, socket.socket) else str(pipe.server_hostname)
            self.outside(scene, "sealed" if _is_tls(data) else "bytes", to, pipe=self._number(pipe))

    def _requested(self, scene: Scene, pipe: Any, request: Request) -> None:
        scene.clear = True
        scene.reads, scene.writes = scene.reads + request.reads, scene.writes + (not request.reads)
        asks = request.reads or scene.kind == "lookup"
        if scene.lost:
            if asks:
                scene.after_reads += 1
            else:
                self._again(scene, str(request), request.host)
        elif scene.lose and (scene.kind == "lookup" or not asks) and not _SIGN_ON.search(request.path):
            self._awaits[pipe] = (scene, request)
        act = "read" if request.reads else "request"
        self.outside(scene, act, request.host, request=str(request), pipe=self._number(pipe))

    def _again(self, scene: Scene, request: str, to: str) -> None:
        scene.after += 1
        self._log.note("again", request=request, to=to, frames=stack_here(scene).own, **scene.told())

    # --- the reply that is lost ---

    def _receiving(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def receive(pipe: Any, *args: Any, **kwargs: Any) -> Any:
            got = real(pipe, *args, **kwargs)
            if got and (pipe in self._awaits or pipe in self._dead):
                self._lose(pipe)
            return got

        return receive

    def _lose(self, pipe: Any) -> None:
        """The reply is here, so the provider has acted; nobody will read it."""
        scene, request = self._awaits.pop(pipe, (None, None))
        if scene is not None and not scene.lost:
            scene.lost, scene.lose = True, False
            what = "lost" if scene.kind == "effect" else "lookup_lost"
            self._log.note(what, request=str(request), frames=stack_here(scene).own, **scene.told())
        self._dead.add(pipe)
        raise ConnectionResetError(104, "Connection reset by peer (semel crashtest: the reply of this request was lost)")


_WATCHERS: dict[str, Callable[[Wire, Scene, str, tuple[Any, ...]], None]] = {
    "socket.connect": Wire.connecting,
    "open": Wire.opening,
    "os.remove": Wire.moving,
    "os.rename": Wire.moving,
    "shutil.rmtree": Wire.moving,
}


def _a_process(wire: Wire, scene: Scene, event: str, args: tuple[Any, ...]) -> None:
    command = args[_PROCESSES[event]]
    words = [command] if isinstance(command, str | bytes) else list(args[1] or [command])
    wire.outside(scene, "process", program_of([os.fsdecode(word) for word in words]))


def _is_tls(data: bytes) -> bool:
    """What the encryption sends, which is looked at before it is encrypted."""
    return len(data) > 2 and 20 <= data[0] <= 23 and data[1] == 3


def _is_outside(pipe: socket.socket) -> bool:
    """Not the pair by which an event loop wakes itself, and no datagram."""
    if pipe.type != socket.SOCK_STREAM:
        return False
    try:
        return bool(pipe.getpeername())
    except OSError:
        return False


def _replace(kind: type, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    setattr(kind, name, wrap(getattr(kind, name)))


def _watch_names(names: dict[str, str]) -> None:
    """Which name an address was resolved from, for messages that a person can read."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        found = real(host, *args, **kwargs)
        if isinstance(host, str):
            names.update({str(one[4][0]): host for one in found})
        return found

    socket.getaddrinfo = getaddrinfo


def _watch_pools() -> None:
    """A pool's job belongs to the scene that gave it: `run_in_executor` hands no context on."""
    real = ThreadPoolExecutor.submit

    def submit(pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        scene = here()
        if scene is None:
            return real(pool, fn, *args, **kwargs)

        def job(*args: Any, **kwargs: Any) -> Any:
            token = current.set(scene)
            try:
                return fn(*args, **kwargs)
            finally:
                current.reset(token)

        return real(pool, job, *args, **kwargs)

    ThreadPoolExecutor.submit = submit  # type: ignore[method-assign, assignment]

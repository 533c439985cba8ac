"""What stands between a store and its server in these tests: rivals with real connections, and a proxy that cuts."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import psycopg

from semel.store.contract import Change
from semel.store.pglink import SQL

SECONDS = 30.0
T = TypeVar("T")


def until(holds: Callable[[], T], what: str, seconds: float = SECONDS) -> T:
    """Poll until it holds, and give what it gave."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.005)
    return found


class Doing:
    """A call on a thread of its own; `result` waits for it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.value: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self, seconds: float = SECONDS) -> Any:
        self._thread.join(seconds)
        assert self.done, "it did not end"
        if self.error:
            raise self.error
        return self.value


class Rival:
    """Another connection, whose transaction stays open until it is told."""

    def __init__(self, url: str) -> None:
        self.raw = psycopg.connect(url)
        self.admin = psycopg.connect(url, autocommit=True)

    def run(self, name: str, params: Any = None) -> list[Any]:
        """One of the store's own statements, in the open transaction."""
        cursor = self.raw.execute(SQL[name], params)
        return cursor.fetchall() if cursor.description else []

    def appends(self, change: Change, *, touch: bool = True) -> None:
        """Write the rows of a change, as another process would; touch: and its task's row."""
        for part in change.parts:
            for r in part.rows:
                self.raw.execute(
                    "INSERT INTO semel.journal VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                    (r.tenant, r.stream, r.seq, r.kind, r.actor, r.token, r.at, r.body, r.id, r.hash),
                )
                if touch:
                    self.raw.execute(
                        "UPDATE semel.task SET version = %s WHERE tenant = %s AND task = %s", (r.seq, r.tenant, r.stream)
                    )

    def waited_for(self) -> int:
        """How many other connections wait for a lock that this one holds."""
        row = self.admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))", (self.raw.info.backend_pid,)
        ).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        self.raw.close()
        self.admin.close()


class Proxy:
    """TCP, on a port of its own, in front of the server. What it does is switched while it runs."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        user = f"{parts.username}@" if parts.username else ""
        host = f"{user}127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
        self.cut_at_reply = b""  # when the server answers so: the answer is lost, and the connection with it
        self.cut_at_request = b""  # when a request holds this: it is lost, and the connection with it
        self.cut_after_request = b""  # the same, but the request arrives; its answer does not
        self._requests_left: int | None = None  # so many more go through; the next is lost, and the connection with it
        self.frozen = threading.Event()  # nothing goes through either way; nobody is told
        self.cuts = 0
        self._open: set[socket.socket] = {self._listener}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open |= {client, server}
                threading.Thread(target=self._pump, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_request: bool) -> None:
        try:
            while data := source.recv(1 << 20):
                while self.frozen.is_set():
                    time.sleep(0.01)
                if self._loses(data, is_request):
                    self.cuts += 1
                    break
                sink.sendall(data)
                if is_request and self.cut_after_request and self.cut_after_request in data:
                    self.cut_after_request = b""
                    self.cuts += 1
                    break
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _loses(self, data: bytes, is_request: bool) -> bool:
        if not is_request:
            lost = bool(self.cut_at_reply) and self.cut_at_reply in data
            self.cut_at_reply = b"" if lost else self.cut_at_reply
            return lost
        if self.cut_at_request and self.cut_at_request in data:
            self.cut_at_request = b""
            return True
        if self._requests_left is None:
            return False
        self._requests_left -= 1
        if self._requests_left >= 0:
            return False
        self._requests_left = None
        return True

    def lose_request(self, after: int) -> None:
        """Lose the request that comes after so many more."""
        self._requests_left = after

    def close(self) -> None:
        self.frozen.clear()
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

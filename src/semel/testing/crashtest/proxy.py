"""A proxy before a PostgreSQL server that cuts a worker's connection at a COMMIT: before it arrives, or its answer does."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass

from semel.testing.crashtest.stores import at, connected

COMMITTED = b"COMMIT\0"  # the server's answer; and, where a statement is sent as text, the request
TRIPS = 2  # a transaction of the writer's: what it rests on is read, then all is written and committed
MOST_BYTES = 1 << 20


@dataclass
class _Pair:
    """One connection: both its ends, and the requests that were sent on it since the cut was asked for."""

    client: socket.socket
    server: socket.socket
    requests: int = 0
    round: int = -1


class Proxy:
    """TCP, on a port of its own, in front of the server that `url` names. cuts: how many connections it has cut."""

    def __init__(self, url: str) -> None:
        with connected(url) as real:  # libpq knows where that is: in the URL, its environment, a service file
            info = real.info
            self._socket = f"{info.host}/.s.PGSQL.{info.port}" if info.host.startswith("/") else ""
            self._server = (info.hostaddr or info.host, info.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = at(url, host="127.0.0.1", hostaddr="", port=str(self._listener.getsockname()[1]))
        self.cuts = 0
        self._lock = threading.Lock()
        self._mode, self._round = "", 0
        self._open: set[socket.socket] = {self._listener}
        threading.Thread(target=self._accept, name="semel-crashtest-proxy", daemon=True).start()

    def lose_answer(self) -> None:
        """The next COMMIT arrives, and its answer does not."""
        self._ask("answer")

    def lose_commit(self, *, text: bool) -> None:
        """The next COMMIT does not arrive. text: it is sent as a statement; else it is a connection's second request from now."""
        self._ask("text" if text else "trip")

    def close(self) -> None:
        """Cut everything."""
        for end in list(self._open):
            self._end(end)

    def _ask(self, mode: str) -> None:
        with self._lock:
            self._mode, self._round = mode, self._round + 1

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = self._reach()
                for end in (client, server):
                    if end.family != socket.AF_UNIX:
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open |= {client, server}
                pair = _Pair(client, server)
                for asked in (True, False):
                    threading.Thread(target=self._pump, args=(pair, asked), name="semel-crashtest-pump", daemon=True).start()

    def _reach(self) -> socket.socket:
        if not self._socket:
            return socket.create_connection(self._server)
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        found.connect(self._socket)
        return found

    def _pump(self, pair: _Pair, asked: bool) -> None:
        source, sink = (pair.client, pair.server) if asked else (pair.server, pair.client)
        with contextlib.suppress(OSError):
            while data := source.recv(MOST_BYTES):
                if self._loses(pair, data, asked):
                    break
                sink.sendall(data)
        self._end(source)
        self._end(sink)

    def _loses(self, pair: _Pair, data: bytes, asked: bool) -> bool:
        with self._lock:
            if pair.round != self._round:
                pair.requests, pair.round = 0, self._round
            pair.requests += asked
            lost = (
                (self._mode == "answer" and not asked and COMMITTED in data)
                or (self._mode == "text" and asked and COMMITTED in data)
                or (self._mode == "trip" and asked and pair.requests == TRIPS)
            )
            if lost:
                self._mode = ""
                self.cuts += 1
            return lost

    def _end(self, end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
        self._open.discard(end)

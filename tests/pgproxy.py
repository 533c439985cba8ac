"""A proxy between a store and its PostgreSQL server, which cuts, loses and freezes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from urllib.parse import urlsplit, urlunsplit


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

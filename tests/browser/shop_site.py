"""A shop on a loopback port: who is logged in, a form that orders, a page of one's orders. It can hang up on an order."""

from __future__ import annotations

import http.server
import secrets
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Order = tuple[str, str]  # the reference, and whose it is


@dataclass
class Shop:
    """posts: requests that would order. cuts: the next one is done, everybody is logged out, and nobody hears of it."""

    url: str = ""
    orders: list[Order] = field(default_factory=list)
    posts: int = 0
    cuts: bool = False
    sessions: dict[str, str] = field(default_factory=dict)
    orders_pages: int = 0


@contextmanager
def shop() -> Iterator[Shop]:
    """The shop, while the block runs."""
    site = Shop()

    class Handler(http.server.BaseHTTPRequestHandler):
        def page(self, body: str, **headers: str) -> None:
            data = f"<!doctype html><title>shop</title>{body}".encode()
            self.send_response(200)
            for name, value in {"Content-Type": "text/html", "Content-Length": str(len(data)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(data)

        @property
        def user(self) -> str:
            cookies = dict(part.strip().split("=", 1) for part in self.headers.get("Cookie", "").split(";") if "=" in part)
            return site.sessions.get(cookies.get("sid", ""), "nobody")

        def do_GET(self) -> None:
            where = urllib.parse.urlsplit(self.path)
            if where.path == "/login":
                sid = secrets.token_hex(8)
                site.sessions[sid] = where.query
                self.page("welcome", Set_Cookie=f"sid={sid}; Path=/; Max-Age=3600")
            elif where.path == "/account":
                self.page(f"<p id=who>{self.user}</p>")
            elif where.path == "/orders":
                site.orders_pages += 1
                self.page("".join(f"<li data-ref={ref}>{ref}</li>" for ref, whose in site.orders if whose == self.user))
            elif where.path == "/":
                self.page("<form method=post action=/buy><input name=ref id=ref><button id=buy>Buy</button></form>")
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            site.posts += 1
            form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            site.orders.append((form["ref"][0], self.user))
            if site.cuts:
                site.cuts = False
                site.sessions.clear()
                self.close_connection = True
                self.connection.shutdown(2)
                return
            self.page("<h1 id=ok>Order placed</h1>")

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""A small real HTTP provider to develop and test against, with its own durable record of what it really did.

    with Provider.start("provider.db") as provider:
        post(f"{provider.url}/keyed/charge", {"cents": 5}, key="k1")
        assert provider.count("charge") == 1

Tests count effects here, on the provider's record, not on semel's. Manners, by path (bodies and answers are JSON):

| request | does |
|---|---|
| POST /keyed/{action} | remembers Idempotency-Key, per action, for the retention: the same bytes again get the first answer with `Idempotent-Replayed: true`; other bytes 422; while the first is still being worked on 409. Without a key every POST acts |
| POST /looked/{action} | every POST acts; the body may carry a `marker` |
| GET /looked/{action}?marker= | lists the acts that match, once they are older than the lag |
| POST /opaque/{action} | every POST acts; nothing can be asked |
| PUT /named/{action}/{name} | create only: 201, and 412 with nothing done if the name exists |
| GET /named/{action}/{name} | the body stored under the name, or 404 |
| POST, GET, DELETE /_faults | queue (a JSON list; see `Provider.fault`), show, clear |
| GET /_acts?action=&manner=&key=&marker= | the record |
| GET /_requests | every request received, even if it did not act |
| GET /_counts | {"manner/action": acts}; with ?requests=ACTION: {ACTION: POSTs and PUTs received} |
| GET /_health | {"ok": true, "pid": ...} |

A row is on disk (SQLite, WAL, synchronous=FULL) before its answer leaves. Headers recorded: Idempotency-Key, Semel-Token
(no fence is enforced here), Semel-Pid. From a shell: `python -m semel.testing.provider --record FILE --port 8080`.
"""  # noqa: E501

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import queue
import random
import signal
import socketserver
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import apsw
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, TypeAdapter, ValidationError

from semel.testing.provider_client import Act, FaultKind, Manner, Provider, ProviderError, Request, get, post, put

__all__ = ["Act", "FaultKind", "Manner", "Provider", "ProviderError", "Request", "get", "main", "post", "put"]

T = TypeVar("T")
_PR_SET_PDEATHSIG = 1
_ROUTES = {  # method and manner: how many path segments
    ("POST", "keyed"): 2,
    ("POST", "looked"): 2,
    ("GET", "looked"): 2,
    ("POST", "opaque"): 2,
    ("PUT", "named"): 3,
    ("GET", "named"): 3,
}
_MANNERS = {manner for _, manner in _ROUTES}

# token is TEXT: it may be wider than SQLite's 64 bits
_SCHEMA = """
CREATE TABLE IF NOT EXISTS act (
  seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, manner TEXT NOT NULL, action TEXT NOT NULL, name TEXT,
  key TEXT, marker TEXT, token TEXT, pid INTEGER, body TEXT NOT NULL, reply TEXT NOT NULL, at REAL NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS act_key ON act (action, key, seq) WHERE manner = 'keyed';
CREATE UNIQUE INDEX IF NOT EXISTS act_name ON act (action, name) WHERE manner = 'named';
CREATE TABLE IF NOT EXISTS request (
  seq INTEGER PRIMARY KEY, at REAL NOT NULL, method TEXT NOT NULL, path TEXT NOT NULL, manner TEXT,
  action TEXT, key TEXT, token TEXT, pid INTEGER, fault TEXT) STRICT;
CREATE INDEX IF NOT EXISTS request_action ON request (action, method);
"""


@dataclass(frozen=True)
class _Reply:
    status: int
    text: str
    headers: tuple[tuple[str, str], ...] = ()


class _Silence(Enum):
    CUT = "cut"
    HANG = "hang"


def _json(status: int, value: object) -> _Reply:
    return _Reply(status, json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _error(status: int, why: str) -> _Reply:
    return _json(status, {"error": why})


# ----------------------------------------------------------------------------------------------------------- requests


@dataclass(frozen=True)
class _Call:
    """One request for a manner, parsed. `problem`: the answer to one that makes no sense (recorded, never acted on)."""

    method: str
    path: str
    query: dict[str, str]
    body: str
    manner: str | None = None
    action: str | None = None
    name: str | None = None
    key: str | None = None
    marker: str | None = None
    token: str | None = None
    pid: str | None = None
    problem: _Reply | None = None

    @classmethod
    def parse(cls, method: str, target: str, headers: dict[str, str], raw: bytes) -> _Call:
        url = urlsplit(target)
        parts = [unquote(part) for part in url.path.split("/")[1:]]
        manner, action, name, *_ = [*parts, None, None, None]
        found: dict[str, Any] = {
            "manner": manner if manner in _MANNERS else None,
            "action": action,
            "name": name,
            "key": headers.get("idempotency-key"),
        }
        try:
            _check_route(method, url.path, parts)
            found["token"] = _number(headers, "semel-token", digits=40)
            found["pid"] = _number(headers, "semel-pid", digits=18)
            found["marker"] = None if method == "GET" else _marker(raw, strict=manner == "looked")
        except _Nonsense as nonsense:
            found["problem"] = _error(nonsense.status, str(nonsense))
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        return cls(method, target, query, raw.decode(errors="replace"), **found)


class _Nonsense(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def _check_route(method: str, path: str, parts: list[str]) -> None:
    if parts[0] not in _MANNERS:
        raise _Nonsense(404, f"no manner at {path}; there are {', '.join(sorted(_MANNERS))}")
    length = _ROUTES.get((method, parts[0]))
    if length is None:
        raise _Nonsense(405, f"{method} is not possible on the manner {parts[0]!r}")
    if len(parts) != length or not all(parts):
        shape = "/".join(["", parts[0], "{action}", "{name}"][: length + 1])
        raise _Nonsense(404, f"{path} is not of the form {shape}")


def _number(headers: dict[str, str], name: str, *, digits: int) -> str | None:
    text = headers.get(name)
    if text is not None and not (text.isascii() and text.isdigit() and len(text) <= digits):
        raise _Nonsense(400, f"the header {name} must be a whole number of at most {digits} digits, not {text!r}")
    return text


def _marker(raw: bytes, *, strict: bool) -> str | None:
    try:
        body = json.loads(raw.decode())
        marker = body.get("marker") if isinstance(body, dict) else None
        if isinstance(marker, str):
            marker.encode()  # "\ud800" is JSON, but no text that a database takes
            return marker
    except (ValueError, RecursionError) as error:
        raise _Nonsense(400, f"the body is not JSON in UTF-8: {error}") from None
    if strict and marker is not None:
        raise _Nonsense(400, f"marker must be a string, not {marker!r}")
    return None


# ------------------------------------------------------------------------------------------------------------- faults


class _Fault(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: FaultKind
    manner: Manner | None = None
    action: str | None = None
    seconds: float = Field(0.0, ge=0, allow_inf_nan=False)
    times: int = Field(1, ge=1)
    probability: float | None = Field(None, ge=0, le=1)
    seed: int | None = None
    asks: bool = False
    _random: random.Random = PrivateAttr()

    def model_post_init(self, _context: object) -> None:
        self._random = random.Random(self.seed)

    def hits(self, call: _Call) -> bool:
        fits = self.manner in (None, call.manner) and self.action in (None, call.action) and self.asks == (call.method == "GET")
        return fits and (self.probability is None or self._random.random() < self.probability)


class _Faults:
    """The queue of faults, in order; the first that hits a request is the one it gets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: list[_Fault] = []

    def add(self, raw: bytes) -> _Reply:
        try:
            faults = TypeAdapter(list[_Fault]).validate_json(raw)
        except ValidationError as error:
            details = json.loads(error.json(include_url=False))
            return _json(400, {"error": "not a JSON list of faults", "details": details})
        with self._lock:
            self._queue.extend(faults)
        return _json(200, {"queued": len(faults)})

    def clear(self) -> _Reply:
        with self._lock:
            self._queue.clear()
        return _json(200, {"queued": 0})

    def show(self) -> list[dict[str, Any]]:
        with self._lock:
            return [fault.model_dump() for fault in self._queue]

    def take(self, call: _Call) -> _Fault | None:
        with self._lock:
            for place, fault in enumerate(self._queue):
                if fault.hits(call):
                    fault.times -= 1
                    if fault.times == 0:
                        del self._queue[place]
                    return fault
        return None


# ------------------------------------------------------------------------------------------------------- durable record


class _Record:
    """The provider's record: one SQLite file, one connection, one thread that commits whatever has gathered as a group.

    A job sees all jobs before it, and has its result only after the fsync of its transaction.
    """

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._db.set_busy_timeout(5000)
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", _SCHEMA):
            self._db.execute(statement).fetchall()
        self._jobs: queue.SimpleQueue[tuple[Callable[[apsw.Connection], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="record", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[apsw.Connection], T]) -> T:
        future: Future[T] = Future()
        self._jobs.put((job, future))
        return future.result()

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        self._db.close()

    def _work(self) -> None:
        while True:
            gathered = [self._jobs.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    gathered.append(self._jobs.get_nowait())
            self._commit([entry for entry in gathered if entry is not None])
            if None in gathered:
                return

    def _commit(self, batch: list[tuple[Callable[[apsw.Connection], Any], Future[Any]]]) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            results = [job(self._db) for job, _ in batch]
            self._db.execute("COMMIT")
        except Exception as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            for _, future in batch:
                future.set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)


def _rows(db: apsw.Connection, sql: str, bindings: Sequence[Any] = ()) -> list[dict[str, Any]]:
    cursor = db.execute(sql, bindings)
    rows = [dict(zip((column[0] for column in cursor.description), row, strict=True)) for row in cursor]
    for row in rows:
        if row.get("token") is not None:
            row["token"] = int(row["token"])
        if "body" in row:
            row["body"] = json.loads(row["body"])
    return rows


def _note(db: apsw.Connection, call: _Call, fault: str | None) -> None:
    db.execute(
        "INSERT INTO request (at, method, path, manner, action, key, token, pid, fault) VALUES (?,?,?,?,?,?,?,?,?)",
        (time.time(), call.method, call.path, call.manner, call.action, call.key, call.token, call.pid, fault),
    )


def _act(db: apsw.Connection, call: _Call) -> _Reply:
    """Do it: the row is the act."""
    act, now = f"act_{uuid.uuid4().hex}", time.time()
    seq = db.execute("SELECT coalesce(max(seq), 0) + 1 FROM act").get
    answer = {"id": act, "seq": seq, "manner": call.manner, "action": call.action, "at": now}
    reply = _json(201, {**answer, "name": call.name}) if call.manner == "named" else _json(200, answer)
    asked = (call.manner, call.action, call.name, call.key, call.marker, call.token, call.pid, call.body)
    db.execute("INSERT INTO act VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", (seq, act, *asked, reply.text, now))
    return reply


# ---------------------------------------------------------------------------------------------------------- the manners


class _InFlight:
    """The keys that are being worked on: of (action, key), at most one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[tuple[str | None, str]] = set()

    @contextlib.contextmanager
    def hold(self, call: _Call) -> Iterator[bool]:
        if call.manner != "keyed" or call.key is None:
            yield True
            return
        entry = (call.action, call.key)
        with self._lock:
            free = entry not in self._held
            self._held.add(entry)
        try:
            yield free
        finally:
            if free:
                with self._lock:
                    self._held.remove(entry)


class _Service:
    """What the provider does with a request, apart from sockets. `retention` and `lag` in seconds."""

    def __init__(self, record: _Record, *, retention: float, lag: float) -> None:
        self.record = record
        self.faults = _Faults()
        self._flight = _InFlight()
        self._retention = retention
        self._lag = lag

    def serve(self, call: _Call) -> _Reply | _Silence:
        if call.problem is not None:
            self.record.run(lambda db: _note(db, call, None))
            return call.problem
        fault = self.faults.take(call)
        kind = fault.kind if fault else None
        if kind in ("hang", "cut_before", "error_before"):
            self.record.run(lambda db: _note(db, call, kind))
            if kind == "error_before":
                return _error(503, "unavailable (a fault: error_before)")
            return _Silence.HANG if kind == "hang" else _Silence.CUT
        reply = self._perform(call, fault)
        if fault is not None and kind == "late":
            time.sleep(fault.seconds)
        if kind == "cut_after":
            return _Silence.CUT
        return _error(503, "unavailable (a fault: error_after)") if kind == "error_after" else reply

    def _perform(self, call: _Call, fault: _Fault | None) -> _Reply:
        kind = fault.kind if fault else None

        def note_and_do(db: apsw.Connection) -> _Reply:
            _note(db, call, kind)
            return self._do(db, call)

        with self._flight.hold(call) as free:
            if not free:
                self.record.run(lambda db: _note(db, call, kind))
                return _error(409, f"a request with the key {call.key!r} is being worked on")
            if fault is not None and kind == "late_act":
                self.record.run(lambda db: _note(db, call, kind))
                time.sleep(fault.seconds)
                return self.record.run(lambda db: self._do(db, call))
            return self.record.run(note_and_do)

    def _do(self, db: apsw.Connection, call: _Call) -> _Reply:
        if call.method == "GET":
            return self._list(db, call) if call.manner == "looked" else _read(db, call)
        if call.manner == "keyed":
            return self._remembered(db, call) or _act(db, call)
        if call.manner == "named" and _read(db, call).status == 200:
            return _error(412, f"{call.action}/{call.name} exists; nothing was done")
        return _act(db, call)

    def _remembered(self, db: apsw.Connection, call: _Call) -> _Reply | None:
        row = db.execute(
            "SELECT body, reply FROM act WHERE manner = 'keyed' AND action = ? AND key = ? AND at > ? ORDER BY seq DESC LIMIT 1",
            (call.action, call.key, time.time() - self._retention),
        ).get
        if row is None:
            return None
        body, reply = row
        if body != call.body:
            return _error(422, f"the key {call.key!r} was used with a different body; nothing was done")
        return _Reply(200, reply, (("Idempotent-Replayed", "true"),))

    def _list(self, db: apsw.Connection, call: _Call) -> _Reply:
        rows = _rows(
            db,
            "SELECT id, seq, marker, body, at FROM act WHERE manner = 'looked' AND action = ?1"
            " AND (?2 IS NULL OR marker = ?2) AND at <= ?3 ORDER BY seq",
            (call.action, call.query.get("marker"), time.time() - self._lag),
        )
        return _json(200, rows)

    def admin(self, method: str, target: str, raw: bytes) -> _Reply:
        url = urlsplit(target)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        match method, url.path:
            case "POST", "/_faults":
                return self.faults.add(raw)
            case "DELETE", "/_faults":
                return self.faults.clear()
            case "GET", "/_faults":
                return _json(200, self.faults.show())
            case "GET", "/_acts":
                return self._acts(query)
            case "GET", "/_requests":
                return _json(200, self.record.run(lambda db: _rows(db, "SELECT * FROM request ORDER BY seq")))
            case "GET", "/_counts":
                return _json(200, self.record.run(lambda db: _counts(db, query.get("requests"))))
            case "GET", "/_health":
                return _json(200, {"ok": True, "pid": os.getpid()})
        return _error(404, f"no {method} {url.path} here; see the docstring of semel.testing.provider")

    def _acts(self, query: dict[str, str]) -> _Reply:
        filters = ("action", "manner", "key", "marker")
        if unknown := set(query) - set(filters):
            return _error(400, f"unknown filters {sorted(unknown)}; there are {', '.join(filters)}")
        sql = (
            "SELECT seq, id, manner, action, name, key, marker, token, pid, body, at FROM act"
            " WHERE (?1 IS NULL OR action = ?1) AND (?2 IS NULL OR manner = ?2)"
            " AND (?3 IS NULL OR key = ?3) AND (?4 IS NULL OR marker = ?4) ORDER BY seq"
        )
        return _json(200, self.record.run(lambda db: _rows(db, sql, [query.get(name) for name in filters])))


def _read(db: apsw.Connection, call: _Call) -> _Reply:
    body = db.execute("SELECT body FROM act WHERE manner = 'named' AND action = ? AND name = ?", (call.action, call.name)).get
    return _error(404, f"no {call.action}/{call.name}") if body is None else _Reply(200, body)


def _counts(db: apsw.Connection, received: str | None) -> dict[str, int]:
    if received is not None:
        sql = "SELECT count(*) FROM request WHERE action = ? AND method IN ('POST', 'PUT')"
        return {received: db.execute(sql, (received,)).get}
    sql = "SELECT manner || '/' || action, count(*) FROM act GROUP BY manner, action ORDER BY 1"
    return dict(db.execute(sql))


# ---------------------------------------------------------------------------------------------------------- HTTP server


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, service: _Service) -> None:
        self.service = service
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own looks the host name up
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that has gone is an ordinary day
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        raw = self._body()
        if raw is None:
            return
        try:
            reply = self._reply(raw)
        except apsw.Error as error:
            reply = _error(500, f"the record could not be written: {error}")
        if reply is _Silence.HANG:
            with contextlib.suppress(OSError):
                while self.connection.recv(65536):
                    pass
        if isinstance(reply, _Silence):
            self.close_connection = True
            return
        self._send(reply)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 (the names that http.server looks for)

    def _reply(self, raw: bytes) -> _Reply | _Silence:
        service = self.server.service
        if self.path.startswith("/_"):
            return service.admin(self.command, self.path, raw)
        headers = {name.lower(): value for name, value in self.headers.items()}
        return service.serve(_Call.parse(self.command, self.path, headers, raw))

    def _body(self) -> bytes | None:
        """The whole body; None if the client went away in its midst, or cannot be served: then nothing may be done."""
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit() and len(length) < 10):
            self.close_connection = True
            self._send(_error(411, "send a Content-Length, and no Transfer-Encoding"))
            return None
        raw = self.rfile.read(int(length))
        self.close_connection = self.close_connection or len(raw) < int(length)
        return raw if len(raw) == int(length) else None

    def _send(self, reply: _Reply) -> None:
        content = reply.text.encode()
        self.send_response(reply.status)
        for name, value in (*reply.headers, ("Content-Type", "application/json"), ("Content-Length", len(content))):
            self.send_header(name, str(value))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the record is the log."""


# ------------------------------------------------------------------------------------------------------------- process


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        raise SystemExit("the parent has ended already")


def main(arguments: Iterable[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT: the command line `python -m semel.testing.provider`."""
    parser = argparse.ArgumentParser(prog="python -m semel.testing.provider", description="A provider to test against.")
    parser.add_argument("--record", type=Path, required=True, help="file of its record; continued if it exists")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0: any free one")
    parser.add_argument("--retention", type=float, default=86400.0, help="seconds that keys are remembered")
    parser.add_argument("--lag", type=float, default=0.0, help="seconds until a lookup shows an act")
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.parent is not None:
        _die_with(options.parent)
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # before any thread starts, so that sigwait below gets the signal
    try:
        record = _Record(options.record)
        server = _Server(options.port, _Service(record, retention=options.retention, lag=options.lag))
    except (OSError, OverflowError, apsw.Error) as error:
        where = f"record {options.record}, port {options.port}"
        raise SystemExit(f"semel provider cannot start: {error} ({where})") from None
    threading.Thread(target=server.serve_forever, name="accept", daemon=True).start()
    print(f"semel provider on http://127.0.0.1:{server.server_port} record {options.record}", flush=True)
    signal.sigwait(stops)
    record.close()  # what has been handed over is committed; threads and sockets end with the process


if __name__ == "__main__":
    main()

"""The side of the test provider that programs hold: start it, tell it faults, read its record, and plain HTTP helpers.

Import these names from `semel.testing.provider`.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlencode, urlsplit

Manner = Literal["keyed", "looked", "opaque", "named"]
FaultKind = Literal["late", "late_act", "cut_after", "cut_before", "error_after", "error_before", "hang"]

_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.005


class ProviderError(Exception):
    """An answer of 400 or above. `status` is the HTTP status, `body` the decoded JSON (or the text, if it is none)."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body

    def __str__(self) -> str:
        return f"the provider answered {self.status}: {self.body}"


@dataclass(frozen=True)
class Act:
    """One thing that the provider really did, from its durable record. `at` is in unix seconds, `body` decoded JSON."""

    seq: int
    id: str
    manner: str
    action: str
    name: str | None  # the named manner only
    key: str | None  # Idempotency-Key
    marker: str | None  # the body's "marker", if it is a string
    token: int | None  # Semel-Token: recorded, never enforced
    pid: int | None  # Semel-Pid
    body: Any
    at: float


@dataclass(frozen=True)
class Request:
    """One request received, whether or not it acted. `fault`: the kind of the fault that hit it. `at`: unix seconds."""

    seq: int
    at: float
    method: str
    path: str
    manner: str | None
    action: str | None
    key: str | None
    token: int | None
    pid: int | None
    fault: str | None


# ---------------------------------------------------------------------------------------------- plain HTTP, no retries


def post(
    url: str, body: Mapping[str, Any], *, key: str | None = None, token: int | None = None, timeout: float = 10.0
) -> dict[str, Any]:
    """POST `body` as JSON, once, on a connection of its own; return the JSON object of the answer.

    `key` goes out as Idempotency-Key, `token` as Semel-Token, this process's pid as Semel-Pid. `timeout` is in seconds,
    for connecting and for each read. Raises ProviderError for an answer of 400 or above. Socket errors pass as they
    are: ConnectionRefusedError proves that nothing was sent; TimeoutError and ConnectionResetError prove nothing.
    """
    return _object(_send("POST", url, body, key=key, token=token, timeout=timeout))


def put(
    url: str, body: Mapping[str, Any], *, key: str | None = None, token: int | None = None, timeout: float = 10.0
) -> dict[str, Any]:
    """PUT `body` as JSON, once; otherwise as `post`. A name that exists raises ProviderError with status 412."""
    return _object(_send("PUT", url, body, key=key, token=token, timeout=timeout))


def get(url: str, *, timeout: float = 10.0) -> Any:
    """GET `url` and return the decoded JSON. `timeout` in seconds; errors as for `post`."""
    return _send("GET", url, timeout=timeout)


def _send(
    method: str,
    url: str,
    body: object = None,
    *,
    key: str | None = None,
    token: int | None = None,
    timeout: float = 10.0,
) -> Any:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        raise ValueError(f"the test provider speaks plain http; {url!r} must be http://127.0.0.1:PORT/...")
    headers = {"Semel-Pid": str(os.getpid())}
    if key is not None:
        headers["Idempotency-Key"] = key
    if token is not None:
        headers["Semel-Token"] = str(token)
    content = None
    if body is not None:
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    try:
        connection.request(method, parts.path + (f"?{parts.query}" if parts.query else ""), content, headers)
        response = connection.getresponse()
        return _decoded(response.status, response.read())
    finally:
        connection.close()


def _decoded(status: int, raw: bytes) -> Any:
    try:
        value = json.loads(raw)
    except ValueError:
        value = raw.decode(errors="replace")
        if status < 400:
            raise ProviderError(status, value) from None
    if status >= 400:
        raise ProviderError(status, value)
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"the answer is no JSON object: {value!r}")
    return value


# --------------------------------------------------------------------------------------------------- a running provider


class Provider:
    """A running test provider, in a process of its own. Use as a context manager, or call `close()`."""

    url: str  # http://127.0.0.1:PORT

    def __init__(self, url: str, process: subprocess.Popen[str] | None = None) -> None:
        self.url = url.rstrip("/")
        self._process = process
        self._owner = os.getpid()

    @classmethod
    def start(
        cls,
        record: str | Path,
        *,
        retention: timedelta = timedelta(hours=24),
        lag: timedelta = timedelta(0),
        port: int = 0,
    ) -> Self:
        """Start one on 127.0.0.1 (`port` 0: any free one), recording into the file `record`, and wait until it answers.

        `retention`: how long the keyed manner remembers a key. `lag`: the age at which the looked manner shows an act.
        A record that exists is continued. The process has its own session, and is killed by the kernel (Linux) when
        this process ends. Raises RuntimeError if it does not come up (bad file, port taken; its stderr says why).
        """
        seconds = {"retention": retention.total_seconds(), "lag": lag.total_seconds()}
        options = {"record": record, "port": port, **seconds, "parent": os.getpid()}
        process = _spawn([f"--{name}={value}" for name, value in options.items()])
        try:
            provider = cls(_announced_url(process), process)
            get(f"{provider.url}/_health", timeout=_START_SECONDS)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return provider

    @classmethod
    def connect(cls, url: str) -> Self:
        """A handle on a provider that somebody else started; `close()` leaves it running.

        Raises ConnectionRefusedError if nothing listens at `url`.
        """
        provider = cls(url)
        get(f"{provider.url}/_health")
        return provider

    @property
    def pid(self) -> int | None:
        """The provider's process id; None for a handle from `connect`."""
        return None if self._process is None else self._process.pid

    def fault(
        self,
        kind: FaultKind,
        *,
        manner: Manner | None = None,
        action: str | None = None,
        seconds: float = 0.0,
        times: int = 1,
        probability: float | None = None,
        seed: int | None = None,
        asks: bool = False,
    ) -> None:
        """Queue a fault for the next `times` requests of `manner` and `action` (None: any). The first that fits, hits.

        late: act at once, answer after `seconds`. late_act: wait `seconds`, then act, even if the client has gone.
        cut_after, cut_before: close the connection without a byte of answer, having acted, or not. error_after,
        error_before: 503, having acted, or not. hang: neither act nor answer, ever. With `probability` each request
        that fits is hit with that chance, drawn from `seed`; only hits count as `times`. `asks=True`: hit the reads
        (GET) instead of the writes. Faults live in the provider's memory. Raises ProviderError(400) if malformed.
        """
        spec = {
            **{"kind": kind, "manner": manner, "action": action, "seconds": seconds, "times": times},
            **{"probability": probability, "seed": seed, "asks": asks},
        }
        _send("POST", f"{self.url}/_faults", [spec])

    def clear(self) -> None:
        """Drop all queued faults. Requests that a fault already holds stay held."""
        _send("DELETE", f"{self.url}/_faults")

    def acts(
        self,
        action: str | None = None,
        *,
        manner: Manner | None = None,
        key: str | None = None,
        marker: str | None = None,
    ) -> list[Act]:
        """What the provider really did, oldest first, read from its durable record. No lag. None matches all."""
        query = {"action": action, "manner": manner, "key": key, "marker": marker}
        return [Act(**row) for row in get(_with_query(f"{self.url}/_acts", query))]

    def requests(self) -> list[Request]:
        """Every request received, oldest first, those that did not act and the GETs included; admin requests not."""
        return [Request(**row) for row in get(f"{self.url}/_requests")]

    def count(
        self,
        action: str | None = None,
        *,
        manner: Manner | None = None,
        key: str | None = None,
        marker: str | None = None,
    ) -> int:
        """How many acts match: `len(acts(...))`."""
        return len(self.acts(action, manner=manner, key=key, marker=marker))

    def wait_for_request(self, action: str, n: int = 1, timeout: float = 10.0) -> None:
        """Return once the provider has received `n` POST or PUT requests for `action` in all, acted upon or not.

        Raises TimeoutError after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            received = get(_with_query(f"{self.url}/_counts", {"requests": action}))[action]
            if received >= n:
                return
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{self.url} received {received} of {n} requests for {action!r} in {timeout} s")
            time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """SIGKILL the provider that this process started, and wait for its end. The record stays."""
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Stop the provider that this process started (SIGTERM, then SIGKILL); otherwise nothing. Safe to repeat.

        Acts that a `late_act` fault still holds back are dropped, as when a real provider dies.
        """
        if self._process is None or self._owner != os.getpid():  # a fork of the owner must not stop it
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Provider({self.url!r}, pid={self.pid})"


def _with_query(url: str, query: Mapping[str, str | None]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{url}?{urlencode(given)}" if given else url


def _spawn(arguments: list[str]) -> subprocess.Popen[str]:
    source = str(Path(__file__).resolve().parents[2])  # the child finds the same semel as we did, wherever it came from
    path = os.pathsep.join(p for p in (source, os.environ.get("PYTHONPATH")) if p)
    quiet = ("-P", "-W", "ignore:::runpy")  # our package may have imported the module that -m is about to run
    command = [sys.executable, *quiet, "-m", "semel.testing.provider", *arguments]

    def popen() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    if threading.current_thread() is threading.main_thread():
        return popen()
    # PR_SET_PDEATHSIG watches the *thread* that forked. A caller's thread may end long before its process, so that the
    # provider would be killed under the others: fork from a thread that lives as long as the provider.
    started: Future[subprocess.Popen[str]] = Future()

    def keep() -> None:
        try:
            process = popen()
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    threading.Thread(target=keep, name="semel-provider", daemon=True).start()
    return started.result()


def _announced_url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    with process.stdout as out, selectors.DefaultSelector() as first:  # select() cannot wait on a descriptor above 1,023
        first.register(out, selectors.EVENT_READ)
        ready = first.select(_START_SECONDS)
        line = out.readline() if ready else ""
    found = re.match(r"semel provider on (http://\S+) record ", line)
    if found is not None:
        return found[1]
    if ready:
        code = process.wait(_STOP_SECONDS)
        why = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        raise RuntimeError(f"the test provider did not start: {why}; its stderr says why")
    raise RuntimeError(f"the test provider did not start within {_START_SECONDS:g} s")

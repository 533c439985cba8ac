"""Rivals with real connections, whose transactions stay open until they are told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

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

"""Transactions that are lent to `Atomic` effects: what the effect writes and its confirm are committed together, or neither.

A few connections of their own, so that an effect that takes its time holds up no batch and no beat. The function gets a
view of one: the same libpq connection under another psycopg object, which can neither commit nor close, and is dead when the
function has ended. Whatever it does all the same, as by a COMMIT in SQL text, a deferred constraint of the schema keeps the
transaction from being committed before the confirm is in it (`semel.unconfirmed`).

The confirm lands as any change does: under the session's guard, and on the version and hash it was decided on (R5).
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from semel.errors import Misuse, StoreUnavailable
from semel.store.contract import ENDED_BY_ITSELF, Broken, Busy, Change, Fenced, Landed, Stale, Unanswered, Undone
from semel.store.pgclaims import Floors
from semel.store.pglink import LOCKED, Link, Target, text_array
from semel.store.pgwrite import Transaction

MOST = 2  # connections, beside the four of a store
IDLE_SECONDS = 5.0  # one that nobody has needed for so long is closed
RACES = ("journal_pkey",)


def _ended() -> Misuse:
    return Misuse("this effect has ended, and its connection with it; keep nothing of it, and await what you start in an effect")


def _not_yours(what: str) -> Misuse:
    return Misuse(
        f"an Atomic effect's transaction is committed by semel, with the confirm; raise an error to undo it, and leave out {what}"
    )


class View:
    """What both views share. over: why nothing more may be done on it. strange: the function ended the transaction."""

    pgconn: Any
    over: Misuse | None = None
    strange: bool = False
    _pool: Any = None  # psycopg warns when a connection is let go of that is not closed; this one is not its own

    def _before(self, gen: Any) -> None:
        if self.over:
            gen.close()
            raise self.over

    def _after(self, *, failed: bool) -> None:
        """Look whether the transaction is still there. An error that ended it has undone it; anything else, nobody knows."""
        if self.pgconn.transaction_status == TransactionStatus.IDLE and not self.over:
            self.over = _not_yours("what ends it")
            self.strange = not failed
            if not failed:
                raise self.over


class SyncView(View, psycopg.Connection[tuple[Any, ...]]):
    """A connection for a plain function."""

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """All that is done on a connection comes through here."""
        self._before(gen)
        try:
            found = super().wait(gen, *args, **kwargs)
        except BaseException:
            self._after(failed=True)
            raise
        self._after(failed=False)
        return found

    def commit(self) -> NoReturn:
        """Not the function's to do."""
        raise _not_yours("commit()")

    def rollback(self) -> NoReturn:
        """Not the function's to do."""
        raise _not_yours("rollback()")

    def close(self) -> NoReturn:
        """Not the function's to do."""
        raise _not_yours("close()")

    def __exit__(self, *exc: Any) -> None:
        """`with submission.connection:` would commit, and close it."""
        if exc[0] is None:
            raise _not_yours("the with block around the connection")


class AsyncView(View, psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection for an async function."""

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """All that is done on a connection comes through here."""
        self._before(gen)
        try:
            found = await super().wait(gen, *args, **kwargs)
        except BaseException:
            self._after(failed=True)
            raise
        self._after(failed=False)
        return found

    async def commit(self) -> NoReturn:
        """Not the function's to do."""
        raise _not_yours("commit()")

    async def rollback(self) -> NoReturn:
        """Not the function's to do."""
        raise _not_yours("rollback()")

    async def close(self) -> NoReturn:
        """Not the function's to do."""
        raise _not_yours("close()")

    async def __aexit__(self, *exc: Any) -> None:
        """`async with submission.connection:` would commit, and close it."""
        if exc[0] is None:
            raise _not_yours("the with block around the connection")


class OneLink(Link):
    """A link that opens no other connection while a transaction is open on the one it has."""

    holds = False

    @property
    def raw(self) -> Any:
        """The connection, if there is one."""
        return self._raw

    def _connected(self) -> Any:
        if self.holds and (self._raw is None or self._raw.closed):
            raise psycopg.OperationalError("the connection of the transaction is gone")
        return super()._connected()


class Lent:
    """One transaction, from its begin to its end."""

    def __init__(self, lender: Lender, link: OneLink, id: str) -> None:
        self._lender, self._link, self._id = lender, link, id
        self._view: Any = None
        self._hears: Any = None
        self._ended = False
        self._lock = threading.Lock()

    def begin(self, seconds: float, idle_seconds: float) -> None:
        """Raises psycopg's errors."""
        limits = {
            "statement_timeout": f"{max(1, int(seconds * 1000))}ms",
            "idle_in_transaction_session_timeout": f"{max(1, int(idle_seconds * 1000))}ms",
        }
        names, values = text_array(limits), text_array(limits.values())
        local = {"names": names, "values": values, "local": True}
        self._link.pipe(("begin", None), ("set", local), ("atomic_begin", (self._id,)))
        self._link.holds = True

    def connection(self, is_async: bool) -> Any:
        """The function's view of it. Nothing is prepared on it, unless it says so itself."""
        pgconn = self._link.raw.pgconn
        self._hears = pgconn.notice_handler  # a psycopg connection takes the notices to itself
        self._view = (AsyncView if is_async else SyncView)(pgconn)
        self._view.prepare_threshold = None
        return self._view

    def take_back(self) -> None:
        """The function has ended."""
        if self._view is not None:
            self._view.over = self._view.over or _ended()
        if self._hears is not None and self._link.raw is not None:
            self._link.raw.pgconn.notice_handler, self._hears = self._hears, None

    @property
    def strange(self) -> bool:
        """Whether the function ended it by itself."""
        return self._view is not None and self._view.strange

    def passing(self, error: BaseException) -> bool:
        """A deadlock, a serialization failure, what took too long, a cut connection."""
        return isinstance(error, psycopg.OperationalError | StoreUnavailable | TimeoutError)

    def land(self, change: Change) -> Landed | Stale | Fenced | Busy | Broken | Undone | Unanswered:
        """Write the change beside what the function wrote, and commit both."""
        self.take_back()
        if self.strange:
            return Broken(ENDED_BY_ITSELF)
        outcome = self._write(change)
        if not isinstance(outcome, Landed):
            return outcome
        return self._commit()

    def _write(self, change: Change) -> Landed | Stale | Fenced | Busy | Broken | Undone:
        link = self._link
        try:
            status = link.raw.pgconn.transaction_status if link.raw is not None else TransactionStatus.UNKNOWN
            if status == TransactionStatus.INERROR:
                return Undone(Misuse(
                    "a statement of this Atomic effect failed, and the function returned all the same; let the error out, or "
                    "put what may fail within: with submission.connection.transaction():"
                ))  # fmt: skip
            # The function's own deferred constraints are looked at now, under the settings that it left.
            if not link.pipe(("savepoint", None), ("atomic_end", (self._id,)), ("constraints_now", None))[1].rows:
                return Broken(ENDED_BY_ITSELF)
            try:
                outcome = Transaction(link, Floors(), doubt=False, wait_ms=0).within(change)
            except (*LOCKED, errors.UniqueViolation) as error:
                if isinstance(error, errors.UniqueViolation) and error.diag.constraint_name not in RACES:
                    raise
                outcome = Busy()
            if not isinstance(outcome, Landed):
                link.pipe(("rollback_to", None))
                assert isinstance(outcome, Stale | Fenced | Busy)
                return outcome
        except Exception as error:
            return Undone(error)  # no COMMIT was sent, and without one there is none
        return outcome

    def _commit(self) -> Landed | Undone | Unanswered:
        link = self._link
        answer = None
        try:
            answer = link.pipe(("commit", None))[0]
            link.must_be_committed(answer)
        except BaseException as error:
            said_no = answer.tag == "ROLLBACK" if answer is not None else getattr(error, "sqlstate", None) is not None
            whole = link.pid != 0 and not link.in_transaction and not link.warnings
            if said_no and whole:  # by a server that lives, in so many words: as for a deferred constraint of the function's own
                return Undone(error)
            link.drop()
            if not isinstance(error, Exception):
                error = psycopg.OperationalError(f"the COMMIT was interrupted: {type(error).__name__}")
            return Unanswered(error)
        return Landed()

    def end(self) -> None:
        """Roll back what is open, and give the connection back."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        self.take_back()
        link = self._link
        link.holds = False
        try:
            if link.raw is not None and not link.raw.closed:
                link.roll_back()
                if link.pid and not self._lender.pooled:
                    link.pipe(("discard", None))
        except Exception:
            link.drop()
        self._lender.give_back(link)


class Lender:
    """Lends transactions, as many at a time as there are connections."""

    def __init__(self, where: Target, settings: Mapping[str, str], check: Callable[[Link], None]) -> None:
        self.pooled = where.pgbouncer
        # as behind a pool: nothing of ours is set on the connection, or prepared; the function finds its role's own settings
        self._where, self._settings, self._check = replace(where, pgbouncer=True), settings, check
        self._change = threading.Condition(threading.Lock())
        self._idle: deque[tuple[float, OneLink]] = deque()
        self._links: set[OneLink] = set()
        self._closer: threading.Timer | None = None
        self._closed = False

    def lend(self, seconds: float, idle_seconds: float) -> Lent:
        """Wait for a connection, and begin. Raises `StoreUnavailable`."""
        until = time.monotonic() + seconds
        link = self._take(until)
        lent = Lent(self, link, uuid.uuid4().hex)
        try:
            with link.answered():
                had = link.pid
                try:
                    lent.begin(max(0.001, until - time.monotonic()), idle_seconds)
                except psycopg.OperationalError:
                    if not had or link.pid:
                        raise
                    lent.begin(max(0.001, until - time.monotonic()), idle_seconds)  # it was cut while it was idle
        except BaseException:
            link.drop()
            lent.end()
            raise
        return lent

    def _take(self, until: float) -> OneLink:
        with self._change:
            while not self._idle and len(self._links) >= MOST and not self._closed:
                if not self._change.wait(max(0.0, until - time.monotonic())) and time.monotonic() >= until:
                    raise StoreUnavailable(
                        f"{MOST} Atomic effects of this process are under way, and none ended in time; make them shorter"
                    )
            if self._closed:
                raise StoreUnavailable("the app is closed; make a new semel.App to go on")
            if self._idle:
                return self._idle.pop()[1]
            link = OneLink(self._where, "atomic", patience=25, settings=self._settings, check=self._check)
            self._links.add(link)
            return link

    def give_back(self, link: OneLink) -> None:
        """Free for the next."""
        with self._change:
            if self._closed:
                link.close()
                return
            self._idle.append((time.monotonic(), link))
            self._change.notify()
            self._close_later()

    def _close_later(self) -> None:
        if self._closer is None:
            self._closer = threading.Timer(IDLE_SECONDS, self._close_idle)
            self._closer.daemon = True
            self._closer.start()

    def _close_idle(self) -> None:
        with self._change:
            self._closer = None
            gone = []
            while self._idle and self._idle[0][0] <= time.monotonic() - IDLE_SECONDS:
                gone.append(self._idle.popleft()[1])
            self._links.difference_update(gone)
            if self._idle and not self._closed:
                self._close_later()
        for link in gone:
            link.close()

    def close(self) -> None:
        """Close what is idle now, and the rest when it is given back."""
        with self._change:
            self._closed = True
            idle, self._idle = [link for _, link in self._idle], deque()
            closer, self._closer = self._closer, None
            self._change.notify_all()
        if closer is not None:
            closer.cancel()
        for link in idle:
            link.close()

    def abandon(self) -> None:
        """In a forked child."""
        self._closed = True
        for link in self._links:
            with contextlib.suppress(Exception):
                link.abandon()

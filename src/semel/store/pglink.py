"""A connection to PostgreSQL: opened when it is needed, dropped when it breaks, never waited for beyond its patience."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict

from semel.errors import Misuse, StoreUnavailable
from semel.store.pgpipe import Answer, Pipe, statement
from semel.store.sqlfile import statements

FILES = ("postgres.sql", "postgres_doctor.sql")
SQL = {name: text.encode() for file in FILES for name, text in statements(file).items()}
STATEMENTS = {name: statement(name, text) for name, text in SQL.items()}
log = logging.getLogger("semel")
RV = TypeVar("RV")

# What libpq gives up after, unless the URL says otherwise: seconds, and milliseconds for data that nobody acknowledges.
DEFAULTS = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "target_session_attrs": "read-write",
}
# What every connection holds to, whatever the role or the database is set to. A plan must not depend on statistics that
# nobody has gathered yet: nested loops over the primary keys only. Warnings must be heard (R7).
SETTINGS = {
    "client_encoding": "UTF8",  # as which `pgpipe` sends it; a function that was lent the connection may have left another
    "search_path": "pg_catalog",
    "client_min_messages": "warning",
    "idle_in_transaction_session_timeout": "10s",  # a process that is stopped in mid-transaction must let its locks go
    "jit": "off",
    "bytea_output": "hex",
}
BY_INDEX = {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_bitmapscan": "off"}
PLAIN_PLANS = {**BY_INDEX, "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}


@dataclass(frozen=True, slots=True)
class Target:
    """Where the database is. params: libpq's. pgbouncer: a pool in transaction mode is in between. place: without a password."""

    params: Mapping[str, str]
    pgbouncer: bool
    place: str

    @property
    def several(self) -> bool:
        """Whether it names more than one server, of which one or another is the primary."""
        return "," in self.params.get("host", "") or "," in self.params.get("hostaddr", "")


def target(url: str) -> Target:
    """What a URL (or a libpq connection string) names. `?pgbouncer=1` is ours. Raises `Misuse`."""
    pgbouncer, cut_off = False, ""
    try:
        if "://" in url:
            parts = urlsplit(url)
            cut_off = parts.fragment
            query = parse_qsl(parts.query, keep_blank_values=True)
            pgbouncer = any(name == "pgbouncer" and value not in ("", "0", "false") for name, value in query)
            rest = urlencode([(name, value) for name, value in query if name != "pgbouncer"])
            url = f"postgresql://{parts.netloc}{parts.path}" + (f"?{rest}" if rest else "")  # urlunsplit drops an empty host
        given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except (psycopg.Error, ValueError) as error:
        raise Misuse(f"{type(error).__name__} in the store's URL; write it so: postgresql://user@host:5432/database") from None
    if cut_off or _torn(given):
        raise Misuse(
            "the store's URL does not come apart into a user, a password, a host, a port and a database (it is not shown here, "
            "for its password): in a user's name or a password write / as %2F, @ as %40, : as %3A, ? as %3F, # as %23, % as %25"
        )
    place = f"postgresql://{given.get('host', '')}:{given.get('port', '5432')}/{given.get('dbname', '')}"
    return Target({**DEFAULTS, **given}, pgbouncer, place)


def _torn(given: Mapping[str, str]) -> bool:
    """Whether a part of a password seems to stand where it would be shown: it held a sign at which a URL is taken apart."""
    ports = [port.strip() for port in given.get("port", "").split(",")]
    return any("@" in given.get(name, "") for name in ("host", "hostaddr", "dbname")) or not all(
        port.isdecimal() for port in ports if port
    )


class Raw(psycopg.Connection[tuple[Any, ...]]):
    """A psycopg connection on which no answer is waited for longer than `patience` seconds: then it is cut."""

    patience: float = 30.0

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """As psycopg does, with a deadline: a half-open socket, or a server that is stopped, must hang nobody."""
        kwargs["timeout"] = self.patience
        try:
            return super().wait(gen, *args, **kwargs)
        except errors._WaitTimeout as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {self.patience:g} seconds") from error


Call = tuple[str, Any]  # the name of a statement, and its parameters

# Says nothing of the data: the server's trouble, the network's, an administrator's. It may be given again.
UNAVAILABLE = (
    psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError, psycopg.NotSupportedError,
    psycopg.ProgrammingError,
)  # fmt: skip
LOCKED = (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure)
# A connection on which nothing would ever be answered any more: to a standby by now; or what was prepared on it is not there, or
# is of tables that are others now.
WORN_OUT = (
    errors.ReadOnlySqlTransaction, errors.AdminShutdown, errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement,
    errors.FeatureNotSupported,
)  # fmt: skip


class Link:
    """One connection and the lock that lets one thread use it at a time. `check` is run on each new one, and may raise."""

    def __init__(
        self,
        where: Target,
        name: str,
        *,
        patience: float,
        settings: Mapping[str, str],
        check: Callable[[Link], None] | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.where, self.name, self.patience = where, name, patience
        self.warnings: list[str] = []  # of the last `pipe`
        self.trips = 0  # how often the server was waited for
        self.statements = 0
        self._settings = {**SETTINGS, **settings}
        self._check = check
        self._raw: Raw | None = None
        self._through: Pipe | None = None
        self._closed = False

    @property
    def pid(self) -> int:
        """The server's process; 0 if there is none."""
        return self._raw.pgconn.backend_pid if self._raw is not None and not self._raw.closed else 0

    def server(self) -> int:
        """The server's process that is asked next. Connects, and raises what `pipe` does."""
        with self.lock:
            return self._connected().pgconn.backend_pid

    @property
    def behind(self) -> psycopg.Error | None:
        """Why what was sent behind the last statements has failed, if it has."""
        return self._through.behind if self._through is not None else None

    @property
    def in_transaction(self) -> bool:
        """Whether one is open, failed or not, as far as is known."""
        return (
            self._raw is not None
            and not self._raw.closed
            and self._raw.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE
        )

    @property
    def failed(self) -> bool:
        """Whether the transaction that is open can only be rolled back, all of it or to a savepoint."""
        return self._raw is not None and self._raw.pgconn.transaction_status == psycopg.pq.TransactionStatus.INERROR

    def pipe(self, *calls: Call, behind: str = "") -> list[Answer]:
        """Run statements in one round trip. Raises psycopg's errors; a connection that broke is dropped. behind: see `Pipe`."""
        with self.lock:
            raw = self._connected()
            try:
                return self._pipe(raw, calls, behind)
            except BaseException as error:
                if raw.closed or isinstance(error, WORN_OUT) or not isinstance(error, Exception):  # interrupted somewhere
                    self.drop()
                raise

    def _pipe(self, raw: Raw, calls: Sequence[Call], behind: str = "") -> list[Answer]:
        self.trips += 1
        self.statements += len(calls)
        self.warnings.clear()
        if self._through is None or self._through.raw is not raw:
            self._through = Pipe(raw, STATEMENTS, prepared=not self.where.pgbouncer)
        if not behind:
            return self._through.run(calls)
        warned: list[str] = []  # a warning about what comes behind a COMMIT casts no doubt on it (R7)
        self.statements += 1
        try:
            return self._through.run(calls, behind, lambda: warned.extend(self.warnings))
        finally:
            self.warnings[:] = warned

    def script(self, text: str) -> None:
        """Run the statements of a migration, inside the transaction that is open."""
        with self.lock:
            self._connected().execute(text.encode(), prepare=False)

    def transaction(self, *calls: Call) -> list[Answer]:
        """Run statements as a transaction of their own, in one round trip. Raises `StoreUnavailable`; see `answered`."""
        with self.lock, self.answered():
            if len(calls) == 1 and not self.where.pgbouncer:
                answers = self.pipe(*calls)
            else:
                first: list[Call] = [("begin", None), *self.locals()]
                answers = self.pipe(*first, *calls, ("commit", None))
                self.must_be_committed(answers[-1])
                answers = answers[len(first) : -1]
            if self.warnings:
                raise psycopg.OperationalError(f"committed with a warning: {self.warnings[0]}")
            return answers

    def must_be_committed(self, answer: Answer) -> None:
        """Raise unless the answer to a COMMIT says so, without a warning (R7): a cancelled wait for a standby gives one."""
        if answer.tag != "COMMIT" or self.warnings:
            raise psycopg.OperationalError(f"COMMIT was answered {answer.tag}, with {self.warnings or 'no'} warnings")

    @contextlib.contextmanager
    def answered(self) -> Iterator[None]:
        """psycopg's errors as ours: nothing is known of what was under way. The next one uses a fresh connection if need be."""
        try:
            yield
        except errors._WaitTimeout as error:
            self.drop()
            raise StoreUnavailable(f"the store did not answer: {error}") from error
        except LOCKED as error:
            self.roll_back()
            raise StoreUnavailable(f"the store is busy: {_line(error)}") from error
        except UNAVAILABLE as error:
            self.roll_back()
            raise StoreUnavailable(f"the store did not answer: {_line(error)}") from error
        except BaseException:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """End a transaction that is open, if the connection is whole; else drop it."""
        raw = self._raw
        if raw is None or (not raw.closed and raw.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE):
            return
        try:
            self._pipe(raw, [("rollback", None)])
        except Exception:
            self.drop()

    def locals(self, **more: str) -> list[Call]:
        """What a transaction must be told first: all settings if a pool is in between, else what differs."""
        settings = {**self._settings, **more} if self.where.pgbouncer else more
        return [("set", _settings(settings, local=True))] if settings else []

    # --- opening and closing ---

    def _connected(self) -> Raw:
        if self._closed:
            raise StoreUnavailable("the store is closed; make a new semel.App to go on")
        if self._raw is not None and self._raw.closed:
            self.drop()
        if self._raw is None:
            self._raw = self._connect()
            try:
                if not self.where.pgbouncer:
                    self._pipe(self._raw, [("set", _settings(self._settings, local=False))])
                if self._check is not None:
                    self._check(self)
            except BaseException:
                self.drop()
                raise
        return self._raw

    def _connect(self) -> Raw:
        params = {"application_name": f"semel {self.name}", **self.where.params, "client_encoding": "utf8"}
        raw = Raw.connect(**params, autocommit=True, prepare_threshold=None)  # type: ignore[arg-type]
        assert isinstance(raw, Raw)
        raw.patience = self.patience
        raw.add_notice_handler(self._noticed)
        return raw

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if (notice.severity_nonlocalized or "") in ("WARNING", "ERROR", "FATAL", "PANIC"):
            self.warnings.append(f"{notice.sqlstate} {notice.message_primary}")

    def drop(self) -> None:
        """Cut the connection; the next statement opens another."""
        raw, self._raw, self._through = self._raw, None, None
        if raw is not None:
            with contextlib.suppress(Exception):
                raw.close()

    def close(self) -> None:
        """Cut it for good."""
        with self.lock:
            self._closed = True
            self.drop()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's connection without a word to the server, which would end it for both."""
        self._closed = True
        raw, self._raw = self._raw, None
        if raw is not None:
            with contextlib.suppress(Exception):
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, raw.fileno())  # else the server would not see the parent go
                os.close(nowhere)


def _settings(settings: Mapping[str, str], *, local: bool) -> dict[str, Any]:
    return {"names": text_array(settings.keys()), "values": text_array(settings.values()), "local": local}


def _line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


# --- arrays: the text that PostgreSQL reads; psycopg's own dumper takes five times as long ---


def text_array(values: Iterable[Any]) -> str:
    """A text[] of these. Raises `TypeError` for what is no text (None is NULL), `ValueError` for a zero character."""
    found = list(values)
    if None in found:
        return "{" + ",".join(["NULL" if v is None else text_array([v])[1:-1] for v in found]) + "}"
    joined = "\0".join(found)  # escaped all at once: this is where the time goes
    if joined.count("\0") != max(len(found) - 1, 0):
        raise ValueError("a text holds a zero character, which PostgreSQL cannot store")
    joined = joined.replace("\\", "\\\\").replace('"', '\\"').replace("\0", '","')
    return f'{{"{joined}"}}' if found else "{}"


def int_array(values: Iterable[Any]) -> str:
    """A bigint[] of these. Raises `TypeError` for what is no integer (None is NULL)."""
    return "{" + ",".join(["NULL" if v is None else f"{v:d}" for v in values]) + "}"


def bytes_array(values: Iterable[Any]) -> str:
    """A bytea[] of these."""
    return "{" + ",".join(["NULL" if v is None else f'"\\\\x{v.hex()}"' for v in values]) + "}"

"""What a person decides. Every rule is the machine's; every decision carries the version that was seen (R21)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from semel.engine.data import NotRecordable, Value, check_size
from semel.engine.ledger import Desk, Ledger
from semel.engine.queue import check_name
from semel.engine.requests import Request
from semel.errors import Misuse, Refused
from semel.machine import effects as e
from semel.machine import tasks
from semel.machine.projection import EffectRow
from semel.model import Confirmed, Conflict, Json, NotFound, Refusal, Verdict

PAYLOAD = Value(Any, "a signal's payload")


def person(by: str) -> str:
    """Who acts, for the record."""
    if not isinstance(by, str) or not by.strip():
        raise Misuse("a decision needs a name: by='alice'")
    return f"person:{by.strip()}"


def unwrap(decided: e.Decision | Refusal) -> e.Decision:
    """A person may read every refusal."""
    if isinstance(decided, Refusal):
        raise Refused(decided.code, decided.message, decided.result)
    return decided


def open_ledger(desk: Desk, tenant: str, task: str, actor: str) -> Ledger:
    """The task's ledger, or a clear word that there is none."""
    ledger = Ledger.read(desk, tenant, task, actor)
    if ledger is None:
        raise Misuse(f"there is no task {task} of tenant {tenant!r}; see: semel tasks")
    return ledger


def resolve(
    desk: Desk, row: EffectRow, verdict: Verdict, *, by: str, reason: str, seen: int | None, stopped: bool, encode: Any
) -> Generator[Request, Any, None]:
    """A person's verdict on an unknown effect; its task goes on."""
    ledger = open_ledger(desk, row.tenant, row.task, person(by))
    if row.stream != row.task:
        ledger.key_stream(row.key)
    result: Json = None
    if isinstance(verdict, Confirmed):
        try:
            name, result = "confirmed", encode(verdict.result)
        except NotRecordable as error:
            raise Misuse(
                f"Confirmed(...) of {row.name}: {error}; give its result as the effect's return annotation has it"
            ) from None
    elif isinstance(verdict, NotFound):
        name = "not_found"
    elif isinstance(verdict, Conflict):
        name, reason = "conflict", verdict.reason if not reason else f"{verdict.reason}; {reason}"
    else:
        raise Misuse("a person's verdict is Confirmed(result), NotFound() or Conflict(reason)")
    version = row.version if seen is None else seen
    command = e.Answer(row.key, name, by.strip(), version, result, reason, stopped)
    scope = "task" if row.stream == row.task else "tenant"
    unwrap((yield from ledger.commit(command, scope=scope)))
    if name != "conflict":
        yield from ledger.commit(tasks.Unblock(f"{name} by {by.strip()}", desk.clock.wall_ms()))


def signal(desk: Desk, tenant: str, task: str, event: str, payload: Any) -> Generator[Request, Any, None]:
    """Something outside has happened that a task waits for, or will wait for."""
    check_name(event, "event")
    try:
        data = PAYLOAD.encode(payload)
        check_size(data, "the payload")
    except NotRecordable as error:
        raise Misuse(f"the payload of {event!r} cannot be recorded: {error}; pass plain data") from None
    ledger = yield from desk.off_loop(lambda: open_ledger(desk, tenant, task, "caller"))
    unwrap((yield from ledger.commit(tasks.Signal(event, data, desk.clock.wall_ms()))))


def cancel(desk: Desk, tenant: str, task: str, *, by: str, reason: str) -> Generator[Request, Any, None]:
    """Cooperative: what runs starts nothing more; with an unknown, a reconcile-only attempt comes first."""
    ledger = open_ledger(desk, tenant, task, person(by))
    why = f"cancelled by {by.strip()}" + (f": {reason}" if reason else "")
    unwrap((yield from ledger.commit(tasks.Cancel(why, desk.clock.wall_ms()))))


def replay(desk: Desk, tenant: str, task: str, *, by: str, reason: str, from_step: str) -> Generator[Request, Any, None]:
    """The same task, the same keys: what is on record is returned, not repeated."""
    ledger = open_ledger(desk, tenant, task, person(by))
    why = f"by {by.strip()}" + (f": {reason}" if reason else "")
    unwrap((yield from ledger.commit(tasks.Replay(why, desk.clock.wall_ms(), from_step))))

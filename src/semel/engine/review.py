"""What a person decides. Every rule is the machine's; every decision carries the version that was seen (R21)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import timedelta
from typing import Any

from semel.engine import declare, redaction
from semel.engine.data import NotRecordable, Value, check_size
from semel.engine.identity import checked
from semel.engine.keyring import Ring
from semel.engine.ledger import Desk, Ledger
from semel.engine.pages import newest_tasks
from semel.engine.queue import check_name
from semel.engine.requests import Request
from semel.engine.runtime import current, inside
from semel.engine.veil import said_in
from semel.errors import Misuse, Refused
from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import keys, tasks
from semel.machine import redaction as r
from semel.machine.projection import EffectRow
from semel.model import Confirmed, Conflict, Delivery, Json, NotFound, Refusal, Verdict

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
    yield from told(ledger, command, scope=scope_of(row))
    if name != "conflict":
        why = f"{name} by {by.strip()}"
        yield from ledger.commit(tasks.Unblock(why, desk.clock.wall_ms()))
        if row.stream != row.task:
            yield from _others_go_on(desk, row, why, person(by))


def _others_go_on(desk: Desk, row: EffectRow, why: str, actor: str) -> Generator[Request, Any, None]:
    """The other tasks that wait for a person because of a shared key, as they do when its owner had ended (R8)."""
    for task in list(newest_tasks(desk.store, row.tenant, Delivery.BLOCKED)):
        rows = desk.store.rows(task.tenant, task.task) if task.task != row.task else []
        last = next((one for one in reversed(rows) if one.kind == j.Blocked.kind), None)
        event = j.event_of(last) if last is not None else None
        if isinstance(event, j.Blocked) and event.key == row.key:
            other = open_ledger(desk, task.tenant, task.task, actor)
            yield from other.commit(tasks.Unblock(why, desk.clock.wall_ms()))  # refused if it has moved on: then it need not


def no_agent(what: str) -> None:
    """Raise `Misuse` where a decision is made inside the work that it is about, or any other: an agent is no person."""
    if current.get() is not None or inside.get():
        raise Misuse(
            f"{what} was called inside the work of an agent, and an agent cannot decide about its own acts; a person does, "
            f"outside any work: semel approve, deny or resolve"
        )


def keep_out(ledger: Ledger, command: tasks.Command) -> None:
    """Raise `Misuse` where a person would put on record what was redacted in the task, as far as this process has its key."""
    for known in redaction.effects_of(ledger):
        redaction.seek(ledger.veil, ledger.tenant, known, Ring.from_environment)
    said = [*said_in(command).values(), getattr(command, "by", "")]
    if any(ledger.veil.data(one) is not one for one in said):
        raise Misuse("what was written holds a value that was redacted in this task, and it would be on record; leave it out")


def told(ledger: Ledger, command: tasks.Command, *, scope: str = "task") -> Generator[Request, Any, None]:
    """Every word of a person's goes on record here. Raises `Misuse`, and `Refused`."""
    if scope == "tenant" and isinstance(command, e.EffectCommand):
        ledger.shared_effect(command.key)  # the task may not have joined it
    keep_out(ledger, command)
    unwrap((yield from ledger.commit(command, scope=scope)))


def edited(row: EffectRow, args: Any, declared: declare.Effect | None, recorded: Json) -> tuple[Json, str]:
    """An edit as data, and its digest; arguments that it does not name are as recorded. Raises `Misuse`."""
    if not isinstance(args, Mapping) or not args:
        raise Misuse(f"an edit of {row.name} names arguments and their new values: args={{'cents': 1200}}, not {args!r}")
    data = {**recorded, **args}
    if unknown := sorted(set(args) - set(recorded)):
        raise Misuse(f"an edit of {row.name} names {unknown[0]!r}, which is none of its arguments: {', '.join(recorded)}")
    for name in args:
        if r.looks_marked(recorded[name]) or r.looks_marked(args[name]):
            raise Misuse(
                f"an edit of {row.name} names {name!r}, which is redacted: only the agent's own call knows it; edit another "
                f"argument, or deny the call"
            )
    if declared is not None:
        hidden = {name: value for name, value in data.items() if r.mark_of(value) is not None}
        try:
            clear = [name for name in declared.parameters.values if name not in hidden]
            data = {**declared.parameters.encode(declared.parameters.decode(data, clear)), **hidden}
        except NotRecordable as error:
            raise Misuse(
                f"the edit does not fit effect {row.name}: {error}; write it as the agent would have called it"
            ) from error
    return data, keys.digest(data)


def approve(
    desk: Desk, row: EffectRow, *, by: str, reason: str, seen: int | None, expires: timedelta | None, args: Any,
    declared: declare.Effect | None,
) -> Generator[Request, Any, None]:  # fmt: skip
    """A person lets the recorded call be sent, edited or not; whoever waits for it goes on in the same change."""
    ledger = open_ledger(desk, row.tenant, row.task, person(by))
    known = ledger.shared_effect(row.key) if row.stream != row.task else ledger.effect(row.key)
    if expires is not None and expires <= timedelta(0):
        raise Misuse(f"expires={expires} is over already; write how long the approval holds: expires=timedelta(hours=1)")
    data, digest = (None, "") if args is None or known is None else edited(row, args, declared, known.args)
    now = desk.clock.latest_ms()
    until = 0 if expires is None else now + declare.milliseconds(expires)
    command = e.Approve(row.key, by.strip(), row.version if seen is None else seen, now, reason, data, digest, until)
    yield from told(ledger, command, scope=scope_of(row))


def deny(desk: Desk, row: EffectRow, *, by: str, reason: str, seen: int | None) -> Generator[Request, Any, None]:
    """A person says no, and the agent may read it."""
    ledger = open_ledger(desk, row.tenant, row.task, person(by))
    command = e.Deny(row.key, by.strip(), row.version if seen is None else seen, reason)
    yield from told(ledger, command, scope=scope_of(row))


def correct(desk: Desk, row: EffectRow, *, by: str, reason: str, seen: int | None) -> Generator[Request, Any, None]:
    """A person takes back a person's verdict: a new entry, and the effect is unknown again."""
    if not isinstance(reason, str) or not reason.strip():
        raise Misuse("a correction says what was wrong: reason='the receipt was of another invoice'")
    ledger = open_ledger(desk, row.tenant, row.task, person(by))
    version = row.version if seen is None else seen
    command = e.Reverse(row.key, by.strip(), version, desk.clock.wall_ms(), reason.strip())
    yield from told(ledger, command, scope=scope_of(row))


def renew(desk: Desk, row: EffectRow, *, by: str, reason: str, seen: int | None) -> Generator[Request, Any, None]:
    """A person lets a provably clean effect be tried under a new key."""
    if not isinstance(reason, str) or not reason.strip():
        raise Misuse("a new generation needs a reason; write reason='the account is open again'")
    ledger = open_ledger(desk, row.tenant, row.task, person(by))
    command = e.Renew(row.key, by.strip(), row.version if seen is None else seen, reason.strip())
    yield from told(ledger, command, scope=scope_of(row))


def scope_of(row: EffectRow) -> str:
    """Whether an effect is one task's, or the tenant's."""
    return "task" if row.stream == row.task else "tenant"


def signal(desk: Desk, tenant: str, task: str, event: str, payload: Any) -> Generator[Request, Any, None]:
    """Something outside has happened that a task waits for, or will wait for."""
    check_name(event, "event")
    try:
        data = PAYLOAD.encode(payload)
        check_size(data, "the payload")
    except NotRecordable as error:
        raise Misuse(f"the payload of {event!r} cannot be recorded: {error}; pass plain data") from None
    if (attempt := current.get()) is not None:
        redaction.refuse_clear(attempt, "the name of a signal", event)
        redaction.refuse_clear(attempt, f"the payload of {event!r}", data)
    ledger = yield from desk.off_loop(lambda: open_ledger(desk, tenant, task, "caller"))
    unwrap((yield from ledger.commit(tasks.Signal(event, data, desk.clock.wall_ms()))))


def cancel(desk: Desk, tenant: str, task: str, *, by: str, reason: str) -> Generator[Request, Any, None]:
    """Cooperative: what runs starts nothing more; with an unknown, a reconcile-only attempt comes first."""
    ledger = open_ledger(desk, tenant, task, person(by))
    why = f"cancelled by {by.strip()}" + (f": {reason}" if reason else "")
    yield from told(ledger, tasks.Cancel(why, desk.clock.wall_ms()))


def replay(
    desk: Desk, tenant: str, task: str, *, by: str, reason: str, from_step: str, known: bool = False,
    at_most: dict[str, int] | None = None, seen: int = 0, identity: Mapping[str, str] | None = None,
) -> Generator[Request, Any, None]:  # fmt: skip
    """The same task, the same keys: what is on record is returned, not repeated. known: others of its kind have that step.

    identity: bound names, and their new values.
    """
    anew = checked(identity, "identity=") if identity is not None else ()
    ledger = open_ledger(desk, tenant, task, person(by))
    why = f"by {by.strip()}" + (f": {reason}" if reason else "")
    command = tasks.Replay(why, desk.clock.wall_ms(), from_step, at_most, seen, known, identity=anew, by=by.strip())
    yield from told(ledger, command)


def purge(desk: Desk, tenant: str, task: str, *, by: str, why: str) -> Generator[Request, Any, None]:
    """A dead letter that nobody will look after any more: its record and its keys stay."""
    ledger = open_ledger(desk, tenant, task, person(by))
    yield from told(ledger, tasks.Purge(why))

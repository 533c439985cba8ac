"""A call that has not been made: what it would be on record, so that a person may approve it ahead."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from semel.engine import declare
from semel.engine.ledger import Desk, Ledger
from semel.engine.requests import Request
from semel.engine.review import open_ledger, person, told
from semel.errors import Misuse
from semel.machine import effects as e
from semel.machine import generations, keys
from semel.model import Json, Ref


@dataclass(frozen=True, slots=True)
class Planned:
    """A call of an effect that a task is expected to make. args: as data. Made by `effect.planned(ref, ...)`."""

    ref: Ref[Any]
    effect: str
    args: Mapping[str, Json]
    occurrence: str = ""
    declared: declare.Effect = field(kw_only=True, repr=False, compare=False)


def planned(effect: declare.Effect, ref: Ref[Any], args: tuple[Any, ...], kwargs: dict[str, Any], occurrence: str) -> Planned:
    """The call as data. Raises `Misuse` for arguments that the effect would not take."""
    if not isinstance(ref, Ref):
        raise Misuse(f"effect {effect.name}: planned takes the task's Ref first, and not {ref!r}; write planned(ref, ...)")
    if effect.approve is False:
        raise Misuse(f"effect {effect.name} needs no approval, so none can be given ahead; declare it with approve=True")
    if effect.redact:
        raise Misuse(
            f"effect {effect.name} redacts {', '.join(effect.redact)}, and what is approved ahead is recorded as it is; let the "
            f"agent ask, and approve that"
        )
    data = effect.parameters.encode(effect.parameters.bind(args, kwargs))
    for name in effect.intent:
        keys.check_intent(data[name], f"{effect.name}: intent {name}")
    return Planned(ref, effect.name, data, occurrence, declared=effect)


def key_now(ledger: Ledger, call: Planned) -> str:
    """The key that the call would have now: of the newest generation that a person has opened."""
    generation = 0
    while True:
        key = declare.key_of(
            ledger.desk.store.info.application, ledger.tenant, (ledger.state.kind, ledger.state.key), call.declared, call.args,
            call.occurrence, generation,
        )  # fmt: skip
        known = ledger.effect(key) if call.declared.scope == "task" else ledger.shared_effect(key)
        if known is None or not generations.gone(known):
            return key
        generation += 1


def approve(
    desk: Desk, tenant: str, call: Planned, *, by: str, reason: str, expires: timedelta | None
) -> Generator[Request, Any, None]:
    """A person approves exactly this call before it is asked for."""
    ledger = open_ledger(desk, tenant, call.ref.id, person(by))
    if expires is not None and expires <= timedelta(0):
        raise Misuse(f"expires={expires} is over already; write how long the approval holds: expires=timedelta(hours=1)")
    now, data = desk.clock.latest_ms(), dict(call.args)
    until = 0 if expires is None else now + declare.milliseconds(expires)
    command = e.Approve(
        key_now(ledger, call), by.strip(), 0, now, reason, data, keys.digest(data), until, call.declared.first_name
    )
    yield from told(ledger, command, scope=call.declared.scope)


def deny(desk: Desk, tenant: str, call: Planned, *, by: str, reason: str) -> Generator[Request, Any, None]:
    """A person takes back what was approved ahead; if the call has come meanwhile, they say no to it."""
    ledger = open_ledger(desk, tenant, call.ref.id, person(by))
    command = e.Deny(key_now(ledger, call), by.strip(), 0, reason, call.declared.first_name)
    yield from told(ledger, command, scope=call.declared.scope)

"""Redaction at the call: values become markers before anything is stored, and what is in clear elsewhere is refused.

A redacted value is the live call's alone: nothing that is on record can be sent in its place.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from immutables import Map
from pydantic import ValidationError

from semel.engine.data import NotRecordable, Value
from semel.engine.declare import Effect
from semel.engine.keyring import VARIABLE, Ring
from semel.engine.veil import Veil, texts
from semel.errors import Misuse
from semel.machine import effects as e
from semel.machine import redaction as r
from semel.machine import tasks
from semel.model import Json

if TYPE_CHECKING:
    from semel.engine.attempt import Attempt
    from semel.engine.ledger import Ledger

MEND = "pass a reference (a token of your vault) and fetch the value inside the effect"


@contextlib.contextmanager
def careful(attempt: Attempt, effect: Effect, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """While a call becomes data: whatever is said of it is said without its redacted values. Raises `Misuse` without a key."""
    if not effect.redact:
        yield
        return
    attempt.runtime.ring.key(f"effect {effect.name} redacts, and that")
    given = {**dict(zip(effect.parameters.values, args, strict=False)), **kwargs}
    for name in effect.redact:
        attempt.veil.note(given.get(name))
    try:
        yield
    except Misuse as error:
        raise Misuse(attempt.veil.text(str(error))) from None


def recorded(
    attempt: Attempt, effect: Effect, key: str, values: Mapping[str, Any], data: dict[str, Json], occurrence: str
) -> dict[str, Json]:
    """The arguments as they are recorded. Raises `Misuse` where a redacted value is on record already, or would be."""
    if not effect.redact and not attempt.veil.active:
        return data
    for name in effect.redact:
        _is_itself(effect, name, values[name], data[name])
        attempt.veil.note(data[name])
    known = attempt.ledger.effect(key)
    clear = {f"argument {name}": value for name, value in data.items() if name not in effect.redact}
    if known is None or not known.confirmed:  # done before its code said redact=: the record is the answer
        _nowhere_in_clear(attempt, effect, {**clear, "occurrence": occurrence})
    return {**data, **markers(attempt, effect, known, data)} if effect.redact else data


def markers(attempt: Attempt, effect: Effect, known: e.Effect | None, data: Mapping[str, Json]) -> dict[str, Json]:
    """What stands on record for the redacted arguments in `data`: what stands there already, if it is of the same values."""
    ring = attempt.runtime.ring
    held = known.args or {} if known is not None else {}
    found: dict[str, Json] = {}
    for name in effect.redact:
        place = place_of(attempt, effect, name)
        same = ring.matches(place, held.get(name), data[name])  # under an older key: it is the same value all the same
        found[name] = held[name] if same else r.marker(ring.key(effect.name), place, data[name])
    return found


def place_of(attempt: Attempt, effect: Effect, field: str) -> r.Place:
    """Where an effect's argument stands."""
    return r.Place(attempt.ledger.tenant, effect.first_name, field)


def _is_itself(effect: Effect, name: str, value: Any, data: Json) -> None:
    """Its record must tell it from other values: a type that hides itself (a `SecretStr`) is recorded as stars."""
    try:
        same = bool(effect.parameters.values[name].decode(data) == value)
    except ValidationError:
        same = False
    if not same:
        raise Misuse(
            f"effect {effect.name}: {name} does not read the same again, so nothing could be proved of it later; annotate it "
            f"str, and pass its text: semel redacts it"
        )


def _nowhere_in_clear(attempt: Attempt, effect: Effect, beside: Mapping[str, Json]) -> None:
    veil = attempt.veil
    if not veil.active:
        return
    where = next((f"its {name}" for name, value in beside.items() if veil.shows(value)), "")
    if effect.redact:
        where = where or next((place for place, data in _on_record(attempt) if veil.shows(data)), "")
    if where:
        raise Misuse(
            f"effect {effect.name}: a redacted value is in clear in {where}, and that is stored as it is; nothing was sent; "
            f"{MEND}"
        )


def _on_record(attempt: Attempt) -> Iterator[tuple[str, Json]]:
    """What is on record of the task, and where: all that is folded of it, so a new field is looked through by itself."""
    state: tasks.Task = attempt.ledger.state
    yield "the task's key", state.key
    yield from ((f"the task's argument {name}", data) for name, data in (state.args or {}).items())
    yield from ((f"the result of step {key.rsplit(':', 2)[0]}", result) for key, (_, result) in state.steps.items())
    yield from ((f"the payload of signal {event}", payload) for event, (_, payload) in state.signals.items())
    yield from attempt.veil.passed
    clean = attempt.veil.clean  # of the values so far; a thread that brings another one begins another
    for known in effects_of(attempt.ledger):
        if clean.get(known.key) is known:
            continue  # it was looked through for the same values, and is as it was: there may be thousands
        yield f"the arguments of effect {known.name}", known.args
        yield f"the result of effect {known.name}", known.result
        yield from texts(known, f"what is on record of effect {known.name}")
        clean[known.key] = known  # whoever asks for more than that has found nothing in it
    yield from texts(dataclasses.replace(state, effects=Map(), steps=Map(), args=None), "what is on record of the task")
    yield from (
        (where, data)
        for key in attempt.ledger.shared().values()
        for where, data in texts(dataclasses.replace(key, effect=None), "a key of the tenant")
    )


def effects_of(ledger: Ledger) -> list[e.Effect]:
    """All effects of a task, those of the tenant's keys too."""
    shared = (stream.state.effect for stream in ledger.keys.values())
    return [*ledger.state.effects.values(), *(known for known in shared if known is not None)]


def seek(veil: Veil, tenant: str, known: e.Effect, ring: Callable[[], Ring]) -> None:
    """From now on, what was redacted of a recorded call is kept out. The keys are asked for only where something was."""
    if isinstance(known.args, Mapping) and any(r.mark_of(data) is not None for data in known.args.values()):
        veil.seek(ring(), tenant, known.name, known.args)


def refuse_clear(attempt: Attempt, what: str, *data: Json) -> None:
    """Raise `Misuse` where the handler would put on record what an effect of this attempt redacted; remember what it does put."""
    if any(attempt.veil.shows(one) for one in data):
        raise Misuse(f"{what} holds what an effect of this attempt redacted, and that would be stored in clear; {MEND}")
    if attempt.runtime.redacts:
        attempt.veil.passed += [(what.rstrip(","), one) for one in data]


def approved(attempt: Attempt, effect: Effect, live: Mapping[str, Any], args: Json) -> dict[str, Any]:
    """An approved call's values: what is on record; a redacted one is the agent's own, if the record proves that it is the same.

    Raises `NotRecordable` if it is not.
    """
    hidden = {name: data for name, data in args.items() if r.mark_of(data) is not None}
    values = effect.parameters.decode(args, [name for name in effect.parameters.values if name not in hidden])
    ring = attempt.runtime.ring
    for name, data in hidden.items():
        mark = r.mark_of(data)
        if name not in live or mark is None:
            raise NotRecordable(f"the redacted {name} is no parameter of it any more")
        if not ring.holds(mark.key_id):
            raise NotRecordable(
                f"{name} was redacted under key {mark.key_id}, which is not in {VARIABLE} any more: add it behind a comma"
            )
        if not ring.matches(place_of(attempt, effect, name), data, effect.parameters.values[name].encode(live[name])):
            raise NotRecordable(f"its redacted {name} is not the one that was approved")
        values[name] = live[name]
    return values


def proves(ring: Ring, place: r.Place, args: Json, value: Any, declared: Value | None) -> bool:
    """Whether `value` is what was redacted. Raises `Misuse` where that cannot be told."""
    if not isinstance(args, Mapping) or place.field not in args:
        raise Misuse(f"effect {place.effect} has no argument {place.field!r} on record; it has {', '.join(args or ()) or 'none'}")
    mark = r.mark_of(args[place.field])
    if mark is None:
        raise Misuse(f"{place.field} of effect {place.effect} was not redacted: it is on record in clear; see: semel show TASK")
    ring.key("a proof")
    if not ring.holds(mark.key_id):
        raise Misuse(
            f"{place.field} was redacted under key {mark.key_id}, which is not in {VARIABLE}; write the old key behind the one "
            f"in use, with a comma between them"
        )
    try:
        return ring.matches(place, args[place.field], (declared or Value(Any, "a redacted value")).encode(value))
    except Misuse:
        return False  # nothing that the effect could have been called with

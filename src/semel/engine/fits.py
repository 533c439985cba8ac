"""Whether what is on record of a task still fits the code that is to go on with it (R22).

A key is derived from an effect's name, scope and intent. Where the code derives another one from the recorded arguments, or
does not know the name, it would do again what was done. So it is asked before the handler runs, of one effect of each name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from semel.engine.data import NotRecordable
from semel.engine.declare import Effect, Registry, Work
from semel.machine import effects as e
from semel.machine import keys, redaction, tasks


class Place(NamedTuple):
    """Whose keys they are: the store's application, and the tenant."""

    application: str
    tenant: str


def unfit(place: Place, state: tasks.Task, shared: Iterable[e.Effect], effects: Registry[Effect], work: Work) -> str:
    """What the code does not know of this task's record, or knows otherwise, in words; "" if it fits."""
    return _arguments(state, work) or _effects(place, state, shared, effects)


def _arguments(state: tasks.Task, work: Work) -> str:
    gone = sorted(set(state.args or ()) - set(work.parameters.values))
    if gone:
        return f"the recorded argument {gone[0]!r} is no parameter of task {work.name} in this code"
    try:
        work.parameters.decode(state.args)
    except NotRecordable as error:
        return str(error)
    return ""


def _effects(place: Place, state: tasks.Task, shared: Iterable[e.Effect], effects: Registry[Effect]) -> str:
    for name in sorted(state.names):
        if name and effects.get(name) is None:
            return f"effect {name!r} is on record, and this code does not declare it (renamed: formerly=({name!r},))"
    return changed(place, state, shared, effects)


def changed(place: Place, state: tasks.Task, shared: Iterable[e.Effect], effects: Registry[Effect]) -> str:
    """Which effect on record the code declares otherwise, in words; "" if none. What it does not declare is passed over."""
    for name in sorted(state.watched):
        if (declared := effects.get(name)) is not None and declared.identity is None:
            return _unwatched(name)
    seen: set[str] = set()
    for known in [*(x for _, x in sorted(state.effects.items())), *shared]:
        declared = effects.get(known.name)
        if declared is None:
            continue
        if wrong := _unguarded(known, declared):
            return wrong
        if known.name not in seen:
            seen.add(known.name)
            if wrong := _changed(place, state, known, declared):
                return wrong
    return ""


def _unwatched(name: str) -> str:
    return f"effect {name!r} was sent only as what is bound to its task, and this code does not look (identity= is gone)"


def _unguarded(known: e.Effect, declared: Effect) -> str:
    if declared.identity is None and any(s.observed for s in known.sent):
        return _unwatched(known.name)
    for name, data in sorted((known.args or {}).items()):
        if redaction.mark_of(data) is not None and name in declared.parameters.values and name not in declared.redact:
            return f"effect {known.name!r} is on record with {name!r} redacted, and this code would record it (redact= is gone)"
    return ""


def _changed(place: Place, state: tasks.Task, known: e.Effect, declared: Effect) -> str:
    args = (known.args if known.asked is None or known.asked.args is None else known.asked.args) or {}
    missing = sorted({*declared.intent, *declared.material} - set(args))
    if missing:
        return f"effect {known.name!r} is on record without {missing[0]!r}, which identifies it in this code"
    scope = ("task", state.kind, state.key) if declared.scope == "task" else ("tenant",)
    intent = {name: args[name] for name in declared.intent}
    key = keys.effect_key(
        place.application, place.tenant, scope, declared.first_name, intent, known.occurrence, known.generation
    )  # fmt: skip
    if key != known.key:
        return f"effect {known.name!r} is on record under a key that this code does not give it: its intent or scope has changed"
    material = keys.digest({name: args[name] for name in declared.material}) if declared.material else ""
    if material != known.material:
        return f"effect {known.name!r} is on record with other material arguments than this code names"
    return ""


def unsendable(known: e.Effect, declared: Effect) -> str:
    """Why the recorded call cannot be sent again by this code as it was; "" if it can."""
    gone = sorted(set(known.args or ()) - set(declared.parameters.values))
    return f"the recorded argument {gone[0]!r} is no parameter of effect {declared.name} in this code" if gone else ""

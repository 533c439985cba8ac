"""Retention (R22): what is remembered of a stream whose rows are taken away. Pure; `tasks` asks, and applies.

A stream is pruned by one row more, chained to the last like any other, that holds what a later decision may rest on: keys,
arguments, digests, results, tokens, counts. The rows before it go. Lost are the steps, other wordings, and the story.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from immutables import Map

from semel.machine import journal as j
from semel.machine.task_commands import Prune
from semel.model import Code, Delivery, Json, Refusal

if TYPE_CHECKING:
    from semel.machine.effect_state import Effect
    from semel.machine.task_state import Key, Task

S = TypeVar("S")


# --- may it be? -----------------------------------------------------------------------------------------------------


def of_task(task: Task, c: Prune, shared: Mapping[str, Key]) -> j.Pruned | Refusal:
    """The tombstone of a task, or why its rows must stay."""
    if not task.ended:
        return _no(Code.STALE_VIEW, f"the task is {task.delivery}: only what has ended is pruned")
    if task.delivery is Delivery.DEAD_LETTERED and not c.dead:
        return _no(Code.STALE_VIEW, "the task is dead-lettered, and may be replayed: that must be given up expressly (--dead)")
    if unproved := next((x.name for x in task.effects.values() if x.open), ""):
        return _no(Code.UNKNOWN_OUTSTANDING, f"the outcome of {unproved} is not proved")
    for key in sorted(task.joined):
        held = shared[key].effect if key in shared else None
        if held is not None and (held.open or held.waiting):
            return _no(Code.UNKNOWN_OUTSTANDING, f"it has joined {held.name}, whose outcome is not proved")
    left = {key: forgotten(x) for key, x in task.effects.items()}
    kept = replace(task, steps=Map(), effects=Map(left), version=task.version + 1)
    if task.delivery is Delivery.DEAD_LETTERED:  # given up: it leaves the dead letters, as by a purge
        kept = replace(kept, delivery=Delivery.ACKNOWLEDGED, why=f"purged: {c.reason}")
    return j.Pruned(c.rows, c.hash, c.reason, task=plain(kept))


def of_key(key: Key, c: Prune, unfinished: Iterable[str]) -> j.Pruned | Refusal:
    """The tombstone of a tenant-scoped key. unfinished: tasks that have sent it or asked for it, and have not ended."""
    if key.effect is None or key.effect.open or key.effect.waiting:
        return _no(Code.UNKNOWN_OUTSTANDING, "the key is not settled")
    if task := next(iter(unfinished), ""):
        return _no(Code.STALE_VIEW, f"task {task} has joined it, and has not ended")
    return j.Pruned(c.rows, c.hash, c.reason, shared=plain(replace(key, effect=forgotten(key.effect), version=key.version + 1)))


def users(key: Key) -> set[str]:
    """The tasks that have sent a tenant-scoped key, or have asked for it."""
    return set() if key.effect is None else {s.task for s in key.effect.sent} | key.effect.askers


def forgotten(x: Effect) -> Effect:
    """An effect without what no later decision looks at. Its arguments stay, however long: only from them can be told
    whether the code still gives it this key (`fits`), and whether a redacted value is the same under an older key.
    What may yet be sent is kept whole, and so is what a person may yet take back (`reversal`)."""
    if not x.confirmed or x.word is not None:
        return x
    x = replace(x, sent=tuple(replace(s, session="") for s in x.sent))  # only of an open one it matters who could still act
    asked = replace(x.asked, args=None) if x.asked is not None and x.asked.digest == x.digest else x.asked
    return replace(x, asked=asked, approvals=tuple(replace(given, args=None) for given in x.approvals))


def _no(code: Code, message: str) -> Refusal:
    return Refusal(code, message)


# --- as data, and back ----------------------------------------------------------------------------------------------


def plain(value: Any) -> Json:
    """A state of the machine as data; what holds its default is left out."""
    return _plain(type(value), value)


def back(cls: type[S], data: Json) -> S:
    """The state that `plain` gave. Raises `ValueError` for a field that this version does not know."""
    hints = _hints(cls)  # type: ignore[arg-type]
    if not isinstance(data, dict) or not data.keys() <= hints.keys():
        raise ValueError(f"the journal holds a pruned {cls.__name__.lower()} with fields that this version does not know")
    return cls(**{**_defaults(cls), **{name: _back(hints[name], value) for name, value in data.items()}})  # type: ignore[arg-type]


@cache
def _hints(cls: type) -> dict[str, Any]:
    """The types of a class's fields, resolved, its own and those that it inherits."""
    found = typing.get_type_hints(cls)
    return {f.name: found[f.name] for f in fields(cls)}


_NOTHING = {str: "", int: 0, bool: False, tuple: (), Any: None}  # of a field that has no default of its own


@cache
def _defaults(cls: type) -> dict[str, Any]:
    found = {}
    for f in fields(cls):
        hint = _hints(cls)[f.name]
        plain = _NOTHING[typing.get_origin(hint) or hint] if f.default is f.default_factory is MISSING else f.default
        found[f.name] = f.default_factory() if f.default_factory is not MISSING else plain
    return found


def _one_of(hint: Any) -> Any:
    """What a field may hold beside None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (arm for arm in typing.get_args(hint) if arm is not type(None))
    return hint


def _plain(hint: Any, value: Any) -> Json:
    hint = _one_of(hint)
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if value is None or hint is Any or hint in (str, int, bool):
        return value
    if hint is Decimal:
        return format(value, "f")
    if is_dataclass(hint):
        hints = _hints(typing.cast(type, hint))
        given = {name: getattr(value, name) for name in hints}
        left = _defaults(typing.cast(type, hint))
        return {
            name: _plain(hints[name], one)
            for name, one in given.items()
            if type(one) is not type(left[name]) or one != left[name]
        }
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return str(value)
    if kind is tuple and len(inner) == 2 and inner[1] is not Ellipsis:
        return [_plain(one, part) for one, part in zip(inner, value, strict=True)]
    if kind is tuple:
        return [_plain(inner[0], part) for part in value]
    if kind is frozenset:
        return sorted(value)
    if kind is Map:
        return {key: _plain(inner[1], value[key]) for key in sorted(value)}
    raise TypeError(f"a tombstone cannot hold {hint!r}")  # a field of a kind that nobody has thought of here


def _back(hint: Any, data: Json) -> Any:
    hint = _one_of(hint)
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if data is None or hint is Any or hint in (str, int, bool):
        return data
    if hint is Decimal:
        return Decimal(data)
    if is_dataclass(hint):
        return back(typing.cast(type, hint), data)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(data)
    if kind is tuple and len(inner) == 2 and inner[1] is not Ellipsis:
        return tuple(_back(one, part) for one, part in zip(inner, data, strict=True))
    if kind is tuple:
        return tuple(_back(inner[0], part) for part in data)
    if kind is frozenset:
        return frozenset(data)
    if kind is Map:
        return Map({key: _back(inner[1], part) for key, part in data.items()})
    raise TypeError(f"a tombstone cannot hold {hint!r}")

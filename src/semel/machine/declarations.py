"""What workers' code has declared (R22): one row for each change, in the stream `STREAM` of the app's tenant ("": of none)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from semel.machine import journal as j
from semel.machine import keys
from semel.model import Json

STREAM = "declared"


@dataclass(frozen=True, slots=True)
class Declarations:
    """One code's. kinds, effects: by the name that keys go by, what identifies them. Two with one digest are the same."""

    kinds: dict[str, Any]
    effects: dict[str, Any]

    @property
    def digest(self) -> str:
        """Of all of it."""
        return keys.digest([self.kinds, self.effects])

    def event(self, accepted: bool = False, reason: str = "") -> j.Declared:
        """The row that tells of it."""
        return j.Declared(self.digest, self.kinds, self.effects, accepted, reason)


@dataclass(frozen=True, slots=True)
class Past:
    """What was declared before. last: by the last worker that shares a kind of task with us; one of another fleet does not
    count. known: whether this very code has run before. kinds: all that anybody ever declared."""

    last: j.Declared | None
    known: bool
    kinds: frozenset[str]


def past(rows: Iterable[j.Row], own: Declarations) -> Past:
    """What the rows tell, to a code that declares `own`. Raises `ValueError` for a row that this version does not know."""
    last, known = None, False
    ever: set[str] = set()
    names = {name for kind in own.kinds.values() for name in kind["names"]}
    for row in rows:
        event = row.event or j.event_of(row)
        if isinstance(event, j.Declared):
            theirs = {name for kind in event.kinds.values() for name in kind["names"]}
            ever |= theirs
            if names & theirs:
                last, known = event, known or event.digest == own.digest
    return Past(last, known, frozenset(ever))


def changed_kinds(before: j.Declared, own: Declarations) -> dict[str, str]:
    """By the name on record: how a kind of task has another key now. Enqueued again, its tasks would be others."""
    found = {}
    for name, was in before.kinds.items():
        now = next((kind for kind in own.kinds.values() if name in kind["names"]), None)
        if now is not None and _sorted(was["intent"]) != _sorted(now["intent"]):
            found[name] = f"task {name!r} had the intent {_shown(was['intent'])}, and has {_shown(now['intent'])}"
    return found


def renamed_kinds(past: Past, own: Declarations) -> dict[str, str]:
    """Those that are gone while new ones have come. Where none has come, they may well be another fleet's."""
    names = {name for kind in own.kinds.values() for name in kind["names"]}
    if past.last is None or past.known or names <= past.kinds:
        return {}
    gone = past.last.kinds.keys() - names
    return {name: f"task {name!r} is not declared any more (renamed: formerly=({name!r},))" for name in sorted(gone)}


def narrowed_kinds(before: j.Declared, own: Declarations) -> set[str]:
    """Those whose recorded arguments may not fit any more: a parameter is gone, or one more is needed."""
    found = set()
    for name, kind in own.kinds.items():
        was = next((old for known, old in before.kinds.items() if known in kind["names"]), None)
        if was is not None:
            gone = was["parameters"].keys() - kind["parameters"].keys()
            needed = {name for name, needed in kind["parameters"].items() if needed} - was["parameters"].keys()
            found |= {name} if gone or needed else set()
    return found


def guards_gone(before: j.Declared, own: Declarations) -> list[str]:
    """What guarded an effect in the last code, and does not in this one, in words."""
    found = []
    for name, was in sorted(before.effects.items()):
        now = next((effect for effect in own.effects.values() if name in effect["names"]), None)
        if now is not None:
            gone = [guard for guard in ("approve", "identity") if was.get(guard) and not now[guard]]
            gone += [f"redact=({field!r},)" for field in was.get("redact", []) if field not in now["redact"]]
            found += [f"effect {name!r} has no {guard if '=' in guard else guard + '='} any more" for guard in gone]
    return found


def _sorted(intent: Json) -> Json:
    return None if intent is None else sorted(intent)


def _shown(intent: Json) -> str:
    return "none" if intent is None else "(" + ", ".join(intent) + ")"

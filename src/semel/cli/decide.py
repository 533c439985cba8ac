"""`semel resolve`, `cancel`, `replay`: what a person decides. The machine judges it; here it is only passed on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from semel.app import App
from semel.cli import output as out
from semel.cli import show, why
from semel.cli.needs import need_of, settle_of_person
from semel.cli.reach import Found, find
from semel.cli.tell import Past
from semel.engine.data import NotRecordable
from semel.engine.ledger import Desk
from semel.errors import Misuse
from semel.machine import effects as e
from semel.machine.projection import EffectRow, TaskRow
from semel.model import Confirmed, Conflict, EffectState, Json, NotFound, Verdict

FEW = 6  # effects of a task that are named to whoever named the task


def strict_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError for anything else, NaN included."""

    def no(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=no)


def verdict_of(confirmed: str | None, not_found: bool, conflict: str | None) -> Verdict:
    """The one verdict that was given. Raises `Misuse`."""
    given = [confirmed is not None, not_found, conflict is not None]
    if sum(given) != 1:
        said = "no verdict was given" if not any(given) else "one verdict is wanted, and more were given"
        raise Misuse(f"{said}; write --confirmed 'JSON' (it happened), --not-found (it did not) or --conflict WHY (look again)")
    if not_found:
        return NotFound()
    if conflict is not None:
        if not conflict.strip():
            raise Misuse("--conflict says nothing; write --conflict 'what is there instead'")
        return Conflict(conflict)
    assert confirmed is not None
    try:
        return Confirmed(strict_json(confirmed))
    except ValueError as error:
        raise Misuse(
            f"--confirmed {out.clipped(confirmed, 40)!r} is not JSON ({error}); write the effect's result, as --confirmed "
            f"'\"id_42\"' for a text, or --confirmed null for none"
        ) from error


def who(by: str | None) -> str:
    """The name of the person who decides. Raises `Misuse`."""
    if by is None or not by.strip():
        raise Misuse("a decision is on record for ever and needs a name; write --by YOU, or export SEMEL_BY=YOU")
    return by.strip()


@dataclass(frozen=True, slots=True)
class Subject:
    """An effect as a person was shown it. version: what they have seen (R21)."""

    found: Found
    effect: e.Effect
    past: Past
    task: TaskRow | None

    @property
    def version(self) -> int:
        """The version that was shown."""
        return self.effect.version


def subject(desk: Desk, text: str, tenant: str, among: tuple[str, ...] = ("task", "effect")) -> Subject:
    """The effect that `text` names. Raises `Misuse`."""
    found = find(desk.store, text, tenant, among=among)
    if found.what == "task":
        its = [f"{x.name} {out.short(x.key)} ({x.state})" for x, _, _ in show.read(desk, found).effects]
        which = f"write one of these: {', '.join(its[:FEW])}{', ...' if its[FEW:] else ''}" if its else "it has none on record"
        raise Misuse(f"{text!r} is a task, and this is about one effect; {which}")
    assert isinstance(found.row, EffectRow)
    with_rows = desk.store.rows(found.tenant, found.row.stream)
    teller = why.teller(desk, found.tenant, found.row.task)
    for row in with_rows:
        teller.tell(row)
    past = teller.past[found.id]
    if past.now is None:
        raise Misuse(f"effect {found.id} has no journal; check the store: semel verify")
    return Subject(found, past.now, past, desk.store.task(found.tenant, past.now.task))


def present(desk: Desk, s: Subject) -> None:
    """What a decision is about, before it is passed on."""
    task = f" of {s.task.kind} {s.task.key}" if s.task is not None else ""
    out.say(f"This is about {s.effect.name}{task}:")
    show.effect(s.effect, s.past, need_of(desk, s.found.tenant, s.effect), desk.clock.raw_ms(), s.effect.task)
    out.say()


def check_result(app: App, s: Subject, verdict: Verdict) -> bool:
    """Whether the result was checked against the effect's own type. Raises `Misuse` if it does not fit."""
    if not isinstance(verdict, Confirmed):
        return True
    app.load()
    declared = app.declared_effects.get(s.effect.name)
    if declared is None:
        return False
    try:
        declared.result.encode(verdict.result)
    except NotRecordable as error:
        raise Misuse(
            f"the result does not fit effect {s.effect.name}: {error}; write it as the effect would have returned it"
        ) from error
    return True


def resolve(
    app: App, s: Subject, verdict: Verdict, *, by: str, reason: str, seen: int | None, stopped: bool
) -> tuple[Subject, bool]:
    """Pass the verdict on with the version that was seen; the effect afterwards, and whether its result was checked."""
    checked = check_result(app, s, verdict)
    app.review.resolve(
        s.found.id, verdict, by=by, reason=reason, seen=s.version if seen is None else seen, process_stopped=stopped,
        tenant=s.found.tenant,
    )  # fmt: skip
    return subject(app.runtime.desk, s.found.id, s.found.tenant), checked


def outcome(desk: Desk, after: Subject, verdict: Verdict, by: str, checked: bool) -> list[str]:
    """What the verdict has brought about, and what comes next, in sentences."""
    name = after.effect.name
    worker = "" if desk.store.sessions() else " No worker is running now: semel worker MODULE:app"
    if isinstance(verdict, Confirmed):
        said = [f"On record: {by} says that {name} happened. Its task goes on when a worker claims it.{worker}"]
        if not checked:
            said.append("The result was not checked against the effect's type: --app MODULE:app does that.")
        return said
    if isinstance(verdict, NotFound):
        what = f"On record: {by} says that {name} did not happen."
        if after.effect.watched:
            return [f"{what} Settle was over, so it takes effect when a worker claims the task.{worker}"]
        settle = settle_of_person(after.effect)
        over = f"settle ({out.duration(settle)}) is over" if settle else "it is known that no sender can act any more"
        return [
            f"{what} You may have looked too early: once a worker has watched until {over}, it asks you to look again. "
            f"Until then {name} stays unknown.{worker}"
        ]
    return [f"On record: {by} says that something else is there. {name} stays unknown until a person gives another verdict."]


def resolved_data(before: Subject, after: Subject, checked: bool) -> dict[str, Json]:
    """For programs."""
    settled = after.effect.state is not EffectState.AMBIGUOUS
    return {
        "key": after.found.id, "tenant": after.found.tenant, "name": after.effect.name, "state": str(after.effect.state),
        "settled": settled, "seen": before.version, "version": after.version, "checked": checked,
        "settle_ms": 0 if settled else settle_of_person(after.effect),
    }  # fmt: skip


def decided_data(desk: Desk, found: Found) -> dict[str, Json]:
    """A task after a decision, for programs."""
    row = desk.store.task(found.tenant, found.id)
    assert row is not None
    return {"id": row.task, "tenant": row.tenant, "kind": row.kind, "key": row.key, "delivery": row.delivery,
            "execution": row.execution, "unknown": row.unknown, "why": row.why, "version": row.version}  # fmt: skip

"""`semel approvals`, `approve`, `deny`: what waits for people, and what they say. The machine judges it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from semel.app import App
from semel.cli import decide, why
from semel.cli import output as out
from semel.cli.decide import Subject, strict_json
from semel.engine.ledger import Desk
from semel.engine.session import read_effect
from semel.errors import Misuse
from semel.machine import effects as e
from semel.machine.projection import TaskRow
from semel.model import Delivery, EffectView, Execution, Json

INDENT = 12


# --- what was typed -------------------------------------------------------------------------------------------------


def edit_of(text: str | None) -> Mapping[str, Any] | None:
    """An edit: a JSON object of arguments. Raises `Misuse`."""
    if text is None:
        return None
    try:
        edit = strict_json(text)
    except ValueError as error:
        raise Misuse(f"--edit is not JSON ({error}); write the arguments to change, as --edit '{{\"cents\": 1200}}'") from error
    if not isinstance(edit, dict) or not edit:
        raise Misuse("--edit names arguments and their new values; write --edit '{\"cents\": 1200}'")
    return edit


# --- what waits -----------------------------------------------------------------------------------------------------


def waiting(app: App, tenant: str | None, limit: int) -> list[tuple[EffectView, e.Effect, TaskRow | None]]:
    """What waits for approval, with the task that asks."""
    desk, found = app.runtime.desk, []
    for view in app.review.pending(tenant=tenant, limit=limit):
        row = desk.store.effect(view.tenant, view.key)
        x = read_effect(desk, view.tenant, row.stream, view.key) if row is not None else None
        if x is not None and x.waiting:  # else it was decided between two reads
            found.append((view, x, desk.store.task(view.tenant, x.task)))
    return found


def waiting_data(view: EffectView, x: e.Effect, task: TaskRow | None) -> dict[str, Json]:
    """For programs."""
    return {
        "key": x.key, "tenant": view.tenant, "name": x.name, "task": x.task, "kind": task.kind if task else None,
        "task_key": task.key if task else None, "args": x.args, "version": x.version, "approval": why.approval_data(x),
    }  # fmt: skip


def listed(desk: Desk, found: Sequence[tuple[EffectView, e.Effect, TaskRow | None]], tenants: bool) -> None:
    """For people: a block for each, with the line to type."""
    if not found:
        out.verdict("NOTHING WAITS  No task is blocked for an approval.", "good")
        return
    waits = "effect waits" if len(found) == 1 else "effects wait"
    out.verdict(f"APPROVALS  {len(found)} {waits} for people. Nothing is sent, and no worker is held, until they decide.", "wait")
    now = desk.clock.raw_ms()
    for view, x, task in found:
        out.say()
        named = f"{x.name} of {task.kind} {task.key}" if task is not None else x.name
        age = out.duration(now - x.asked_at)
        out.console().print(Text.assemble((out.clean(named), "bold yellow"), f"  for {age}"), soft_wrap=True)
        rows = [("key", x.key), ("task", x.task)]
        rows += [("tenant", view.tenant)] if tenants else []
        rows += [("to send", out.one_line(x.args, out.room(INDENT)))]
        if x.asked is not None and x.asked.approvers > 1:
            given = " and ".join(one.by for one in x.approvals) or "nobody yet"
            rows += [("needs", f"{x.asked.approvers} different people; approved by {given}")]
        rows += [
            ("type", f"semel approve {out.short(x.key)} --by YOU"),
            ("", f"semel deny {out.short(x.key)} --by YOU --reason WHY"),
        ]
        for name, value in rows:
            out.indented(value, INDENT, first=f"  {name}")


# --- decisions ------------------------------------------------------------------------------------------------------


def subject(desk: Desk, text: str, tenant: str) -> Subject:
    """The effect that is decided about. Raises `Misuse`."""
    return decide.subject(desk, text, tenant)


def show_edit(s: Subject, edit: Mapping[str, Any] | None) -> None:
    """What would be sent instead."""
    if edit is not None and isinstance(s.effect.args, dict):
        out.indented(out.one_line({**s.effect.args, **edit}, out.room(INDENT + 2)), INDENT + 2, first="    edited to")
        out.say()


def decided_data(desk: Desk, after: Subject) -> dict[str, Json]:
    """For programs."""
    task = desk.store.task(after.found.tenant, after.effect.task)
    return {
        "key": after.found.id, "tenant": after.found.tenant, "name": after.effect.name, "state": str(after.effect.state),
        "args": after.effect.args, "version": after.version, "approval": why.approval_data(after.effect),
        "delivery": task.delivery if task else None, "execution": task.execution if task else None,
    }  # fmt: skip


def approved_words(desk: Desk, after: Subject, by: str) -> str:
    """What an approval has brought about, and what comes next."""
    x = after.effect
    if x.waiting and x.asked is not None:
        more = x.asked.approvers - len(x.approvals)
        others = out.count(more, "other person has", "other people have")
        return f"On record: {by} approves {x.name}. It is sent when {others} approved it too."
    return f"On record: {by} approves {x.name}. Exactly this is sent, once, {_when(desk, after)}."


def denied_words(desk: Desk, after: Subject, by: str) -> str:
    """The same of a denial."""
    return f"On record: {by} denies {after.effect.name}. Nothing is sent; the agent is told so, {_when(desk, after)}."


def _when(desk: Desk, after: Subject) -> str:
    task = desk.store.task(after.found.tenant, after.effect.task)
    if task is None:
        return "when its task asks for it"
    if task.delivery in (Delivery.ACKNOWLEDGED, Delivery.DEAD_LETTERED):
        ended = "cancelled" if task.execution == Execution.CANCELLED else task.delivery
        return f"if its task, which is {ended}, is replayed (semel replay {out.short(task.task)} --by YOU)"
    worker = "" if desk.store.sessions() or not task.queue else " (none is running now: semel worker MODULE:app)"
    return f"when a worker goes on with its task{worker}" if task.queue else "when its own loop enters the work again"

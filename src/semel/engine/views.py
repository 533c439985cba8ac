"""Reading what is on record, as the nouns that users see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from semel.engine.approval import WAITS
from semel.engine.ledger import Desk
from semel.engine.session import read_effect
from semel.errors import Misuse
from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import recovery as r
from semel.machine import tasks
from semel.machine.journal import Row
from semel.machine.projection import EffectRow, TaskRow
from semel.model import Awaits, Delivery, EffectState, EffectView, Event, Execution, Ref, TaskView


def task_view(row: TaskRow, app: Awaits) -> TaskView:
    """A task's row as a view."""
    return TaskView(
        Ref(row.task, row.tenant, app=app), row.kind, row.key, row.queue, Delivery(row.delivery), Execution(row.execution),
        row.attempt, row.token, row.failures, row.crashes, row.due, row.why, row.version, row.unknown,
    )  # fmt: skip


def effect_view(desk: Desk, row: EffectRow) -> EffectView:
    """An effect's row and its journal as a view."""
    return _effect_view(row, read_effect(desk, row.tenant, row.stream, row.key))


def effect_views(desk: Desk, rows: Sequence[EffectRow]) -> list[EffectView]:
    """The same of many, in their order; the stream of a task is read once for all of its effects."""
    streams: dict[tuple[str, str], list[EffectRow]] = {}
    for row in rows:
        streams.setdefault((row.tenant, row.stream), []).append(row)
    views: dict[tuple[str, str], EffectView] = {}
    for (tenant, stream), of_it in streams.items():
        if len(of_it) == 1:
            found = {of_it[0].key: read_effect(desk, tenant, stream, of_it[0].key)}
        else:
            found = dict(tasks.fold(desk.store.rows(tenant, stream)).effects)
        views.update(((tenant, row.key), _effect_view(row, found.get(row.key))) for row in of_it)
    return [views[row.tenant, row.key] for row in rows]


def effects_of(desk: Desk, tenant: str, task: str) -> Iterator[EffectRow]:
    """The rows of the effects that a task was the last to send, or to ask for, by key: all of them stand in its own journal."""
    state = tasks.fold(desk.store.rows(tenant, task))
    for key in sorted({*state.effects, *state.joined}):
        if (row := desk.store.effect(tenant, key)) is not None and row.task == task:
            yield row


def _effect_view(row: EffectRow, found: e.Effect | None) -> EffectView:
    if found is None:
        raise Misuse(f"the store's effect row {row.key} has no journal; check it: semel verify")
    evidence = tuple(
        {"submission": x.n, "outcome": x.outcome, "result": x.result, "reason": x.reason, "at": x.at} for x in found.evidence
    )
    return EffectView(
        row.key, row.tenant, row.task, found.name, EffectState(row.state), found.args, found.result, len(found.sent),
        found.occurrence, found.generation, evidence, why_of(found), found.asked_at if found.waiting else found.lost_at,
        found.version,
    )  # fmt: skip


def pending(desk: Desk, tenant: str | None, limit: int) -> list[EffectView]:
    """The effects for whose approval tasks are blocked; of a key that several wait for, one."""
    found: dict[tuple[str, str], EffectView] = {}
    after = ""
    while rows := desk.store.tasks(tenant, delivery=Delivery.BLOCKED, after=after, limit=100):
        for task in (row for row in rows if WAITS in row.why):
            for row in _asked_by(desk, task):
                view = effect_view(desk, row)
                if view.why.startswith(WAITS) and len(found) < limit:
                    found.setdefault((row.tenant, row.key), view)
        if len(rows) < 100 or len(found) >= limit:
            break
        after = rows[-1].task
    return list(found.values())


def _asked_by(desk: Desk, task: TaskRow) -> Iterator[EffectRow]:
    """The effects, its own and those that it has joined, that a task waits for."""
    state = tasks.fold(desk.store.rows(task.tenant, task.task))
    for key in [*(key for key, x in state.effects.items() if x.waiting), *sorted(state.joined)]:
        if (row := desk.store.effect(task.tenant, key)) is not None:
            yield row


def why_of(x: e.Effect) -> str:
    """What a person must know first."""
    if x.conflict:
        return f"conflict: {x.conflict}"
    if x.state is EffectState.AMBIGUOUS:
        if any(s.assumed for s in x.open):
            return "the store went back, and may have forgotten that it was sent"
        return "nothing can prove that its sender has stopped" if x.unfenced else "its outcome is unknown"
    if x.unrecorded:
        return f"confirmed; its result was not recorded: {x.unrecorded}"
    if x.renewed is not None and x.state is EffectState.NOT_ATTEMPTED:
        return f"{x.renewed.by} has opened generation {x.renewed.generation} of it"
    if x.waiting and x.asked is not None:
        return f"{WAITS} ({len(x.approvals)} of {x.asked.approvers} given)"
    if x.denied is not None:
        return f"denied by {x.denied.by}" + (f": {x.denied.reason}" if x.denied.reason else "")
    return x.declined.reason if x.declined and not x.confirmed else ""


def event_of(row: Row) -> Event:
    """A row as a public event."""
    body = dict(j.as_mapping(j.event_of(row)))
    return Event(row.stream, row.seq, row.kind, row.actor, row.token, row.at, body, row.hash.hex())


def journal_of(desk: Desk, tenant: str, of: str) -> list[Event]:
    """The events of a task, or of the stream in which an effect stands (only its own events)."""
    rows = desk.store.rows(tenant, of)
    if rows:
        return [event_of(row) for row in rows]
    effect = desk.store.effect(tenant, of)
    if effect is None:
        raise Misuse(f"there is no task and no effect {of!r} of tenant {tenant!r}; see: semel tasks")
    return [found for found in map(event_of, desk.store.rows(tenant, effect.stream)) if found.body.get("key") == of]


def state_of(desk: Desk, tenant: str, task: str) -> tasks.Task:
    """A task, folded from its journal."""
    rows = desk.store.rows(tenant, task)
    if not rows:
        raise Misuse(f"there is no task {task!r} of tenant {tenant!r}; see: semel tasks")
    return tasks.fold(rows)


def next_move(desk: Desk, x: e.Effect) -> r.Move | None:
    """What the machine would do next about an unknown effect, by its recorded ladder; None if it is not unknown.

    Settle is watched by workers, so here it never seems to be over.
    """
    if x.state is not EffectState.AMBIGUOUS:
        return None
    return r.next_move(x, r.rungs_of(x), r.Facts(desk.clock.raw_ms(), desk.clock.wall_ms(), -1))

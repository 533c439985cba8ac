"""What must hold of a world that has come to its end: by the provider's books, and by the journal and its tables."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from sim_happenings import ENDED

from semel.machine import effects as e
from semel.machine import journal, projection, tasks
from semel.machine.projection import EffectRow

if TYPE_CHECKING:
    from sim_worlds import World


def verdicts(world: World) -> list[str]:
    """What is wrong; nothing, if all holds."""
    return [*once(world), *fenced(world), *whole(world), *ended(world), *agreed(world), *world.errors]


def once(world: World) -> list[str]:
    """At most one act for each key, but for what lies in the windows that a restore has; these are counted."""
    wrong = []
    for key, acts in world.outside.by_key.items():
        windows = [world.losses.window(act) for act in sorted(acts, key=lambda act: act.sent)[1:]]
        world.counters.update(filter(None, windows))
        if not all(windows):
            wrong.append(
                f"DUPLICATE: {acts[0].provider} {key} happened {len(acts)} times: {[(round(a.at, 3), a.sender) for a in acts]}"
            )
    return wrong


def fenced(world: World) -> list[str]:
    """No two processes send with one token, unless the store forgot that it was given."""
    shared = [(*one, sorted(who)) for one, who in world.outside.senders.items() if len(who) > 1]
    return [] if world.restored else [f"TOKEN: {key} is sent with {token} by {who}" for key, token, who in shared]


def streams(world: World) -> list[tuple[str, str]]:
    return world.base.streams(("", ""), 1000)


def whole(world: World) -> list[str]:
    """Every chain is unbroken, every table says what the journal says, and the invariant holds at every row."""
    wrong = []
    for tenant, stream in streams(world):
        rows = world.base.rows(tenant, stream)
        world.counters.update(f"row {row.kind}" for row in rows)
        for event in (journal.event_of(row) for row in rows):
            if isinstance(event, journal.Found) and event.verdict == "not_found":
                world.counters["people: not_found believed" if event.how == "person" else "lookups: not_found believed"] += 1
        if (broken := journal.broken(rows)) is not None:
            wrong.append(f"the chain of {stream} is broken: {broken}")
            continue
        if tenant == "" or stream == "declared":
            continue
        if rows[0].kind == journal.Enqueued.kind:
            task = _walked(world, rows, wrong)
            tables = projection.of_task(tenant, None, task, list(task.effects))
        else:
            tables = projection.of_key(tenant, stream, tasks.Key(), tasks.fold_key(rows))
            _opaque(tasks.Key(), rows, wrong)
        wrong += [f"tables of {stream}: {said}" for said in world.base.holds(tables)]
    return wrong


def _walked(world: World, rows: list[journal.Row], wrong: list[str]) -> tasks.Task:
    """The task, row by row: no intent while another effect is unknown; tokens rise; nothing opaque is sent twice."""
    task, token = tasks.Task(), -1
    for row in rows:
        event = journal.event_of(row)
        if isinstance(event, journal.Intended):
            if not task.unknown <= {event.key}:
                wrong.append(f"INVARIANT: row {row.seq} of {row.stream} intends {event.key} while {set(task.unknown)} is unknown")
            world.counters["sent again"] += event.n > 1
            world.counters["row unfenced submissions"] += bool(event.unfenced)
            _sent_again(task.effects.get(event.key), event, wrong)
        if isinstance(event, journal.Claimed):
            if event.token <= token:
                wrong.append(f"TOKEN: row {row.seq} of {row.stream} claims with {event.token} after {token}")
            token = event.token
        task = tasks.apply(task, event, row.at)
    if task.unknown:
        wrong.append(f"UNKNOWN: {row.stream} has ended with {set(task.unknown)} unknown")
    return task


def _opaque(key: tasks.Key, rows: list[journal.Row], wrong: list[str]) -> None:
    for row in rows:
        event = journal.event_of(row)
        if isinstance(event, journal.Intended):
            _sent_again(key.effect, event, wrong)
        key = tasks.apply_key(key, event, row.at)


def _sent_again(known: e.Effect | None, event: journal.Intended, wrong: list[str]) -> None:
    """With a submission open, only what may be sent again is: never what is opaque or can merely be looked up."""
    if known is not None and known.open and not any(rung.startswith("resend") for rung in known.recovery):
        wrong.append(f"SENT AGAIN: {known.name} {event.key} with {len(known.open)} submissions open")


def ended(world: World) -> list[str]:
    """Nothing is stranded, and nothing that was accepted is lost."""
    wrong, store = [], world.base
    if not world.happenings.done:
        open_tasks = [(t.task, t.delivery, t.execution) for t in store.tasks(None) if t.delivery not in ENDED]
        wrong.append(f"STRANDED at second {world.sim.now:.0f}: {open_tasks}, {store.sizes()}")
    for tenant, kind, key, _ in world.happenings.orders:
        if store.find_task(tenant, kind, key) is None:
            wrong.append(f"LOST: {kind} {key} of {tenant}")
    return wrong


def agreed(world: World) -> list[str]:
    """What is confirmed happened, and what happened is confirmed."""
    wrong, books = [], world.outside.by_key
    rows = world.base.effects(None, limit=1000)
    for row in rows:
        if row.state == "confirmed" and row.key not in books:
            wrong.append(f"GUESS: {row.name} {row.key} is confirmed and never happened")
        if row.state != "confirmed" and row.key in books and not _forgotten(world, row):
            wrong.append(f"GUESS: {row.name} {row.key} is {row.state} and happened")
    known = {row.key for row in rows}
    if not world.restored:
        wrong += [f"UNRECORDED: {key} happened and is on no record" for key in books if key not in known]
    return wrong


def _forgotten(world: World, row: EffectRow) -> bool:
    """The store has forgotten that it was sent, and nobody has come to it since, or has done no more than ask."""
    untouched = world.losses.untouched(row.key)
    world.counters["forgotten, and asked for by nobody since"] += untouched
    return untouched or bool(world.restored and _only_asked(world, row))


def _only_asked(world: World, row: EffectRow) -> bool:
    """Of what the store has forgotten only the question is on record again: it comes before any doubt, and nothing was sent."""
    events = [journal.event_of(one) for one in world.base.rows(row.tenant, row.stream)]
    return not any(isinstance(event, journal.Intended | journal.Assumed) and event.key == row.key for event in events)


def digest(world: World) -> str:
    """Of all that was recorded and happened: two runs of a seed have the same."""
    found = hashlib.sha256()
    for tenant, stream in streams(world):
        rows = world.base.rows(tenant, stream)
        found.update(f"{tenant} {stream} {len(rows)} ".encode() + rows[-1].hash)
    found.update(repr([(a.key, a.at, a.sender) for a in world.outside.acts]).encode())
    found.update(repr((world.sim.steps, world.sim.now, sorted(world.counters.items()))).encode())
    return found.hexdigest()[:16]

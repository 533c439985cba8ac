"""The normal form of a world: two worlds that share it have the same future. Ids, hashes, versions and tokens count only as
equal or not, times only as far as somebody still waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType, GeneratorType
from typing import Any

from procs_world import TENANT, TTL, Life, World

from semel.engine.requests import Await, Call
from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import projection
from semel.machine import tasks as t
from semel.model import Refusal
from semel.store.contract import Change

FAR = 2 * TTL


def form(world: World) -> str:
    """As text."""
    tables = world.disk.tables
    whole = (
        world.faults,
        [_stream(world, name[1], state) for name, state in sorted(world.folded.items())],
        sorted((row.id, row.fenced) for row in tables.sessions.values() if not _over(world, row.id)),
        [_life(world, life) for life in world.lives],
        sorted(world.provider.acts.items()),
        sorted(
            (f.doing.key, f.doing.n, f.life.name, f.code, f.timed_out, f.acted, _left(world, f.until))
            for f in world.flights if f.code or f.able
        ),
        sorted((key, look.happened, look.stopped, _version(world, key) == look.version) for key, look in world.looks.items()),
    )  # fmt: skip
    return repr(whole)


def _left(world: World, until: float | None) -> float:
    return -1.0 if until is None else round(max(0.0, min(FAR, until - world.now)), 2)


def _over(world: World, session: str) -> bool:
    """A fenced session that nobody speaks of any more."""
    row = world.disk.tables.sessions[session]
    return bool(row.fenced) and not any(life.opened.id == session for life in world.lives)


def _version(world: World, key: str) -> int:
    return next(x.version for _, x in world.effects() if x.key == key)


def _stream(world: World, name: str, state: t.Task | t.Key) -> Any:
    if isinstance(state, t.Key):
        return name, _effect(world, state.effect, None)
    due = _left(world, state.due / 1000 - 1_700_000_000) if not state.ended else 0.0
    return (
        name, state.delivery, state.execution, state.session, state.suspended != "", state.ending, state.alone, state.crashes,
        state.failures, state.clean, due, sorted(state.joined),
        [_effect(world, x, state) for _, x in sorted(state.effects.items())],
    )  # fmt: skip


def _effect(world: World, x: e.Effect | None, task: t.Task | None) -> Any:
    if x is None:
        return None
    sent = [
        (s.open, s.lost, s.ended, s.fenced, s.dead, s.unfenced, s.session if s.open else "", s.task if s.open else "",
         task is not None and s.token == task.token)
        for s in x.sent
    ]  # fmt: skip
    evidence = [(one.n, one.outcome) for one in x.evidence]
    answered = x.answered is not None and (True, x.answered.stopped)
    return x.key, x.state, sent, x.settled, evidence, answered, x.conflict, x.barred, x.unavailable > 0, x.declined is not None


# --- a process's memory -----------------------------------------------------------------------------------------------


def _life(world: World, life: Life) -> Any:
    if life.dead:
        return life.name, "dead"
    session, now = life.opened, world.now
    row = world.disk.tables.sessions[session.id]
    watched = sorted((id, w.nonce == world.disk.tables.sessions[id].nonce, min(TTL, w.still_seconds), now - w.last_look)
                     for id, w in session._watched.items() if id in world.disk.tables.sessions)  # fmt: skip
    learnt = sorted(
        (key, repr(facts), min(world.scenario.settle, round(now - at, 2))) for (_, key), (facts, at) in life.learnt._since.items()
    )
    effects = world.disk.tables.effects
    unlearnt = sorted(k for (_, k), (v, _) in session._known_unknown.items() if effects[TENANT, k].version != v)
    return (
        life.name, life.frozen, bool(session.fenced), session.number == row.beat, _left(world, session._deadline),
        sorted(session.held), sorted(session.strange), watched, learnt, unlearnt, life.watchdog.running,
        len(life.writer.doubt), [_unit(world, ticket.unit) for ticket in (*life.writer.doubt, *life.writer.queue)],
        [_outcome(outcome) for _, outcome in life.writer.unheard],
        [_actor(world, actor) for actor in life.actors],
    )  # fmt: skip


def _outcome(outcome: Any) -> str:
    return type(outcome).__name__


def _unit(world: World, unit: Any) -> Any:
    if not isinstance(unit, Change):
        return "claim"
    heads = [(part.stream, world.disk.tables.head((part.tenant, part.stream)) == part.expect, [r.kind for r in part.rows])
             for part in unit.parts]  # fmt: skip
    still = [world.disk.tables.head((tenant, stream)).seq == seq for tenant, stream, seq in unit.checks]
    beat = unit.guard is not None and world.disk.tables.sessions[unit.guard.session].beat >= unit.guard.beat
    return heads, still, beat


def _actor(world: World, actor: Any) -> Any:
    request = actor.request
    waits: Any = type(request).__name__
    if isinstance(request, Call):
        waits = (type(request.fn).__name__, actor.asked, actor.saw)
    elif isinstance(request, Await):
        waits = ("await", request.signal.is_set)
    elif actor.until:
        waits = ("pause", _left(world, actor.until))
    return actor.name.partition(" ")[2], waits, [_frame(world, frame) for frame in _frames(actor.run.gr_frame)]


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The stack of a procedure that stands still, and of the generators in it."""
    while frame is not None:
        yield frame
        procedure = frame.f_locals.get("procedure")
        while isinstance(procedure, GeneratorType):
            if procedure.gi_frame is not None:
                yield procedure.gi_frame
            procedure = procedure.gi_yieldfrom
        frame = frame.f_back


def _frame(world: World, frame: FrameType) -> Any:
    code = frame.f_code
    told = [(name, _value(world, name, frame.f_locals[name])) for name in TOLD if name in frame.f_locals]
    return code.co_name, frame.f_lasti, told


TOLD = (
    "attempt", "self", "tried", "reply", "waited", "empty", "decided", "verdict", "move", "known", "unknown", "command",
    "proposed", "exit", "doing", "page", "now", "passed", "taken", "key", "name", "n",
)  # fmt: skip


def _value(world: World, name: str, value: Any) -> Any:
    """What of a local variable decides what comes next."""
    if value is None or isinstance(value, bool | str):
        return value
    if name == "waited":
        return max(-1, min(int(world.scenario.settle * 1000), value))
    if isinstance(value, int):
        return value if abs(value) < 1000 else None
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, e.Effect):
        now = next((x for _, x in world.effects() if x.key == value.key), None)
        return value.key, value.state, len(value.sent), now is not None and now.version == value.version
    if isinstance(value, e.Decision):
        return [event.kind for event in value.events], value.recorded is not None
    if isinstance(value, Refusal):
        return value.code
    kind = type(value).__name__
    if kind == "Attempt":
        return _attempt(world, value)
    if kind == "Doing":
        return value.key, value.n, value._state
    if kind in ("Exit", "Look", "Again", "Wait", "Credit"):
        return kind, getattr(value, "how", ""), getattr(value, "n", 0), getattr(value, "key", "")
    return kind


def _attempt(world: World, attempt: Any) -> Any:
    ledger = attempt.ledger
    heads = []
    for name, head in [(ledger.state.id, ledger.head), *((key, stream.head) for key, stream in sorted(ledger.keys.items()))]:
        there = world.disk.tables.head((TENANT, name))
        heads.append((name, there.seq - head.seq, there == head))
    return (
        ledger.state.id, attempt.token == world.task_of(ledger.state.id).token, attempt.exit and attempt.exit.how,
        bool(ledger.state.suspended), sorted((d.key, d.n, d._state) for d in attempt.doing.values()), sorted(attempt.said),
        sorted(attempt._flights), attempt.unfenced, ledger.unsure != "", heads, attempt.declined,
    )  # fmt: skip


# --- the tables are what the journal tells ----------------------------------------------------------------------------


def disagreements(world: World) -> str:
    """What of the chain or the tables is not as the journal tells; "" if nothing."""
    tables = world.disk.tables
    for (tenant, stream), rows in sorted(tables.journal.items()):
        if broken := j.broken(rows):
            return f"{stream}: {broken}"
        if tenant != TENANT:
            continue
        state = t.fold(rows) if isinstance(world.folded[tenant, stream], t.Task) else t.fold_key(rows)
        if state != world.folded[tenant, stream]:
            return f"{stream} folds to something else than was decided"
        if isinstance(state, t.Task) and tables.tasks[tenant, stream] != projection.task_row(tenant, state):
            return f"the row of {stream} is not what its journal tells"
        if isinstance(state, t.Task) and (ready := projection.ready_row(tenant, state)) and ready not in tables.ready:
            return f"{stream} is queued, and no pointer says so"
        if isinstance(state, t.Task) and (held := projection.inflight_row(tenant, state)) and held not in tables.inflight:
            return f"{stream} is leased, and no pointer says so"
    return ""

"""`semel why`: the story of a task or an effect, told from the journal alone. The verdict comes first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from semel.cli import cost, identity
from semel.cli import output as out
from semel.cli.needs import Need, ladder, need_of
from semel.cli.reach import Found, reading
from semel.cli.tell import Line, Past, Settled, Teller
from semel.engine.ledger import Desk
from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import tasks
from semel.machine.journal import Row
from semel.machine.projection import TaskRow
from semel.model import Delivery, EffectState, Execution, Json

COLUMN = 23  # where sentences begin: after the time of day and what has elapsed
ALWAYS = {"enqueued", "unblocked", "replayed", "ending", "cancelled", "dead_lettered", "purged"}
OF_ATTEMPT = {"claimed", "finished", "failed", "parked", "blocked", "lease_lost"}
NOTES = {"stepped", "spent"}
IDLE = {"claimed", "suspended", "parked", "found"}
SAME = 4  # so many attempts or steps of one sort in a row are told as one
_SETTLED = {
    "returned": "its own answer says so",
    "already_done": "it was there already, under its own key",
    "evidence": "its answer came in late and is believed",
    "not_done": "there is proof that nothing happened",
    "pruned": "how, is told by the rows that were exported",
}
_STATE = {
    EffectState.CONFIRMED: ("CONFIRMED", "good"),
    EffectState.NOT_ATTEMPTED: ("NOT ATTEMPTED", "good"),
    EffectState.SUBMITTED: ("SUBMITTED", "wait"),
    EffectState.AMBIGUOUS: ("UNKNOWN", "bad"),
}


@dataclass(frozen=True, slots=True)
class Story:
    """What is told. verdict: state word, two spaces, sentence. facts: names and values above the story."""

    verdict: str
    tone: str
    facts: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]
    data: dict[str, Json]
    next: str = ""


def story(desk: Desk, found: Found) -> Story:
    """The story of what was found."""
    with reading(f"{found.what} {found.id}"):
        return _of_task(desk, found) if found.what == "task" else _of_effect(desk, found)


# --- the words ------------------------------------------------------------------------------------------------------


def settled_words(settled: Settled | None) -> str:
    """What settled an effect, as half a sentence."""
    if settled is None:
        return "nothing has settled it yet"
    kind, _, whom = settled.how.partition(":")
    why = f": {settled.reason}" if settled.reason else ""
    if kind == "lookup":
        return f"lookup {whom} {'found it' if settled.state is EffectState.CONFIRMED else 'did not find it'}{why}"
    if kind == "person" and whom:
        return f"{whom} says so{why}"
    return _SETTLED.get(settled.how, settled.how) + (why if settled.how == "not_done" else "")


def stands_words(x: e.Effect, past: Past) -> str:
    """How an effect stands, as half a sentence."""
    if x.state is EffectState.NOT_ATTEMPTED and x.denied is not None:
        return f"denied by {x.denied.by}" + (f": {x.denied.reason}" if x.denied.reason else "")
    if x.waiting:
        return "it waits for approval; nothing is sent before"
    if x.state is EffectState.NOT_ATTEMPTED and not x.sent:
        return "it was never sent"
    return settled_words(past.settled)


def verdict_of(x: e.Effect, past: Past, name: str, now: int) -> str:
    """An effect's verdict: its state, two spaces, a sentence."""
    word, _ = _STATE[x.state]
    if (held := held_words(x, name, now)) is not None:
        return f"{word}  {held}"
    spent = f" It was unknown for {out.duration(past.unknown_ms)}." if past.unknown_ms else ""
    times = f" {len(x.sent)} submissions, under one key." if len(x.sent) > 1 else ""
    if x.state is EffectState.CONFIRMED:
        return f"{word}  {name} happened: {_stop(settled_words(past.settled))}{spent}{times}"
    if x.state is EffectState.NOT_ATTEMPTED:
        return f"{word}  {name} did not happen: {_stop(settled_words(past.settled))}{spent}"
    if x.state is EffectState.SUBMITTED:
        return f"{word}  {name} is in flight since {out.duration(now - x.sent[-1].at)}.{times}"
    return f"{word}  Nobody can tell yet whether {name} happened; this is so for {out.duration(now - past.since)}.{times}"


def held_words(x: e.Effect, name: str, now: int) -> str | None:
    """What is to be said of an effect that people have not let go, or that was never sent; None: its story goes on."""
    if x.denied is not None and x.state is EffectState.NOT_ATTEMPTED:
        return _stop(f"{name} is not sent: {x.denied.by} denied it" + (f": {x.denied.reason}" if x.denied.reason else ""))
    if x.waiting:
        return f"{name} waits for approval, for {out.duration(now - x.asked_at)}; nothing is sent before."
    if x.approvals and not x.sent:
        return f"{name} was approved by {' and '.join(one.by for one in x.approvals)}, and is sent when its task goes on."
    return None


def _stop(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def session_namer(desk: Desk) -> Callable[[str], str]:
    """Sessions as the process that they are the life of."""
    known: dict[str, str] = {}

    def named(id: str) -> str:
        if id not in known:
            row = desk.store.session(id)
            known[id] = f"session {out.short(id)}" + (f" (pid {row.pid} on {row.host})" if row is not None else "")
        return known[id]

    return named


def task_namer(desk: Desk, tenant: str) -> Callable[[str], str]:
    """Tasks as people call them, and the end of the id."""
    known: dict[str, str] = {}

    def named(id: str) -> str:
        if id not in known:
            row = desk.store.task(tenant, id)
            known[id] = f"{row.kind} {row.key} [{out.short(id)}]" if row is not None else f"[{out.short(id)}]"
        return known[id]

    return named


def teller(desk: Desk, tenant: str, home: str) -> Teller:
    """Whoever tells a story about the task `home`, or, if that is "", about a key that tasks share."""
    return Teller(session_namer(desk), task_namer(desk, tenant), home)


# --- one effect -----------------------------------------------------------------------------------------------------


def _of_effect(desk: Desk, found: Found) -> Story:
    own = desk.store.rows(found.tenant, found.row.stream)  # type: ignore[union-attr]
    shared = found.row.stream == found.id  # type: ignore[union-attr]
    asked = [event for row in own if isinstance(event := row.event or j.event_of(row), j.Intended | j.Asked)]
    streams = dict.fromkeys(event.task for event in asked if event.key == found.id)
    rows = merged([own, *(desk.store.rows(found.tenant, task) for task in streams)] if shared else [own])
    told_by = teller(desk, found.tenant, "" if shared else found.row.stream)  # type: ignore[union-attr]
    lines = polished([told_by.tell(row) for row in rows])
    past = told_by.past[found.id]
    x = past.now
    if x is None:
        raise ValueError("it was never asked for")
    task = desk.store.task(found.tenant, x.task)
    kept = tuple(about(found.id, lines, shared))
    name = f"{x.name} of {_called(task)}"
    now = desk.clock.raw_ms()
    need = need_of(desk, found.tenant, x)
    data = effect_data(x, past, found.tenant, need)
    return Story(
        verdict_of(x, past, name, now), _STATE[x.state][1], tuple(_facts(x, past, task)), kept,
        {"effect": data, "verdict": verdict_of(x, past, name, now), "story": story_data(kept)}, advice(found.id, need),
    )  # fmt: skip


def about(key: str, lines: Sequence[Line], shared: bool) -> Iterator[Line]:
    """The lines that bear on one effect: its own, who asked for it, and the attempts that had to do with it."""
    own = {(line.stream, line.attempt) for line in lines if line.key == key}
    attempts = {attempt for _, attempt in own}
    for line in lines:
        of_attempt = line.attempt in attempts if shared else (line.stream, line.attempt) in own
        own_line = line.key == key and line.kind != "joined"
        if own_line or line.kind in ALWAYS or (line.kind in OF_ATTEMPT and of_attempt):
            yield line


def _called(task: TaskRow | None) -> str:
    return f"{task.kind} {task.key}" if task is not None else "a task that is not on record"


def _facts(x: e.Effect, past: Past, task: TaskRow | None) -> Iterator[tuple[str, str]]:
    room = out.room(12)
    yield "effect", f"{x.name}" + (f", occurrence {x.occurrence}" if x.occurrence else "")
    yield "key", x.key
    if task is not None:
        yield "task", f"{task.task}  {task.kind} {task.key}"
        yield "", f"{task.delivery}, {task.execution}, attempt {task.attempt}"
    yield "sent" if x.sent else "to send", out.one_line(x.args, room)
    if identity.sent_as(x):
        yield "as", identity.sent_as(x)
    if x.asked is not None and x.asked.digest != x.digest:
        yield "asked", f"{out.one_line(x.asked.args, room)} (edited by a person)"
    if x.confirmed:
        yield "result", "not recorded: " + x.unrecorded if x.unrecorded else out.one_line(x.result, room)
    yield "recovery", ladder(x)
    if past.drifts:
        yield "drift", f"asked for in other words {out.count(past.drifts, 'time')}; not sent again"


def advice(key: str, need: Need | None) -> str:
    """The line to type next."""
    if need is None:
        return ""
    if need.who == "worker":
        return f"Next: {need.text}."
    if need.who == "approver":
        key = out.short(key)
        return f"Next: it waits for {need.text}:\n  semel approve {key} --by YOU\n  semel deny {key} --by YOU --reason WHY"
    stopped = " --process-stopped" if need.stopped else ""
    key = out.short(key)
    text = _stop(need.text)
    return (
        f"Next: {text} Look at the provider for the key above, then:\n"
        f"  semel resolve {key} --by YOU --confirmed 'RESULT as JSON'\n"
        f"  semel resolve {key} --by YOU --not-found{stopped}"
    )


# --- one task -------------------------------------------------------------------------------------------------------


def _of_task(desk: Desk, found: Found) -> Story:
    own = desk.store.rows(found.tenant, found.id)
    state = tasks.fold(own)
    row = found.row
    assert isinstance(row, TaskRow)
    rows = list(merged([own, *(desk.store.rows(found.tenant, key) for key in sorted(state.joined))]))
    told_by = teller(desk, found.tenant, found.id)
    told_by.label = labels(rows)
    lines = tuple(polished([told_by.tell(row) for row in rows]))
    known = {key: past for key, past in told_by.past.items() if past.now is not None}
    word, tone, sentence = task_verdict(state, row, known)
    needs = {key: need_of(desk, found.tenant, past.now) for key, past in known.items() if past.now is not None}
    data = [effect_data(past.now, past, found.tenant, needs[key]) for key, past in known.items() if past.now is not None]
    waiting = next((key for key, need in needs.items() if need is not None), None)
    return Story(
        f"{word}  {sentence}", tone, tuple(_task_facts(state, row, known)), lines,
        {"task": {"id": state.id, "tenant": found.tenant, "kind": state.kind, "key": state.key,
                  "delivery": str(state.delivery), "execution": str(state.execution)},
         "identity": identity.data(state),
         "verdict": f"{word}  {sentence}", "effects": data, "story": story_data(lines)},
        advice(waiting, needs[waiting]) if waiting else _task_advice(state),
    )  # fmt: skip


def labels(rows: Iterable[Row]) -> Callable[[str, str], str]:
    """How to name effects: by name, and by the end of the key where one name has several."""
    keys: dict[str, set[str]] = {}
    for row in rows:
        event = row.event or j.event_of(row)
        if isinstance(event, j.Intended | j.Declined | j.Asked):
            keys.setdefault(event.name, set()).add(event.key)
    return lambda name, key: f"{name} [{out.short(key)}]" if len(keys.get(name, ())) > 1 else name


def task_verdict(state: tasks.Task, row: TaskRow, known: dict[str, Past]) -> tuple[str, str, str]:
    """A word, its tone, a sentence."""
    name, why = f"{state.kind} {state.key}", state.why
    states = [past.now.state for past in known.values() if past.now is not None]
    done = out.count(states.count(EffectState.CONFIRMED), "effect") + " confirmed"
    unknown = states.count(EffectState.AMBIGUOUS)
    after = f"{done}, {unknown} unknown" if unknown else done
    if state.delivery is Delivery.DEAD_LETTERED:
        return "DEAD-LETTERED", "bad", f"{name}: {_stop(why)} {after[:1].upper()}{after[1:]}."
    if state.execution is Execution.CANCELLED:
        return "CANCELLED", "wait", f"{name}: {_stop(why)} {after[:1].upper()}{after[1:]}."
    if state.delivery is Delivery.ACKNOWLEDGED and state.execution is Execution.FAILED:
        return "PURGED", "wait", f"{name}: {_stop(why)} {after[:1].upper()}{after[1:]}."
    if state.delivery is Delivery.ACKNOWLEDGED:
        return "DONE", "good", f"{name} succeeded on attempt {state.attempt}: {after}."
    if state.delivery is Delivery.BLOCKED:
        return "BLOCKED", "bad", f"{name} waits for a person: {_stop(why)} So far {after}."
    if state.delivery is Delivery.LEASED:
        return "RUNNING", "wait", f"{name} is on attempt {state.attempt}: {after}."
    reason = f" ({why})" if why else ""
    return ("UNKNOWN" if unknown else "QUEUED"), "wait", f"{name} waits for a worker{reason}: {after}."


def _task_facts(state: tasks.Task, row: TaskRow, known: dict[str, Past]) -> Iterator[tuple[str, str]]:
    room = out.room(12)
    yield "task", state.id
    yield "key", f"{state.key}  ({state.kind}, {'queue ' + state.queue if state.queue else 'direct mode'}, tenant {row.tenant})"
    yield "args", out.one_line(state.args, room)
    if state.execution is Execution.SUCCEEDED:
        yield "result", out.one_line(state.result, room)
    yield from identity.facts(state)
    for n, (key, past) in enumerate(known.items()):
        assert past.now is not None
        yield "effects" if n == 0 else "", f"{past.now.name} [{out.short(key)}]  {past.now.state}: {stands_words(past.now, past)}"


def _task_advice(state: tasks.Task) -> str:
    if state.delivery is Delivery.DEAD_LETTERED:
        return f"Next: {cost.mend(state)}, then  semel replay {out.short(state.id)} --by YOU"
    if identity.held(state.delivery, state.why):
        return identity.advice(state)
    if state.delivery is Delivery.BLOCKED:
        return (
            f"Next: a person mends the cause above; then a verdict on the effect, or  semel cancel {out.short(state.id)} --by YOU"
        )
    return ""


# --- telling --------------------------------------------------------------------------------------------------------


def merged(streams: Iterable[Sequence[Row]]) -> Iterator[Row]:
    """Several streams as one, by time; within a stream the order is the stream's, whatever the clocks said."""
    return heapq.merge(*streams, key=lambda row: row.at)


def effect_data(x: e.Effect, past: Past, tenant: str, need: Need | None) -> dict[str, Json]:
    """An effect for programs. Tokens are text: JSON readers lose digits of such integers."""
    return {
        "key": x.key, "tenant": tenant, "name": x.name, "state": str(x.state), "version": x.version, "args": x.args,
        "result": x.result, "unrecorded": x.unrecorded, "occurrence": x.occurrence, "generation": x.generation,
        "recovery": list(x.recovery),
        "submissions": [
            {"n": s.n, "task": s.task, "attempt": s.attempt, "token": str(s.token), "session": s.session, "at": s.at,
             "open": s.open, "lost": s.lost, "ended": s.ended, "fenced": s.fenced, "dead": s.dead, "unfenced": s.unfenced,
             "observed": dict(s.observed) or None}
            for s in x.sent
        ],
        "evidence": [
            {"submission": v.n, "outcome": v.outcome, "result": v.result, "reason": v.reason, "at": v.at} for v in x.evidence
        ],
        "settled_by": None if past.settled is None else _settled_data(past.settled),
        "approval": approval_data(x),
        "conflict": x.conflict, "unknown_since": past.since or None, "unknown_ms": past.unknown_ms, "drifts": past.drifts,
        "needs": None if need is None else {"who": need.who, "text": need.text, "process_stopped": need.stopped},
    }  # fmt: skip


def approval_data(x: e.Effect) -> Json:
    """What people were asked, and what they said, for programs; None: nobody was asked."""
    if x.asked is None:
        return None
    return {
        "waiting": x.waiting, "approvers": x.asked.approvers, "since": x.asked_at, "tasks": sorted(x.askers),
        "asked_args": x.asked.args, "edited": x.asked.digest != x.digest,
        "approved": [{"by": one.by, "reason": one.reason, "digest": one.digest, "expires": one.expires or None}
                     for one in x.approvals],
        "denied": None if x.denied is None else {"by": x.denied.by, "reason": x.denied.reason},
    }  # fmt: skip


def _settled_data(settled: Settled) -> dict[str, Json]:
    return {"how": settled.how, "reason": settled.reason, "at": settled.at}


def story_data(lines: Sequence[Line]) -> list[Json]:
    """A story for programs, whole."""
    start = lines[0].at if lines else 0
    return [
        {"at": line.at, "elapsed_ms": line.at - start, "stream": line.stream, "seq": line.seq, "kind": line.kind,
         "actor": line.actor, "token": str(line.token), "attempt": line.attempt, "key": line.key, "text": line.text,
         "details": dict(line.details)}
        for line in lines
    ]  # fmt: skip


def show(told: Story) -> None:
    """For people."""
    out.verdict(told.verdict, told.tone)
    out.say()
    out.fields(told.facts)
    out.say()
    tell(told.lines)
    if 0 < out.height() < 2 * len(told.lines):  # the first line has scrolled away
        out.say()
        out.verdict(told.verdict, told.tone)
    if told.next:
        out.say()
        for line in told.next.splitlines():
            out.say(line)


def tell(lines: Sequence[Line]) -> None:
    """Sentences with their times of day, and what has elapsed since the first."""
    start, day = (lines[0].at if lines else 0), ""
    for line in condensed(lines):
        today = out.local(line.at).strftime("%A %Y-%m-%d")
        if today != day:
            day = today
            out.indented(f"{today}, local times ({out.zone(line.at)})", 0, style="dim")
        out.indented(line.text, COLUMN, first=f"{out.clock(line.at)} {out.elapsed(line.at - start):>8}")
        for name, value in line.details:
            if value not in (None, {}, []):
                label = f"{name} "
                out.indented(label + out.one_line(value, out.room(COLUMN) - len(label)), COLUMN, style="dim")


def polished(lines: Sequence[Line]) -> list[Line]:
    """What one change records in two events need not be said twice."""
    kept: list[Line] = []
    for line, then in zip(lines, [*lines[1:], None], strict=True):
        follows = then is not None and then.stream == line.stream
        if (
            follows
            and then is not None
            and line.kind in ("failed", "lease_lost")
            and then.kind in ("dead_lettered", "ending", "blocked")
        ):
            line = replace(line, text=line.text.partition(" It is due again")[0])
        kept.append(line)
    return kept


def condensed(lines: Sequence[Line]) -> Iterator[Line]:
    """Long runs of the same are told once: attempts that only looked and were given back, steps, what was spent."""
    runs: list[list[Line]] = []
    for line, then in zip(lines, [*lines[1:], None], strict=True):
        if line.kind == "suspended" and then is not None and then.kind in ("parked", "blocked") and _why(line) in then.text:
            continue  # the next line says it again
        same = runs and runs[-1][0].stream == line.stream and runs[-1][0].attempt == line.attempt and line.kind != "claimed"
        if same and (line.kind in NOTES) == (runs[-1][0].kind in NOTES):
            runs[-1].append(line)
        else:
            runs.append([line])
    at = 0
    while at < len(runs):
        shape = _shape(runs[at])
        end = at + 1
        while shape and end < len(runs) and _shape(runs[end]) == shape:
            end += 1
        if end - at >= SAME:
            yield from runs[at]
            first, last = runs[at + 1][0], runs[end - 1][-1]
            yield replace(last, text=f"Attempts {first.attempt} to {last.attempt} went the same way.", details=())
            at = end
            continue
        yield from _steps(runs[at])
        at += 1


def _why(line: Line) -> str:
    return line.text.partition(": ")[2]


def _shape(run: Sequence[Line]) -> str:
    """What an idle attempt came to, without its number; "" for any other."""
    kinds = [line.kind for line in run]
    if not (kinds[0] == "claimed" and kinds[-1] == "parked" and set(kinds) <= IDLE):
        return ""
    return run[-1].text.partition(":")[2].partition(" It is due")[0]


def _steps(run: Sequence[Line]) -> Iterator[Line]:
    if run[0].kind not in NOTES or len(run) <= SAME:
        yield from run
        return
    what = "steps" if all(line.kind == "stepped" for line in run) else "notes of steps and of what was spent"
    yield from run[:2]
    yield replace(run[-2], text=f"{len(run) - 3} more {what} are on record.", details=())
    yield run[-1]

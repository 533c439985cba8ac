"""`semel tasks`, `show` and `unknown`: what is on record, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from semel.cli import cost, identity, why
from semel.cli import output as out
from semel.cli.needs import Need, ladder, need_of
from semel.cli.reach import Found, reading
from semel.cli.tell import Line, Past
from semel.engine.approval import WAITS
from semel.engine.ledger import Desk
from semel.engine.session import read_effect
from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import tasks as machine
from semel.machine.journal import Row
from semel.machine.limits import UNLIMITED
from semel.machine.projection import TaskRow, UnknownRow
from semel.model import Delivery, EffectState, Execution, Json, TaskView

INDENT = 12
COUNTED = 10_000  # more are not counted
_ENDS = {"finished", "failed", "parked", "blocked", "lease_lost", "cancelled", "dead_lettered"}


# --- semel tasks ----------------------------------------------------------------------------------------------------


def task_data(task: TaskView) -> dict[str, Json]:
    """A task for programs; times in milliseconds since the Unix epoch."""
    return {
        "id": task.id, "tenant": task.ref.tenant, "kind": task.kind, "key": task.key, "queue": task.queue,
        "delivery": str(task.delivery), "execution": str(task.execution), "attempt": task.attempt, "token": str(task.token),
        "failures": task.failures, "crashes": task.crashes, "unknown": task.unknown, "due": task.due, "why": task.why,
        "version": task.version,
    }  # fmt: skip


def tasks(found: Sequence[TaskView], *, counts: dict[str, int], limit: int, tenants: bool) -> None:
    """A table of tasks, newest first."""
    names = ["TASK", "KIND", "KEY", "DELIVERY", "EXECUTION", "ATT", "UNK"]
    out.table(
        (["TENANT"] if tenants else []) + names,
        [
            ([task.ref.tenant] if tenants else [])
            + [
                out.short(task.id), task.kind, task.key, out.state(task.delivery), out.state(task.execution),
                str(task.attempt), Text(str(task.unknown), style="bold yellow") if task.unknown else "",
            ]
            for task in found
        ],
        right=("ATT", "UNK"),
    )  # fmt: skip
    out.say()
    total = sum(counts.values())
    said = ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
    out.say(f"{out.count(total, 'task')} in all" + (f": {said}." if said else "."))
    if len(found) == limit and total > limit:
        out.say(f"The newest {limit} are shown; more with --limit.")
    if any(task.unknown for task in found):
        out.say("Next: semel unknown")
    if any(task.delivery is Delivery.BLOCKED and WAITS in task.why for task in found):
        out.say("Next: semel approvals")


# --- semel show -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tried:
    """One attempt. end: the kind of event that ended it, "" while it runs; text: in words."""

    number: int
    token: int
    session: str
    began: int
    over: int = 0
    end: str = ""
    text: str = ""


@dataclass(slots=True)
class Shown:
    """The three ledgers of one task."""

    tenant: str
    row: TaskRow
    state: machine.Task
    enqueued: int  # or, if its first rows are gone, pruned
    pruned: bool = False
    attempts: list[Tried] = field(default_factory=list)
    effects: list[tuple[e.Effect, Past, Need | None]] = field(default_factory=list)


def read(desk: Desk, found: Found) -> Shown:
    """All that `show` shows of a task, from its journal."""
    with reading(f"task {found.id}"):
        own = desk.store.rows(found.tenant, found.id)
        state = machine.fold(own)
        row = found.row
        assert isinstance(row, TaskRow)
        teller = why.teller(desk, found.tenant, found.id)
        told = [(line, raw) for raw in _with_keys(desk, found.tenant, own, state) if (line := teller.tell(raw))]
        pruned = own[0].kind == j.Pruned.kind
        shown = Shown(found.tenant, row, state, own[0].at, pruned, attempts_of(told, state.id))
        for past in teller.past.values():
            if past.now is not None:
                shown.effects.append((past.now, past, need_of(desk, found.tenant, past.now)))
        return shown


def _with_keys(desk: Desk, tenant: str, own: Sequence[Row], state: machine.Task) -> Iterator[Row]:
    return why.merged([own, *(desk.store.rows(tenant, key) for key in sorted(state.joined))])


def attempts_of(told: Sequence[tuple[Line, Row]], task: str) -> list[Tried]:
    """The attempts of a task, with how each one ended."""
    attempts: list[Tried] = []
    for line, raw in told:
        if line.stream != task:
            continue
        if line.kind == "claimed":
            event = raw.event or j.event_of(raw)
            assert isinstance(event, j.Claimed)
            attempts.append(Tried(event.attempt, event.token, event.session, line.at))
        elif line.kind in _ENDS and attempts and not attempts[-1].end:
            last = attempts[-1]
            last.over, last.end, last.text = line.at, line.kind, line.text
    return attempts


def show_data(shown: Shown) -> dict[str, Json]:
    """The three ledgers for programs."""
    s = shown.state
    return {
        "task": {
            "id": s.id, "tenant": shown.tenant, "kind": s.kind, "key": s.key, "queue": s.queue, "priority": s.priority,
            "args": s.args, "result": s.result, "enqueued": shown.enqueued, "version": s.version,
        },
        "delivery": {"state": str(s.delivery), "attempt": s.attempt, "token": str(s.token), "session": s.session,
                     "due": s.due, "why": s.why, "ending": s.ending},
        "execution": {"state": str(s.execution), "failures": s.failures, "crashes": s.crashes, "max_attempts": s.max_attempts,
                      "max_crashes": s.max_crashes, "steps": len(s.steps), "used": cost.cost_data(s),
                      "attempts": [{"attempt": t.number, "token": str(t.token), "session": t.session, "began": t.began,
                                    "ended": t.over or None, "end": t.end, "text": t.text} for t in shown.attempts]},
        "identity": identity.data(s),
        "ahead": [{"name": x.name, "args": x.args, "by": x.by, "expires": x.expires or None} for x in ahead(s)],
        "effects": [why.effect_data(x, past, shown.tenant, need) for x, past, need in shown.effects],
    }  # fmt: skip


def show(desk: Desk, shown: Shown) -> None:
    """The three ledgers for people."""
    s = shown.state
    now = desk.clock.raw_ms()
    out.verdict(f"{s.kind} {s.key}  {s.delivery}, {s.execution}", "")
    out.say()
    out.fields(_facts(shown, now), by=INDENT)
    out.heading("DELIVERY: who has it?")
    out.indented(_delivery(desk, s, now), INDENT + 5, first=f"  {s.delivery}")
    out.heading("EXECUTION: what do we know of the work?")
    crashes = out.count(s.crashes, "crash", "crashes")
    steps = f", {out.count(len(s.steps), 'step')} on record" if s.steps else ""
    out.say(f"  {s.execution}, {out.count(s.attempt, 'attempt')}, {out.count(s.failures, 'failure')}, {crashes}{steps}")
    if any(s.used.total[:2]) or s.budget != UNLIMITED:
        out.indented(cost.cost_words(s), INDENT, first="  used")
    named = why.session_namer(desk)
    for tried in shown.attempts:
        spent = out.duration((tried.over or now) - tried.began)
        out.indented(
            f"{out.clock(tried.began)}, for {spent}, token {tried.token}, {named(tried.session)}", INDENT,
            first=f"  {'#' + str(tried.number):<6}",
        )  # fmt: skip
        out.indented(tried.text or "It runs now.", INDENT, style="" if tried.text else "cyan")
    out.heading("EFFECTS: what can we prove about the world?")
    if not shown.effects:
        out.say("  none")
    for given in ahead(s):
        until = f", until {out.moment(given.expires, now)}" if given.expires else ""
        call = f"{given.name} {out.one_line(given.args, 50)}"
        out.indented(f"{call} is approved by {given.by}{until}, if it is called so", INDENT, first="  ahead")
    for x, past, need in shown.effects:
        effect(x, past, need, now, s.id)
    out.say()
    if identity.held(s.delivery, s.why):
        for line in identity.advice(s).splitlines():
            out.say(line)
    out.say(f"The whole story: semel why {out.short(s.id)}")


def ahead(s: machine.Task) -> list[j.Approved]:
    """What people have approved of it that it has not asked for yet; of the tenant's keys, their own streams tell."""
    return [given for key in sorted(s.ahead) for given in s.ahead[key]]


def _facts(shown: Shown, now: int) -> Iterator[tuple[str, str]]:
    s, room = shown.state, out.room(INDENT)
    yield "task", s.id
    yield "tenant", shown.tenant
    yield "queue", (s.queue or "(direct mode: its caller runs it)") + (f", priority {s.priority}" if s.priority else "")
    yield (
        "pruned" if shown.pruned else "enqueued",
        f"{out.moment(shown.enqueued, now)} ({out.duration(now - shown.enqueued)} ago)",
    )
    yield "args", out.one_line(s.args, room)
    if s.execution is Execution.SUCCEEDED:
        yield "result", out.one_line(s.result, room)
    yield from identity.facts(s)


def _delivery(desk: Desk, s: machine.Task, now: int) -> str:
    if s.delivery is Delivery.LEASED:
        return f"to {why.session_namer(desk)(s.session)}, under token {s.token}"
    if s.delivery is Delivery.QUEUED:
        due = f"due at {out.moment(s.due, now)}, in {out.duration(s.due - now)}" if s.due > now else "due now"
        ending = f", to be ended as {s.ending}" if s.ending else ""
        return due + ending + (f": {s.why}" if s.why else "")
    return s.why or "it is over"


def effect(x: e.Effect, past: Past, need: Need | None, now: int, home: str) -> None:
    """One effect, as a block. home: the task that it is shown with."""
    occurrence = f" ({x.occurrence})" if x.occurrence else ""
    console = out.console()
    console.print(Text.assemble("  ", (x.name + occurrence, "bold"), "  ", out.state(x.state)))
    sent = out.count(len(x.sent), "submission")
    whose = {sub.task: "" if sub.task == home else f" of task [{out.short(sub.task)}]" for sub in x.sent}
    tries = ", ".join(
        f"#{sub.n} {'assumed in' if sub.assumed else 'by'} attempt {sub.attempt}{whose[sub.task]}" for sub in x.sent[-4:]
    )
    rows = [("key", x.key), ("sent" if x.sent else "to send", out.one_line(x.args, out.room(INDENT + 2)))]
    if x.asked is not None and x.asked.digest != x.digest:
        rows.append(("asked", f"{out.one_line(x.asked.args, out.room(INDENT + 2))}"))
    rows += [("", f"{sent}: {tries}" if tries else sent)]
    rows += [("as", identity.sent_as(x))] if identity.sent_as(x) else []
    for given in x.approvals:
        until = f", until {out.moment(given.expires, now)}" if given.expires else ""
        rows.append(("approved", f"by {given.by}{until}" + (f": {given.reason}" if given.reason else "")))
    if x.denied is not None:
        rows.append(("denied", f"by {x.denied.by}" + (f": {x.denied.reason}" if x.denied.reason else "")))
    if x.waiting:
        rows.append(("waits", f"for approval, for {out.duration(now - x.asked_at)}"))
    if x.confirmed:
        rows.append(("got", f"not recorded: {x.unrecorded}" if x.unrecorded else out.one_line(x.result, out.room(INDENT + 2))))
    if past.settled is not None and x.sent and x.state in (EffectState.CONFIRMED, EffectState.NOT_ATTEMPTED):
        spent = f"; unknown for {out.duration(past.unknown_ms)}" if past.unknown_ms else ""
        rows.append(("settled", f"{why.settled_words(past.settled)}{spent}"))
    if past.since:
        rows.append(("unknown", f"for {out.duration(now - past.since)}" + (f"; conflict: {x.conflict}" if x.conflict else "")))
    for found in x.evidence:
        rows.append(("evidence", f"submission {found.n} {found.outcome}: {found.reason or out.one_line(found.result, 50)}"))
    rows.append(("recovery", ladder(x)))
    if need is not None:
        rows.append(("next", need.text))
    for name, value in rows:
        out.indented(value, INDENT + 2, first=f"    {name}")


# --- semel unknown --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unknown:
    """One entry of the unknown-work queue."""

    row: UnknownRow
    effect: e.Effect
    task: TaskRow | None
    need: Need | None


def unknowns(desk: Desk, tenant: str | None, limit: int) -> list[Unknown]:
    """The unknown-work queue, oldest first."""
    found = []
    for row in desk.store.unknown(tenant, limit=limit):
        held = desk.store.effect(row.tenant, row.key)
        with reading(f"effect {row.key}"):
            x = read_effect(desk, row.tenant, held.stream, row.key) if held is not None else None
        if x is not None and x.state is EffectState.AMBIGUOUS:  # else it was settled between two reads
            task = desk.store.task(row.tenant, row.task)
            found.append(Unknown(row, x, task, need_of(desk, row.tenant, x)))
    return found


def unknown_data(desk: Desk, found: Unknown) -> dict[str, Json]:
    """For programs."""
    need = found.need
    return {
        "key": found.row.key, "tenant": found.row.tenant, "task": found.row.task, "name": found.row.name,
        "since": found.row.since, "age_ms": max(0, desk.clock.raw_ms() - found.row.since), "version": found.effect.version,
        "args": found.effect.args, "submissions": len(found.effect.sent), "conflict": found.effect.conflict,
        "recovery": list(found.effect.recovery),
        "needs": None if need is None else {"who": need.who, "text": need.text, "process_stopped": need.stopped},
    }  # fmt: skip


def unknown(desk: Desk, found: Sequence[Unknown], count: int, tenants: bool) -> None:
    """The unknown-work queue for people: a block for each, with the line to type."""
    if not found:
        out.verdict("NOTHING UNKNOWN  Every effect that was submitted is settled, or in flight.", "good")
        return
    people = sum(1 for u in found if u.need is not None and u.need.who == "person")
    are, more = "is" if count == 1 else "are", f" of the {len(found)} shown" if count > len(found) else ""
    many = f"{COUNTED} or more effects" if count >= COUNTED else out.count(max(count, len(found)), "effect")
    what = f"{many} {are} unknown, {people or 'none'}{more} for a person to settle."
    now = desk.clock.raw_ms()
    oldest = f"The oldest for {out.duration(now - found[0].row.since)}."
    out.verdict(f"UNKNOWN  {what} {oldest} Until then their tasks start no other effect.", "bad" if people else "wait")
    for u in found:
        out.say()
        task = f"{u.task.kind} {u.task.key}" if u.task is not None else "?"
        tone = "bold yellow" if u.need is not None and u.need.who == "person" else "bold"
        age = out.duration(now - u.row.since)
        out.console().print(Text.assemble((out.clean(f"{u.effect.name} of {task}"), tone), f"  for {age}"), soft_wrap=True)
        rows = [("key", u.row.key), ("task", u.row.task)]
        rows += [("tenant", u.row.tenant)] if tenants else []
        rows += [("sent", out.one_line(u.effect.args, out.room(INDENT)))]
        rows += [("conflict", u.effect.conflict)] if u.effect.conflict else []
        rows += [("needs", u.need.text)] if u.need is not None else []
        rows += [("type", f"semel why {out.short(u.row.key)}")]
        if u.need is not None and u.need.who == "person":
            stopped = " --process-stopped" if u.need.stopped else ""
            rows.append(("", f"semel resolve {out.short(u.row.key)} --by YOU --confirmed JSON"))
            rows.append(("", f"semel resolve {out.short(u.row.key)} --by YOU --not-found{stopped}"))
        for name, value in rows:
            out.indented(value, INDENT, first=f"  {name}")

"""`semel dead`, `replay` and `purge`: tasks that were given up, what a replay would do, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from semel.app import App
from semel.cli import cost as costs
from semel.cli import output as out
from semel.cli import typed
from semel.cli.decide import Subject
from semel.cli.reach import Found
from semel.cli.show import Shown, read
from semel.engine.dead import Handled, Plan
from semel.engine.ledger import Desk
from semel.engine.pages import newest_tasks
from semel.errors import Misuse
from semel.machine.forecast import Forecast
from semel.model import DeadLetters, Delivery, EffectState, Json, Ref

INDENT = 12
LISTED = 20  # refusals that are shown; --json has them all


# --- what was typed -------------------------------------------------------------------------------------------------


def at_most_of(given: Sequence[str]) -> dict[str, int] | None:
    """NAME=N, as often as it was given. Raises `Misuse`."""
    limits: dict[str, int] = {}
    for text in given:
        name, equals, number = text.partition("=")
        if not name or not equals or not number.isdecimal():
            raise Misuse(f"--at-most {out.clipped(text, 40)!r} is no limit; write --at-most send_invoice=1")
        limits[name] = int(number)
    return limits or None


# --- semel dead -----------------------------------------------------------------------------------------------------


def letters(app: App, tenant: str | None, limit: int) -> list[Shown]:
    """Dead letters, newest first, with what their effects came to."""
    desk = app.runtime.desk
    found: list[Shown] = []
    for row in newest_tasks(desk.store, tenant, Delivery.DEAD_LETTERED):
        if len(found) == limit:
            break
        found.append(read(desk, Found("task", row.task, row.tenant, row)))
    return found


def cost(shown: Shown) -> dict[str, int]:
    """What a task has used up so far. ran_ms: milliseconds within its attempts."""
    s = shown.state
    return {
        "attempts": s.attempt,
        "ran_ms": sum(t.over - t.began for t in shown.attempts if t.over),
        "steps": len(s.steps),
        "submissions": sum(sub.task == s.id for x, _, _ in shown.effects for sub in x.sent),
    }


def letter_data(shown: Shown) -> dict[str, Json]:
    """For programs."""
    s = shown.state
    last = max((t.over for t in shown.attempts), default=shown.enqueued)
    states = Counter(str(x.state) for x, _, _ in shown.effects)
    return {
        "id": s.id, "tenant": shown.tenant, "kind": s.kind, "key": s.key, "queue": s.queue, "why": s.why,
        "failures": s.failures, "crashes": s.crashes, "attempts": s.attempt, "enqueued": shown.enqueued, "ended": last,
        "effects": [{"key": x.key, "name": x.name, "state": str(x.state)} for x, _, _ in shown.effects],
        "states": {str(state): states[state] for state in EffectState}, "used": costs.cost_data(s), "cost": cost(shown),
    }  # fmt: skip


def listed(desk: Desk, found: Sequence[Shown], tenants: bool) -> None:
    """For people."""
    if not found:
        out.verdict("NONE  There is no dead letter.", "good")
        return
    what = "letter is" if len(found) == 1 else "letters are"
    out.verdict(f"DEAD LETTERS  {len(found)} {what} here. They run again only if somebody replays them.", "bad")
    now = desk.clock.raw_ms()
    for shown in found:
        s, data = shown.state, letter_data(shown)
        out.say()
        ago = out.duration(now - data["ended"])
        out.console().print(Text.assemble((out.clean(f"{s.kind} {s.key}"), "bold red"), f"  {ago} ago"), soft_wrap=True)
        rows: list[tuple[str, Any]] = [("task", s.id)]
        rows += [("tenant", shown.tenant)] if tenants else []
        rows += [("why", s.why)]
        rows += [("counts", f"{out.count(s.failures, 'failure')}, {out.count(s.crashes, 'crash', 'crashes')}")]
        done = [f"{x.name} [{out.short(x.key)}] {x.state}" for x, _, _ in shown.effects]
        rows += [
            ("effects", ", ".join(done) if done else "none"),
            ("cost", f"{_cost_words(data['cost'])}; {costs.cost_words(s)}"),
        ]
        rows += [("type", f"semel why {out.short(s.id)}"), ("", f"semel replay {out.short(s.id)} --by YOU")]
        for name, value in rows:
            out.indented(value, INDENT, first=f"  {name}")


def _cost_words(spent: Mapping[str, int]) -> str:
    steps, calls = out.count(spent["steps"], "step"), out.count(spent["submissions"], "submission")
    return f"{out.count(spent['attempts'], 'attempt')} ({out.duration(spent['ran_ms'])}), {steps}, {calls}"


# --- a forecast -----------------------------------------------------------------------------------------------------


def forecast_data(told: Forecast) -> dict[str, Json]:
    """For programs."""
    return {
        "tasks": told.tasks, "recorded": dict(told.recorded), "unknown": dict(told.unknown), "again": dict(told.again),
        "new": {name: [told.new_least.get(name, 0), most] for name, most in told.new_most.items()}, "at_most": told.most,
        "steps_kept": told.steps_kept, "steps_anew": told.steps_anew, "siblings": told.siblings,
    }  # fmt: skip


def forecast(told: Forecast) -> None:
    """For people: a line for each effect, then what it was read off."""
    names = sorted({*told.recorded, *told.unknown, *told.again, *told.new_most})
    if names:
        columns = ("EFFECT", "FROM RECORD", "SETTLED FIRST", "SENT AGAIN", "NEW")
        rows = [
            (name, *(_number(part.get(name, 0)) for part in (told.recorded, told.unknown, told.again)), _range(told, name))
            for name in names
        ]
        out.table(columns, rows, right=columns[1:])
    else:
        out.say("No effect is on record.")
    out.say(f"Steps: {told.steps_kept} from record, {told.steps_anew} run anew.")
    if told.siblings:
        out.say(f"New is what {out.count(told.siblings, 'finished task')} of this kind did beyond what is on record here.")
    else:
        out.say("No finished task of this kind is on record, so nothing new is foreseen.")


def _number(n: int) -> str:
    return str(n) if n else ""


def _range(told: Forecast, name: str) -> str:
    least, most = told.new_least.get(name, 0), told.new_most.get(name, 0)
    return _number(most) if least == most else f"{least} to {most}"


def plan(app: App, chosen: Plan) -> None:
    """What is about to be replayed, for people."""
    which = out.count(len(chosen.letters), "dead letter")
    out.verdict(f"FORECAST  {which} to replay.", "wait" if chosen.letters else "good")
    if chosen.letters:
        out.say()
        forecast(chosen.forecast)
    passed([Ref(one.id, one.tenant) for one in chosen.passed], chosen.batch)


def passed(refs: Sequence[Ref[Any]], batch: str) -> None:
    """Those that this very replay has had already."""
    if refs:
        few = ", ".join(out.short(ref.id) for ref in refs[:LISTED])
        more = f" and {len(refs) - LISTED} more" if len(refs) > LISTED else ""
        out.say(
            f"Passed over, since this same replay ({batch}) has had them, and they died again: {few}{more}. "
            f"To replay them too, give it another name: --batch NAME"
        )


# --- what came of it ------------------------------------------------------------------------------------------------


def handled_data(done: Handled, verb: str) -> dict[str, Json]:
    """For programs."""
    return {
        verb: [ref.id for ref in done.done], "refused": [{"id": ref.id, "why": why} for ref, why in done.refused],
        "passed_over": [ref.id for ref in done.passed], "batch": done.batch, "forecast": forecast_data(done.forecast),
    }  # fmt: skip


def handled(done: Handled, verb: str, by: str, workers: bool) -> None:
    """For people."""
    total = len(done.done) + len(done.refused)
    out.verdict(f"{verb.upper()}  {len(done.done)} of {total}, by {by}.", "bad" if done.refused else "good")
    for ref, why in done.refused[:LISTED]:
        out.indented(why, INDENT, first=f"  {out.short(ref.id)}")
    if len(done.refused) > LISTED:
        out.say(f"  and {len(done.refused) - LISTED} more: --json lists them all")
    if done.done and verb == "replayed" and not workers:
        out.say("No worker is running now: semel worker MODULE:app")


def filter_of(kind: str, queue: str, why: str, since: str | None, until: str | None, effect: str) -> DeadLetters:
    """The filter that was typed. Raises `Misuse`."""
    return DeadLetters(
        kind=kind,
        queue=queue,
        why=why,
        since=typed.moment_of("--since", since),
        until=typed.moment_of("--until", until),
        effect=effect,
    )


# --- semel renew ----------------------------------------------------------------------------------------------------


def renewed_data(after: Subject) -> dict[str, Json]:
    """For programs."""
    x = after.effect
    assert x.renewed is not None
    return {"key": x.key, "tenant": after.found.tenant, "name": x.name, "generation": x.renewed.generation, "version": x.version}


def renewed_words(after: Subject, by: str) -> str:
    """For people, with what comes next."""
    x, task = after.effect, after.task
    assert x.renewed is not None
    said = f"On record: {by} opens generation {x.renewed.generation} of {x.name}. Its next call has a key of its own."
    ended = task is not None and task.delivery in (Delivery.DEAD_LETTERED, Delivery.ACKNOWLEDGED)
    return said + (f" Next: semel replay {out.short(task.task)} --by YOU" if ended and task is not None else "")

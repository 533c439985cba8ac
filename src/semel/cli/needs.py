"""What an unknown effect waits for, in words. The machine says what comes next; here it is only read out."""

from __future__ import annotations

from dataclasses import dataclass

from semel.cli.identity import held
from semel.cli.output import clock, count, duration, short
from semel.engine import views
from semel.engine.ledger import Desk
from semel.machine import effects as e
from semel.machine import recovery as r
from semel.machine.projection import TaskRow
from semel.model import Delivery

OBVIOUS = "nobody but a person can tell"  # the machine's words for the end of a ladder without a lookup


@dataclass(frozen=True, slots=True)
class Need:
    """who: person, worker or approver. text: what they must do. stopped: a not_found needs the word that its process stopped."""

    who: str
    text: str
    stopped: bool = False


def need_of(desk: Desk, tenant: str, x: e.Effect) -> Need | None:
    """What `x` waits for; None if it is neither unknown nor to be approved."""
    if x.waiting and x.asked is not None:
        given = " and ".join(one.by for one in x.approvals)
        more = x.asked.approvers - len(x.approvals)
        return Need("approver", f"{count(more, 'approval')}" + (f" (approved by {given} so far)" if given else ""))
    move = views.next_move(desk, x)
    if move is None:
        return None
    task = desk.store.task(tenant, x.task)
    stopped = x.unfenced
    blocked = task is not None and task.delivery == Delivery.BLOCKED
    if task is not None and held(task.delivery, task.why):
        again = f"the right login, then semel replay {short(task.task)} --by YOU"
        return Need("person", f"{again}; or a person's verdict ({task.why})", stopped)
    if (isinstance(move, r.Person) or blocked) and not x.conflict and any(s.assumed for s in x.open):
        return Need("person", "a person's verdict: did it happen before the store went back?", stopped)
    if isinstance(move, r.Person) or blocked:
        why = move.why if isinstance(move, r.Person) and (x.conflict or not blocked) else task.why if task is not None else ""
        return Need("person", _asks(why, _too_early(x)), stopped)
    return Need("worker", f"{_does(move, x)}{_when(desk, task)}", stopped)


def _asks(why: str, more: str) -> str:
    if why in ("", OBVIOUS):
        return f"a person's verdict: did it happen?{more}"
    return f"a person's verdict ({why}){'.' if more else ''}{more}"


def _too_early(x: e.Effect) -> str:
    if x.watched:
        return ""
    settle = settle_of_person(x)
    return f" Settle{f' ({duration(settle)})' if settle else ''} is not over: whoever finds nothing now is asked again."


def _does(move: r.Move, x: e.Effect) -> str:
    if x.answered is not None:
        if x.watched:
            return "a worker believes the person who said that it did not happen"
        return "a worker watches settle, since a person said that it did not happen; then they are asked to look again"
    if isinstance(move, r.Credit):
        return "a worker believes the evidence that came in late"
    if isinstance(move, r.Again):
        return "a worker sends the recorded call again, with the same key"
    if isinstance(move, r.RuleOut):
        return "a worker reads it off the journal, where its confirm would be"
    if isinstance(move, r.Look):
        return "a worker asks the provider"
    return "a worker watches settle"


def _when(desk: Desk, task: TaskRow | None) -> str:
    if task is None:
        return ""
    if task.delivery == Delivery.LEASED:
        return f"; session {short(task.session)} is at it now"
    if task.delivery != Delivery.QUEUED:
        return f"; its task is {task.delivery}, so nothing brings that about but a replay or another task with the same key"
    if not desk.store.sessions():
        return "; no worker is running: semel worker MODULE:app"
    wait = task.due - desk.clock.raw_ms()
    return f", at {clock(task.due)} (in {duration(wait)})" if wait > 0 else ", as soon as one is free"


_RUNGS = {"lookup": "ask the provider", "ask": "ask a person", "repeat": "repeat it", "atomic": "read it off the journal"}


def ladder(x: e.Effect) -> str:
    """The recorded recovery ladder in words."""
    said = []
    for rung in r.rungs_of(x):
        settle = f" (settle {duration(rung.settle_ms)})" if rung.settle_ms else ""
        if rung.kind == "resend":
            within = f" within {duration(rung.within_ms)}" if rung.within_ms is not None else ", always"
            said.append(f"send it again{within}")
        else:
            said.append(_RUNGS[rung.kind] + settle)
    return ", then ".join(said)


def settle_of_person(x: e.Effect) -> int:
    """Milliseconds for which settle is watched before a person's not_found is believed."""
    return r.settle_of(r.rungs_of(x))

"""Random histories of one task: whatever the machine accepts, step by step, with the rows and the tables that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from task_cells import NOW

from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import projection as p
from semel.machine import tasks as t
from semel.machine.commands import Observed
from semel.machine.limits import UNLIMITED, Budget
from semel.model import Refusal

TENANT, STREAM = "acme", "t1"
KEYS = ("sml_a", "sml_b", "sml_c")
STEPS = ("draft:d:1", "draft:d:2", "check:d:1")


ROW = {"tenant": TENANT, "stream": STREAM, "seq": 1, "actor": "session:s1", "token": 7, "at": NOW, "id": "c1", "hash": bytes(32)}


def read_back(event: j.Happened, **columns: Any) -> j.Happened:
    """An event as its text in a row with such columns tells of it."""
    column = {**ROW, **columns}
    body = j.body_of(event, stream=column["stream"], token=column["token"], actor=column["actor"])
    assert body.encode().decode() == body, "it can be stored"
    return j.event_of(j.Row(**column, kind=event.kind, body=body))


@dataclass
class Model:
    """The tables as dicts, changed only by what a projection says, and strict about it."""

    task: dict[str, p.TaskRow] = field(default_factory=dict)
    ready: set[p.ReadyRow] = field(default_factory=set)
    inflight: set[p.InflightRow] = field(default_factory=set)
    effect: dict[str, p.EffectRow] = field(default_factory=dict)
    unknown: dict[str, p.UnknownRow] = field(default_factory=dict)

    def change(self, tables: p.Tables) -> None:
        """Delete, then insert. Raises `KeyError` for a pointer that is not there, `AssertionError` for one that is."""
        if tables.task:
            self.task[tables.task.task] = tables.task
        for rows, gone, new in ((self.ready, tables.ready_gone, tables.ready), (self.inflight, tables.inflight_gone,
                                                                                 tables.inflight)):  # fmt: skip
            if gone:
                rows.remove(gone)  # type: ignore[arg-type]
            if new:
                assert new not in rows
                rows.add(new)  # type: ignore[arg-type]
        for row in tables.effects:
            self.effect[row.key] = row
        for _, key in tables.unknown_gone:
            del self.unknown[key]
        for pointer in tables.unknown:
            assert pointer.key not in self.unknown
            self.unknown[pointer.key] = pointer


def whole(task: t.Task) -> Model:
    """The tables of a folded task, made from nothing."""
    model = Model()
    model.change(p.of_task(TENANT, None, task, list(task.effects)))
    return model


class History:
    """A task that only accepted decisions move. at: milliseconds since the Unix epoch, one more with each change."""

    def __init__(self) -> None:
        self.task = t.Task()
        self.rows: list[j.Row] = []
        self.model = Model()
        self.at = NOW
        self._land((j.Enqueued("t1", "bill", "inv_1", {}, due=NOW),))

    def try_(self, command: t.Command) -> e.Decision | Refusal:
        """Decide; if it is accepted, write the rows, fold them and change the tables."""
        self.at += 1
        decided = t.decide(self.task, command)
        if not isinstance(decided, Refusal) and decided.events:
            self._land(decided.events)
        return decided

    def _land(self, events: tuple[j.Happened, ...]) -> None:
        head = self.rows[-1].hash if self.rows else j.GENESIS
        before = self.task
        self.rows += j.seal(events, tenant=TENANT, stream=STREAM, seq=before.version, previous=head, actor="x",
                            token=before.token, at=self.at, id=f"c{self.at}")  # fmt: skip
        for event in events:
            self.task = t.apply(self.task, event, self.at)
        keys = [event.key for event in events if isinstance(event, j.OfEffect)]
        self.model.change(p.of_task(TENANT, before if before.version else None, self.task, keys))


# --- commands ---------------------------------------------------------------------------------------------------------


def command(history: History, name: str, n: int, token_behind: int) -> t.Command:
    """A command that may or may not be legal now; `n` chooses among keys, submissions, words."""
    task, key = history.task, KEYS[n % 3]
    token = task.token - token_behind
    known = task.effects.get(key)
    sub = 1 + n % max(1, len(known.sent) if known else 1)
    sent = known.submission(sub) if known else None
    spoken = sent.token if sent else token
    at = history.at + 10 * 3_600_000 if n % 2 else history.at
    made: dict[str, Any] = {
        "claim": lambda: t.Claim(f"s{n % 2}", n % 3, at, 3, 3, direct=n % 5 == 0,
                                 budget=Budget("0.5", 9, 50) if n % 3 else UNLIMITED),
        "spend": lambda: t.Spend(token, task.attempt, f"0.{n % 10}", n % 4),
        "exceed": lambda: t.Exceed(token, history.at, n),
        "finish": lambda: t.Finish(token, n),
        "fail": lambda: t.Fail(token, "no", history.at, 0.5, fatal=n % 7 == 0),
        "park": lambda: t.Park(token, "waiting", history.at),
        "suspend": lambda: t.Suspend(token, "?"),
        "block": lambda: t.Block(token, "?", key),
        "unblock": lambda: t.Unblock("alice", history.at),
        "conclude": lambda: t.Conclude(token),
        "lose_lease": lambda: t.LoseLease(task.session if n % 4 else "s9", ("watched", "dead", "left")[n % 3], history.at),
        "step": lambda: t.Step(token, STEPS[n % 3], STEPS[n % 3].split(":")[0], n),
        "cancel": lambda: t.Cancel("alice", history.at),
        "replay": lambda: t.Replay("alice", history.at, ("", "draft", "check")[n % 3]),
        "decline": lambda: t.Decline(token, key, "charge", "denied", {}),
        "intend": lambda: e.Intend(key, "charge", {"n": n}, f"d{n % 2}", f"m{n % 11 == 0}", "t1", task.attempt, token,
                                   task.session, unfenced="process" if n % 13 == 0 else "", limit=2 if n % 17 == 0 else None),
        "ask": lambda: e.Intend(key, "charge", {"to": "a", "n": n}, f"d{n % 2}", "m", "t1", task.attempt, token, task.session,
                                approvers=1 + n % 2, intent=("to",), at=at),
        "approve": lambda: e.Approve(key, f"p{n % 3}", known.version if known else 0, history.at,
                                     args={"to": "a", "n": 0} if n % 7 == 0 else None, digest="d9" if n % 7 == 0 else "",
                                     expires=history.at + n if n % 2 else 0),
        "bind": lambda: t.Bind(token, (("account", ("alice", "bob")[n % 7 == 0]), ("profile", "p1"))[: 1 + n % 2]),
        "mismatch": lambda: t.Mismatch(token, "?", key, "charge", (("account", "bob"),) if n % 2 else None),
        "anew": lambda: t.Replay("alice", history.at, identity=(("account", "bob"),), by="alice"),
        "observed": lambda: e.Intend(key, "charge", {"n": n}, f"d{n % 2}", "m", "t1", task.attempt, token, task.session,
                                     again=n % 5 == 0, observed=Observed(tuple(sorted(task.bound.items())) or None)),
        "deny": lambda: e.Deny(key, "p1", known.version if known else 0),
        "wait": lambda: t.Block(token, "?", key, approval=True),
        "again": lambda: e.Intend(key, "charge", {}, "d0", "m", "t1", task.attempt, token, task.session, again=True),
        "confirm": lambda: e.Confirm(key, sub, spoken, n),
        "disprove": lambda: e.Disprove(key, sub, spoken, "refused", final=n % 5 == 0),
        "lose": lambda: e.Lose(key, sub, spoken, "?", ended=bool(n % 2)),
        "mark": lambda: e.MarkUnfenced(key, sub, spoken, ("child", "process")[n % 2]),
        "gone": lambda: e.NoteSenderGone(key, f"s{n % 2}", dead=bool(n % 3)),
        "settle": lambda: e.Settle(key, token, ("confirmed", "not_found", "conflict", "unavailable")[n % 4], "lookup:f", n,
                                   waited_ms=n % 3, settle_ms=n % 2),
        "note": lambda: e.NoteWatched(key, len(known.sent) if known else 0, n % 3, n % 2),
        "credit": lambda: e.Credit(key, sub, token),
        "answer": lambda: e.Answer(key, ("confirmed", "not_found", "conflict")[n % 3], "alice",
                                   (known.version if known else 0) - (n % 5 == 0), stopped=bool(n % 2)),
        "reverse": lambda: e.Reverse(key, "bob", (known.version if known else 0) - (n % 5 == 0), at),
    }  # fmt: skip
    return made[name]()  # type: ignore[no-any-return]


# Legal moves are rare among random ones: those that lead on are offered more often.
NAMES = ["claim"] * 4 + ["intend"] * 4 + ["lose", "confirm"] * 4 + [
    "finish", "fail", "park", "suspend", "block", "unblock", "conclude", "lose_lease", "step", "cancel", "replay", "decline",
    "ask", "ask", "approve", "approve", "approve", "deny", "wait", "wait", "again", "again", "disprove", "mark", "gone",
    "settle", "settle", "note", "note", "credit", "credit", "credit", "answer", "answer", "spend", "exceed",
    "reverse", "reverse",
    "bind", "bind", "observed", "observed", "mismatch", "anew",
]  # fmt: skip
MOVES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 59), st.sampled_from([0, 0, 0, 0, 1])), min_size=12, max_size=45
)

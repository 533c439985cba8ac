"""A random history, decided by the machine and given to several stores at once: the same units, in the same batches.

Every unit is made once, from what the first store holds. Claims are decided once too, and given again to the others, so
that their random ids are the same. What differs afterwards is a difference of stores.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from semel.engine.clock import Clock
from semel.engine.ledger import START, Desk, Ledger, change_id, part_of_task
from semel.engine.queue import Order, enqueue
from semel.engine.standing import Standing
from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import tasks as t
from semel.machine.journal import Row
from semel.machine.limits import Budget
from semel.model import Delivery, Refusal
from semel.store.contract import Change, Claims, ClaimUnit, Guard, Outcome, SessionRow, Store, Unit
from semel.store.writer import Ticket

TENANTS, KINDS, QUEUES = ("acme", "zeta"), ("bill", "mail"), ("default", "slow")
NOW = 1_800_000_000_000
TTL_MS = 60_000


class FixedClock(Clock):
    """The wall stands at NOW but for `step`."""

    def __init__(self) -> None:
        self.now = NOW
        super().__init__()

    def raw_ms(self) -> int:
        return self.now


class Collects:
    """In the writer's place: what is submitted waits for the next batch."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    def submit(self, unit: Unit, *, waited_for: bool = True) -> Ticket:
        self.tickets.append(Ticket(unit))
        return self.tickets[-1]


@dataclass
class Life:
    """A session of the history."""

    row: SessionRow
    fenced: bool = False

    @property
    def guard(self) -> Guard:
        return Guard(self.row.id, self.row.epoch, self.row.beat)


class History:
    """stores: of one id and epoch, all empty. done: how often each operation has landed."""

    def __init__(self, stores: Sequence[Store], seed: int) -> None:
        self.stores, self.dice = stores, random.Random(seed)
        self.clock, self.collects = FixedClock(), Collects()
        self.desk = Desk(stores[0], self.collects, self.clock, Standing(stores[0]))  # type: ignore[arg-type]
        self.tasks: list[tuple[str, str]] = []
        self.lives: list[Life] = []
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._ledgers: dict[tuple[str, str], Ledger] = {}
        self._named: list[tuple[str, Ticket]] = []
        self._decided: dict[tuple[int, str, bytes], tuple[Change, t.Task] | None] = {}

    # --- the whole ---

    def run(self, batches: int) -> None:
        """So many batches of a few operations each."""
        self.open_session()
        operations = [
            self.enqueue, self.enqueue_again, self.claim, self.claim_one, *[self.task_command] * 12, *[self.effect] * 3,
            *[self.tenant_effect] * 3, self.race, self.settle, self.answer, self.rival, self.beat, self.fence, self.open_session,
        ]  # fmt: skip
        for _ in range(batches):
            self.clock.now += self.dice.randrange(5_000)
            for _ in range(self.dice.randint(1, 6)):
                self.dice.choice(operations)()
            self.flush()

    def flush(self) -> None:
        """Give the batch to every store; all must answer alike."""
        tickets, self.collects.tickets = self.collects.tickets, []
        units = [ticket.unit for ticket in tickets]
        answers = [self._commit(store, units) for store in self.stores] if units else [[]]
        for n, answer in enumerate(answers[1:], 1):
            for unit, one, other in zip(units, answers[0], answer, strict=True):
                assert one == other, f"store {n} answers otherwise to {unit}"
        for ticket, outcome in zip(tickets, answers[0], strict=True):
            ticket.set(outcome)
        for name, ticket in self._named:
            self.done[f"{name}:{type(ticket.value).__name__}"] += 1
            if isinstance(ticket.value, Claims):
                self.done[f"{name}:taken"] += len(ticket.value.tasks)
        self._named.clear()
        self._ledgers.clear()

    def _commit(self, store: Store, units: list[Unit]) -> list[Outcome]:
        random.seed(self.clock.now)  # the share of the oldest is drawn: alike for all
        return store.commit(units)

    def named(self, name: str, ticket: Ticket | None) -> None:
        """Remember what a ticket was for."""
        if ticket is not None:
            self._named.append((name, ticket))

    # --- operations ---

    def enqueue(self) -> None:
        order = Order(
            self.dice.choice(TENANTS), self.dice.choice(KINDS), f"key-{self.dice.randrange(60)}", {"n": self.dice.random() < 0.5},
            self.dice.choice(QUEUES), self.dice.randrange(3), self.clock.now + self.dice.choice((0, 0, 3_000)),
        )  # fmt: skip
        task, ticket = enqueue(self.desk, order)
        self.tasks.append((order.tenant, task))
        self.named("enqueue", ticket)

    def enqueue_again(self) -> None:
        """The same change again, as after a lost reply: it finds itself."""
        if self.collects.tickets and isinstance(self.collects.tickets[-1].unit, Change):
            self.named("again", self.collects.submit(self.collects.tickets[-1].unit))

    def claim(self) -> None:
        if (life := self._life()) is not None:
            unit = ClaimUnit(life.guard, self.clock.now, self.dice.randint(1, 3), self._decider(life), QUEUES, KINDS)
            self.flush()  # claims that follow others in one batch may pick other tasks on another store
            self.named("claim", self.collects.submit(unit))
            self.flush()

    def claim_one(self) -> None:
        if (life := self._life()) is not None and self.tasks:
            unit = ClaimUnit(life.guard, self.clock.now, 1, self._decider(life), task=self.dice.choice(self.tasks))
            self.named("claim_one", self.collects.submit(unit))

    def task_command(self) -> None:
        if (ledger := self._ledger()) is None:
            return
        state, at, dice = ledger.state, self.clock.now, self.dice
        token = state.token if dice.random() < 0.95 else state.token + 1
        command: t.Command = dice.choice((
            t.Finish(token, {"ok": True}), t.Fail(token, "no", at, dice.random()), t.Park(token, "later", at + 1_000),
            t.Suspend(token, "unknown"), t.Block(token, "ask"), t.Unblock("said", at), t.Conclude(token),
            t.Decline(token, "k", "mail", "already_done", {}),
            t.LoseLease(state.session, dice.choice(("watched", "dead", "left")), at), t.Cancel("by ann", at),
            t.Step(token, f"draft:{dice.randrange(3)}:1", "draft", dice.random() < 0.5), t.Replay("by ann", at),
            t.Spend(token, state.attempt, f"0.{dice.randrange(10)}", 7), t.Exceed(token, at, 5),
        ))  # fmt: skip
        self._propose(ledger, command, type(command).__name__)

    def effect(self) -> None:
        if (ledger := self._ledger(leased=True)) is not None:
            self._effect(ledger, f"sml_{ledger.state.id[-6:]}_{self.dice.randrange(3)}", "task")

    def tenant_effect(self) -> None:
        if (ledger := self._ledger(leased=True)) is not None:
            self._effect(ledger, f"sml_tenant_{ledger.tenant}_{self.dice.randrange(4)}", "tenant")

    def race(self) -> None:
        """Two tasks want the same tenant-scoped key at once (R8): one gets it."""
        self.flush()
        leased = self.stores[0].tasks("acme", delivery="leased", limit=2)
        for row in leased if len(leased) == 2 else []:
            ledger = Ledger.read(self.desk, row.tenant, row.task, "session:x")
            assert ledger is not None
            self._intend(ledger, f"sml_tenant_race_{self.done['beat:True']}", "tenant")

    def _intend(self, ledger: Ledger, key: str, scope: str) -> None:
        known, state = ledger.effect(key), ledger.state
        intend = e.Intend(
            key, "mail", {"to": "a"}, "digest", "", state.id, state.attempt, state.token, state.session,
            recovery=("lookup:1000",), again=known is not None and known.state == "ambiguous",
            approvers=int(self.dice.random() < 0.3), at=self.clock.now,
        )  # fmt: skip
        self._propose(ledger, intend, f"Intend_{scope}", scope, guarded=True)

    def _effect(self, ledger: Ledger, key: str, scope: str) -> None:
        if scope == "tenant":
            ledger.key_stream(key)
        known = ledger.effect(key)
        if known is not None and known.waiting and self.dice.random() < 0.7:
            self._decide(ledger, known, scope)
            return
        if known is None or not known.open or self.dice.random() < 0.2:
            self._intend(ledger, key, scope)
            return
        n, token = known.sent[-1].n, known.sent[-1].token
        command: t.Command = self.dice.choice((
            e.Confirm(key, n, token, "id"), e.Disprove(key, n, token, "refused"), e.Lose(key, n, token, "cut", True),
            e.Lose(key, n, token, "slow", False), e.MarkUnfenced(key, n, token, "child"),
        ))  # fmt: skip
        self._propose(ledger, command, f"{type(command).__name__}_{scope}", scope)

    def _decide(self, ledger: Ledger, known: e.Effect, scope: str) -> None:
        """Wait for people, or be one of them."""
        key, dice = known.key, self.dice
        command: t.Command = dice.choice((
            t.Block(ledger.state.token, "ask", key, approval=True), e.Approve(key, "ann", known.version, self.clock.now),
            e.Approve(key, "ann", known.version, self.clock.now, expires=self.clock.now + 5), e.Deny(key, "ann", known.version),
        ))  # fmt: skip
        self._propose(ledger, command, f"{type(command).__name__}_{scope}", scope)

    def settle(self) -> None:
        if (ledger := self._ledger(leased=True)) is None:
            return
        for key in sorted(ledger.state.unknown):
            verdict = self.dice.choice(("confirmed", "not_found", "conflict", "unavailable"))
            command = e.Settle(key, ledger.state.token, verdict, "lookup:find", "id", waited_ms=9, settle_ms=9)
            self._propose(ledger, command, f"Settle_{verdict}")

    def answer(self) -> None:
        if (ledger := self._ledger()) is None:
            return
        for key in sorted(ledger.state.unknown):
            known = ledger.effect(key)
            assert known is not None
            verdict = self.dice.choice(("confirmed", "not_found"))
            command = e.Answer(key, verdict, "ann", known.version, "id", stopped=True)
            self._propose(ledger, command, f"Answer_{verdict}")

    def rival(self) -> None:
        """Two decide on the same state of a task, and both are given: one lands."""
        if not self.tasks:
            return
        tenant, task = self.dice.choice(self.tasks)
        for why in ("by ann", "by bob"):
            ledger = Ledger.read(self.desk, tenant, task, "person:ann")
            if ledger is not None:
                self._propose(ledger, t.Cancel(why, self.clock.now), "rival")

    # --- sessions ---

    def open_session(self) -> None:
        self.flush()
        number = len(self.lives)
        info = self.stores[0].info
        row = SessionRow(f"session-{number:03}", 0, "n0", TTL_MS, info.epoch, "h", "b", 1, 1, number, 1, "", self.clock.now)
        for store in self.stores:
            store.open_session(row)
        self.lives.append(Life(row))

    def beat(self) -> None:
        self.flush()
        life = self.dice.choice(self.lives)
        nonce = f"n{life.row.beat + 1}"
        said = {store.beat(life.row.id, [life.row.nonce], nonce, life.row.beat + 1) for store in self.stores}
        assert said == {not life.fenced}
        if not life.fenced:
            life.row = life.row._replace(beat=life.row.beat + 1, nonce=nonce)
        self.done[f"beat:{not life.fenced}"] += 1

    def fence(self) -> None:
        self.flush()
        if self.dice.random() < 0.2 and len(self.lives) > 1:
            life = self.dice.choice(self.lives)
            said = {store.fence(life.row.id, life.row.nonce, "watched") for store in self.stores}
            assert said == {not life.fenced}
            life.fenced = True
            self.done["fence"] += 1

    # --- inside ---

    def _life(self) -> Life | None:
        return self.dice.choice(self.lives) if self.lives else None

    def _decider(self, life: Life) -> Callable[[str, list[Row]], tuple[Change, t.Task] | None]:
        number, guard, at = len(self._decided), life.guard, self.clock.now

        def decide(tenant: str, rows: list[Row]) -> tuple[Change, t.Task] | None:
            name = (number, rows[-1].stream, rows[-1].hash)
            if name not in self._decided:
                self._decided[name] = claimed(tenant, rows, guard, at)
            return self._decided[name]

        return decide

    def _ledger(self, *, leased: bool = False) -> Ledger | None:
        """The ledger of some task, as it will be when what is waiting has landed."""
        if not self.tasks:
            return None
        for _ in range(20):
            name = self.dice.choice(self.tasks)
            ledger = self._ledgers.get(name) or Ledger.read(self.desk, *name, "session:x")
            if ledger is not None and (not leased or ledger.state.delivery is Delivery.LEASED):
                self._ledgers[name] = ledger
                return ledger
        return None

    def _propose(self, ledger: Ledger, command: t.Command, name: str, scope: str = "task", *, guarded: bool = False) -> None:
        life = next((x for x in self.lives if x.row.id == ledger.state.session), None)
        guard = life.guard if guarded and life is not None else None
        proposed = ledger.propose(command, guard=guard, scope=scope)
        if isinstance(proposed, Refusal):
            self.refused[f"{name}:{proposed.code}"] += 1
        else:
            self.named(name, proposed.ticket)


def claimed(tenant: str, rows: list[Row], guard: Guard, at: int) -> tuple[Change, t.Task] | None:
    """A claim, as the engine makes it."""
    state = t.fold(rows)
    decided = t.decide(state, t.Claim(guard.session, guard.epoch, at, budget=Budget("0.9")))
    if isinstance(decided, Refusal):
        return None
    event, identity = decided.events[0], change_id()
    assert isinstance(event, j.Claimed)
    head = START._replace(seq=rows[-1].seq, hash=rows[-1].hash)
    part, after, _ = part_of_task(
        tenant, state, head, decided.events, actor="session:x", token=event.token, at=at, id=identity
    )  # fmt: skip
    return Change(identity, (part,), guard), after


def snapshot(store: Store) -> dict[str, Any]:
    """All that a store says of itself, by every question of the contract."""
    streams = list(store.streams(("", ""), 10_000))
    tasks = store.tasks(None, limit=10_000)
    sessions = [row.id for row in store.sessions()]
    return {
        "streams": streams, "foreign": sorted(store.foreign(QUEUES, KINDS[:1])),
        "rows": {name: store.rows(*name) for name in streams},
        "heads": {name: store.head(*name) for name in streams}, "tasks": tasks,
        "task": [store.task(row.tenant, row.task) for row in tasks],
        "keys": [store.find_task(row.tenant, row.kind, row.key) for row in tasks],
        "effects": store.effects(None, limit=10_000), "unknown": store.unknown(None, limit=10_000),
        "of acme": store.unknown("acme", limit=3), "counts": [store.counts(name) for name in (None, *TENANTS)],
        "blocked": store.tasks("acme", delivery="blocked", limit=50),
        "slow": store.tasks(None, queue="slow", kind="mail", limit=7),
        "unfinished": [store.unfinished(name, KINDS[:1], KINDS[1:2], ("", ""), 9) for name in (None, *TENANTS)],
        "sizes": store.sizes(), "sessions": store.sessions(), "held": {id: store.held(id) for id in sessions},
        "orphans": store.orphans(None, 1000), "due": store.next_due(QUEUES, KINDS),
        "highest": [store.highest_at(until) for until in (None, NOW + 100_000, NOW + 10**9)],
    }  # fmt: skip

"""The storm: worker processes that are killed, and frozen beyond their lease, as often as a test says, while tasks stream in.

The kills and freezes that count are those of processes that held a task when the signal was sent. What each kill cut short
is told afterwards from two records: semel's journal (whose submission was lost) and the provider's (what it had received
and done by then).
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from lab import APPS, Lab, Stuck
from nursery import Child, Nursery

import semel
from semel.machine import journal

KILLS, FREEZES = "kills of processes with work", "freezes of processes with work"
ACTIONS = ("charge", "mail", "publish")
LEASE = 1.0  # seconds, as apps/errands.py has it
LATE = 0.12  # the longest that the provider takes to act, or to answer
WORKERS = 5
OPEN = 24  # tasks under way at a time
REST = (0.02, 0.35)  # seconds between two blows
PERSON_WAITS = 0.6  # before a person believes that what is not in the books will not come: several times LATE
SETTLED_WITHIN = 90.0  # seconds after the last blow


@dataclass
class Victim:
    """One worker process, and what was done to it."""

    process: Child
    session: str = ""
    killed_at: float = 0.0  # unix seconds
    sleeping: threading.Timer | None = None  # until it is woken

    def freeze(self, seconds: float) -> bool:
        """SIGSTOP, and SIGCONT by a thread of its own: it may hold the store's lock, for which the test itself waits."""
        sent = self.process.send_signal(signal.SIGSTOP)
        self.sleeping = threading.Timer(seconds, self.wake)
        self.sleeping.start()
        return sent

    def wake(self) -> None:
        """If it sleeps, and lives."""
        sleeping, self.sleeping = self.sleeping, None
        if sleeping is not None:
            sleeping.cancel()
            self.process.send_signal(signal.SIGCONT)


@dataclass
class Storm:
    """kills, freezes: how many of processes with work in hand it takes."""

    lab: Lab
    seed: int
    kills: int
    freezes: int
    done: Counter[str] = field(default_factory=Counter)
    alive: list[Victim] = field(default_factory=list)
    dead: list[Victim] = field(default_factory=list)
    refs: list[semel.Ref[list[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.log = self.lab.root / "workers.log"
        self.nursery = Nursery(self.lab.env, "errands")
        for number, (kind, often) in enumerate({"late": 0.2, "late_act": 0.2, "cut_after": 0.02, "error_after": 0.02}.items()):
            self.lab.provider.fault(kind, seconds=LATE, times=10**6, probability=often, seed=self.seed + number)  # type: ignore[arg-type]
        self._blocked_since: dict[str, float] = {}
        self._blow_at = self._look_at = 0.0
        self._anybody = False

    # --- the weather ---

    def run(self) -> None:
        """Until so many blows have fallen, and then until all has settled. A failure tells what the workers said."""
        try:
            self._run()
        except BaseException as error:
            error.add_note(self.log.read_text()[-8000:])
            raise
        finally:
            for victim in self.alive:
                victim.wake()
            self.nursery.close()

    def _run(self) -> None:
        while self.left():
            self.feed()
            self.step()
            self.blow()
        for victim in self.alive:
            victim.wake()
        end = time.monotonic() + SETTLED_WITHIN
        while self.unfinished():
            if time.monotonic() > end:
                raise Stuck(f"not settled {SETTLED_WITHIN:g} s after the storm: {self.lab.app.tasks.list()}")
            self.step()

    def left(self) -> bool:
        return self.done[KILLS] < self.kills or self.done[FREEZES] < self.freezes

    def unfinished(self) -> int:
        counts = self.lab.app.runtime.desk.store.counts(None)["delivery"]
        return len(self.refs) - counts.get(semel.Delivery.ACKNOWLEDGED, 0)

    def feed(self) -> None:
        """The stream of tasks."""
        for _ in range(OPEN - self.unfinished()):
            number = len(self.refs)
            self.refs.append(self.lab.enqueue(("errand", "aerrand")[number % 2], f"r{number}", ref=f"r{number}"))

    def step(self) -> None:
        """The dead are replaced, and a person passes."""
        now = time.monotonic()
        for victim in list(self.alive):
            if (code := victim.process.poll()) is not None:
                self.bury(victim, code)
        while len(self.alive) < WORKERS:
            argv = (str(APPS / "run_worker.py"), "errands", str(self.dice.choice((1, 2, 3))))
            self.alive.append(Victim(self.nursery.fork(argv, self.lab.env, self.log)))
        if now >= self._look_at:
            self._look_at = now + 0.2
            self.a_person_passes(now)
        time.sleep(0.01)

    def blow(self) -> None:
        """Something happens to somebody who is awake and has work, or once in a while to anybody."""
        if time.monotonic() < self._blow_at:
            return
        awake = [victim for victim in self.alive if victim.sleeping is None]
        self.dice.shuffle(awake)
        by_pid = {row.pid: row.id for row in self.lab.app.runtime.desk.store.sessions()}
        for victim in awake:
            victim.session = by_pid.get(victim.process.pid, "")
            has_work = bool(victim.session and self.lab.app.runtime.desk.store.held(victim.session))
            if has_work or self._anybody:
                self._blow_at = time.monotonic() + self.dice.uniform(*REST)
                self._anybody = self.dice.random() < 0.05
                self.strike(victim, " of processes with work" if has_work else " of idle processes")
                return

    def strike(self, victim: Victim, whom: str) -> None:
        """Kill, freeze, or ask to stop: as often as it is still wanted."""
        kills, freezes = self.kills - self.done[KILLS], self.freezes - self.done[FREEZES]
        drawn = self.dice.randrange(max(1, kills) + max(1, freezes) + max(1, self.kills // 50))
        if drawn < max(0, kills):
            at = time.time()
            if victim.process.kill():
                victim.killed_at = at
                self.done["kills" + whom] += 1
        elif drawn < kills + freezes and sum(1 for other in self.alive if other.sleeping) < WORKERS - 1:
            self.done["freezes" + whom] += victim.freeze(self.dice.uniform(0.2, 2.2) * LEASE)
        else:
            self.done["asked to stop"] += victim.process.send_signal(signal.SIGTERM)

    def bury(self, victim: Victim, code: int) -> None:
        """How did it end?"""
        victim.wake()
        self.alive.remove(victim)
        self.dead.append(victim)
        if code == -signal.SIGKILL and not victim.killed_at:
            self.done["kernel timer kills"] += 1
        elif code == 1:
            self.done["fenced"] += 1
        elif code not in (0, -signal.SIGKILL):
            self.done[f"ended with {code}"] += 1

    def a_person_passes(self, now: float) -> None:
        """The truth for whoever waits for a person; not before what may still be on its way must have come."""
        waiting = self.lab.app.tasks.list(delivery=semel.Delivery.BLOCKED, limit=1000)
        self._blocked_since = {task.id: self._blocked_since.get(task.id, now) for task in waiting}
        for task in waiting:
            if now - self._blocked_since[task.id] >= PERSON_WAITS and self.lab.person_tells(task.ref):
                self.done["told by a person"] += 1

    # --- the reckoning ---

    def reckon(self) -> str:
        """0 duplicates, 0 losses, all chains whole, nothing stranded. What happened, in a line."""
        counted = Counter((act.action, act.body["ref"]) for act in self.lab.acts())
        wanted = [(action, f"r{number}") for action in ACTIONS for number in range(len(self.refs))]
        duplicates, losses = [one for one in counted if counted[one] > 1], [one for one in wanted if not counted[one]]
        assert (duplicates, losses) == ([], []), "at the provider's own record"
        assert counted.keys() == set(wanted)
        self.lab.proved(*self.refs, acts=dict.fromkeys(ACTIONS, len(self.refs)))
        self.cut_short()
        told = ", ".join(f"{many:,} {what}" for what, many in sorted(self.done.items()))
        return f"{told}; {len(self.refs):,} tasks, {len(wanted):,} effects: 0 duplicates, 0 losses"

    def cut_short(self) -> None:
        """What the kills and the takeovers met, by both records."""
        requests = Counter((request.key, request.token) for request in self.lab.provider.requests() if request.method == "POST")
        acted_at = {act.key: act.at for act in reversed(self.lab.acts())}
        killed_at = {victim.session: victim.killed_at for victim in self.dead if victim.killed_at}
        for ref in self.refs:
            sent: Counter[tuple[str, int]] = Counter()
            last: dict[str, journal.Intended] = {}
            for row in self.lab.app.runtime.desk.store.rows(ref.tenant, ref.id):
                event = journal.event_of(row)
                if isinstance(event, journal.Intended):
                    last[event.key] = event
                    sent[event.key, event.token] += 1
                elif isinstance(event, journal.LeaseLost):
                    self.done[f"takeovers ({event.proof})"] += 1
                elif isinstance(event, journal.Lost) and event.fenced and last[event.key].session in killed_at:
                    token = last[event.key].token
                    arrived = requests[event.key, token] >= sent[event.key, token]
                    acted = acted_at[event.key] <= killed_at[last[event.key].session]
                    place = "after it acted" if acted else "during the call" if arrived else "before the call"
                    self.done[f"submissions cut short {place}"] += 1

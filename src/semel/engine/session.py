"""A session: one process's life. It beats, watches others' beats, fences the dead, takes back what they held (R14 to R17)."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import uuid_utils

from semel.engine.alarm import Alarm
from semel.engine.clock import Clock
from semel.engine.drive import give_up_closed
from semel.engine.held import Held
from semel.engine.ledger import Desk, Ledger, Proposal
from semel.engine.neighbours import Neighbours
from semel.errors import StoreUnavailable
from semel.machine import effects as e
from semel.machine import tasks
from semel.machine.journal import Row
from semel.machine.projection import EffectRow, InflightRow, UnknownRow
from semel.machine.recovery import rungs_of, settle_of
from semel.model import Delivery, Refusal
from semel.store.contract import Fenced, Guard, Head, Landed, SessionRow, Stale
from semel.store.witness import Witness
from semel.watchdog import Identity, Watchdog, proof_of_death

log = logging.getLogger("semel")
PAGE = 100
SLICE = 25  # journals that are read together: of a long task's there are thousands of rows
NEIGHBOUR_SECONDS = 0.1  # how often to ask whether a process of this machine has ended: one system call


@dataclass(slots=True)
class Watched:
    """Another session's beat, and for how long, on our own clock, it has been seen to stand still."""

    nonce: str
    still_seconds: float
    last_look: float


class Learnt:
    """When this process learnt that no sender of an unknown effect can act any more (R4): settle counts from there."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[tuple[str, str], tuple[object, float]] = {}

    def waited_ms(self, tenant: str, effect: e.Effect) -> int:
        """Milliseconds since this process first saw what it sees now; -1 while a sender may act. Looking is learning."""
        stopped = effect.answered is not None and effect.answered.stopped
        with self._lock:
            if not (effect.quiet or stopped):
                self._since.pop((tenant, effect.key), None)
                return -1
            facts = (tuple(s.n for s in effect.open), stopped and not effect.quiet)
            now = self._clock.boot()
            known = self._since.get((tenant, effect.key))
            if known is None or known[0] != facts:
                known = self._since[tenant, effect.key] = (facts, now)
            return int((now - known[1]) * 1000)

    def forget(self, keep: set[tuple[str, str]]) -> None:
        """Drop what is settled."""
        with self._lock:
            for key in self._since.keys() - keep:
                del self._since[key]


class Session:
    """One life of one process. `ttl`: seconds; the beat must move within that, or others take over."""

    def __init__(
        self,
        desk: Desk,
        *,
        ttl: float,
        watchdog: Watchdog,
        on_fenced: Callable[[str], None],
        learnt: Learnt,
        witness: Witness | None = None,
    ) -> None:
        self.desk, self.ttl, self.watchdog, self.learnt, self.witness = desk, ttl, watchdog, learnt, witness
        self.id = str(uuid_utils.uuid7())
        self.identity = Identity.own()
        self.epoch = desk.store.info.epoch
        self.number = self._tried = 0
        self.fenced = ""
        self.held = Held()
        self._on_fenced = on_fenced
        self.on_fencing: Callable[[str, str, bool], None] = lambda session, how, own: None
        self._nonces = [os.urandom(8).hex()]  # the acknowledged one, and any sent since (R15)
        self._deadline = 0.0
        self._watched: dict[str, Watched] = {}
        self._neighbours = Neighbours()
        self._known_unknown: dict[tuple[str, str], tuple[int, e.Effect | None]] = {}
        self._stop = threading.Event()
        self._tending = threading.Event()
        self._tend_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._overdue: Callable[[], float] = lambda: 0.0
        self.strange: set[tuple[str, str]] = set()
        self.alarm: Alarm | None = None  # a worker's: others are no place where anybody would read it

    # --- life ---

    def start(self) -> None:
        """Come into the store, and beat."""
        sent = self.desk.clock.boot()
        own = self.identity
        self.desk.store.open_session(SessionRow(
            self.id, 0, self._nonces[0], int(self.ttl * 1000), self.epoch, own.host, own.boot_id, own.pid_ns, own.time_ns,
            own.pid, own.start_time, "", self.desk.clock.wall_ms(),
        ))  # fmt: skip
        self._acknowledged(sent)
        if self.witness is not None:
            self.witness.beaten(self.id, 0, self.desk.store.info, self.epoch, self.desk.clock.wall_ms())
        self._thread = threading.Thread(target=self._run, name="semel-beat", daemon=True)
        self._thread.start()
        threading.Thread(target=self._tend_on, name="semel-tend", daemon=True).start()

    def guard(self) -> Guard:
        """Under which claims and intents land."""
        seen = self.witness.seen if self.witness is not None else None
        return Guard(self.id, self.epoch, self.number, seen.row if seen is not None and seen.epoch == self.epoch else None)

    def alive(self) -> bool:
        """Whether calls may start: not fenced, before the local deadline (R15), and the store is not known to have gone back."""
        went_back = self.witness is not None and self.witness.gone
        return not self.fenced and not went_back and self.desk.clock.boot() < self._deadline

    def overdue_by(self, longest: Callable[[], float]) -> None:
        """longest(): for how many seconds some code has outlived its timeout; beyond a TTL the beats stop (R4)."""
        self._overdue = longest

    def stop(self, *, leave: bool) -> None:
        """Stop beating; `leave`: say so in the store, which nobody may do whose code can still act."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
        if leave and not self.fenced:
            try:
                self.desk.store.fence(self.id, None, "left")
            except StoreUnavailable:
                log.warning("semel: session %s could not say goodbye; others will notice", self.id)
        self.fenced = self.fenced or "left"

    def _acknowledged(self, sent: float) -> None:
        self._deadline = sent + 0.75 * self.ttl
        self.watchdog.extend(self._deadline)

    # --- beats ---

    def _run(self) -> None:
        pause = self.ttl / 4
        while not self._stop.wait(pause):
            try:
                answered = self._beat()
                # an answer that took so long that the deadline is past already: at once again
                pause = self.ttl / 4 if answered and self.alive() else min(1.0, self.ttl / 8)
                if answered and not self.fenced:
                    self._tending.set()
            except StoreUnavailable as error:
                log.warning("semel: session %s: the store did not answer: %s", self.id, error)
                pause = min(1.0, self.ttl / 8)
            if self.fenced:
                break
        self._tending.set()

    def _tend_on(self) -> None:
        """On a thread of its own: however much there is to take back, no beat waits for it."""
        while not (self._stop.is_set() or self.fenced):
            told = self._tending.wait(NEIGHBOUR_SECONDS) or self._neighbours.has_lost_one()
            if not told or self._stop.is_set() or self.fenced:
                continue
            self._tending.clear()
            try:
                self.tend()
            except StoreUnavailable as error:
                log.warning("semel: session %s: the store did not answer: %s", self.id, error)
            except Exception:
                if not self._stop.is_set():
                    log.exception("semel: session %s: looking after others failed", self.id)
        self._neighbours.close()

    def _beat(self) -> bool:
        if self._overdue() > self.ttl:
            log.error("semel: code has outlived its timeout by a TTL; session %s stops beating", self.id)
            return False
        nonce = os.urandom(8).hex()
        known = list(self._nonces)
        self._nonces.append(nonce)
        sent = self.desk.clock.boot()
        why = "its beat was refused: another took over, or this is another store now"
        try:
            self._tried += 1  # a number of its own for each: one that was not answered may have landed, and a copy may hold it
            still_ours = self.desk.store.beat(self.id, known, nonce, self._tried)
        except StoreUnavailable as error:
            if self.desk.store.still_here():
                return False
            still_ours, why = False, str(error)  # R15: the store has gone from its place, or went back: no answer will ever come
        if not still_ours:
            self.fence_self(why)
            return True
        self.number = self._tried
        self._nonces = [nonce]
        if gone := self._gone():  # before the lease goes on: one that slept must not act on what a restore has undone
            self.fence_self(f"the store went back: it does not hold {gone}")
            return True
        self._acknowledged(sent)
        return True

    def _gone(self) -> str:
        """R19: what the store does not hold of what this process saw acknowledged, or another one here has put on file."""
        if self.witness is None:
            return ""
        if gone := self.witness.gone or self.desk.store.missing(self.witness.seen):
            return f"{gone}, which it had acknowledged"
        gone = next(filter(None, map(self.desk.store.missing, self.witness.others())), "")
        if gone:
            self.witness.shown(gone)
        return gone and f"{gone}, which another process here saw acknowledged"

    def fence_self(self, why: str) -> None:
        """This session may start nothing more."""
        if not self.fenced:
            self.fenced = why
            log.error("semel: session %s is fenced: %s", self.id, why)
            self.on_fencing(self.id, why, True)
            try:
                if self.witness is not None:
                    self.witness.testify()  # whoever comes next must know what this process saw
            finally:
                self._on_fenced(why)

    # --- looking after others ---

    def tend(self) -> None:
        """What every worker does at each beat: fence the dead, take back their tasks, learn of unknowns, check its own."""
        give_up_closed()  # or this session would hold their tasks for ever
        with self._tend_lock:
            number, at = self.number, self.desk.clock.wall_ms()  # first: what is asked afterwards holds that beat
            seen = self.desk.store.around(self.id, self.desk.tenant, PAGE * 10)
            now, strange = self.desk.clock.boot(), self._strange(seen.held)
            if self.witness is not None and number:
                self.witness.beaten(self.id, number, seen.info, self.epoch, at)
            self.desk.standing.stands(seen.standing)
            if self.watch(seen.sessions, now) or seen.orphans:
                self.sweep()
                self.learn()  # what was taken back may be unknown from now on
            else:
                self.learn(seen.unknown)
            self.check_own(strange)

    def watch(self, sessions: Sequence[SessionRow] | None = None, now: float | None = None) -> bool:
        """R14: fence a session whose beat stood still for its TTL on our clock, or whose process is proved to be dead.

        sessions, now: as they stood, and when that was heard. Whether any was to be fenced: then what they hold is free.
        """
        if sessions is None:
            sessions = self.desk.store.sessions()
        rows = [row for row in sessions if row.id != self.id]
        self._neighbours.know(rows, self.identity)
        now, longest = self.desk.clock.boot() if now is None else now, self.desk.store.info.largest_ttl_ms
        fenced = False
        self._watched = {row.id: self._watched[row.id] for row in rows if row.id in self._watched}
        for row in rows:
            seen = self._watched.get(row.id)
            if self.knows_dead(row):
                fenced = True
                self.fence(row, "dead")
            elif seen is None or seen.nonce != row.nonce:
                self._watched[row.id] = Watched(row.nonce, 0.0, now)
            else:
                # a long gap, in which we did not look (the store was away, we were stopped), is not watching
                gap = now - seen.last_look
                seen.still_seconds += gap if gap <= self.ttl / 2 else 0.0
                seen.last_look = now
                if seen.still_seconds >= min(row.ttl_ms, longest) / 1000:
                    fenced = True
                    self.fence(row, "watched")
        return fenced

    def knows_dead(self, row: SessionRow) -> bool:
        """Whether the process of another session is proved to be gone (R14)."""
        return proof_of_death(Identity(row.boot_id, row.pid_ns, row.time_ns, row.pid, row.start_time, row.host), self.identity)

    def fence(self, row: SessionRow, how: str) -> None:
        """Compare-and-set on the beat that was watched; with proof of death, whatever it is."""
        if self.desk.store.fence(row.id, row.nonce, how):
            log.warning("semel: session %s (pid %s on %s) is fenced: %s", row.id, row.pid, row.host, how)
            self.on_fencing(row.id, how, False)

    def sweep(self) -> None:
        """R17: a standing query over what fenced or missing sessions hold, page by page: one bad row starves none behind it."""
        after: InflightRow | None = None
        while page := self.desk.store.orphans(after, PAGE, self.desk.tenant):
            begun = [taken for at in range(0, len(page), SLICE) for taken in self._begin_taking_back(page[at : at + SLICE])]
            for row, how, ledger, command, proposed in begun:
                if ledger is None or not isinstance(proposed, Proposal) or proposed.ticket is None:
                    continue
                proposed.ticket.wait()
                if isinstance(proposed.ticket.value, Landed):
                    log.warning("semel: task %s taken back from session %s (%s)", row.task, row.session, how)
                elif isinstance(proposed.ticket.value, Stale):
                    ledger.refresh(proposed.generation)
                    land(ledger, command)
            after = page[-1][0]

    def _begin_taking_back(self, page: Sequence[tuple[InflightRow, str]]) -> list[tuple[InflightRow, str, *tuple[Any, ...]]]:
        """The journals of so many are read together, and what each decides is under way before the next is looked at."""
        journals: dict[tuple[str, str], list[Row]] = {}
        try:
            journals = self.desk.store.journals([(row.tenant, row.task) for row, _ in page])
        except Exception:
            # one cannot be read, or all at once take too long: each by itself, which also tells whether the store is away
            log.debug("semel: journals are read one by one", exc_info=True)
        actor = f"session:{self.id}"
        return [
            (row, how, *begin_taking_back(self.desk, row, how, actor, journals.get((row.tenant, row.task)))) for row, how in page
        ]

    def learn(self, rows: Sequence[UnknownRow] | None = None, *, aloud: bool = True) -> None:
        """Look at every unknown effect, so that settle is watched here too; its end is on record before a person looks."""
        if rows is None:
            rows = self.desk.store.unknown(self.desk.tenant, limit=PAGE * 10)
        if self.alarm is not None and aloud:
            self.alarm.hear(rows, PAGE * 10)
        keys = {(row.tenant, row.key) for row in rows}
        self.learnt.forget(keys)
        self._known_unknown = {key: v for key, v in self._known_unknown.items() if key in keys}
        for row in rows:
            found = self.desk.store.effect(row.tenant, row.key)
            if found is None:
                continue
            version, effect = self._known_unknown.get((row.tenant, row.key), (-1, None))
            if version != found.version:
                effect = self._read(found)
                self._known_unknown[row.tenant, row.key] = (found.version, effect)
            if effect is not None:
                self._note(row, effect, self.learnt.waited_ms(row.tenant, effect))

    def _read(self, row: EffectRow) -> e.Effect | None:
        try:
            return read_effect(self.desk, row.tenant, row.stream, row.key)
        except StoreUnavailable:
            raise
        except Exception:  # one tenant's nonsense must not keep the others' settle from being watched
            log.exception("semel: effect %s cannot be read, and is passed over", row.key)
            return None

    def _note(self, row: UnknownRow, effect: e.Effect, waited_ms: int) -> None:
        """R4: settle is over, and a person is asked: on record, so that they are believed if they look from now on."""
        settle_ms = settle_of(rungs_of(effect))
        if waited_ms < settle_ms or effect.watched or effect.answered is not None:
            return
        task = self.desk.store.task(row.tenant, row.task)
        if task is None or task.delivery != Delivery.BLOCKED:
            return  # its ladder is being climbed, which comes to the same
        ledger = Ledger.read(self.desk, row.tenant, row.task, f"session:{self.id}")
        if ledger is not None:
            land(ledger, e.NoteWatched(row.key, len(effect.sent), waited_ms, settle_ms), guard=self.guard)

    def _strange(self, rows: Sequence[InflightRow]) -> set[tuple[str, str]]:
        """What the store says is ours and we know nothing of: compared at once, since what we hold moves on."""
        return {place for row in rows if (place := (row.tenant, row.task)) not in self.held}

    def check_own(self, unknown: set[tuple[str, str]] | None = None) -> None:
        """R17: what the store says is ours and we know nothing of goes back; seen twice, since answers are under way."""
        if unknown is None:
            unknown = self._strange(self.desk.store.held(self.id))
        for tenant, task in sorted(unknown & self.strange):
            try:
                ledger = Ledger.read(self.desk, tenant, task, f"session:{self.id}")
                if (tenant, task) in self.held:
                    continue  # claimed again meanwhile; it was registered before that landed, and so before it was read here
                if ledger is not None and ledger.state.session == self.id:
                    why = "its own session holds it no more"
                    land(ledger, tasks.Park(ledger.state.token, why, self.desk.clock.wall_ms()))
            except StoreUnavailable:
                raise
            except Exception:  # one tenant's nonsense must not keep the others' tasks from going back
                log.exception("semel: task %s cannot be given back, and is passed over", task)
        self.strange = unknown


def read_effect(desk: Desk, tenant: str, stream: str, key: str) -> e.Effect | None:
    """An effect, folded from the stream in which it stands."""
    rows = desk.store.rows(tenant, stream)
    if stream == key:
        return tasks.fold_key(rows).effect
    return tasks.fold(rows).effects.get(key)


def land(ledger: Ledger, command: Any, *, tries: int = 100, guard: Callable[[], Guard] | None = None) -> bool:
    """Decide and land `command` now, on this thread; False: it was refused. For threads that are nobody's event loop."""
    for _ in range(tries):
        proposed = ledger.propose(command, guard=guard() if guard else None)
        if isinstance(proposed, Refusal):
            return False
        if proposed.ticket is None:
            return True
        proposed.ticket.wait()
        if isinstance(proposed.ticket.value, Landed):
            return True
        if isinstance(proposed.ticket.value, Fenced):
            return False
        if isinstance(proposed.ticket.value, StoreUnavailable):
            raise proposed.ticket.value
        ledger.refresh(proposed.generation)
        time.sleep(0)
    return False


def begin_taking_back(
    desk: Desk, row: InflightRow, how: str, actor: str, rows: Sequence[Row] | None = None
) -> tuple[Ledger | None, Any, Any]:
    """A task of a fenced session: what it submitted is ambiguous, and the task is queued again. Many share a commit.

    rows: its journal, if that was read.
    """
    try:
        ledger = Ledger.read(desk, row.tenant, row.task, actor) if rows is None else _ledger_of(desk, row, rows, actor)
        if ledger is None:
            log.error("semel: the store holds a pointer to task %s and no journal of it", row.task)
            return None, None, None
        proof = how if how in ("dead", "left") else "watched"
        command = tasks.LoseLease(row.session, proof, desk.clock.wall_ms())
        return ledger, command, ledger.propose(command)
    except StoreUnavailable:
        raise
    except Exception:
        log.exception("semel: task %s cannot be taken back", row.task)
        return None, None, None


def _ledger_of(desk: Desk, row: InflightRow, rows: Sequence[Row], actor: str) -> Ledger | None:
    """As `Ledger.read`, of what was read."""
    if not rows:
        return None
    desk.clock.seen(rows[-1].at)
    return Ledger(desk, row.tenant, tasks.fold(rows), Head(rows[-1].seq, rows[-1].hash), actor)

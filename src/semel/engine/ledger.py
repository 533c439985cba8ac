"""A task's streams, held by one attempt (or one decision): decided in memory, landed in order by the writer.

The state here is ahead of the store by what is queued. If a rival was faster, all that was queued behind is refused too
(its hashes follow a row that never came to be), the stream is read again, and the commands are decided again (R5).
"""

from __future__ import annotations

import copy
import logging
import os
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from semel.engine.clock import Clock
from semel.engine.requests import Await, Call, Raised, Request, Returned
from semel.engine.standing import Standing
from semel.engine.veil import Veil
from semel.errors import StoreUnavailable
from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import projection, tasks
from semel.machine.records import record
from semel.model import Code, Refusal
from semel.store.contract import Change, Fenced, Guard, Head, Landed, Part, Stale, Store, Witnessed
from semel.store.writer import Ticket, Writer

START = Head(0, j.GENESIS)
T = TypeVar("T")
log = logging.getLogger("semel")
MAX_REDECIDED = 1000
_ENDS = (tasks.Fail, tasks.Park, tasks.Block, tasks.Wait, tasks.Exceed, tasks.LoseLease)


class _Random:
    """Random bytes, read many at a time: a call that lets other threads run, for each change, would be felt."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Hold none: a fork must not use its parent's."""
        self._held: list[bytes] = []
        self._pid = 0

    def eight(self) -> bytes:
        """Eight that nobody else gets, in a fork neither. Without a lock: what two threads pop is never the same."""
        pid = os.getpid()
        if pid != self._pid:
            self._held, self._pid = [], pid
        try:
            return self._held.pop()
        except IndexError:
            fresh = os.urandom(1 << 14)
            self._held = [fresh[n : n + 8] for n in range(8, len(fresh), 8)]
            return fresh[:8]


_random = _Random()
os.register_at_fork(after_in_child=_random.forget)


def change_id() -> str:
    """A random id for one change."""
    return _random.eight().hex()


@dataclass(frozen=True, slots=True)
class Desk:
    """What every decision needs at hand: the store, its writer, the clock, the store's epoch.

    tenant: the only one it may touch; None: any. went_back: told of a row that was acknowledged in an epoch, and that the store
    does not hold any more.
    """

    store: Store
    writer: Writer
    clock: Clock
    standing: Standing
    tenant: str | None = None
    went_back: Callable[[j.Row, int], None] = lambda row, epoch: None

    @property
    def remote(self) -> bool:
        """Whether a question to the store goes over a network: then no event loop may wait for its answer."""
        return self.store.info.dialect != "sqlite"

    def off_loop(self, work: Callable[[], T]) -> Generator[Request, Any, T]:
        """Do what asks the store, on another thread if an event loop would have to wait for its answer."""
        if not self.remote:
            return work()
        reply = yield Call(work, False, inline=True)
        if isinstance(reply, Raised):
            raise reply.error
        assert isinstance(reply, Returned)
        return reply.value  # type: ignore[no-any-return]


@dataclass(slots=True)
class Draft:
    """A decision that lands in a transaction which is not the writer's. after, head: where it leaves its one stream."""

    decision: e.Decision
    change: Change
    after: tasks.Task | tasks.Key
    head: Head


@record
class Proposal:
    """A decision on its way: `ticket` is None if it changes nothing."""

    decision: e.Decision
    ticket: Ticket | None
    generation: int


def part_of_task(
    tenant: str,
    before: tasks.Task | None,
    head: Head,
    events: tuple[j.Happened, ...],
    *,
    actor: str,
    token: int,
    at: int,
    id: str,
) -> tuple[Part, tasks.Task, Head]:
    """A task's share of a change, and where it leaves the task."""
    after = before or tasks.Task()
    stream = after.id or next(event.task for event in events if isinstance(event, j.Enqueued))
    rows = j.seal(events, tenant=tenant, stream=stream, seq=head.seq, previous=head.hash, actor=actor, token=token, at=at, id=id)
    keys: list[str] = []
    for event in events:
        after = tasks.apply(after, event, at)
        if isinstance(event, j.OfEffect):
            keys.append(event.key)
    tables = projection.of_task(tenant, before, after, keys)
    return Part(tenant, stream, head, rows, tables), after, Head(rows[-1].seq, rows[-1].hash) if rows else head


def _nothing(command: e.Confirm) -> Refusal:
    return Refusal(Code.STALE_VIEW, f"submission {command.n} is settled, and its end is on record")


class KeyStream:
    """A tenant-scoped key's stream (R8)."""

    def __init__(self, tenant: str, key: str) -> None:
        self.tenant, self.name = tenant, key
        self.state = tasks.Key()
        self.head = START
        self.pending = 0
        self.acknowledged: j.Row | None = None  # the last row of ours that landed here

    def refresh(self, store: Store) -> None:
        """Read what has come since. Not while something of ours is under way: it will land or be refused first."""
        if self.pending == 0:
            rows = store.rows(self.tenant, self.name, self.head.seq)
            self.state = tasks.fold_key(rows, self.state)
            if rows:
                self.head = Head(rows[-1].seq, rows[-1].hash)

    def reload(self, rows: list[j.Row]) -> None:
        """This is all of it."""
        self.state, self.head = tasks.fold_key(rows), Head(rows[-1].seq, rows[-1].hash) if rows else START

    def part(self, events: tuple[j.Happened, ...], *, actor: str, at: int, id: str) -> Part:
        """Its share of a change; the stream moves on."""
        before, head = self.state, self.head
        token = max([before.token, *(ev.token for ev in events if isinstance(ev, j.Intended | j.Assumed))])
        rows = j.seal(
            events, tenant=self.tenant, stream=self.name, seq=head.seq, previous=head.hash, actor=actor, token=token, at=at, id=id
        )
        for event in events:
            self.state = tasks.apply_key(self.state, event, at)
        self.head = Head(rows[-1].seq, rows[-1].hash)
        return Part(self.tenant, self.name, head, rows, projection.of_key(self.tenant, self.name, before, self.state))


class Ledger:
    """One task's stream, and those of the tenant-scoped keys that it has joined."""

    def __init__(self, desk: Desk, tenant: str, state: tasks.Task, head: Head, actor: str) -> None:
        self.desk, self.tenant, self.actor = desk, tenant, actor
        self.state, self.head = state, head
        self.keys: dict[str, KeyStream] = {}
        self.lock = threading.RLock()
        self.generation = 0
        self.acknowledged: j.Row | None = None  # the last row of ours that landed in the task's stream
        self.epoch = desk.store.info.epoch  # in which that is
        self.gone = ""  # what of it the store does not hold any more: then nothing that is known here may be decided on
        self.veil = Veil()  # what no command of this ledger may put on record
        self.unsure = ""  # an outcome that could not be recorded: nothing more is intended here (promise 4)
        for key in sorted(state.joined):
            self.key_stream(key)

    @classmethod
    def read(cls, desk: Desk, tenant: str, task: str, actor: str) -> Ledger | None:
        """The ledger of a task on record, or None."""
        rows = desk.store.rows(tenant, task)
        if not rows:
            return None
        desk.clock.seen(rows[-1].at)
        return cls(desk, tenant, tasks.fold(rows), Head(rows[-1].seq, rows[-1].hash), actor)

    def key_stream(self, key: str) -> KeyStream:
        """The stream of a tenant-scoped key, as this ledger knows it."""
        stream = self.keys.get(key)
        if stream is None:
            stream = self.keys[key] = KeyStream(self.tenant, key)
            stream.refresh(self.desk.store)
        return stream

    def shared(self) -> dict[str, tasks.Key]:
        """The state of each joined key."""
        if not self.keys:
            return {}
        return {key: self.keys[key].state for key in self.state.joined if key in self.keys}

    def effect(self, key: str) -> e.Effect | None:
        """An effect of the task, or of a key that it has joined."""
        if key in self.keys:
            return self.keys[key].state.effect
        return self.state.effects.get(key)

    def shared_effect(self, key: str) -> e.Effect | None:
        """The effect of a tenant-scoped key, joined or not, as the store has it."""
        with self.lock:
            stream = self.key_stream(key)
            stream.refresh(self.desk.store)
            return stream.state.effect

    # --- proposing ---

    def propose(
        self, command: tasks.Command, *, guard: Guard | None = None, scope: str = "task", waited_for: bool = True
    ) -> Proposal | Refusal:
        """Decide on what is known here, and queue the change. Does not wait. Raises `StoreUnavailable`: the store went back."""
        self._must_stand()
        command = self.veil.over(command)
        with self.lock:
            if self.unsure and isinstance(command, e.Intend):
                return Refusal(Code.UNKNOWN_OUTSTANDING, f"an outcome could not be recorded: {self.unsure}")
            if isinstance(command, e.EffectCommand) and (scope == "tenant" or command.key in self.keys):
                return self._propose_shared(command, guard, waited_for)
            decided = tasks.decide(self.state, command, self.shared() if self.keys else None)
            if isinstance(decided, Refusal):
                return decided
            if not self.keys:
                return self._queue(decided, decided.events, {}, guard, (), waited_for)
            more = self._ended_shared(command)
            return self._queue(decided, decided.events, more, guard, self._checks(command), waited_for)

    def _propose_shared(self, command: e.EffectCommand, guard: Guard | None, waited_for: bool) -> Proposal | Refusal:
        stream = self.key_stream(command.key)
        if isinstance(
            command, e.Intend | e.Settle | e.NoteWatched | e.Credit | e.Answer | e.Approve | e.Deny | e.Reverse | e.Renew | e.Void
        ):
            stream.refresh(self.desk.store)
        decided = tasks.decide_shared(stream.state, self.state, command, self.shared(), guard.epoch if guard else 0)
        if isinstance(decided, Refusal):
            return decided
        mine, decision = decided
        checks = self._checks(command)
        if isinstance(command, e.Intend | e.Settle | e.Credit | e.Approve | e.Deny | e.Reverse | e.Void) and not mine:
            checks = (*checks, (self.tenant, self.state.id, self.head.seq))  # still ours, or the key's change must not land
        freed, unmoved = self._askers(command, stream.state.effect, decision)
        return self._queue(decision, mine, {command.key: decision.events}, guard, (*checks, *unmoved), waited_for, freed)

    def _askers(
        self, command: e.EffectCommand, effect: e.Effect | None, decision: e.Decision
    ) -> tuple[list[tuple[Ledger, tuple[j.Happened, ...]]], list[tuple[str, str, int]]]:
        """The other tasks that wait for a decision: those to be unblocked with it, and those that must still stand unblocked."""
        freed: list[tuple[Ledger, tuple[j.Happened, ...]]] = []
        unmoved: list[tuple[str, str, int]] = []
        if isinstance(command, e.Approve | e.Deny) and effect is not None:
            for task in sorted(effect.askers - {self.state.id}):
                other = Ledger.read(self.desk, self.tenant, task, self.actor)
                if other is not None and (told := tasks.goes_on(other.state, command, effect, decision)):
                    freed.append((other, told))
                elif other is not None:
                    unmoved.append((self.tenant, task, other.head.seq))
        return freed, unmoved

    def _checks(self, command: tasks.Command) -> tuple[tuple[str, str, int], ...]:
        """R8: an intend, and a finish, hold only while the joined keys stand where they stood; so does a wait for a decision."""
        if isinstance(command, tasks.Block) and command.approval and command.key in self.keys:
            return ((self.tenant, command.key, self.keys[command.key].head.seq),)
        if not self.keys or not isinstance(command, (e.Intend, tasks.Finish)):
            return ()
        return tuple(
            (self.tenant, key, stream.head.seq)
            for key, stream in sorted(self.keys.items())
            if key in self.state.joined and key != getattr(command, "key", "")
        )

    def _ended_shared(self, command: tasks.Command) -> dict[str, tuple[j.Happened, ...]]:
        """R2 for joined keys: the end of the attempt loses its submissions in the same change."""
        if not self.keys or not isinstance(command, _ENDS):
            return {}
        gone = command if isinstance(command, tasks.LoseLease) else None
        why = f"session fenced ({gone.proof})" if gone else "the attempt ended"
        return {
            key: tasks.lose_shared(stream.state, self.state.id, self.state.attempt, why, fenced=gone is not None,
                                   dead=gone is not None and gone.proof == "dead")
            for key, stream in self.keys.items()
        }  # fmt: skip

    def _queue(
        self,
        decision: e.Decision,
        events: tuple[j.Happened, ...],
        more: dict[str, tuple[j.Happened, ...]],
        guard: Guard | None,
        checks: tuple[tuple[str, str, int], ...],
        waited_for: bool,
        beside: Sequence[tuple[Ledger, tuple[j.Happened, ...]]] = (),
    ) -> Proposal:
        changed = {key: told for key, told in more.items() if told} if more else more
        if not events and not changed:
            return Proposal(decision, None, self.generation)
        identity, at = change_id(), self.desk.clock.wall_ms()
        parts: list[Part] = []
        if events:
            token = self.state.token
            for event in events:
                if isinstance(event, j.Claimed) and event.token > token:
                    token = event.token
            part, self.state, self.head = part_of_task(
                self.tenant, self.state, self.head, events, actor=self.actor, token=token, at=at, id=identity
            )
            parts.append(part)
        for key in sorted(changed):
            self.keys[key].pending += 1
            parts.append(self.keys[key].part(changed[key], actor=self.actor, at=at, id=identity))
        for other, told in beside:
            parts.append(
                part_of_task(
                    self.tenant, other.state, other.head, told, actor=self.actor, token=other.state.token, at=at, id=identity
                )[0]
            )
        for event in events:
            if isinstance(event, j.Joined):
                self.key_stream(event.key)
        ticket = self.desk.writer.submit(Change(identity, tuple(parts), guard, checks), waited_for=waited_for)
        if changed:
            ticket.then(lambda: self._settled(ticket, tuple(changed)))
        return Proposal(decision, ticket, self.generation)

    # --- in a transaction that is not the writer's ---

    def drafted(self, command: e.Confirm, guard: Guard) -> Draft | Refusal:
        """Decide on what is known here, and move nothing: if it lands, `landed` is told; else others have moved on."""
        self._must_stand()
        with self.lock:
            identity, at = change_id(), self.desk.clock.wall_ms()
            if command.key in self.keys:
                stream = copy.copy(self.keys[command.key])
                shared = tasks.decide_shared(stream.state, self.state, command, self.shared())
                if isinstance(shared, Refusal):
                    return shared
                if not shared[1].events:
                    return _nothing(command)
                part = stream.part(shared[1].events, actor=self.actor, at=at, id=identity)
                return Draft(shared[1], Change(identity, (part,), guard), stream.state, stream.head)
            decided = tasks.decide(self.state, command, self.shared())
            if isinstance(decided, Refusal):
                return decided
            if not decided.events:
                return _nothing(command)
            part, after, head = part_of_task(
                self.tenant, self.state, self.head, decided.events, actor=self.actor, token=self.state.token, at=at, id=identity
            )
            return Draft(decided, Change(identity, (part,), guard), after, head)

    def landed(self, draft: Draft) -> None:
        """It is on record. What was queued on the row before it will be answered Stale, and then all is read again."""
        with self.lock:
            (part,) = draft.change.parts
            stream = self.keys.get(part.stream)
            if stream is not None and stream.head == part.expect and isinstance(draft.after, tasks.Key):
                stream.state, stream.head = draft.after, draft.head
            elif stream is None and self.head == part.expect and isinstance(draft.after, tasks.Task):
                self.state, self.head = draft.after, draft.head

    def _settled(self, ticket: Ticket, keys: Iterable[str]) -> None:
        with self.lock:
            for key in keys:
                self.keys[key].pending -= 1
            if isinstance(ticket.value, Landed) and isinstance(ticket.unit, Change):
                for part in ticket.unit.parts:
                    if part.stream in self.keys:
                        self.keys[part.stream].acknowledged = part.rows[-1]

    def _acknowledged(self, ticket: Ticket) -> None:
        """What landed is there from now on, or the store has gone back."""
        if isinstance(ticket.unit, Change) and (first := ticket.unit.parts[0]).stream == self.state.id and first.rows:
            self.acknowledged = first.rows[-1]  # a task's own part comes first

    # --- landing ---

    def _must_hold(self, known: j.Row | None, rows: Sequence[j.Row]) -> None:
        """R19: a stream holds what this process saw acknowledged there. Raises `StoreUnavailable`: the store went back."""
        if known is None or any((row.seq, row.hash) == (known.seq, known.hash) for row in reversed(rows)):
            return
        seen = Witnessed(self.epoch, (known.tenant, known.stream, known.seq, known.hash), None)
        if not self.desk.store.missing(seen):  # another process has pruned it (R22)
            return
        self.desk.went_back(known, self.epoch)
        self.gone = f"row {known.seq} of {known.stream}"
        self._must_stand()

    def _must_stand(self) -> None:
        if self.gone:
            raise self._went_back()

    def _went_back(self) -> StoreUnavailable:
        return StoreUnavailable(f"the store went back: it does not hold {self.gone}, which it had acknowledged")

    def refresh(self, generation: int | None = None) -> None:
        """Read the streams again, once for all that failed in one generation."""
        with self.lock:
            if generation is not None and generation != self.generation:
                return
            self.generation += 1
            rows = self.desk.store.rows(self.tenant, self.state.id)
            self._must_hold(self.acknowledged, rows)
            if not rows:
                raise StoreUnavailable(f"the store went back: it holds nothing of task {self.state.id} any more")
            self.desk.clock.seen(rows[-1].at)
            self.state, self.head = tasks.fold(rows), Head(rows[-1].seq, rows[-1].hash)
            for key in sorted(self.state.joined | self.keys.keys()):
                stream = self.key_stream(key)
                rows = self.desk.store.rows(self.tenant, key)
                self._must_hold(stream.acknowledged, rows)
                stream.reload(rows)

    def commit(
        self, command: tasks.Command, *, guard: Callable[[], Guard] | None = None, scope: str = "task"
    ) -> Generator[Request, Any, e.Decision | Refusal]:
        """Decide, and wait until it is durable; decided again whenever a rival was faster. Raises `StoreUnavailable`."""
        for _ in range(MAX_REDECIDED):
            if scope == "tenant" or self.keys:  # what others wrote there is read
                proposed = yield from self.desk.off_loop(
                    lambda: self.propose(command, guard=guard() if guard else None, scope=scope)
                )
            else:
                proposed = self.propose(command, guard=guard() if guard else None, scope=scope)
            if isinstance(proposed, Refusal) or proposed.ticket is None:
                return proposed if isinstance(proposed, Refusal) else proposed.decision
            outcome = yield Await(proposed.ticket)
            if isinstance(outcome, Landed):
                self._acknowledged(proposed.ticket)
                return proposed.decision
            yield from self.desk.off_loop(partial(self.refresh, proposed.generation))
            if isinstance(outcome, Fenced):
                return Refusal(Code.FENCED, outcome.why)
            if isinstance(outcome, StoreUnavailable):
                raise outcome
        raise StoreUnavailable(f"task {self.state.id} is written by others without end")

    def post(self, command: tasks.Command, *, after: Callable[[], None] | None = None) -> None:
        """Decide, queue, and do not wait (R6): an outcome. Decided again if a rival was faster; a refusal ends it."""
        if self.gone:
            self._not_recorded(command, self._went_back())
            return
        proposed = self.propose(command, waited_for=False)
        if isinstance(proposed, Refusal) or proposed.ticket is None:
            if after:
                after()
            return

        def landed() -> None:
            if isinstance(proposed.ticket.value, Stale):  # type: ignore[union-attr]
                try:
                    self.refresh(proposed.generation)
                    self.post(command, after=after)
                except StoreUnavailable as error:
                    self._not_recorded(command, error)
            elif isinstance(proposed.ticket.value, StoreUnavailable):  # type: ignore[union-attr]
                self._not_recorded(command, proposed.ticket.value)  # type: ignore[union-attr]
            else:
                self._acknowledged(proposed.ticket)  # type: ignore[arg-type]
                if after:
                    after()

        proposed.ticket.then(landed)

    def _not_recorded(self, command: tasks.Command, error: StoreUnavailable) -> None:
        """The effect becomes ambiguous when the attempt ends, and is looked into; until then nothing else may start."""
        log.error("semel: task %s: a %s could not be recorded: %s", self.state.id, type(command).__name__, error)
        if isinstance(command, e.EffectCommand):
            self.unsure = str(error)

"""Dead letters, many at a time (R23): which they are, what a replay of them would do, and doing it, each as its own change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from semel.engine.ledger import Desk, Ledger, Proposal
from semel.engine.review import keep_out, person
from semel.errors import Misuse
from semel.machine import forecast as f
from semel.machine import journal as j
from semel.machine import keys, tasks
from semel.model import Awaits, DeadLetters, Delivery, Execution, Ref, Refusal
from semel.store.contract import Landed, Stale

SAMPLE = 100  # so many finished tasks of a kind say what its code does
PAGE = 1000
TOGETHER = 100  # changes that may share a transaction
Progress = Callable[[int, int], None]


def quietly(done: int, of: int) -> None:
    """A progress that nobody looks at."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter, as it was looked at: the version, and what its replay would do. No more: there may be very many.

    died: milliseconds since the Unix epoch. states: of its effects. step_known: others of its kind have the named step.
    """

    tenant: str
    id: str
    version: int
    dead: bool
    died: int
    why: str
    states: frozenset[str]
    batches: frozenset[str]
    forecast: f.Forecast
    step_known: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The dead letters that were chosen. passed: those that the same replay has had already, and that died again."""

    letters: tuple[Letter, ...]
    passed: tuple[Letter, ...]
    batch: str
    from_step: str
    forecast: f.Forecast


@dataclass(frozen=True, slots=True)
class Handled:
    """What came of many dead letters. refused: with the reason, by id. passed: replayed by this batch before, and dead again."""

    batch: str
    forecast: f.Forecast
    done: tuple[Ref[Any], ...]
    refused: tuple[tuple[Ref[Any], str], ...]
    passed: tuple[Ref[Any], ...]


class Kinds:
    """What the finished tasks of each kind say, read once."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._known: dict[tuple[str, str], list[f.Sibling]] = {}

    def siblings(self, tenant: str, kind: str) -> list[f.Sibling]:
        """Of the newest finished tasks of a kind."""
        if (tenant, kind) not in self._known:
            rows = self._desk.store.tasks(tenant, execution=Execution.SUCCEEDED, kind=kind, limit=SAMPLE)
            states = [tasks.fold(self._desk.store.rows(tenant, row.task)) for row in rows]
            self._known[tenant, kind] = [f.sibling_of(state, shared_of(self._desk, tenant, state)) for state in states]
        return self._known[tenant, kind]


def shared_of(desk: Desk, tenant: str, state: tasks.Task) -> dict[str, tasks.Key]:
    """The tenant-scoped keys that a task has joined, as they stand."""
    return {key: tasks.fold_key(desk.store.rows(tenant, key)) for key in sorted(state.joined)}


def letter_of(desk: Desk, kinds: Kinds, tenant: str, task: str, from_step: str, declared: frozenset[str]) -> Letter:
    """One task and what its replay would do. Raises `Misuse` if there is none."""
    rows = desk.store.rows(tenant, task)
    if not rows:
        raise Misuse(f"there is no task {task!r} of tenant {tenant!r}; see: semel tasks")
    state = tasks.fold(rows)
    died = next((row.at for row in reversed(rows) if row.kind == j.DeadLettered.kind), 0)
    siblings = kinds.siblings(tenant, state.kind)
    step_known = from_step in declared or any(from_step in one.steps for one in siblings)
    told = f.forecast(state, shared_of(desk, tenant, state), siblings, from_step)
    states = frozenset(str(x.state) for x in state.effects.values())
    dead = state.delivery is Delivery.DEAD_LETTERED
    return Letter(tenant, task, state.version, dead, died, state.why, states, state.batches, told, step_known)


def chosen(
    desk: Desk, which: DeadLetters, tenant: str | None, from_step: str = "", declared: frozenset[str] = frozenset()
) -> Iterator[Letter]:
    """The dead letters of a filter, newest tasks first."""
    kinds, after = Kinds(desk), ""
    while True:
        rows = desk.store.tasks(
            tenant, delivery=Delivery.DEAD_LETTERED, kind=which.kind, queue=which.queue, after=after, limit=PAGE
        )
        for row in rows:
            letter = letter_of(desk, kinds, row.tenant, row.task, from_step, declared)
            if letter.dead and matches(letter, which):
                yield letter
        if len(rows) < PAGE:
            return
        after = rows[-1].task


def matches(letter: Letter, which: DeadLetters) -> bool:
    """Whether a dead letter is one of these, beyond its kind and queue."""
    if which.why.casefold() not in letter.why.casefold():
        return False
    if which.since is not None and letter.died < which.since.timestamp() * 1000:
        return False
    if which.until is not None and letter.died >= which.until.timestamp() * 1000:
        return False
    return not which.effect or which.effect in letter.states


def batch_of(which: DeadLetters, from_step: str, by: str, reason: str, times: tuple[str, str] | None = None) -> str:
    """The name of a replay of many, if nobody gives one: the same words again are the same replay, and go on with it.

    times: since and until as somebody wrote them; "two hours ago" is the same words later, too.
    """
    if times is None:
        times = (str(which.since or ""), str(which.until or ""))
    said = [which.kind, which.queue, which.why, *times, str(which.effect), from_step, by.strip(), reason]
    return "same:" + keys.digest(said)[:12]


def plan(
    desk: Desk, which: DeadLetters, tenant: str | None, *, from_step: str, batch: str, limit: int | None,
    declared: frozenset[str],
) -> Plan:  # fmt: skip
    """Choose, and foretell. Nothing is changed."""
    letters: list[Letter] = []
    passed: list[Letter] = []
    for letter in chosen(desk, which, tenant, from_step, declared):
        if limit is not None and len(letters) >= limit:
            break
        (passed if batch and batch in letter.batches else letters).append(letter)
    return Plan(tuple(letters), tuple(passed), batch, from_step, f.summed(letter.forecast for letter in letters))


def promise(letter: Letter, at_most: Mapping[str, int] | None, only_as_forecast: bool) -> dict[str, int] | None:
    """By effect name, how many new keys a replay permits; None: any."""
    if not only_as_forecast:
        return None if at_most is None else checked(at_most)
    return {**letter.forecast.new_most, **checked(at_most or {})}


def checked(at_most: Mapping[str, int]) -> dict[str, int]:
    """A limit as data. Raises `Misuse`."""
    for name, most in at_most.items():
        if not isinstance(most, int) or isinstance(most, bool) or most < 0:
            raise Misuse(f"at_most[{name!r}] is {most!r}; write how many new {name} a task may send: at_most={{{name!r}: 1}}")
    return dict(at_most)


def replay_all(
    desk: Desk, chosen: Plan, *, by: str, reason: str, at_most: Mapping[str, int] | None, only_as_forecast: bool,
    progress: Progress, app: Awaits | None,
) -> Handled:  # fmt: skip
    """Replay what was chosen, as it was looked at: what has moved on since is refused, by name."""
    why = f"by {by.strip()}" + (f": {reason}" if reason else "")

    def command(letter: Letter) -> tasks.Replay:
        most = promise(letter, at_most, only_as_forecast)
        now = desk.clock.wall_ms()
        return tasks.Replay(why, now, chosen.from_step, most, letter.version, letter.step_known, chosen.batch)

    return _all(desk, chosen, command, person(by), progress, app)


def purge_all(desk: Desk, chosen: Plan, *, by: str, reason: str, progress: Progress, app: Awaits | None) -> Handled:
    """Give up for good what was chosen, as it was looked at."""
    why = purge_words(by, reason)
    return _all(desk, chosen, lambda letter: tasks.Purge(why, letter.version), person(by), progress, app)


def purge_words(by: str, reason: str) -> str:
    """Who gives up, and why. Raises `Misuse` without a reason."""
    if not isinstance(reason, str) or not reason.strip():
        raise Misuse("a purge is for good and needs a reason; write reason='the customer has left'")
    return f"by {by.strip()}: {reason.strip()}"


def _all(
    desk: Desk, chosen: Plan, command: Callable[[Letter], tasks.Command], actor: str, progress: Progress, app: Awaits | None
) -> Handled:
    done: list[Ref[Any]] = []
    refused: list[tuple[Ref[Any], str]] = []
    for start in range(0, len(chosen.letters), TOGETHER):
        some = chosen.letters[start : start + TOGETHER]
        for letter, said in zip(some, _together(desk, some, command, actor), strict=True):
            ref: Ref[Any] = Ref(letter.id, letter.tenant, app=app)
            if said:
                refused.append((ref, said))
            else:
                done.append(ref)
        progress(start + len(some), len(chosen.letters))
    passed: tuple[Ref[Any], ...] = tuple(Ref(letter.id, letter.tenant, app=app) for letter in chosen.passed)
    return Handled(chosen.batch, chosen.forecast, tuple(done), tuple(refused), passed)


def _together(desk: Desk, letters: tuple[Letter, ...], command: Callable[[Letter], tasks.Command], actor: str) -> list[str]:
    """Each its own change, and many in one transaction; why each was refused, or ""."""
    proposed: list[Proposal | Refusal | Misuse] = []
    for letter in letters:
        ledger = Ledger.read(desk, letter.tenant, letter.id, actor)
        assert ledger is not None, "a task on record stays there"
        try:
            keep_out(ledger, said := command(letter))
        except Misuse as error:
            proposed.append(error)
        else:
            proposed.append(ledger.propose(said))
    return [_landed(one) for one in proposed]


def _landed(proposed: Proposal | Refusal | Misuse) -> str:
    if isinstance(proposed, Misuse):
        return str(proposed)
    if isinstance(proposed, Refusal):
        return f"{proposed.code}: {proposed.message}"
    assert proposed.ticket is not None, "a replay, and a purge, write something"
    proposed.ticket.wait()
    outcome = proposed.ticket.value
    if isinstance(outcome, Landed):
        return ""
    if isinstance(outcome, Stale):
        return "stale_view: the task has moved on since you looked: look again"
    if isinstance(outcome, BaseException):
        raise outcome
    return f"not landed: {outcome}"

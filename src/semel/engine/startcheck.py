"""The start check (R22): a worker does not start with code that unfinished tasks would not recognise.

What is on record decides, not what the code once looked like: each unfinished task of our kinds that has begun is asked
whether it fits (`fits`). The declarations of the last worker only say whether there is anything to look for: if nothing has
changed since, that is one read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from semel.engine import fits
from semel.engine.declare import Effect, Registry, Work
from semel.engine.ledger import Desk, change_id
from semel.errors import Misuse, StoreUnavailable
from semel.machine import declarations as d
from semel.machine import journal as j
from semel.machine import tasks
from semel.machine.projection import Tables, TaskRow
from semel.store.contract import Change, Head, Landed, Part, Stale

VISITS = 10_000  # tasks that are gone past at a time
LOOKED = 30_000  # unfinished tasks of a kind that are looked at, at most
TRIES = 100
log = logging.getLogger("semel")


@dataclass(frozen=True, slots=True)
class Code:
    """What an app declares."""

    works: Registry[Work]
    effects: Registry[Effect]

    def declarations(self) -> d.Declarations:
        """As data."""
        works = {work.first_name: work for name in self.works.names() if (work := self.works.get(name))}
        effects = {effect.first_name: effect for name in self.effects.names() if (effect := self.effects.get(name))}
        return d.Declarations(
            {
                name: {
                    "names": sorted({work.name, *work.formerly}), "parameters": _parameters(work),
                    "intent": None if work.intent is None else list(work.intent),
                }
                for name, work in sorted(works.items())
            },
            {
                name: {
                    "names": sorted({effect.name, *effect.formerly}), "parameters": _parameters(effect),
                    "intent": list(effect.intent), "material": list(effect.material), "scope": effect.scope,
                    "recovery": [str(rung) for rung in effect.rungs], "approve": effect.approve is not False,
                    "identity": effect.identity is not None, "redact": sorted(effect.redact),
                }
                for name, effect in sorted(effects.items())
            },
        )  # fmt: skip


def _parameters(declared: Work | Effect) -> dict[str, bool]:
    """By name: whether a call must give it."""
    return {name: p.default is p.empty for name, p in declared.parameters.signature.parameters.items()}


@dataclass(slots=True)
class Unfit:
    """What does not fit, by why: how many tasks, and one of them. all: whether every unfinished task was looked at.

    other_keys: the same work would be accepted under other keys.
    """

    count: Counter[str] = field(default_factory=Counter)
    example: dict[str, str] = field(default_factory=dict)
    all: bool = True
    other_keys: bool = False

    def add(self, why: str, row: TaskRow) -> None:
        """One more."""
        self.count[why] += 1
        self.example.setdefault(why, f"{row.kind} {row.key} [{row.task[-8:]}]")

    def lines(self) -> list[str]:
        """A sentence each."""
        least = "" if self.all else "at least "
        return [
            f"{why}: {least}{n} unfinished task{'s' * (n > 1)}, as {self.example[why]}" for why, n in sorted(self.count.items())
        ]  # fmt: skip


def check(desk: Desk, code: Code, tenant: str | None, *, by: str = "", reason: str = "") -> Unfit:
    """Raise `Misuse` if unfinished tasks would not recognise this code; put on record that it starts. `StoreUnavailable`.

    tenant: the only one that the app may touch. by: a person who lets it start all the same; what does not fit is returned.
    """
    own, owner = code.declarations(), tenant or ""
    for _ in range(TRIES):
        rows = desk.store.rows(owner, d.STREAM)
        past = d.past(rows, own)
        if not by and past.last is not None and past.last.digest == own.digest:
            return Unfit()
        unfit = _unfit(desk, code, own, past, tenant)
        if unfit.count and not by:
            _refuse(unfit, past)
        for gone in d.guards_gone(past.last, own) if past.last is not None else ():
            log.warning("semel: %s: what this code begins is not guarded by it", gone)
        event = own.event(bool(by) and bool(unfit.count), reason)
        if by and not unfit.count:
            return unfit
        if _landed(desk, owner, rows, event, f"person:{by}" if by else "worker"):
            return unfit
    raise StoreUnavailable("the store's declarations are written by others without end")


def accepted(desk: Desk, code: Code, tenant: str | None) -> bool:
    """Whether a person has said that this very code may go on with what does not fit it."""
    own = code.declarations()
    last = d.past(desk.store.rows(tenant or "", d.STREAM), own).last
    return last is not None and last.accepted and last.digest == own.digest


def _landed(desk: Desk, owner: str, rows: list[j.Row], event: j.Declared, actor: str) -> bool:
    head = Head(rows[-1].seq, rows[-1].hash) if rows else Head(0, j.GENESIS)
    identity = change_id()
    new = j.seal(
        (event,), tenant=owner, stream=d.STREAM, seq=head.seq, previous=head.hash, actor=actor, token=0,
        at=desk.clock.wall_ms(), id=identity,
    )  # fmt: skip
    ticket = desk.writer.submit(Change(identity, (Part(owner, d.STREAM, head, new, Tables()),)))
    ticket.wait()
    if isinstance(ticket.value, Stale | Landed):
        return isinstance(ticket.value, Landed)
    assert isinstance(ticket.value, StoreUnavailable), ticket.value
    raise ticket.value


def _refuse(unfit: Unfit, past: d.Past) -> None:
    """Code that has run here before may start: it was rolled back, or others are ahead of it. It leaves what it does not know.

    But not if it would accept the same work under other keys.
    """
    said = "; ".join(unfit.lines())
    if past.known and not unfit.other_keys:
        log.warning("semel: this code has run here before, and starts; it leaves or blocks what it does not know: %s", said)
        return
    raise Misuse(
        f"this code does not fit what is under way: {said}. Name a renamed effect or task in formerly=; or let the old code "
        f"finish these tasks, or cancel them (semel cancel); or take them over as they are, and answer for it: semel migrate "
        f"--accept MODULE:app --by YOU --reason WHY"
    )


def _unfit(desk: Desk, code: Code, own: d.Declarations, past: d.Past, tenant: str | None) -> Unfit:
    found = Unfit()
    changed = d.changed_kinds(past.last, own) if past.last is not None else {}
    narrowed = d.narrowed_kinds(past.last, own) if past.last is not None else set()
    gone = {**changed, **d.renamed_kinds(past, own)}
    for row in _unfinished(desk, tenant, set(own.kinds), {*gone, *narrowed}, found):
        if row.kind in gone:
            found.add(gone[row.kind], row)
            found.other_keys = True
        if row.kind in own.kinds and (row.attempt > 0 or row.kind in narrowed):  # else only its arguments are on record
            work = code.works.get(row.kind)
            assert work is not None
            if why := _why(desk, code, work, row):
                found.add(why, row)
    return found


def _unfinished(desk: Desk, tenant: str | None, begun: set[str], every: set[str], found: Unfit) -> Iterator[TaskRow]:
    """The unfinished tasks of these kinds, those in `begun` if they have begun; of each kind so many at most.

    One walk through the table of tasks, in its own order: what has not begun is passed over where it lies.
    """
    looked: Counter[str] = Counter()
    after: tuple[str, str] | None = ("", "")
    while after is not None and (begun or every):
        rows, after = desk.store.unfinished(tenant, sorted(begun), sorted(every), after, VISITS)
        for row in rows:
            looked[row.kind] += 1
            if looked[row.kind] <= LOOKED:
                yield row
                continue
            found.all = False
            begun, every = begun - {row.kind}, every - {row.kind}


def _why(desk: Desk, code: Code, work: Work, row: TaskRow) -> str:
    try:
        state = tasks.fold(desk.store.rows(row.tenant, row.task))
        streams = (tasks.fold_key(desk.store.rows(row.tenant, key)).effect for key in sorted(state.joined))
        shared = [known for known in streams if known is not None]
    except ValueError:
        return "a later version of semel has written of it"
    return fits.unfit(fits.Place(desk.store.info.application, row.tenant), state, shared, code.effects, work)

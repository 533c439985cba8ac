"""What a world is made of, as the explorer keeps it: workers, calls, providers, and how they may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from explore_normal import AGE, SETTLE

from semel.machine import recovery

KEYED, CREATE, LOOKED, OPAQUE, ATOMIC, SHRUG = "keyed", "create", "looked", "opaque", "atomic", "shrug"
REMEMBERS = (KEYED, CREATE, ATOMIC, SHRUG)  # may be sent again while the first is unknown
WATCHED, UNFENCED, LYING = 0, 1, 2  # kinds of workers; the last has no watchdog, and the machine is told that it has
UP, FROZEN, LATE, AWAKE, STOPPED, DEAD = range(6)  # LATE: frozen past its deadline; AWAKE: woken after it; STOPPED: it knows
TODO, INTENT, CALL, CLIMB, ASKED, DONE, AGAIN, OVERDUE, FAILED = range(9)  # where a worker is with a key
PREP, WORK = 0, 1
PARK, BLOCK, APPROVAL, FAIL, LOOK_AGAIN = 1, 2, 3, 4, 5  # how an attempt must end
UNSENT, FLYING, ACTED, REFUSED, DROPPED, NEVER = range(6)  # where a request is; NEVER: refused, and no further try may be sent
FAULTS, CANCELS, REPLAYS, REVERSALS, RESTORES, AGES = range(6)  # what may still happen
WITHIN = 3 * AGE // 2  # for so long a keyed provider remembers a key

RUNGS = {
    KEYED: (recovery.Rung("resend", WITHIN), recovery.Rung("ask", settle_ms=SETTLE)),
    CREATE: (recovery.Rung("resend", None), recovery.Rung("ask", settle_ms=SETTLE)),
    LOOKED: (recovery.Rung("lookup", settle_ms=SETTLE), recovery.Rung("ask", settle_ms=SETTLE)),
    OPAQUE: (recovery.Rung("ask", settle_ms=SETTLE),),
    ATOMIC: (recovery.Rung("atomic"), recovery.Rung("ask", settle_ms=SETTLE)),
    SHRUG: (recovery.Rung("repeat"), recovery.Rung("ask", settle_ms=SETTLE)),
}


class Call(NamedTuple):
    """One submission's code, its request, its child. fresh: what an atomic one was decided on still stands."""

    k: int
    task: int
    n: int
    token: int
    attempt: int
    waited: int
    code: int
    net: int
    child: int = 0
    fresh: int = 0


class Worker(NamedTuple):
    """One session: a process as the world sees it, and where its program is. fence: 0, 1 watched, 2 dead. task: 0, or number + 1.

    queue: outcomes that are not durable. learnt: by key, what it knows of the senders, and whether settle is over since.
    """

    kind: int
    life: int = UP
    fence: int = 0
    old: int = 0
    task: int = 0
    token: int = 0
    attempt: int = 0
    phase: int = PREP
    pcs: tuple[tuple[int, int, int, int], ...] = ()
    queue: tuple[tuple[str | int, ...], ...] = ()
    learnt: tuple[tuple[int, tuple[int, ...], int, int], ...] = ()
    exit: tuple[int, int] = (0, 0)
    calls: tuple[Call, ...] = ()


class Provider(NamedTuple):
    """What it did for one key. memory: the age in which it began to remember it, + 1.

    wire: submissions of which nothing is proved. let_go: in which words people let it be sent, + 1.
    """

    acts: int = 0
    memory: int = 0
    wire: int = 0
    let_go: int = 0


class State(NamedTuple):
    """All there is. look: what a person has seen: (key, what, whether it still stands so, stopped).

    epoch: 0, 1 begun, 2 watched. saved: the backup, and its age.
    """

    tids: tuple[int, ...]
    kid: int
    workers: tuple[Worker, ...]
    keys: tuple[Provider, ...]
    look: tuple[int, ...]
    left: tuple[int, ...]
    age: int = 0
    epoch: int = 0
    saved: tuple[tuple[int, ...] | int, ...] = ()


Label = tuple[str, tuple[object, ...]]
Step = tuple[Label, bool, State]  # what happens, whether it is a fault, and what then is


class Violated(Exception):
    """What the promise says is not so."""


@dataclass(frozen=True)
class World:
    """What there is, and what may go wrong.

    manners: of each key's provider. plans: the keys of each task's handler, in order; parallel: all at once. faults: how many
    crashes, freezes, losses. patient: a person looks when nobody can send it any more and nothing
    is under way. settle: it covers what is under way. twice_only: only what happens twice is wrong.
    must: what must be seen to happen. only: the faults that there are.

    Rules of the engine and the store, to be taken away: chained, an outcome that fails takes what is queued behind it along (R5);
    watched, in a new epoch the largest lease passes first (R20); gives_back, what a session holds unknowingly goes back (R17);
    atomic_cas, a COMMIT lands only on what it was decided on (R7); runs_on, code that timed out is not said to have ended (R4).
    """

    name: str
    manners: tuple[str, ...] = (LOOKED,)
    plans: tuple[tuple[int, ...], ...] = ((0,),)
    workers: tuple[int, ...] = (WATCHED, WATCHED)
    faults: int = 2
    cancels: int = 0
    replays: int = 0
    reversals: int = 0
    restores: int = 0
    ages: int = 0
    shared: bool = False
    parallel: bool = False
    approve: bool = False
    words: int = 1
    children: bool = False
    definite: bool = False
    crashes: int = 0
    failures: int = 0
    patient: bool = True
    settle: bool = True
    chained: bool = True
    watched: bool = True
    gives_back: bool = True
    atomic_cas: bool = True
    runs_on: bool = True
    only: tuple[str, ...] = ()
    ladders: tuple[tuple[recovery.Rung, ...], ...] = ()
    wake: bool = True
    unavailable: bool = False
    twice_only: bool = False
    least: int = 0
    must: tuple[str, ...] = ()


def dead(p: Worker) -> Worker:
    """Its process is gone, and what it remembered; what it has put on the wire is not, nor a child."""
    calls = tuple(c._replace(code=0, waited=0) for c in p.calls if c.net == FLYING or (c.net == UNSENT and c.child))
    return Worker(p.kind, DEAD, p.fence, p.old, calls=calls)


def set_pc(
    pcs: tuple[tuple[int, int, int, int], ...], k: int, pc: tuple[int, int, int, int]
) -> tuple[tuple[int, int, int, int], ...]:
    """With another place for key `k`."""
    return (*pcs[:k], pc, *pcs[k + 1 :])

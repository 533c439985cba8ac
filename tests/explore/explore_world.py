"""A small world around the shipped machine: workers, a network, a provider, a person, and a store that may be restored.

Time is abstract: "its deadline is past", "settle is over", "hours pass" are things that happen, when they can. What goes
wrong (a crash, a freeze, a lost request) is counted against what the world may suffer; all else is what honest parts do, and
from every state they must come to an end of each task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from explore_normal import AGE, KEYS, NEW_EPOCH, SETTLE, Answer, Machine, counted, ranked

from semel.machine import recovery
from semel.model import EffectState

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
MOST_KEPT = 300_000  # of what is only remembered to be quicker


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


class Rules:
    """The rules of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.m = Machine(
            world.ladders or tuple(RUNGS[manner] for manner in world.manners), shared=world.shared,
            approvers=1 if world.approve else 0, kept=bool(world.reversals), crashes=world.crashes, failures=world.failures,
        )  # fmt: skip
        self.plain = (TODO, 0, 0, 0)
        self.nowhere = (self.plain,) * len(world.manners)
        self._alive_unfenced = UNFENCED in world.workers
        self.kept: list[int] = []  # of the last state in normal form: which worker is where
        self._slots = [world.workers.count(kind) for kind in (WATCHED, UNFENCED, LYING)]
        self._orders: dict[object, tuple[bool, dict[int, int], tuple[dict[int, int], ...], dict[int, int]]] = {}

    def start(self) -> State:
        """Every task is accepted, and nobody has begun."""
        w = self.world
        tids = tuple(self.m.born(index, 0, False) for index in range(len(w.plans)))
        left = (w.faults, w.cancels, w.replays, w.reversals, w.restores, w.ages)
        state = State(tids, self.m.no_key, tuple(Worker(kind) for kind in w.workers), (Provider(),) * len(w.manners), (), left)
        if w.restores:  # at first the backup is of before anything was accepted
            state = state._replace(saved=((self.m.nothing,) * len(tids), self.m.no_key, 0))
        return self.normal(state)

    # --- the world's own steps ---

    def steps(self, s: State) -> Iterator[Step]:
        """All that can happen next."""
        only = self.world.only
        for step in self._all(s):
            if not only or not step[1] or any(one in step[0][0] for one in only):
                yield step

    def _all(self, s: State) -> Iterator[Step]:
        from explore_workers import worker_steps

        for i, p in enumerate(s.workers):
            if p.life in (UP, AWAKE, STOPPED):
                yield from worker_steps(self, s, i, p)
            yield from self._fate(s, i, p)
            for c, call in enumerate(p.calls):
                yield from self._request(s, i, p, c, call)
        yield from self._people(s)
        yield from self._store(s)

    def _fate(self, s: State, i: int, p: Worker) -> Iterator[Step]:
        left = s.left[FAULTS]
        if p.life in (UP, AWAKE) and left and (p.task or p.calls or p.queue):
            yield ("w{} is killed", (i,)), True, self.spent(s, i, dead(p))
            if p.life == UP:
                yield ("w{} is frozen", (i,)), True, self.spent(s, i, p._replace(life=FROZEN))
        if p.life == STOPPED and left and p.queue:
            yield ("w{} is killed", (i,)), True, self.spent(s, i, dead(p))
        if p.life == FROZEN or (p.old and p.life == UP):
            if p.life == FROZEN and self.world.wake:
                yield ("w{} wakes", (i,)), False, self.put(s, i, p._replace(life=UP))
            if p.kind == WATCHED and any(c.code for c in p.calls):
                yield ("the kernel timer kills w{} at its deadline", (i,)), False, self.put(s, i, dead(p))
            else:
                life = LATE if p.life == FROZEN else AWAKE
                yield ("w{} is past its deadline", (i,)), False, self.put(s, i, p._replace(life=life))
        if p.life == LATE:
            yield ("w{} wakes, past its deadline", (i,)), False, self.put(s, i, p._replace(life=AWAKE))
        if not p.fence and p.life in (LATE, DEAD) and self._holds(s, i):
            yield ("w{} is fenced: its beat stood still for a TTL", (i,)), False, self.fenced(s, i, p, 1)
            if p.life == DEAD:
                yield ("w{} is fenced: its process is proved to be dead", (i,)), False, self.fenced(s, i, p, 2)
        if p.fence and self._anybody(s):
            for task, tid in enumerate(s.tids):
                if self.m.facts(tid, s.kid).lease == i:
                    a = self.m.ask(tid, s.kid, s.age, ("lose lease", i, "dead" if p.fence == 2 else "watched"))
                    if not a.code:
                        yield ("t{} is taken back from w{}", (task, i)), False, self.land(s, task, a)
        for place, (k, ns, stopped, over) in enumerate(p.learnt):
            if not over and p.life in (UP, AWAKE) and (not self.world.settle or not self._flying(s, k)):
                known = (*p.learnt[:place], (k, ns, stopped, 1), *p.learnt[place + 1 :])
                yield ("settle of {} is over for w{}", (KEYS[k], i)), False, self.put(s, i, p._replace(learnt=known))

    def _holds(self, s: State, i: int) -> bool:
        return any(i in self.m.facts(tid, s.kid).sessions for tid in s.tids)

    def _anybody(self, s: State) -> bool:
        return any(p.life == UP and not p.old for p in s.workers)

    def _may_act(self, s: State, k: int) -> bool:
        return any(c.k == k and self._can_act(p, c) for p in s.workers for c in p.calls)

    def _flying(self, s: State, k: int) -> bool:
        return any(c.k == k and c.net == FLYING for p in s.workers for c in p.calls)

    def _request(self, s: State, i: int, p: Worker, c: int, call: Call) -> Iterator[Step]:
        runs = call.code and p.life in (UP, AWAKE, STOPPED)
        key, left = KEYS[call.k], s.left[FAULTS]
        atomic = self.world.manners[call.k] == ATOMIC
        if call.net == UNSENT and (call.child or runs):
            who = f"a child of w{i}" if call.child else f"w{i}"
            if atomic:
                stands = self.m.ask(s.tids[call.task], s.kid, s.age, self.outcome("confirm", call)).told == ("confirmed",)
                sent = self.call(s, i, c, call._replace(net=FLYING, fresh=int(stands)))
                yield ("{} sends its COMMIT of {}", (who, key)), False, sent
            else:
                sent = self.call(s, i, c, call._replace(net=FLYING, child=0))
                yield ("{} sends {} (submission {})", (who, key, call.n)), False, self.on_wire(sent, call)
        if call.net == UNSENT and call.child:
            if not call.code:
                yield ("a child of w{} ends", (i,)), False, self.call(s, i, c, None)
        elif call.net == UNSENT and runs and self.world.children and not call.child and left:
            a = self.m.ask(s.tids[call.task], s.kid, s.age, ("child", call.k, call.n, call.token))
            if not a.code:
                made = self.call(self.land(s, call.task, a), i, c, call._replace(child=1))
                yield ("w{} makes a child for {}", (i, key)), True, self.less(made, FAULTS)
        if call.net == FLYING:
            if atomic:
                yield self._commits(s, i, p, c, call)
            else:
                yield ("the provider acts on {} (submission {})", (key, call.n)), False, self._acts(s, i, c, call)
            if not call.code:
                yield ("a request for {} is dropped", (key,)), False, self.call(s, i, c, None)
            elif left:
                dropped = self.less(self.call(s, i, c, call._replace(net=DROPPED)), FAULTS)
                yield ("a request for {} is dropped", (key,)), True, dropped
                if not atomic:
                    refused = self.less(self.call(s, i, c, call._replace(net=REFUSED)), FAULTS)
                    yield ("{} is refused: no connection", (key,)), True, refused
                if self.world.definite and not s.keys[call.k].acts:
                    never = self.less(self.call(s, i, c, call._replace(net=NEVER)), FAULTS)
                    yield ("the provider says a definite no to {}", (key,)), True, never
        if runs:
            yield from self._code(s, i, p, c, call)

    def _code(self, s: State, i: int, p: Worker, c: int, call: Call) -> Iterator[Step]:
        """What the code of a submission hears, if anything."""
        key, left = KEYS[call.k], s.left[FAULTS]
        told = {ACTED: "confirm", REFUSED: "disprove", NEVER: "definite no"}.get(call.net)
        if told:
            yield ("w{} is answered about {}", (i, key)), False, self._ended(s, i, c, call, told)
        if call.net in (ACTED, FLYING) and left:
            yield ("the connection for {} breaks", (key,)), True, self.less(self._ended(s, i, c, call, "lose"), FAULTS)
        elif call.net == DROPPED or (not call.waited and call.net == FLYING):
            yield ("w{} gives up {}", (i, key)), False, self._ended(s, i, c, call, "lose")
        if call.waited and (left or call.net == DROPPED) and not call.child:
            silent = self._heard(s, i, call, "lose running" if self.world.runs_on else "lose")
            late = self.call(silent, i, c, call._replace(waited=0))
            fault = call.net != DROPPED
            yield ("the call of {} times out; its code runs on", (key,)), fault, self.less(late, FAULTS) if fault else late

    def _ended(self, s: State, i: int, c: int, call: Call, told: str) -> State:
        s = self._heard(s, i, call, told)
        gone = None if call.net != FLYING and not call.child else call._replace(code=0, waited=0)
        return self.call(s, i, c, gone)

    def _heard(self, s: State, i: int, call: Call, told: str) -> State:
        """The outcome is queued, and whoever waits goes on."""
        p = s.workers[i]
        queue = (*p.queue, (told, call.task, call.k, call.n, call.token, call.attempt))
        if call.waited and p.task == call.task + 1 and p.pcs[call.k][0] == CALL and p.pcs[call.k][1] == call.n:
            done = told == "confirm" and not p.pcs[call.k][3]
            return self.put(s, i, p._replace(queue=queue, pcs=set_pc(p.pcs, call.k, (DONE if done else CLIMB, 0, 0, 0))))
        return self.put(s, i, p._replace(queue=queue))

    def _acts(self, s: State, i: int, c: int, call: Call) -> State:
        known, manner = s.keys[call.k], self.world.manners[call.k]
        if manner == CREATE:
            known = known._replace(acts=1)
        elif manner != KEYED or not known.memory or (s.age + 1 - known.memory) * AGE >= WITHIN:
            known = known._replace(acts=min(2, known.acts + 1), memory=s.age + 1 if manner == KEYED else 0)
        s = s._replace(keys=(*s.keys[: call.k], known, *s.keys[call.k + 1 :]))
        return self.call(s, i, c, call._replace(net=ACTED) if call.code else None)

    def _commits(self, s: State, i: int, p: Worker, c: int, call: Call) -> Step:
        """The transaction of an atomic effect reaches the store: it lands on what it was decided on, or not at all."""
        if self.world.atomic_cas and (not call.fresh or p.fence or p.old):
            return ("a COMMIT is refused", ()), False, self.call(s, i, c, call._replace(net=DROPPED) if call.code else None)
        a = self.m.ask(s.tids[call.task], s.kid, s.age, self.outcome("confirm", call))
        known = s.keys[call.k]
        landed = self.land(self.call(s, i, c, call._replace(net=ACTED, fresh=0) if call.code else None), call.task, a)
        acted = known._replace(acts=min(2, known.acts + 1))
        keys = (*s.keys[: call.k], acted, *s.keys[call.k + 1 :])
        return ("the COMMIT of {} lands", (KEYS[call.k],)), False, landed._replace(keys=keys)

    def outcome(self, told: str, call: Call) -> tuple[object, ...]:
        """A sender's report."""
        return (told, call.k, call.n, call.token, (f"t{call.task}", call.attempt))

    def on_wire(self, s: State, call: Call) -> State:
        """A request is on its way: for what cannot tell a second one from the first, there must be proof of all before it."""
        known = s.keys[call.k]
        if known.wire and self.world.manners[call.k] not in REMEMBERS and not self.world.twice_only:
            raise Violated(f"a second submission of {KEYS[call.k]} is on the wire, and what became of the first is not proved")
        known = known._replace(wire=known.wire | 1 << call.n)
        return s._replace(keys=(*s.keys[: call.k], known, *s.keys[call.k + 1 :]))

    # --- people ---

    def _people(self, s: State) -> Iterator[Step]:
        for k in range(len(s.keys)):
            owner = self.owner(s, k)
            effect = self.m.effect(s.tids[owner], s.kid, k) if owner >= 0 else None
            if effect is None or s.look:
                continue
            if effect.state is EffectState.AMBIGUOUS:
                yield from self._looks(s, k, any(x.unfenced and not x.quiet for x in effect.open))
            if effect.waiting:
                words = ("w0", "w1").index(effect.args)
                yield ("a person looks at the call of {}", (KEYS[k],)), False, s._replace(look=(k, words, 1, 2))
            if effect.word is not None and s.left[REVERSALS]:
                a = self.m.ask(s.tids[owner], s.kid, s.age, ("reverse", k, 1))
                if not a.code:
                    undone = self.less(self.land(s, owner, a), REVERSALS)
                    yield ("a person takes back what was said of {}", (KEYS[k],)), True, undone
        if s.look:
            yield from self._says(s)
        for task, tid in enumerate(s.tids):
            facts = self.m.facts(tid, s.kid)
            if tid == self.m.nothing:
                continue
            if s.left[CANCELS] and not facts.ended:
                a = self.m.ask(tid, s.kid, s.age, ("cancel",))
                if not a.code:
                    yield ("a person cancels t{}", (task,)), True, self.less(self.land(s, task, a), CANCELS)
            if facts.delivery == "blocked" or (facts.ended and s.left[REPLAYS]):
                a = self.m.ask(tid, s.kid, s.age, ("replay",))
                after = self.land(s, task, a)
                yield ("a person replays t{}", (task,)), facts.ended, self.less(after, REPLAYS) if facts.ended else after

    def _looks(self, s: State, k: int, unfenced: bool) -> Iterator[Step]:
        truth = int(s.keys[k].acts > 0)
        if not (self.world.patient and self._may_act(s, k)):
            yield ("a person looks for {} at the provider", (KEYS[k],)), False, s._replace(look=(k, truth, 1, 0))
        if unfenced:
            for i, p in enumerate(s.workers):
                if any(c.k == k for c in p.calls):
                    p = p._replace(calls=tuple(c._replace(child=0) for c in p.calls))
                    s = self.put(s, i, dead(p) if p.kind else p)
            if not (self.world.patient and self._may_act(s, k)):
                yield ("a person stops what may send {}, and looks", (KEYS[k],)), False, s._replace(look=(k, truth, 1, 1))

    def _says(self, s: State) -> Iterator[Step]:
        k, what, stands, stopped = s.look
        owner, s = self.owner(s, k), s._replace(look=())
        if owner < 0:
            yield ("what a person looked at is gone", ()), False, s
            return
        if stopped < 2:
            said = ("answer", k, "confirmed" if what else "not_found", stands, bool(stopped))
            a = self.m.ask(s.tids[owner], s.kid, s.age, said)
            yield ("a person says of {}: {}" + f" ({a.code or 'on record'})", (KEYS[k], said[2])), False, self.land(s, owner, a)
            return
        for verb in ("approve", "deny"):
            a = self.m.ask(s.tids[owner], s.kid, s.age, (verb, k, stands))
            after = self.land(s, owner, a)
            if not a.code:
                known = after.keys[k]._replace(let_go=1 + what if verb == "approve" else 0)
                after = after._replace(keys=(*after.keys[:k], known, *after.keys[k + 1 :]))
            yield ("a person says of {}: {}" + f" ({a.code or 'on record'})", (KEYS[k], verb)), verb == "deny", after

    def owner(self, s: State, k: int) -> int:
        """The task under which a key is on record; -1: none."""
        effect = self.m.key[s.kid].effect if self.world.shared and k == 0 else None
        if effect is not None:
            return int(effect.task[1:])
        return next((task for task, tid in enumerate(s.tids) if KEYS[k] in self.m.task[tid].effects), -1)

    # --- the store ---

    def _store(self, s: State) -> Iterator[Step]:
        if s.left[AGES] and not any(p.calls or p.life == FROZEN for p in s.workers):
            later = {INTENT: OVERDUE, AGAIN: CLIMB}
            workers = tuple(p._replace(pcs=tuple((later.get(x[0], x[0]), *x[1:]) for x in p.pcs)) for p in s.workers)
            yield ("hours pass", ()), True, self.less(s._replace(workers=workers, age=s.age + 1), AGES)
        if s.left[RESTORES]:
            if s.saved[:2] != (s.tids, s.kid):
                yield ("the store is backed up", ()), True, s._replace(saved=(s.tids, s.kid, s.age))
            tids, kid, _ = s.saved
            workers = tuple(p._replace(old=1) for p in s.workers)
            gone = s._replace(tids=tids, kid=kid, workers=workers, epoch=1, look=())  # type: ignore[arg-type]
            yield ("the store is restored, and a new epoch begins", ()), True, self.less(gone, RESTORES)
        for task, tid in enumerate(s.tids):
            if tid == self.m.nothing:
                again = self.m.born(task, NEW_EPOCH, True)
                enqueued = s._replace(tids=(*s.tids[:task], again, *s.tids[task + 1 :]))
                yield ("t{} is enqueued again", (task,)), False, enqueued
        if s.epoch == 1 and (not self.world.watched or all(p.life in (LATE, AWAKE, STOPPED, DEAD) for p in s.workers if p.old)):
            yield ("the largest lease has been watched since", ()), False, s._replace(epoch=2)

    def doubt(self, s: State) -> tuple[int, bool] | None:
        """What is in doubt: since when, and whether nothing could stop who may have sent it."""
        return (s.saved[2], self._alive_unfenced) if s.epoch else None  # type: ignore[return-value]

    def epoch(self, s: State) -> int:
        """The store's epoch, as the machine is told it."""
        return NEW_EPOCH if s.epoch else 0

    # --- changing a state ---

    def put(self, s: State, i: int, p: Worker) -> State:
        """With another worker in its place."""
        return s._replace(workers=(*s.workers[:i], p, *s.workers[i + 1 :]))

    def less(self, s: State, what: int) -> State:
        """With one less of what may go wrong."""
        return s._replace(left=(*s.left[:what], s.left[what] - 1, *s.left[what + 1 :]))

    def spent(self, s: State, i: int, p: Worker) -> State:
        """A worker suffers a fault."""
        return self.less(self.put(s, i, p), FAULTS)

    def fenced(self, s: State, i: int, p: Worker, how: int) -> State:
        """Its session's row says so."""
        return self.put(s, i, p._replace(fence=how))

    def call(self, s: State, i: int, c: int, call: Call | None) -> State:
        """With another call in its place; None: nothing can come of it any more."""
        p = s.workers[i]
        return self.put(s, i, p._replace(calls=(*p.calls[:c], *((call,) if call else ()), *p.calls[c + 1 :])))

    def land(self, s: State, task: int, a: Answer) -> State:
        """What the machine wrote is on record."""
        if a.wrong:
            raise Violated(a.wrong)
        if (a.tid, a.kid) == (s.tids[task], s.kid):
            return s
        look = s.look
        if look and look[0] in a.moved:
            look = (look[0], look[1], 0, look[3])
        keys = s.keys
        for k, n in a.disproved:
            keys = (*keys[:k], keys[k]._replace(wire=keys[k].wire & ~(1 << n)), *keys[k + 1 :])
        for k in a.not_found:
            keys = (*keys[:k], keys[k]._replace(wire=0), *keys[k + 1 :])
        workers = s.workers
        if ATOMIC in self.world.manners:
            workers = tuple(
                p._replace(calls=tuple(c._replace(fresh=0) if c.task == task else c for c in p.calls)) if p.calls else p
                for p in workers
            )
        tids = (*s.tids[:task], a.tid, *s.tids[task + 1 :])
        return s._replace(tids=tids, kid=a.kid, look=look, keys=keys, workers=workers)

    # --- the promise ---

    def check(self, s: State) -> None:
        """Raise `Violated` if the promise is broken here."""
        for k, known in enumerate(s.keys):
            if known.acts > 1 and self.world.manners[k] != SHRUG:
                raise Violated(f"{KEYS[k]} happened twice")
            if self.world.twice_only:
                continue
            owner = self.owner(s, k)
            effect = self.m.effect(s.tids[owner], s.kid, k) if owner >= 0 else None
            if effect is None:
                continue
            if effect.state is EffectState.CONFIRMED and not known.acts:
                raise Violated(f"{KEYS[k]} is confirmed, and it did not happen")
            if effect.state is EffectState.NOT_ATTEMPTED and effect.told is None and not self._forgotten(s, k):
                if known.acts:
                    raise Violated(f"{KEYS[k]} is called not attempted, and it happened")
                if self._may_act(s, k):
                    raise Violated(f"{KEYS[k]} is called not attempted, and somebody can still act")
        taken_back = s.left[REVERSALS] < self.world.reversals  # what a person takes back of an ended task stays open (R21)
        for task, tid in enumerate(s.tids):
            facts = self.m.facts(tid, s.kid)
            if facts.ended and not taken_back and any(not (self.world.shared and k == 0) for k in facts.open):
                raise Violated(f"t{task} has ended, and {KEYS[facts.open[0]]} is open")

    def _forgotten(self, s: State, k: int) -> bool:
        """Whether the store may have gone back behind it, so that its record says nothing yet."""
        if not s.epoch:
            return False
        effect = self.m.effect(s.tids[self.owner(s, k)], s.kid, k)
        return effect is not None and not any(x.token >> 30 for x in effect.sent)

    def _can_act(self, p: Worker, c: Call) -> bool:
        if self.world.manners[c.k] == ATOMIC:
            return bool(c.fresh)  # else its COMMIT is refused
        if c.net == FLYING or (c.net == UNSENT and c.child):
            return True
        return c.net == UNSENT and bool(c.code) and p.life in (UP, AWAKE, STOPPED, FROZEN)

    def over(self, s: State) -> bool:
        """Whether every task has come to an end."""
        return all(self.m.facts(tid, s.kid).ended for tid in s.tids)  # what is forgotten has not

    # --- normal form ---

    def normal(self, s: State) -> State:
        """The same world, in the form that all worlds with this future share."""
        workers = self._living(s)
        tids, kid = s.tids, s.kid
        feature = self.m.feature
        marks = [(p, [feature(tid, kid, i) for tid in tids]) for i, p in enumerate(workers)]
        order = sorted(range(len(workers)), key=marks.__getitem__)
        kept = [i for i in order if workers[i].life != DEAD or workers[i].calls or self._needed(s, i)]
        self.kept = kept
        place = [-1] * len(workers)
        for new, old in enumerate(kept):
            place[old] = new
        same = kept == list(range(len(workers)))
        renamed, tokens, attempts, key_tokens = self._counted(s, workers)
        if same and not renamed:
            return s._replace(workers=tuple(workers))
        everyone = [workers[i] for i in kept]
        if renamed:
            everyone = [self._recount(p, tokens, attempts, key_tokens) for p in everyone]
        sessions = tuple(place)
        named = [self.m.renamed(tid, kid, tokens, attempts, sessions, key_tokens) for tid in tids]
        saved = s.saved
        if saved:
            old = [self.m.renamed(tid, saved[1], tokens, attempts, sessions, key_tokens) for tid in saved[0]]  # type: ignore
            saved = (tuple(tid for tid, _ in old), old[0][1], saved[2])
        return s._replace(tids=tuple(tid for tid, _ in named), kid=named[0][1], workers=tuple(everyone), saved=saved)

    def _needed(self, s: State, i: int) -> bool:
        if self._holds(s, i):
            return True
        return bool(s.saved) and any(i in self.m.facts(tid, s.saved[1]).sessions for tid in s.saved[0])  # type: ignore

    def _living(self, s: State) -> list[Worker]:
        """The dead hold nothing, and for each that is gone there is another."""
        workers = list(s.workers)
        spare = self._slots.copy()
        for i, p in enumerate(workers):
            if p.life < STOPPED and not p.fence and not p.old:
                spare[p.kind] -= 1
            elif p.life == STOPPED and not p.queue and not p.calls:
                workers[i] = p = dead(p)
            if p.learnt:
                unknown = self._unknown(s)
                known = tuple(x for x in p.learnt if x[0] in unknown)
                if known != p.learnt:
                    workers[i] = p._replace(learnt=known)
        for kind, missing in enumerate(spare):
            if missing > 0:
                workers += [Worker(kind)] * missing
        return workers

    def _unknown(self, s: State) -> set[int]:
        return {k for tid in s.tids for k in self.m.facts(tid, s.kid).unknown}

    def _counted(
        self, s: State, workers: list[Worker]
    ) -> tuple[bool, dict[int, int], tuple[dict[int, int], ...], dict[int, int]]:
        outside = [(p.task, p.token, p.attempt, p.pcs, p.queue, p.calls) for p in workers if p.task or p.calls or p.queue]
        mark = (s.tids, s.kid, s.saved, *outside)
        known = self._orders.get(mark)
        if known is None:
            if len(self._orders) > MOST_KEPT:
                self._orders.clear()
            known = self._orders[mark] = self._count(s, workers)
        return known

    def _count(self, s: State, workers: list[Worker]) -> tuple[bool, dict[int, int], tuple[dict[int, int], ...], dict[int, int]]:
        tokens: set[int] = {0}
        attempts: list[set[int]] = [{0} for _ in s.tids]
        key_tokens: set[int] = set()
        for tids, kid in ((s.tids, s.kid), *((s.saved[:2],) if s.saved else ())):
            for task, tid in enumerate(tids):  # type: ignore[arg-type]
                facts = self.m.facts(tid, kid)  # type: ignore[arg-type]
                tokens |= set(facts.tokens)
                attempts[task] |= set(facts.attempts)
            key = self.m.key[kid]  # type: ignore[index]
            if key.effect is not None:
                key_tokens |= {key.token, *(x.token for x in key.effect.sent)}
        for p in workers:
            if p.task:
                tokens.add(p.token)
                attempts[p.task - 1].add(p.attempt)
            for x in p.calls:
                (key_tokens if self.world.shared and x.k == 0 else tokens).add(x.token)
                attempts[x.task].add(x.attempt)
            for q in p.queue:
                if len(q) > 2:
                    (key_tokens if self.world.shared and q[2] == 0 else tokens).add(q[4])  # type: ignore[arg-type]
                    attempts[q[1]].add(q[5])  # type: ignore
            for k, pc in enumerate(p.pcs):
                (key_tokens if self.world.shared and k == 0 else tokens).add(pc[2])
        new, ranks, new_key = counted(tokens), tuple(ranked(x) for x in attempts), counted(key_tokens | {0})
        changed = any(a != b for names in (new, *ranks, new_key) for a, b in names.items())
        return changed, new, ranks, new_key

    def _recount(
        self, p: Worker, tokens: dict[int, int], attempts: tuple[dict[int, int], ...], key_tokens: dict[int, int]
    ) -> Worker:
        def of(k: int) -> dict[int, int]:
            return key_tokens if self.world.shared and k == 0 else tokens

        calls = tuple(c._replace(token=of(c.k)[c.token], attempt=attempts[c.task][c.attempt]) for c in p.calls)
        queue = tuple(
            (*q[:4], of(q[2])[q[4]], attempts[q[1]][q[5]]) if len(q) > 2 else q  # type: ignore
            for q in p.queue
        )
        pcs = tuple((x[0], x[1], of(k)[x[2]], x[3]) for k, x in enumerate(p.pcs))
        if p.task:
            p = p._replace(token=tokens[p.token], attempt=attempts[p.task - 1][p.attempt])
        return p._replace(calls=calls, queue=queue, pcs=pcs)


def dead(p: Worker) -> Worker:
    """Its process is gone, and what it remembered; what it has put on the wire is not, nor a child."""
    calls = tuple(c._replace(code=0, waited=0) for c in p.calls if c.net == FLYING or (c.net == UNSENT and c.child))
    return Worker(p.kind, DEAD, p.fence, p.old, calls=calls)


def set_pc(
    pcs: tuple[tuple[int, int, int, int], ...], k: int, pc: tuple[int, int, int, int]
) -> tuple[tuple[int, int, int, int], ...]:
    """With another place for key `k`."""
    return (*pcs[:k], pc, *pcs[k + 1 :])

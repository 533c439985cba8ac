"""A small world around the shipped machine: workers, a network, a provider, a person, and a store that may be restored.

Time is abstract: "its deadline is past", "settle is over", "hours pass" are things that happen, when they can. What goes
wrong (a crash, a freeze, a lost request) is counted against what the world may suffer; all else is what honest parts do, and
from every state they must come to an end of each task.
"""

from __future__ import annotations

from collections.abc import Iterator

from explore_forms import Forms
from explore_normal import AGE, KEYS, NEW_EPOCH, Answer
from explore_nouns import (
    ACTED,
    AGAIN,
    AGES,
    ATOMIC,
    AWAKE,
    CALL,
    CANCELS,
    CLIMB,
    CREATE,
    DEAD,
    DONE,
    DROPPED,
    FAULTS,
    FLYING,
    FROZEN,
    INTENT,
    KEYED,
    LATE,
    NEVER,
    OVERDUE,
    REFUSED,
    REMEMBERS,
    REPLAYS,
    RESTORES,
    REVERSALS,
    SHRUG,
    STOPPED,
    TODO,
    UNFENCED,
    UNSENT,
    UP,
    WATCHED,
    WITHIN,
    Call,
    Provider,
    State,
    Step,
    Violated,
    Worker,
    World,
    dead,
    set_pc,
)
from explore_workers import worker_steps

from semel.model import EffectState


class Rules(Forms):
    """The rules of one world."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.plain = (TODO, 0, 0, 0)
        self.nowhere = (self.plain,) * len(world.manners)
        self._alive_unfenced = UNFENCED in world.workers

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
        if not p.fence and p.life in (LATE, DEAD) and self.holds(s, i):
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

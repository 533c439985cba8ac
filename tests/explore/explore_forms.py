"""The normal form of a world: alike workers in one order, tokens and attempts counted anew, the forgotten forgotten."""

from __future__ import annotations

from explore_normal import Machine, counted, ranked
from explore_nouns import DEAD, LYING, RUNGS, STOPPED, UNFENCED, WATCHED, State, Worker, World, dead

MOST_KEPT = 300_000  # of what is only remembered to be quicker


class Forms:
    """Worlds in normal form."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.m = Machine(
            world.ladders or tuple(RUNGS[manner] for manner in world.manners), shared=world.shared,
            approvers=1 if world.approve else 0, kept=bool(world.reversals), crashes=world.crashes, failures=world.failures,
        )  # fmt: skip
        self.kept: list[int] = []  # of the last state in normal form: which worker is where
        self._slots = [world.workers.count(kind) for kind in (WATCHED, UNFENCED, LYING)]
        self._orders: dict[object, tuple[bool, dict[int, int], tuple[dict[int, int], ...], dict[int, int]]] = {}

    def holds(self, s: State, i: int) -> bool:
        """Whether a record names the session of worker `i` in a way that matters."""
        return any(i in self.m.facts(tid, s.kid).sessions for tid in s.tids)

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
        if self.holds(s, i):
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

"""The shipped machine as the explorer asks it: states with numbers instead of objects, each question asked once.

A task's state has counters that only rise (versions, tokens, attempts, times). What follows from them is whether two are
equal, or which is newer. So they are put in normal form: versions and reasons are dropped, tokens and attempts are counted
anew in their order. Two worlds with the same normal form have the same future.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from semel.machine import effects as e
from semel.machine import epochs, limits, recovery
from semel.machine import journal as j
from semel.machine import tasks as t
from semel.model import EffectState, Refusal

KEYS = ("k0", "k1")
NAMES = ("mail", "pay")
SHIFT = e.EPOCH_SHIFT
COUNTER = (1 << SHIFT) - 1
HOUR = 3_600_000
START = 1_000 * HOUR
AGE = HOUR // 3  # from one age to the next
TIMES = tuple(START + age * AGE for age in range(5))  # what all clocks show in each age
SETTLE = 1_000
NEW_EPOCH = 5  # of the store that was restored
ENDS = (t.Fail, t.Park, t.Block, t.Wait, t.Exceed, t.LoseLease)
LONG, MANY = 10**9, 50  # after every backoff; more attempts than there can be
What = tuple[Any, ...]

# what is asked, in short: the time, then what it speaks of
COMMANDS: dict[str, Callable[..., Any]] = {
    "confirm": lambda at, k, n, token, sender: e.Confirm(KEYS[k], n, token, sender=sender),
    "disprove": lambda at, k, n, token, sender: e.Disprove(KEYS[k], n, token, "refused", sender=sender),
    "definite no": lambda at, k, n, token, sender: e.Disprove(KEYS[k], n, token, "refused", True, sender=sender),
    "lose": lambda at, k, n, token, sender: e.Lose(KEYS[k], n, token, "lost", True, sender),
    "lose running": lambda at, k, n, token, sender: e.Lose(KEYS[k], n, token, "lost", False, sender),
    "settle": lambda at, k, token, verdict, how, waited, seen, settled=0: e.Settle(
        KEYS[k], token, verdict, how, waited_ms=waited, settle_ms=SETTLE, seen=seen, settled=settled
    ),
    "watched": lambda at, k, seen, waited: e.NoteWatched(KEYS[k], seen, waited, SETTLE),
    "child": lambda at, k, n, token: e.MarkUnfenced(KEYS[k], n, token, "child"),
    "gone": lambda at, k, sid, dead: e.NoteSenderGone(KEYS[k], f"s{sid}", dead),
    "credit": lambda at, k, n, token: e.Credit(KEYS[k], n, token),
    "void": lambda at, k, n, token: e.Void(KEYS[k], n, token),
    "answer": lambda at, k, verdict, seen, stopped: e.Answer(KEYS[k], verdict, "ann", seen, stopped=stopped),
    "approve": lambda at, k, seen: e.Approve(KEYS[k], "ann", seen, at),
    "deny": lambda at, k, seen: e.Deny(KEYS[k], "ann", seen),
    "reverse": lambda at, k, seen: e.Reverse(KEYS[k], "ann", seen, at, "wrong"),
    "finish": lambda at, token: t.Finish(token),
    "park": lambda at, token: t.Park(token, "x", 0),
    "block": lambda at, token, k, approval: t.Block(token, "x", KEYS[k], approval=approval),
    "fail": lambda at, token, fatal: t.Fail(token, "x", at, fatal=fatal),
    "conclude": lambda at, token: t.Conclude(token),
    "suspend": lambda at, token, k: t.Suspend(token, "x", KEYS[k]),
    "join": lambda at, token: t.Join(token, KEYS[0], NAMES[0]),
    "decline": lambda at, token, k: t.Decline(token, KEYS[k], "denied", NAMES[k], None),
    "lose lease": lambda at, sid, proof: t.LoseLease(f"s{sid}", proof, at),
    "cancel": lambda at: t.Cancel("x", at),
    "replay": lambda at: t.Replay("x", at),
    "unblock": lambda at: t.Unblock("x", at),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the machine made of a question. code: "" or the name of the refusal. told: the kinds of events, with their key.

    n, token: of the submission that was opened. recorded: whether the record is the answer. wrong: what a rule of the promise
    says against it. moved: the keys of which something was written; disproved: with the submission; not_found: so settled.
    """

    tid: int
    kid: int
    code: str
    told: tuple[str, ...] = ()
    n: int = 0
    token: int = 0
    recorded: bool = False
    declined: bool = False
    wrong: str = ""
    moved: tuple[int, ...] = ()
    disproved: tuple[tuple[int, int], ...] = ()
    not_found: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the explorer needs to know of one state, read once. live: tokens; attempts: those of its submissions, and its own."""

    delivery: str
    ended: bool
    ending: bool
    suspended: bool
    lease: int
    token: int
    attempt: int
    tokens: tuple[int, ...]
    attempts: tuple[int, ...]
    sessions: tuple[int, ...]
    unknown: tuple[int, ...]
    open: tuple[int, ...]


class Machine:
    """Tasks and keys by number, and what the shipped `decide` and `apply` answered.

    ladders: of each effect, its rungs. shared: whether key 0 is the tenant's. kept: what is remembered though it looks over:
    a person may take a verdict back.
    """

    def __init__(
        self,
        ladders: tuple[tuple[recovery.Rung, ...], ...],
        *,
        shared: bool = False,
        approvers: int = 0,
        kept: bool = False,
        crashes: int = 0,
        failures: int = 0,
    ) -> None:
        self.ladders, self.shared, self.approvers, self.kept = ladders, shared, approvers, kept
        self.crashes, self.failures = crashes, failures
        self.task: list[t.Task] = []
        self.key: list[t.Key] = []
        self._tids: dict[t.Task, int] = {}
        self._kids: dict[t.Key, int] = {}
        self._answers: dict[tuple[Any, ...], Answer] = {}
        self._facts: dict[tuple[int, int], Facts] = {}
        self._moves: dict[tuple[Any, ...], recovery.Move] = {}
        self._named: dict[tuple[Any, ...], tuple[int, int]] = {}
        self._feats: dict[tuple[int, int, int], tuple[Any, ...]] = {}
        self.nothing = self.tid(t.Task())
        self.no_key = self.kid(t.Key())

    # --- states as numbers ---

    def tid(self, task: t.Task) -> int:
        """The number of a task's state."""
        known = self._tids.get(task)
        if known is None:
            known = self._tids[task] = len(self.task)
            self.task.append(task)
        return known

    def kid(self, key: t.Key) -> int:
        """The number of a shared key's state."""
        known = self._kids.get(key)
        if known is None:
            known = self._kids[key] = len(self.key)
            self.key.append(key)
        return known

    def _normal(self, x: e.Effect) -> e.Effect:
        subs = tuple(s if s.open or self.kept or not s.session else replace(s, session="") for s in x.sent)
        late = tuple(replace(f, result=None, reason="", at=0) for f in x.evidence)
        return replace(
            x, sent=subs, version=1, result=None, lost_at=0, evidence=late, asked_at=0, unavailable=min(1, x.unavailable),
            answered=x.answered and j.Answered(x.key, "", x.answered.stopped),
            word=x.word and replace(x.word, seq=0, lost_at=0),
            declined=x.declined and j.Disproved(x.key, 1, "", True),
            asked=x.asked and replace(x.asked, attempt=0, now=0),
            approvals=tuple(replace(a, now=0) for a in x.approvals),
        )  # fmt: skip

    def normal_task(self, x: t.Task) -> t.Task:
        """The same task without what nothing follows from."""
        crashes = min(x.crashes, self.crashes + 3) if self.crashes else 0
        return replace(
            x, version=1, seen=0, used=limits.NOTHING, why="", ending_why="", result=None, due=0, differed=None,
            suspended="suspended" if x.suspended else "", alone=x.alone and bool(self.crashes), crashes=crashes,
            failures=x.failures if self.failures else 0,
            effects=x.effects.update({key: self._normal(known) for key, known in x.effects.items()}),
        )  # fmt: skip

    def normal_key(self, x: t.Key) -> t.Key:
        """The same of a shared key."""
        return replace(x, version=1, effect=x.effect and self._normal(x.effect))

    def effect(self, tid: int, kid: int, k: int) -> e.Effect | None:
        """What is on record of key `k`."""
        if self.shared and k == 0:
            return self.key[kid].effect
        return self.task[tid].effects.get(KEYS[k])

    def facts(self, tid: int, kid: int) -> Facts:
        """What the explorer asks of a state."""
        known = self._facts.get((tid, kid))
        if known is None:
            known = self._facts[tid, kid] = self._read(self.task[tid], self.key[kid])
        return known

    def _read(self, task: t.Task, key: t.Key) -> Facts:
        subs = [(k, s) for k, name in enumerate(KEYS) if (x := task.effects.get(name)) for s in x.sent]
        mine = [(0, s) for s in key.effect.sent if s.task == task.id] if key.effect and self.shared else []
        sessions = {int(s.session[1:]) for _, s in (*subs, *mine) if s.session and (self.kept or (s.open and not s.fenced))}
        if task.session:
            sessions.add(int(task.session[1:]))
        ambiguous = [k for k in range(len(KEYS)) if (x := self._of(task, key, k)) and x.state is EffectState.AMBIGUOUS]
        opened = [k for k in range(len(KEYS)) if (x := self._of(task, key, k)) and x.open]
        return Facts(
            str(task.delivery), task.ended, bool(task.ending), bool(task.suspended),
            int(task.session[1:]) if task.session else -1, task.token, task.attempt,
            tuple(sorted({task.token, *(s.token for _, s in subs)})),
            tuple(sorted({task.attempt, *(s.attempt for _, s in (*subs, *mine))})),
            tuple(sorted(sessions)), tuple(ambiguous), tuple(opened),
        )  # fmt: skip

    def _of(self, task: t.Task, key: t.Key, k: int) -> e.Effect | None:
        if self.shared and k == 0:
            return key.effect if KEYS[0] in task.joined else None
        return task.effects.get(KEYS[k])

    # --- questions ---

    def ask(self, tid: int, kid: int, age: int, what: What) -> Answer:
        """What the shipped machine answers to `what`, in that age."""
        asked = (tid, kid, age, what)
        known = self._answers.get(asked)
        if known is None:
            known = self._answers[asked] = self._ask(tid, kid, age, what)
        return known

    def _ask(self, tid: int, kid: int, age: int, what: What) -> Answer:
        task, key = self.task[tid], self.key[kid]
        command = self._command(task, key, what, TIMES[age])
        mine: tuple[j.Happened, ...]
        others: tuple[j.Happened, ...] = ()
        shared = {KEYS[0]: key} if self.shared and KEYS[0] in task.joined else {}
        if self.shared and isinstance(command, e.EffectCommand) and command.key == KEYS[0]:
            both = t.decide_shared(key, task, command, shared, what[-1] if what[0] == "intend" else 0)
            if isinstance(both, Refusal):
                return Answer(tid, kid, str(both.code))
            mine, decision = both
            others = decision.events
        else:
            decided = t.decide(task, command, shared)
            if isinstance(decided, Refusal):
                return Answer(tid, kid, str(decided.code))
            decision, mine = decided, decided.events
            if isinstance(command, ENDS) and shared:
                gone = command if isinstance(command, t.LoseLease) else None
                others = t.lose_shared(
                    key, task.id, task.attempt, "", fenced=gone is not None, dead=gone is not None and gone.proof == "dead"
                )
        return self._answer(task, key, decision, mine, others, TIMES[age])

    def _answer(
        self, task: t.Task, key: t.Key, decision: e.Decision, mine: tuple[j.Happened, ...], others: tuple[j.Happened, ...],
        at: int,
    ) -> Answer:  # fmt: skip
        after, key_after = task, key
        for event in mine:
            after = t.apply(after, event, at)
        for event in others:
            key_after = t.apply_key(key_after, event, at)
        events = (*mine, *others)
        opened = next((event for event in events if isinstance(event, j.Intended)), None)
        moved = tuple(sorted({KEYS.index(event.key) for event in events if isinstance(event, j.OfEffect)}))
        known = decision.recorded
        return Answer(
            self.tid(self.normal_task(after)), self.kid(self.normal_key(key_after)), "",
            tuple(event.kind for event in events), opened.n if opened else 0, opened.token if opened else 0,
            known is not None, known is not None and known.declined is not None and not known.confirmed,
            self._wrong(task, key, events), moved,
            tuple((KEYS.index(event.key), event.n) for event in events if isinstance(event, j.Disproved)),
            tuple(KEYS.index(event.key) for event in events if isinstance(event, j.Found) and event.verdict == "not_found"),
        )  # fmt: skip

    def _wrong(self, task: t.Task, key: t.Key, events: tuple[j.Happened, ...]) -> str:
        """What the promise says against these events, whatever the world looks like."""
        for event in events:
            if isinstance(event, j.Intended):
                others = [k for k in range(len(KEYS)) if KEYS[k] != event.key and _lost(self._of(task, key, k))]
                if others and not event.again:
                    return f"a new intent of {event.key} while {KEYS[others[0]]} is unknown"
                known = key.effect if self.shared and event.key == KEYS[0] else task.effects.get(event.key)
                if known is not None and any(s.token > event.token for s in known.sent):
                    return f"the token of {event.key} falls"
                if self.shared and event.key == KEYS[0] and known is not None and any(s.token == event.token for s in known.sent):
                    return f"two submissions of {event.key} have one token"
            if isinstance(event, j.Claimed) and event.token <= task.token:
                return "a claim does not raise the token"
        return ""

    def _command(self, task: t.Task, key: t.Key, what: What, at: int) -> Any:
        kind, *said = what
        if kind == "claim":
            sid, epoch, direct = said
            return t.Claim(f"s{sid}", epoch, at + LONG, self.failures or MANY, self.crashes or MANY, direct=direct)
        if kind == "intend":
            k, sid, again, doubt, words, unfenced, attempt, token, _ = said
            known = self.effect(self.tid(task), self.kid(key), k)
            recorded = known if again else None
            return e.Intend(
                KEYS[k], NAMES[k], recorded.args if recorded else words, recorded.digest if recorded else words, "m",
                task.id, attempt, token, f"s{sid}", recovery=tuple(str(rung) for rung in self.ladders[k]), unfenced=unfenced,
                again=again, doubt=_doubt(task if k or not self.shared else None, doubt), approvers=self.approvers, at=at,
            )  # fmt: skip
        return COMMANDS[kind](at, *said)

    def born(self, index: int, epoch: int, doubt: bool) -> int:
        """A task that has just been accepted."""
        event = j.Enqueued(f"t{index}", "bill", f"inv_{index}", None, due=0, epoch=epoch, doubt=doubt)
        return self.tid(self.normal_task(t.apply(t.Task(), event, START)))

    def move(self, tid: int, kid: int, age: int, k: int, waited: int, start: int = 0) -> recovery.Move:
        """The shipped ladder's next move about an unknown."""
        asked = (tid, kid, age, k, waited, start)
        known = self._moves.get(asked)
        if known is None:
            effect = self.effect(tid, kid, k)
            assert effect is not None
            now = TIMES[age]
            known = recovery.next_move(effect, self.ladders[k], recovery.Facts(now, now, waited), start)
            self._moves[asked] = known
        return known

    # --- counting anew ---

    def renamed(
        self, tid: int, kid: int, tokens: dict[int, int], attempts: tuple[dict[int, int], ...], sessions: tuple[int, ...],
        key_tokens: dict[int, int],
    ) -> tuple[int, int]:  # fmt: skip
        """The state with its tokens, attempts and sessions counted anew. sessions: by old number, the new one; -1: forgotten."""
        mark = (tid, kid, tuple(tokens.items()), tuple(tuple(a.items()) for a in attempts), sessions, tuple(key_tokens.items()))
        known = self._named.get(mark)
        if known is None:
            task, key = self.task[tid], self.key[kid]
            if task.id:
                own = attempts[int(task.id[1:])]
                task = replace(
                    task, token=tokens[task.token], attempt=own[task.attempt], session=_moved(task.session, sessions),
                    effects=task.effects.update({
                        name: _renamed(x, tokens, attempts, sessions) for name, x in task.effects.items()
                    }),
                )  # fmt: skip
            if key.effect is not None and key_tokens:
                key = replace(
                    key, token=key_tokens[key.token], effect=_renamed(key.effect, key_tokens, attempts, sessions)
                )  # fmt: skip
            known = self._named[mark] = self.tid(task), self.kid(key)
        return known

    def feature(self, tid: int, kid: int, sid: int) -> tuple[Any, ...]:
        """What a state says of a session, by which alike workers are put in order."""
        known = self._feats.get((tid, kid, sid))
        if known is None:
            task, key, name = self.task[tid], self.key[kid], f"s{sid}"
            subs = [(k, s.n) for k in range(len(KEYS)) if (x := task.effects.get(KEYS[k])) for s in x.sent if s.session == name]
            if key.effect is not None:
                subs += [(9, s.n) for s in key.effect.sent if s.session == name]
            known = self._feats[tid, kid, sid] = (task.session != name, tuple(subs))
        return known


def _lost(x: e.Effect | None) -> bool:
    return x is not None and any(s.open and s.lost for s in x.sent)


def _doubt(task: t.Task | None, doubt: tuple[int, bool] | None) -> e.Doubt | None:
    """R20: what the shipped epoch says of it, if the store was restored to that age; unfenced: by what nothing could stop."""
    if doubt is None:
        return None
    epoch = epochs.Epoch(NEW_EPOCH, "x", TIMES[doubt[0]], doubtful=True, window=True)
    found = epoch.doubt(task)
    return found and replace(found, unfenced=doubt[1])


def _moved(session: str, sessions: tuple[int, ...]) -> str:
    if not session:
        return ""
    new = sessions[int(session[1:])]
    return f"s{new}" if new >= 0 else ""


def _renamed(x: e.Effect, tokens: dict[int, int], attempts: tuple[dict[int, int], ...], sessions: tuple[int, ...]) -> e.Effect:
    sent = tuple(
        replace(
            s, token=tokens[s.token], attempt=attempts[int(s.task[1:])][s.attempt], session=_moved(s.session, sessions)
        )
        for s in x.sent
    )  # fmt: skip
    return replace(x, sent=sent)


def counted(tokens: set[int]) -> dict[int, int]:
    """Tokens counted anew: within each epoch from 1 on, in their order. 0 stays 0."""
    found: dict[int, int] = {}
    last: dict[int, int] = {}
    for token in sorted(tokens):
        epoch = token >> SHIFT
        if token:
            last[epoch] = last.get(epoch, 0) + 1
        found[token] = epoch << SHIFT | last.get(epoch, 0) if token else 0
    return found


def ranked(numbers: set[int]) -> dict[int, int]:
    """Attempts counted anew, in their order. 0 stays 0."""
    order = sorted(numbers - {0})
    return {0: 0, **{number: place for place, number in enumerate(order, 1)}}

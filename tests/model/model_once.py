"""The protocol of one effect, as docs/design.md has it, for z3. Written from the design alone; it shares no line with the code.

One relation, `actions`, is read in two ways. With uninterpreted sorts it speaks of any number of sessions, submissions and
askers (`model_proof.py` shows that an invariant of it is inductive); with a few concrete ones it is unrolled step by step
(`model_search.py` looks for traces). Each rule is a Boolean: what it guards is free when the rule is taken out.

What is modelled: tokens and claims at any moment (a lease lost, a cancel, a replay: none of them is a fence), compare-and-set on
the version that was read, submissions and which are open, code that ends, crashes at any step, freezes (nobody need ever do
anything), beats that land late or whose answer is lost, fences by a watched beat or proof of death, the kernel timer, requests
on the way until `DELAY` after their sender has gone, lost requests and replies, definite refusals, lookups and persons who tell
the truth of the moment at which they look and whose word lands later, resends, and a provider that remembers the key for a while.

What is not: more than one effect of a task (the invariant between effects), epochs and restores, clocks that disagree (R13's
other half), approvals, identity, children and forks. The explorer and the simulation look at those in the shipped code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import z3
from z3 import And, If, Implies, Not, Or

CLEAN, SUBMITTED, AMBIGUOUS, CONFIRMED = range(4)  # the states of an effect; clean: (none) or not_attempted
WAITING, CALLING, GONE = range(3)  # the code of a submission: its intent is durable; armed, checked, called; ended or killed

# What may be taken out, and what it does. `assumption`s are not semel's to keep: they are the limits that the docs state.
RULES = {
    "compare-and-set": "R5: an intent lands only on the version that it was decided on",
    "own submission": "R1: a disproof closes only its own submission",
    "settle": "R4: not_found is believed only settle after the facts",
    "ended or fenced": "R4: every open submission has ended, or its session is fenced",
    "unfenced": "R4: a sender without the watchdog is recorded unfenced, and a fence says nothing of it",
    "whole lease": "R14: a beat is watched standing still for the whole TTL",
    "sending": "R15: the deadline counts from the sending of the acknowledged beat, and is less than a TTL",
    "watchdog": "R16: the kernel timer kills what has not ended at the local deadline",
    "check": "R16: after arming, the deadline is checked before the call",
    "retention": "R13: a resend lies inside the provider's retention",
    "margin": "R13: less a margin, which covers what code may outlive its time by, and the way to the provider",
    "stale view": "R21: a verdict lands only on the version that was seen",
    "one request": "R12: one submission, one request",
    "within": "R13: a provider remembers keys for longer than an earlier try may take that still runs",
    "unpaused": "assumption: with a keyed provider, no sender outlives its time by more than its lease allows",
}

SCALARS = ("now", "status", "version", "acts", "acted_at", "clean_since", "token", "lost_at")
OF_SESSION = ("dead", "fenced", "by_proof", "fenced_at", "landed", "beat_sent", "deadline", "holds", "read")
OF_SUBMISSION = (
    "exists", "open", "ended", "ended_at", "code", "gone_at", "sent", "flying", "acted", "answered", "refused", "due",
    "word", "word_at",
)  # fmt: skip
OF_ASKER = ("not_found",)
BOOLEANS = {"dead", "fenced", "by_proof", "exists", "open", "ended", "sent", "flying", "acted", "answered", "refused", "word"}
KINDS = {"session": OF_SESSION, "submission": OF_SUBMISSION, "asker": OF_ASKER}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}

Expr = Any  # of z3, which has no types to speak of
YES, NO = z3.BoolVal(True), z3.BoolVal(False)


class Times:
    """Durations, any that fit. 0 <= delay < settle, and so on: `fit` says what the promise needs of them."""

    def __init__(self) -> None:
        names = ("ttl", "lease", "delay", "settle", "remembers", "within", "margin", "timeout", "outlive")
        self.ttl, self.lease, self.delay, self.settle = (z3.Int(name) for name in names[:4])
        self.remembers, self.within, self.margin, self.timeout, self.outlive = (z3.Int(name) for name in names[4:])

    def fit(self, rule: Mapping[str, Expr]) -> Expr:
        """lease: 3/4 TTL. outlive: how long code may act after its time is over (it stops the beats, then the timer kills it)."""
        return And(
            self.lease > 0, self.lease < self.ttl, self.delay >= 0, self.settle > self.delay, self.timeout > 0, self.outlive >= 0,
            self.within <= self.remembers, self.margin > self.outlive + self.delay,
            Or(Not(rule["within"]), self.timeout + self.outlive + self.delay < self.remembers),
        )  # fmt: skip

    def concrete(self, rule: Mapping[str, Expr]) -> Expr:
        """The smallest that make a difference, for a search."""
        values = (4, 3, 1, 2, 12, 12, 3, If(rule["within"], z3.IntVal(3), z3.IntVal(20)), 1)
        names = (
            self.ttl,
            self.lease,
            self.delay,
            self.settle,
            self.remembers,
            self.within,
            self.margin,
            self.timeout,
            self.outlive,
        )
        return And([name == value for name, value in zip(names, values, strict=True)])


@dataclass(frozen=True)
class State:
    """One moment: `of(name)` is a number or truth, `of(name, who)` one of a session, submission or asker."""

    of: Callable[..., Expr]


@dataclass(frozen=True)
class Domain:
    """Who there is: `every(kind, body)` is body of each one, `same` whether two are one, `session` whose a submission is."""

    every: Callable[[str, Callable[[Any], Expr]], Expr]
    same: Callable[[Any, Any], Expr]
    session: Callable[[Any], Any]
    timer: Callable[[Any], Expr]  # whether the session's process has the kernel timer
    keyed: Expr  # whether the provider remembers keys; else it acts on whatever it gets
    rule: Mapping[str, Expr]
    times: Times

    def some(self, kind: str, body: Callable[[Any], Expr]) -> Expr:
        return Not(self.every(kind, lambda one: Not(body(one))))


@dataclass
class Action:
    """What may happen: when, and what it changes. Whatever is not named stays as it is."""

    label: str
    guard: Expr
    change: dict[str, Expr] = field(default_factory=dict)  # of scalars
    one: dict[str, tuple[Any, Expr]] = field(default_factory=dict)  # name -> (who, its new value)
    many: dict[str, Callable[[Any], Expr]] = field(default_factory=dict)  # name -> each one's new value


def may_act(d: Domain, s: State, x: Any) -> Expr:
    """Whether the world may still change by this submission, now or later. (A fence is past the deadline: `check` stops it.)"""
    return And(
        s.of("exists", x),
        Or(
            And(s.of("code", x) == WAITING, Not(s.of("fenced", d.session(x)))),
            And(s.of("code", x) == CALLING, Or(Not(s.of("sent", x)), s.of("flying", x))),
            And(s.of("code", x) == GONE, s.of("flying", x), s.of("now") <= s.of("gone_at", x) + d.times.delay),
        ),
    )


def quiet(d: Domain, s: State, x: Any) -> Expr:
    """R4: this open submission has ended, its session is fenced, or a person says that it has stopped; and settle is over."""
    fenced = And(s.of("fenced", d.session(x)), Or(d.timer(d.session(x)), s.of("by_proof", d.session(x)), Not(d.rule["unfenced"])))
    facts = (
        (s.of("ended", x), s.of("ended_at", x)),
        (fenced, s.of("fenced_at", d.session(x))),
        (s.of("word", x), s.of("word_at", x)),
    )
    return Or([And(fact, settled(d, s, since)) for fact, since in facts])


def settled(d: Domain, s: State, since: Expr) -> Expr:
    return Or(Not(d.rule["settle"]), s.of("now") >= since + d.times.settle)


def sessions(d: Domain, s: State, w: Any, t: Expr) -> Iterable[Action]:
    """Beats, fences, death; claims and reads. t: a time that the action may choose."""
    of, times = s.of, d.times
    living = And(Not(of("dead", w)), Not(of("fenced", w)))
    # also one of a process that has died since: it was on its way
    yield Action("a beat of {w} lands", And(Not(of("fenced", w)), of("beat_sent", w) <= t, t <= of("now")),
                 one={"beat_sent": (w, t), "landed": (w, of("now"))})  # fmt: skip
    acknowledged = If(d.rule["sending"], of("beat_sent", w) + times.lease, of("now") + times.ttl)
    yield Action("{w} has the answer to its beat", And(Not(of("dead", w)), of("deadline", w) <= acknowledged),
                 one={"deadline": (w, acknowledged)})  # fmt: skip
    stood_still = Or(Not(d.rule["whole lease"]), of("now") >= of("landed", w) + times.ttl)
    yield Action("{w} is fenced: its beat was watched standing still", And(Not(of("fenced", w)), stood_still),
                 one={"fenced": (w, YES), "fenced_at": (w, of("now"))})  # fmt: skip
    yield Action("{w} is fenced: its process is proved dead", And(Not(of("fenced", w)), of("dead", w)),
                 one={"fenced": (w, YES), "by_proof": (w, YES), "fenced_at": (w, of("now"))})  # fmt: skip

    def killed(x: Any) -> Expr:
        return And(d.same(d.session(x), w), of("exists", x), of("code", x) != GONE)

    yield Action("{w} is killed", Not(of("dead", w)), one={"dead": (w, YES)}, many={
        "code": lambda x: If(killed(x), z3.IntVal(GONE), of("code", x)),
        "gone_at": lambda x: If(killed(x), of("now"), of("gone_at", x))})  # fmt: skip
    taken = If(of("status") == SUBMITTED, z3.IntVal(AMBIGUOUS), of("status"))
    yield Action("{w} claims the task (what was submitted is ambiguous)", living, one={"holds": (w, of("token") + 1)},
                 change={"token": of("token") + 1, "version": of("version") + 1, "status": taken,
                         "lost_at": If(of("status") == SUBMITTED, of("now"), of("lost_at"))})  # fmt: skip
    yield Action("{w} reads that the effect is not_attempted", And(Not(of("dead", w)), of("status") == CLEAN),
                 one={"read": (w, of("version"))})  # fmt: skip


def sendings(d: Domain, s: State, x: Any) -> Iterable[Action]:
    """A submission: intent, arm and check, the request, the code's end."""
    of, times, w = s.of, d.times, d.session(x)
    holder = And(Not(of("dead", w)), Not(of("fenced", w)), Not(of("exists", x)), of("holds", w) > 0)
    fresh: dict[str, tuple[Any, Expr]] = {
        "exists": (x, YES),
        "open": (x, YES),
        "code": (x, z3.IntVal(WAITING)),
    }
    on_version = And(of("read", w) == of("version"), of("status") == CLEAN, of("holds", w) == of("token"))
    lands = Or(on_version, And(Not(d.rule["compare-and-set"]), of("read", w) > 0, of("status") != CONFIRMED))
    yield Action("{w} intends the effect: {x} is open", And(holder, lands),
                 change={"status": z3.IntVal(SUBMITTED), "version": of("version") + 1, "clean_since": of("now")},
                 one={**fresh, "due": (x, of("now") + times.timeout)})  # fmt: skip
    last = of("clean_since") + times.within - If(d.rule["margin"], times.margin, z3.IntVal(0))
    cap = If(And(d.rule["retention"], last < of("now") + times.timeout), last, of("now") + times.timeout)
    inside = Or(Not(d.rule["retention"]), of("now") < last)
    again = And(holder, d.keyed, of("status") == AMBIGUOUS, of("holds", w) == of("token"), inside)
    yield Action("{w} sends again with the same key: {x} is open", again, one={**fresh, "due": (x, cap)},
                 change={"status": z3.IntVal(SUBMITTED), "version": of("version") + 1})  # fmt: skip
    alive = And(of("exists", x), Not(of("dead", w)))
    in_time = Or(Not(d.rule["check"]), And(of("now") < of("deadline", w), of("now") < of("due", x)))
    yield Action("{w} arms the timer, checks, and calls {x}", And(alive, of("code", x) == WAITING, in_time),
                 one={"code": (x, z3.IntVal(CALLING))})  # fmt: skip
    once = Or(Not(d.rule["one request"]), Not(of("sent", x)))
    yield Action("the request of {x} goes out", And(alive, of("code", x) == CALLING, once, Not(of("flying", x))),
                 one={"sent": (x, YES), "flying": (x, YES)})  # fmt: skip
    yield Action("the code of {x} ends", And(alive, of("code", x) != GONE),
                 one={"code": (x, z3.IntVal(GONE)), "gone_at": (x, of("now"))})  # fmt: skip


def deliveries(d: Domain, s: State, x: Any) -> Iterable[Action]:
    """The provider and the network."""
    of, times = s.of, d.times
    there = And(of("exists", x), of("flying", x))
    there = And(there, Or(of("code", x) == CALLING, of("now") <= of("gone_at", x) + times.delay))
    known = And(d.keyed, of("acts") > 0, of("now") < of("acted_at") + times.remembers)
    arrived: dict[str, tuple[Any, Expr]] = {"flying": (x, NO), "answered": (x, YES)}
    yield Action("the provider acts on {x}", And(there, Not(known)), one={**arrived, "acted": (x, YES)},
                 change={"acts": of("acts") + 1, "acted_at": of("now")})  # fmt: skip
    yield Action("the provider knows the key of {x}, and answers as before", And(there, known), one=arrived)
    yield Action("the provider refuses {x} for good", there, one={"flying": (x, NO), "refused": (x, YES)})
    yield Action("the request of {x} is lost", there, one={"flying": (x, NO)})


def records(d: Domain, s: State, x: Any) -> Iterable[Action]:
    """What a sender puts on record of its submission, whatever its token is by now (R2: as evidence, which is read first)."""
    of, w = s.of, d.session(x)
    tells = And(of("exists", x), Not(of("dead", w)))
    unsettled = And(of("open", x), Or(of("status") == SUBMITTED, of("status") == AMBIGUOUS))
    yield Action("{x} is confirmed by its reply", And(tells, of("answered", x), unsettled),
                 change={"status": z3.IntVal(CONFIRMED), "version": of("version") + 1})  # fmt: skip
    proof = And(of("code", x) == GONE, Or(Not(of("sent", x)), of("refused", x)))
    others = And(d.rule["own submission"], d.some("submission", lambda y: And(of("open", y), Not(d.same(x, y)))))
    yield Action("{x} is disproved", And(tells, unsettled, proof), change={
        "status": If(others, z3.IntVal(AMBIGUOUS), z3.IntVal(CLEAN)), "version": of("version") + 1, "lost_at": of("now")},
        many={"open": lambda y: And(of("open", y), d.rule["own submission"], Not(d.same(x, y)))})  # fmt: skip
    yield Action("it is recorded that the code of {x} has ended", And(tells, of("code", x) == GONE, Not(of("ended", x))),
                 one={"ended": (x, YES), "ended_at": (x, of("now"))})  # fmt: skip
    stopped = And(of("exists", x), of("code", x) == GONE, Not(of("word", x)))
    yield Action("a person says that the process of {x} has stopped", stopped,
                 one={"word": (x, YES), "word_at": (x, of("now"))})  # fmt: skip


def asking(d: Domain, s: State, a: Any) -> Iterable[Action]:
    """A lookup or a person: what is there at this moment. It lands later, if what was seen still stands."""
    of = s.of
    every = d.every("submission", lambda x: Implies(of("open", x), quiet(d, s, x)))
    may_believe = And(settled(d, s, of("lost_at")), Or(Not(d.rule["ended or fenced"]), every))
    yield Action("{a} looks: there is nothing", And(of("status") == AMBIGUOUS, of("acts") == 0, may_believe),
                 one={"not_found": (a, of("version"))})  # fmt: skip
    yield Action("{a} looks: it is there; confirmed", And(of("status") == AMBIGUOUS, of("acts") > 0),
                 change={"status": z3.IntVal(CONFIRMED), "version": of("version") + 1})  # fmt: skip
    stands = Or(of("not_found", a) == of("version"), And(Not(d.rule["stale view"]), of("not_found", a) > 0))
    yield Action("{a} is believed: not_attempted", And(of("status") == AMBIGUOUS, stands),
                 change={"status": z3.IntVal(CLEAN), "version": of("version") + 1}, one={"not_found": (a, z3.IntVal(0))},
                 many={"open": lambda x: NO})  # fmt: skip


def passing(d: Domain, s: State, t: Expr) -> Iterable[Action]:
    """Time. It does not pass beyond the moment at which the kernel timer kills, unless what it kills is gone."""
    of, times = s.of, d.times

    def allows(x: Any) -> Expr:
        calling = And(of("exists", x), of("code", x) == CALLING)
        kills = And(calling, d.rule["watchdog"], d.timer(d.session(x)))
        bounded = And(calling, d.keyed, d.rule["unpaused"])
        return And(Implies(kills, t <= of("deadline", d.session(x))), Implies(bounded, t <= of("due", x) + times.outlive))

    yield Action("time passes to {t}", And(t > of("now"), d.every("submission", allows)), change={"now": t})
    yield Action("no answer in time: the submission is lost, ambiguous", of("status") == SUBMITTED,
                 change={"status": z3.IntVal(AMBIGUOUS), "version": of("version") + 1, "lost_at": of("now")})  # fmt: skip


def begins(d: Domain, s: State) -> Expr:
    """Before anything: sessions have been opened, which is a beat that was answered."""
    of = s.of
    zeros = {kind: [name for name in names if name != "deadline"] for kind, names in KINDS.items()}
    zero = [of(name) == 0 for name in SCALARS if name not in ("version", "now")]
    return And(
        *zero,
        of("version") == 1,
        of("now") == 0,
        d.every("session", lambda w: of("deadline", w) == d.times.lease),
        *(
            d.every(kind, lambda one, names=names: And([Not(of(n, one)) if n in BOOLEANS else of(n, one) == 0 for n in names]))
            for kind, names in zeros.items()
        ),
    )


def promises(d: Domain, s: State) -> dict[str, Expr]:
    """What must hold in every state."""
    of = s.of
    return {
        "the world changes at most once": of("acts") <= 1,
        "what is not_attempted has not happened, and nobody can make it happen": Implies(
            of("status") == CLEAN, And(of("acts") == 0, d.every("submission", lambda x: Not(may_act(d, s, x))))
        ),
        "what is confirmed has happened": Implies(of("status") == CONFIRMED, of("acts") > 0),
    }


def invariant(d: Domain, s: State) -> dict[str, Expr]:
    """The promises, and what makes them inductive."""
    of, times = s.of, d.times

    def of_submissions(body: Callable[[Any], Expr]) -> Expr:
        return d.every("submission", body)

    def of_sessions(body: Callable[[Any], Expr]) -> Expr:
        return d.every("session", body)

    def gone(x: Any) -> Expr:
        return And(of("exists", x), of("code", x) == GONE)

    kept = times.timeout, times.within - times.margin
    return {
        **promises(d, s),
        "numbers": And(of("status") >= 0, of("status") <= 3, of("acts") >= 0, of("version") >= 1, of("clean_since") <= of("now"),
                          of("lost_at") <= of("now"), of("acted_at") <= of("now"), of("token") >= 0),
        "codes": of_submissions(lambda x: And(of("code", x) >= WAITING, of("code", x) <= GONE)),
        "nothing of what does not exist": of_submissions(lambda x: Implies(Not(of("exists", x)), Not(Or(
            of("open", x), of("sent", x), of("flying", x), of("acted", x), of("answered", x), of("ended", x), of("word", x),
            of("refused", x))))),
        "what waits was not sent": of_submissions(lambda x: Implies(of("code", x) == WAITING, Not(of("sent", x)))),
        "what flies was sent": of_submissions(lambda x: Implies(Or(of("flying", x), of("refused", x)), of("sent", x))),
        "what was refused does not fly": of_submissions(lambda x: Implies(of("refused", x), Not(of("flying", x)))),
        "what acted was sent, and neither flies nor was refused": of_submissions(lambda x: Implies(
            of("acted", x), And(of("sent", x), Not(of("flying", x)), Not(of("refused", x))))),
        "what happened is held open until it is confirmed": Implies(
            And(of("acts") > 0, of("status") != CONFIRMED),
            d.some("submission", lambda x: And(of("open", x), of("acted", x)))),
        "past times": of_submissions(lambda x: And(Implies(gone(x), of("gone_at", x) <= of("now")),
                                                      of("ended_at", x) <= of("now"), of("word_at", x) <= of("now"))),
        "past times of sessions": of_sessions(lambda w: And(of("landed", w) <= of("now"), of("fenced_at", w) <= of("now"))),
        "beats land after they are sent": of_sessions(lambda w: of("beat_sent", w) <= of("landed", w)),
        "a deadline is of a landed beat": of_sessions(lambda w: of("deadline", w) <= of("landed", w) + times.lease),
        "a fence comes after the lease": of_sessions(lambda w: Implies(And(of("fenced", w), Not(of("by_proof", w))),
                                                                          of("fenced_at", w) >= of("landed", w) + times.ttl)),
        "proof is proof": of_sessions(lambda w: Implies(of("by_proof", w), And(of("dead", w), of("fenced", w)))),
        "the dead do nothing": of_submissions(lambda x: Implies(
            And(of("exists", x), of("dead", d.session(x))), of("code", x) == GONE)),
        "the timer has killed whoever is past the deadline": of_submissions(lambda x: Implies(
            And(of("exists", x), of("code", x) == CALLING, d.timer(d.session(x))), of("now") <= of("deadline", d.session(x)))),
        "whoever is fenced had gone": of_submissions(lambda x: Implies(
            And(gone(x), of("sent", x), of("fenced", d.session(x)), Or(d.timer(d.session(x)), of("by_proof", d.session(x)))),
            of("gone_at", x) <= of("fenced_at", d.session(x)))),
        "what is recorded to have ended has": of_submissions(lambda x: Implies(
            of("ended", x), And(gone(x), of("gone_at", x) <= of("ended_at", x)))),
        "what a person says has stopped has": of_submissions(lambda x: Implies(
            of("word", x), And(gone(x), of("gone_at", x) <= of("word_at", x)))),
        "an answer is of an act": of_submissions(lambda x: Implies(of("answered", x), of("acts") > 0)),
        "clean: none is open": Implies(of("status") == CLEAN, of_submissions(lambda x: Not(of("open", x)))),
        "what is closed is over": of_submissions(lambda x: Implies(
            And(of("exists", x), Not(of("open", x))), Not(may_act(d, s, x)))),
        "one is open at a time, unless the provider knows keys": Or(d.keyed, of_submissions(lambda x: of_submissions(
            lambda y: Implies(And(of("open", x), of("open", y)), d.same(x, y))))),
        "after the act nobody can act, unless the provider knows keys": Or(d.keyed, of("acts") == 0, of_submissions(
            lambda x: Not(may_act(d, s, x)))),
        "no not_found is of the future": d.every("asker", lambda a: of("not_found", a) <= of("version")),
        "a not_found that stands is true for good": d.every("asker", lambda a: Implies(of("not_found", a) == of("version"), And(
            of("status") == AMBIGUOUS, of("acts") == 0,
            of_submissions(lambda x: Implies(of("open", x), Not(may_act(d, s, x))))))),
        "keyed: whoever may act has a time inside the retention": Implies(d.keyed, of_submissions(lambda x: Implies(
            may_act(d, s, x), Or([of("due", x) <= of("clean_since") + one for one in kept])))),
        "keyed: nobody outlives it": Implies(d.keyed, of_submissions(lambda x: And(
            Implies(And(of("exists", x), of("code", x) == CALLING), of("now") <= of("due", x) + times.outlive),
            Implies(And(gone(x), of("sent", x)), of("gone_at", x) <= of("due", x) + times.outlive)))),
        "keyed: the provider remembers from when it acted": Implies(
            And(d.keyed, of("acts") > 0), of("acted_at") >= of("clean_since")),
    }  # fmt: skip

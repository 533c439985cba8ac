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
    "unpaused": "assumption: with a keyed provider, no sender outlives its time by more than its lease allows",
}

SCALARS = ("now", "status", "version", "acts", "acted_at", "clean_since", "token", "lost_at")
OF_SESSION = ("dead", "fenced", "by_proof", "fenced_at", "landed", "beat_sent", "deadline", "holds", "read")
OF_SUBMISSION = (
    "exists", "open", "ended", "ended_at", "code", "gone_at", "sent", "flying", "acted", "answered", "refused", "due", "word", "word_at",
)  # fmt: skip
OF_ASKER = ("not_found",)
BOOLEANS = {"dead", "fenced", "by_proof", "exists", "open", "ended", "sent", "flying", "acted", "answered", "refused", "word"}
KINDS = {"session": OF_SESSION, "submission": OF_SUBMISSION, "asker": OF_ASKER}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}

Expr = Any  # of z3, which has no types to speak of


class Times:
    """Durations, any that fit. 0 <= delay < settle, and so on: `fit` says what the promise needs of them."""

    def __init__(self) -> None:
        names = ("ttl", "lease", "delay", "settle", "remembers", "within", "margin", "timeout", "outlive")
        self.ttl, self.lease, self.delay, self.settle = (z3.Int(name) for name in names[:4])
        self.remembers, self.within, self.margin, self.timeout, self.outlive = (z3.Int(name) for name in names[4:])

    def fit(self) -> Expr:
        """lease: 3/4 TTL. outlive: how long code may act after its time is over (it stops the beats, then the timer kills it)."""
        return z3.And(
            self.lease > 0, self.lease < self.ttl, self.delay >= 0, self.settle > self.delay, self.timeout > 0, self.outlive >= 0,
            self.within <= self.remembers, self.margin > self.outlive + self.delay,
            self.timeout + self.outlive + self.delay < self.remembers,
        )  # fmt: skip

    def concrete(self) -> Expr:
        """The smallest that make a difference, for a search."""
        values = (4, 3, 1, 2, 12, 12, 3, 3, 1)
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
        return z3.And([name == value for name, value in zip(names, values, strict=True)])


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
        return z3.Not(self.every(kind, lambda one: z3.Not(body(one))))


@dataclass
class Action:
    """What may happen: when, and what it changes. `of` and `by`: the submission (session, asker) that it is of, else None."""

    label: str
    guard: Expr
    change: dict[str, Expr] = field(default_factory=dict)  # of scalars
    one: dict[str, tuple[Any, Expr]] = field(default_factory=dict)  # name -> (who, its new value)
    many: dict[str, Callable[[Any], Expr]] = field(default_factory=dict)  # name -> each one's new value
    asks: Any = None  # the time that it is about, for those that have one


def may_act(d: Domain, s: State, x: Any) -> Expr:
    """Whether the world may still change by this submission, now or later. (A fence is past the deadline: `check` stops it.)"""
    return z3.And(
        s.of("exists", x),
        z3.Or(
            z3.And(s.of("code", x) == WAITING, z3.Not(s.of("fenced", d.session(x)))),
            z3.And(s.of("code", x) == CALLING, z3.Or(z3.Not(s.of("sent", x)), s.of("flying", x))),
            z3.And(s.of("code", x) == GONE, s.of("flying", x), s.of("now") <= s.of("gone_at", x) + d.times.delay),
        ),
    )


def quiet(d: Domain, s: State, x: Any) -> Expr:
    """R4: this open submission has ended, its session is fenced, or a person says that it has stopped; and settle is over."""
    fenced = z3.And(
        s.of("fenced", d.session(x)), z3.Or(d.timer(d.session(x)), s.of("by_proof", d.session(x)), z3.Not(d.rule["unfenced"]))
    )
    facts = (
        (s.of("ended", x), s.of("ended_at", x)),
        (fenced, s.of("fenced_at", d.session(x))),
        (s.of("word", x), s.of("word_at", x)),
    )
    return z3.Or([z3.And(fact, settled(d, s, since)) for fact, since in facts])


def settled(d: Domain, s: State, since: Expr) -> Expr:
    return z3.Or(z3.Not(d.rule["settle"]), s.of("now") >= since + d.times.settle)


def sessions(d: Domain, s: State, w: Any, t: Expr) -> Iterable[Action]:
    """Beats, fences, death; claims and reads. t: a time that the action may choose."""
    of, times = s.of, d.times
    living = z3.And(z3.Not(of("dead", w)), z3.Not(of("fenced", w)))
    yield Action("a beat of {w} lands", z3.And(living, of("beat_sent", w) <= t, t <= of("now")),
                 one={"beat_sent": (w, t), "landed": (w, of("now"))}, asks=t)  # fmt: skip
    acknowledged = z3.If(d.rule["sending"], of("beat_sent", w) + times.lease, of("now") + times.ttl)
    yield Action("{w} has the answer to its beat", z3.And(z3.Not(of("dead", w)), of("deadline", w) <= acknowledged),
                 one={"deadline": (w, acknowledged)})  # fmt: skip
    stood_still = z3.Or(z3.Not(d.rule["whole lease"]), of("now") >= of("landed", w) + times.ttl)
    yield Action("{w} is fenced: its beat was watched standing still", z3.And(z3.Not(of("fenced", w)), stood_still),
                 one={"fenced": (w, z3.BoolVal(True)), "fenced_at": (w, of("now"))})  # fmt: skip
    yield Action("{w} is fenced: its process is proved dead", z3.And(z3.Not(of("fenced", w)), of("dead", w)),
                 one={"fenced": (w, z3.BoolVal(True)), "by_proof": (w, z3.BoolVal(True)), "fenced_at": (w, of("now"))})  # fmt: skip

    def killed(x: Any) -> Expr:
        return z3.And(d.same(d.session(x), w), of("exists", x), of("code", x) != GONE)

    yield Action("{w} is killed", z3.Not(of("dead", w)), one={"dead": (w, z3.BoolVal(True))}, many={
        "code": lambda x: z3.If(killed(x), z3.IntVal(GONE), of("code", x)),
        "gone_at": lambda x: z3.If(killed(x), of("now"), of("gone_at", x))})  # fmt: skip
    taken = z3.If(of("status") == SUBMITTED, z3.IntVal(AMBIGUOUS), of("status"))
    yield Action("{w} claims the task (what was submitted is ambiguous)", living, one={"holds": (w, of("token") + 1)},
                 change={"token": of("token") + 1, "version": of("version") + 1, "status": taken,
                         "lost_at": z3.If(of("status") == SUBMITTED, of("now"), of("lost_at"))})  # fmt: skip
    yield Action("{w} reads that the effect is not_attempted", z3.And(z3.Not(of("dead", w)), of("status") == CLEAN),
                 one={"read": (w, of("version"))})  # fmt: skip


def sendings(d: Domain, s: State, x: Any) -> Iterable[Action]:
    """A submission: intent, arm and check, the request, the code's end."""
    of, times, w = s.of, d.times, d.session(x)
    holder = z3.And(z3.Not(of("dead", w)), z3.Not(of("fenced", w)), z3.Not(of("exists", x)), of("holds", w) > 0)
    fresh: dict[str, tuple[Any, Expr]] = {
        "exists": (x, z3.BoolVal(True)),
        "open": (x, z3.BoolVal(True)),
        "code": (x, z3.IntVal(WAITING)),
    }
    on_version = z3.And(of("read", w) == of("version"), of("status") == CLEAN, of("holds", w) == of("token"))
    lands = z3.Or(on_version, z3.And(z3.Not(d.rule["compare-and-set"]), of("read", w) > 0, of("status") != CONFIRMED))
    yield Action("{w} intends the effect: {x} is open", z3.And(holder, lands),
                 change={"status": z3.IntVal(SUBMITTED), "version": of("version") + 1, "clean_since": of("now")},
                 one={**fresh, "due": (x, of("now") + times.timeout)})  # fmt: skip
    last = of("clean_since") + times.within - z3.If(d.rule["margin"], times.margin, z3.IntVal(0))
    cap = z3.If(z3.And(d.rule["retention"], last < of("now") + times.timeout), last, of("now") + times.timeout)
    inside = z3.Or(z3.Not(d.rule["retention"]), of("now") < last)
    yield Action("{w} sends again with the same key: {x} is open", z3.And(holder, d.keyed, of("status") == AMBIGUOUS, of("holds", w) == of("token"), inside),
                 change={"status": z3.IntVal(SUBMITTED), "version": of("version") + 1}, one={**fresh, "due": (x, cap)})  # fmt: skip
    alive = z3.And(of("exists", x), z3.Not(of("dead", w)))
    in_time = z3.Or(z3.Not(d.rule["check"]), z3.And(of("now") < of("deadline", w), of("now") < of("due", x)))
    yield Action("{w} arms the timer, checks, and calls {x}", z3.And(alive, of("code", x) == WAITING, in_time),
                 one={"code": (x, z3.IntVal(CALLING))})  # fmt: skip
    once = z3.Or(z3.Not(d.rule["one request"]), z3.Not(of("sent", x)))
    yield Action("the request of {x} goes out", z3.And(alive, of("code", x) == CALLING, once, z3.Not(of("flying", x))),
                 one={"sent": (x, z3.BoolVal(True)), "flying": (x, z3.BoolVal(True))})  # fmt: skip
    yield Action("the code of {x} ends", z3.And(alive, of("code", x) != GONE),
                 one={"code": (x, z3.IntVal(GONE)), "gone_at": (x, of("now"))})  # fmt: skip


def deliveries(d: Domain, s: State, x: Any) -> Iterable[Action]:
    """The provider and the network."""
    of, times = s.of, d.times
    there = z3.And(of("exists", x), of("flying", x))
    there = z3.And(there, z3.Or(of("code", x) == CALLING, of("now") <= of("gone_at", x) + times.delay))
    known = z3.And(d.keyed, of("acts") > 0, of("now") < of("acted_at") + times.remembers)
    arrived: dict[str, tuple[Any, Expr]] = {"flying": (x, z3.BoolVal(False)), "answered": (x, z3.BoolVal(True))}
    yield Action("the provider acts on {x}", z3.And(there, z3.Not(known)), one={**arrived, "acted": (x, z3.BoolVal(True))},
                 change={"acts": of("acts") + 1, "acted_at": of("now")})  # fmt: skip
    yield Action("the provider knows the key of {x}, and answers as before", z3.And(there, known), one=arrived)
    yield Action(
        "the provider refuses {x} for good", there, one={"flying": (x, z3.BoolVal(False)), "refused": (x, z3.BoolVal(True))}
    )
    yield Action("the request of {x} is lost", there, one={"flying": (x, z3.BoolVal(False))})


def records(d: Domain, s: State, x: Any) -> Iterable[Action]:
    """What a sender puts on record of its submission, whatever its token is by now (R2: as evidence, which is read first)."""
    of, w = s.of, d.session(x)
    tells = z3.And(of("exists", x), z3.Not(of("dead", w)))
    unsettled = z3.And(of("open", x), z3.Or(of("status") == SUBMITTED, of("status") == AMBIGUOUS))
    yield Action("{x} is confirmed by its reply", z3.And(tells, of("answered", x), unsettled),
                 change={"status": z3.IntVal(CONFIRMED), "version": of("version") + 1})  # fmt: skip
    proof = z3.And(of("code", x) == GONE, z3.Or(z3.Not(of("sent", x)), of("refused", x)))
    others = z3.And(d.rule["own submission"], d.some("submission", lambda y: z3.And(of("open", y), z3.Not(d.same(x, y)))))
    yield Action("{x} is disproved", z3.And(tells, unsettled, proof), change={
        "status": z3.If(others, z3.IntVal(AMBIGUOUS), z3.IntVal(CLEAN)), "version": of("version") + 1, "lost_at": of("now")},
        many={"open": lambda y: z3.And(of("open", y), d.rule["own submission"], z3.Not(d.same(x, y)))})  # fmt: skip
    yield Action("it is recorded that the code of {x} has ended", z3.And(tells, of("code", x) == GONE, z3.Not(of("ended", x))),
                 one={"ended": (x, z3.BoolVal(True)), "ended_at": (x, of("now"))})  # fmt: skip
    yield Action("a person says that the process of {x} has stopped", z3.And(of("exists", x), of("code", x) == GONE, z3.Not(of("word", x))),
                 one={"word": (x, z3.BoolVal(True)), "word_at": (x, of("now"))})  # fmt: skip


def asking(d: Domain, s: State, a: Any) -> Iterable[Action]:
    """A lookup or a person: what is there at this moment. It lands later, if what was seen still stands."""
    of = s.of
    every = d.every("submission", lambda x: z3.Implies(of("open", x), quiet(d, s, x)))
    may_believe = z3.And(settled(d, s, of("lost_at")), z3.Or(z3.Not(d.rule["ended or fenced"]), every))
    yield Action("{a} looks: there is nothing", z3.And(of("status") == AMBIGUOUS, of("acts") == 0, may_believe),
                 one={"not_found": (a, of("version"))})  # fmt: skip
    yield Action("{a} looks: it is there; confirmed", z3.And(of("status") == AMBIGUOUS, of("acts") > 0),
                 change={"status": z3.IntVal(CONFIRMED), "version": of("version") + 1})  # fmt: skip
    stands = z3.Or(of("not_found", a) == of("version"), z3.And(z3.Not(d.rule["stale view"]), of("not_found", a) > 0))
    yield Action("{a} is believed: not_attempted", z3.And(of("status") == AMBIGUOUS, stands),
                 change={"status": z3.IntVal(CLEAN), "version": of("version") + 1}, one={"not_found": (a, z3.IntVal(0))},
                 many={"open": lambda x: z3.BoolVal(False)})  # fmt: skip


def passing(d: Domain, s: State, t: Expr) -> Iterable[Action]:
    """Time. It does not pass beyond the moment at which the kernel timer kills, unless what it kills is gone."""
    of, times = s.of, d.times

    def allows(x: Any) -> Expr:
        calling = z3.And(of("exists", x), of("code", x) == CALLING)
        kills = z3.And(calling, d.rule["watchdog"], d.timer(d.session(x)))
        bounded = z3.And(calling, d.keyed, d.rule["unpaused"])
        return z3.And(
            z3.Implies(kills, t <= of("deadline", d.session(x))), z3.Implies(bounded, t <= of("due", x) + times.outlive)
        )

    yield Action("time passes to {t}", z3.And(t > of("now"), d.every("submission", allows)), change={"now": t}, asks=t)
    yield Action("no answer in time: the submission is lost, ambiguous", of("status") == SUBMITTED,
                 change={"status": z3.IntVal(AMBIGUOUS), "version": of("version") + 1, "lost_at": of("now")})  # fmt: skip


def begins(d: Domain, s: State) -> Expr:
    """Before anything: sessions have been opened, which is a beat that was answered."""
    of = s.of
    zeros = {kind: [name for name in names if name != "deadline"] for kind, names in KINDS.items()}
    zero = [of(name) == 0 for name in SCALARS if name not in ("version", "now")]
    return z3.And(
        *zero,
        of("version") == 1,
        of("now") == 0,
        d.every("session", lambda w: of("deadline", w) == d.times.lease),
        *(
            d.every(
                kind, lambda one, names=names: z3.And([z3.Not(of(n, one)) if n in BOOLEANS else of(n, one) == 0 for n in names])
            )
            for kind, names in zeros.items()
        ),
    )


def promises(d: Domain, s: State) -> dict[str, Expr]:
    """What must hold in every state."""
    of = s.of
    return {
        "the world changes at most once": of("acts") <= 1,
        "what is not_attempted has not happened, and nobody can make it happen": z3.Implies(
            of("status") == CLEAN, z3.And(of("acts") == 0, d.every("submission", lambda x: z3.Not(may_act(d, s, x))))
        ),
        "what is confirmed has happened": z3.Implies(of("status") == CONFIRMED, of("acts") > 0),
    }


def invariant(d: Domain, s: State) -> dict[str, Expr]:
    """The promises, and what makes them inductive."""
    of, times = s.of, d.times

    def of_submissions(body: Callable[[Any], Expr]) -> Expr:
        return d.every("submission", body)

    def of_sessions(body: Callable[[Any], Expr]) -> Expr:
        return d.every("session", body)

    def gone(x: Any) -> Expr:
        return z3.And(of("exists", x), of("code", x) == GONE)

    kept = times.timeout, times.within - times.margin
    return {
        **promises(d, s),
        "numbers": z3.And(of("status") >= 0, of("status") <= 3, of("acts") >= 0, of("version") >= 1, of("clean_since") <= of("now"),
                          of("lost_at") <= of("now"), of("acted_at") <= of("now"), of("token") >= 0),
        "codes": of_submissions(lambda x: z3.And(of("code", x) >= WAITING, of("code", x) <= GONE)),
        "nothing of what does not exist": of_submissions(lambda x: z3.Implies(z3.Not(of("exists", x)), z3.Not(z3.Or(
            of("open", x), of("sent", x), of("flying", x), of("acted", x), of("answered", x), of("ended", x), of("word", x), of("refused", x))))),
        "what waits was not sent": of_submissions(lambda x: z3.Implies(of("code", x) == WAITING, z3.Not(of("sent", x)))),
        "what flies was sent": of_submissions(lambda x: z3.Implies(z3.Or(of("flying", x), of("refused", x)), of("sent", x))),
        "what was refused does not fly": of_submissions(lambda x: z3.Implies(of("refused", x), z3.Not(of("flying", x)))),
        "what acted was sent, and neither flies nor was refused": of_submissions(lambda x: z3.Implies(
            of("acted", x), z3.And(of("sent", x), z3.Not(of("flying", x)), z3.Not(of("refused", x))))),
        "what happened is held open until it is confirmed": z3.Implies(
            z3.And(of("acts") > 0, of("status") != CONFIRMED),
            d.some("submission", lambda x: z3.And(of("open", x), of("acted", x)))),
        "past times": of_submissions(lambda x: z3.And(z3.Implies(gone(x), of("gone_at", x) <= of("now")),
                                                      of("ended_at", x) <= of("now"), of("word_at", x) <= of("now"))),
        "past times of sessions": of_sessions(lambda w: z3.And(of("landed", w) <= of("now"), of("fenced_at", w) <= of("now"))),
        "beats land after they are sent": of_sessions(lambda w: of("beat_sent", w) <= of("landed", w)),
        "a deadline is of a landed beat": of_sessions(lambda w: of("deadline", w) <= of("landed", w) + times.lease),
        "a fence comes after the lease": of_sessions(lambda w: z3.Implies(z3.And(of("fenced", w), z3.Not(of("by_proof", w))),
                                                                          of("fenced_at", w) >= of("landed", w) + times.ttl)),
        "proof is proof": of_sessions(lambda w: z3.Implies(of("by_proof", w), z3.And(of("dead", w), of("fenced", w)))),
        "the dead do nothing": of_submissions(lambda x: z3.Implies(z3.And(of("exists", x), of("dead", d.session(x))), of("code", x) == GONE)),
        "the timer has killed whoever is past the deadline": of_submissions(lambda x: z3.Implies(
            z3.And(of("exists", x), of("code", x) == CALLING, d.timer(d.session(x))), of("now") <= of("deadline", d.session(x)))),
        "whoever is fenced had gone": of_submissions(lambda x: z3.Implies(
            z3.And(gone(x), of("sent", x), of("fenced", d.session(x)), z3.Or(d.timer(d.session(x)), of("by_proof", d.session(x)))),
            of("gone_at", x) <= of("fenced_at", d.session(x)))),
        "what is recorded to have ended has": of_submissions(lambda x: z3.Implies(
            of("ended", x), z3.And(gone(x), of("gone_at", x) <= of("ended_at", x)))),
        "what a person says has stopped has": of_submissions(lambda x: z3.Implies(
            of("word", x), z3.And(gone(x), of("gone_at", x) <= of("word_at", x)))),
        "an answer is of an act": of_submissions(lambda x: z3.Implies(of("answered", x), of("acts") > 0)),
        "clean: none is open": z3.Implies(of("status") == CLEAN, of_submissions(lambda x: z3.Not(of("open", x)))),
        "what is closed is over": of_submissions(lambda x: z3.Implies(z3.And(of("exists", x), z3.Not(of("open", x))), z3.Not(may_act(d, s, x)))),
        "one is open at a time, unless the provider knows keys": z3.Or(d.keyed, of_submissions(lambda x: of_submissions(
            lambda y: z3.Implies(z3.And(of("open", x), of("open", y)), d.same(x, y))))),
        "after the act nobody can act, unless the provider knows keys": z3.Or(d.keyed, of("acts") == 0, of_submissions(
            lambda x: z3.Not(may_act(d, s, x)))),
        "no not_found is of the future": d.every("asker", lambda a: of("not_found", a) <= of("version")),
        "a not_found that stands is true for good": d.every("asker", lambda a: z3.Implies(of("not_found", a) == of("version"), z3.And(
            of("status") == AMBIGUOUS, of("acts") == 0,
            of_submissions(lambda x: z3.Implies(of("open", x), z3.Not(may_act(d, s, x))))))),
        "keyed: whoever may act has a time inside the retention": z3.Implies(d.keyed, of_submissions(lambda x: z3.Implies(
            may_act(d, s, x), z3.Or([of("due", x) <= of("clean_since") + one for one in kept])))),
        "keyed: nobody outlives it": z3.Implies(d.keyed, of_submissions(lambda x: z3.And(
            z3.Implies(z3.And(of("exists", x), of("code", x) == CALLING), of("now") <= of("due", x) + times.outlive),
            z3.Implies(z3.And(gone(x), of("sent", x)), of("gone_at", x) <= of("due", x) + times.outlive)))),
        "keyed: the provider remembers from when it acted": z3.Implies(z3.And(d.keyed, of("acts") > 0), of("acted_at") >= of("clean_since")),
    }  # fmt: skip

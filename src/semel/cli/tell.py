"""One event of a journal as one plain sentence. Words only: what an event means was decided by the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from semel.cli.output import clock, duration, moment, short
from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import tasks
from semel.machine.journal import Row
from semel.machine.pauses import Scope
from semel.model import EffectState, Json

Detail = tuple[str, Json]
_REFUSED = {
    "already_done": "it was done already, in other words",
    "intent_changed": "a material argument differs from the one on record",
    "limit_reached": "a limit was reached",
    "denied": "a person denied it",
}
_PROOFS = {
    "dead": "{} lost its worker, whose process is proved to be gone",
    "watched": "{} lost its worker, which was silent for its whole lease",
    "left": "{} lost its worker, which stopped and left it behind",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence of a story. at: milliseconds since the Unix epoch. details: names and recorded values."""

    at: int
    stream: str
    seq: int
    kind: str
    actor: str
    token: int
    attempt: int
    key: str
    text: str
    details: tuple[Detail, ...] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """What settled an effect. how: returned, already_done, evidence, not_done, lookup:NAME or person:NAME."""

    how: str
    reason: str
    at: int
    state: EffectState


@dataclass(slots=True)
class Past:
    """What the rows told so far say of one effect. unknown_ms: for how long it was unknown, in all, until it was settled."""

    now: e.Effect | None = None
    since: int = 0
    unknown_ms: int = 0
    settled: Settled | None = None
    answered: tuple[str, str] = ("", "")
    drifts: int = 0


def person_of(actor: str) -> str:
    """Who acted, as the subject of a sentence."""
    what, _, name = actor.partition(":")
    if what == "person":
        return name
    if what == "session":
        return f"session {short(name)}"
    return {"caller": "A caller", "cli": "Somebody at the command line", "arrival": "a worker"}.get(actor, actor)


@dataclass(slots=True)
class Teller:
    """Tells rows in the order in which they are given.

    session, task: how to name one. home: the task that the story is about, which need not be named; "" if it is none.
    label: how to name an effect, given its name and key.
    """

    session: Callable[[str], str]
    task: Callable[[str], str]
    home: str
    label: Callable[[str, str], str] = lambda name, key: name
    past: dict[str, Past] = field(default_factory=dict)
    attempt: int = 0  # of the stream whose row is being told
    _attempts: dict[str, int] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def tell(self, row: Row) -> Line:
        """The row's sentence. Raises `ValueError` for an event that this version does not know."""
        event = row.event or j.event_of(row)
        if isinstance(event, j.Claimed | j.Intended | j.Assumed | j.Asked):
            self._attempts[row.stream] = event.attempt
        self.attempt = self._attempts.get(row.stream, 0)
        if isinstance(event, j.OfEffect):
            text, details = self._of_effect(row, event)
        else:
            text, details = _TASK[type(event)](self, row, event)
        key = getattr(event, "key", "") if not isinstance(event, j.Enqueued) else ""
        return Line(row.at, row.stream, row.seq, row.kind, row.actor, row.token, self.attempt, key, text, details)

    def tried(self, task: str, attempt: int = 0) -> str:
        """An attempt, as the subject of a sentence; default: the one whose row is being told."""
        return f"Attempt {attempt or self.attempt}" + (f" of {self.task(task)}" if task != self.home else "")

    def work(self, task: str) -> str:
        """A task, as the subject of a sentence."""
        return "The task" if task == self.home else f"Task {self.task(task)}"

    # --- effects ---

    def _of_effect(self, row: Row, event: j.OfEffect) -> tuple[str, tuple[Detail, ...]]:
        past = self.past.setdefault(event.key, Past())
        before = past.now
        past.now = e.apply(before, event, row.seq, row.at)
        if isinstance(event, j.Intended | j.Assumed | j.Asked) or (isinstance(event, j.Approved) and event.name):
            self._names[event.key] = event.name
        if isinstance(event, j.Answered):
            past.answered = (row.actor, event.reason)
        name = self.label(self._names.get(event.key, "") or getattr(event, "name", ""), event.key)
        text, details = _EFFECT[type(event)](self, row, event, name, past)
        return text + self._settling(row, event, before, past), details

    def _settling(self, row: Row, event: j.OfEffect, before: e.Effect | None, past: Past) -> str:
        """Keep what settled it; and say for how long it had been unknown, if it is not any more."""
        after = past.now
        if after is None:
            return ""
        was, now = before is not None and before.unknown, after.unknown
        if now and not was:
            past.since = row.at
        if (how := how_settled(event, after, past)) is not None:
            past.settled = Settled(*how, row.at, after.state)
        if not was or now:
            return ""
        spent = max(0, row.at - past.since)
        past.unknown_ms += spent
        past.since = 0
        return f" It had been unknown for {duration(spent) if spent else 'under 1 ms'}."


def how_settled(event: j.OfEffect, after: e.Effect, past: Past) -> tuple[str, str] | None:
    """How, and why, if this event settled the effect."""
    if after.state not in (EffectState.CONFIRMED, EffectState.NOT_ATTEMPTED):
        return None
    if isinstance(event, j.Confirmed):
        return event.how, event.unrecorded
    if isinstance(event, j.Disproved):
        return "not_done", event.reason
    if isinstance(event, j.Found):
        return past.answered if event.how == "person" and past.answered[0] else (event.how, event.reason)
    return None


# --- sentences about tasks ------------------------------------------------------------------------------------------


def _then(row: Row, due: int) -> str:
    return f" It is due again in {duration(due - row.at)}." if due > row.at + 100 else ""


def _ended(text: str) -> str:
    """A sentence ends with one full stop, whatever was recorded."""
    return text if text.endswith((".", "!", "?")) else text + "."


def _enqueued(t: Teller, row: Row, x: j.Enqueued) -> tuple[str, tuple[Detail, ...]]:
    later = f" It is due at {clock(x.due)}." if x.due > row.at + 100 else ""
    return f"{person_of(row.actor)} asked for {x.name} with the key {x.key}.{later}", (("args", x.args),)


def _claimed(t: Teller, row: Row, x: j.Claimed) -> tuple[str, tuple[Detail, ...]]:
    return f"{t.tried(row.stream)} began in {t.session(x.session)}, with token {x.token}.", ()


def _stepped(t: Teller, row: Row, x: j.Stepped) -> tuple[str, tuple[Detail, ...]]:
    return f"Step {x.name} is on record.", (("result", x.result),)


def _spent(t: Teller, row: Row, x: j.Spent) -> tuple[str, tuple[Detail, ...]]:
    parts = [f"{x.usd} usd"] * (x.usd != "0") + [f"{x.tokens} tokens"] * bool(x.tokens)
    return f"{t.tried(row.stream, x.attempt)} has spent {' and '.join(parts)}.", ()


def _joined(t: Teller, row: Row, x: j.Joined) -> tuple[str, tuple[Detail, ...]]:
    return f"{t.work(row.stream)} joined {t.label(x.name, x.key)}, whose key is the whole tenant's.", ()


def _suspended(t: Teller, row: Row, x: j.Suspended) -> tuple[str, tuple[Detail, ...]]:
    return _ended(f"{t.tried(row.stream)} may start nothing more: {x.why}"), ()


def _parked(t: Teller, row: Row, x: j.Parked) -> tuple[str, tuple[Detail, ...]]:
    return _ended(f"{t.tried(row.stream)} was given back, without fault: {x.why}") + _then(row, x.due), ()


def _finished(t: Teller, row: Row, x: j.Finished) -> tuple[str, tuple[Detail, ...]]:
    return f"{t.tried(row.stream)} finished the task.", (("result", x.result),)


def _failed(t: Teller, row: Row, x: j.Failed) -> tuple[str, tuple[Detail, ...]]:
    return _ended(f"{t.tried(row.stream)} failed: {x.error}") + _then(row, x.due), ()


def _lease_lost(t: Teller, row: Row, x: j.LeaseLost) -> tuple[str, tuple[Detail, ...]]:
    how = _PROOFS.get(x.proof, "{} lost its worker").format(t.tried(row.stream))
    by = t.session(row.actor.removeprefix("session:")) if row.actor.startswith("session:") else person_of(row.actor)
    return f"{how}. {by[:1].upper()}{by[1:]} took the task back.{_then(row, x.due)}", ()


def _blocked(t: Teller, row: Row, x: j.Blocked) -> tuple[str, tuple[Detail, ...]]:
    return _ended(f"{t.tried(row.stream)} ended, and the task waits for a person: {x.why}"), ()


def _unblocked(t: Teller, row: Row, x: j.Unblocked) -> tuple[str, tuple[Detail, ...]]:
    return _ended(f"{t.work(row.stream)} may go on: {x.why}"), ()


def _ending(t: Teller, row: Row, x: j.Ending) -> tuple[str, tuple[Detail, ...]]:
    return _ended(f"{t.work(row.stream)} must end as {x.how}: {x.why}") + " What is under way or unknown is settled first.", ()


def _cancelled(t: Teller, row: Row, x: j.Cancelled) -> tuple[str, tuple[Detail, ...]]:
    return _ended(f"{t.work(row.stream)} is cancelled: {x.why}"), ()


def _dead(t: Teller, row: Row, x: j.DeadLettered) -> tuple[str, tuple[Detail, ...]]:
    return _ended(f"{t.work(row.stream)} is dead-lettered: {x.why}"), ()


def _replayed(t: Teller, row: Row, x: j.Replayed) -> tuple[str, tuple[Detail, ...]]:
    steps = f"its steps from {x.from_step} on are" if x.from_step else "its steps are"
    text = _ended(f"{t.work(row.stream)} is replayed {x.why}")
    if x.at_most is not None:
        most = ", ".join(f"{n} of {name}" for name, n in sorted(x.at_most.items()) if n) or "none"
        steps += f" run again. It may send, of effects that are not on record yet: {most}"
    else:
        steps += " run again"
    return f"{text} Its keys stay, so no effect is repeated; {steps}.", ()


def _purged(t: Teller, row: Row, x: j.Purged) -> tuple[str, tuple[Detail, ...]]:
    return _ended(f"{t.work(row.stream)} is given up for good {x.why}") + " Its record and its keys stay.", ()


def _void(t: Teller, row: Row, x: j.Void) -> tuple[str, tuple[Detail, ...]]:
    return "A change whose reply was lost is ruled out for good.", ()


def _waits(t: Teller, row: Row, x: j.Waits) -> tuple[str, tuple[Detail, ...]]:
    until = f" until {moment(x.until, row.at)}" if x.until else ""
    what = f"waits for {x.event}{until or ', without end'}" if x.event else f"sleeps{until}"
    return f"{t.tried(row.stream)} {what}; no worker is held meanwhile.", ()


def _gave_up(t: Teller, row: Row, x: j.GaveUp) -> tuple[str, tuple[Detail, ...]]:
    return f"{t.tried(row.stream)} gives up its wait: its time is over.", ()


def _signalled(t: Teller, row: Row, x: j.Signalled) -> tuple[str, tuple[Detail, ...]]:
    return f"{person_of(row.actor)} signals {x.event} to {t.work(row.stream).lower()}.", (("payload", x.payload),)


def _bound(t: Teller, row: Row, x: j.Bound) -> tuple[str, tuple[Detail, ...]]:
    if x.by:
        return f"{x.by} says that {t.work(row.stream).lower()} acts as another from now on.", (("bound", x.identity),)
    if not x.identity:
        return f"{t.work(row.stream)} acts as what is bound to it in more of its effects.", (("effects", list(x.watched)),)
    return f"{t.work(row.stream)} is bound to an identity; it acts as nobody else from now on.", (("bound", x.identity),)


def _mismatched(t: Teller, row: Row, x: j.Mismatched) -> tuple[str, tuple[Detail, ...]]:
    said = _ended(f"{t.tried(row.stream)} would act as somebody else, and may start nothing more: {x.why}")
    return said, (("observed" if x.name else "binds", x.observed),)


def _epoch_began(t: Teller, row: Row, x: j.EpochBegan) -> tuple[str, tuple[Detail, ...]]:
    return _ended(
        f"The store went back to {moment(x.since, row.at)}, and epoch {x.epoch} begins (before: {x.before}): {x.why}"
    ) + " What it may have forgotten is looked for before anything is sent.", ()


def _epoch_watched(t: Teller, row: Row, x: j.EpochWatched) -> tuple[str, tuple[Detail, ...]]:
    return f"The largest lease has been watched since epoch {x.epoch} began: nothing of before can act any more.", ()


def _window_closed(t: Teller, row: Row, x: j.WindowClosed) -> tuple[str, tuple[Detail, ...]]:
    said = f"{person_of(row.actor)} says that all that epoch {x.epoch} had forgotten has been enqueued again: {x.why}"
    return _ended(said) + " Tasks that come from now on are new.", ()


def _pruned(t: Teller, row: Row, x: j.Pruned) -> tuple[str, tuple[Detail, ...]]:
    rows = "The row before this one was" if x.rows == 1 else f"The {x.rows} rows before this one were"
    why = f": {x.reason}" if x.reason else ""
    said = _ended(f"{rows} exported and pruned by {person_of(row.actor)}{why}")
    if x.task is not None:
        known = tasks.apply(tasks.Task(), x, row.at)
        t._attempts[row.stream] = known.attempt
        effects = list(known.effects.values())
    else:
        shared = tasks.apply_key(tasks.Key(), x, row.at).effect
        effects = [shared] if shared is not None else []
    for effect in effects:
        t._names[effect.key] = effect.name
        t.past[effect.key] = Past(now=effect, settled=Settled("pruned", "", row.at, effect.state) if effect.sent else None)
    return f"{said} What was proved is remembered: keys, arguments and results. Steps, and other wordings, are not.", ()


def _doubt_lifted(t: Teller, row: Row, x: j.DoubtLifted) -> tuple[str, tuple[Detail, ...]]:
    said = f"{person_of(row.actor)} lifts the doubt of epoch {x.epoch}: {x.why}"
    return _ended(said) + " Nothing is looked for any more.", ()


def _paused(t: Teller, row: Row, x: j.Paused) -> tuple[str, tuple[Detail, ...]]:
    why = f": {x.why}" if x.why else ""
    return _ended(f"{person_of(row.actor)} pauses {Scope(x.what, x.name)}: nothing of it is claimed{why}"), ()


def _resumed(t: Teller, row: Row, x: j.Resumed) -> tuple[str, tuple[Detail, ...]]:
    why = f": {x.why}" if x.why else ""
    return _ended(f"{person_of(row.actor)} resumes {Scope(x.what, x.name)}{why}"), ()


def _declared(t: Teller, row: Row, x: j.Declared) -> tuple[str, tuple[Detail, ...]]:
    if x.accepted:
        said = f"{person_of(row.actor)} lets code go on with what does not fit it" + (f": {x.reason}" if x.reason else "")
        return _ended(said), (("kinds", x.kinds), ("effects", x.effects))
    return f"{person_of(row.actor)} starts with other declarations than the last.", (("kinds", x.kinds), ("effects", x.effects))


_TASK: dict[type, Callable[[Teller, Row, Any], tuple[str, tuple[Detail, ...]]]] = {
    j.Enqueued: _enqueued, j.Claimed: _claimed, j.Stepped: _stepped, j.Joined: _joined, j.Suspended: _suspended,
    j.Parked: _parked, j.Finished: _finished, j.Failed: _failed, j.LeaseLost: _lease_lost, j.Blocked: _blocked,
    j.Unblocked: _unblocked, j.Ending: _ending, j.Cancelled: _cancelled, j.DeadLettered: _dead, j.Replayed: _replayed,
    j.Purged: _purged, j.Waits: _waits, j.GaveUp: _gave_up, j.Signalled: _signalled, j.Spent: _spent, j.Bound: _bound,
    j.Mismatched: _mismatched,
    j.EpochBegan: _epoch_began, j.EpochWatched: _epoch_watched, j.WindowClosed: _window_closed, j.DoubtLifted: _doubt_lifted,
    j.Paused: _paused, j.Resumed: _resumed, j.Void: _void, j.Pruned: _pruned, j.Declared: _declared,
}  # fmt: skip


# --- sentences about effects ----------------------------------------------------------------------------------------


def _intended(t: Teller, row: Row, x: j.Intended, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    under = f"submission {x.n}, under token {x.token}"
    if x.again:
        text = f"{t.tried(x.task, x.attempt)} sends the recorded call of {name} again, with the same key: {under}."
    elif x.n > 1:
        text = f"{t.tried(x.task, x.attempt)} asks for {name} again, since nothing had happened: {under}."
    elif past.now is not None and past.now.asked is not None:
        text = f"{t.tried(x.task, x.attempt)} sends {name} as it was approved; the intent is on record: {under}."
    else:
        text = f"{t.tried(x.task, x.attempt)} asks for {name}; the intent is on record: {under}."
    if x.unfenced:
        text += " Nothing could stop its sender."
    sent = x.args if x.digest else past.now.args if past.now else None
    return text, (("sent", sent), ("observed", x.observed))


def _assumed(t: Teller, row: Row, x: j.Assumed, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    text = (
        f"{t.tried(x.task, x.attempt)} asks for {name}. The store went back and may have forgotten that it was sent: that is "
        f"assumed, as submission {x.n}, until it is known."
    )
    return text, (("would send", x.args),)


def _confirmed(t: Teller, row: Row, x: j.Confirmed, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    which = f" (submission {x.n})" if x.n > 1 else ""
    text = {
        "returned": f"{name} returned{which}: it happened.",
        "already_done": f"{name} found{which} that it exists already, under its own key: it happened.",
        "evidence": f"What came in late about submission {x.n} of {name} is believed: it happened.",
    }.get(x.how, f"{name} happened ({x.how}).")
    if x.unrecorded:
        return _ended(f"{text} Its result could not be recorded: {x.unrecorded}"), ()
    return text, (("got", x.result),)


def _disproved(t: Teller, row: Row, x: j.Disproved, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    text = _ended(f"Proof that submission {x.n} of {name} did nothing: {x.reason}") + (" That is final." if x.final else "")
    return text, (("detail", x.detail),) if x.detail is not None else ()


def _lost(t: Teller, row: Row, x: j.Lost, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    sub = past.now.submission(x.n) if past.now else None
    if x.dead:
        sender = "Its sender is dead."
    elif x.fenced:
        sender = "Its sender is fenced."
    elif sub is not None and sub.ended:
        sender = "Its code has ended."
    else:
        sender = "Its code may still be running."
    return _ended(f"Nobody knows whether submission {x.n} of {name} happened: {x.why}") + f" {sender}", ()


def _late(t: Teller, row: Row, x: j.Late, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    which = f"submission {x.n} of {name}"
    if x.outcome == e.RETURNED:
        return f"Late, {which} returned after all: kept as evidence.", (("got", x.result),)
    if x.outcome == e.NOT_DONE:
        return _ended(f"Late, {which} reports that nothing happened, which is kept as evidence: {x.reason}"), ()
    return _ended(f"Late, the code of {which} ended, and can act no more: {x.reason}"), ()


def _unfenced(t: Teller, row: Row, x: j.Unfenced, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    return f"Submission {x.n} of {name} makes a child process: nothing here can fence that.", ()


def _sender_gone(t: Teller, row: Row, x: j.SenderGone, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    dead = ", and its process is proved to be gone" if x.dead else ""
    return f"The session that sent submission {x.n} of {name} is fenced{dead}.", ()


def _found(t: Teller, row: Row, x: j.Found, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    what, _, whom = x.how.partition(":")
    by = f"Lookup {whom}" if what == "lookup" else whom if what == "person" and whom else x.how
    why = f": {x.reason}" if x.reason else ""
    as_whom: tuple[Detail, ...] = (("observed", x.observed),)
    if x.verdict == "confirmed":
        said = "found it at the provider" if what == "lookup" else "says that it happened"
        return _ended(f"{by} {said}{why}") + f" {name} happened.", (("result", x.result), *as_whom)
    if x.verdict == "not_found":
        if x.how == "person":
            return f"Settle was over when {person_of(past.answered[0])} looked: {name} did not happen.", ()
        return _ended(f"{by} did not find it, and settle was over: {name} did not happen{why}"), as_whom
    if x.verdict == "conflict":
        return _ended(f"{by} found something else in its place{why}") + " A person must look.", ()
    return _ended(f"{by} got no answer{why}") + " It will be asked again.", ()


def _answered(t: Teller, row: Row, x: j.Answered, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    stopped = " The process that sent it is said to have stopped." if x.stopped else ""
    why = f": {x.reason}" if x.reason else ""
    said = _ended(f"{person_of(row.actor)} says that {name} did not happen{why}")
    return f"{said}{stopped} It counts if settle had been watched by then.", ()


def _watched(t: Teller, row: Row, x: j.Watched, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    by, past.answered = past.answered[0], ("", "")
    before = f" {person_of(by)} looked before that, which does not count." if by else ""
    return f"Settle has been watched: no sender of {name} can act any more.{before} Whoever looks now is believed.", ()


def _asked(t: Teller, row: Row, x: j.Asked, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    many = "a person must approve it" if x.approvers == 1 else f"{x.approvers} different people must approve it"
    if x.digest:
        return f"{t.tried(x.task, x.attempt)} asks for {name}, and {many}: nothing is sent until then.", (("would send", x.args),)
    return f"{t.tried(x.task, x.attempt)} asks for {name} again, and {many}.", ()


def _approved(t: Teller, row: Row, x: j.Approved, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    until = f", until {moment(x.expires, row.at)}" if x.expires else ""
    if x.name:
        said = _ended(f"{x.by} approves a call of {x.name} before it is asked for{until}" + (f": {x.reason}" if x.reason else ""))
        return f"{said} It counts if the call comes in exactly these words.", (("would send", x.args),)
    if x.early:
        return f"{x.by} had approved exactly this call of {name} before it came.", ()
    edited = ", edited," if x.args is not None else ""
    said = _ended(f"{x.by} approves {name}{edited} as it is on record{until}" + (f": {x.reason}" if x.reason else ""))
    return said, (("will send", past.now.args if past.now else None),)


def _denied(t: Teller, row: Row, x: j.Denied, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    why = f": {x.reason}" if x.reason else ""
    if past.now is None:
        return _ended(f"What was approved of {name} before it was asked for is taken back by {x.by}{why}"), ()
    return _ended(f"{x.by} denies {name}: it is not sent{why}"), ()


def _renewed(t: Teller, row: Row, x: j.Renewed, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    said = _ended(f"{x.by} opens generation {x.generation} of {name}" + (f": {x.reason}" if x.reason else ""))
    return f"{said} Its next call has a key of its own, and this key is never sent again.", ()


def _reversed(t: Teller, row: Row, x: j.Reversed, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    past.settled, past.answered = None, ("", "")
    said = "happened" if x.verdict == "confirmed" else "did not happen"
    text = _ended(f"{x.by} takes back, of row {x.seq}, that {name} {said}" + (f": {x.reason}" if x.reason else ""))
    return f"{text} Nobody knows again whether it happened.", ()


def _drifted(t: Teller, row: Row, x: j.Drifted, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    past.drifts += 1
    if past.now is not None and not past.now.confirmed:
        text = f"Drift: attempt {x.attempt} asks for {name} in other words; what is on record for approval stays what is sent."
        return text, difference(past.now.args, x.args)
    text = f"Drift: attempt {x.attempt} asks for {name} in other words; it is not sent again, the recorded result is given."
    return text, difference(past.now.args if past.now else None, x.args)


def _declined(t: Teller, row: Row, x: j.Declined, name: str, past: Past) -> tuple[str, tuple[Detail, ...]]:
    why = _REFUSED.get(x.code, "the machine said no")
    recorded = past.now.args if past.now else None
    return f"Refused ({x.code}): attempt {x.attempt} asks for {name}, but {why}.", difference(recorded, x.args)


def difference(recorded: Json, asked: Json) -> tuple[Detail, ...]:
    """What a call asked for that the record does not say: only the arguments that differ, if both can be compared."""
    if not (isinstance(recorded, dict) and isinstance(asked, dict)):
        return (("asked", asked),)
    other = {name: value for name, value in asked.items() if name not in recorded or recorded[name] != value}
    return (("recorded", {name: recorded.get(name) for name in other}), ("asked", other)) if other else (("asked", asked),)


_EFFECT: dict[type, Callable[[Teller, Row, Any, str, Past], tuple[str, tuple[Detail, ...]]]] = {
    j.Intended: _intended, j.Assumed: _assumed, j.Confirmed: _confirmed, j.Disproved: _disproved, j.Lost: _lost, j.Late: _late,
    j.Unfenced: _unfenced, j.SenderGone: _sender_gone, j.Found: _found, j.Answered: _answered, j.Watched: _watched,
    j.Drifted: _drifted,
    j.Declined: _declined, j.Asked: _asked, j.Approved: _approved, j.Denied: _denied, j.Reversed: _reversed, j.Renewed: _renewed,
}  # fmt: skip

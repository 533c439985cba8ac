"""The states, commands and standings whose product is the table of effect cells. States are reached by commands only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine.commands import PENDING, Observed
from semel.model import Refusal

KEY = "sml_k"
FIRST, SECOND = 11, 12  # the tokens of the first and of the second attempt
DOUBT = e.Doubt(epoch=1, since=500)
IN_EPOCH = (1 << e.EPOCH_SHIFT) + 13  # a token of the epoch that began when the store went back
SAME, OTHER = "d-same", "d-other"


def intend(**changes: Any) -> e.Intend:
    """The call as the states below made it, by the second attempt."""
    call = e.Intend(KEY, "mail", {"to": "a"}, SAME, "m", "t1", 2, SECOND, "s2", recovery=("lookup:30000",), timeout_ms=1000)
    return replace(call, **changes)


class Bench:
    """One effect, moved by commands that must be accepted. now: the time of the next event; None: a second after the last."""

    def __init__(self) -> None:
        self.effect: e.Effect | None = None
        self.seq = 0
        self.now: int | None = None

    def do(self, command: e.EffectCommand, standing: e.Standing | None = None) -> Bench:
        """Decide and apply. A refusal here is a mistake in a builder."""
        decided = e.decide(self.effect, command, standing or e.Standing())
        assert not isinstance(decided, Refusal), (command, decided)
        for event in decided.events:
            self.seq += 1
            at = 1000 * self.seq if self.now is None else self.now
            if isinstance(event, j.OfEffect):
                self.effect = e.apply(self.effect, event, self.seq, at)
        return self


GONE = e.Standing(current=False)


def none() -> Bench:
    return Bench()


def submitted(**how: Any) -> Bench:
    return Bench().do(intend(attempt=1, token=FIRST, session="s1", **how))


def disproved() -> Bench:
    return submitted().do(e.Disprove(KEY, 1, FIRST, "connection refused"))


def submitted_anew() -> Bench:
    """It was clean again before: its age counts from here."""
    return disproved().do(intend())


def declined() -> Bench:
    return submitted().do(e.Disprove(KEY, 1, FIRST, "card declined", final=True, detail={"code": 51}))


def unended() -> Bench:
    return submitted().do(e.Lose(KEY, 1, FIRST, "no answer within 1 s", ended=False))


def ended() -> Bench:
    return submitted().do(e.Lose(KEY, 1, FIRST, "ReadTimeout", ended=True))


def fenced() -> Bench:
    return unended().do(e.NoteSenderGone(KEY, "s1", dead=False))


def dead() -> Bench:
    return unended().do(e.NoteSenderGone(KEY, "s1", dead=True))


def unfenced_process() -> Bench:
    lost = submitted(unfenced="process").do(e.Lose(KEY, 1, FIRST, "no answer", ended=False))
    return lost.do(e.NoteSenderGone(KEY, "s1", dead=False))


def unfenced_process_dead() -> Bench:
    return unfenced_process().do(e.NoteSenderGone(KEY, "s1", dead=True))


def unfenced_child() -> Bench:
    return (
        submitted()
        .do(e.MarkUnfenced(KEY, 1, FIRST, "child"))
        .do(e.Lose(KEY, 1, FIRST, "?", False))
        .do(e.NoteSenderGone(KEY, "s1", dead=True))
    )


def unfenced_child_ended() -> Bench:
    """Its code raised (it waited for its child no longer); the child acts on, and so does the session."""
    return submitted().do(e.MarkUnfenced(KEY, 1, FIRST, "child")).do(e.Lose(KEY, 1, FIRST, "TimeoutExpired", ended=True))


def settled_not_found() -> Bench:
    return ended().do(e.Settle(KEY, SECOND, "not_found", "lookup:find", waited_ms=9, settle_ms=9, seen=1))


def resubmitted() -> Bench:
    return ended().do(intend(again=True))


def resubmitted_lost() -> Bench:
    """Two open submissions: the first ended, the second can still act."""
    return resubmitted().do(e.Lose(KEY, 2, SECOND, "no answer", ended=False))


def resubmitted_disproved() -> Bench:
    """The second was proved to have done nothing; the first is as unknown as ever (R1)."""
    return resubmitted().do(e.Disprove(KEY, 2, SECOND, "connection refused"))


def resubmitted_barred() -> Bench:
    """The provider refused the second for good: that one did nothing, and no further one is sent."""
    return resubmitted().do(e.Disprove(KEY, 2, SECOND, "the name is a stranger's", final=True))


def told_returned() -> Bench:
    """Its sender was fenced, and then said that it had happened (R2)."""
    return fenced().do(e.Confirm(KEY, 1, FIRST, "msg-1"), GONE)


def told_not_done() -> Bench:
    return fenced().do(e.Disprove(KEY, 1, FIRST, "connection refused"), GONE)


def told_after_not_found() -> Bench:
    """A not_found closed it, wrongly, and then its sender said that it had happened."""
    settle = e.Settle(KEY, SECOND, "not_found", "lookup:find", waited_ms=9, settle_ms=9, seen=1)
    return fenced().do(settle).do(e.Confirm(KEY, 1, FIRST, "msg-1"), GONE)


def unavailable() -> Bench:
    return ended().do(e.Settle(KEY, SECOND, "unavailable", "lookup:find", reason="503"))


def conflict() -> Bench:
    return ended().do(e.Settle(KEY, SECOND, "conflict", "lookup:find", reason="a mail that is not ours"))


def answered() -> Bench:
    found = ended()
    return found.do(e.Answer(KEY, "not_found", "alice", found.seq))


def answered_unquiet() -> Bench:
    found = unended()
    return found.do(e.Answer(KEY, "not_found", "alice", found.seq))


def answered_stopped() -> Bench:
    found = unfenced_child()
    return found.do(e.Answer(KEY, "not_found", "alice", found.seq, stopped=True))


def watched() -> Bench:
    """Settle is over, and a person is asked (R4)."""
    return ended().do(e.NoteWatched(KEY, 1, waited_ms=9, settle_ms=9))


def watched_answered() -> Bench:
    """They looked after that."""
    found = watched()
    return found.do(e.Answer(KEY, "not_found", "alice", found.seq))


def aside() -> Bench:
    """A person's not_found came before settle was over; it is over now (R4)."""
    return answered().do(e.NoteWatched(KEY, 1, waited_ms=9, settle_ms=9))


def aside_stopped() -> Bench:
    """Their word that its process has stopped lasts: settle was counted from it."""
    return answered_stopped().do(e.NoteWatched(KEY, 1, waited_ms=9, settle_ms=9))


def aside_answered() -> Bench:
    """They looked again."""
    found = aside_stopped()
    return found.do(e.Answer(KEY, "not_found", "alice", found.seq))


def aside_resubmitted() -> Bench:
    """A later submission, of which nobody has watched anything."""
    return aside().do(intend(again=True)).do(e.Lose(KEY, 2, SECOND, "no answer", ended=False))


def conflict_answered() -> Bench:
    found = conflict()
    return found.do(e.Answer(KEY, "not_found", "alice", found.seq))


def answered_conflict() -> Bench:
    """A person said not_found, and then thought better of it."""
    found = answered()
    return found.do(e.Answer(KEY, "conflict", "bob", found.seq, reason="it is in the outbox"))


def confirmed() -> Bench:
    return submitted().do(e.Confirm(KEY, 1, FIRST, "msg-1"))


def confirmed_unrecorded() -> Bench:
    return submitted().do(e.Confirm(KEY, 1, FIRST, unrecorded="2 MiB"))


def confirmed_second() -> Bench:
    """The second submission was confirmed; nothing was ever heard of the first, which may still return."""
    return unended().do(intend(again=True)).do(e.Confirm(KEY, 2, SECOND, "msg-1"))


ATOMIC = ("atomic", "ask:300000")


def atomic() -> Bench:
    """It writes in the transaction of its confirm, which is under way."""
    return submitted(recovery=ATOMIC)


def atomic_lost() -> Bench:
    return atomic().do(e.Lose(KEY, 1, FIRST, "no answer", ended=False))


def atomic_voided() -> Bench:
    """Its place was taken: the confirm is not there, and cannot be any more. Its code may still run."""
    return atomic_lost().do(e.Void(KEY, 1, SECOND))


def atomic_voided_anew() -> Bench:
    return atomic_voided().do(intend(recovery=ATOMIC))


def atomic_conflict() -> Bench:
    """Its function ended the transaction by itself: the journal alone cannot say."""
    return atomic_lost().do(e.Settle(KEY, SECOND, "conflict", "atomic", reason="the function committed"))


def assumed() -> Bench:
    """Nobody remembers it: the store went back, and may have forgotten it (R20)."""
    return Bench().do(intend(token=IN_EPOCH, doubt=DOUBT))


def assumed_unfenced() -> Bench:
    """What may have sent it has no kernel timer either, as far as this attempt can tell."""
    return Bench().do(intend(token=IN_EPOCH, doubt=DOUBT, unfenced="process"))


def assumed_anew() -> Bench:
    """It was clean when the backup was made."""
    return disproved().do(intend(token=IN_EPOCH, doubt=DOUBT))


def assumed_not_found() -> Bench:
    """It was looked for in this epoch: the doubt is over."""
    return assumed().do(e.Settle(KEY, IN_EPOCH, "not_found", "lookup:find", waited_ms=9, settle_ms=9, seen=1))


WANTED: dict[str, Any] = {"approvers": 1, "intent": ("to",), "at": 100}
EXPIRES = 50_000


def approve(bench: Bench, by: str = "alice", **changes: Any) -> e.Approve:
    """A person's yes to what they see."""
    return replace(e.Approve(KEY, by, bench.effect.version if bench.effect else 0, 100), **changes)


def asked(**how: Any) -> Bench:
    """It is on record, was never sent, and waits for a person (R21)."""
    return Bench().do(intend(attempt=1, token=FIRST, session="s1", **{**WANTED, **how}))


def asked_of_two() -> Bench:
    return asked(approvers=2)


def asked_by_two_tasks() -> Bench:
    return asked().do(intend(task="t9", **WANTED))


def half_approved() -> Bench:
    found = asked_of_two()
    return found.do(approve(found))


def approved() -> Bench:
    found = asked()
    return found.do(approve(found))


def approved_for_a_while() -> Bench:
    found = asked()
    return found.do(approve(found, expires=EXPIRES))


def approved_edited() -> Bench:
    """What is sent is not what the agent asked for; to whom it goes may not change."""
    found = asked(args={"to": "a", "body": "hi"})
    return found.do(approve(found, args={"to": "a", "body": "Dear A"}, digest="d-edited"))


def denied() -> Bench:
    found = asked()
    assert found.effect
    return found.do(e.Deny(KEY, "alice", found.effect.version, "too much"))


def denied_approved() -> Bench:
    found = denied()
    return found.do(approve(found, "bob"))


def renewed() -> Bench:
    """Refused for good, and a person has opened its next generation (R9)."""
    found = declined()
    assert found.effect
    return found.do(e.Renew(KEY, "alice", found.effect.version, "the account is open again"))


def renewed_told() -> Bench:
    """A not_found closed it; renewed; and then its sender said that it had happened."""
    settle = e.Settle(KEY, SECOND, "not_found", "lookup:find", waited_ms=9, settle_ms=9, seen=1)
    found = fenced().do(settle)
    assert found.effect
    return found.do(e.Renew(KEY, "alice", found.effect.version)).do(e.Confirm(KEY, 1, FIRST, "msg-1"), GONE)


def approved_submitted() -> Bench:
    return approved().do(intend(attempt=1, token=FIRST, session="s1", **WANTED))


def approved_disproved() -> Bench:
    """It was sent, and had not happened: the approval still stands."""
    return approved_submitted().do(e.Disprove(KEY, 1, FIRST, "connection refused"))


def approved_lost() -> Bench:
    return approved_submitted().do(e.Lose(KEY, 1, FIRST, "ReadTimeout", ended=True))


def approved_not_found() -> Bench:
    return approved_lost().do(e.Settle(KEY, SECOND, "not_found", "lookup:find", waited_ms=9, settle_ms=9, seen=1))


def approved_declined() -> Bench:
    return approved_submitted().do(e.Disprove(KEY, 1, FIRST, "card declined", final=True))


def approved_confirmed() -> Bench:
    return approved_submitted().do(e.Confirm(KEY, 1, FIRST, "msg-1"))


def asked_after_disproof() -> Bench:
    """The first call needed no approval; the second, in other words, does."""
    return disproved().do(intend(digest=OTHER, args={"to": "b"}, **WANTED))


ALICE, BOB = (("account", "alice"),), (("account", "bob"),)
AS_ALICE, AS_BOB = Observed(ALICE), Observed(BOB)
BOUND = e.Standing(bound=ALICE)


def submitted_observed() -> Bench:
    """Alice was logged in just before it was sent."""
    return Bench().do(intend(attempt=1, token=FIRST, session="s1", observed=AS_ALICE), BOUND)


def lost_observed() -> Bench:
    return submitted_observed().do(e.Lose(KEY, 1, FIRST, "ReadTimeout", ended=True))


def observed_not_found() -> Bench:
    settle = e.Settle(KEY, SECOND, "not_found", "lookup:find", waited_ms=9, settle_ms=9, seen=1, observed=AS_ALICE)
    return lost_observed().do(settle, BOUND)


def said_confirmed() -> Bench:
    """A person said that it happened."""
    found = ended()
    return found.do(e.Answer(KEY, "confirmed", "alice", found.seq, "msg-1"))


def said_confirmed_in_conflict() -> Bench:
    """A person said so of what a lookup had found to be something else."""
    found = conflict()
    return found.do(e.Answer(KEY, "confirmed", "alice", found.seq, "msg-1"))


def said_confirmed_told() -> Bench:
    """And then its sender reported the same (R2)."""
    found = fenced()
    return found.do(e.Answer(KEY, "confirmed", "alice", found.seq, "msg-1")).do(e.Confirm(KEY, 1, FIRST, "msg-1"), GONE)


def said_not_found() -> Bench:
    """A person said that it did not happen, and settle has been watched."""
    return watched_answered().do(e.Settle(KEY, SECOND, "not_found", e.PERSON, settled=1))


def said_not_found_sent() -> Bench:
    return said_not_found().do(intend())


def said_not_found_sent_disproved() -> Bench:
    """It was sent again, and that did nothing: the first is as little to be taken back."""
    return said_not_found_sent().do(e.Disprove(KEY, 2, SECOND, "connection refused"))


def reverse(bench: Bench) -> e.Reverse:
    """A person takes back what they see."""
    return e.Reverse(KEY, "bob", bench.effect.version if bench.effect else 0, 100, "another receipt")


def taken_back() -> Bench:
    found = said_confirmed()
    return found.do(reverse(found))


def taken_back_in_conflict() -> Bench:
    found = said_confirmed_in_conflict()
    return found.do(reverse(found))


def taken_back_not_found() -> Bench:
    found = said_not_found()
    return found.do(reverse(found))


STATES: dict[str, Callable[[], Bench]] = {
    build.__name__: build
    for build in (
        none, disproved, settled_not_found, declined, told_after_not_found, submitted, submitted_anew, resubmitted,
        unended, ended, fenced, dead, unfenced_process, unfenced_process_dead, unfenced_child,
        unfenced_child_ended, resubmitted_lost,
        resubmitted_disproved, resubmitted_barred,
        told_returned, told_not_done, unavailable, answered, answered_unquiet, answered_stopped,
        watched, watched_answered, aside, aside_stopped, aside_answered, aside_resubmitted,
        conflict, conflict_answered, answered_conflict, atomic, atomic_lost, atomic_voided, atomic_voided_anew,
        atomic_conflict, confirmed, confirmed_unrecorded, confirmed_second,
        assumed, assumed_unfenced, assumed_anew, assumed_not_found,
        asked, asked_of_two, asked_by_two_tasks, half_approved, approved, approved_for_a_while, approved_edited, denied,
        denied_approved, approved_submitted, approved_disproved, approved_lost, approved_not_found, approved_declined,
        approved_confirmed, asked_after_disproof, submitted_observed, lost_observed, observed_not_found,
        approved_confirmed, asked_after_disproof, said_confirmed, said_confirmed_in_conflict, said_confirmed_told,
        said_not_found, said_not_found_sent, said_not_found_sent_disproved, taken_back, taken_back_in_conflict,
        taken_back_not_found,
        renewed, renewed_told,
    )
}  # fmt: skip


def last(effect: e.Effect | None) -> tuple[int, int]:
    """The number and the token of the last submission."""
    return (effect.sent[-1].n, effect.sent[-1].token) if effect and effect.sent else (1, FIRST)


Make = Callable[[e.Effect | None], e.EffectCommand]


def _of_last(make: Callable[[int, int], e.EffectCommand]) -> Make:
    return lambda effect: make(*last(effect))


def _void_of_its_own(effect: e.Effect | None) -> e.EffectCommand:
    last = effect.sent[-1] if effect and effect.sent else None
    return e.Void(KEY, last.n, last.token, (last.task, last.attempt)) if last else e.Void(KEY, 1, FIRST, ("t1", 1))


def _answer(verdict: str, *, stopped: bool = False, behind: int = 0) -> Make:
    return lambda effect: e.Answer(KEY, verdict, "alice", (effect.version if effect else 0) - behind, stopped=stopped)


def _ahead(by: str, digest: str) -> e.Approve:
    return e.Approve(KEY, by, 0, 100, args={"to": "a"}, digest=digest, ahead="mail")


def _approve(by: str, *, at: int = 100, behind: int = 0, **changes: Any) -> Make:
    return lambda effect: e.Approve(KEY, by, (effect.version if effect else 0) - behind, at, **changes)


def _settle(verdict: str, **facts: Any) -> Make:
    return lambda effect: e.Settle(KEY, SECOND, verdict, "lookup:find", "found", "why", **facts)


COMMANDS: dict[str, Make] = {
    "intend": lambda _: intend(),
    "intend_other_wording": lambda _: intend(digest=OTHER, args={"to": "b"}),
    "intend_third_wording": lambda _: intend(digest=OTHER, args={"to": "b"}, said="d-said"),
    "intend_wording_said": lambda _: intend(digest=OTHER, args={"to": "b"}, said=OTHER),
    "intend_material": lambda _: intend(material="m2", digest=OTHER),
    "intend_again": lambda _: intend(again=True),
    "intend_in_doubt": lambda _: intend(token=IN_EPOCH, doubt=DOUBT),
    "intend_in_doubt_unfenced": lambda _: intend(token=IN_EPOCH, doubt=replace(DOUBT, unfenced=True)),
    "intend_in_doubt_repeat": lambda _: intend(token=IN_EPOCH, doubt=DOUBT, recovery=("repeat",)),
    "intend_in_doubt_atomic": lambda _: intend(token=IN_EPOCH, doubt=DOUBT, recovery=("atomic",)),
    "intend_in_doubt_again": lambda _: intend(token=IN_EPOCH, doubt=DOUBT, again=True),
    "intend_approval": lambda _: intend(**WANTED),
    "intend_approval_of_two": lambda _: intend(**{**WANTED, "approvers": 2}),
    "intend_approval_other_wording": lambda _: intend(digest=OTHER, args={"to": "b"}, **WANTED),
    "intend_approval_material": lambda _: intend(material="m2", digest=OTHER, **WANTED),
    "intend_approval_later": lambda _: intend(**{**WANTED, "at": EXPIRES}),
    "intend_approval_other_task": lambda _: intend(task="t9", **WANTED),
    "intend_approval_in_doubt": lambda _: intend(token=IN_EPOCH, doubt=DOUBT, **WANTED),
    "intend_unseen": lambda _: intend(observed=PENDING),
    "intend_unseen_approval": lambda _: intend(observed=PENDING, **WANTED),
    "intend_unseen_in_doubt": lambda _: intend(observed=PENDING, token=IN_EPOCH, doubt=DOUBT),
    "intend_unseen_again": lambda _: intend(observed=PENDING, again=True),
    "intend_observed": lambda _: intend(observed=AS_ALICE),
    "intend_observed_again": lambda _: intend(observed=AS_ALICE, again=True),
    "intend_observed_other_again": lambda _: intend(observed=AS_BOB, again=True),
    "intend_unobservable": lambda _: intend(observed=Observed(None, "PermissionError: logged out")),
    "approve": _approve("bob"),
    "approve_by_the_same": _approve(" Alice"),
    "approve_later": _approve("alice", at=EXPIRES),
    "approve_edited": _approve("bob", args={"to": "a"}, digest=OTHER),
    "approve_another_intent": _approve("bob", args={"to": "b"}, digest=OTHER),
    "approve_another_argument": _approve("bob", args={"to": "a", "more": 1}, digest=OTHER),
    "approve_stale": _approve("bob", behind=1),
    "deny": lambda effect: e.Deny(KEY, "bob", effect.version if effect else 0),
    "approve_ahead": lambda _: _ahead("bob", SAME),
    "approve_ahead_by_the_same": lambda _: _ahead("alice", SAME),
    "approve_ahead_other_words": lambda _: _ahead("bob", OTHER),
    "deny_ahead": lambda _: e.Deny(KEY, "bob", 0, ahead="mail"),
    "renew": lambda effect: e.Renew(KEY, "bob", effect.version if effect else 0),
    "renew_stale": lambda effect: e.Renew(KEY, "bob", (effect.version if effect else 0) - 1),
    "intend_generation": lambda _: intend(generation=1),
    "deny_stale": lambda effect: e.Deny(KEY, "bob", (effect.version if effect else 0) - 1),
    "reverse": lambda effect: e.Reverse(KEY, "bob", effect.version if effect else 0, 100),
    "reverse_stale": lambda effect: e.Reverse(KEY, "bob", (effect.version if effect else 0) - 1, 100),
    "confirm": _of_last(lambda n, token: e.Confirm(KEY, n, token, "msg-1")),
    "confirm_unrecorded": _of_last(lambda n, token: e.Confirm(KEY, n, token, unrecorded="2 MiB")),
    "confirm_first": lambda _: e.Confirm(KEY, 1, FIRST, "msg-1"),
    "confirm_wrong_token": _of_last(lambda n, token: e.Confirm(KEY, n, token + 1)),
    "confirm_unknown_n": lambda _: e.Confirm(KEY, 7, SECOND),
    "disprove": _of_last(lambda n, token: e.Disprove(KEY, n, token, "connection refused")),
    "disprove_final": _of_last(lambda n, token: e.Disprove(KEY, n, token, "declined", final=True)),
    "disprove_first": lambda _: e.Disprove(KEY, 1, FIRST, "connection refused"),
    "lose_ended": _of_last(lambda n, token: e.Lose(KEY, n, token, "ReadTimeout", ended=True)),
    "lose_unended": _of_last(lambda n, token: e.Lose(KEY, n, token, "no answer", ended=False)),
    "confirm_rivals": _of_last(lambda n, token: e.Confirm(KEY, n, token, "msg-2", sender=("t9", 1))),
    "disprove_rivals": _of_last(lambda n, token: e.Disprove(KEY, n, token, "never called", sender=("t9", 1))),
    "lose_rivals": _of_last(lambda n, token: e.Lose(KEY, n, token, "ReadTimeout", True, ("t9", 1))),
    "mark_child": _of_last(lambda n, token: e.MarkUnfenced(KEY, n, token, "child")),
    "mark_process": _of_last(lambda n, token: e.MarkUnfenced(KEY, n, token, "process")),
    "sender_fenced": lambda _: e.NoteSenderGone(KEY, "s1", dead=False),
    "sender_dead": lambda _: e.NoteSenderGone(KEY, "s1", dead=True),
    "sender_stranger": lambda _: e.NoteSenderGone(KEY, "s9", dead=True),
    "settle_confirmed": _settle("confirmed"),
    "settle_not_found": _settle("not_found", waited_ms=30_000, settle_ms=30_000),
    "settle_not_found_early": _settle("not_found", waited_ms=29_999, settle_ms=30_000),
    "settle_not_found_before": _settle("not_found", waited_ms=30_000, settle_ms=30_000, seen=1),
    "settle_not_found_person": lambda _: e.Settle(KEY, SECOND, "not_found", e.PERSON, settled=1),
    "settle_not_found_person_unasked": lambda _: e.Settle(KEY, SECOND, "not_found", e.PERSON, waited_ms=9),
    "settle_not_found_watched": _settle("not_found", settle_ms=30_000, settled=1),
    "note_watched": lambda effect: e.NoteWatched(KEY, len(effect.sent) if effect else 1, waited_ms=30_000, settle_ms=30_000),
    "note_watched_early": lambda effect: e.NoteWatched(
        KEY, len(effect.sent) if effect else 1, waited_ms=29_999, settle_ms=30_000
    ),
    "note_watched_before": lambda _: e.NoteWatched(KEY, 1, waited_ms=30_000, settle_ms=30_000),
    "settle_not_found_observed": _settle("not_found", waited_ms=30_000, settle_ms=30_000, observed=AS_ALICE),
    "settle_not_found_observed_other": _settle("not_found", waited_ms=30_000, settle_ms=30_000, observed=AS_BOB),
    "settle_confirmed_unobservable": _settle("confirmed", observed=Observed(None, "PermissionError: logged out")),
    "settle_conflict": _settle("conflict"),
    "settle_unavailable": _settle("unavailable"),
    "credit_first": lambda _: e.Credit(KEY, 1, SECOND),
    "credit_second": lambda _: e.Credit(KEY, 2, SECOND),
    "void": _of_last(lambda n, _: e.Void(KEY, n, SECOND)),
    "void_own": _void_of_its_own,
    "void_rivals": _of_last(lambda n, _: e.Void(KEY, n, SECOND, ("t9", 1))),
    "void_unknown_n": lambda _: e.Void(KEY, 7, SECOND),
    "answer_confirmed": _answer("confirmed"),
    "answer_not_found": _answer("not_found"),
    "answer_not_found_stopped": _answer("not_found", stopped=True),
    "answer_conflict": _answer("conflict"),
    "answer_unavailable": _answer("unavailable"),
    "answer_stale": _answer("confirmed", behind=1),
    "answer_not_found_stale": _answer("not_found", stopped=True, behind=1),
}

# What alice approved before it was asked for, in the words of `intend`.
FORESEEN = e.Standing(ahead=(j.Approved(KEY, "alice", SAME, args={"to": "a"}, name="mail"),))

# Who asks. Only an intent looks at more than whether its token is current; an answer and a sender's end look at nothing.
INTEND_STANDINGS: dict[str, tuple[e.Standing, dict[str, Any]]] = {
    "current": (e.Standing(), {}),
    "clean": (e.Standing(clean=True), {}),
    "stale": (e.Standing(current=False), {}),
    "suspended": (e.Standing(suspended="swallowed"), {}),
    "unknown": (e.Standing(unknown="sml_other"), {}),
    "limit": (e.Standing(used=2), {"limit": 2}),
    "per_task": (e.Standing(used_here=1), {"per_task": 1}),
    "cancelled": (e.Standing(cancelled=True), {}),
    "over": (e.Standing(over="spent 2.03 usd of 2"), {}),
    "new": (e.Standing(new=True, used=1, used_here=1), {"per_task": 1}),
    "bound": (BOUND, {}),
    "bound_otherwise": (e.Standing(bound=BOB), {}),
    "bound_unknown": (e.Standing(bound=BOB, unknown="sml_other"), {}),
    "beyond": (e.Standing(beyond="more than was forecast"), {}),
    "foreseen": (FORESEEN, {}),
}
AHEAD_STANDINGS: dict[str, tuple[e.Standing, dict[str, Any]]] = {"nobody_yet": (e.Standing(), {}), "foreseen": (FORESEEN, {})}
OTHER_STANDINGS: dict[str, tuple[e.Standing, dict[str, Any]]] = {
    "current": (e.Standing(), {}), "stale": (GONE, {}), "bound": (BOUND, {}), "bound_otherwise": (e.Standing(bound=BOB), {}),
}  # fmt: skip


def standings(command: str) -> dict[str, tuple[e.Standing, dict[str, Any]]]:
    """Who may ask with a command."""
    if "ahead" in command:
        return AHEAD_STANDINGS
    return INTEND_STANDINGS if command.startswith("intend") else OTHER_STANDINGS


def apply_all(effect: e.Effect | None, events: Iterable[j.Happened]) -> e.Effect | None:
    """The effect after events that were decided on it."""
    seq = effect.version if effect else 0
    for event in events:
        seq += 1
        if isinstance(event, j.OfEffect):
            effect = e.apply(effect, event, seq, 1000 * seq)
        else:
            assert isinstance(event, j.Void)  # it takes a place, and says nothing of any effect
    return effect


def outcome(effect: e.Effect | None, decided: e.Decision | Refusal) -> str:
    """What stands in a cell."""
    if isinstance(decided, Refusal):
        return f"!{decided.code}"
    kinds = "+".join(event.kind for event in decided.events)
    after = apply_all(effect, decided.events)
    left = f">{after.state}" if kinds and after else ""
    return kinds + left + ("=" if decided.recorded is not None else "") or "."


def cells() -> Iterator[tuple[tuple[str, str, str], e.Effect | None, e.EffectCommand, e.Standing]]:
    """Every cell: its name, the effect, the command, who asks."""
    for command, make in COMMANDS.items():
        for state, build in STATES.items():
            effect = build().effect
            for asker, (standing, changes) in standings(command).items():
                made = make(effect)
                yield (command, state, asker), effect, replace(made, **changes) if changes else made, standing

"""Identity: only exactly what is bound is sent, and what was sent is settled only as its sender. Each rule by itself."""

from __future__ import annotations

from dataclasses import replace

import effect_cells as c
import pytest
import task_cells as tc
from task_cells import K1

from semel.machine import effects as e
from semel.machine import identity
from semel.machine import journal as j
from semel.machine import tasks as t
from semel.machine.commands import PENDING, Names, Observed
from semel.model import Code, Refusal


@pytest.mark.parametrize(
    ("bound", "seen", "says"),
    [
        ((("account", "alice"),), (("account", "alice"),), ""),
        ((("account", "alice"),), (("account", "Alice"),), "account is bound to 'alice', and 'Alice' is observed"),
        ((("account", "alice"), ("profile", "p1")), (("account", "alice"),), "profile is bound to 'p1', and it was not observed"),
        ((("account", "alice"),), (("account", "alice"), ("shop", "2")), "shop is observed as '2', and is not bound"),
        ((), (("account", "alice"),), "nothing is bound to its task; write semel.bind(account=...) before it"),
        ((), (), "mail observes nothing, and nothing is bound to its task; write semel.bind(account=...) before it"),
        ((("account", "alice"),), (), "account is bound to 'alice', and it was not observed"),
        ((("account", "alice"),), None, "the identity for mail could not be observed: why"),
    ],
)
def test_only_the_same_names_with_the_same_values_match(bound: Names, seen: Names | None, says: str) -> None:
    said = identity.mismatch("mail", bound, Observed(seen, "why"))
    assert says in said and bool(says) == bool(said)


def test_it_is_observed_when_all_else_permits_it_and_sent_when_it_matches() -> None:
    unseen = e.decide(None, c.intend(observed=PENDING), c.BOUND)
    assert isinstance(unseen, Refusal) and unseen.code is Code.IDENTITY_MISMATCH and "to be observed first" in unseen.message
    sent = e.decide(None, c.intend(observed=c.AS_ALICE), c.BOUND)
    assert not isinstance(sent, Refusal)
    (event,) = sent.events
    assert isinstance(event, j.Intended) and event.observed == {"account": "alice"}


def test_a_lookup_that_nobody_looked_before_is_not_believed() -> None:
    settle = e.Settle(c.KEY, c.SECOND, "confirmed", "lookup:find", observed=PENDING)
    for found in (c.ended(), c.lost_observed()):
        decided = e.decide(found.effect, settle, c.BOUND)
        assert isinstance(decided, Refusal) and decided.code is Code.IDENTITY_MISMATCH


def test_every_identity_under_which_it_was_sent_must_be_the_one_that_is_observed() -> None:
    """Sent as alice, bound anew, and (by older code, say) sent as bob: nobody is both, so a person must tell."""
    found = c.lost_observed()
    assert found.effect is not None
    second = replace(found.effect.sent[0], n=2, observed=c.BOB)
    twice = replace(found.effect, sent=(*found.effect.sent, second))
    for seen, bound in ((c.AS_ALICE, c.ALICE), (c.AS_BOB, c.BOB)):
        decided = e.decide(twice, c.intend(again=True, observed=seen), e.Standing(bound=bound))
        assert isinstance(decided, Refusal) and decided.code is Code.IDENTITY_MISMATCH


def test_what_a_person_or_late_evidence_says_needs_nobody_s_login() -> None:
    found = c.lost_observed()
    assert found.effect is not None
    for command in (e.Answer(c.KEY, "confirmed", "ann", found.effect.version), e.Confirm(c.KEY, 1, c.FIRST, "late")):
        assert not isinstance(e.decide(found.effect, command, e.Standing(bound=c.BOB)), Refusal), command


def test_a_clean_effect_is_sent_anew_as_whom_it_is_bound_by_then() -> None:
    """Nothing of it is open: as whom it had been sent does not matter any more."""
    sent = e.decide(c.observed_not_found().effect, c.intend(observed=c.AS_BOB), e.Standing(bound=c.BOB))
    assert not isinstance(sent, Refusal) and sent.events[0].kind == "intended"


def test_a_mismatch_is_on_record_and_the_attempt_starts_nothing_more() -> None:
    bench = tc.leased_mismatched()
    assert bench.task.differed is not None and bench.task.differed.observed == {"account": "bob"}
    no = t.decide(bench.task, bench.intend(K1))
    assert isinstance(no, Refusal) and no.code is Code.UNKNOWN_OUTSTANDING
    again = tc.blocked_mismatched().do(t.Replay("by ann", tc.NOW), tc.claim())
    assert again.task.differed is None and not again.task.suspended and dict(again.task.bound) == {"account": "alice"}


def test_what_is_bound_outlives_its_attempt_and_only_a_person_gives_it_another_value() -> None:
    bench = tc.blocked_mismatched()
    bench.do(t.Replay("by ann", tc.NOW, identity=(("account", "bob"),), by="ann"), tc.claim())
    assert dict(bench.task.bound) == {"account": "bob"}
    bench.do(t.Bind(bench.token, tc.ALICE))
    assert dict(bench.task.bound) == {"account": "bob"} and bench.task.differed is not None

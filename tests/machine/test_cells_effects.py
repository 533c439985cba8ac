"""Every cell of effect state x command x who asks stands in cells/effects.txt, as a change or as a named refusal."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import effect_cells as c
import pytest
from machine_cells import read_table

from semel.machine import effects as e
from semel.machine import journal as j
from semel.model import Code, EffectState, Refusal

TABLE = read_table("effects.txt")
STANDINGS = {name: standing for name, _, _, standing in c.cells()}
DECIDED = {name: (effect, command, e.decide(effect, command, standing)) for name, effect, command, standing in c.cells()}


@pytest.mark.parametrize("command", c.COMMANDS)
def test_each_cell_is_what_the_table_says(command: str) -> None:
    found = {name: c.outcome(effect, decided) for name, (effect, _, decided) in DECIDED.items() if name[0] == command}
    assert found == {name: outcome for name, outcome in TABLE.items() if name[0] == command}


def test_no_cell_is_left_out_and_none_is_made_up() -> None:
    assert set(TABLE) == set(DECIDED)


def test_every_command_of_the_machine_has_its_cells() -> None:
    assert {type(command) for _, command, _ in DECIDED.values()} == set(get_args(e.EffectCommand))


# What a decision looks at; whatever else a command carries is only written down, or is judged by the standing.
DECIDING: dict[type, set[str]] = {
    e.Intend: {
        "digest",
        "material",
        "again",
        "said",
        "limit",
        "per_task",
        "doubt",
        "recovery",
        "approvers",
        "at",
        "task",
        "observed",
        "generation",
    },
    e.Confirm: {"n", "token", "sender"},
    e.Disprove: {"n", "token", "sender"},
    e.Lose: {"n", "token", "ended", "sender"},
    e.MarkUnfenced: {"n", "why"},
    e.NoteSenderGone: {"session", "dead"},
    e.Settle: {"verdict", "how", "waited_ms", "seen", "observed", "settled"},
    e.NoteWatched: {"seen", "waited_ms"},
    e.Credit: {"n"},
    e.Void: {"n", "sender"},
    e.Answer: {"verdict", "seen", "stopped"},
    e.Approve: {"by", "seen", "at", "args", "digest", "ahead"},
    e.Deny: {"seen", "ahead"},
    e.Reverse: {"seen"},
    e.Renew: {"seen"},
}
WRITTEN_DOWN: dict[type, set[str]] = {
    e.Intend: {"name", "args", "attempt", "token", "session", "occurrence", "timeout_ms", "unfenced",
               "intent"},
    e.Confirm: {"result", "unrecorded", "how"},
    e.Disprove: {"reason", "final", "detail"},
    e.Lose: {"why"},
    e.MarkUnfenced: {"token"},
    e.NoteSenderGone: set(),
    e.Settle: {"token", "result", "reason", "settle_ms"},
    e.NoteWatched: {"settle_ms"},
    e.Credit: {"token"},
    e.Void: {"token"},
    e.Answer: {"by", "result", "reason"},
    e.Approve: {"reason", "expires"},
    e.Deny: {"by", "reason"},
    e.Reverse: {"by", "reason", "at"},
    e.Renew: {"by", "reason"},
}  # fmt: skip


def test_every_field_that_decides_is_varied_in_the_table() -> None:
    """A new field of a command belongs to one of the two lists; if it decides, the table must show what it decides."""
    for kind in get_args(e.EffectCommand):
        assert {field.name for field in fields(kind)} == DECIDING[kind] | WRITTEN_DOWN[kind] | {"key"}, kind.__name__
        made = [command for _, command, _ in DECIDED.values() if type(command) is kind]
        for name in DECIDING[kind]:
            assert len({repr(getattr(command, name)) for command in made}) > 1, f"{kind.__name__}.{name}"


def test_every_fact_on_record_makes_a_state() -> None:
    """A new fact on an effect or on a submission is decided only once a state that has it stands in the table."""
    identity = {"key", "name", "args", "digest", "material", "occurrence", "generation", "recovery"}
    effects = [effect for effect in (build().effect for build in c.STATES.values()) if effect]
    for field in fields(e.Effect):
        if field.name not in identity:
            assert len({repr(getattr(effect, field.name)) for effect in effects}) > 1, field.name
    for field in fields(e.Sent):
        if field.name not in {"task"}:
            assert len({getattr(sent, field.name) for effect in effects for sent in effect.sent}) > 1, field.name


def test_every_state_of_the_ledger_and_every_standing_has_its_cells() -> None:
    states = {effect.state for effect, _, _ in DECIDED.values() if effect}
    assert states == set(EffectState)
    for field in fields(e.Standing):
        assert len({repr(getattr(standing, field.name)) for standing, _ in c.INTEND_STANDINGS.values()}) > 1, field.name


def test_every_verdict_is_settled_and_answered() -> None:
    verdicts = {"confirmed", "not_found", "conflict", "unavailable"}
    for kind in (e.Settle, e.Answer):
        assert {command.verdict for _, command, _ in DECIDED.values() if isinstance(command, kind)} == verdicts


def test_a_refusal_is_named_and_says_why() -> None:
    for name, (_, _, decided) in DECIDED.items():
        if isinstance(decided, Refusal):
            assert decided.code in Code and len(decided.message) > 10, name


def test_no_cell_unsays_what_is_on_record() -> None:
    """Whatever is decided: a submission is never opened again, and what is known of a sender, or confirmed, stays known.

    But for what a person said: that may be taken back by one, and what it had closed is open again, and unknown.
    """
    for name, (before, command, decided) in DECIDED.items():
        if before is None or isinstance(decided, Refusal):
            continue
        after = c.apply_all(before, decided.events)
        assert after is not None
        back = isinstance(command, e.Reverse)
        assert not back or (before.word is not None and after.unknown and len(after.sent) == before.word.sent), name
        assert (after.confirmed or not before.confirmed or back) and after.version == before.version + len(decided.events), name
        assert after.evidence[: len(before.evidence)] == before.evidence, name
        for was, now in zip(before.sent, after.sent, strict=False):
            assert was.open or not now.open or (back and now.lost), name
            assert all(getattr(now, fact) for fact in ("lost", "ended", "fenced", "dead", "unfenced") if getattr(was, fact)), name
            assert (now.n, now.task, now.attempt, now.token, now.at) == (was.n, was.task, was.attempt, was.token, was.at), name


def test_no_cell_submits_what_may_have_happened() -> None:
    """A submission is opened only on what is clean, or, as a resubmission, on what is unknown; never on evidence of success."""
    for name, (before, command, decided) in DECIDED.items():
        if isinstance(decided, Refusal) or not any(event.kind == "intended" for event in decided.events):
            continue
        assert isinstance(command, e.Intend)
        if before is not None:
            clean = before.state is EffectState.NOT_ATTEMPTED and not before.open
            unknown = before.state is EffectState.AMBIGUOUS and command.again
            assert (clean or unknown) and before.told is None and not before.confirmed, name


def test_no_cell_sends_what_was_not_approved() -> None:
    """R21: what a person must approve is sent, or assumed to be, on standing approvals alone, and in the words on record."""
    for name, (before, command, decided) in DECIDED.items():
        if isinstance(decided, Refusal) or not isinstance(command, e.Intend) or command.again:
            continue
        sent = [event for event in decided.events if isinstance(event, j.Intended | j.Assumed)]
        wanted = max(command.approvers, before.asked.approvers if before and before.asked else 0)
        if sent and wanted:
            if before is None:  # approved before it came: asked for, and approved, in the same change
                early = [event for event in decided.events if isinstance(event, j.Asked | j.Approved)]
                assert all(event.digest == command.digest for event in early), name
                before = c.apply_all(None, early)
            assert before is not None and before.denied is None, name
            standing = {a.by for a in before.approvals if a.digest == before.digest and (not a.expires or a.expires > command.at)}
            assert len(standing) >= wanted, name
            after = c.apply_all(before, decided.events)
            assert after is not None and (after.args, after.digest) == (before.args, before.digest), name


def test_no_cell_sends_or_believes_as_somebody_else() -> None:
    """What observes an identity is sent, or settled by a lookup, only as what is bound, and as what it was sent as before."""
    for name, (before, command, decided) in DECIDED.items():
        if isinstance(decided, Refusal) or not isinstance(command, e.Intend | e.Settle):
            continue
        asks = isinstance(command, e.Settle) and command.how.startswith("lookup:")
        if not asks and not any(event.kind == "intended" for event in decided.events):
            continue
        sent_as = {pair for s in before.open for pair in s.observed} if before is not None else set()
        bound = STANDINGS[name].bound
        seen = command.observed.identity if command.observed is not None else None
        if command.observed is not None:
            assert seen and seen == bound and sent_as <= set(seen), name
        else:
            assert not sent_as, name


def test_only_an_open_submission_is_closed_by_its_own_outcome() -> None:
    """R1: an event about submission n changes submission n alone, unless the whole effect is confirmed or found."""
    for name, (before, _, decided) in DECIDED.items():
        if before is None or isinstance(decided, Refusal):
            continue
        for event in decided.events:
            if event.kind in ("disproved", "lost", "late", "unfenced"):
                after = c.apply_all(before, (event,))
                assert after is not None
                others = [(was, now) for was, now in zip(before.sent, after.sent, strict=True) if was.n != event.n]  # type: ignore[attr-defined]
                assert all(was == now for was, now in others), name

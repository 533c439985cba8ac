"""The store's epoch: every state x command, and what is in doubt because of it (R20)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from semel.machine import epochs
from semel.machine import journal as j
from semel.machine.effects import EPOCH_SHIFT, Decision, Doubt
from semel.machine.tasks import Task
from semel.model import Refusal

NOW = 1000  # unix seconds
FIRST = epochs.Epoch()


def after(state: epochs.Epoch, *commands: epochs.Command) -> epochs.Epoch:
    """The state after these; none may be refused."""
    for command in commands:
        decided = epochs.decide(state, command)
        assert isinstance(decided, Decision), decided
        for event in decided.events:
            state = epochs.apply(state, event)
    return state


def begin(seen: int = 900, witnessed: int = 900, **changed: int | str) -> epochs.Begin:
    return replace(epochs.Begin(seen, witnessed, NOW, "i1", 500_000, "restored"), **changed)  # type: ignore[arg-type]


BEGUN = after(FIRST, begin())
WATCHED = after(BEGUN, epochs.Watched(1001))
CLOSED = after(WATCHED, epochs.Close("w"))
CLOSED_EARLY = after(BEGUN, epochs.Close("w"))
LIFTED = after(WATCHED, epochs.Lift("w"))
LIFTED_CLOSED = after(CLOSED, epochs.Lift("w"))
STATES = {"first": FIRST, "begun": BEGUN, "watched": WATCHED, "closed": CLOSED, "closed_early": CLOSED_EARLY, "lifted": LIFTED,
          "lifted_closed": LIFTED_CLOSED}  # fmt: skip
COMMANDS: dict[str, epochs.Command] = {
    "begin": begin(2000, 2000, now=2000), "watched": epochs.Watched(1001), "close": epochs.Close("w"), "lift": epochs.Lift("w"),
}  # fmt: skip
STALE = "!stale_view"
TABLE = {
    "begin":   dict.fromkeys(STATES, "epoch_began"),
    "watched": {"first": STALE, "begun": "epoch_watched", "watched": "", "closed": "", "closed_early": "epoch_watched",
                "lifted": "", "lifted_closed": ""},
    "close":   {"first": STALE, "begun": "window_closed", "watched": "window_closed", "closed": "", "closed_early": "",
                "lifted": STALE, "lifted_closed": STALE},
    "lift":    {"first": STALE, "begun": "doubt_lifted", "watched": "doubt_lifted", "closed": "doubt_lifted",
                "closed_early": "doubt_lifted", "lifted": STALE, "lifted_closed": STALE},
}  # fmt: skip


def outcome(state: epochs.Epoch, command: epochs.Command) -> str:
    decided = epochs.decide(state, command)
    return f"!{decided.code}" if isinstance(decided, Refusal) else "+".join(event.kind for event in decided.events)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_cell_is_what_the_table_says(command: str) -> None:
    assert {name: outcome(state, COMMANDS[command]) for name, state in STATES.items()} == TABLE[command]


def test_what_each_command_leaves_behind() -> None:
    assert (BEGUN.epoch, BEGUN.doubtful, BEGUN.window, BEGUN.watched, BEGUN.since) == (1001, True, True, False, 500_000)
    assert replace(BEGUN, watched=True, version=2) == WATCHED
    assert replace(WATCHED, window=False, version=3) == CLOSED
    assert replace(WATCHED, doubtful=False, window=False, version=3) == LIFTED


def test_a_new_epoch_is_above_the_store_the_witness_the_clock_and_what_a_person_knows() -> None:
    assert after(FIRST, begin(900, 900)).epoch == NOW + 1
    assert after(FIRST, begin(3000, 3000)).epoch == 3001
    assert after(FIRST, begin(900, 3000)).epoch == 3001
    assert after(FIRST, begin(above=7000)).epoch == 7001
    assert after(WATCHED, begin(1001, 1001, now=5)).epoch == 1002, "a slow clock takes it back no more than anything else"


def test_an_epoch_begins_only_where_it_was_seen() -> None:
    assert outcome(WATCHED, begin(900, 900)) == STALE, "somebody else has begun one since"
    assert outcome(FIRST, begin(901, 900)) == STALE, "the store is beyond what the witness knows: it has been noticed"


def test_an_epoch_fits_into_a_token() -> None:
    highest = epochs.HIGHEST
    assert after(FIRST, begin(above=highest - 1)).epoch == highest
    assert (highest << EPOCH_SHIFT) + (1 << EPOCH_SHIFT) - 1 == 2**63 - 1
    assert outcome(FIRST, begin(above=highest)) == "!limit_reached"


def test_what_was_in_doubt_when_it_went_back_again_still_is() -> None:
    again = begin(1001, 1001, since=900_000)
    assert after(WATCHED, again).since == after(CLOSED, again).since == 500_000
    assert after(LIFTED, again).since == 900_000
    assert after(WATCHED, replace(again, since=100)).since == 100
    assert after(CLOSED, again).window, "a new window: what was accepted before may be lost again"


OLD, NEW, IN_WINDOW = Task(epoch=0), Task(epoch=1001), Task(epoch=1001, doubt=True)


@pytest.mark.parametrize("state", ["begun", "watched", "closed", "closed_early"])
def test_while_it_is_doubtful_old_tasks_those_of_the_window_and_all_keys_of_the_tenant_are_in_doubt(state: str) -> None:
    doubt = Doubt(1001, 500_000)
    assert STATES[state].doubt(OLD) == STATES[state].doubt(IN_WINDOW) == STATES[state].doubt(None) == doubt
    assert STATES[state].doubt(NEW) is None


@pytest.mark.parametrize("state", ["first", "lifted", "lifted_closed"])
def test_otherwise_nothing_is(state: str) -> None:
    assert [STATES[state].doubt(task) for task in (OLD, NEW, IN_WINDOW, None)] == [None] * 4


def test_a_task_of_an_epoch_before_is_in_doubt_even_if_it_was_new_in_it() -> None:
    second = after(LIFTED, begin(1001, 1001, now=2000))
    assert second.doubt(NEW) == Doubt(2001, 500_000)
    assert second.doubt(Task(epoch=2001)) is None


def test_a_row_that_this_version_does_not_know_is_no_epoch() -> None:
    with pytest.raises(ValueError, match="unheard_of"):
        epochs.fold([j.Row("", "store", 1, "unheard_of", "x", 0, 1, "{}", "id", b"")])

"""Every cell of task state x command, and of tenant-scoped key x command, stands in cells/, as a change or a named refusal."""

from __future__ import annotations

from typing import get_args

import pytest
import shared_cells
import task_cells
from machine_cells import read_table

from semel.machine import effects as e
from semel.machine import tasks as t
from semel.model import Delivery, EffectState, Execution, Refusal

TABLE = read_table("tasks.txt")
SHARED_TABLE = read_table("shared.txt")
DECIDED = {name: (bench, command, t.decide(bench.task, command, bench.shared)) for name, bench, command in task_cells.cells()}
SHARED_DECIDED = {
    name: (bench, command, bench.decide(shared_cells.MINE, command)) for name, bench, command in shared_cells.cells()
}


@pytest.mark.parametrize("command", task_cells.COMMANDS)
def test_each_task_cell_is_what_the_table_says(command: str) -> None:
    found = {name: task_cells.outcome(b.task, decided) for name, (b, _, decided) in DECIDED.items() if name[0] == command}
    assert found == {name: outcome for name, outcome in TABLE.items() if name[0] == command}


@pytest.mark.parametrize("command", shared_cells.COMMANDS)
def test_each_shared_cell_is_what_the_table_says(command: str) -> None:
    found = {name: shared_cells.outcome(b.key, decided) for name, (b, _, decided) in SHARED_DECIDED.items() if name[0] == command}
    assert found == {name: outcome for name, outcome in SHARED_TABLE.items() if name[0] == command}


def test_no_cell_is_left_out_and_none_is_made_up() -> None:
    assert set(TABLE) == set(DECIDED)
    assert set(SHARED_TABLE) == set(SHARED_DECIDED)


def test_every_command_of_the_machine_has_its_cells() -> None:
    assert {type(command) for _, command, _ in DECIDED.values()} == set(get_args(t.TaskCommand))
    assert {type(command) for _, command, _ in SHARED_DECIDED.values()} == set(get_args(e.EffectCommand))


def test_every_state_of_the_ledgers_has_its_cells() -> None:
    assert {bench.task.delivery for bench, _, _ in DECIDED.values()} == set(Delivery)
    assert {bench.task.execution for bench, _, _ in DECIDED.values()} == set(Execution)
    assert {bench.key.effect.state for bench, _, _ in SHARED_DECIDED.values() if bench.key.effect} == set(EffectState)


def test_every_fact_of_a_task_makes_a_state() -> None:
    """A new fact on a task is decided only once a state that has it stands in the table."""
    identity = {"id", "kind", "key", "args", "queue", "priority"}
    told_when_accepted = {"epoch", "doubt"}  # `epochs.Epoch.doubt` looks at them, and no command
    told_at_the_claim = {"max_attempts", "max_crashes", "backoff_ms", "budget"}
    states = [build().task for build in task_cells.STATES.values()]
    for name in t.Task.__dataclass_fields__.keys() - identity - told_when_accepted - told_at_the_claim:
        assert len({repr(getattr(task, name)) for task in states}) > 1, name


def test_an_owner_without_the_token_is_refused_before_anything_else() -> None:
    for (command, state, asker), (_, _, decided) in DECIDED.items():
        if asker == "stale" and not command.startswith("spend"):  # what was spent was spent
            assert isinstance(decided, Refusal) and decided.code == "stale_token", (command, state)


def test_no_task_cell_leaves_an_ended_task_with_an_open_effect() -> None:
    """Finished, cancelled and dead-lettered mean that nothing of it is open: neither unknown nor in flight."""
    for name, (bench, _, decided) in DECIDED.items():
        if isinstance(decided, Refusal):
            continue
        left = task_cells.after(bench.task, decided.events)
        taken_back = bench.task.ended and bench.task.unknown  # a person's word of it: it stays ended
        if left.ended and not taken_back:
            assert not [effect.key for effect in left.effects.values() if effect.open], name
            assert not left.unknown and not left.submitted and not left.session, name


def test_no_task_cell_ends_an_attempt_and_leaves_a_submission_waited_for() -> None:
    """R2: whatever takes the lease away loses what the attempt had submitted, in the same change."""
    for name, (bench, _, decided) in DECIDED.items():
        if isinstance(decided, Refusal) or bench.task.delivery is not Delivery.LEASED:
            continue
        left = task_cells.after(bench.task, decided.events)
        if left.delivery is not Delivery.LEASED:
            assert not left.submitted, name
            assert all(sent.lost for effect in left.effects.values() for sent in effect.open), name


def test_no_cell_lowers_a_token() -> None:
    for name, (bench, _, decided) in DECIDED.items():
        if not isinstance(decided, Refusal):
            left = task_cells.after(bench.task, decided.events)
            claimed = any(event.kind == "claimed" for event in decided.events)
            assert (left.token > bench.task.token) if claimed else (left.token == bench.task.token), name
    for name, (bench, _, decided) in SHARED_DECIDED.items():
        if not isinstance(decided, Refusal):
            key = bench.key
            for event in decided[1].events:
                key = t.apply_key(key, event, task_cells.NOW)
            intended = any(event.kind == "intended" for event in decided[1].events)
            assert (key.token > bench.key.token) if intended else (key.token == bench.key.token), name


def test_the_execution_ledger_says_running_only_of_what_somebody_has() -> None:
    for name, (bench, _, decided) in DECIDED.items():
        left = bench.task if isinstance(decided, Refusal) else task_cells.after(bench.task, decided.events)
        assert (left.execution is Execution.RUNNING) == (left.delivery is Delivery.LEASED), name

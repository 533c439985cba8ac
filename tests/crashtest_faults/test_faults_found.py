"""Each fault is found at its line, in real worker processes that die or lose a reply; and nothing is found in right code."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from faults_lab import HERE, ROOT, Lab

from semel.testing.crashtest import faults
from semel.testing.crashtest.records import Fault, Run

WRONG = ROOT / "examples" / "wrong"
OWN = HERE / "apps"
EXAMPLES = {
    "effect_outside": ("refund", {"kill": "pay_back"}, faults.OUTSIDE),
    "changing_key": ("pay", {"kill": "transfer"}, faults.CHANGES),
    "blind_lookup": ("welcome", {"kill": "send_mail"}, faults.BLIND),
    "deaf_lookup": ("welcome", {"lose": "send_mail"}, faults.ERRS),
    "swallowed_suspension": ("close_month", {"lose": "tell_team", "most": 1}, faults.SWALLOWS),
    "retrying_effect": ("remind", {"lose": "send_mail"}, faults.RETRIES),
    "silent_effect": ("order", {"lose": "buy"}, faults.SILENCE),
    "hasty_not_done": ("order", {"lose": "buy"}, faults.DENIES),
    "unsent_key": ("order", {}, faults.KEYLESS),
}


def lines_that_say(path: Path) -> dict[str, list[str]]:
    """By "file.py:12": the words after WRONG on that line."""
    lines = enumerate(path.read_text().splitlines(), 1)
    return {f"{path.name}:{n}": said[1].split(" | ") for n, line in lines if (said := re.search(r"# WRONG: (.*)", line))}


def whole(runs: Sequence[Run]) -> faults.Watched:
    """What was watched; nothing of it may have been unreadable to the watch itself."""
    seen = faults.watched(runs)
    assert not seen.broken, [
        line for run in runs for log in run.logs for line in log.read_text().splitlines() if "broken" in line
    ]
    return seen


def test_each_wrong_example_is_run_here() -> None:
    assert {file.stem for file in WRONG.glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_wrong_example_fails_with_its_fault_at_its_line(name: str, lab: Lab) -> None:
    task, how, fault = EXAMPLES[name]
    file = WRONG / f"{name}.py"
    runs = [lab.run(file, task, "order-1", **how)]  # type: ignore[arg-type]
    told = faults.found(runs)
    assert [(one.name, one.where) for one in told] == [(fault, where) for where in lines_that_say(file)]
    assert told[0].what
    assert told[0].mend
    assert whole(runs).submissions
    assert whole(runs).replies_lost == ("lose" in how)


def test_each_fault_is_found_in_other_clothes(lab: Lab, measured: Callable[[str], None]) -> None:
    file = OWN / "wrong.py"
    keys = "with_clock with_attempt with_random with_stamp with_occurrence"
    runs = [
        lab.run(file, f"outside outside_async {keys} suppresses hides sleeps", "o1"),
        lab.run(file, "gathers", "o1", lose="shout", most=1),
        lab.run(file, "sends", "o1", kill="send"),
        lab.run(file, "ships", "o1", kill="ship"),
        lab.run(file, "insists", "o1", lose="insist"),
        lab.run(file, "nags", "o1", lose="nag"),
    ]
    told = {fault.where: fault for fault in faults.found(runs)}
    said = lines_that_say(file)
    assert set(told) == set(said), f"not found: {set(said) - set(told)}; found besides: {set(told) - set(said)}"
    for where, words in said.items():
        for word in words:
            assert word in f"{told[where].what} {told[where].mend}", (where, told[where])
    seen = whole(runs)
    assert min(seen.second_attempts, seen.replies_lost, seen.not_found, seen.calls) > 0
    measured(f"{len(told)} faults of {len({fault.name for fault in told.values()})} kinds found; {seen}")


def test_nothing_is_found_in_right_code(lab: Lab, measured: Callable[[str], None]) -> None:
    file, tasks = OWN / "right.py", "handle keep shuffled"
    runs = [lab.run(file, tasks, "o1", kill="pay"), lab.run(file, tasks, "o1", lose="report")]
    judge_right(runs, lab, measured)


def test_nothing_is_found_in_the_invoicing_example(lab: Lab, measured: Callable[[str], None]) -> None:
    file = ROOT / "examples" / "invoicing" / "agent.py"
    runs = [
        lab.run(file, "bill", "INV-2401", kill="send_mail"),
        lab.run(file, "bill", "INV-2401", lose="charge"),
    ]
    judge_right(runs, lab, measured)
    assert whole(runs).lookups


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_nothing_is_found_in_right_code_however_it_dies(lab: Lab, measured: Callable[[str], None]) -> None:
    file, tasks = OWN / "right.py", "handle keep shuffled"
    runs = [lab.run(file, tasks, "o1", kill=name) for name in ("pay", "store", "report", "remark") for _ in range(5)]
    runs += [lab.run(file, tasks, "o1", lose=name) for name in ("pay", "report", "remark") for _ in range(3)]
    agent = ROOT / "examples" / "invoicing" / "agent.py"
    runs += [lab.run(agent, "bill", "INV-2401", kill=name) for name in ("charge", "send_mail")]
    runs += [lab.run(agent, "bill", "INV-2401", lose=name) for name in ("charge", "send_mail")]
    runs += [lab.run(agent, "bill", "INV-2401", lose="tell_team", most=1)]  # waits for a person then
    judge_right(runs, lab, measured)
    seen = whole(runs)
    assert min(seen.lookups, seen.suspensions) > 0


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_nothing_is_found_in_the_examples(lab: Lab, measured: Callable[[str], None]) -> None:
    """All but the one on PostgreSQL, and the one whose app runs in processes of its own."""
    files = [file for file in (ROOT / "examples").glob("*.py") if file.stem not in ("one_transaction", "webhook_twice")]
    runs = [lab.script(file) for file in files]
    assert faults.found(runs) == []
    seen = whole(runs)
    assert min(seen.submissions, seen.lookups, seen.not_found, seen.calls, seen.second_attempts) > 0
    measured(f"{len(runs)} examples, no fault; {seen}")


def judge_right(runs: list[Run], lab: Lab, measured: Callable[[str], None]) -> None:
    """None of it is a fault, though there was enough to judge by; and nothing happened twice."""
    told: list[Fault] = faults.found(runs)
    assert told == []
    seen = whole(runs)
    assert min(seen.second_attempts, seen.replies_lost, seen.calls, seen.suspensions + seen.lookups) > 0
    assert all(count == 1 for run in runs for count in run.counted.values())
    measured(f"{len(runs)} runs, no fault; {seen}")

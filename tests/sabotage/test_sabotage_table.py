"""Every rule has a guard that is taken out, and the page that says so is the one that the table makes."""

from __future__ import annotations

import table
from guards import GUARDS


def test_every_rule_has_a_guard_that_is_taken_out() -> None:
    assert {f"R{n}" for n in range(1, 24)} | {"Identity", "Redaction", "Limits", "Invariant"} <= table.RULES.keys()
    without = [rule for rule, guards in table.by_rule().items() if not guards]
    assert not without, f"no guard in tests/sabotage/guards.py is of {', '.join(without)}"


def test_the_page_of_guards_is_current() -> None:
    written = table.PAGE.read_text(encoding="utf-8")
    assert written == table.page(), "docs/explanation/sabotage.md is old: python tests/sabotage/run.py --table"


def test_no_two_guards_have_one_name() -> None:
    names = [guard.name for guard in GUARDS]
    assert len(set(names)) == len(names), sorted({name for name in names if names.count(name) > 1})


def test_each_guards_tests_are_there() -> None:
    root = table.PAGE.parents[2]
    gone = [(guard.name, test) for guard in GUARDS for test in guard.tests if not (root / test.partition("::")[0]).is_file()]
    assert not gone


def test_the_text_of_each_guard_stands_in_the_source_once() -> None:
    wrong = [said for guard in GUARDS if (said := table.out_of_date(guard))]
    assert not wrong, wrong

"""Both checkers, strict: five kinds of users are accepted, and every mistake is reported where it is made, ours with records too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import typing_lab
from typing_lab import Errors

RIGHT = ("users.py", "more.py", "rigs.py")
WRONG = {"wrong.py": 18, "wrong_rigs.py": 10, "wrong_records.py": 7}
# mypy widens P to (*Any, **Any) where two arguments disagree about it; at run time it is a Misuse
MISSED = {("mypy", "wrong_rigs.py"): [1]}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("run", [typing_lab.mypy, typing_lab.pyright], ids=lambda run: run.__name__)
def test_right_uses_are_accepted_and_each_numbered_mistake_is_reported(run: Callable[[], Errors]) -> None:
    assert {path.name for path in typing_lab.CASES.glob("*.py")} == {*RIGHT, *WRONG}
    errors = run()
    for file in RIGHT:
        assert not errors.get(file), f"{file} is right, and refused: {dict(errors[file])}"
    for file, mistakes in WRONG.items():
        lines = typing_lab.numbered(file)
        assert sorted(lines) == list(range(1, mistakes + 1))
        missed = [number for number, line in lines.items() if not errors[file].get(line)]
        assert missed == MISSED.get((run.__name__, file), []), f"{file}: accepted: {missed}"
        elsewhere = {line: told for line, told in errors[file].items() if line not in lines.values()}
        assert not elsewhere, f"{file}: an error that is no numbered mistake: {elsewhere}"
    assert set(errors) <= {*RIGHT, *WRONG}


def test_the_package_says_that_it_is_typed() -> None:
    assert (typing_lab.SOURCE / "semel" / "py.typed").exists()

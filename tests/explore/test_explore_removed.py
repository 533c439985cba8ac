"""Each guard of the machine against a second act, taken out: the explorer finds what follows, by a trace of under 30 steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from explore_removed import FOUND, LONGEST, explored_without, guard_of, steps_in


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FOUND)
def test_the_explorer_finds_what_follows_when_a_guard_is_gone(name: str, tmp_path: Path, measured: Callable[[str], None]) -> None:
    said = explored_without(guard_of(name), FOUND[name], tmp_path, most=400_000)
    assert 0 < steps_in(said) < LONGEST, said
    print(said)
    measured(f"{name}: {said.splitlines()[0]}")

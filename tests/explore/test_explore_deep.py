"""The same search, further: at least five million states in all (make proof)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from explore_nouns import World
from explore_search import explore
from explore_worlds import DEEP

MOST = 700_000  # of each world: some gigabytes of memory in all, and some minutes


def test_the_deep_worlds_come_to_five_million_states() -> None:
    assert sum(world.least for world in DEEP) >= 5_000_000


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("world", DEEP, ids=lambda world: world.name.replace(" ", "-"))
def test_the_promise_holds_in_the_first_states_of_a_deep_world(world: World, measured: Callable[[str], None]) -> None:
    """Whole if it has no more than so many; else all that so many states hold, the nearest first."""
    found = explore(world, most=MOST)
    assert not found.wrong, found.told()
    measured(found.line())
    assert found.whole or found.states > MOST
    assert found.states >= world.least, "the world has become too small to prove anything"

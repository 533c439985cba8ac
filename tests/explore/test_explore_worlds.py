"""The promise in every state of some small worlds, each explored whole (issue 5: the explorer)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from explore_nouns import World
from explore_search import explore
from explore_worlds import WORLDS


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_the_promise_holds_in_every_state(world: World, measured: Callable[[str], None]) -> None:
    found = explore(world)
    assert not found.wrong, found.told()
    assert found.whole
    measured(found.line())
    assert found.states >= world.least, "the world has become too small to prove anything"
    assert found.ended, "nothing ever came to an end"
    never = [what for what in world.must if not any(what in kind for kind in found.kinds)]
    assert not never, f"this never happened, so nothing was shown about it: {never}"

"""What cannot be kept, and what the explorer must therefore find: a rule is missing from the world, and the trace is short."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from explore_search import explore
from explore_worlds import KNOWN

BY_NAME = {world.name: world for world in KNOWN}
LONGEST = 30


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("lying", "somebody can still act"),
        ("lying-opaque", "somebody can still act"),
        ("lying-twice", "happened twice"),
        ("lying-opaque-twice", "happened twice"),
        ("settle-cut-short", "somebody can still act"),
        ("settle-twice", "happened twice"),
        ("outcome-fails-alone", "has no outcome on record"),
        ("timeout-ends-code", "can still act"),
        ("restore-not-watched", "can still act"),
        ("nothing-given-back", "no honest step"),
        ("commit-lands-late", "it happened"),
    ],
)
def test_without_its_rule_the_world_breaks_the_promise(name: str, wrong: str, measured: Callable[[str], None]) -> None:
    """The machine is told what is not so: that a worker can be fenced, that settle is over."""
    found = explore(BY_NAME[name])
    assert wrong in found.wrong, found.line()
    assert len(found.trace) < LONGEST, found.told()
    measured(f"{name}: {found.wrong}, in {len(found.trace)} steps ({found.states:,} states, {found.seconds:.1f} s)")


def test_with_the_watchdog_and_settle_the_same_worlds_hold() -> None:
    """Else the searches above would show nothing of the rule that is missing in them."""
    from dataclasses import replace

    from explore_nouns import WATCHED

    for name in ("lying-twice", "settle-twice"):
        world = replace(BY_NAME[name], name="kept", workers=(WATCHED, WATCHED), settle=True, twice_only=False)
        found = explore(world)
        assert found.whole and not found.wrong, found.told()

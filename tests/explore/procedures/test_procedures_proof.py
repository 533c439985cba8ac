"""The same search over larger worlds: more workers and more faults, for as long as there is time. `make proof` runs it.

What there is no time for is left out, here and there; the figures say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import procs_shims as shims
import pytest
from procs_scenarios import aside, one, shared
from procs_search import search
from procs_world import Scenario

SECONDS = 45
PEOPLE = frozenset({"cancel", "replay", "deliver"})
EVERY = frozenset({"kill", "freeze", "call", "reply", "slow"})
LARGER: tuple[Scenario, ...] = (
    one("lookup", faults=2), one("ask", faults=2), one("resend", faults=2), one("create", faults=2),
    one("lookup", faults=3, kinds=EVERY), one("lookup", calls=2, workers=2), one("ask", workers=2, faults=2, persons=PEOPLE),
    one("lookup", workers=2, faults=2, hosts=True), one("lookup", workers=2, faults=2, hosts=True, timer=False),
    one("resend", workers=3, faults=2), shared("lookup", workers=2, faults=2), shared("ask", workers=2, faults=2, persons=PEOPLE),
    shared("resend", workers=2, faults=2, beside=True), aside("lookup", workers=2, faults=2),
)  # fmt: skip


@pytest.fixture(autouse=True)
def played() -> Iterator[None]:
    with shims.playing():
        yield


@pytest.mark.proof
@pytest.mark.timeout(10 * SECONDS)
@pytest.mark.parametrize("scenario", LARGER, ids=lambda scenario: scenario.name)
def test_the_promise_holds_in_larger_worlds(scenario: Scenario, measured: Callable[[str], None]) -> None:
    found = search(scenario, seconds=SECONDS, spread=True)
    assert not found.broken, found.story()
    for case in ("is killed", "looks after others", "lease_lost", "acts, and is answered", "finished"):
        assert any(case in name for name in found.names), f"{case!r} never came, so nothing is shown of it"
    measured(found.line())


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_a_machine_that_stands_still_is_found_by_the_search(measured: Callable[[str], None]) -> None:
    """And it is not where the timer runs, however long one looks."""
    freezes = frozenset({"freeze"})
    found = search(one("lookup", workers=2, hosts=True, kinds=freezes, paused=True))
    assert "a sender of it can still act" in found.broken and len(found.trace) < 30, found.story()
    running = search(one("lookup", workers=2, hosts=True, kinds=freezes), seconds=3 * SECONDS)
    assert not running.broken and running.states > found.states, running.story()
    measured(f"found in {len(found.trace)} steps; {running.line()}")

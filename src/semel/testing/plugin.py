"""The pytest plugin: fixtures for tests of programs that use semel. To load it imports nothing of semel's engine.

It is installed with semel; `-p no:semel` leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from semel.app import App
    from semel.testing.harness import Harness

_OPEN = pytest.StashKey["list[Harness]"]()


@pytest.fixture
def semel_harness(request: pytest.FixtureRequest) -> Iterator[Callable[[App], Harness]]:
    """`semel_harness(app)` opens a `semel.testing.Harness` on your app, which ends with the test.

    A `crash(...)` that never came fails the test. Raises `Misuse` for an app that is in a harness already.

        def test_one_charge_although_the_worker_dies(semel_harness):
            harness = semel_harness(app)
            harness.fake(charge, lambda invoice_id, cents: f"receipt-of-{invoice_id}")
            harness.crash(charge, at="after")
            ref = bill.enqueue("inv_1")
            harness.run()
            assert ref.result() == "receipt-of-inv_1"
            assert len(harness.sent(charge)) == 1
    """
    from semel.testing.harness import Harness

    opened: list[Harness] = request.node.stash.setdefault(_OPEN, [])

    def open_harness(app: App) -> Harness:
        opened.append(Harness(app).__enter__())
        return opened[-1]

    yield open_harness
    for harness in reversed(opened):
        harness._close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test that passed has failed all the same if a crash that it asked for never came."""
    result = yield
    for harness in item.stash.get(_OPEN, []):
        harness._expect_no_crash_left()
    return result

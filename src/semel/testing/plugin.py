"""The pytest plugin: fixtures for tests of programs that use semel. To load it imports nothing of semel's engine.

It is installed with semel; `-p no:semel` leaves it out.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from semel.app import App
    from semel.testing.crashtest.report import Report
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


@pytest.fixture
def crashtest() -> Callable[..., Report]:
    """Crash-test a task: `crashtest("billing:app", "bill", "inv_1", sandbox_env="PROVIDER").assert_exactly_once()`.

    Without sandbox_env each run really calls the task's effects, a dozen runs or more, each under new keys: point the app at a
    test account, and say really=True, with a probe= that counts there.

    The first argument is the app, or MODULE:app where it is imported from; the second the task, or its name; then the task's
    arguments. By name: probe, sandbox_env, really, store, jobs, only, lease, settle, timeout, key, tenant, keep, as `semel
    crashtest` has them; any other name is an argument of the task. Raises `Misuse`, and `SemelError` if the task fails unharmed.
    """
    return _crashtest


def _crashtest(app: App | str, task: Any, *args: Any, **named: Any) -> Report:
    runner = importlib.import_module("semel.testing.crashtest.runner")
    chosen = {name: named.pop(name) for name in list(named) if name in runner.Options.__dataclass_fields__}
    target, found = _target(app)
    report: Report = runner.run(target, found, getattr(task, "name", task), args, named, runner.Options(**chosen))
    return report


def _target(app: App | str) -> tuple[str, App]:
    """MODULE:app, under which worker processes find it, and the app."""
    from semel.errors import Misuse

    if isinstance(app, str):
        module, _, name = app.partition(":")
        if not module or not name:
            raise Misuse(f"{app!r} names no app; write MODULE:app, as in billing:app")
        return app, getattr(importlib.import_module(module), name)
    for module, there in list(sys.modules.items()):
        for name, value in list(vars(there).items()) if there is not None and module != "__main__" else ():
            if value is app:
                return f"{module}:{name}", app
    raise Misuse(
        "worker processes import the app, and no module holds this one; make it at the top of a module that can be imported"
    )

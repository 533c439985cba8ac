"""Fixtures of the crash tests. `SEMEL_PROOF_ROUNDS=20 pytest -m proof tests/crash` runs each scenario twenty times.

Every scenario is run on both stores. On PostgreSQL an ordinary run takes one of each test's cases, another for each test,
and leaves out those marked `long`, whose time passes at the provider; the rounds take all.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import ROUNDS, Lab

LABS = pytest.StashKey[list[Lab]]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On both stores; once, as an ordinary test, or, asked for by SEMEL_PROOF_ROUNDS, so often under the marker `proof`."""
    if "make_lab" not in metafunc.fixturenames:
        return
    alone = metafunc.definition.get_closest_marker("only")
    metafunc.parametrize("dialect", [alone.args[0]] if alone else ["sqlite", "postgres"])
    if ROUNDS > 1 and not metafunc.definition.get_closest_marker("once"):
        rounds = [pytest.param(n, marks=pytest.mark.proof, id=f"round{n}") for n in range(1, ROUNDS + 1)]
        metafunc.fixturenames.append("crash_round")
        metafunc.parametrize("crash_round", rounds)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, on PostgreSQL and outside the rounds, what is long, and all cases of a test but one."""
    if ROUNDS > 1:
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("proof"):
            continue
        if isinstance(item, pytest.Function) and "make_lab" in item.fixturenames and "postgres" in item.callspec.params.values():
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: set[int] = set()
    for name, found in cases.items():
        taken = found[zlib.crc32(name.encode()) % len(found)]
        left_out |= {id(item) for item in found if item is not taken or item.get_closest_marker("long")}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
    items[:] = [item for item in items if id(item) not in left_out]


@pytest.fixture
def make_lab(dialect: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Lab]]:
    """Make the test's laboratory, on a store of its own; all that it started ends with the test."""
    made: list[Lab] = []
    request.node.stash[LABS] = made
    url = request.getfixturevalue("database") if dialect == "postgres" else ""

    def make(**env: str) -> Lab:
        assert not made, "one store, one lab"
        made.append(Lab(tmp_path / "lab", **{"url": url, **env}))
        return made[-1]

    yield make
    for lab in made:
        lab.close()


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    """The usual laboratory."""
    return make_lab()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A failure tells the lab's story, while the lab still stands."""
    report = yield
    if report.when == "call" and report.failed:
        for lab in item.stash.get(LABS, []):
            try:
                report.sections.append(("the lab's story", lab.story()))
            except Exception as error:  # what is broken may be what the story is read from
                report.sections.append(("no story", repr(error)))
    return report

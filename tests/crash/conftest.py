"""Fixtures of the crash tests. `SEMEL_PROOF_ROUNDS=20 pytest -m proof tests/crash` runs each scenario twenty times."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab

ROUNDS = int(os.environ.get("SEMEL_PROOF_ROUNDS", "1"))
LABS = pytest.StashKey[list[Lab]]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each scenario once, as an ordinary test; or, asked for by SEMEL_PROOF_ROUNDS, so often under the marker `proof`."""
    if "make_lab" in metafunc.fixturenames and ROUNDS > 1:
        rounds = [pytest.param(n, marks=pytest.mark.proof, id=f"round{n}") for n in range(1, ROUNDS + 1)]
        metafunc.fixturenames.append("crash_round")
        metafunc.parametrize("crash_round", rounds)


@pytest.fixture
def make_lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Lab]]:
    """Make the test's laboratory; all that it started ends with the test."""
    made: list[Lab] = []
    request.node.stash[LABS] = made

    def make(**env: str) -> Lab:
        made.append(Lab(tmp_path / f"lab{len(made) + 1}", **env))
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

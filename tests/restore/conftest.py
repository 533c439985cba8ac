"""Each test is run on both stores, unless it says otherwise; each has a store of its own, and witnesses of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from going_back import Place, make

sys.path.append(str(Path(__file__).parents[1] / "crash"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On both stores, or on the one that `only` names."""
    if "dialect" in metafunc.fixturenames:
        alone = metafunc.definition.get_closest_marker("only")
        metafunc.parametrize("dialect", [alone.args[0]] if alone else ["sqlite", "postgres"])


@pytest.fixture
def place(dialect: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A store of the test's own, on which nobody has worked. This machine has no witness of it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = make(dialect, tmp_path / "store", lambda: str(request.getfixturevalue("server_url")), "restored")
    yield found
    found.close()

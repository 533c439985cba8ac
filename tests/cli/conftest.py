"""An office that has worked for a while: one store with every kind of ending, made once, copied by tests that change it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_office import FILL, HERE, Office

sys.path.append(str(HERE / "apps"))


@pytest.fixture(scope="session")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Office:
    """A store after a day's work. Not to be changed."""
    office = Office(tmp_path_factory.mktemp("office"))
    office.python(FILL)
    office.semel("worker", "clerk:app", "--until-idle", "--concurrency", "1")
    return office


@pytest.fixture
def office(worked: Office, tmp_path: Path) -> Iterator[Office]:
    """A copy of that store, to be changed."""
    copy = Office(tmp_path / "copy")
    shutil.copytree(worked.folder, copy.folder)
    yield copy
    copy.end()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Office]:
    """A folder without a store."""
    made = Office(tmp_path / "fresh")
    made.folder.mkdir()
    yield made
    made.end()

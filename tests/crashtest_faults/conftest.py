"""One nursery and one provider for the faults' tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults_lab import Lab, Nursery

from semel.testing.provider import Provider


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Forks the children."""
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    """The provider."""
    with Provider.start(tmp_path_factory.mktemp("faults") / "provider.db") as provider:
        yield provider


@pytest.fixture
def lab(nursery: Nursery, sandbox: Provider, tmp_path: Path) -> Lab:
    """A laboratory."""
    return Lab(nursery, sandbox, tmp_path)

"""A lab for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from framework_lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Effects on an app with a store of its own."""
    found = Lab(tmp_path)
    yield found
    found.app.close()

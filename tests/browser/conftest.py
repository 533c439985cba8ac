"""A real Chromium. `make test` gets one on Debian (`make chromium`); where there is none, these tests fail and say what to do."""

from __future__ import annotations

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of its program."""
    given = os.environ.get("SEMEL_TEST_CHROMIUM")
    found = shutil.which(given) if given else next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.fail(
            f"there is no Chromium {f'at SEMEL_TEST_CHROMIUM={given}' if given else 'on this machine'}, and this test needs a "
            f"real one: apt-get install chromium, or export SEMEL_TEST_CHROMIUM=/path/to/chromium",
            pytrace=False,
        )
    return found

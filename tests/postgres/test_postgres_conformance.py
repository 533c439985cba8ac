"""The conformance kit on PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable

from semel.store.contract import Landed, Store
from semel.testing.conformance import StoreConformance
from semel.testing.conformance_kit import TENANT, Stream, one


class TestPostgres(StoreConformance):
    """Every test of the kit."""

    def test_a_handle_notices_that_another_has_written(self, make_store: Callable[[], Store]) -> None:
        """A hint takes a moment to come through; it is no promise."""
        first, second = make_store(), make_store()
        before = first.changed()
        assert first.changed() == before, "nobody has written"
        assert one(second, Stream("s").then()[0]) == Landed()
        end = time.monotonic() + 10
        while first.changed() == before:
            assert time.monotonic() < end, "no hint came"
            time.sleep(0.01)
        assert first.head(TENANT, "s").seq == 1

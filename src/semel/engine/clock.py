"""Time, in one place, so that tests can make it pass."""

from __future__ import annotations

import time


class Clock:
    """wall_ms: milliseconds since the Unix epoch, never below the highest seen; boot: seconds, counts suspended time."""

    def __init__(self) -> None:
        self.highest_ms = 0

    def raw_ms(self) -> int:
        """This machine's wall clock, as it is."""
        return time.time_ns() // 1_000_000

    def wall_ms(self) -> int:
        """For records: this machine's wall clock, never below the highest store time seen (R13)."""
        self.highest_ms = max(self.highest_ms, self.raw_ms())
        return self.highest_ms

    def seen(self, at_ms: int) -> None:
        """A time that the store holds."""
        self.highest_ms = max(self.highest_ms, at_ms)

    def boot(self) -> float:
        """CLOCK_BOOTTIME, seconds: no wall clock decides ownership (R14)."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

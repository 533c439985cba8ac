"""Time, in one place, so that tests can make it pass."""

from __future__ import annotations

import time

from semel.engine.requests import Sleep
from semel.watchdog import CLOCK


class Clock:
    """wall_ms: milliseconds since the Unix epoch, for records and due times; boot: seconds, counts suspended time."""

    def __init__(self) -> None:
        self.highest_ms = 0
        self._anchor_ms, self._anchor_boot = self.raw_ms(), self.boot()

    def raw_ms(self) -> int:
        """This machine's wall clock, as it is."""
        return time.time_ns() // 1_000_000

    def wall_ms(self) -> int:
        """This machine's wall clock, which for this process never goes back: a clock set back an hour must stall nothing."""
        raw, boot = self.raw_ms(), self.boot()
        if raw >= self._anchor_ms:
            self._anchor_ms, self._anchor_boot = raw, boot
            return raw
        return self._anchor_ms + int((boot - self._anchor_boot) * 1000)

    def latest_ms(self) -> int:
        """The later of this clock and the highest time that the store has shown: what expires is never too old by it (R13)."""
        return max(self.wall_ms(), self.highest_ms)

    def seen(self, at_ms: int) -> None:
        """A time that the store holds: retention ages are never reckoned from below the highest (R13)."""
        self.highest_ms = max(self.highest_ms, at_ms)

    def boot(self) -> float:
        """CLOCK_BOOTTIME, seconds: no wall clock decides ownership (R14)."""
        return time.clock_gettime(CLOCK)

    def pause(self, seconds: float) -> Sleep:
        """What a procedure yields to let `seconds` pass; a test's clock makes them pass at once."""
        return Sleep(seconds)

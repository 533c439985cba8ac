"""All of it at once: workers killed, frozen, woken and stopped at random moments, a provider that answers badly, a person.

A stream of tasks, each with a keyed, a looked-up and an opaque effect, over five worker processes; `storm.py` does the
harm and the counting. In `make proof`: 2,000 kills and 500 freezes over both stores, in shards.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from lab import Lab
from storm import FREEZES, KILLS, Storm

SHARDS = 2  # of each store
CUT_SHORT = tuple(f"submissions cut short {place}" for place in ("before the call", "during the call", "after it acted"))
ALWAYS = (KILLS, FREEZES, "takeovers (dead)")
IN_TIME = (*ALWAYS, *CUT_SHORT, "told by a person", "kernel timer kills", "fenced", "takeovers (watched)", "asked to stop")


def weathered(lab: Lab, seed: int, kills: int, freezes: int, measured: Callable[[str], None]) -> Storm:
    """A storm that is over: every task done, one act each of its effects."""
    began = time.monotonic()
    storm = Storm(lab, seed, kills, freezes)
    storm.run()
    measured(f"{storm.reckon()}, {time.monotonic() - began:.0f} s")
    idle = sum(many for what, many in storm.done.items() if what.endswith("of idle processes"))
    assert idle < (kills + freezes) / 2, "most of what was struck had work in hand"
    return storm


@pytest.mark.once
@pytest.mark.timeout(400)  # a few seconds, if nobody else is at work here
def test_a_storm(lab: Lab, measured: Callable[[str], None]) -> None:
    """Whatever happened on the way, every effect of every task is done, and once."""
    storm = weathered(lab, 1, 15, 5, measured)
    assert all(storm.done[what] for what in ALWAYS), storm.done
    assert any(storm.done[what] for what in CUT_SHORT), storm.done


@pytest.mark.once
@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shard", range(1, SHARDS + 1))
def test_two_thousand_kills_and_five_hundred_freezes(lab: Lab, shard: int, measured: Callable[[str], None]) -> None:
    """This shard's part, with each case that a kill or a freeze can meet."""
    storm = weathered(lab, 100 + shard, 2000 // (2 * SHARDS), -(-500 // (2 * SHARDS)), measured)
    missing = [what for what in IN_TIME if not storm.done[what]]
    assert missing == [], f"this storm never met: {missing}"

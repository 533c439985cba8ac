"""The power goes at any moment of the shipped store's work: nothing that was acknowledged is lost, nothing lands in part."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from powercut_campaign import many
from powercut_life import Tally, Ways
from powercut_run import figures
from powercut_shared import RealDisk, recorded

CUTS = 20_000
SHARDS, CUTS_OF_SHARD = 20, 50_000
# Each must have happened, or the cuts say nothing of it.
WANTED = {
    "cut as the store was made", "cut as the store was migrated", "cut as the store was opened", "cut before there was a store",
    "cut in a checkpoint", "cut as the log begins anew", "cut in closing", "cut as a name goes", "kept", "lost", "torn", "zeros",
    "junk", "nothing of the one under way", "the one under way is there, whole", "integrity checks", "taken back", "epoch",
    "pause:yes", "beat:True", "claim:taken", "claim_one:taken", "enqueue:Landed", "Intend_task:Landed", "Intend_tenant:Landed",
    "Confirm_task:Landed", "Confirm_tenant:Landed", "Lose_task:Landed", "Disprove_task:Landed", "Finish:Landed", "Fail:Landed",
    "Step:Landed", "Spend:Landed", "rival:Stale",
}  # fmt: skip


def check(tally: Tally) -> None:
    """Nothing is lost, and each place and each fate was met."""
    assert not tally.lost, tally.lost[:5]
    assert tally.intents > 0
    assert not (missing := {name for name in WANTED if not tally.seen[name]}), f"never met: {sorted(missing)}"


def test_no_acknowledged_change_is_lost_when_the_power_goes(measured: Callable[[str], None]) -> None:
    tally, seconds, seeds = many(0, CUTS)
    check(tally)
    measured(figures(tally, seconds, seeds))


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_acknowledged_change_is_lost_in_a_million_power_cuts(shard: int, measured: Callable[[str], None]) -> None:
    tally, seconds, seeds = many((shard + 1) * 1_000_000, CUTS_OF_SHARD)
    check(tally)
    measured(figures(tally, seconds, seeds))


def test_nothing_is_lost_with_all_connections_and_shared_memory(measured: Callable[[str], None]) -> None:
    """The store as it is opened in earnest, on real files: of the one above, which is alone on its disk, this is the check."""
    with recorded():
        tally, seconds, seeds = many(0, 400, Ways(kind=RealDisk))
    assert not tally.lost and tally.seen["cut in a checkpoint"] > 0 and tally.seen["beat:True"] > 0
    measured(figures(tally, seconds, seeds))


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_nothing_is_lost_with_all_connections_and_shared_memory_in_many_cuts(measured: Callable[[str], None]) -> None:
    with recorded():
        tally, seconds, seeds = many(5_000_000, 20_000, Ways(kind=RealDisk))
    check(tally)
    measured(figures(tally, seconds, seeds))


def test_a_store_that_does_not_sync_each_commit_loses_intents_and_the_witness_says_so(measured: Callable[[str], None]) -> None:
    """The control: the same cuts, with synchronous=NORMAL."""
    tally, seconds, seeds = many(0, 600, Ways(synchronous="NORMAL"))
    assert tally.seen["an acknowledged intent is lost"] > 0
    assert tally.seen["and the witness notices"] == tally.seen["an acknowledged intent is lost"]
    measured(figures(tally, seconds, seeds))


def test_a_disk_that_lies_about_syncing_loses_intents(measured: Callable[[str], None]) -> None:
    """The other control: nothing that a program does helps against it, and the instrument sees it."""
    tally, seconds, seeds = many(0, 600, Ways(lies=True))
    assert tally.seen["an acknowledged intent is lost"] > 0
    assert tally.seen["and the witness notices"] > 0
    measured(figures(tally, seconds, seeds))

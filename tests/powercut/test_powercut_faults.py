"""The disk fails, at every operation in turn: the store says so, loses nothing, and works again when the disk does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from powercut_faults import BEGINNINGS, LASTING, Told, every, every_opening

OF_WORK = ("read", "write", "full", "sync", "truncate")
AT_ONCE = ("once", "until it is mended")  # what `make test` has the time for
SHARDS, SEEDS_OF_SHARD = 4, 10


def figures(told: Told, seconds: float) -> str:
    failed = {name: n for name, n in sorted(told.seen.items()) if " failed " in name}
    return (
        f"{told.runs:,} runs with a failing disk, {told.seen['cut']:,} power cuts after them, {seconds:.1f} s of one core; "
        f"{told.seen['told that the store does not answer']:,} times told, {told.seen['landed, and not acknowledged']:,} landed "
        f"without an answer; " + ", ".join(f"{name}: {n:,}" for name, n in failed.items())
    )


def check(told: Told, lastings: Sequence[str] = tuple(LASTING)) -> None:
    """Each kind of failure was met in each way."""
    wanted = {f"{kind} failed {lasting}" for kind in OF_WORK for lasting in lastings}
    wanted |= {"went on", "cut", "told that the store does not answer", "landed, and not acknowledged"}
    assert not (missing := {name for name in wanted if not told.seen[name]}), f"never met: {sorted(missing)}"


def test_a_failing_disk_loses_nothing_that_was_acknowledged_and_the_store_works_again(measured: Callable[[str], None]) -> None:
    began = time.process_time()
    told = every(range(1), lastings=AT_ONCE, cuts=1)
    check(told, AT_ONCE)
    measured(figures(told, time.process_time() - began))


def test_a_disk_that_fails_as_the_store_is_opened_is_told_and_the_next_opening_finds_all(measured: Callable[[str], None]) -> None:
    began = time.process_time()
    told = every_opening()
    wanted = {f"{kind} failed as the store was {how}" for kind in ("read", "write", "full", "sync", "open") for how in BEGINNINGS}
    wanted -= {f"{kind} failed as the store was opened" for kind in ("write", "full", "sync")}  # opening writes nothing
    wanted |= {"delete failed as the store was made", "told in opening: StoreUnavailable", "told in opening: Misuse"}
    assert not (missing := {name for name in wanted if not told.seen[name]}), f"never met: {sorted(missing)}"
    measured(figures(told, time.process_time() - began))


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_failing_disk_loses_nothing_over_many_histories(shard: int, measured: Callable[[str], None]) -> None:
    began = time.process_time()
    told = every(range(1 + shard * SEEDS_OF_SHARD, 1 + (shard + 1) * SEEDS_OF_SHARD))
    check(told)
    measured(figures(told, time.process_time() - began))

"""Seeded worlds: many workers, tasks and tenants, all that may befall them, and in the end the provider's books.

`python tests/simulation/run.py --seed N` tells the story of one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sim_losses import BENEATH, UNSEEN
from sim_play import Played, play

RUN = Path(__file__).parent / "run.py"
SABOTAGE = bool(os.environ.get("SEMEL_SABOTAGE"))
SEEDS = 1000 if SABOTAGE else 300  # a guard that was removed is missed within the first thousand
SHARDS, OF_A_SHARD = 8, 12_500
REACHED = (
    "answered from the provider's memory", "approvals", "beats: reply lost", "cancels", "clock jumps",
    "commits: reply lost", "create-only refusals", "declined", "delivered twice", "denials", "failures", "freezes",
    "graceful stops", "killed by the kernel timer", "kills", "late acts", "lookups: found", "lookups: not found",
    "lookups: not_found believed", "lookups: unavailable", "pauses", "people: it did not happen",
    "people: it did not happen: refused", "people: it happened", "people: looked too early",
    "people: not_found believed", "people: stale views", "row watched",
    "people: stopped what nothing can fence", "proofs of death", "refused", "replays", "replies lost", "requests lost",
    "restored again", "restores", "restores in the very file", "restores under the same name", "row answered", "row assumed",
    "row dead_lettered", "row declined", "row epoch_began", "row epoch_watched", "row joined", "row late", "row lease_lost",
    "row sender_gone", "row spent", "row stepped", "row unfenced submissions", "row waits", "sent again", "signals heard",
    "store: away", "tasks of two tenants", "waits that ran out", "wakes", "workers that were fenced",
    "workers without the kernel timer", "worlds on a file",
)  # fmt: skip


def told(found: Played, seconds: float) -> str:
    """What was covered, on a line."""
    some = ("kills", "freezes", "late acts", "killed by the kernel timer", "replies lost", "restores", "row epoch_began",
            "row lease_lost", "sent again", "row assumed", "row answered", BENEATH, UNSEEN)  # fmt: skip
    many = ", ".join(f"{found.counters[name]:,} {name.removeprefix('row ')}" for name in some)
    return (
        f"{found.seeds:,} seeds ({found.seeds / seconds:.0f}/s), {found.seconds:,.0f} simulated seconds, {found.acts:,} acts; "
        f"{many}; digest {found.digest}; {seconds:.1f} s"
    )


def expect(found: Played) -> None:
    """No violation; and every case that this world is meant to reach was reached."""
    assert not found.wrong, "\n".join([*found.wrong, "its story: python tests/simulation/run.py --seed N"])
    assert SABOTAGE or [name for name in REACHED if not found.counters[name]] == [], "never reached"


@pytest.mark.timeout(0 if SABOTAGE else 300)  # of sabotage only a violation is to tell
def test_in_the_first_seeds_nothing_happens_twice_is_lost_or_is_guessed(measured: Callable[[str], None]) -> None:
    began = time.perf_counter()
    found = play(0, SEEDS)
    measured(told(found, time.perf_counter() - began))
    expect(found)


@pytest.mark.parametrize(("first", "last"), [(40, 48), (134, 135)])
def test_a_seed_is_one_history_here_and_in_another_process(first: int, last: int) -> None:
    here, again = play(first, last), play(first, last)
    assert here.digest == again.digest
    for hash_seed in ("1", "2", "3"):  # in what order sets are gone through
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, str(RUN), "--seeds", f"{first}..{last}"]
        there = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
        assert f"digest {here.digest}" in there.stdout, there.stdout + there.stderr
    assert here.digests != play(first + 1, last + 1).digests


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_in_a_hundred_thousand_seeds_nothing_happens_twice_is_lost_or_is_guessed(
    shard: int, measured: Callable[[str], None]
) -> None:
    began = time.perf_counter()
    found = play(shard * OF_A_SHARD, (shard + 1) * OF_A_SHARD)
    measured(told(found, time.perf_counter() - began))
    expect(found)

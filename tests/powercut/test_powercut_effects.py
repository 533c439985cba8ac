"""The power goes while an effect is performed, end to end: it happens once all the same, and ends confirmed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from powercut_effects import many
from powercut_life import Violation

SEEDS = 40
SHARDS, SEEDS_OF_SHARD = 4, 250
WANTED = {
    "the disk fails, and the power stays", "the power goes at an operation of the disk",
    "the power goes before the provider acts",
    "the power goes after the provider acted",
    "under way, and acted: charge", "under way, and acted: mail", "under way, and acted: ship", "under way, not acted: mail",
    "under way, not acted: ship", "it was sent again, and did nothing", "looked up", "a person is asked",
}  # fmt: skip


def check(seen: Counter[str]) -> None:
    """The power went at every moment that matters."""
    assert not (missing := {name for name in WANTED if not seen[name]}), f"never met: {sorted(missing)}"


def figures(seen: Counter[str], seeds: int, seconds: float) -> str:
    told = ", ".join(f"{name}: {count:,}" for name, count in sorted(seen.items()))
    return f"{seeds:,} orders of three effects, each once, {seconds:.1f} s of one core; {told}"


def test_an_effect_during_which_the_power_goes_happens_once(tmp_path: Path, measured: Callable[[str], None]) -> None:
    began = time.process_time()
    seen = many(range(SEEDS), tmp_path)
    check(seen)
    measured(figures(seen, SEEDS, time.process_time() - began))


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_effects_during_which_the_power_goes_happen_once(shard: int, tmp_path: Path, measured: Callable[[str], None]) -> None:
    began = time.process_time()
    first = 1000 + shard * SEEDS_OF_SHARD
    seen = many(range(first, first + SEEDS_OF_SHARD), tmp_path)
    check(seen)
    measured(figures(seen, SEEDS_OF_SHARD, time.process_time() - began))


def test_a_provider_that_forgets_keys_is_seen_to_act_twice(tmp_path: Path) -> None:
    """The control: what was declared of the provider is not true, and the instrument sees it."""
    with pytest.raises(Violation, match="'charge': \\('confirmed', 2\\)"):
        many(range(SEEDS), tmp_path, forgets=True)

"""Many seeds, one after the other."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from sim_clockwork import Spinning
from sim_verdicts import digest, verdicts
from sim_worlds import in_virtual_time, world_of

ON_FILE = 20  # one world in so many has its store on a file
COLLECTED = 25  # seeds between two collections


@dataclass
class Played:
    """What came of it. wrong: a line for each violation, with its seed."""

    seeds: int = 0
    steps: int = 0
    seconds: float = 0.0
    acts: int = 0
    wrong: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        return hashlib.sha256(" ".join(self.digests).encode()).hexdigest()[:16]

    def told(self) -> str:
        many = ", ".join(f"{name} {count:,}" for name, count in sorted(self.counters.items()))
        return (
            f"{self.seeds:,} seeds, {self.seconds:,.0f} simulated seconds, {self.steps:,} steps, {self.acts:,} acts, "
            f"digest {self.digest}; {many}"
        )


@contextlib.contextmanager
def rarely_collected() -> Iterator[None]:
    """What is unwound at the end of a world is collected then, and not at some moment within it."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
        gc.collect()


def play(first: int, last: int, *, tell: bool = False, stop: bool = True) -> Played:
    """Seeds first..last-1. stop: at the first violation."""
    found = Played()
    with in_virtual_time(), rarely_collected():
        for seed in range(first, last):
            with world_of(seed, tell=tell, on_file=seed % ON_FILE == ON_FILE - 1) as world:
                try:
                    world.play()
                    wrong = verdicts(world)
                except Spinning as error:
                    wrong = [f"SPINNING: {error}"]
                except Exception as error:
                    where = "".join(traceback.format_exception(error)[-8:])
                    wrong = [f"BROKEN: {type(error).__name__}: {error}\n{where}"]
                found.seeds += 1
                found.steps += world.sim.steps
                found.seconds += world.sim.now
                found.acts += len(world.outside.acts)
                found.counters.update(world.counters)
                found.digests.append(digest(world))
                found.story += world.lines
                found.wrong += [f"seed {seed}: {one}" for one in wrong]
            if found.seeds % COLLECTED == 0:
                gc.collect()
            if found.wrong and stop:
                break
    return found

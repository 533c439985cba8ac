"""Cut the power of one disk again and again, and tell it as a story: `python tests/powercut/run.py --seed 7`.

`--cuts N` runs seeds from there on until there were so many cuts, and prints their figures. `--faults`: the disk fails at each
operation of the seed's work in turn; `--effects`: an order is delivered through some cuts. Exit 1: something was lost.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections import Counter
from pathlib import Path

import powercut_effects
import powercut_faults
from powercut_campaign import Tally, many, run
from powercut_disk import Disk
from powercut_life import Violation, Ways
from powercut_shared import RealDisk, recorded


def figures(tally: Tally, seconds: float, seeds: int) -> str:
    """In one line."""
    return (
        f"{tally.cuts:,} power cuts of {tally.lives:,} lives ({seeds:,} disks), {tally.acked:,} acknowledged transactions, "
        f"{tally.intents:,} intents, {seconds:.1f} s of one core ({tally.cuts / max(seconds, 1e-9):,.0f} cuts/s): "
        f"{len(tally.lost):,} lost something"
    )


def _others(asked: argparse.Namespace) -> None:
    if asked.faults:
        _counted(powercut_faults.every(range(asked.seed, asked.seed + 1)).seen)
    else:
        with tempfile.TemporaryDirectory() as witness:
            _counted(powercut_effects.deliver_through_cuts(asked.seed, Path(witness), tell=print))


def _counted(seen: Counter[str]) -> None:
    for what, count in sorted(seen.items()):
        print(f"  {count:>9,}  {what}")


def _asked(asked: argparse.Namespace, ways: Ways) -> int:
    if asked.faults or asked.effects:
        _others(asked)
        return 0
    if asked.cuts:
        tally, seconds, seeds = many(asked.seed, asked.cuts, ways)
        print(figures(tally, seconds, seeds))
        _counted(tally.seen)
    else:
        tally = run(asked.seed, ways, tell=print)
        print(f"{tally.cuts} cuts, {tally.lives} lives; lost: {tally.lost or 'nothing'}")
    return 1 if tally.lost else 0


def main() -> int:
    """One seed with its story, or many with their figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cuts", type=int, default=0, help="so many, over seeds from there on; 0: this seed alone, as a story")
    parser.add_argument("--synchronous", default="", help="a control: NORMAL, or OFF")
    parser.add_argument("--lies", action="store_true", help="a control: the disk says that it has synced, and has not")
    parser.add_argument("--real", action="store_true", help="real files, and all the connections of the shipped store")
    parser.add_argument("--faults", action="store_true", help="the disk fails, at each operation of that seed's work in turn")
    parser.add_argument(
        "--effects", action="store_true", help="the power goes while the effects of that seed's order are performed"
    )
    asked = parser.parse_args()
    ways = Ways(synchronous=asked.synchronous, lies=asked.lies, kind=RealDisk if asked.real else Disk)
    try:
        with recorded() if asked.real else contextlib.nullcontext():
            return _asked(asked, ways)
    except Violation as error:
        print(f"VIOLATION: {error}")
        return 1

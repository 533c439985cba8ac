"""Cut the power of one disk again and again, and tell it as a story: `python tests/powercut/run.py --seed 7`.

`--cuts N` runs seeds from there on until there were so many cuts, and prints their figures. Exit 1: something was lost.
"""

from __future__ import annotations

import argparse
import sys

from powercut_campaign import Tally, many, run
from powercut_life import Violation, Ways


def figures(tally: Tally, seconds: float, seeds: int) -> str:
    """In one line."""
    return (
        f"{tally.cuts:,} power cuts of {tally.lives:,} lives ({seeds:,} disks), {tally.acked:,} acknowledged transactions, "
        f"{tally.intents:,} intents, {seconds:.1f} s of one core ({tally.cuts / max(seconds, 1e-9):,.0f} cuts/s): {len(tally.lost):,} lost something"
    )


def main() -> int:
    """One seed with its story, or many with their figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cuts", type=int, default=0, help="so many, over seeds from there on; 0: this seed alone, as a story")
    parser.add_argument("--synchronous", default="", help="a control: NORMAL, or OFF")
    parser.add_argument("--lies", action="store_true", help="a control: the disk says that it has synced, and has not")
    asked = parser.parse_args()
    ways = Ways(synchronous=asked.synchronous, lies=asked.lies)
    try:
        if asked.cuts:
            tally, seconds, seeds = many(asked.seed, asked.cuts, ways)
            print(figures(tally, seconds, seeds))
            for what, count in sorted(tally.seen.items()):
                print(f"  {count:>9,}  {what}")
        else:
            tally = run(asked.seed, ways, tell=print)
            print(f"{tally.cuts} cuts, {tally.lives} lives; lost: {tally.lost or 'nothing'}")
    except Violation as error:
        print(f"VIOLATION: {error}")
        return 1
    return 1 if tally.lost else 0


if __name__ == "__main__":
    sys.exit(main())

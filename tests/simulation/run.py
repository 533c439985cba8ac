"""python tests/simulation/run.py --seed N replays one seed and tells its story; --seeds N..M plays many."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

if not os.environ.get("PYTHONPATH"):  # else it says which source is played
    sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from sim_play import play


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seed", type=int)
    asked.add_argument("--seeds", default="")
    asked.add_argument("-v", action="store_true")
    given = asked.parse_args()
    first, _, last = (given.seeds or f"{given.seed}..{given.seed + 1}").partition("..")
    began = time.perf_counter()
    found = play(int(first), int(last), tell=given.v or given.seed is not None, stop=False)
    took = time.perf_counter() - began
    if given.v or given.seed is not None:
        print("\n".join(found.story))
    for line in found.wrong:
        print(line)
    print(found.told())
    print(f"{took:.1f} s, {found.seeds / took:.0f} seeds/s")
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main())

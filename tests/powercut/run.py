"""`python tests/powercut/run.py --seed 7`: the power of one disk is cut again and again, told as a story (--help)."""

import sys

from powercut_run import main

if __name__ == "__main__":
    sys.exit(main())

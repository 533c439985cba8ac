"""`run_supervisor.py MODULE CONCURRENCY`: one supervised worker. It dies with the test."""

import os
import sys
from pathlib import Path

from semel.supervise import die_with_parent, supervise

if __name__ == "__main__":
    die_with_parent(int(os.environ["CRASH_PARENT"]))
    sys.exit(supervise([sys.executable, str(Path(__file__).with_name("run_worker.py")), *sys.argv[1:]], 1))

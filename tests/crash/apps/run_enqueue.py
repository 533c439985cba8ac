"""`run_enqueue.py MODULE TASK ARGS`: waits for its gate, enqueues, and prints the task's id. ARGS is JSON."""

import importlib
import json
import sys
import time

from wire import ROOM, is_open

if __name__ == "__main__":
    task = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
    arguments = json.loads(sys.argv[3])
    (ROOM / f"ready.{sys.argv[4]}").touch()
    while not is_open("enqueue"):
        time.sleep(0.001)
    print(task.enqueue(**arguments).id)

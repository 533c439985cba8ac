"""What every peer is given: the same tasks. A runner is run by the peer's own interpreter, and says one line of JSON at a time.

`python with_X.py URL KIND N`: it makes its tables, enqueues N tasks (what it took), and works until it is killed: it says
when the first handler began, and when the last one ended.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable

STEPS = 5
RESULT = "x" * 198  # 200 bytes as JSON
BATCH = 500


class Count:
    """How many tasks have come to their end in this process."""

    def __init__(self, n: int) -> None:
        self._n, self._seen = n, 0
        self._began = False
        self._lock = threading.Lock()

    def began(self) -> None:
        """At the start of each handler."""
        if not self._began:
            with self._lock:
                if not self._began:
                    say(began=time.monotonic())
                    self._began = True

    def ended(self) -> None:
        """At the end of each."""
        with self._lock:
            self._seen += 1
            last = self._seen == self._n
        if last:
            say(ended=time.monotonic())


def say(**what: object) -> None:
    """A line."""
    print(json.dumps(what), flush=True)


def run(
    prepare: Callable[[str], None], enqueue: Callable[[str, str, int], None], work: Callable[[str, str, Count], None]
) -> None:
    """The whole life of a runner."""
    url, kind, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    prepare(url)
    began = time.monotonic()
    enqueue(url, kind, n)
    say(enqueued=time.monotonic() - began)
    work(url, kind, Count(n))

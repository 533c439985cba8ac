"""Where a worker's time goes: its own stacks, looked at again and again; and the CPU that each of its threads has used."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

EACH_SECONDS = 0.003
LET_IN_SECONDS = 0.00005  # for how long a thread goes on that the sampler interrupts: else it is seen where it waits next
OWN = f"{os.sep}semel{os.sep}"


def threads_cpu() -> dict[str, float]:
    """Seconds of CPU of each thread that lives, by its name (numbers at its end left out)."""
    names = {thread.native_id: thread.name.rstrip("0123456789_-") or thread.name for thread in threading.enumerate()}
    found: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        try:
            fields = (task / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended
        found[names.get(int(task.name), "others")] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return dict(found)


class Sampler:
    """What each thread has used of a processor since the last look is put down to the file of semel that it is in now, or that
    has called what it is in: a thread that waits weighs nothing."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="sampler", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        sys.setswitchinterval(LET_IN_SECONDS)
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """The share of each file, the greatest first."""
        self._stop.set()
        self._thread.join()
        seen = sum(self.found.values()) or 1
        return {file: n / seen for file, n in sorted(self.found.items(), key=lambda one: -one[1])[:15]}

    def _look(self) -> None:
        before: dict[int, float] = {}
        while not self._stop.wait(EACH_SECONDS):
            for thread, frame in sys._current_frames().items():
                if thread == threading.get_ident():
                    continue
                try:
                    used = time.clock_gettime(time.pthread_getcpuclockid(thread))
                except OSError:
                    continue  # it has ended
                place, since = _place(frame), before.get(thread, used)
                self.found[place] = self.found.get(place, 0.0) + used - since
                before[thread] = used


def _place(frame: FrameType) -> str:
    leaf = frame.f_code.co_filename
    inner: FrameType | None = frame
    while inner is not None:
        file = inner.f_code.co_filename
        if OWN in file:
            called = "" if inner is frame else f", in {_library(leaf)}"
            return file.rpartition(OWN)[2] + called
        inner = inner.f_back
    return _library(leaf)


def _library(file: str) -> str:
    parts = Path(file).parts
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1]
    if Path(file).parent == Path(__file__).parent:
        return "the work itself"
    if file.startswith("<"):
        return "dataclasses"  # whose methods are made of text
    return Path(file).stem if parts[-2].startswith("python") else parts[-2]

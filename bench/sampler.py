"""Where a worker's time goes: its own stacks, looked at again and again; and the CPU that each of its threads has used."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

EACH_SECONDS = 0.003
WAITING = ("threading.py", "selectors.py", "queue.py", "waiting.py", "pglisten.py")  # a thread that is there does nothing
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
    """Counts, for each thread that is not waiting, the file of semel that it is in, or that has called what it is in."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="sampler", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """The share of each file, the greatest first."""
        self._stop.set()
        self._thread.join()
        seen = sum(self.found.values()) or 1
        return {file: n / seen for file, n in self.found.most_common(15)}

    def _look(self) -> None:
        while not self._stop.wait(EACH_SECONDS):
            for thread, frame in sys._current_frames().items():
                if thread != threading.get_ident() and Path(frame.f_code.co_filename).name not in WAITING:
                    self.found[_place(frame)] += 1


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

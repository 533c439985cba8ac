"""The garbage collector beside many attempts: it looks through the same living objects less often."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

OWN = (700, 2000)  # the first thresholds that a Python comes with; who has set another has their reasons
EACH = 100  # about so many objects are held for an attempt under way, and let go of without the collector
MOST = 1_000_000  # a concurrency without measure says nothing of what is held, and what lies in cycles must not fill the memory


@contextlib.contextmanager
def beside(attempts: int) -> Iterator[None]:
    """While so many attempts may run at a time, the collector waits for so many more objects than died.

    Else what hundreds of attempts hold is walked again and again, and nothing of it is garbage: that was up to a third of
    the work. What the user's code leaves in cycles is still found, in the same measure for each attempt.
    """
    before = gc.get_threshold()
    raised = (min(EACH * attempts, MOST), *before[1:])
    if not gc.isenabled() or before[0] not in OWN or raised[0] <= before[0]:
        yield
        return
    gc.set_threshold(*raised)
    try:
        yield
    finally:
        if gc.get_threshold() == raised:
            gc.set_threshold(*before)

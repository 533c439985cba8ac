"""The events that a journal tells of, all of them.

Events of effects stand in their task's stream; those of tenant-scoped keys in a stream of the key's own (R8).
"""

from __future__ import annotations

from semel.machine import effect_events as _of_effects
from semel.machine import store_events as _of_the_store
from semel.machine import task_events as _of_tasks
from semel.machine.effect_events import *  # noqa: F403 - here they are found
from semel.machine.happened import Happened as Happened  # noqa: PLC0414 - and their root
from semel.machine.store_events import *  # noqa: F403
from semel.machine.task_events import *  # noqa: F403

KINDS: dict[str, type[Happened]] = {cls.kind: cls for cls in (*_of_tasks.EVENTS, *_of_effects.EVENTS, *_of_the_store.EVENTS)}

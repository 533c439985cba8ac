"""The named worlds."""

from world import ATOMIC, CREATE, KEYED, LOOKED, LYING, OPAQUE, SHRUG, UNFENCED, WATCHED, World

WORLDS = (
    World("first", workers=(WATCHED,), faults=1),
    World("lookup", faults=2),
    World("opaque", (OPAQUE,), faults=2),
    World("keyed", (KEYED,), faults=2, ages=1),
    World("conditional", (CREATE,), faults=2, definite=True),
    World("atomic", (ATOMIC,), faults=2),
    World("repeat", (SHRUG,), faults=2),
    World("unfenced", workers=(WATCHED, UNFENCED), faults=2),
    World("children", faults=2, children=True),
    World("two effects", (LOOKED, KEYED), ((0, 1),), faults=1),
    World("parallel", (LOOKED, OPAQUE), ((0, 1),), faults=1, parallel=True),
    World("approval", (LOOKED,), faults=1, approve=True, words=2, failures=2),
    World("cancel and replay", (LOOKED,), faults=1, cancels=1, replays=1),
    World("shared key", (LOOKED,), ((0,), (0,)), faults=1, shared=True),
    World("restore", (LOOKED,), faults=1, restores=1),
    World("restore opaque", (OPAQUE,), faults=0, restores=1),
    World("restore keyed", (KEYED,), faults=0, restores=1, ages=1),
    World("reversal", (OPAQUE,), faults=1, reversals=1),
)

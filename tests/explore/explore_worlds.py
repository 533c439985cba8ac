"""The named worlds, and those in which a rule is missing from the world itself."""

from explore_world import ATOMIC, CREATE, KEYED, LOOKED, LYING, OPAQUE, SHRUG, UNFENCED, WATCHED, World

WORLDS = (
    World("lookup", faults=1),
    World("lookup-twice", workers=(WATCHED,), faults=2),
    World("opaque", (OPAQUE,), faults=1),
    World("opaque-twice", (OPAQUE,), workers=(WATCHED,), faults=2),
    World("keyed", (KEYED,), workers=(WATCHED,), faults=1, ages=2),
    World("keyed-twice", (KEYED,), workers=(WATCHED,), faults=2),
    World("conditional", (CREATE,), workers=(WATCHED,), faults=2, definite=True),
    World("atomic", (ATOMIC,), faults=1),
    World("retention", (KEYED,), workers=(WATCHED,), faults=2, ages=2, only=("hours", "connection", "dropped")),
    World("repeat", (SHRUG,), workers=(WATCHED,), faults=1),
    World("unfenced", (OPAQUE,), workers=(WATCHED, UNFENCED), faults=1),
    World("children", workers=(WATCHED,), faults=2, children=True),
    World("two-effects", (LOOKED, KEYED), ((0, 1),), faults=1),
    World("parallel", (KEYED, OPAQUE), ((0, 1),), workers=(WATCHED,), faults=1, parallel=True),
    World("approval", (LOOKED,), faults=1, approve=True, words=2, failures=2),
    World("cancel-replay", (LOOKED,), workers=(WATCHED,), faults=1, cancels=1, replays=1),
    World("shared-key", (LOOKED,), ((0,), (0,)), workers=(WATCHED,), faults=1, shared=True),
    World("shared-beside", (LOOKED, KEYED), ((0,), (0, 1)), workers=(WATCHED,), faults=1, shared=True, parallel=True),
    World("restore", (LOOKED,), workers=(WATCHED,), faults=0, restores=1),
    World("restore-opaque", (OPAQUE,), workers=(WATCHED,), faults=0, restores=1),
    World("restore-keyed", (KEYED,), workers=(WATCHED,), faults=0, restores=1, ages=1),
    World("restore-unfenced", (LOOKED,), workers=(UNFENCED,), faults=0, restores=1),
    World("reversal", (OPAQUE,), workers=(WATCHED,), faults=1, reversals=1),
    World(
        "unavailable", (LOOKED,), workers=(WATCHED,), faults=2, unavailable=True, ages=4, only=("hours", "connection", "asked")
    ),
    World("dead-letter", (OPAQUE,), workers=(WATCHED,), faults=2, crashes=1),
)

KNOWN = (
    World("lying", (LOOKED,), workers=(WATCHED, LYING), faults=1),
    World("lying-opaque", (OPAQUE,), workers=(WATCHED, LYING), faults=1),
    World("lying-twice", (LOOKED,), workers=(WATCHED, LYING), faults=1, twice_only=True),
    World("lying-opaque-twice", (OPAQUE,), workers=(WATCHED, LYING), faults=1, twice_only=True),
    World("settle-twice", (LOOKED,), faults=1, settle=False, twice_only=True),
    World("settle-cut-short", (LOOKED,), faults=1, settle=False),
    World("timeout-ends-code", (LOOKED,), workers=(WATCHED,), faults=1, runs_on=False),
    World("restore-not-watched", (LOOKED,), workers=(WATCHED,), faults=0, restores=1, watched=False),
    World("nothing-given-back", (LOOKED,), workers=(WATCHED,), faults=1, gives_back=False),
    World("commit-lands-late", (ATOMIC,), workers=(WATCHED,), faults=1, atomic_cas=False),
    World("person-looks-early", (OPAQUE,), workers=(WATCHED,), faults=1, patient=False),
    World("outcome-fails-alone", (LOOKED, KEYED), ((0, 1),), faults=1, chained=False),
)

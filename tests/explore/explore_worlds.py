"""The named worlds, and those in which a rule is missing from the world itself."""

from explore_nouns import ATOMIC, CREATE, KEYED, LOOKED, LYING, OPAQUE, SHRUG, UNFENCED, WATCHED, World

ALONE, TWO = (WATCHED,), (WATCHED, WATCHED)
FROZEN = ("is frozen", "wakes", "past its deadline", "kernel timer", "is fenced: its beat")
KILLED = ("is killed", "is proved to be dead", "is taken back")
SETTLED = ("settle of {} is over",)
RESTORED = ("is backed up", "is restored", "is enqueued again", "has been watched since", "assumes that")
PEOPLE = ("a person looks for", "a person says of")

WORLDS = (
    World("person-looks-early", (OPAQUE,), workers=(WATCHED,), faults=1, patient=False, least=5_000, must=(*PEOPLE, "settles")),
    World("lookup", workers=TWO, faults=1, least=4_000,
          must=(*FROZEN, *KILLED, *SETTLED, "times out", "is dropped", "is refused: no", "breaks", "asks the provider", *PEOPLE,
                "is refused t{}", "acts on", "finishes")),
    World("lookup-twice", workers=ALONE, faults=2, only=("killed",), must=(*KILLED, *SETTLED)),
    World("stale-view", (LOOKED,), workers=ALONE, faults=2, only=("dropped", "breaks"), must=("(stale_view)",)),
    World("late-notes", (LOOKED,), workers=ALONE, faults=2, only=("times out", "killed"), must=("notes that a sender",)),
    World("opaque", (OPAQUE,), workers=TWO, faults=1, least=4_000, must=(*FROZEN, *KILLED, *SETTLED, *PEOPLE, "replays")),
    World("opaque-twice", (OPAQUE,), workers=ALONE, faults=2, only=("killed", "breaks"), must=(*KILLED, *PEOPLE)),
    World("keyed", (KEYED,), workers=ALONE, faults=1, ages=1, least=5_000, must=("hours pass", "its time was over", *KILLED)),
    World("keyed-twice", (KEYED,), workers=ALONE, faults=2, only=("breaks", "refused", "killed"), must=("will send {} again",)),
    World("retention", (KEYED,), workers=ALONE, faults=2, ages=2, only=("hours", "breaks"),
          must=("hours pass", "will send {} again", *PEOPLE)),
    World("conditional", (CREATE,), workers=ALONE, faults=2, failures=2, definite=True, only=("breaks", "definite", "killed"),
          must=("a definite no", "will send {} again")),
    World("atomic", (ATOMIC,), workers=TWO, faults=1, least=1_000, must=("the COMMIT of {} lands", "a COMMIT is refused")),
    World("repeat", (SHRUG,), workers=ALONE, faults=1, least=1_500, must=("will send {} again",)),
    World("unfenced", (OPAQUE,), workers=(WATCHED, UNFENCED), faults=1, least=30_000, must=("a person stops", *FROZEN)),
    World("children", workers=ALONE, faults=2, children=True, only=("child", "killed"),
          must=("makes a child", "a child of w{} ends", "a person stops")),
    World("two-effects", (LOOKED, KEYED), ((0, 1),), workers=TWO, faults=1, least=7_000, must=(*FROZEN, *KILLED)),
    World("parallel", (KEYED, OPAQUE), ((0, 1),), workers=ALONE, faults=1, parallel=True, only=("breaks", "killed"),
          must=(*KILLED, *PEOPLE)),
    World("approval", (LOOKED,), workers=TWO, faults=1, approve=True, words=2, failures=2, least=10_000,
          must=("suspends", "a person looks at the call", "a person says of", "reads that {} is refused")),
    World("cancel-replay", (LOOKED,), workers=ALONE, faults=1, cancels=1, replays=1, least=8_000,
          must=("cancels", "replays", "as it was told to", "finds {} on record")),
    World("shared-key", (LOOKED,), ((0,), (0,)), workers=ALONE, faults=1, shared=True, least=15_000, must=(*FROZEN, *KILLED)),
    World("shared-beside", (LOOKED, KEYED), ((0,), (0, 1)), workers=ALONE, faults=1, shared=True, parallel=True,
          only=("breaks",), must=("breaks", "suspends")),
    World("restore", (LOOKED,), workers=ALONE, faults=0, restores=1, least=5_000, must=(*RESTORED, *SETTLED)),
    World("restore-opaque", (OPAQUE,), workers=ALONE, faults=0, restores=1, least=5_000, must=(*RESTORED, *PEOPLE)),
    World("restore-keyed", (KEYED,), workers=ALONE, faults=0, restores=1, ages=1, least=20_000, must=(*RESTORED, "hours pass")),
    World("restore-unfenced", (LOOKED,), workers=(UNFENCED,), faults=0, restores=1, least=7_000,
          must=(*RESTORED, "stops what")),
    World("reversal", (OPAQUE,), workers=ALONE, faults=1, reversals=1, least=5_000, must=("takes back",)),
    World("unavailable", (LOOKED,), workers=ALONE, faults=2, unavailable=True, ages=3, only=("hours", "breaks", "asked"),
          must=("cannot be asked", "hours pass", *PEOPLE)),
    World("dead-letter", (OPAQUE,), workers=ALONE, faults=2, crashes=1, only=("killed",), must=("as it was told to", *KILLED)),
)  # fmt: skip

HALF = 500_000
# for make proof: bigger, two or three faults; each whole, or as far as so many states go
DEEP = (
    World("lookup, three faults", workers=TWO, faults=3, least=HALF),
    World("opaque, three faults", (OPAQUE,), workers=TWO, faults=3, least=HALF),
    World("keyed, three faults", (KEYED,), workers=TWO, faults=3, ages=2, least=HALF),
    World("conditional, three faults", (CREATE,), workers=TWO, faults=3, failures=2, definite=True, least=HALF),
    World("unfenced, three faults", workers=(WATCHED, UNFENCED), faults=3, children=True, least=HALF),
    World("two effects, three faults", (LOOKED, KEYED), ((0, 1),), workers=TWO, faults=3, cancels=1, replays=1, least=HALF),
    World("shared key, two faults", (OPAQUE,), ((0,), (0,)), workers=TWO, faults=2, shared=True, least=HALF),
    World("restore, two faults", (LOOKED,), workers=TWO, faults=2, restores=1, ages=1, least=HALF),
    World("approval, three faults", (OPAQUE,), workers=TWO, faults=3, approve=True, words=2, failures=2, reversals=1, least=HALF),
    World("three workers", workers=(WATCHED, WATCHED, UNFENCED), faults=2, least=HALF),
    World("shared beside another", (LOOKED, KEYED), ((0,), (0, 1)), workers=TWO, faults=1, shared=True, parallel=True,
          only=("breaks",), least=90_000),
    World("restore unfenced", (LOOKED,), workers=(WATCHED, UNFENCED), faults=0, restores=1, least=90_000),
    World("restore keyed", (KEYED,), workers=ALONE, faults=0, restores=1, ages=2, least=90_000),
)  # fmt: skip

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
    World("outcome-fails-alone", (LOOKED, KEYED), ((0, 1),), faults=1, chained=False),
)

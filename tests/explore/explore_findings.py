"""What broke earlier drafts of the design, and where the explorer comes to it.

Numbers as in the adversary's review: 1 to 17, and S1 to S15 of its second pass. world: in which it can be reached. found: by
which guard's removal (a name of tests/sabotage/guards.py), or in which world of `KNOWN`, where a rule is missing, it is found
again. elsewhere: whose it is if it is none of the machine's; then that instrument is named.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One row of the table."""

    number: str
    what: str
    world: str = ""
    found: tuple[str, ...] = ()
    elsewhere: str = ""


FINDINGS = (
    Finding("1", "a disproof of one submission cleared another; the age began anew", "keyed-twice",
            ("R1 a disproof closes only its own submission", "R1 the age restarts only when clean")),
    Finding("2a", "code that had timed out acted after a not_found", "lookup", ("timeout-ends-code",)),
    Finding("2b", "a new epoch was taken for a fence", "restore", ("restore-not-watched",)),
    Finding("2c", "a child acted after its worker was killed", "children", ("R4 a fence quiets nothing that is unfenced",)),
    Finding("3", "an outcome failed, and the intent behind it landed", "two-effects", ("outcome-fails-alone",)),
    Finding("4", "two tasks sent one tenant-scoped key", "shared-key",
            ("R8 a key's token rises with each intent", "R9 what is in flight is not submitted again")),
    Finding("5", "beats went on on a store that was no more", elsewhere="tests/store/test_sqlite_place.py, tests/restore"),
    Finding("6a", "a restored task sent again what the backup had lost", "restore",
            ("R20 in doubt the first submission looks up first",)),
    Finding("6b", "a lost task that was enqueued again was not in doubt", "restore",
            ("R20 what is accepted in the window is in doubt",)),
    Finding("6c", "only a dead worker had seen what was lost", elsewhere="tests/restore/test_restore_arrival.py (witnesses)"),
    Finding("7", "other words were sent than were approved", "approval", ("R21 the machine keeps the approved words",)),
    Finding("8", "a refusal that proves nothing was believed", elsewhere="connectors; tests/testing_provider"),
    Finding("9", "a living process was taken for dead", elsewhere="tests/watchdog/test_watchdog_identity.py"),
    Finding("10", "the machine paused between check and wire: no rule closes it", "lookup", ("lying", "lying-twice")),
    Finding("11", "a claim that its own session does not know", "lookup", ("nothing-given-back",)),
    Finding("12", "a resend after the provider has forgotten", "retention", ("R13 a resend stays inside the retention",),
            "clocks that disagree: tests/machine/test_recovery.py, tests/simulation"),
    Finding("13", "a person's verdict on what had moved on", "stale-view", ("R21 a decision on what has moved on",)),
    Finding("14", "two epochs with one number", elsewhere="tests/machine/test_cells_epochs.py"),
    Finding("15", "one sweep was not enough", elsewhere="tests/engine/test_session.py, tests/simulation"),
    Finding("16", "a lock killed the fleet", elsewhere="tests/postgres, tests/simulation"),
    Finding("17", "a request in a queue was read after settle", "lookup", ("settle-cut-short", "settle-twice")),
    Finding("S1", "an effect on record whose COMMIT was rolled back", "atomic", ("commit-lands-late",), "tests/postgres"),
    Finding("S2", "an unknown session sent after settle, in a new epoch", "restore", ("restore-not-watched",)),
    Finding("S3", "a batch dropped a row, and the next landed on a rival's", "two-effects", ("outcome-fails-alone",),
            "the statement itself: tests/conformance, tests/postgres"),
    Finding("S4", "a new task was not in doubt about an old key of the tenant", elsewhere="tests/restore/test_restore_doubt.py"),
    Finding("S5", "sweep and caller took one intent", elsewhere="tests/explore/procedures, tests/engine/test_session.py"),
    Finding("S6", "a process without a witness claimed first", elsewhere="tests/restore/test_restore_arrival.py"),
    Finding("S7", "settle ran on a clock that jumped", elsewhere="tests/engine/test_session.py, tests/simulation"),
    Finding("S8", "a joined key became unknown while another was intended", "shared-beside", ("R8 an unknown joined key counts",),
            "the statement's check: tests/conformance"),
    Finding("S9", "an attempt ended and left a submission in flight for ever", "lookup",
            ("R2 every end of an attempt loses its submissions",)),
    Finding("S10", "beats that were not answered killed the fleet", elsewhere="tests/engine/test_session.py, tests/simulation"),
    Finding("S11", "children, forks and code that hangs are beyond a fence", "unfenced",
            ("R4 a fence quiets nothing that is unfenced",)),
    Finding("S12", "pruning looked like a restore", elsewhere="tests/app/test_prune.py, tests/store/test_witness.py"),
    Finding("S13", "a replay, and other wording", "cancel-replay", ("R9 what is confirmed is not submitted again",),
            "wording and generations: tests/machine/test_rules_tasks.py, tests/dead/test_generations.py"),
    Finding("S14", "epochs of one second", elsewhere="tests/machine/test_cells_epochs.py"),
    Finding("S15", "a poison task, a spent approval, a starved one", "dead-letter", (),
            "tests/machine/test_rules_tasks.py, tests/machine/test_rules_approvals.py, tests/conformance"),
)  # fmt: skip

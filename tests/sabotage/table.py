"""Which rule each guard is of, and the table of them: `python tests/sabotage/run.py --table` writes docs/explanation/sabotage.md.

A guard's name tells its rule (`R4 ...`, `limits: ...`); the few whose name does not are listed here.
"""

from __future__ import annotations

import re
from pathlib import Path

from guards import GUARDS, Guard

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "sabotage.md"
RULES = {
    "R1": "Submissions",
    "R2": "Late outcomes",
    "R3": "Refusals and their order",
    "R4": "Last possible act: when a not_found is believed",
    "R5": "Compare-and-set",
    "R6": "Intents are awaited, outcomes pipelined",
    "R7": "Lost COMMIT replies",
    "R8": "Keys of the whole tenant",
    "R9": "Same key again",
    "R10": "Arguments are data",
    "R11": "Control flow is not an error the model may see",
    "R12": "One submission, one request",
    "R13": "Retention ages",
    "R14": "No wall clock decides ownership",
    "R15": "Beats",
    "R16": "The kernel fences the effect",
    "R17": "Sweeping",
    "R18": "The token goes to the provider",
    "R19": "Witness",
    "R20": "Epoch and doubt",
    "R21": "Decisions by people",
    "R22": "Retention of the record, and code that fits it",
    "R23": "A replay may be a promise",
    "Identity": "As whom it is sent",
    "Redaction": "What is kept off the record",
    "Limits": "What a task may use up",
    "Invariant": "Nothing starts while something is unknown",
    "Tasks": "Tokens, attempts, ends",
    "Journal": "The chain of rows",
    "Audit": "What shows that the record is the true one",
    "Tenants": "The fence between customers",
    "Stores": "SQLite, PostgreSQL, and lent connections",
    "Waits": "Waiting for time or a signal",
    "Workers": "Claiming, pausing, and going on",
    "Calls": "Where an effect may be called",
    "Observers": "Logs, metrics, hooks",
    "Testing": "What users test with: the harness, the crash test, the faults that it names",
}
NOTES = {
    "R12": "semel calls a submission's function once. That a client sends no second request by itself is for connectors to "
    "pin, and for you where you write the function.",
    "R18": "This is the half that semel has: the token goes out with every submission. The resource's half (`semel.fence`: "
    "refuse a lower token) does not exist yet, so nothing is taken out of it.",
}
_OF_PREFIX = {
    "identity": "Identity", "redaction": "Redaction", "limits": "Limits", "invariant": "Invariant", "tenants": "Tenants",
    "S7": "Audit", "together": "Workers", "SQLite": "Stores", "faults": "Testing", "harness": "Testing", "crashtest": "Testing",
    "tasks": "Tasks", "journal": "Journal", "workers": "Workers", "stores": "Stores",
}  # fmt: skip
_BY_NAME = {
    "Tasks": (
        "tokens rise with each claim", "tokens never fall back to an older epoch", "a finished task has no open effect",
        "only the owner ends an attempt", "a poison task runs alone before it is given up",
        "what must end with an unknown is reconciled first",
    ),
    "Journal": ("the chain covers every column", "the chain holds the row before", "the journal cannot be deleted from"),
    "R10": ("no float identifies an effect",),
    "Stores": (
        "nobody else opens the file in this process", "claims wait for no rival's", "what a claim locks is chosen once",
        "no plan rests on statistics that are not there", "a hint that cannot be given fails nothing",
        "an idle listener is no need", "a hint is given once it can be",
        "behind a pool no setting is left", "a borrowed connection is to the store's own database",
        "a borrowed connection commits no part of a task", "a key that is taken fails no borrowed transaction",
        "SQLAlchemy knows that its transaction has begun", "no part of a password is shown", "what is no URL is not shown",
        "nobody behind what cannot be claimed starves", "what was passed over is asked for again",
        "nobody starves behind it on PostgreSQL either", "nobody waits behind all that another tenant has queued",
        "a worker is told what other processes of a file have queued", "a worker is told what others have queued on PostgreSQL",
        "nor on PostgreSQL", "who is served anyhow has no turn", "what a tenant cannot have keeps it from no turn",
        "what a claim tells of pauses is news if it is", "who finds more than it takes looks further",
        "what has run empty keeps its ranks", "one look that is slow by chance blinds no claim",
    ),
    "Calls": (
        "a loop is woken once for a batch", "what fails in a mailbox takes nobody along", "a long replay lets others run",
        "binding in order is for what is in order", "what is called small is far within the limit",
        "an effect inside an effect is refused", "an effect outside work is refused", "a plain call in a running loop is refused",
    ),
    "Waits": (
        "the first signal of a name counts", "a signal that has come is not waited for",
        "a wait is no longer than the record can hold", "a wait that was given up stays so",
        "what a wait loses of a shared key is looked into before it", "a late answer wakes no task that waits for a signal",
        "what is unknown is looked into before the wait", "how long is on record from the first time on",
    ),
    "Observers": (
        "logs hide a task's key", "logs hide what is the caller's", "a slow observer fills no memory",
        "a broken observer harms nobody", "observers are told of Atomic effects",
    ),
    "R17": ("one bad row starves no sweep behind it",),
    "R20": ("the epoch is read where no loop waits",),
    "Workers": (
        "what ended while the store was asked is looked at again", "what runs alone has no neighbour that comes later",
        "a worker outlives a store that is away", "a store that is away keeps no worker from stopping",
        "a worker rests when there is nothing that it can claim", "a claimed task that cannot be read goes back",
        "nonsense of one tenant ends no worker", "the streams of keys are read away from the loop",
        "a task taken here that cannot be read goes back", "a worker that is fenced while it comes in says so",
        "a store answers again when a question is answered", "what is paused is not claimed: kinds",
        "what is paused is not begun in direct mode", "a tenant's app does not pause for all",
        "a kind is paused by any of its names", "nothing that comes after a pause is claimed",
    ),
}  # fmt: skip
_SEARCHED = re.compile(r"^(simulation|explored|explorer): ")  # the same guards, missed by a search of its own
_NAMED = {name: rule for rule, names in _BY_NAME.items() for name in names}


def out_of_date(guard: Guard) -> str:
    """What is wrong with a row of the table: its text must stand in the source exactly once."""
    count = (PAGE.parents[2] / "src" / "semel" / guard.file).read_text(encoding="utf-8").count(guard.old)
    return "" if count == 1 else f"{guard.name}: its text stands {count} times in {guard.file}; mend tests/sabotage/guards.py"


def rule_of(guard: Guard) -> str:
    """The rule that a guard is of. Raises `KeyError`: neither its name nor this file tells."""
    name = _SEARCHED.sub("", guard.name)
    found = re.match(r"(R\d+) |(\w+): |(S7) ", name)
    if found and found[1]:
        return found[1]
    if found and (found[2] or found[3]) in _OF_PREFIX:
        return _OF_PREFIX[found[2] or found[3]]
    if found and found[2] in RULES:
        return found[2]
    if name not in _NAMED:
        raise KeyError(f"guard {guard.name!r}: begin its name with its rule (R4 ..., limits: ...), or list it in {__file__}")
    return _NAMED[name]


def by_rule() -> dict[str, list[Guard]]:
    """The guards, in the order of the rules."""
    found: dict[str, list[Guard]] = {rule: [] for rule in RULES}
    for guard in GUARDS:
        found[rule_of(guard)].append(guard)
    return found


def page() -> str:
    """The page, as it must stand in the docs."""
    rules = by_rule()
    lines = [
        "# Each guard, and what notices when it is gone",
        "",
        "Written by `python tests/sabotage/run.py --table`; do not edit. `make sabotage` takes out each guard below in a copy",
        "of the source, one at a time, runs the tests that are named beside it, and fails if all of them still pass. `make test`",
        "does the same for those that need no server and no worker processes (quick). What it is good for: [proof](proof.md).",
        "",
        f"{sum(map(len, rules.values()))} guards in {len({guard.file for guard in GUARDS})} files; "
        f"{sum(not guard.slow for guard in GUARDS)} of them quick.",
        "",
        "| rule | | guards |",
        "|---|---|---|",
        *(f"| [{rule}](#{rule.lower().replace(' ', '-')}) | {RULES[rule]} | {len(guards)} |" for rule, guards in rules.items()),
    ]
    for rule, guards in rules.items():
        lines += ["", f"## {rule}", "", f"{RULES[rule]}."]
        lines += ["", NOTES[rule]] if rule in NOTES else []
        lines += ["", "| taken out | of | noticed by | |", "|---|---|---|---|"]
        lines += [_row(rule, guard) for guard in guards]
    return "\n".join(lines) + "\n"


def _row(rule: str, guard: Guard) -> str:
    name = re.sub(rf"^({rule} |S7 |{rule}: )", "", guard.name, flags=re.IGNORECASE).replace("|", "\\|")
    tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in guard.tests)
    return f"| {name} | `{guard.file}` | {tests} | {'' if guard.slow else 'quick'} |"


def write() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")

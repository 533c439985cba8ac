"""`semel prune`: what is about to go is counted and confirmed; then it is exported and taken away (R22)."""

from __future__ import annotations

import sys
from datetime import timedelta

from semel.app import App
from semel.cli import approvals
from semel.cli import output as out
from semel.errors import Misuse
from semel.model import Json, Pruned


def age_of(text: str) -> timedelta:
    """How long ago. Raises `Misuse`."""
    if text in ("0", "0s"):
        return timedelta(0)
    length = approvals.length_of(text, "--older-than")
    assert length is not None
    return length


def confirmed(app: App, yes: bool, older_than: timedelta, by: str, reason: str, dead: bool) -> bool:
    """Whether they mean it, once they have seen how much. Raises `Misuse` where nobody can be asked."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Misuse("pruning takes rows out of the store, and nobody is here to be asked; look first (--dry-run), then --yes")
    forecast = app.review.prune(older_than=older_than, export=None, by=by, reason=reason, dead=dead, dry_run=True)
    show(forecast, None, dry_run=True)
    out.console().print("Export and prune these? [y/N] ", end="")
    return input().strip().lower() in ("y", "yes")


def as_data(done: Pruned, export: str | None, dry_run: bool) -> dict[str, Json]:
    """For programs."""
    return {
        "dry_run": dry_run, "tasks": done.tasks, "keys": done.keys, "rows": done.rows, "stayed": done.stayed, "export": export,
    }  # fmt: skip


def show(done: Pruned, export: str | None, dry_run: bool) -> None:
    """For people."""
    what = f"{out.count(done.tasks, 'task')} and {out.count(done.keys, 'shared key')}, {out.count(done.rows, 'row')}"
    if dry_run:
        out.verdict(f"Would prune {what}. Nothing was changed.", "")
    else:
        out.verdict(f"PRUNED  {what}.", "good")
        if done.rows:
            out.say(f"They are in {export}, and not in the store any more. Keys, digests and results stay in it.")
    for why, number in sorted(done.stayed.items()):
        out.indented(why, 10, first=f"{number} stayed".ljust(10))

"""`semel prune`: what is about to go is counted and confirmed; then it is exported and taken away (R22)."""

from __future__ import annotations

from datetime import timedelta

from semel.app import App
from semel.cli import output as out
from semel.cli import typed
from semel.errors import Misuse
from semel.model import Json, Pruned


def age_of(text: str) -> timedelta:
    """How long ago. Raises `Misuse`."""
    length = typed.length_of("--older-than", text, zero=True)
    assert length is not None
    return length


def check(export: str | None, dead: bool, reason: str) -> None:
    """Raise `Misuse` for what would be refused after they have said yes."""
    if not export:
        raise Misuse("what is pruned is exported first; name the file: --export semel-2026.jsonl")
    if dead and not reason.strip():
        raise Misuse("dead letters are given up for good, and it is on record why; write --reason 'written off'")


def confirmed(app: App, older_than: timedelta, by: str, reason: str, dead: bool) -> bool:
    """Whether they mean it, once they have seen how much."""
    show(app.review.prune(older_than=older_than, export=None, by=by, reason=reason, dead=dead, dry_run=True), None, dry_run=True)
    return typed.confirmed("Export and prune these?")


def as_data(done: Pruned, export: str | None, dry_run: bool) -> dict[str, Json]:
    """For programs."""
    return {
        "dry_run": dry_run, "tasks": done.tasks, "keys": done.keys, "rows": done.rows, "stayed": done.stayed, "export": export,
    }  # fmt: skip


def show(done: Pruned, export: str | None, dry_run: bool) -> None:
    """For people."""
    keys = f" and {out.count(done.keys, 'tenant-scoped key')}" if done.keys else ""
    what = f"{out.count(done.tasks, 'task')}{keys}, {out.count(done.rows, 'row')}"
    if dry_run:
        out.verdict(f"WOULD PRUNE  {what}. Nothing was changed.", "wait" if done.rows else "good")
    else:
        out.verdict(f"PRUNED  {what}.", "good")
        if done.rows:
            out.say(f"They are in {export}, and not in the store any more. Keys, digests and results stay in it.")
    for why, number in sorted(done.stayed.items()):
        out.indented(why, 10, first=f"{number} stayed".ljust(10))

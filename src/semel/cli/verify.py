"""`semel verify`: every chain is whole, and every table is what the journal says, row for row and in number."""

from __future__ import annotations

from semel.cli import output as out
from semel.engine.audit import Report, Wrong, verify
from semel.model import Json

__all__ = ["Report", "Wrong", "verify", "as_data", "show"]
SHOWN = 20


def as_data(report: Report) -> dict[str, Json]:
    """For programs."""
    return {
        "whole": not report.wrong, "streams": report.streams, "rows": report.rows, "tables": report.found,
        "heads": report.heads, "note": report.note,
        "wrong": [wrong._asdict() for wrong in report.wrong],
    }  # fmt: skip


def show(report: Report) -> None:
    """For people."""
    checked = f"{out.count(report.rows, 'row')} in {out.count(report.streams, 'stream')}"
    held = ", ".join(f"{n} {name}" for name, n in report.found.items())
    if not report.wrong:
        out.verdict(f"WHOLE  Every chain is intact: {checked}. The tables are what the journal says ({held} rows).", "good")
        if report.heads:
            out.say(f"It holds what was signed: {out.count(report.heads, 'head agrees', 'heads agree')}.")
    else:
        out.verdict(f"BROKEN  {out.count(len(report.wrong), 'thing')} wrong, in {checked}.", "bad")
        out.say("Stop the workers, keep a copy of the file, and find out who wrote to it.")
    wrongs(report.wrong)
    if report.note:
        out.say(f"Note: {report.note}.")


def wrongs(found: list[Wrong]) -> None:
    """What is wrong, a block each."""
    for wrong in found[:SHOWN]:
        out.say()
        if wrong.stream:
            out.indented(f"{wrong.stream}  (tenant {wrong.tenant})", 2, style="bold")
        out.indented(wrong.text, 13, first=f"  {wrong.what}")
    if len(found) > SHOWN:
        out.say()
        out.say(f"... and {len(found) - SHOWN} more (--json lists all)")

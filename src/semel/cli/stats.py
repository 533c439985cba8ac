"""`semel stats`: what must be looked at first, then the three ledgers, then how much waits."""

from __future__ import annotations

from dataclasses import asdict

from rich.table import Table

from semel.cli import output as out
from semel.model import Json
from semel.observe import Stats


def as_data(stats: Stats) -> dict[str, Json]:
    """For programs."""
    return {**asdict(stats), "paused": list(stats.paused), "waiting": [asdict(one) for one in stats.waiting]}


def show(stats: Stats) -> None:
    """For people: the unknown-work queue first, the depth of queues last."""
    _needs_people(stats)
    out.say()
    table = Table(box=None, pad_edge=False, show_header=False)
    for ledger, states in (("delivery", stats.delivery), ("execution", stats.execution), ("effects", stats.effects)):
        table.add_row(ledger, "  ".join(f"{many} {state}" for state, many in states.items() if many) or "none")
    fenced = f", {sum(stats.fenced.values())} ended" if stats.fenced else ""
    table.add_row("workers", f"{stats.sessions} alive{fenced}; {out.count(stats.at_work, 'attempt')} under way")
    if stats.paused:
        table.add_row("paused", ", ".join(stats.paused))
    out.console().print(table)
    out.say()
    _waiting(stats)


def _needs_people(stats: Stats) -> None:
    if not (stats.unknown or stats.dead or stats.approvals):
        out.verdict("NOTHING NEEDS YOU  Nothing is unknown, nobody waits for an approval, there are no dead letters.", "good")
        return
    if stats.unknown:
        age = out.duration(stats.oldest_unknown_ms)
        out.verdict(f"UNKNOWN  {out.count(stats.unknown, 'effect')}, the oldest for {age}: semel unknown", "bad")
    if stats.approvals:
        out.verdict(f"WAITING  {out.count(stats.approvals, 'task')} for an approval: semel approvals", "wait")
    if stats.dead:
        out.verdict(f"DEAD  {out.count(stats.dead, 'letter')}: semel dead", "bad")


def _waiting(stats: Stats) -> None:
    if not stats.waiting:
        out.say("No task waits in a queue.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("QUEUE", "KIND"):
        table.add_column(name, overflow="fold")
    for name in ("WAITING", "LATE"):
        table.add_column(name, justify="right")
    for one in stats.waiting:
        table.add_row(
            out.clean(one.queue), out.clean(one.kind), str(one.waiting), out.duration(one.late_ms) if one.late_ms else ""
        )
    out.console().print(table)

"""What a task has cost so far, and what it may: money, tokens, and the time in which workers held it."""

from __future__ import annotations

from semel.cli import output as out
from semel.engine.ledger import Desk
from semel.engine.views import state_of
from semel.machine.limits import UNLIMITED, over, text_of
from semel.machine.tasks import Task
from semel.model import Code, Json


def cost_data(s: Task) -> dict[str, Json]:
    """For programs. counted: since the last replay, which is what limits judge; amounts are exact text."""
    usd, tokens, ms = s.used.total
    return {
        "usd": text_of(usd), "tokens": tokens, "ran_ms": ms,
        "counted": {"usd": text_of(s.used.usd), "tokens": s.used.tokens, "ran_ms": s.used.ms},
        "limits": {"usd": s.budget.usd or None, "tokens": s.budget.tokens, "ran_ms": s.budget.ms},
    }  # fmt: skip


def cost_words(s: Task) -> str:
    """For people."""
    u, b = s.used, s.budget
    usd, tokens, ms = u.total
    said = [
        f"{text_of(u.usd)} usd" + (f" of {b.usd}" if b.usd else ""),
        f"{u.tokens} tokens" + (f" of {b.tokens}" if b.tokens is not None else ""),
        f"{out.duration(u.ms)} of running" + (f", of {out.duration(b.ms)}" if b.ms is not None else ""),
    ]
    before = (usd, tokens, ms) != (u.usd, u.tokens, u.ms)
    all_of_it = f"; with what was before its replay: {text_of(usd)} usd, {tokens} tokens, {out.duration(ms)}" if before else ""
    return ", ".join(said) + all_of_it


def mend(s: Task) -> str:
    """What a person does about a dead letter before its replay."""
    if over(s.used, s.budget):
        return "if it may have as much again"
    if Code.LIMIT_REACHED in s.why:
        return "if it may do more, raise Limits(effects=) or per_task= in the code"
    return "mend the cause"


def afresh(desk: Desk, tenant: str, task: str) -> str:
    """A sentence for whoever replays a task that has limits."""
    s = state_of(desk, tenant, task)
    if s.budget == UNLIMITED or any((s.used.usd, s.used.tokens, s.used.ms)):
        return ""
    parts = [f"{s.budget.usd} usd"] if s.budget.usd else []
    parts += [f"{s.budget.tokens} tokens"] if s.budget.tokens is not None else []
    parts += [f"{out.duration(s.budget.ms)} of running"] if s.budget.ms is not None else []
    return f" Its limits count afresh: {', '.join(parts)}. Its effects do not."

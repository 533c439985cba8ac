"""OpenTelemetry: a span for each attempt and for each submission of an effect. Needs `opentelemetry-api`.

All attempts of a task share one trace, in whichever process they run: its id is the task's. The spans are made from what was
put on record, with its times, so a call's own client spans stand beside them, not below.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any
from uuid import UUID

try:
    from opentelemetry import trace
    from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer
except ModuleNotFoundError as error:
    from semel.errors import Misuse

    raise Misuse(f"{error}; write: pip install 'semel[otel]'") from error

from semel.machine import journal as j
from semel.machine.journal import Row
from semel.observe import Claimed, Fenced, Record

MOST_OPEN = 10_000  # spans that wait for their end; the oldest is ended without one
ENDS = {
    "finished": "succeeded", "failed": "failed", "parked": "given back", "blocked": "blocked", "lease_lost": "lease lost",
    "dead_lettered": "dead-lettered", "cancelled": "cancelled",
}  # fmt: skip
OUTCOMES: dict[type[j.Happened], str] = {
    j.Confirmed: "confirmed", j.Disproved: "not_attempted", j.Lost: "ambiguous",
}  # fmt: skip
BAD = frozenset({"failed", "lease lost", "dead-lettered", "ambiguous"})


class Spans:
    """An observer that makes spans. Arguments, results and words of errors are on none of them."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("semel")
        self._open: OrderedDict[tuple[str, ...], Span] = OrderedDict()

    def __call__(self, record: Record) -> None:
        """Begin and end what one record tells of."""
        if isinstance(record, Fenced):
            return
        for claimed in record.claimed:
            self._attempt(claimed)
        for row in record.rows:
            event = row.event or j.event_of(row)
            if isinstance(event, j.Intended):
                self._submission(row, event)
            elif isinstance(event, j.Confirmed | j.Disproved | j.Lost):
                how = OUTCOMES[type(event)]
                self._end(("effect", row.tenant, event.key, str(event.n)), how, row.at, "semel.effect.state")
            elif row.kind in ENDS:
                self._end(("attempt", row.tenant, row.stream), ENDS[row.kind], row.at, "semel.outcome")

    def _attempt(self, c: Claimed) -> None:
        attributes = {
            "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": c.kind, "semel.tenant": c.tenant,
            "semel.task.id": c.task, "semel.attempt": c.attempt, "semel.token": c.token, "semel.queue": c.queue,
            "semel.late_ms": c.late_ms,
        }  # fmt: skip
        key = ("attempt", c.tenant, c.task)
        self._begin(key, f"invoke_agent {c.kind}", _parent(c.task), SpanKind.INTERNAL, c.at, attributes)

    def _submission(self, row: Row, event: j.Intended) -> None:
        attributes = {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": event.name, "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": event.key, "semel.tenant": row.tenant, "semel.task.id": event.task,
            "semel.attempt": event.attempt, "semel.token": event.token, "semel.submission": event.n, "semel.again": event.again,
        }  # fmt: skip
        under = self._open.get(("attempt", row.tenant, event.task)) or _parent(event.task)
        key = ("effect", row.tenant, event.key, str(event.n))
        self._begin(key, f"execute_tool {event.name}", under, SpanKind.CLIENT, row.at, attributes)

    def _begin(self, key: tuple[str, ...], name: str, under: Span, kind: SpanKind, at: int, attributes: dict[str, Any]) -> None:
        before = self._open.pop(key, None)
        if before is not None:
            before.end(at * 1_000_000)
        context = trace.set_span_in_context(under)
        self._open[key] = self._tracer.start_span(name, context, kind, attributes, start_time=at * 1_000_000)
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)[1].end()

    def _end(self, key: tuple[str, ...], how: str, at: int, attribute: str) -> None:
        span = self._open.pop(key, None)
        if span is None:
            return
        span.set_attribute(attribute, how)
        if how in BAD:
            span.set_status(Status(StatusCode.ERROR, how))
        span.end(at * 1_000_000)


def _parent(task: str) -> NonRecordingSpan:
    """What all attempts of a task hang from; nobody records it, and its ids follow from the task's."""
    digest = hashlib.sha256(task.encode()).digest()
    try:
        trace_id = UUID(task).int
    except ValueError:
        trace_id = int.from_bytes(digest[:16])
    flags = TraceFlags(TraceFlags.SAMPLED)
    return NonRecordingSpan(SpanContext(trace_id, int.from_bytes(digest[16:24]), is_remote=True, trace_flags=flags))

"""Tables and streams of a store, all of them, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator

from semel.machine.projection import EffectRow, TaskRow
from semel.store.contract import Store

PAGE = 10_000


def every_task(store: Store) -> Iterator[TaskRow]:
    """All tasks, in the order of (tenant, id), page by page."""
    after = ("", "")
    while page := store.tasks_after(after, PAGE):
        yield from page
        after = page[-1][:2]


def newest_tasks(store: Store, tenant: str | None, delivery: str) -> Iterator[TaskRow]:
    """The tasks of one state, newest first, page by page. Ids are unique over tenants, so one may go on after the last."""
    after = ""
    while rows := store.tasks(tenant, delivery=delivery, after=after, limit=PAGE):
        yield from rows
        if len(rows) < PAGE:
            return
        after = rows[-1].task


def every_effect(store: Store) -> Iterator[EffectRow]:
    """All effects, in the order of (tenant, key), page by page."""
    after = ("", "")
    while page := store.effects_after(after, PAGE):
        yield from page
        after = page[-1][:2]


def every_stream(store: Store) -> Iterator[tuple[str, str]]:
    """(tenant, stream) of all streams, in order."""
    after = ("", "")
    while page := store.streams(after, PAGE):
        yield from page
        after = page[-1]


def every_head(store: Store) -> Iterator[tuple[str, str, int, bytes]]:
    """(tenant, stream, seq, hash) of the last row of each stream, in order."""
    after = ("", "")
    while page := store.heads(after, PAGE):
        yield from page
        after = page[-1][:2]

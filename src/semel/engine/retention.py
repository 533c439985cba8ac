"""Pruning (R22): what ended long ago is exported, and then taken out of the store; what later decisions rest on is kept.

First the file, durably, then the store: whoever is killed in between has exported something twice, and lost nothing. Each
stream is a change of its own, by compare-and-set: one that moves on meanwhile stays as it is.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice

from semel.engine import declare, redaction
from semel.engine.exportfile import ExportFile
from semel.engine.keyring import Ring
from semel.engine.ledger import Desk, KeyStream, change_id, part_of_task
from semel.engine.review import person
from semel.engine.veil import Veil
from semel.errors import Misuse, StoreUnavailable
from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import retention, tasks
from semel.machine.journal import Row
from semel.model import Delivery, Pruned, Refusal
from semel.store.contract import Age, Change, Head, Landed, Part

PAGE = 2000  # tasks that are looked at in one question
BATCH = 100  # streams that go in one transaction, at most
ENDED = (Delivery.ACKNOWLEDGED, Delivery.DEAD_LETTERED)


def prune(
    desk: Desk,
    tenant: str | None,
    *,
    older_than: timedelta,
    export: str | os.PathLike[str] | None,
    by: str,
    reason: str = "",
    dead: bool = False,
    dry_run: bool = False,
) -> Pruned:
    """Prune all that has ended and has been quiet for so long, of one tenant or (None) of all. Raises `Misuse`."""
    actor = person(by)
    if older_than < timedelta(0):
        raise Misuse(f"older_than={older_than} is in the time to come; write timedelta(days=90)")
    if dead and not reason.strip():
        raise Misuse("dead letters are given up for good: it is on record why, so write reason='...' (--reason)")
    if desk.store.info.tenant is not None:
        raise Misuse(
            f"the database role of tenant {desk.store.info.tenant!r} may insert into the journal, and take nothing out of it; "
            f"prune with the URL of the schema's owner"
        )
    before = desk.clock.wall_ms() - declare.milliseconds(older_than)
    if dry_run:
        return _Pruning(desk, actor, reason.strip(), dead, None).run(tenant, before)
    if export is None:
        raise Misuse("what is pruned is exported first: name the file, export='semel-2026.jsonl' (--export)")
    with ExportFile(export) as file:
        return _Pruning(desk, actor, reason.strip(), dead, file).run(tenant, before)


class _Pruning:
    """One run of it. file: None: nothing is written, and nothing pruned."""

    def __init__(self, desk: Desk, actor: str, reason: str, dead: bool, file: ExportFile | None) -> None:
        self._desk, self._actor, self._reason, self._dead, self._file = desk, actor, reason, dead, file
        self._done: Counter[str] = Counter()
        self._stayed: Counter[str] = Counter()

    def run(self, tenant: str | None, before: int) -> Pruned:
        """Batch by batch, tasks first."""
        for keys in (False, True):
            old = self._old(tenant, before, keys)
            while batch := list(islice(old, BATCH)):
                self._batch(batch, keys)
        return Pruned(self._done["task"], self._done["key"], self._done["row"], dict(self._stayed))

    def _old(self, tenant: str | None, before: int, keys: bool) -> Iterator[Age]:
        after = ("", "")
        while page := self._desk.store.ages(tenant, after, PAGE, keys=keys):
            for age in page:
                if age.at <= before and age.kind != j.Pruned.kind and (keys or age.state in ENDED):
                    yield age
            after = page[-1][:2]

    def _batch(self, batch: list[Age], keys: bool) -> None:
        going: list[tuple[list[Row], Part, str]] = []
        for age in batch:
            rows = self._desk.store.rows(age.tenant, age.stream)
            identity = change_id()
            part = self._part(rows, keys, identity)
            if isinstance(part, str):
                self._stayed[part] += 1
            else:
                going.append((rows, part, identity))
        landed = going
        if self._file is not None:
            self._file.write(row for rows, _, _ in going for row in rows)
            landed = self._take_away(going)
        for rows, _, _ in landed:
            self._done["key" if keys else "task"] += 1
            self._done["row"] += len(rows)

    def _take_away(self, going: list[tuple[list[Row], Part, str]]) -> list[tuple[list[Row], Part, str]]:
        tickets = [self._desk.writer.submit(Change(identity, (part,))) for _, part, identity in going]
        for ticket in tickets:
            ticket.wait()
        for ticket in tickets:
            if isinstance(ticket.value, StoreUnavailable):
                raise ticket.value
        landed = [one for one, ticket in zip(going, tickets, strict=True) if isinstance(ticket.value, Landed)]
        if moved := len(going) - len(landed):
            self._stayed["moved on meanwhile"] += moved
        return landed

    def _part(self, rows: list[Row], keys: bool, identity: str) -> Part | str:
        """What prunes one stream, or why it must stay."""
        if not rows or j.broken(rows) is not None:
            return "its chain of rows is broken: semel verify"
        if rows[-1].kind == j.Pruned.kind:
            return "moved on meanwhile"
        tenant, head, at = rows[0].tenant, Head(rows[-1].seq, rows[-1].hash), self._desk.clock.wall_ms()
        command = tasks.Prune(len(rows), rows[-1].hash.hex(), self._reason, self._dead)
        try:
            if keys:
                return self._part_of_key(rows, head, command, at, identity)
            task = tasks.fold(rows)
            shared = {key: tasks.fold_key(self._desk.store.rows(tenant, key)) for key in task.joined}
        except ValueError:
            return "written by a version of semel that this one does not know"
        redacted = [*task.effects.values(), *(key.effect for key in shared.values() if key.effect is not None)]
        decided = tasks.decide(task, _clean(command, tenant, redacted), shared)
        if isinstance(decided, Refusal):
            return decided.message
        part, _, _ = part_of_task(
            tenant, task, head, decided.events, actor=self._actor, token=task.token, at=at, id=identity
        )  # fmt: skip
        return part

    def _part_of_key(self, rows: list[Row], head: Head, command: tasks.Prune, at: int, identity: str) -> Part | str:
        stream = KeyStream(rows[0].tenant, rows[0].stream)
        stream.state, stream.head = tasks.fold_key(rows), head
        held = ((task, self._desk.store.task(stream.tenant, task)) for task in sorted(retention.users(stream.state)))
        unfinished = [task for task, row in held if row is not None and row.delivery not in ENDED]
        redacted = [stream.state.effect] if stream.state.effect is not None else []
        stone = retention.of_key(stream.state, _clean(command, stream.tenant, redacted), unfinished)
        if isinstance(stone, Refusal):
            return "the key is not settled, or a task that uses it has not ended"
        return stream.part((stone,), actor=self._actor, at=at, id=identity)


def _clean(command: tasks.Prune, tenant: str, effects: list[e.Effect]) -> tasks.Prune:
    """One reason is given for many tasks: where it holds what was redacted of one, it stands there without."""
    veil = Veil()
    for known in effects:
        redaction.seek(veil, tenant, known, Ring.from_environment)
    clean: tasks.Prune = veil.over(command)
    return clean

"""app.tasks, app.effects, app.review: what is known, and what a person decides."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.decorated import not_in_loop
from semel.engine import drive, paused, redaction, retention, review, views
from semel.errors import Misuse
from semel.machine import pauses
from semel.machine.projection import EffectRow
from semel.machine.redaction import Place
from semel.model import Delivery, EffectState, EffectView, Execution, Pruned, Ref, TaskView, Verdict

if TYPE_CHECKING:
    from semel.app import App


class _Part:
    """A group of methods of an App."""

    def __init__(self, app: App) -> None:
        self._app = app

    def _tenant(self, tenant: str | None) -> str | None:
        """Whose; None: everybody's, which only an app of no tenant may ask for."""
        return self._app.tenant if tenant is None else self._app.tenant_of(tenant)

    def _of(self, of: Ref[Any] | str, tenant: str | None) -> tuple[str, str]:
        return self._app.locate(of, tenant)


class Tasks(_Part):
    """app.tasks: what is known of tasks."""

    def get(self, of: Ref[Any] | str, *, tenant: str | None = None) -> TaskView:
        """One task. Raises `Misuse` if there is none."""
        not_in_loop("app.tasks.get", "await app.tasks.aget(...)")
        owner, task = self._of(of, tenant)
        row = self._app.runtime.desk.store.task(owner, task)
        if row is None:
            raise Misuse(f"there is no task {task!r} of tenant {owner!r}; see: semel tasks")
        return views.task_view(row, self._app)

    async def aget(self, of: Ref[Any] | str, *, tenant: str | None = None) -> TaskView:
        """The awaitable twin of `get`."""
        return await asyncio.to_thread(self.get, of, tenant=tenant)

    def list(
        self,
        *,
        delivery: Delivery | str = "",
        execution: Execution | str = "",
        kind: str = "",
        queue: str = "",
        tenant: str | None = None,
        after: str = "",
        limit: int = 100,
    ) -> Sequence[TaskView]:
        """Tasks, newest first; `after`: the last id of the page before."""
        not_in_loop("app.tasks.list", "await app.tasks.alist(...)")
        if delivery and delivery not in set(Delivery):
            raise Misuse(f"delivery={delivery!r} is no state; it is one of {', '.join(Delivery)}")
        if execution and execution not in set(Execution):
            raise Misuse(f"execution={execution!r} is no state; it is one of {', '.join(Execution)}")
        rows = self._app.runtime.desk.store.tasks(
            self._tenant(tenant),
            delivery=str(delivery),
            execution=str(execution),
            kind=kind,
            queue=queue,
            after=after,
            limit=limit,
        )
        return [views.task_view(row, self._app) for row in rows]

    async def alist(
        self,
        *,
        delivery: Delivery | str = "",
        execution: Execution | str = "",
        kind: str = "",
        queue: str = "",
        tenant: str | None = None,
        after: str = "",
        limit: int = 100,
    ) -> Sequence[TaskView]:
        """The awaitable twin of `list`."""
        return await asyncio.to_thread(
            self.list, delivery=delivery, execution=execution, kind=kind, queue=queue, tenant=tenant, after=after, limit=limit
        )


class Effects(_Part):
    """app.effects: what can be proved about the world."""

    def row(self, key: str, tenant: str | None) -> EffectRow:
        """An effect's row. Raises `Misuse` if there is none."""
        row = self._app.runtime.desk.store.effect(self._tenant(tenant), key)
        if row is None:
            raise Misuse(f"there is no effect {key!r}; see: semel unknown, or semel show TASK")
        return row

    def get(self, key: str, *, tenant: str | None = None) -> EffectView:
        """One effect. Raises `Misuse` if there is none."""
        not_in_loop("app.effects.get", "await app.effects.aget(...)")
        return views.effect_view(self._app.runtime.desk, self.row(key, tenant))

    async def aget(self, key: str, *, tenant: str | None = None) -> EffectView:
        """The awaitable twin of `get`."""
        return await asyncio.to_thread(self.get, key, tenant=tenant)

    def proves(self, key: str, field: str, value: object, *, tenant: str | None = None) -> bool:
        """Whether `value` is what was redacted of the effect's argument `field`. Needs the key: $SEMEL_REDACTION_KEY.

        Raises `Misuse` if nothing was redacted there, or it was under a key that is not here.
        """
        not_in_loop("app.effects.proves", "await app.effects.aproves(...)")
        row, app = self.row(key, tenant), self._app
        view, declared = views.effect_view(app.runtime.desk, row), app.declared_effects.get(row.name)
        place = Place(row.tenant, view.name, field)
        parameter = declared.parameters.values.get(field) if declared is not None else None
        return redaction.proves(app.runtime.ring, place, view.args, value, parameter)

    async def aproves(self, key: str, field: str, value: object, *, tenant: str | None = None) -> bool:
        """The awaitable twin of `proves`."""
        return await asyncio.to_thread(self.proves, key, field, value, tenant=tenant)

    def list(
        self,
        *,
        state: EffectState | str = "",
        task: Ref[Any] | str = "",
        tenant: str | None = None,
        after: str = "",
        limit: int = 100,
    ) -> Sequence[EffectView]:
        """Effects, by key; state="ambiguous" is the unknown-work queue, oldest first."""
        not_in_loop("app.effects.list", "await app.effects.alist(...)")
        if state and state not in set(EffectState):
            raise Misuse(f"state={state!r} is no state of an effect; it is one of {', '.join(EffectState)}")
        desk, owner = self._app.runtime.desk, self._tenant(tenant)
        if isinstance(task, Ref):
            owner = self._app.within(task.tenant)
        task_id = task.id if isinstance(task, Ref) else task
        if state == EffectState.AMBIGUOUS and not task_id and not after:
            found = [desk.store.effect(u.tenant, u.key) for u in desk.store.unknown(owner, limit=limit)]
            rows = [row for row in found if row is not None]
        else:
            rows = desk.store.effects(owner, state=str(state), task=task_id, after=after, limit=limit)
        return [views.effect_view(desk, row) for row in rows]

    async def alist(
        self,
        *,
        state: EffectState | str = "",
        task: Ref[Any] | str = "",
        tenant: str | None = None,
        after: str = "",
        limit: int = 100,
    ) -> Sequence[EffectView]:
        """The awaitable twin of `list`."""
        return await asyncio.to_thread(self.list, state=state, task=task, tenant=tenant, after=after, limit=limit)


class Review(_Part):
    """app.review: what a person decides. Every decision names who, and is on record."""

    def resolve(
        self,
        key: str,
        verdict: Verdict,
        *,
        by: str,
        reason: str = "",
        seen: int | None = None,
        process_stopped: bool = False,
        tenant: str | None = None,
    ) -> None:
        """Settle an unknown effect. verdict: Confirmed(result), NotFound() or Conflict(reason).

        seen: the version you looked at (`app.effects.get(key).version`); if it has moved on: `Refused("stale_view")`.
        process_stopped: your word that the process that sent it has stopped, where semel cannot know.
        A NotFound takes effect once settle has been watched by whoever claims the task next (R4).
        """
        not_in_loop("app.review.resolve", "await app.review.aresolve(...)")
        review.no_agent("app.review.resolve")
        review.person(by)
        row = self._app.effects.row(key, tenant)
        self._app.load()
        declared = self._app.declared_effects.get(row.name)
        encode = declared.result.encode if declared else (lambda value: value)
        drive.run(
            review.resolve(
                self._app.runtime.desk, row, verdict, by=by, reason=reason, seen=seen, stopped=process_stopped, encode=encode
            )
        )

    async def aresolve(
        self,
        key: str,
        verdict: Verdict,
        *,
        by: str,
        reason: str = "",
        seen: int | None = None,
        process_stopped: bool = False,
        tenant: str | None = None,
    ) -> None:
        """The awaitable twin of `resolve`."""
        await asyncio.to_thread(
            self.resolve, key, verdict, by=by, reason=reason, seen=seen, process_stopped=process_stopped, tenant=tenant
        )

    def approve(
        self,
        key: str,
        *,
        by: str,
        reason: str = "",
        seen: int | None = None,
        args: Mapping[str, Any] | None = None,
        expires: timedelta | None = None,
        tenant: str | None = None,
    ) -> None:
        """Let an effect that waits for it be sent, exactly as it is on record.

        seen: the version you looked at (`app.effects.get(key).version`); if it has moved on: `Refused("stale_view")`.
        args: what you edit, by name; that is sent then, and both versions are on record. The intent cannot be edited.
        expires: how long the approval holds if it is not used (None: for ever). It is used by one effect, once.
        """
        not_in_loop("app.review.approve", "await app.review.aapprove(...)")
        review.no_agent("app.review.approve")
        review.person(by)
        row = self._app.effects.row(key, tenant)
        self._app.load()
        drive.run(
            review.approve(
                self._app.runtime.desk, row, by=by, reason=reason, seen=seen, expires=expires, args=args,
                declared=self._app.declared_effects.get(row.name),
            )
        )  # fmt: skip

    async def aapprove(
        self,
        key: str,
        *,
        by: str,
        reason: str = "",
        seen: int | None = None,
        args: Mapping[str, Any] | None = None,
        expires: timedelta | None = None,
        tenant: str | None = None,
    ) -> None:
        """The awaitable twin of `approve`."""
        await asyncio.to_thread(self.approve, key, by=by, reason=reason, seen=seen, args=args, expires=expires, tenant=tenant)

    def deny(self, key: str, *, by: str, reason: str = "", seen: int | None = None, tenant: str | None = None) -> None:
        """Say no to an effect that waits for approval, or take back an approval that was not used.

        The agent's call raises `Refused("denied")`, now and on replay, until somebody approves it after all.
        """
        not_in_loop("app.review.deny", "await app.review.adeny(...)")
        review.no_agent("app.review.deny")
        review.person(by)
        row = self._app.effects.row(key, tenant)
        drive.run(review.deny(self._app.runtime.desk, row, by=by, reason=reason, seen=seen))

    async def adeny(self, key: str, *, by: str, reason: str = "", seen: int | None = None, tenant: str | None = None) -> None:
        """The awaitable twin of `deny`."""
        await asyncio.to_thread(self.deny, key, by=by, reason=reason, seen=seen, tenant=tenant)

    def correct(self, key: str, *, by: str, reason: str, seen: int | None = None, tenant: str | None = None) -> None:
        """Take back a person's verdict that was wrong: it stays on record, a new entry reverses it, and the effect is unknown.

        Refused if a provider or a sender said it, or if the effect was sent again since. seen: as in `approve`.
        """
        not_in_loop("app.review.correct", "await app.review.acorrect(...)")
        review.no_agent("app.review.correct")
        review.person(by)
        row = self._app.effects.row(key, tenant)
        drive.run(review.correct(self._app.runtime.desk, row, by=by, reason=reason, seen=seen))

    async def acorrect(self, key: str, *, by: str, reason: str, seen: int | None = None, tenant: str | None = None) -> None:
        """The awaitable twin of `correct`."""
        await asyncio.to_thread(self.correct, key, by=by, reason=reason, seen=seen, tenant=tenant)

    def pending(self, *, tenant: str | None = None, limit: int = 100) -> Sequence[EffectView]:
        """What waits for approval, of tasks that are blocked for it, newest tasks first."""
        not_in_loop("app.review.pending", "await app.review.apending(...)")
        return views.pending(self._app.runtime.desk, self._tenant(tenant), limit)

    async def apending(self, *, tenant: str | None = None, limit: int = 100) -> Sequence[EffectView]:
        """The awaitable twin of `pending`."""
        return await asyncio.to_thread(self.pending, tenant=tenant, limit=limit)

    def cancel(self, of: Ref[Any] | str, *, by: str, reason: str = "", tenant: str | None = None) -> None:
        """The task starts nothing more; with an unknown effect, that is settled first."""
        not_in_loop("app.review.cancel", "await app.review.acancel(...)")
        drive.run(review.cancel(self._app.runtime.desk, *self._of(of, tenant), by=by, reason=reason))

    async def acancel(self, of: Ref[Any] | str, *, by: str, reason: str = "", tenant: str | None = None) -> None:
        """The awaitable twin of `cancel`."""
        await asyncio.to_thread(self.cancel, of, by=by, reason=reason, tenant=tenant)

    def prune(
        self,
        *,
        older_than: timedelta,
        export: str | os.PathLike[str] | None,
        by: str,
        reason: str = "",
        dead: bool = False,
        dry_run: bool = False,
        tenant: str | None = None,
    ) -> Pruned:
        """Export what ended so long ago, and take it out of the journal; keys, digests and results stay (R22).

        export: a file, written on if it is there; a row stands in it, durably, before it goes. dead: dead letters too, which
        are given up with that; then a reason is asked for. dry_run: only count. tenant: whose (None: the app's own).
        """
        not_in_loop("app.review.prune", "await app.review.aprune(...)")
        review.no_agent("app.review.prune")
        return retention.prune(
            self._app.runtime.desk, self._tenant(tenant), older_than=older_than, export=export, by=by, reason=reason, dead=dead,
            dry_run=dry_run,
        )  # fmt: skip

    async def aprune(
        self,
        *,
        older_than: timedelta,
        export: str | os.PathLike[str] | None,
        by: str,
        reason: str = "",
        dead: bool = False,
        dry_run: bool = False,
        tenant: str | None = None,
    ) -> Pruned:
        """The awaitable twin of `prune`."""
        return await asyncio.to_thread(
            self.prune, older_than=older_than, export=export, by=by, reason=reason, dead=dead, dry_run=dry_run, tenant=tenant
        )

    def replay(
        self,
        of: Ref[Any] | str,
        *,
        by: str,
        from_step: str = "",
        reason: str = "",
        identity: Mapping[str, str] | None = None,
        tenant: str | None = None,
    ) -> None:
        """Run an ended task again: the same task and keys, so what is on record is returned, not repeated.

        from_step: forget the recorded steps from the first of that name on; default: all of them. Its limits of money, tokens
        and time count afresh. A task that is blocked goes on where it stands. identity: new values for names that are bound
        (`semel.bind`), on record as this person's word.
        """
        not_in_loop("app.review.replay", "await app.review.areplay(...)")
        review.no_agent("app.review.replay")
        drive.run(
            review.replay(
                self._app.runtime.desk, *self._of(of, tenant), by=by, reason=reason, from_step=from_step, identity=identity
            )
        )

    async def areplay(
        self,
        of: Ref[Any] | str,
        *,
        by: str,
        from_step: str = "",
        reason: str = "",
        identity: Mapping[str, str] | None = None,
        tenant: str | None = None,
    ) -> None:
        """The awaitable twin of `replay`."""
        await asyncio.to_thread(self.replay, of, by=by, from_step=from_step, reason=reason, identity=identity, tenant=tenant)

    def pause(
        self, *, by: str, queue: str | None = None, kind: str | None = None, everything: bool = False, reason: str = ""
    ) -> None:
        """Let workers claim nothing of a queue, of a kind of tasks, or at all; for every tenant. What runs goes on.

        Direct mode does not begin either: it waits as long as it was told to wait, then raises `Unsettled`.
        Raises `Refused("stale_view")` if it is paused already.
        """
        not_in_loop("app.review.pause", "await app.review.apause(...)")
        review.no_agent("app.review.pause")
        scope = paused.scope_of(queue, kind, everything)
        paused.told(self._app.runtime.desk, pauses.Halt(scope, reason), by)

    async def apause(
        self, *, by: str, queue: str | None = None, kind: str | None = None, everything: bool = False, reason: str = ""
    ) -> None:
        """The awaitable twin of `pause`."""
        await asyncio.to_thread(self.pause, by=by, queue=queue, kind=kind, everything=everything, reason=reason)

    def resume(
        self, *, by: str, queue: str | None = None, kind: str | None = None, everything: bool = False, reason: str = ""
    ) -> None:
        """Let workers claim again what was paused by the same name. Raises `Refused("stale_view")` if it is not paused."""
        not_in_loop("app.review.resume", "await app.review.aresume(...)")
        review.no_agent("app.review.resume")
        scope = paused.scope_of(queue, kind, everything)
        paused.told(self._app.runtime.desk, pauses.Resume(scope, reason), by)

    async def aresume(
        self, *, by: str, queue: str | None = None, kind: str | None = None, everything: bool = False, reason: str = ""
    ) -> None:
        """The awaitable twin of `resume`."""
        await asyncio.to_thread(self.resume, by=by, queue=queue, kind=kind, everything=everything, reason=reason)

    def paused(self) -> Sequence[pauses.Pause]:
        """What is paused now: `.scope` (what, name), `.by`, `.why`, `.at` (milliseconds since the Unix epoch)."""
        not_in_loop("app.review.paused", "await app.review.apaused(...)")
        return sorted(self._app.runtime.paused.now().held.values(), key=lambda one: one.at)

    async def apaused(self) -> Sequence[pauses.Pause]:
        """The awaitable twin of `paused`."""
        return await asyncio.to_thread(self.paused)

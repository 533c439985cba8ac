"""app.review: what a person decides."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.decorated import not_in_loop
from semel.engine import dead as letters
from semel.engine import drive, paused, planned, retention, review, views
from semel.engine.dead import Handled, Plan
from semel.engine.planned import Planned
from semel.errors import Misuse
from semel.machine import pauses
from semel.machine.forecast import Forecast
from semel.model import DeadLetters, EffectView, Pruned, Ref, Verdict
from semel.views_of import Part

if TYPE_CHECKING:
    from semel.app import App


class Review(Part):
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
        A NotFound counts if it was on record that settle is over (R4); else the person is asked again once it is.
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
        key: str | Planned,
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
        A call that is not on record yet, as `effect.planned(ref, ...)`: it counts if the task asks for exactly that, once.
        """
        not_in_loop("app.review.approve", "await app.review.aapprove(...)")
        review.no_agent("app.review.approve")
        review.person(by)
        if isinstance(key, Planned):
            if args is not None or seen is not None:
                raise Misuse("what is approved ahead is the planned call itself; write planned(ref, ...) with the words you mean")
            owner, _ = self._of(key.ref, tenant)
            drive.run(planned.approve(self._app.runtime.desk, owner, key, by=by, reason=reason, expires=expires))
            return
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
        key: str | Planned,
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

    def deny(self, key: str | Planned, *, by: str, reason: str = "", seen: int | None = None, tenant: str | None = None) -> None:
        """Say no to an effect that waits for approval, or take back an approval that was not used.

        The agent's call raises `Refused("denied")`, now and on replay, until somebody approves it after all. What was approved
        ahead (`effect.planned(ref, ...)`) is taken back, and people are asked as usual.
        """
        not_in_loop("app.review.deny", "await app.review.adeny(...)")
        review.no_agent("app.review.deny")
        review.person(by)
        if isinstance(key, Planned):
            owner, _ = self._of(key.ref, tenant)
            drive.run(planned.deny(self._app.runtime.desk, owner, key, by=by, reason=reason))
            return
        row = self._app.effects.row(key, tenant)
        drive.run(review.deny(self._app.runtime.desk, row, by=by, reason=reason, seen=seen))

    async def adeny(
        self, key: str | Planned, *, by: str, reason: str = "", seen: int | None = None, tenant: str | None = None
    ) -> None:
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

    def renew(self, key: str, *, by: str, reason: str, seen: int | None = None, tenant: str | None = None) -> None:
        """Open a new generation of an effect that provably did not happen: its next call has a key of its own, and is sent.

        Refused for what happened (do it again on purpose with `using(occurrence=...)`), is unknown, in flight, or waits for
        approval. The task is not replayed by it.
        """
        not_in_loop("app.review.renew", "await app.review.arenew(...)")
        review.no_agent("app.review.renew")
        review.person(by)
        row = self._app.effects.row(key, tenant)
        drive.run(review.renew(self._app.runtime.desk, row, by=by, reason=reason, seen=seen))

    async def arenew(self, key: str, *, by: str, reason: str, seen: int | None = None, tenant: str | None = None) -> None:
        """The awaitable twin of `renew`."""
        await asyncio.to_thread(self.renew, key, by=by, reason=reason, seen=seen, tenant=tenant)

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
        review.no_agent("app.review.cancel")
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
        at_most: Mapping[str, int] | None = None,
        tenant: str | None = None,
    ) -> None:
        """Run an ended task again: the same task and keys, so what is on record is returned, not repeated.

        from_step: forget the recorded steps from the first of that name on (one that the task has not come to yet: none of
        them); default: all of them. Its limits of money, tokens and time count afresh. A task that is blocked goes on where it
        stands. identity: new values for names that are bound (`semel.bind`), on record as this person's word. at_most: by
        effect name, how many that are not on record yet may be sent; a further one is refused, and the task is a dead letter
        again. Names that are left out: none. None: no such limit.
        """
        not_in_loop("app.review.replay", "await app.review.areplay(...)")
        review.no_agent("app.review.replay")
        owner, task = self._of(of, tenant)
        desk, most = self._app.runtime.desk, None if at_most is None else limit_of(self._app, at_most)
        known = bool(from_step) and self._letter(owner, task, from_step).step_known
        drive.run(
            review.replay(
                desk, owner, task, by=by, reason=reason, from_step=from_step, known=known, at_most=most, identity=identity
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
        at_most: Mapping[str, int] | None = None,
        tenant: str | None = None,
    ) -> None:
        """The awaitable twin of `replay`."""
        await asyncio.to_thread(
            self.replay, of, by=by, from_step=from_step, reason=reason, identity=identity, at_most=at_most, tenant=tenant
        )

    def forecast(
        self, of: Ref[Any] | str | DeadLetters, *, from_step: str = "", limit: int | None = None, tenant: str | None = None
    ) -> Forecast:
        """What a replay would do, by effect name, without doing it: of one task, or the sum over dead letters."""
        not_in_loop("app.review.forecast", "await app.review.aforecast(...)")
        if isinstance(of, DeadLetters):
            return plan(self._app, of, from_step=from_step, limit=limit, tenant=tenant).forecast
        return self._letter(*self._of(of, tenant), from_step).forecast

    async def aforecast(
        self, of: Ref[Any] | str | DeadLetters, *, from_step: str = "", limit: int | None = None, tenant: str | None = None
    ) -> Forecast:
        """The awaitable twin of `forecast`."""
        return await asyncio.to_thread(self.forecast, of, from_step=from_step, limit=limit, tenant=tenant)

    def replay_many(
        self,
        of: DeadLetters,
        *,
        by: str,
        from_step: str = "",
        reason: str = "",
        at_most: Mapping[str, int] | None = None,
        only_as_forecast: bool = True,
        batch: str = "",
        limit: int | None = None,
        tenant: str | None = None,
    ) -> Handled:
        """Replay dead letters, each as its own change. Killed in the middle, the same call again replays the rest.

        only_as_forecast: of effects that are not on record, each task may send as many as finished tasks of its kind did;
        `at_most` says otherwise, by name. batch: a name; what was replayed under it is not replayed under it again, and
        listed (default: one that follows from the filter, from_step, by and reason).
        """
        not_in_loop("app.review.replay_many", "await app.review.areplay_many(...)")
        review.no_agent("app.review.replay_many")
        review.person(by)
        chosen = plan(
            self._app,
            of,
            from_step=from_step,
            limit=limit,
            tenant=tenant,
            batch=batch or letters.batch_of(of, from_step, by, reason),
        )
        return replay_plan(self._app, chosen, by=by, reason=reason, at_most=at_most, only_as_forecast=only_as_forecast)

    async def areplay_many(
        self,
        of: DeadLetters,
        *,
        by: str,
        from_step: str = "",
        reason: str = "",
        at_most: Mapping[str, int] | None = None,
        only_as_forecast: bool = True,
        batch: str = "",
        limit: int | None = None,
        tenant: str | None = None,
    ) -> Handled:
        """The awaitable twin of `replay_many`."""
        return await asyncio.to_thread(
            self.replay_many, of, by=by, from_step=from_step, reason=reason, at_most=at_most, only_as_forecast=only_as_forecast,
            batch=batch, limit=limit, tenant=tenant,
        )  # fmt: skip

    def purge(self, of: Ref[Any] | str, *, by: str, reason: str, tenant: str | None = None) -> None:
        """Give up a dead letter for good: it leaves the list; its record, its keys and their results stay.

        Refused (`unknown_outstanding`) while an effect of it is unknown: settle that first.
        """
        not_in_loop("app.review.purge", "await app.review.apurge(...)")
        review.no_agent("app.review.purge")
        why = letters.purge_words(review.person(by).partition(":")[2], reason)
        drive.run(review.purge(self._app.runtime.desk, *self._of(of, tenant), by=by, why=why))

    async def apurge(self, of: Ref[Any] | str, *, by: str, reason: str, tenant: str | None = None) -> None:
        """The awaitable twin of `purge`."""
        await asyncio.to_thread(self.purge, of, by=by, reason=reason, tenant=tenant)

    def purge_many(
        self, of: DeadLetters, *, by: str, reason: str, limit: int | None = None, tenant: str | None = None
    ) -> Handled:
        """Give up dead letters for good, each as its own change."""
        not_in_loop("app.review.purge_many", "await app.review.apurge_many(...)")
        review.no_agent("app.review.purge_many")
        review.person(by)
        return purge_plan(self._app, plan(self._app, of, limit=limit, tenant=tenant), by=by, reason=reason)

    async def apurge_many(
        self, of: DeadLetters, *, by: str, reason: str, limit: int | None = None, tenant: str | None = None
    ) -> Handled:
        """The awaitable twin of `purge_many`."""
        return await asyncio.to_thread(self.purge_many, of, by=by, reason=reason, limit=limit, tenant=tenant)

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

    def _letter(self, tenant: str, task: str, from_step: str) -> letters.Letter:
        self._app.load()
        desk, declared = self._app.runtime.desk, frozenset(self._app.declared_steps.names())
        return letters.letter_of(desk, letters.Kinds(desk), tenant, task, from_step, declared)


# --- for the command line, which shows a plan before it is carried out ------------------------------------------------


def plan(
    app: App, of: DeadLetters, *, from_step: str = "", limit: int | None = None, tenant: str | None = None, batch: str = ""
) -> Plan:
    """The dead letters that are meant, and what a replay of them would do."""
    app.load()
    declared = frozenset(app.declared_steps.names())
    whose = app.tenant if tenant is None else app.tenant_of(tenant)
    work = app.declared_tasks.get(of.kind) if of.kind else None
    of = of if work is None else replace(of, kind=work.first_name)  # as records have it
    return letters.plan(app.runtime.desk, of, whose, from_step=from_step, batch=batch, limit=limit, declared=declared)


def replay_plan(
    app: App, chosen: Plan, *, by: str, reason: str, at_most: Mapping[str, int] | None, only_as_forecast: bool,
    progress: letters.Progress = letters.quietly,
) -> Handled:  # fmt: skip
    """Replay what was shown, as it was shown."""
    return letters.replay_all(
        app.runtime.desk, chosen, by=by, reason=reason, at_most=None if at_most is None else limit_of(app, at_most),
        only_as_forecast=only_as_forecast, progress=progress, app=app,
    )  # fmt: skip


def purge_plan(app: App, chosen: Plan, *, by: str, reason: str, progress: letters.Progress = letters.quietly) -> Handled:
    """Give up for good what was shown, as it was shown."""
    return letters.purge_all(app.runtime.desk, chosen, by=by, reason=reason, progress=progress, app=app)


def limit_of(app: App, at_most: Mapping[str, int]) -> dict[str, int]:
    """By the names that records go by."""
    found = {}
    for name, most in letters.checked(at_most).items():
        declared = app.declared_effects.get(name)
        found[name if declared is None else declared.first_name] = most
    return found

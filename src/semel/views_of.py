"""app.tasks and app.effects: what is known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from semel.decorated import not_in_loop
from semel.engine import redaction, views
from semel.errors import Misuse
from semel.machine.projection import EffectRow
from semel.machine.redaction import Place
from semel.model import Delivery, EffectState, EffectView, Execution, Ref, TaskView

if TYPE_CHECKING:
    from semel.app import App


class Part:
    """A group of methods of an App."""

    def __init__(self, app: App) -> None:
        self._app = app

    def _tenant(self, tenant: str | None) -> str | None:
        """Whose; None: everybody's, which only an app of no tenant may ask for."""
        return self._app.tenant if tenant is None else self._app.tenant_of(tenant)

    def _of(self, of: Ref[Any] | str, tenant: str | None) -> tuple[str, str]:
        return self._app.locate(of, tenant)


class Tasks(Part):
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
            kind=work.first_name if (work := self._app.declared_tasks.get(kind)) is not None else kind,
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


class Effects(Part):
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
        elif task_id and owner is not None:  # through its journal: to walk past those of all other tasks may take long
            of_it = (row for row in views.effects_of(desk, owner, task_id) if row.key > after and state in ("", row.state))
            rows = list(islice(of_it, max(limit, 0)))
        else:
            rows = desk.store.effects(owner, state=str(state), task=task_id, after=after, limit=limit)
        return views.effect_views(desk, rows)

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

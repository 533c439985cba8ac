"""Commands that look, and change nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from semel.cli import approvals, output, reach, show, stats, verify, why
from semel.cli import dead as letters
from semel.cli.base import FOUND_WRONG, LOOK, cli, opened
from semel.cli.options import (
    AllOpt,
    AnyArg,
    JsonOpt,
    KindOpt,
    LimitOpt,
    QueueOpt,
    StoreOpt,
    TaskArg,
    TenantOpt,
)
from semel.model import Delivery, Execution


@cli.command(rich_help_panel=LOOK)
def tasks(
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    all_tenants: AllOpt = False,
    delivery: Annotated[str, typer.Option("--delivery", metavar="STATE", help=", ".join(Delivery), show_default=False)] = "",
    execution: Annotated[str, typer.Option("--execution", metavar="STATE", help=", ".join(Execution), show_default=False)] = "",
    kind: KindOpt = "",
    queue: QueueOpt = "",
    limit: LimitOpt = 50,
    as_json: JsonOpt = False,
) -> None:
    """List tasks, newest first."""
    with opened(store, tenant, all_tenants) as app:
        found = app.tasks.list(delivery=delivery, execution=execution, kind=kind, queue=queue, limit=limit)
        counts = app.runtime.desk.store.counts(None if all_tenants else tenant)
    if as_json:
        output.emit({"tasks": [show.task_data(task) for task in found], "counts": counts})
    else:
        show.tasks(found, counts=counts["delivery"], limit=limit, tenants=all_tenants)


@cli.command("show", rich_help_panel=LOOK)
def show_task(
    task: TaskArg, store: StoreOpt = reach.DEFAULT_STORE, tenant: TenantOpt = "default", as_json: JsonOpt = False
) -> None:
    """Show a task's three ledgers: delivery, execution, effects."""
    with opened(store, tenant) as app:
        desk = app.runtime.desk
        shown = show.read(desk, reach.task_of(desk.store, reach.find(desk.store, task, tenant)))
        if as_json:
            output.emit(show.show_data(shown))
        else:
            show.show(desk, shown)


@cli.command("why", rich_help_panel=LOOK)
def tell_why(
    what: AnyArg, store: StoreOpt = reach.DEFAULT_STORE, tenant: TenantOpt = "default", as_json: JsonOpt = False
) -> None:
    """Tell the story of a task or an effect, in sentences.

    It is told from the journal; the verdict comes first.
    """
    with opened(store, tenant) as app:
        desk = app.runtime.desk
        told = why.story(desk, reach.find(desk.store, what, tenant))
        if as_json:
            output.emit(told.data)
        else:
            why.show(told)


@cli.command(rich_help_panel=LOOK)
def unknown(
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    all_tenants: AllOpt = False,
    limit: LimitOpt = 50,
    as_json: JsonOpt = False,
) -> None:
    """List effects that may or may not have happened.

    The unknown-work queue, oldest first, and what each needs.
    """
    with opened(store, tenant, all_tenants) as app:
        desk = app.runtime.desk
        whose = None if all_tenants else tenant
        found, count = show.unknowns(desk, whose, limit), len(desk.store.unknown(whose, limit=show.COUNTED))
        if as_json:
            data = [show.unknown_data(desk, one) for one in found]
            output.emit({"unknown": data, "count": count, "oldest_ms": data[0]["age_ms"] if data else 0})
        else:
            show.unknown(desk, found, count, all_tenants)


@cli.command(rich_help_panel=LOOK)
def dead(
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    all_tenants: AllOpt = False,
    limit: LimitOpt = 50,
    as_json: JsonOpt = False,
) -> None:
    """List dead letters: why, and what their effects did."""
    with opened(store, tenant, all_tenants) as app:
        found = letters.letters(app, None if all_tenants else tenant, limit)
        if as_json:
            output.emit({"dead": [letters.letter_data(one) for one in found]})
        else:
            letters.listed(app.runtime.desk, found, all_tenants)


@cli.command("approvals", rich_help_panel=LOOK)
def waiting_approvals(
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    all_tenants: AllOpt = False,
    limit: LimitOpt = 50,
    as_json: JsonOpt = False,
) -> None:
    """List what waits for approval, and what would be sent."""
    with opened(store, tenant, all_tenants) as app:
        found = approvals.waiting(app, None if all_tenants else tenant, limit)
        if as_json:
            output.emit({"approvals": [approvals.waiting_data(*one) for one in found]})
        else:
            approvals.listed(app.runtime.desk, found, all_tenants)


@cli.command("verify", rich_help_panel=LOOK)
def verify_store(store: StoreOpt = reach.DEFAULT_STORE, as_json: JsonOpt = False) -> None:
    """Prove that the record is whole: journal and tables.

    Of every tenant; semel audit verify is the same, and compares with signed heads. The exit code is 1 if anything is wrong.
    """
    with opened(store, "", True) as app, output.progress("streams checked") as looked:
        report = verify.verify(app.runtime.desk.store, looked)
    if as_json:
        output.emit(verify.as_data(report))
    else:
        verify.show(report)
    raise typer.Exit(FOUND_WRONG if report.wrong else 0)


@cli.command("stats", rich_help_panel=LOOK)
def show_stats(
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    all_tenants: AllOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Count what needs people, the three ledgers, the queues.

    It counts every task and effect.
    """
    with opened(store, tenant, all_tenants) as app:
        found = app.stats(tenant=None if all_tenants else tenant)
        if as_json:
            output.emit(stats.as_data(found))
        else:
            stats.show(found)

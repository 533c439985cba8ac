"""Commands that look after the store."""

from __future__ import annotations

from typing import Annotated

import typer

from semel.cli import decide, doctor, output, reach, retention
from semel.cli.base import FOUND_WRONG, KEEP, cli, opened
from semel.cli.options import (
    AllOpt,
    ByOpt,
    JsonOpt,
    ReasonOpt,
    StoreOpt,
    TenantOpt,
)


@cli.command(rich_help_panel=KEEP)
def migrate(
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant_role: Annotated[
        list[str] | None,
        typer.Option("--tenant-role", metavar="ROLE=TENANT", help="Let a database role in, for one tenant's rows alone.",
                     show_default=False),
    ] = None,
    largest_lease: Annotated[
        float | None,
        typer.Option("--largest-lease", metavar="SECONDS", help="The longest lease that an app may have (60 s at first).",
                     show_default=False),
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option("--accept", metavar="MODULE:app", help="Let this code go on with tasks that it does not fit.",
                     show_default=False),
    ] = None,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    as_json: JsonOpt = False,
) -> None:  # fmt: skip
    """Make the store's schema, or upgrade it.

    Any number of times, by any number of processes at once.
    """
    if accept is not None:
        taken_over = doctor.accept(accept, by, reason)
        if as_json:
            output.emit({"accepted": list(taken_over)})
        else:
            doctor.tell_accepted(taken_over)
        return
    done = doctor.migrate(store, doctor.roles_of(tenant_role or []), largest_lease)
    if as_json:
        output.emit(doctor.migrated_data(done))
    else:
        doctor.tell(done)


@cli.command("doctor", rich_help_panel=KEEP)
def examine(store: StoreOpt = reach.DEFAULT_STORE, as_json: JsonOpt = False) -> None:
    """Look for what endangers the store.

    Settings, clocks, standbys, bloat, damage. Nothing is changed. The exit code is 1 if there is a danger.
    """
    found = doctor.examine(store)
    if as_json:
        output.emit(doctor.as_data(found))
    else:
        doctor.show(found)
    raise typer.Exit(FOUND_WRONG if found.level == "danger" else 0)


@cli.command(rich_help_panel=KEEP)
def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="What has been quiet so long: 12h, 90d.", show_default=False)
    ],
    export: Annotated[
        str | None,
        typer.Option("--export", metavar="FILE", help="Where its rows go first; written on if it is there.", show_default=False),
    ] = None,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    dead: Annotated[
        bool, typer.Option("--dead", metavar="", help="Dead letters too: that gives them up. Needs --reason.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", metavar="", help="Do not ask whether you mean it.")] = False,
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    every: AllOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Export finished tasks, and take them out of the journal.

    Their keys, digests and results stay: enqueued again, each is still the same task. Nothing that is unproved is touched.
    """
    name, age = decide.who(by), retention.age_of(older_than)
    with opened(store, tenant, every) as app:
        if not dry_run and not retention.confirmed(app, yes, age, name, reason, dead):
            output.say("Nothing was pruned.")
            raise typer.Exit(FOUND_WRONG)
        done = app.review.prune(older_than=age, export=export, by=name, reason=reason, dead=dead, dry_run=dry_run)
        if as_json:
            output.emit(retention.as_data(done, export, dry_run))
        else:
            retention.show(done, export, dry_run)

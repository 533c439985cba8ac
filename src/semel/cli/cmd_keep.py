"""Commands that look after the store."""

from __future__ import annotations

from typing import Annotated

import typer

from semel.cli import decide, doctor, output, reach, restore, retention, typed
from semel.cli.base import FOUND_WRONG, KEEP, cli, opened
from semel.cli.options import (
    AllOpt,
    ByOpt,
    DryOpt,
    JsonOpt,
    ReasonOpt,
    StoreOpt,
    TenantOpt,
    YesOpt,
)
from semel.errors import Misuse
from semel.machine import epochs


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
    """Make the store, or bring it up to date.

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
    dry_run: DryOpt = False,
    yes: YesOpt = False,
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    every: AllOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Export finished tasks, and take them out of the journal.

    Their keys, digests and results stay: enqueued again, each is still the same task. Nothing that is unproved is touched.
    """
    name, age = (by or "nobody") if dry_run else decide.who(by), retention.age_of(older_than)
    if not dry_run:
        retention.check(export, dead, reason)
        typed.can_ask(yes, as_json, "--dry-run")
    with opened(store, tenant, every) as app:
        if not (dry_run or yes or retention.confirmed(app, age, name, reason, dead)):
            output.say("Nothing was pruned.")
            raise typer.Exit(FOUND_WRONG)
        done = app.review.prune(older_than=age, export=export, by=name, reason=reason, dead=dead, dry_run=dry_run)
        if as_json:
            output.emit(retention.as_data(done, export, dry_run))
        else:
            retention.show(done, export, dry_run)


@cli.command("restore", rich_help_panel=KEEP)
def restored(
    old_is_down: Annotated[
        bool,
        typer.Option(
            "--old-is-down",
            metavar="",
            help="The store was restored or failed over, and the old one is down for good: begin a new epoch.",
        ),
    ] = False,
    close_window: Annotated[
        bool,
        typer.Option(
            "--close-window", metavar="", help="All that was lost is enqueued again: tasks that come from now on are new."
        ),
    ] = False,
    lift_doubt: Annotated[
        bool, typer.Option("--lift-doubt", metavar="", help="Nothing that the store forgot is to be looked for any more.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", metavar="", help="Watch here until claims may be given; else the first worker does."),
    ] = False,
    above: Annotated[
        int | None,
        typer.Option("--above", metavar="N", help="The new epoch must be above this one.", show_default=False),
    ] = None,
    went_back_to: Annotated[
        str | None,
        typer.Option("--went-back-to", metavar="TIME", help="When the backup was made: 2h, 7d, or a time.", show_default=False),
    ] = None,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    store: StoreOpt = reach.DEFAULT_STORE,
    as_json: JsonOpt = False,
) -> None:
    """Say whether the store went back, and what follows.

    It does when it is restored from a backup, say. Without an option it only looks. Exit code 1: it went back, unsaid.
    """
    if old_is_down + close_window + lift_doubt + watch > 1:
        raise Misuse("one statement at a time; write --old-is-down, then --watch, --close-window, --lift-doubt")
    if above is not None and not old_is_down:
        raise Misuse("--above goes with --old-is-down: a new epoch begins above it")
    if went_back_to is not None and not old_is_down:
        raise Misuse("--went-back-to goes with --old-is-down: it says what the new epoch may have forgotten")
    with reach.store_at(store, None) as app:
        if old_is_down:
            restore.began_by_hand(app, by, reason, above, went_back_to)
        elif close_window:
            restore.decided(app, epochs.Close(reason), by, reason)
        elif lift_doubt:
            restore.decided(app, epochs.Lift(reason), by, reason)
        elif watch:
            restore.watched(app, lambda words: None if as_json else output.say(words))
        found = restore.look(app)
    if as_json:
        output.emit(restore.as_data(found))
    else:
        restore.show(found)
    raise typer.Exit(FOUND_WRONG if found.missing else 0)

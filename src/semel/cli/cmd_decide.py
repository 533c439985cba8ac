"""Commands by which a person decides; every decision is on record, with a name."""

from __future__ import annotations

from typing import Annotated

import typer

from semel.cli import approvals, correction, decide, output, reach, restore
from semel.cli.base import DECIDE, FOUND_WRONG, cli, opened
from semel.cli.options import (
    AppOpt,
    ByOpt,
    JsonOpt,
    KeyArg,
    ReasonOpt,
    SeenOpt,
    StoreOpt,
    TaskArg,
    TenantOpt,
)
from semel.errors import Misuse
from semel.machine import epochs
from semel.model import Execution


@cli.command(rich_help_panel=DECIDE)
def resolve(
    key: KeyArg,
    confirmed: Annotated[
        str | None,
        typer.Option("--confirmed", metavar="JSON", help="It happened, and this is its result.", show_default=False),
    ] = None,
    not_found: Annotated[
        bool, typer.Option("--not-found", metavar="", help="It did not happen. Takes effect once a worker has watched settle.")
    ] = False,
    conflict: Annotated[
        str | None,
        typer.Option("--conflict", metavar="WHY", help="Something else is there; it stays unknown.", show_default=False),
    ] = None,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    process_stopped: Annotated[
        bool, typer.Option("--process-stopped", metavar="", help="Your word that the process which sent it has stopped.")
    ] = False,
    seen: SeenOpt = None,
    target: AppOpt = None,
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    as_json: JsonOpt = False,
) -> None:
    """Settle an unknown effect, as a person who has looked.

    It is refused if the effect has moved on since it was shown.
    """
    verdict, name = decide.verdict_of(confirmed, not_found, conflict), decide.who(by)
    with opened(store, tenant) if target is None else reach.closing(reach.load_app(target)) as app:
        desk = app.runtime.desk
        before = decide.subject(desk, key, tenant)
        if not as_json:
            decide.present(desk, before)
        after, checked = decide.resolve(app, before, verdict, by=name, reason=reason, seen=seen, stopped=process_stopped)
        if as_json:
            output.emit(decide.resolved_data(before, after, checked))
            return
        for sentence in decide.outcome(desk, after, verdict, name, checked):
            output.say(sentence)


@cli.command(rich_help_panel=DECIDE)
def approve(
    key: KeyArg,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    edit: Annotated[
        str | None,
        typer.Option("--edit", metavar="JSON", help="Arguments to change, as an object; not the intent.", show_default=False),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="It holds so long: 90s, 30m, 2h, 7d.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", metavar="", help="Do not ask whether you mean it.")] = False,
    seen: SeenOpt = None,
    target: AppOpt = None,
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    as_json: JsonOpt = False,
) -> None:
    """Let an effect that waits be sent, exactly as it is shown.

    It is refused if the effect has moved on since it was shown.
    """
    name, change, length = decide.who(by), approvals.edit_of(edit), approvals.length_of(expires)
    with opened(store, tenant) if target is None else reach.closing(reach.load_app(target)) as app:
        desk = app.runtime.desk
        before = approvals.subject(desk, key, tenant)
        if not as_json:
            decide.present(desk, before)
            approvals.show_edit(before, change)
        if not approvals.confirmed(yes):
            output.say("Nothing was approved.")
            raise typer.Exit(FOUND_WRONG)
        app.review.approve(
            before.found.id, by=name, reason=reason, seen=before.version if seen is None else seen, args=change,
            expires=length, tenant=before.found.tenant,
        )  # fmt: skip
        after = approvals.subject(desk, before.found.id, before.found.tenant)
        if as_json:
            output.emit(approvals.decided_data(desk, after))
        else:
            output.say(approvals.approved_words(desk, after, name))


@cli.command(rich_help_panel=DECIDE)
def deny(
    key: KeyArg,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    seen: SeenOpt = None,
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    as_json: JsonOpt = False,
) -> None:
    """Say no to an effect that waits; the agent is told so.

    It also takes back an approval that was not used.
    """
    name = decide.who(by)
    with opened(store, tenant) as app:
        desk = app.runtime.desk
        before = approvals.subject(desk, key, tenant)
        if not as_json:
            decide.present(desk, before)
        version = before.version if seen is None else seen
        app.review.deny(before.found.id, by=name, reason=reason, seen=version, tenant=before.found.tenant)
        after = approvals.subject(desk, before.found.id, before.found.tenant)
        if as_json:
            output.emit(approvals.decided_data(desk, after))
        else:
            output.say(approvals.denied_words(desk, after, name))


@cli.command(rich_help_panel=DECIDE)
def correct(
    key: KeyArg,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    seen: SeenOpt = None,
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    as_json: JsonOpt = False,
) -> None:
    """Take back a person's verdict that was wrong.

    It stays on record; a new entry reverses it, and the effect is unknown again.
    """
    name = decide.who(by)
    if not reason.strip():
        raise Misuse("a correction is on record for ever, and says what was wrong: write --reason WHY")
    with opened(store, tenant) as app:
        desk = app.runtime.desk
        before = approvals.subject(desk, key, tenant)
        if not as_json:
            decide.present(desk, before)
        version = before.version if seen is None else seen
        app.review.correct(before.found.id, by=name, reason=reason, seen=version, tenant=before.found.tenant)
        after = approvals.subject(desk, before.found.id, before.found.tenant)
        if as_json:
            output.emit(correction.as_data(desk, before, after))
        else:
            for sentence in correction.words(desk, before, after, name):
                output.say(sentence)


@cli.command(rich_help_panel=DECIDE)
def cancel(
    task: TaskArg,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    as_json: JsonOpt = False,
) -> None:
    """End a task: it starts nothing more.

    What is under way or unknown is settled first.
    """
    name = decide.who(by)
    with opened(store, tenant) as app:
        desk = app.runtime.desk
        found = reach.find(desk.store, task, tenant, among=("task",))
        app.review.cancel(found.id, by=name, reason=reason, tenant=found.tenant)
        data = decide.decided_data(desk, found)
    if as_json:
        output.emit(data)
    elif data["execution"] == Execution.CANCELLED:
        output.say(f"{data['kind']} {data['key']} ({found.id}) is cancelled, by {name}.")
    else:
        output.say(
            f"{data['kind']} {data['key']} ({found.id}) will be cancelled, by {name}: it starts nothing more, and ends when "
            f"what is under way or unknown is settled."
        )


@cli.command("restore", rich_help_panel=DECIDE)
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
        typer.Option(
            "--went-back-to", metavar="TIME", help="When the backup was made: 2026-01-31T03:00+01:00.", show_default=False
        ),
    ] = None,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    store: StoreOpt = reach.DEFAULT_STORE,
    as_json: JsonOpt = False,
) -> None:
    """Whether the store went back, and what follows from it.

    It does when it is restored from a backup, say. Without an option it only looks. Exit code 1: it went back, and nobody has
    said so yet.
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

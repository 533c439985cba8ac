"""Commands by which a person decides; every decision is on record, with a name."""

from __future__ import annotations

from typing import Annotated

import typer

from semel.cli import approvals, correction, decide, output, reach, typed
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
    YesOpt,
)
from semel.errors import Misuse
from semel.model import Execution


@cli.command(rich_help_panel=DECIDE)
def resolve(
    key: KeyArg,
    confirmed: Annotated[
        str | None,
        typer.Option("--confirmed", metavar="JSON", help="It happened, and this is its result.", show_default=False),
    ] = None,
    not_found: Annotated[
        bool, typer.Option("--not-found", metavar="", help="It did not happen. Counts if settle was over when you looked.")
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
    yes: YesOpt = False,
    seen: SeenOpt = None,
    target: AppOpt = None,
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    as_json: JsonOpt = False,
) -> None:
    """Let an effect that waits be sent, exactly as it is shown.

    It is refused if the effect has moved on since it was shown.
    """
    name, change, length = decide.who(by), approvals.edit_of(edit), typed.length_of("--expires", expires)
    typed.can_ask(yes, as_json, "semel approvals")
    with opened(store, tenant) if target is None else reach.closing(reach.load_app(target)) as app:
        desk = app.runtime.desk
        before = approvals.subject(desk, key, tenant)
        if not as_json:
            decide.present(desk, before)
            approvals.show_edit(before, change)
        if not (yes or typed.confirmed("Approve exactly this?")):
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
        raise Misuse("a correction is on record for ever, and says what was wrong; write --reason 'that receipt is of inv_7'")
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

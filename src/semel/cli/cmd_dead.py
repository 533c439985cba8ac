"""Commands about dead letters: replayed, one or many, or given up for good. Every decision is on record, with a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Annotated, Any

import typer

from semel import verbs
from semel.app import App
from semel.cli import cost, dead, decide, identity, output, reach, typed
from semel.cli.base import DECIDE, FOUND_WRONG, cli, opened
from semel.cli.options import (
    AppOpt,
    ByOpt,
    DryOpt,
    JsonOpt,
    KeyArg,
    KindOpt,
    QueueOpt,
    ReasonOpt,
    SeenOpt,
    StoreOpt,
    TenantOpt,
    YesOpt,
)
from semel.engine.dead import Handled, batch_of
from semel.errors import Misuse
from semel.model import DeadLetters, EffectState

MaybeTask = Annotated[
    str | None, typer.Argument(metavar="TASK", help="A task's id (or its end), or its key.", show_default=False)
]
DeadOpt = Annotated[bool, typer.Option("--dead", metavar="", help="Instead of one task: all dead letters of a filter.")]
WhyOpt = Annotated[str, typer.Option("--why", metavar="TEXT", help="Only if the reason holds this.", show_default=False)]
SinceOpt = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Given up since then: 2h, 7d, or a time.", show_default=False)
]
UntilOpt = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Given up before then.", show_default=False)]
EffectOpt = Annotated[
    str, typer.Option("--effect", metavar="STATE", help=f"With an effect that is {', '.join(EffectState)}.", show_default=False)
]
MaybeLimit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="At most so many.", show_default=False)]


def _app(target: str | None, store: str, tenant: str) -> AbstractContextManager[App]:
    return opened(store, tenant) if target is None else reach.closing(reach.load_app(target))


def _one_or_many(task: str | None, many: bool, which: DeadLetters) -> None:
    """Raise `Misuse` unless it is one task, or a filter."""
    if (task is None) != many:
        said = "a task and --dead" if many else "no task"
        raise Misuse(f"{said} was named; write a TASK, or --dead for many (with --kind, --queue, --why, --since, ...)")
    if not many and which != DeadLetters():
        raise Misuse("a filter goes with --dead: it chooses among the dead letters")


@cli.command(rich_help_panel=DECIDE)
def replay(
    task: MaybeTask = None,
    by: ByOpt = None,
    from_step: Annotated[
        str,
        typer.Option(
            "--from-step", metavar="STEP", help="Forget recorded steps from this one on; default: all.", show_default=False
        ),
    ] = "",
    reason: ReasonOpt = "",
    many: DeadOpt = False,
    kind: KindOpt = "",
    queue: QueueOpt = "",
    why: WhyOpt = "",
    since: SinceOpt = None,
    until: UntilOpt = None,
    effect: EffectOpt = "",
    limit: MaybeLimit = None,
    at_most: Annotated[
        list[str] | None,
        typer.Option("--at-most", metavar="NAME=N", help="So many new ones of this effect, a task.", show_default=False),
    ] = None,
    as_forecast: Annotated[
        bool | None,
        typer.Option(
            "--only-as-forecast/--beyond-forecast", help="Nothing new beyond the forecast (default with --dead).",
            show_default=False,
        ),
    ] = None,
    anew: Annotated[
        list[str] | None,
        typer.Option(
            "--identity", metavar="NAME=VALUE", help="A bound name's new value, on your word; repeatable.", show_default=False
        ),
    ] = None,
    batch: Annotated[
        str, typer.Option("--batch", metavar="NAME", help="Another name for a replay of many.", show_default=False)
    ] = "",
    dry_run: DryOpt = False,
    yes: YesOpt = False,
    target: AppOpt = None,
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    as_json: JsonOpt = False,
) -> None:  # fmt: skip
    """Run an ended task again, or many dead letters.

    The same task, with the same keys. Effects on record are returned, never repeated.
    """
    which, most = dead.filter_of(kind, queue, why, since, until, effect), dead.at_most_of(at_most or ())
    _one_or_many(task, many, which)
    name, as_whom = by if dry_run else decide.who(by), identity.from_options(anew or ())
    if many and as_whom:
        raise Misuse("--identity goes with one task: what is bound differs from task to task")
    if many and not dry_run:
        typed.can_ask(yes, as_json, "--dry-run")
    with _app(target, store, tenant) as app:
        if task is not None:
            _replay_one(app, task, tenant, name, from_step, reason, most, bool(as_forecast), as_whom, dry_run, as_json)
            return
        text = batch or batch_of(which, from_step, name or "", reason, (since or "", until or ""))
        chosen = verbs.plan(app, which, from_step=from_step, limit=limit, tenant=tenant, batch=text)
        if dry_run and as_json:
            output.emit({"forecast": dead.forecast_data(chosen.forecast), "batch": chosen.batch})
            return
        if not as_json:
            dead.plan(app, chosen)
        if dry_run or not chosen.letters:
            if as_json:
                output.emit(dead.handled_data(Handled(chosen.batch, chosen.forecast, (), (), ()), "replayed"))
            return
        only = as_forecast is not False
        _handle(
            app, "replayed", name or "", yes, as_json,
            lambda progress: verbs.replay_plan(
                app, chosen, by=name or "", reason=reason, at_most=most, only_as_forecast=only, progress=progress
            ),
        )  # fmt: skip


def _replay_one(
    app: App, task: str, tenant: str, by: str | None, from_step: str, reason: str, most: dict[str, int] | None,
    as_forecast: bool, as_whom: Mapping[str, str] | None, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    desk = app.runtime.desk
    found = reach.find(desk.store, task, tenant, among=("task",))
    if dry_run or as_forecast:
        told = app.review.forecast(found.id, from_step=from_step, tenant=found.tenant)
        most = {**told.new_most, **(most or {})} if as_forecast else most
    if dry_run:
        if as_json:
            output.emit({"forecast": dead.forecast_data(told)})
        else:
            dead.forecast(told)
        return
    assert by is not None
    app.review.replay(found.id, by=by, from_step=from_step, reason=reason, at_most=most, identity=as_whom, tenant=found.tenant)
    data = decide.decided_data(desk, found)
    if as_json:
        output.emit(data)
    else:
        hint = cost.afresh(desk, found.tenant, found.id)
        hint += "" if desk.store.sessions() else " No worker is running now: semel worker MODULE:app"
        output.say(f"{data['kind']} {data['key']} ({found.id}) is {data['delivery']} again, by {by}.{hint}")


def _handle(app: App, verb: str, by: str, yes: bool, as_json: bool, act: Callable[[Any], Handled]) -> None:
    """Ask, do it, and say what came of it. Exit code 1: some were refused, or nobody meant it."""
    if not (yes or typed.confirmed("Do exactly this?")):
        output.say("Nothing was done.")
        raise typer.Exit(FOUND_WRONG)
    with output.progress(verb) as looked:
        done = act(looked)
    if as_json:
        output.emit(dead.handled_data(done, verb))
    else:
        dead.handled(done, verb, by, bool(app.runtime.desk.store.sessions()))
    raise typer.Exit(FOUND_WRONG if done.refused else 0)


@cli.command(rich_help_panel=DECIDE)
def purge(
    task: MaybeTask = None,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    many: DeadOpt = False,
    kind: KindOpt = "",
    queue: QueueOpt = "",
    why: WhyOpt = "",
    since: SinceOpt = None,
    until: UntilOpt = None,
    effect: EffectOpt = "",
    limit: MaybeLimit = None,
    dry_run: DryOpt = False,
    yes: YesOpt = False,
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    as_json: JsonOpt = False,
) -> None:
    """Give up a dead letter for good, or many.

    It leaves the list; its record, its keys and its results stay.
    """
    which = dead.filter_of(kind, queue, why, since, until, effect)
    _one_or_many(task, many, which)
    name = by if dry_run else decide.who(by)
    if not dry_run and not reason.strip():
        raise Misuse("a purge is for good and needs a reason; write --reason 'the customer has left'")
    if many and not dry_run:
        typed.can_ask(yes, as_json, "--dry-run")
    with opened(store, tenant) as app:
        if task is not None and not dry_run:
            found = reach.find(app.runtime.desk.store, task, tenant, among=("task",))
            app.review.purge(found.id, by=name or "", reason=reason, tenant=found.tenant)
            data = decide.decided_data(app.runtime.desk, found)
            if as_json:
                output.emit(data)
            else:
                output.say(f"{data['kind']} {data['key']} ({found.id}) is purged, by {name}. Its record and its keys stay.")
            return
        if task is not None:
            raise Misuse("--dry-run goes with --dead; of one task, see: semel show TASK")
        chosen = verbs.plan(app, which, limit=limit, tenant=tenant)
        if not as_json:
            output.verdict(f"TO PURGE  {output.count(len(chosen.letters), 'dead letter')}.", "wait")
        if dry_run or not chosen.letters:
            if as_json:
                output.emit({"purged": [], "would": [letter.id for letter in chosen.letters]})
            return
        _handle(
            app, "purged", name or "", yes, as_json,
            lambda progress: verbs.purge_plan(app, chosen, by=name or "", reason=reason, progress=progress),
        )  # fmt: skip


@cli.command(rich_help_panel=DECIDE)
def renew(
    key: KeyArg,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    seen: SeenOpt = None,
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    as_json: JsonOpt = False,
) -> None:
    """Let what provably did not happen be tried anew.

    Its next call has a key of its own: a new generation.
    """
    name = decide.who(by)
    if not reason.strip():
        raise Misuse("a new generation may be a second try, and it is on record why; write --reason 'the account is open again'")
    with opened(store, tenant) as app:
        desk = app.runtime.desk
        before = decide.subject(desk, key, tenant)
        if not as_json:
            decide.present(desk, before)
        version = before.version if seen is None else seen
        app.review.renew(before.found.id, by=name, reason=reason, seen=version, tenant=before.found.tenant)
        after = decide.subject(desk, before.found.id, before.found.tenant, ("effect",))
        if as_json:
            output.emit(dead.renewed_data(after))
        else:
            output.say(dead.renewed_words(after, name))

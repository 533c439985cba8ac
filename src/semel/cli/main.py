"""The command line: `semel`. It reads and passes on; every rule is the machine's.

Exit codes: 0 all is well; 1 something is wrong, or the machine refused; 2 misuse, and nothing has changed.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import AbstractContextManager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from semel import __version__
from semel.app import App
from semel.cli import approvals, asks, decide, doctor, output, reach, restore, show, verify, why, work
from semel.cli.options import (
    AllOpt,
    AnyArg,
    AppOpt,
    ByOpt,
    JsonOpt,
    KeyArg,
    LimitOpt,
    ReasonOpt,
    SeenOpt,
    StoreOpt,
    Target,
    TaskArg,
    TenantOpt,
)
from semel.engine import views
from semel.errors import Misuse, SemelError
from semel.machine import epochs
from semel.model import Delivery, Execution, Ref

FOUND_WRONG, MISUSE = 1, 2


class Commands(TyperGroup):
    """Turns semel's errors into one message on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except Misuse as error:
            output.complain(error)
            raise typer.Exit(MISUSE) from error
        except SemelError as error:
            output.complain(error)
            raise typer.Exit(FOUND_WRONG) from error


cli = typer.Typer(
    cls=Commands,
    name="semel",
    help="Semel: each effect of an unattended agent on the outside world happens once.",
    epilog="Ids may be given by their first or last characters, tasks by their key.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

WORK, LOOK, DECIDE = "Run", "Look", "Decide (every decision is on record, with a name)"
KEEP = "Look after the store"


@cli.callback(invoke_without_command=True)
def top(
    ctx: typer.Context, version: Annotated[bool, typer.Option("--version", metavar="", help="Say which version this is.")] = False
) -> None:
    """Semel: each effect of an unattended agent on the outside world happens once."""
    if version:
        output.say(f"semel {__version__}")
        raise typer.Exit()


def opened(store: str, tenant: str, every: bool = False) -> AbstractContextManager[App]:
    """The store to read."""
    return reach.store_at(store, None if every else tenant)


# --- run ------------------------------------------------------------------------------------------------------------

Queues = Annotated[
    str | None,
    typer.Option("--queues", metavar="a,b", help="Only these queues; default: those of the app's tasks.", show_default=False),
]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, metavar="N", help="Attempts at a time, in each process.")]
UntilIdle = Annotated[bool, typer.Option("--until-idle", metavar="", help="Stop when nothing is due any more.")]


@cli.command(rich_help_panel=WORK)
def worker(
    target: Target,
    processes: Annotated[int, typer.Option("--processes", min=1, metavar="N", help="So many worker processes.")] = 1,
    queues: Queues = None,
    concurrency: Concurrency = 100,
    until_idle: UntilIdle = False,
) -> None:
    """Run the tasks of an app, in supervised processes.

    SIGTERM or Ctrl-C stops gracefully, a second one at once. A process that dies is started again.
    """
    raise typer.Exit(work.start(target, processes=processes, queues=queues, concurrency=concurrency, until_idle=until_idle))


@cli.command(work.COMMAND, hidden=True)
def worker_process(target: Target, queues: Queues = None, concurrency: Concurrency = 100, until_idle: UntilIdle = False) -> None:
    """One worker process, started by `semel worker`."""
    work.run(target, queues=work.queues_of(queues), concurrency=concurrency, until_idle=until_idle)


@cli.command(rich_help_panel=WORK)
def enqueue(
    target: Target,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name.", show_default=False)],
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARG", help="Its arguments: JSON if it parses, else text; name=value for one by name.",
                       show_default=False),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="K", help="Instead of the key that its intent gives.", show_default=False),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="Whose; default: the app's.", show_default=False),
    ] = None,
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="Higher is sooner.")] = 0,
    as_json: JsonOpt = False,
) -> None:  # fmt: skip
    """Accept a task. The same key again is the same task.

    Arguments: inv_42 is a text, 42 a number, '"42"' the text 42, cents=1200 one by name; write -- before one like -1.
    """
    with reach.closing(reach.load_app(target)) as app:
        done = asks.accept(app, task, args or [], key=key, tenant=tenant, priority=priority)
    state = done.state
    if as_json:
        output.emit({"id": state.id, "tenant": done.tenant, "kind": state.kind, "key": state.key, "new": done.new,
                     "same_args": done.same, "delivery": str(state.delivery), "execution": str(state.execution)})  # fmt: skip
        return
    stands = "new" if done.new else f"exists already: {state.delivery}, {state.execution}"
    output.say(f"{state.id}  {stands}")
    if not done.same:
        output.say("It keeps the arguments that it was first accepted with:", "wait")
        output.indented(output.one_line(state.args, output.room(2)), 2)


@cli.command(rich_help_panel=WORK)
def demo(
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="The same chaos again.", show_default=False),
    ] = None,
    tasks: Annotated[int, typer.Option("--tasks", min=1, metavar="N", help="So many tasks.")] = 40,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="A URL; postgres: one that ends with the demo; default: a new file.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=1, metavar="S", help="At most so long.", show_default=False),
    ] = None,
) -> None:
    """An agent at work while its workers are killed and frozen.

    What really happened is counted at the provider.
    """
    try:
        module = importlib.import_module("semel.cli.demo")
    except ModuleNotFoundError as error:
        raise Misuse(f"the demo is not part of this installation ({error}); install semel again: pip install semel") from error
    given = {} if seconds is None else {"seconds": seconds}
    raise typer.Exit(module.run(seed=seed, tasks=tasks, store=store, **given))


# --- look -----------------------------------------------------------------------------------------------------------


@cli.command(rich_help_panel=LOOK)
def tasks(
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    all_tenants: AllOpt = False,
    delivery: Annotated[str, typer.Option("--delivery", metavar="STATE", help=", ".join(Delivery), show_default=False)] = "",
    execution: Annotated[str, typer.Option("--execution", metavar="STATE", help=", ".join(Execution), show_default=False)] = "",
    kind: Annotated[str, typer.Option("--kind", metavar="NAME", help="Only tasks of this name.", show_default=False)] = "",
    queue: Annotated[str, typer.Option("--queue", metavar="NAME", help="Only of this queue.", show_default=False)] = "",
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
    """A task's three ledgers: delivery, execution, effects."""
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
    """The story of a task or an effect, in plain sentences.

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
    """Effects that may or may not have happened, and what each needs.

    The unknown-work queue, oldest first.
    """
    with opened(store, tenant, all_tenants) as app:
        desk = app.runtime.desk
        found = show.unknowns(desk, None if all_tenants else tenant, limit)
        if as_json:
            output.emit({"unknown": [show.unknown_data(desk, one) for one in found]})
        else:
            show.unknown(desk, found, all_tenants)


@cli.command(rich_help_panel=LOOK)
def dead(
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    all_tenants: AllOpt = False,
    limit: LimitOpt = 50,
    as_json: JsonOpt = False,
) -> None:
    """Dead letters: why they were given up, and what their effects did."""
    with opened(store, tenant, all_tenants) as app:
        found = show.dead_letters(app, None if all_tenants else tenant, limit)
        if as_json:
            output.emit({"dead": [show.dead_data(one) for one in found]})
        else:
            show.dead(app.runtime.desk, found, all_tenants)


@cli.command("approvals", rich_help_panel=LOOK)
def waiting_approvals(
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    all_tenants: AllOpt = False,
    limit: LimitOpt = 50,
    as_json: JsonOpt = False,
) -> None:
    """Effects that people must approve, with what would be sent."""
    with opened(store, tenant, all_tenants) as app:
        found = approvals.waiting(app, None if all_tenants else tenant, limit)
        if as_json:
            output.emit({"approvals": [approvals.waiting_data(*one) for one in found]})
        else:
            approvals.listed(app.runtime.desk, found, all_tenants)


@cli.command("verify", rich_help_panel=LOOK)
def verify_store(store: StoreOpt = reach.DEFAULT_STORE, as_json: JsonOpt = False) -> None:
    """Prove that the journal is whole and the tables are what it says.

    Of every tenant. The exit code is 1 if anything is wrong.
    """
    with opened(store, "", True) as app, output.progress("streams checked") as looked:
        report = verify.verify(app.runtime.desk.store, looked)
    if as_json:
        output.emit(verify.as_data(report))
    else:
        verify.show(report)
    raise typer.Exit(FOUND_WRONG if report.wrong else 0)


# --- decide ---------------------------------------------------------------------------------------------------------


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


@cli.command(rich_help_panel=WORK)
def signal(
    task: TaskArg,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="What has happened, as the task names it.", show_default=False)],
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="What the task is told: JSON if it parses, else text.", show_default=False)
    ] = "null",
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    as_json: JsonOpt = False,
) -> None:
    """Tell a task of something that it waits for, or will.

    The first signal of a name counts; said again, nothing happens.
    """
    with opened(store, tenant) as app:
        desk = app.runtime.desk
        found = reach.find(desk.store, task, tenant, among=("task",))
        news = event not in views.state_of(desk, found.tenant, found.id).signals
        app.signal(Ref(found.id, found.tenant), event, asks.parsed(payload))
        data = decide.decided_data(desk, found)
    if as_json:
        output.emit({**data, "event": event, "news": news})
    else:
        output.say(
            f"{data['kind']} {data['key']} ({found.id}) is told of {event}: it is {data['delivery']}." if news
            else f"{data['kind']} {data['key']} ({found.id}) had been told of {event} before; nothing has changed."
        )  # fmt: skip


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


@cli.command(rich_help_panel=DECIDE)
def replay(
    task: TaskArg,
    by: ByOpt = None,
    from_step: Annotated[
        str,
        typer.Option(
            "--from-step", metavar="STEP", help="Forget recorded steps from this one on; default: all.", show_default=False
        ),
    ] = "",
    reason: ReasonOpt = "",
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    as_json: JsonOpt = False,
) -> None:
    """Run an ended task again: same task, same keys.

    Effects on record are returned, never repeated.
    """
    name = decide.who(by)
    with opened(store, tenant) as app:
        desk = app.runtime.desk
        found = reach.find(desk.store, task, tenant, among=("task",))
        app.review.replay(found.id, by=name, from_step=from_step, reason=reason, tenant=found.tenant)
        data = decide.decided_data(desk, found)
        workers = bool(desk.store.sessions())
    if as_json:
        output.emit(data)
    else:
        hint = "" if workers else " No worker is running now: semel worker MODULE:app"
        output.say(f"{data['kind']} {data['key']} ({found.id}) is {data['delivery']} again, by {name}.{hint}")


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


# --- look after the store -------------------------------------------------------------------------------------------


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
    as_json: JsonOpt = False,
) -> None:  # fmt: skip
    """Make the store's schema, or upgrade it.

    Any number of times, by any number of processes at once.
    """
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


def main() -> None:
    """The console entry point."""
    reach.here_on_path()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a sign must not end the command
    cli(prog_name="semel")

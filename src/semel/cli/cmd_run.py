"""Commands that run and feed work."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer

from semel.cli import asks, decide, output, reach, work
from semel.cli.base import WORK, cli, opened
from semel.cli.options import (
    JsonOpt,
    StoreOpt,
    Target,
    TaskArg,
    TenantOpt,
)
from semel.engine import views
from semel.errors import Misuse
from semel.machine.words import count
from semel.model import Ref

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
        typer.Option("--key", metavar="KEY", help="Instead of the key that its intent gives.", show_default=False),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="Whose; default: the app's.", show_default=False),
    ] = None,
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="Higher is sooner.")] = 0,
    lines: Annotated[
        bool,
        typer.Option("--lines", metavar="", help="Many: on each line of the standard input, the arguments of one as JSON.")
    ] = False,
    as_json: JsonOpt = False,
) -> None:  # fmt: skip
    """Accept a task. The same key again is the same task.

    Arguments: inv_42 is a text, 42 a number, '"42"' the text 42, cents=1200 one by name; write -- before one like -1.
    """
    if lines:
        if args or key is not None:
            raise Misuse(
                "--lines takes arguments from the standard input, and keys from the task's intent; leave out ARGS, --key"
            )
        with reach.closing(reach.load_app(target)) as app:
            ids = asks.accept_lines(app, task, sys.stdin, tenant=tenant, priority=priority)
        if as_json:
            output.emit({"ids": list(ids)})
        else:
            output.say(f"{count(len(ids), 'task')} accepted, new or there already")
        return
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
    """Watch an agent whose workers are killed and frozen.

    What really happened is counted at the provider.
    """
    try:
        module = importlib.import_module("semel.cli.demo")
    except ModuleNotFoundError as error:
        raise Misuse(f"the demo is not part of this installation ({error}); install semel again: pip install semel") from error
    given = {} if seconds is None else {"seconds": seconds}
    raise typer.Exit(module.run(seed=seed, tasks=tasks, store=store, **given))


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

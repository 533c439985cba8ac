"""The command line's frame: one typer app, its panels, its errors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from semel import __version__
from semel.app import App
from semel.cli import output, reach
from semel.errors import Misuse, SemelError

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

WORK, LOOK, DECIDE = "Run", "Look", "Decide (on record, with a name)"
PAUSE, KEEP = "Pause (a queue, a kind of tasks, or everything)", "Look after the store"


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

"""The arguments and options that several commands have, as they are spelt and explained everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

Target = Annotated[str, typer.Argument(metavar="MODULE:app", help="The app, as in billing:app.", show_default=False)]
TaskArg = Annotated[str, typer.Argument(metavar="TASK", help="A task's id (or its end), or its key.", show_default=False)]
KeyArg = Annotated[str, typer.Argument(metavar="KEY", help="An effect's key (or its end).", show_default=False)]
AnyArg = Annotated[str, typer.Argument(metavar="KEY_OR_TASK", help="An effect's key, a task's id or key.", show_default=False)]
StoreOpt = Annotated[str, typer.Option("--store", metavar="URL", envvar="SEMEL_STORE", help="The store.")]
TenantOpt = Annotated[str, typer.Option("--tenant", metavar="NAME", help="Whose.")]
AllOpt = Annotated[bool, typer.Option("--all-tenants", metavar="", help="Of every tenant.")]
JsonOpt = Annotated[bool, typer.Option("--json", metavar="", help="For programs: JSON with stable names.")]
LimitOpt = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")]
ByOpt = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", envvar="SEMEL_BY", help="Who decides; it is put on record.", show_default=False),
]
ReasonOpt = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.", show_default=False)]

SeenOpt = Annotated[
    int | None,
    typer.Option("--seen", metavar="VERSION", help="The version you looked at; default: the one shown now.", show_default=False),
]
AppOpt = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:app", help="Its code, to check what you write; its store is used.", show_default=False),
]

YesOpt = Annotated[bool, typer.Option("--yes", metavar="", help="Do not ask whether you mean it.")]
DryOpt = Annotated[bool, typer.Option("--dry-run", metavar="", help="Only say what would happen.")]
KindOpt = Annotated[str, typer.Option("--kind", metavar="NAME", help="Only tasks of this kind.", show_default=False)]
QueueOpt = Annotated[str, typer.Option("--queue", metavar="NAME", help="Only tasks of this queue.", show_default=False)]

"""`semel audit ...`: whether the record is the true one, and a copy of it for others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from semel.cli import audit, output, reach, typed, verify
from semel.cli.base import FOUND_WRONG, KEEP, cli, opened
from semel.cli.options import JsonOpt, StoreOpt
from semel.engine import export, heads
from semel.errors import Misuse

group = typer.Typer(
    name="audit", help="Prove that the record is the true one; export it.", no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
cli.add_typer(group, name="audit", rich_help_panel=KEEP)

HeadsOpt = Annotated[
    Path | None, typer.Option("--heads", metavar="FILE", help="Signed heads to compare with.", show_default=False)
]
PublicOpt = Annotated[
    Path | None,
    typer.Option("--public-key", metavar="FILE", help="Whose signature the heads must bear.", show_default=False),
]


@group.command("verify")
def verify_all(
    exported: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Check this export instead; no store is asked.", show_default=False),
    ] = None,
    signed: HeadsOpt = None,
    public: PublicOpt = None,
    pruned: Annotated[
        list[Path] | None,
        typer.Option("--pruned", metavar="FILE", help="An export of what was pruned; several may be given.", show_default=False),
    ] = None,
    store: StoreOpt = reach.DEFAULT_STORE,
    as_json: JsonOpt = False,
) -> None:
    """Look for tampering: rows, tables, the whole store.

    With --heads also for rows that are gone from the end, for a history that was written anew, and for another store in the
    place of this one. With --export no database is needed. The exit code is 1 if anything is wrong.
    """
    if exported is not None and pruned:
        raise Misuse("--pruned goes with a store; what was pruned is checked by itself with --export FILE")
    compared = audit.heads_of(signed, public)
    if exported is not None:
        found = export.check(exported, compared)
        if as_json:
            output.emit(audit.checked_data(found))
        else:
            audit.show_checked(exported, found)
        raise typer.Exit(FOUND_WRONG if found.wrong else 0)
    with opened(store, "", True) as app, output.progress("streams checked") as looked:
        report = verify.verify(app.runtime.desk.store, looked, signed=compared, pruned=pruned or ())
    if as_json:
        output.emit(verify.as_data(report))
    else:
        verify.show(report)
    raise typer.Exit(FOUND_WRONG if report.wrong else 0)


@group.command("export")
def export_all(
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="A new file; - for standard output.", show_default=False)],
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Of this tenant alone.", show_default=False)
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="One task, and the keys that it shares.", show_default=False),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="From then on: 2h, 7d, or a time.", show_default=False)
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before then.", show_default=False)] = None,
    store: StoreOpt = reach.DEFAULT_STORE,
    as_json: JsonOpt = False,
) -> None:
    """Write the journal into a file, a line for each row.

    It is checked without a database: semel audit verify --export FILE. It holds what the effects were called with.
    """
    times = typed.ms_of("--since", since), typed.ms_of("--until", until)
    with opened(store, tenant or "default", task is None) as app:
        desk = app.runtime.desk
        streams, rows = audit.exported(desk, to, audit.asked_of(desk, tenant, task, *times))
    if str(to) == "-":
        return
    if as_json:
        output.emit({"file": str(to), "streams": streams, "rows": rows})
    else:
        output.say(f"{to} holds {output.count(rows, 'row')} of {output.count(streams, 'stream')}.")


@group.command("sign")
def sign_heads(
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="A new file.", show_default=False)],
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="FILE", envvar="SEMEL_AUDIT_KEY", help="The private key.", show_default=False),
    ] = None,
    unsigned: Annotated[bool, typer.Option("--unsigned", metavar="", help="Without a key: much weaker.")] = False,
    store: StoreOpt = reach.DEFAULT_STORE,
    as_json: JsonOpt = False,
) -> None:
    """Sign where every stream stands, to compare later.

    Verify first: what was changed before is signed as it is. Keep the file outside of the store.
    """
    if not key and not unsigned:
        raise Misuse("there is no key to sign with; make one (semel audit keygen --to NAME), or write --unsigned")
    private = heads.private_key(key) if key and not unsigned else None
    with opened(store, "", True) as app:
        streams, rows = heads.sign(app.runtime.desk.store, to, private, audit.now_ms())
    if as_json:
        output.emit({"file": str(to), "streams": streams, "rows": rows, "signed": private is not None})
    else:
        audit.show_signed(to, streams, rows, private is not None)


@group.command("keygen")
def make_keys(
    to: Annotated[Path, typer.Option("--to", metavar="NAME", help="Makes NAME.key and NAME.pub.", show_default=False)],
    as_json: JsonOpt = False,
) -> None:
    """Make a key pair to sign heads with.

    Whoever has the private one can sign for the store: keep it away from the agents.
    """
    private, public = heads.generate(to)
    if as_json:
        output.emit({"private": str(private), "public": str(public)})
    else:
        output.say(f"{private} signs, and is for its owner alone; {public} is for whoever verifies.")

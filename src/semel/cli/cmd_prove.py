"""`semel prove`: whether a value is the one that was redacted. It is read from standard input, and shown nowhere."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from semel.app import App
from semel.cli import decide, output, reach
from semel.cli.base import FOUND_WRONG, LOOK, cli, opened
from semel.cli.options import JsonOpt, KeyArg, StoreOpt, TenantOpt
from semel.errors import Misuse

FieldArg = Annotated[str, typer.Argument(metavar="FIELD", help="The argument that was redacted.", show_default=False)]


def value_from_input() -> str:
    """The value, from standard input without the end of its last line; typed unseen at a terminal. Raises `Misuse`."""
    if sys.stdin.isatty():
        text = getpass.getpass("The value (it is not shown): ")
    else:
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise Misuse("the value on standard input is no UTF-8 text; write it as the effect's argument is on record") from None
        text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise Misuse(
            "no value was given; write it to standard input, where no list of processes shows it: semel prove KEY FIELD < FILE"
        )
    return text


def equal(app: App, key: str, field: str, text: str, tenant: str) -> bool:
    """Whether it is the text, or what the text says as JSON."""
    if app.effects.proves(key, field, text, tenant=tenant):
        return True
    try:
        value = decide.strict_json(text)
    except ValueError:
        return False
    return app.effects.proves(key, field, value, tenant=tenant)


@cli.command(rich_help_panel=LOOK)
def prove(
    key: KeyArg,
    field: FieldArg,
    store: StoreOpt = reach.DEFAULT_STORE,
    tenant: TenantOpt = "default",
    as_json: JsonOpt = False,
) -> None:
    """Say whether a value is the one that was redacted.

    It is read from standard input: text, or JSON. Needs the key in SEMEL_REDACTION_KEY. Exit code 1: it is another.
    """
    with opened(store, tenant) as app:
        found = reach.find(app.runtime.desk.store, key, tenant, among=("effect",))
        same = equal(app, found.id, field, value_from_input(), found.tenant)
    if as_json:
        output.emit({"key": found.id, "tenant": found.tenant, "field": field, "equal": same})
    else:
        output.verdict(
            f"{'EQUAL' if same else 'NOT EQUAL'}  {'This' if same else 'Another value'} is what {found.id} was called with, "
            f"as {field}.",
            "good" if same else "bad",
        )
    raise typer.Exit(0 if same else FOUND_WRONG)

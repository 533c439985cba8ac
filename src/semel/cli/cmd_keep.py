"""Commands that look after the store."""

from __future__ import annotations

from typing import Annotated

import typer

from semel.cli import doctor, output, reach
from semel.cli.base import FOUND_WRONG, KEEP, cli
from semel.cli.options import (
    JsonOpt,
    StoreOpt,
)


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

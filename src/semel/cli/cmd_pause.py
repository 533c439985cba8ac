"""Commands that stop and start claiming."""

from __future__ import annotations

from typing import Annotated

import typer

from semel.cli import decide, output, pauses, reach
from semel.cli.base import FOUND_WRONG, PAUSE, cli, opened
from semel.cli.options import ByOpt, JsonOpt, ReasonOpt, StoreOpt

OneQueue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Tasks of this queue.", show_default=False)]
OneKind = Annotated[str | None, typer.Option("--kind", metavar="NAME", help="Tasks of this kind.", show_default=False)]
EveryOpt = Annotated[bool, typer.Option("--all", metavar="", help="All tasks.")]


@cli.command(rich_help_panel=PAUSE)
def pause(
    queue: OneQueue = None,
    kind: OneKind = None,
    everything: EveryOpt = False,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    store: StoreOpt = reach.DEFAULT_STORE,
    as_json: JsonOpt = False,
) -> None:
    """Let workers begin nothing of it; what runs goes on."""
    what, name = pauses.scope(queue, kind, everything), decide.who(by)
    with opened(store, "", True) as app:
        app.review.pause(by=name, reason=reason, everything=everything, **pauses.given(what))
        held = [one for one in app.review.paused() if one.scope == what]
        if as_json:
            output.emit(pauses.data(app.runtime.desk, held))
        else:
            pauses.listed(app.runtime.desk, held)


@cli.command(rich_help_panel=PAUSE)
def resume(
    queue: OneQueue = None,
    kind: OneKind = None,
    everything: EveryOpt = False,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    store: StoreOpt = reach.DEFAULT_STORE,
    as_json: JsonOpt = False,
) -> None:
    """Let workers begin it again."""
    what, name = pauses.scope(queue, kind, everything), decide.who(by)
    with opened(store, "", True) as app:
        app.review.resume(by=name, reason=reason, everything=everything, **pauses.given(what))
        left = app.review.paused()
        if as_json:
            output.emit(pauses.data(app.runtime.desk, left))
            return
        output.say(f"{what} is not paused any more, by {name}.")
        if left:
            output.say("Still paused:")
            pauses.listed(app.runtime.desk, left)


@cli.command("paused", rich_help_panel=PAUSE)
def what_is_paused(store: StoreOpt = reach.DEFAULT_STORE, as_json: JsonOpt = False) -> None:
    """List what is paused, by whom, and what still runs."""
    with opened(store, "", True) as app:
        held = app.review.paused()
        if as_json:
            output.emit(pauses.data(app.runtime.desk, held))
        else:
            pauses.listed(app.runtime.desk, held)


@cli.command(rich_help_panel=PAUSE)
def drain(
    queue: OneQueue = None,
    kind: OneKind = None,
    everything: EveryOpt = False,
    seconds: Annotated[float, typer.Option("--seconds", min=0, metavar="S", help="Wait so long at most.")] = 600.0,
    by: ByOpt = None,
    reason: ReasonOpt = "",
    store: StoreOpt = reach.DEFAULT_STORE,
    as_json: JsonOpt = False,
) -> None:
    """Pause it, and wait until nothing of it runs.

    Before a deploy, say. Exit code 1: something still runs. It stays paused: semel resume.
    """
    what, name = pauses.scope(queue, kind, everything), decide.who(by)

    def told(left: int) -> None:
        if not as_json and left:
            output.say(f"{what}: {output.count(left, 'attempt')} still under way")

    with opened(store, "", True) as app:
        pauses.pause_anyway(app, what, name, reason)
        left = pauses.drained(app, what, seconds, told)
        if as_json:
            output.emit({"what": what.what, "name": what.name, "at_work": left})
        elif left:
            output.verdict(f"NOT DRAINED  {what}: {output.count(left, 'attempt')} still under way.", "bad")
        else:
            flag = f"--{what.what}" + (f" {what.name}" if what.name else "")
            output.verdict(f"DRAINED  Nothing of it runs: {what}. It stays paused; to go on: semel resume {flag}", "good")
    raise typer.Exit(FOUND_WRONG if left else 0)

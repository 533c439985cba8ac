"""`semel crashtest`: the user's own task in real worker processes, killed, frozen and cut at every boundary."""

from __future__ import annotations

import contextlib
import importlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from semel.cli import asks, output, reach
from semel.cli.base import FOUND_WRONG, WORK, cli
from semel.cli.options import JsonOpt, Target
from semel.errors import Misuse

if TYPE_CHECKING:
    from semel.testing.crashtest.report import Report

INTERRUPTED = 130
COUNTED = {
    "probe": "effects are counted by the probe",
    "sandbox": "effects are counted at the sandbox provider",
    "calls": "nobody counts effects, only calls",
}


@cli.command(rich_help_panel=WORK)
def crashtest(
    target: Target,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name.", show_default=False)],
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARG", help="Its arguments, as `semel enqueue` takes them.", show_default=False),
    ] = None,
    probe: Annotated[
        str | None,
        typer.Option("--probe", metavar="MODULE:function", help="What counts effects at the resource.", show_default=False),
    ] = None,
    sandbox: Annotated[bool, typer.Option("--sandbox", metavar="", help="Start the sandbox provider, and count there.")] = False,
    sandbox_env: Annotated[
        str, typer.Option("--sandbox-env", metavar="NAME", help="The variable that tells the app where it is.")
    ] = "PROVIDER",
    really: Annotated[
        bool,
        typer.Option("--really", metavar="", help="Without --sandbox: every run really calls your effects; you want that."),
    ] = False,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="A throw-away database; postgres: one is started; default: SQLite files.",
                     show_default=False),
    ] = None,
    only: Annotated[
        str, typer.Option("--only", metavar="TEXT", help="Only injection points that hold this.", show_default=False)
    ] = "",
    jobs: Annotated[int, typer.Option("--jobs", min=1, metavar="N", help="Runs at a time.")] = 4,
    lease: Annotated[float, typer.Option("--lease", min=1, metavar="S", help="A session's TTL in these runs.")] = 2.0,
    settle: Annotated[
        float | None,
        typer.Option("--settle", min=0, metavar="S", help="Shorten Lookup's settle to this.", show_default=False),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=1, metavar="S", help="Of one wait; default: by the dry run.", show_default=False),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The task's, instead of its intent's.", show_default=False)
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Whose; default: the app's.", show_default=False)
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", metavar="", help="Keep the stores and logs, and say where.")] = False,
    harmless: Annotated[
        list[str] | None,
        typer.Option("--harmless", metavar="HOST", help="Handlers may reach it; also a program or a file. Repeatable.",
                     show_default=False),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML there.", show_default=False)
    ] = None,
    as_json: JsonOpt = False,
) -> None:  # fmt: skip
    """Kill, freeze and cut a task's workers at every boundary.

    The task runs in real processes on throw-away stores. Without --sandbox each of the runs REALLY calls its effects, under new
    keys: mails are sent, cards are charged. Exit code 1: a duplicate, a loss, something stuck, or a fault.
    """
    runner = importlib.import_module("semel.testing.crashtest.runner")
    app = reach.load_app(target)
    given, named = asks.arguments(args or [])
    counts = function_of(probe) if probe is not None else None
    if junit is not None and not junit.absolute().parent.is_dir():
        raise Misuse(f"--junit {junit}: there is no folder {junit.absolute().parent}; make it first")
    try:
        with ended_as_by_ctrl_c(), output.progress("crashtest") as progress:
            options = runner.Options(
                probe=counts, sandbox_env=sandbox_env if sandbox else "", really=really, store=store or "", jobs=jobs, only=only,
                lease=lease, settle=settle, timeout=timeout, key=key, tenant=tenant, keep=keep, harmless=harmless or (),
                progress=progress,
            )  # fmt: skip
            report: Report = runner.run(target, app, task, given, named, options)
    except KeyboardInterrupt:
        output.complain("interrupted; every process that was started has ended")
        raise typer.Exit(INTERRUPTED) from None
    if junit is not None:
        junit.write_text(report.junit(), encoding="utf-8")
    if as_json:
        output.emit(report.data())
    else:
        show(report)
    raise typer.Exit(0 if report.passed else FOUND_WRONG)


@contextlib.contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM, as a CI server sends it, leaves no more behind than Ctrl+C: no process, no folder, no database."""

    def interrupts(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: the second would end the cleaning up
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupts)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def function_of(target: str) -> Callable[..., Any]:
    """The probe that MODULE:function names. Raises `Misuse`."""
    module, colon, name = target.partition(":")
    if not colon or not module or not name:
        raise Misuse(f"--probe {target!r} names no function; write --probe MODULE:function, as in billing_probe:count")
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise Misuse(f"--probe {target}: module {module} cannot be imported: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        found = getattr(found, part, None)  # type: ignore[assignment]
    if not callable(found):
        raise Misuse(f"--probe {target}: module {module} has no function {name}; write def {name}(effect, key, arguments) -> int")
    return found


# --- showing it -----------------------------------------------------------------------------------------------------


def show(report: Report) -> None:
    """The table, what went wrong, and one line for all."""
    where = "throw-away databases" if report.store == "postgres" else "throw-away files"
    output.say(f"{report.target} {report.task}: real worker processes, on {where}; {COUNTED[report.counts]}")
    output.say()
    rows: list[list[str | Text]] = []
    of = ("", "")
    for row in report.rows:
        if (row.of, row.kind) != of:
            of = row.of, row.kind
            rows.append([Text.assemble((output.clean(row.of), "bold"), (f"  {row.kind}", "dim")), "", "", "", ""])
        tone = {"pass": "green", "not shown": "yellow"}.get(row.verdict, "bold red")
        point = f"  {row.point}" if row.of else row.point
        rows.append([point, row.expected, row.observed, row.effects, Text(row.verdict, style=tone)])
    counted = "CALLS" if report.counts == "calls" else "EFFECTS"
    output.table(("INJECTION POINT", "EXPECTED", "OBSERVED", counted, "VERDICT"), rows)
    bad = [row for row in report.rows if row.verdict not in ("pass", "not shown")]
    if bad:
        output.heading("What went wrong")
        for row in bad:
            output.indented(f"{row.name}: {row.why}", 11, first=row.verdict)
    if report.faults:
        output.heading("In your code")
        for fault in report.faults:
            output.say(f"{fault.where}  {fault.name}", "bad")
            output.indented(fault.what, 2)
            output.indented(fault.mend, 2)
    output.say()
    if any(row.person for row in report.rows):
        output.say("person: the task was blocked, its effect unknown, until a person decided; crashtest played one, truthfully.")
    if any("?" in row.expected for row in report.rows):
        output.say("person?: that may be, or not: it depends on what else was on its way to the record.")
    for note in report.notes:
        output.say(note, "wait")
    output.verdict(f"{'PASSED' if report.passed else 'FAILED'}  {report.summary()}", "good" if report.passed else "bad")

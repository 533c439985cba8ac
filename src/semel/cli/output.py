"""How the commands speak: plain lines that fit a terminal, JSON for programs, and nothing that a record could inject."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from semel.machine import words
from semel.machine.redaction import without_values
from semel.model import Json

SHORT = 8  # the last characters of an id, which tell it from the others
WIDEST = 100  # sentences longer than that are hard to read
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000

# columns of what users name or a sentence says: wrapped; ids stay whole
GIVES_WAY = ("TENANT", "KIND", "KEY", "FOUND", "INJECTION POINT", "EXPECTED", "OBSERVED")
TONES = {"good": "bold green", "bad": "bold red", "wait": "bold yellow", "": "bold"}
_TONE_OF = {
    "acknowledged": "green", "succeeded": "green", "confirmed": "green", "dead_lettered": "red", "failed": "red",
    "blocked": "yellow", "unknown": "yellow", "ambiguous": "yellow", "leased": "cyan", "running": "cyan", "submitted": "cyan",
}  # fmt: skip

count = words.count


def console() -> Console:
    """Standard output as it is now: as wide as $COLUMNS or the terminal (80 in a pipe), without colour in a pipe."""
    return Console(highlight=False, markup=False, emoji=False)


def clean(text: str) -> str:
    """One line, and nothing in it that a terminal would obey: what a journal holds was written by others."""
    return "".join(c if c.isprintable() else " " if c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def one_line(value: Json, most: int) -> str:
    """A recorded value as JSON on one line of at most `most` characters."""
    return clipped(json.dumps(without_values(value), ensure_ascii=False), most)


def clipped(text: str, most: int) -> str:
    """At most `most` characters, cleaned."""
    text = clean(text)
    return text if len(text) <= most else text[: max(1, most - 1)] + "…"


def short(id: str) -> str:
    """The end of an id or a key: every command takes it instead of the whole."""
    return id[-SHORT:]


def duration(ms: int) -> str:
    """A length of time in words: 38 ms, 1.2 s, 3 min 12 s, 2 h 5 min, 3 d 4 h."""
    ms = max(0, ms)
    if ms < _SECOND:
        return f"{ms} ms"
    if ms < _MINUTE:
        return f"{ms / _SECOND:.1f}".removesuffix(".0") + " s"
    if ms < _HOUR:
        return _parts(ms, _MINUTE, "min", _SECOND, "s")
    if ms < _DAY:
        return _parts(ms, _HOUR, "h", _MINUTE, "min")
    return _parts(ms, _DAY, "d", _HOUR, "h")


def _parts(ms: int, unit: int, name: str, part: int, part_name: str) -> str:
    rest = ms % unit // part
    return f"{ms // unit} {name}" + (f" {rest} {part_name}" if rest else "")


def elapsed(ms: int) -> str:
    """A length of time in at most seven characters: +38 ms, +1.21 s, +3m12s, +2h05m, +3d04h."""
    ms = max(0, ms)
    if ms < _SECOND:
        return f"+{ms} ms"
    if ms < _MINUTE:
        return f"+{ms / _SECOND:.2f}"[:5] + " s"
    if ms < _HOUR:
        return f"+{ms // _MINUTE}m{ms % _MINUTE // _SECOND:02}s"
    if ms < _DAY:
        return f"+{ms // _HOUR}h{ms % _HOUR // _MINUTE:02}m"
    return f"+{ms // _DAY}d{ms % _DAY // _HOUR:02}h"


def local(ms: int) -> datetime:
    """A recorded time (milliseconds since the Unix epoch) on this machine's clock."""
    return datetime.fromtimestamp(ms / 1000).astimezone()


def clock(ms: int) -> str:
    """The time of day, local, with milliseconds."""
    return local(ms).strftime("%H:%M:%S.") + f"{ms % 1000:03}"


def moment(ms: int, now: int) -> str:
    """A time of day, with its date unless that is today."""
    then = local(ms)
    return then.strftime("%H:%M:%S" if then.date() == local(now).date() else "%Y-%m-%d %H:%M:%S")


def zone(ms: int) -> str:
    """The offset of local times, as UTC+01:00."""
    raw = local(ms).strftime("%z")
    return f"UTC{raw[:3]}:{raw[3:5]}"


def state(name: str) -> Text:
    """A state, in its colour."""
    return Text(name, style=_TONE_OF.get(name, ""))


def say(text: str = "", tone: str | None = None) -> None:
    """A sentence, wrapped."""
    _wrapped(Text(clean(text), style=TONES[tone] if tone is not None else ""))


def _wrapped(text: Text) -> None:
    out = console()
    for line in text.wrap(out, min(out.width, WIDEST)) or [Text()]:
        line.rstrip()
        out.print(line, no_wrap=True, overflow="ignore", crop=False)


def verdict(text: str, tone: str) -> None:
    """The first line: its first word (or words, up to two spaces) in colour."""
    head, gap, rest = clean(text).partition("  ")
    _wrapped(Text.assemble((head, TONES[tone]), gap, rest))


def height() -> int:
    """How many lines a person sees at once; 0 where nobody looks at a terminal."""
    out = console()
    return out.height if out.is_terminal else 0


def heading(text: str) -> None:
    """A part's name."""
    out = console()
    out.print()
    out.print(Text(text, style="bold"))


def indented(text: str, by: int, *, style: str = "", first: str = "") -> None:
    """A sentence at column `by`, its further lines too; `first`: what stands before it on the first line."""
    out = console()
    width = max(20, min(out.width, WIDEST) - by)
    lines = Text(clean(text), style=style).wrap(out, width)
    for n, line in enumerate(lines):
        line.rstrip()
        before = first.ljust(by) if n == 0 else " " * by
        out.print(Text.assemble((before, "dim"), line), no_wrap=True, overflow="ignore", crop=False)


def room(by: int) -> int:
    """How many characters are left on a line after column `by`."""
    return max(20, min(console().width, WIDEST) - by)


def fields(pairs: Iterable[tuple[str, str]], by: int = 12) -> None:
    """Names and values, a line each (or more)."""
    for name, value in pairs:
        indented(value, by, first=name)


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Sequence[str] = ()) -> None:
    """A table that fits: what is too long is wrapped in its cell, never cut."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for name in columns:
        whole = name not in GIVES_WAY
        made.add_column(name, justify="right" if name in right else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row))
    console().print(made)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error for whoever waits at a terminal; gone when it is over."""
    err = Console(stderr=True, highlight=False, markup=False, emoji=False)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def emit(data: Json) -> None:
    """JSON on standard output, indented, in ASCII where a terminal could be harmed."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=True) + "\n")


def complain(message: Any) -> None:
    """An error: one message on standard error, whole words to a line where a person reads it."""
    lines = [clean(line) for line in f"semel: {message}".splitlines()]
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        lines = [textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False) for line in lines]
    sys.stderr.write("\n".join(lines) + "\n")

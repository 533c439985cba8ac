"""What different commands have in common is typed, and explained, in one way."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

import click
import pytest
import typer

import semel
from semel.cli import main as cli
from semel.cli import typed

GROUP = typer.main.get_command(cli.cli)
assert isinstance(GROUP, click.Group) or hasattr(GROUP, "commands")
COMMANDS: dict[str, click.Command] = {
    name: command
    for group, found in GROUP.commands.items()
    if not found.hidden
    for name, command in ({f"{group} {sub}": c for sub, c in getattr(found, "commands", {}).items()} or {group: found}).items()
}
# One word, and another meaning: each says its own.
OTHERS = {"--dead", "--export", "--key", "--kind", "--queue", "--seconds", "--since", "--until", "--store", "--tenant", "--to"}


def test_an_option_means_the_same_everywhere() -> None:
    said: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for command in COMMANDS.values():
        for param in command.params:
            if isinstance(param, click.Option) or param.param_type_name == "option":
                said[param.opts[0]].add((str(param.metavar), str(getattr(param, "help", ""))))
    assert {name for name, ways in said.items() if len(ways) > 1} <= OTHERS
    assert {name for name, ways in said.items() if len({metavar for metavar, _ in ways}) > 1} <= {"--key", "--to"}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_is_explained_on_one_line(name: str) -> None:
    """Of 80 columns, the list of commands leaves so many for it."""
    line = str(COMMANDS[name].help).split("\n\n")[0]
    assert len(line) < 60 and line.endswith(".") and "\n" not in line


@pytest.mark.parametrize(("text", "length"), [("90s", 90), ("30m", 1800), ("2h", 7200), (" 7d ", 604_800)])
def test_a_length_of_time(text: str, length: int) -> None:
    assert typed.length_of("--expires", text) == timedelta(seconds=length)


@pytest.mark.parametrize("text", ["", "0", "0s", "-5d", "soon", "5", "9999999d", "1.5h"])
def test_no_length_of_time(text: str) -> None:
    with pytest.raises(semel.Misuse, match=r"^--expires .* is no length of time; write 90s, 30m, 2h or 7d$"):
        typed.length_of("--expires", text)


def test_no_time_at_all_where_that_has_a_meaning() -> None:
    assert [typed.length_of("--older-than", text, zero=True) for text in ("0", "0s")] == [timedelta(0)] * 2


def test_a_moment() -> None:
    ago = datetime.now().astimezone() - typed.moment_of("--since", "2h")  # type: ignore[operator]
    assert abs(ago - timedelta(hours=2)) < timedelta(minutes=1)
    assert typed.ms_of("--since", "1970-01-01T01:00:01+01:00") == 1000
    local = typed.moment_of("--since", "2026-01-31")
    assert local is not None and local.tzinfo is not None and local.replace(tzinfo=None) == datetime(2026, 1, 31)


@pytest.mark.parametrize("text", ["", "nonsense", "5x", "2026-99-99", "999999d", "0001-01-01T00:00+23:00"])
def test_no_moment(text: str) -> None:
    with pytest.raises(semel.Misuse, match=r"^--since .* is no time; write 2h or 7d \(ago\), or 2026-01-31T03:00\+01:00$"):
        typed.moment_of("--since", text)

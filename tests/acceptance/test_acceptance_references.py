"""The reference pages against the code: commands, refusals, messages, settings, states, the version."""

from __future__ import annotations

import ast
import re
import tomllib

import click
import pytest
import typer
from acceptance_messages import SOURCE, covered_files, templates
from acceptance_pages import DOCS, ROOT, blocks
from acceptance_reachable import arrows

import semel
from semel.cli import main as cli
from semel.machine import tasks as machine
from semel.model import READABLE, Code, Delivery, EffectState, Execution

CLI, ERRORS, STATES = DOCS / "reference" / "cli.md", DOCS / "reference" / "errors.md", DOCS / "explanation" / "states.md"


def section(page: str, heading: str) -> str:
    """The text under one heading, up to the next of its level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert found, f"there is no '## {heading}'"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The rows of the tables of a text, without their headings."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rules = [n for n, row in enumerate(cells) if set(row[0]) <= {"-"}]
    return [row for n, row in enumerate(cells) if n not in rules and n + 1 not in rules]


# --- commands ---


GROUP = typer.main.get_command(cli.cli)
assert hasattr(GROUP, "commands")
COMMANDS: dict[str, click.Command] = {
    name: command
    for group, found in GROUP.commands.items()
    if not found.hidden
    for name, command in ({f"{group} {sub}": c for sub, c in getattr(found, "commands", {}).items()} or {group: found}).items()
}


def test_every_command_has_its_section_and_no_other_does() -> None:
    headings = set(re.findall(r"^## semel (.+)$", CLI.read_text(encoding="utf-8"), re.MULTILINE))
    assert headings == set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_is_documented_as_it_is(name: str) -> None:
    text = section(CLI.read_text(encoding="utf-8"), f"semel {name}")
    params = COMMANDS[name].params
    options = {max(p.opts, key=len) for p in params if p.param_type_name == "option"} - {"--help"}
    assert {row[0].strip("`").split()[0] for row in rows(text)} == options
    usage = re.search(rf"^`semel {name}(.*)`$", text, re.MULTILINE)
    assert usage, "its usage is not there"
    for argument in (p for p in params if p.param_type_name == "argument"):
        assert str(argument.metavar or argument.name) in usage[1]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_defaults_of_a_command_are_documented(name: str) -> None:
    shown = {row[0].strip("`").split()[0]: row[2] for row in rows(section(CLI.read_text(encoding="utf-8"), f"semel {name}"))}
    for param in COMMANDS[name].params:
        if isinstance(param.default, int) and not isinstance(param.default, bool):
            assert shown[max(param.opts, key=len)] == str(param.default)


# --- refusals and messages ---


def test_every_refusal_is_documented_in_its_order() -> None:
    table = rows(section(ERRORS.read_text(encoding="utf-8"), "Refusals"))
    assert [row[0].strip("`") for row in table] == [str(code) for code in Code]
    assert {row[0].strip("`") for row in table if row[1] == "read"} == {str(code) for code in READABLE}


def test_every_error_is_documented() -> None:
    table = rows(section(ERRORS.read_text(encoding="utf-8"), "The errors"))
    public = {name: getattr(semel, name) for name in semel.__all__}
    errors = {name for name, cls in public.items() if isinstance(cls, type) and issubclass(cls, BaseException)}
    assert {row[0].strip("`") for row in table} == errors


def fragments() -> list[str]:
    """What the page says that messages say."""
    text = ERRORS.read_text(encoding="utf-8")
    parts = re.split(r"^## ", text, flags=re.MULTILINE)
    told = [row[0] for part in parts if "| it says |" in part for row in rows(part)]
    assert all(cell.startswith("`") and cell.endswith("`") for cell in told)
    return [cell.strip("`") for cell in told]


def test_every_message_is_documented() -> None:
    known = fragments()
    missing = [
        f"{file.relative_to(SOURCE)}:{line}: {text}"
        for file in covered_files()
        for text, line in templates(file).items()
        if not any(fragment in text for fragment in known)
    ]
    assert not missing


def test_no_message_is_documented_that_nothing_says() -> None:
    said = [text for file in covered_files() for text in templates(file)]
    assert [fragment for fragment in fragments() if not any(fragment in text for text in said)] == []


# --- settings ---


def test_every_environment_variable_is_documented() -> None:
    used = {
        name
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r"[\"'](SEMEL_[A-Z_]+)[\"']", file.read_text(encoding="utf-8"))
        if "DEMO" not in name
    }
    page = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")
    assert {row[0].strip("`") for row in rows(section(page, "Environment"))} == used


def test_fixed_values_are_the_real_ones() -> None:
    from semel import worker
    from semel.engine import data, identity, queue, recover
    from semel.machine import keys, recovery

    assert data.SIZE_LIMIT == 1 << 20
    assert keys.MAX_INTEGER == 2**53 - 1
    assert queue.MAX_NAME == 200
    assert worker.GRACE_SECONDS == 30
    assert recovery.PATIENCE_MS == 3_600_000
    assert recovery.margin_ms(86_400_000) == 60_000
    assert recovery.margin_ms(100_000) == 10_000
    assert recover.HOLD_SECONDS == 5
    assert identity.FRESH_SECONDS == 5
    assert machine.HOUR_MS == 3_600_000
    assert semel.app.ALONE_TTL.total_seconds() == 15
    assert semel.app.LEAST_TTL.total_seconds() == 1


# --- states ---


def diagram(heading: str) -> list[tuple[str, str, str]]:
    """The arrows of the one diagram under a heading: from, to, what brings it about."""
    text = section(STATES.read_text(encoding="utf-8"), heading)
    return re.findall(r"^    (\S+) --> (\S+?)(?:: (.+))?$", text, re.MULTILINE)


def test_diagrams_are_what_the_machine_does() -> None:
    """Every change of state that it can make is an arrow, and every arrow is one."""
    drawn = {
        (ledger, start, end)
        for ledger in ("Delivery", "Execution", "Effect")
        for start, end, _ in diagram(ledger)
        if start != "[*]" or ledger == "Effect"
    }
    assert drawn == arrows()


@pytest.mark.parametrize(("heading", "states"), [("Delivery", Delivery), ("Execution", Execution), ("Effect", EffectState)])
def test_diagrams_have_all_states_and_say_what_brings_each_change_about(heading: str, states: type[Delivery]) -> None:
    found = diagram(heading)
    assert {end for arrow in found for end in arrow[:2]} - {"[*]"} == {str(state) for state in states}
    assert all(arrow[2] for arrow in found)


def test_glossary_has_the_words_of_the_design() -> None:
    design = (DOCS / "design.md").read_text(encoding="utf-8")
    words = [row[0] for row in rows(section(design, "2. Words (use these, and no synonyms)"))]
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    wanted = {word for cell in words for word in cell.split(", ")}
    assert {word for word in wanted if f"**{word}**" not in glossary} == set()


# --- the rest ---


def test_the_changelog_has_the_version() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert declared == semel.__version__
    assert re.search(rf"^## {re.escape(declared)}\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_limits_are_in_the_designs_words() -> None:
    """Section 1's last paragraph, on the pages where people look for it."""
    design = squeezed((DOCS / "design.md").read_text(encoding="utf-8"))
    start = design.index("exactly-once *execution* does not exist")
    words = design[start : design.index("## 2. Words")].strip()
    for page in (ROOT / "README.md", DOCS / "explanation" / "limits.md"):
        text = squeezed(page.read_text(encoding="utf-8"))
        assert words[1:] in text, page.name


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_readme_table_names_every_recovery_of_this_version() -> None:
    text = section((ROOT / "README.md").read_text(encoding="utf-8"), "How strong, for which provider")
    kinds = {cls.__name__ for cls in semel.Recovery.__subclasses__()}
    assert {name for row in rows(text) for name in re.findall(r"`(\w+)\(", row[1])} == kinds


def test_stub_pages_parse() -> None:
    """Python on pages that are not run is Python all the same."""
    for page in sorted(DOCS.rglob("*.md")):
        for block in blocks(page):
            if block.language == "python" and page.name != "design.md":
                ast.parse(block.text, f"{page.name}:{block.line}")  # a piece may stand outside its function

"""The README, the tutorial and the how-tos are run as they are printed, and print what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from acceptance_pages import DOCS, ROOT, RUNNABLE, blocks, commands
from acceptance_postgres import server_for
from acceptance_shell import Shell

pytestmark = pytest.mark.timeout(300)  # a page starts many processes, and the machine may be busy
TAUGHT = [ROOT / "README.md", DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", TAUGHT, ids=name_of)
def test_every_block_is_marked(page: Path) -> None:
    """A block of Python or of commands is run, or it says that it is only shown."""
    unmarked = [block.line for block in blocks(page) if block.language in RUNNABLE and not block.mark]
    assert not unmarked, f"{name_of(page)}: the blocks of lines {unmarked} are neither run nor marked <!-- shown -->"


@pytest.mark.parametrize("page", TAUGHT, ids=name_of)
def test_page_runs_as_printed(page: Path, tmp_path: Path) -> None:
    """In a fresh folder, from the first block to the last."""
    ran = 0
    with server_for(page.read_text(encoding="utf-8")) as postgres, Shell(tmp_path, postgres) as shell:
        for block in blocks(page):
            if block.mark in ("file", "append"):
                shell.write(block.name, block.text, more=block.mark == "append")
            elif block.mark in ("run", "fails"):
                todo = commands(block)
                for number, command in enumerate(todo, 1):
                    status, printed = shell.run(command.text)
                    must_fail = block.mark == "fails" and number == len(todo)
                    where = f"{name_of(page)}, line {command.line}: $ {command.text}\nit printed:\n{printed}"
                    assert (status != 0) == must_fail, f"exit status {status}; {where}"
                    missing = first_missing([shell.here(line) for line in command.prints], printed)
                    assert missing is None, f"not printed, or not in this order: {missing!r}; {where}"
                    ran += 1
    assert ran or not any(block.mark == "file" for block in blocks(page)), "files are written, and nothing is run"


def first_missing(expected: list[str], printed: str) -> str | None:
    """The first of the expected lines that is not there, looked for one after the other.

    Words are compared, and not lines: where a sentence is wrapped depends on the width and on the ids in it.
    """
    text, at = " ".join(printed.split()), 0
    for want in expected:
        pattern = ".*?".join(re.escape(" ".join(part.split())) for part in want.split("…"))
        found = re.compile(rf"(?<!\S){pattern}(?!\S)").search(text, at)
        if found is None:
            return want
        at = found.end()
    return None


def test_the_comparison_can_fail() -> None:
    assert first_missing(["a 1", "…", "b …"], "a  1\nx\nb 22\n") is None
    assert first_missing(["a long sentence"], "a long\n   sentence") is None
    assert first_missing(["b", "a"], "a\nb\n") == "a"
    assert first_missing(["a"], "ab\n") == "a"

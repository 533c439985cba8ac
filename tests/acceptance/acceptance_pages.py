"""Reading the documentation as a program: the marked code blocks of a page, its links, its headings.

A comment just before a fenced block says what the block is:

    <!-- file: NAME -->     the whole of a file
    <!-- append: NAME -->   added to the end of that file
    <!-- run -->            commands; under each, what it prints (lines in order, "…" stands for anything)
    <!-- fails -->          the same, but the last command must fail
    <!-- shown -->          only shown, not run
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MARK = re.compile(r"<!-- (file|append|run|fails|shown)(?:: (\S+))? -->")
FENCE = re.compile(r"^```(\w*)$")
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
RUNNABLE = ("python", "console")


@dataclass(frozen=True)
class Block:
    """A fenced block. mark: what the comment before it says ("" for none); name: the file it names; line: where it starts."""

    language: str
    text: str
    mark: str
    name: str
    line: int


@dataclass(frozen=True)
class Command:
    """One command, and the lines that the page says it prints."""

    text: str
    prints: tuple[str, ...]
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    mark, name, inside, language, start = "", "", False, "", 0
    kept: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if fence and not inside:
            inside, language, start, kept = True, fence[1], number, []
        elif inside and line == "```":
            found.append(Block(language, "\n".join(kept) + "\n", mark, name, start))
            inside, mark, name = False, "", ""
        elif inside:
            kept.append(line)
        elif said := MARK.fullmatch(line.strip()):
            mark, name = said[1], said[2] or ""
        elif line.strip():
            mark, name = "", ""
    assert not inside, f"{page}: the block of line {start} has no end"
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block."""
    found: list[Command] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            found.append(Command(line[2:], (), number))
        elif line.startswith("> ") and found and not found[-1].prints:
            found[-1] = Command(f"{found[-1].text}\n{line[2:]}", (), found[-1].line)
        elif line.strip():
            assert found, f"line {number} prints before any command"
            found[-1] = Command(found[-1].text, (*found[-1].prints, line), found[-1].line)
    return found


def prose(page: Path) -> str:
    """A page without its fenced blocks and inline code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def links(page: Path) -> list[str]:
    """Where a page's links point."""
    return LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """What a link into the page may name: its headings, as GitHub spells them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower()))
        found.add(plain.replace(" ", "-"))
    return found


def written() -> list[Path]:
    """Every page that people read: those at the root and those under docs, but for the constitution."""
    return [page for page in (*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))) if page.name != "design.md"]

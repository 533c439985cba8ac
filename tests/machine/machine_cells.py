"""Tables of expected cells: text files that a person can read, and that leave no cell out.

    [command]
      state state                   in these states,
        outcome    asker asker      asked by these, the command has this outcome

An outcome: the kinds of the appended events, joined by `+`; `!name`, a refusal; a trailing `=`, answered from the record;
`.`, nothing to write. What follows a `>` is where it leaves things.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

HERE = Path(__file__).parent / "cells"
Cell = tuple[str, str, str]  # command, state, asker


def read_table(name: str) -> dict[Cell, str]:
    """Every cell of a table. Raises `ValueError` for a cell that is told twice."""
    cells: dict[Cell, str] = {}
    command, states, told = "", list[str](), True
    for line in (HERE / name).read_text().splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if not line.startswith(" "):
            command, states = line.strip("[]"), []
        elif not line.startswith("    "):
            states, told = (words if told else states + words), False
        else:
            told = True
            for cell in ((command, state, asker) for state in states for asker in words[1:]):
                if cell in cells:
                    raise ValueError(f"{name}: {cell} is told twice")
                cells[cell] = words[0]
    return cells


def write_table(cells: dict[Cell, str], head: str) -> str:
    """The text of a table: for whoever adds a state or a command, to be read line by line before it is believed."""
    out = [f"# {line}" for line in head.splitlines()]
    width = max(map(len, cells.values())) + 2
    for command in dict.fromkeys(cell[0] for cell in cells):
        out += ["", f"[{command}]"]
        alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for state in dict.fromkeys(cell[1] for cell in cells if cell[0] == command):
            answers = tuple((cell[2], outcome) for cell, outcome in cells.items() if cell[:2] == (command, state))
            alike.setdefault(answers, []).append(state)
        for answers, states in alike.items():
            out += textwrap.wrap(" ".join(states), 120, initial_indent="  ", subsequent_indent="  ")
            for outcome in dict.fromkeys(outcome for _, outcome in answers):
                askers = " ".join(asker for asker, given in answers if given == outcome)
                out.append(f"    {outcome.ljust(width)}{askers}")
    return "\n".join([*out, ""])

"""Write the tables anew from what the machine decides: `python tests/machine/write_cells.py`.

For whoever adds a state or a command. What it writes is what the machine does, not what it should do: read the difference
line by line before you believe it.
"""

from __future__ import annotations

import effect_cells
import shared_cells
import task_cells
from machine_cells import HERE, write_table

from semel.machine import effects as e
from semel.machine import tasks as t

HEAD = """Every state of {} x every command x who asks ({}.py says what each name stands for).
Read by {}.py; the form is explained in machine_cells.py."""


def main() -> None:
    """All three."""
    effects = {name: effect_cells.outcome(x, e.decide(x, command, who)) for name, x, command, who in effect_cells.cells()}
    tasks = {name: task_cells.outcome(b.task, t.decide(b.task, command, b.shared)) for name, b, command in task_cells.cells()}
    shared = {
        name: shared_cells.outcome(b.key, b.decide(shared_cells.MINE, command)) for name, b, command in shared_cells.cells()
    }
    for name, cells, head in (
        ("effects", effects, HEAD.format("an effect", "effect_cells", "test_cells_effects")),
        ("tasks", tasks, HEAD.format("a task", "task_cells", "test_cells_tasks")),
        ("shared", shared, HEAD.format("a tenant-scoped key", "shared_cells", "test_cells_tasks")
         + "\nBefore a `|`: what lands in the asking task's stream."),
    ):  # fmt: skip
        (HERE / f"{name}.txt").write_text(write_table(cells, head))


if __name__ == "__main__":
    main()

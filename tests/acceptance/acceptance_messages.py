"""The messages that the code can say, read off its source: constant text, with "…" where a value stands."""

from __future__ import annotations

import ast
from pathlib import Path

from acceptance_pages import ROOT

SOURCE = ROOT / "src" / "semel"
# What users of the library meet. The command line says these too; what it adds is about its own arguments.
COVERED = ("app.py", "verbs.py", "views_of.py", "decorated.py", "direct.py", "model.py", "worker.py", "engine/*.py",
           "machine/*.py", "store/places.py", "store/pgschema.py", "store/pglink.py", "store/postgres.py",
           "store/pgborrowed.py", "store/pgatomic.py", "store/witness.py",
           "store/sqlitefile.py", "store/guardfile.py", "store/sqlite.py", "store/writer.py", "store/forks.py")  # fmt: skip
ERRORS = ("Misuse", "StoreUnavailable", "NotYet")


def covered_files() -> list[Path]:
    """The files whose messages must be documented."""
    return sorted({file for pattern in COVERED for file in SOURCE.glob(pattern)})


def templates(file: Path) -> dict[str, int]:
    """By message: the line on which it is raised. Messages that are another error's own words are left out."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS and node.args:
            for text in texts(node.args[0]):
                if len(text.replace("…", "").strip()) > len("…: "):
                    found[text] = node.lineno
    return found


def texts(node: ast.expr) -> list[str]:
    """A string expression as text; both sides of a conditional."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return ["".join(v.value if isinstance(v, ast.Constant) else "…" for v in node.values)]
    if isinstance(node, ast.IfExp):
        return [*texts(node.body), *texts(node.orelse)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [left + right for left in texts(node.left) or ["…"] for right in texts(node.right) or ["…"]]
    return []

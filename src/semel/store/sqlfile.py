"""SQL lives in files: statements under `-- name: x` lines."""

from __future__ import annotations

from importlib.resources import files


def statements(file: str) -> dict[str, str]:
    """The named statements of one file in `semel/store/sql`."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text(file).splitlines():
        if line.startswith("-- name:"):
            lines = found.setdefault(line.removeprefix("-- name:").strip(), [])
        elif not line.startswith("--"):
            lines.append(line)
    return {name: "\n".join(body).strip().rstrip(";") for name, body in found.items()}


def text(file: str) -> str:
    """One file of `semel/store/sql`."""
    return files("semel.store").joinpath("sql", file).read_text(encoding="utf-8")

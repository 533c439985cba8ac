"""An app that works on its store while it is imported: a crash test must not touch that store."""

from __future__ import annotations

import semel

app = semel.App("sqlite:///own.db")


@app.task(intent=("name",))
def fails(name: str) -> str:
    raise AssertionError("nobody runs this")


fails.enqueue("ann")

"""An app whose effect writes in the ledger's own database, and a probe that looks there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

import semel

app = semel.App("postgresql://nobody@nowhere.example/none")


@app.effect(intent=("name",), recovery=semel.Atomic())
def pay(submission: semel.Submission, name: str) -> str:
    submission.connection.execute("INSERT INTO paid (key, name) VALUES (%s, %s)", (submission.key, name))
    return name


@app.task(intent=("name",))
def settle(name: str) -> str:
    return pay(name)


def count(effect: str, key: str, arguments: Mapping[str, Any], store: str) -> int:
    """In the database of the run."""
    with psycopg.connect(store) as found:
        row = found.execute("SELECT count(*) FROM paid WHERE key = %s", (key,)).fetchone()
    assert row is not None
    return int(row[0])

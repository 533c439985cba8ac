"""A sound app whose resource is a folder: what it puts there bears its key, or goes into a list. With its probes."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import semel

SHELF = Path(os.environ.get("SHELF", "."))
app = semel.App("sqlite:///own.db")


def there(submission: semel.Submission) -> semel.Verdict:
    return semel.Confirmed(submission.key) if (SHELF / submission.key).exists() else semel.NotFound()


@app.effect(intent=("name",), recovery=semel.Resend(within=None))
def place(submission: semel.Submission, name: str) -> str:
    """Create only, under the key."""
    try:
        with (SHELF / submission.key).open("x") as file:
            file.write(name)
    except FileExistsError:
        raise semel.AlreadyDone(submission.key) from None
    return submission.key


@app.effect(intent=("name",), recovery=semel.Lookup(there, settle=timedelta(seconds=0.3)), scope="tenant")
async def label(submission: semel.Submission, name: str) -> str:
    """Of the whole tenant. Each call adds a byte."""
    with (SHELF / submission.key).open("a") as file:
        file.write("x")
    return submission.key


@app.effect(intent=("name",), recovery=semel.Ask(settle=timedelta(seconds=0.2)))
def enlist(submission: semel.Submission, name: str) -> None:
    """The list knows no keys."""
    with (SHELF / "list").open("a") as file:
        file.write(f"{name}\n")


@app.task()
async def stock(name: str, *, labelled: bool = False) -> str:
    found = await asyncio.to_thread(place, name) if not labelled else await label(name)
    return str(found)


@app.task(intent=("name",))
async def restock(name: str) -> None:
    """Another label in each attempt."""
    await label(f"{name} {uuid.uuid4()}")


@app.effect(intent=("name",), recovery=semel.Resend(within=None), approve=True)
def place_approved(submission: semel.Submission, name: str) -> str:
    """Two people must approve it."""
    (SHELF / submission.key).write_text("x")
    return submission.key


app.approvers["place_approved"] = 2


@app.task(intent=("name",))
def asks(name: str) -> str:
    return place_approved(name)


@app.task(intent=("name",))
def announce(name: str) -> None:
    enlist(name)


@app.task(intent=("name",))
def jots(name: str) -> None:
    """Outside any effect, and harmless: it says the same each time."""
    (SHELF / "last").write_text(name)


def count(effect: str, key: str, arguments: Mapping[str, Any]) -> int:
    """By key: a byte each time a label is put there, one of what can only be created."""
    file = SHELF / key
    if not file.exists():
        return 0
    return len(file.read_text()) if effect == "label" else 1


async def count_names(effect: str, key: str, arguments: Mapping[str, Any], store: str) -> int:
    """Not by key: as often as the name is listed, by whichever run."""
    assert store.startswith("sqlite:///")
    lines = (SHELF / "list").read_text().splitlines() if (SHELF / "list").exists() else []
    return lines.count(arguments["name"])


def broken(effect: str, key: str, arguments: Mapping[str, Any]) -> int:
    """A probe that does not work."""
    raise LookupError("no such shelf")


def vague(effect: str, key: str, arguments: Mapping[str, Any]) -> str:
    """A probe that does not count."""
    return "some"

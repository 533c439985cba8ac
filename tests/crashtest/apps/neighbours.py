"""An app whose task enqueues that of another, which has a store of its own; and a third, which takes what it is given."""

from __future__ import annotations

import semel

app = semel.App("sqlite:///own.db")
other = semel.App("sqlite:///users_other.db")
same = semel.App()


@other.task(intent=("name",))
def elsewhere(name: str) -> None:
    raise AssertionError("nobody runs this")


@app.task(intent=("name",))
def work(name: str) -> None:
    elsewhere.enqueue(name)


@same.effect(intent=("name",), recovery=semel.Ask())
def note(submission: semel.Submission, name: str) -> None:
    """Of the third app."""


@app.task(intent=("name",))
def asks(name: str) -> int:
    return len(same.tasks.list())

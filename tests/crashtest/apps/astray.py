"""An app whose second effect goes past the sandbox provider, to a file."""

from __future__ import annotations

import os
from pathlib import Path

import semel
from semel.testing.provider import post

app = semel.App()


@app.effect(intent=("name",), recovery=semel.Resend(within=None))
def charge(submission: semel.Submission, name: str) -> str:
    return str(post(f"{os.environ['PROVIDER']}/keyed/charge", {"name": name}, key=submission.key)["id"])


@app.effect(intent=("name",), recovery=semel.Ask())
def enlist(submission: semel.Submission, name: str) -> None:
    with (Path(os.environ["SHELF"]) / "list").open("a") as file:
        file.write(f"{name}\n")


@app.task(intent=("name",))
def work(name: str) -> None:
    charge(name)
    enlist(name)

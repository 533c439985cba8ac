"""An app for the harness's tests: one effect and one task for each recovery, in both colours."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import semel

FILE = Path(tempfile.gettempdir()) / "semel-harness-shop-must-never-exist.db"
SETTLE = timedelta(seconds=30)
DAY = timedelta(hours=24)
app = semel.App(f"sqlite:///{FILE}")
asked: list[str] = []  # keys that the declared lookup was asked for


def find(submission: semel.Submission, order: str) -> semel.Verdict:
    asked.append(submission.key)
    return semel.NotFound()


async def afind(submission: semel.Submission, order: str) -> semel.Verdict:
    return find(submission, order)


def recoveries(colour: str) -> dict[str, semel.Recovery]:
    return {
        "resend": semel.Resend(within=DAY),
        "write": semel.Resend(within=None),
        "lookup": semel.Lookup(afind if colour == "async" else find, settle=SETTLE),
        "ask": semel.Ask(),
        "repeat": semel.Repeat(),
    }


def make(colour: str, name: str, recovery: semel.Recovery) -> tuple[Any, Any]:
    """An effect that gives its cents back, and a task that performs it once."""
    effect, task = app.effect(intent=("order",), recovery=recovery, name=f"{name}_{colour}"), app.task(
        intent=("order",), name=f"buy_{name}_{colour}"
    )  # fmt: skip
    if colour == "async":

        @effect
        async def charge_async(submission: semel.Submission, order: str, cents: int) -> int:
            await asyncio.sleep(0)
            return cents

        @task
        async def buy_async(order: str) -> int:
            return await charge_async(order, 42)

        return charge_async, buy_async

    @effect
    def charge(submission: semel.Submission, order: str, cents: int) -> int:
        return cents

    @task
    def buy(order: str) -> int:
        return charge(order, 42)

    return charge, buy


COLOURS = ("sync", "async")
SHOP = {(colour, name): make(colour, name, recovery) for colour in COLOURS for name, recovery in recoveries(colour).items()}
charge, buy = SHOP["sync", "resend"]


@app.effect(intent=("order", "item"), recovery=semel.Resend(within=DAY))
async def ship(submission: semel.Submission, order: str, item: str) -> str:
    await asyncio.sleep(0.01)
    return f"{order}/{item}"


@app.task(intent=("order",))
async def ship_both(order: str) -> list[str]:
    return list(await asyncio.gather(ship(order, "a"), ship(order, "b")))


swallowed: list[str] = []


@app.task(intent=("order",))
def stubborn(order: str) -> int:
    """Catches what nobody should catch, and goes on."""
    try:
        return int(charge(order, 1))
    except BaseException as error:
        swallowed.append(type(error).__name__)
    return int(charge(f"{order}-again", 2))


@app.effect(intent=("order",))
def refused(submission: semel.Submission, order: str) -> str:
    raise semel.NotDone("the card was declined", retry=False)


@app.task(intent=("order",))
def fails(order: str) -> str:
    raise ValueError("no luck")

"""Names of any script and length; a task that takes too long; and one whose store cannot take what it must hide."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import semel

app = semel.App("sqlite:///own.db")
hiding = semel.App()


@app.effect(
    intent=("name",),
    recovery=semel.Ask(settle=timedelta(seconds=0.2)),
    name="請求書を月末に取引先へ電子メールで送信してから台帳に記録する",
)
def send(submission: semel.Submission, name: str) -> None:
    """Of a name whose file would be too long."""


@hiding.effect(intent=("name",), recovery=semel.Ask(), redact=("card",))
def charge(submission: semel.Submission, name: str, card: str) -> None:
    """Needs a key."""


@app.task(intent=("name",))
def bill(name: str) -> None:
    send(name)


@app.task(intent=("name",))
def lingers(name: str) -> None:
    """It would take a minute, and one of its threads has told what is wrong."""
    telling = threading.Thread(target=ask_the_shop)
    telling.start()
    time.sleep(60)


def ask_the_shop() -> None:
    raise ConnectionError("no such shop")


@hiding.task(intent=("name",))
def pays(name: str) -> None:
    charge(name, "4242")

"""A small office: the app that the command line's tests run. What it does to the world is lines in the file $CLERK_WORLD."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import semel

app = semel.App(lease=timedelta(seconds=float(os.environ.get("CLERK_LEASE", "15"))))
NOW = timedelta(0)


class Reset(Exception):
    """A connection that was cut: it proves nothing."""


def world() -> Path:
    return Path(os.environ["CLERK_WORLD"])


def act(what: str, submission: semel.Submission, invoice: str) -> str:
    with world().open("a", encoding="utf-8") as file:
        file.write(f"{what} {invoice} {submission.key} {submission.token}\n")
    return f"{what}_{invoice}"


def found(submission: semel.Submission) -> list[str]:
    lines = world().read_text(encoding="utf-8").splitlines() if world().exists() else []
    return [line for line in lines if submission.key in line]


@app.step()
def draft(invoice: str) -> str:
    return f"Dear customer, please pay {invoice}."


@app.effect(intent=("invoice",), material=("cents",), recovery=semel.Resend(within=timedelta(hours=24)))
def charge(submission: semel.Submission, invoice: str, cents: int) -> dict[str, Any]:
    return {"id": act("charge", submission, invoice), "cents": cents}


@app.effect(intent=("invoice",), recovery=semel.Ask(settle=NOW))
def post(submission: semel.Submission, invoice: str, text: str) -> str:
    """Its connection is cut after it acted, for invoices that say so."""
    done = act("post", submission, invoice)
    if "cut" in invoice:
        raise Reset("connection reset by peer")
    return done


def find_mail(submission: semel.Submission, invoice: str) -> semel.Verdict:
    return semel.Confirmed(f"mail_{invoice}") if found(submission) else semel.NotFound()


@app.effect(intent=("invoice",), recovery=semel.Lookup(find_mail, settle=NOW))
def mail(submission: semel.Submission, invoice: str, text: str) -> str:
    done = act("mail", submission, invoice)
    if "cut" in invoice:
        raise Reset("connection reset by peer")
    return done


@app.effect(intent=("customer",), scope="tenant")
def open_account(submission: semel.Submission, customer: str) -> str:
    return act("account", submission, customer)


@app.effect(intent=("invoice",))
def sign(submission: semel.Submission, invoice: str) -> str:
    raise semel.NotDone("the customer has no signature", retry=False)


@app.task(intent=("invoice",), queue="billing")
def bill(invoice: str, cents: int = 1200) -> dict[str, str]:
    text = draft(invoice)
    open_account("acme")
    charge(invoice, cents)
    return {"mail": mail(invoice, text), "post": post(invoice, text)}


@app.task(intent=("invoice",), retry=semel.Retry(max_attempts=2, backoff=NOW))
def spoil(invoice: str) -> str:
    charge(invoice, 5)
    raise ValueError("the printer is on fire")


@app.task(intent=("invoice",), retry=semel.Retry(max_attempts=2, backoff=NOW))
def reword(invoice: str) -> str:
    """The model's words change on the retry."""
    done = mail(invoice, f"attempt {semel.current().attempt}")
    if semel.current().attempt == 1:
        raise ValueError("the model hung up")
    return done


@app.task(intent=("invoice",))
def repeat(invoice: str) -> str:
    """Two wordings in one attempt, and a limit."""
    mail(invoice, "first")
    try:
        mail(invoice, "second")
    except semel.Refused as refused:
        return refused.code
    return "not refused"


@app.task(intent=("invoice",), retry=semel.Retry(max_attempts=1))
def signed(invoice: str) -> str:
    return sign(invoice)


@app.task(intent=("seconds",), queue="slow")
def dawdle(seconds: int) -> None:
    time.sleep(seconds)


@app.task(intent=("name",), queue="slow")
def linger(name: str) -> None:
    """It runs until the test lets it end."""
    while not world().with_name("free").exists():
        time.sleep(0.02)


@app.effect(intent=("invoice",), timeout=timedelta(seconds=60))
def ponder(submission: semel.Submission, invoice: str) -> str:
    """Acts, and then does not come back until the world says so."""
    done = act("ponder", submission, invoice)
    while "released" not in world().read_text(encoding="utf-8"):
        time.sleep(0.01)
    return done


@app.effect(intent=("invoice",), recovery=semel.Ask(settle=NOW), timeout=timedelta(seconds=60))
def script(submission: semel.Submission, invoice: str) -> str:
    """Starts a child, which nothing can fence, and does not come back."""
    subprocess.run(["true"], check=True)
    done = act("script", submission, invoice)
    while "released" not in world().read_text(encoding="utf-8"):
        time.sleep(0.01)
    return done


@app.task(intent=("invoice",), queue="slow")
def run_script(invoice: str) -> str:
    return script(invoice)


@app.task(intent=("invoice",), queue="slow")
def think(invoice: str) -> str:
    return ponder(invoice)


@app.task(intent=("number",))
def count(number: int, step: str = "one") -> str:
    return f"{number} {step}"


@app.effect(intent=("invoice",), approve=True, name="wire")
def wire(submission: semel.Submission, invoice: str, cents: int, note: str = "due") -> str:
    return act(f"wire_{cents}_{note}", submission, invoice)


@app.effect(intent=("invoice",), approve=True, name="close")
def close_books(submission: semel.Submission, invoice: str) -> str:
    return act("close", submission, invoice)


app.approvers["close"] = 2


@app.task(intent=("invoice",), queue="billing")
def remit(invoice: str, cents: int = 1200) -> str:
    try:
        return wire(invoice, cents) if cents else close_books(invoice)
    except semel.Refused as refused:
        return str(refused)

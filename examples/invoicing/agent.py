"""An invoicing agent: for each invoice draft a mail, charge the card, send the mail, tell the team.

The three effects show the three kinds of provider: one that remembers keys, one that can be asked, one that can do neither.
Run it against the sandbox provider: `semel demo`, or

    python -m semel.testing.provider --record provider.db --port 8025
    PROVIDER=http://127.0.0.1:8025 semel worker agent:app
"""

from __future__ import annotations

import asyncio
import csv
import os
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

import semel
from semel.testing.provider import get, post

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:8025")
INVOICES = Path(__file__).with_name("invoices.csv")

app = semel.App(lease=timedelta(seconds=float(os.environ.get("SEMEL_DEMO_LEASE", "15"))))


class Invoice(BaseModel):
    """One row of the CSV."""

    invoice_id: str
    customer: str
    email: str
    cents: int
    due: str
    items: str


class Draft(BaseModel):
    """What the model wrote."""

    subject: str
    body: str


@app.step()
async def draft(invoice: Invoice) -> Draft:
    """Write the mail. A model would: slowly, and never twice in the same words."""
    await asyncio.sleep(random.uniform(0.8, 2.0))
    opening = random.choice(["Dear", "Hello", "Good morning,"])
    subject = f"Invoice {invoice.invoice_id} for {invoice.items}"
    return Draft(subject=subject, body=f"{opening} {invoice.customer}, {invoice.cents / 100:.2f} USD are due on {invoice.due}.")


@app.step()
async def proofread(written: Draft) -> Draft:
    """Read the draft once more."""
    await asyncio.sleep(random.uniform(0.4, 1.0))
    return written.model_copy(update={"body": written.body.strip()})


@app.effect(
    intent=("invoice_id",),
    material=("cents",),
    recovery=semel.Resend(within=timedelta(hours=24)),
    not_done=(ConnectionRefusedError,),
    timeout=timedelta(seconds=5),
)
async def charge(submission: semel.Submission, invoice_id: str, cents: int) -> str:
    """Charge the card on file. The provider remembers our key for a day: what is unknown is simply sent again."""
    body = {"invoice_id": invoice_id, "cents": cents}
    answer = await asyncio.to_thread(
        post, f"{PROVIDER}/keyed/charge", body, key=submission.key, token=submission.token, timeout=submission.seconds_left
    )
    return str(answer["id"])


async def find_mail(submission: semel.Submission, invoice_id: str) -> semel.Verdict:
    """The mail bears our key as its Message-ID, so the mailbox can be asked for it."""
    found = await asyncio.to_thread(get, f"{PROVIDER}/looked/mail?marker={submission.key}", timeout=submission.seconds_left)
    return semel.Confirmed(str(found[0]["id"])) if found else semel.NotFound()


@app.effect(
    intent=("invoice_id",),
    recovery=semel.Lookup(find_mail, settle=timedelta(seconds=1)),
    not_done=(ConnectionRefusedError,),
    timeout=timedelta(seconds=5),
)
async def send_mail(submission: semel.Submission, invoice_id: str, to: str, subject: str, body: str) -> str:
    """Send the mail. The server does not know our keys, but it can be asked what it has sent."""
    mail = {"marker": submission.key, "invoice_id": invoice_id, "to": to, "subject": subject, "body": body}
    answer = await asyncio.to_thread(
        post, f"{PROVIDER}/looked/mail", mail, token=submission.token, timeout=submission.seconds_left
    )
    return str(answer["id"])


@app.effect(intent=("invoice_id",), not_done=(ConnectionRefusedError,), timeout=timedelta(seconds=5))
async def tell_team(submission: semel.Submission, invoice_id: str, text: str) -> None:
    """Post to the team's channel, which can neither remember nor be asked: an unknown outcome waits for a person."""
    note = {"invoice_id": invoice_id, "text": text}
    await asyncio.to_thread(post, f"{PROVIDER}/opaque/post", note, token=submission.token, timeout=submission.seconds_left)


@app.task(
    intent=("invoice_id",), queue="billing", retry=semel.Retry(max_attempts=20, max_crashes=50, backoff=timedelta(seconds=1))
)
async def bill(invoice_id: str) -> str:
    """Bill one invoice, from draft to the word to the team."""
    invoice = next(found for found in invoices() if found.invoice_id == invoice_id)
    mail = await proofread(await draft(invoice))
    receipt = await charge(invoice_id, invoice.cents)
    await send_mail(invoice_id, invoice.email, mail.subject, mail.body)
    await tell_team(invoice_id, f"{invoice.customer} was billed {invoice.cents / 100:.2f} USD")
    return receipt


def invoices() -> Iterator[Invoice]:
    """The invoices of the CSV."""
    with INVOICES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield Invoice.model_validate(row)

"""Every way to fake an effect that both checkers must accept."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import assert_type

import semel
from semel.testing import Died, Harness, Sent, VirtualClock
from users import Receipt, app, charge, comment, open_pr, send_invoice


def receipt(invoice_id: str, cents: int) -> Receipt:
    return Receipt(id=invoice_id, paid=Decimal(cents))


async def areceipt(invoice_id: str, cents: int) -> Receipt:
    return Receipt(id=invoice_id, paid=Decimal(cents))


async def keyed(submission: semel.Submission, invoice_id: str, cents: int) -> Receipt:
    return Receipt(id=submission.key, paid=Decimal(cents))


def mailed(submission: semel.Submission, invoice_id: str, to: str, body: str) -> str:
    return submission.key


async def amailed(invoice_id: str, to: str, body: str) -> str:
    return to


def defaults(invoice_id: str, cents: int = 0, more: str = "") -> Receipt:
    return Receipt(id=invoice_id, paid=Decimal(cents))


def uses() -> None:
    with Harness(app) as h:
        assert_type(h, Harness)
        h.fake(charge, receipt)
        h.fake(charge, areceipt)
        h.fake(charge, keyed)
        h.fake(charge, defaults)
        h.fake(charge, lambda invoice_id, cents: Receipt(id=invoice_id, paid=Decimal(cents)))
        h.fake(send_invoice, mailed, own_lookup=True)
        h.fake(send_invoice, amailed)
        h.fake(send_invoice, lambda invoice_id, to, body: "id")
        h.fake(comment.using(occurrence="again"), lambda repo, issue, purpose, text: f"{repo}{issue}")
        h.crash(charge, at="before")
        h.crash(charge, "during")
        h.run()
        h.advance(timedelta(hours=1))
        assert_type(h.sent(open_pr), list[Sent])
        assert_type(h.sent(charge)[0].token, int)
        assert_type(h.clock, VirtualClock)
        try:
            pass
        except Died:
            raise


async def auses() -> None:
    with Harness(app) as h:
        await h.arun()

"""The agent that waits: it offers, waits for a payment, naps, and ships."""

from __future__ import annotations

from datetime import timedelta

from wire import NOT_SENT, agate, asend, note

import semel

KEYED = semel.Resend(within=timedelta(hours=1))
app = semel.App(lease=timedelta(seconds=2))


@app.effect(intent=("ref",), recovery=KEYED, not_done=NOT_SENT)
async def offer(submission: semel.Submission, ref: str) -> str:
    return await asend(submission, "keyed", "offer", {"ref": ref})


@app.effect(intent=("ref",), recovery=KEYED, not_done=NOT_SENT)
async def ship(submission: semel.Submission, ref: str, paid: str) -> str:
    return await asend(submission, "keyed", "ship", {"ref": ref, "paid": paid})


@app.task(retry=semel.Retry(max_attempts=50, max_crashes=50, backoff=timedelta(seconds=0.1)))
async def sell(ref: str, nap: float) -> str:
    await offer(ref)
    await agate("wait")
    note(f"waits {ref}")
    paid = semel.wait_for("paid")
    semel.sleep(timedelta(seconds=nap))
    await ship(ref, paid)
    return str(paid)

"""Deliberately wrong: what identifies the payment is made anew in each attempt, so each attempt makes a payment of its own.

Run it in this folder: `semel crashtest changing_key:app pay order-1 --sandbox`
"""

from __future__ import annotations

import asyncio
import os
import uuid
from datetime import timedelta

import semel
from semel.testing.provider import post

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:8025")

app = semel.App()


@app.effect(intent=("payment_id",), material=("cents",), recovery=semel.Resend(within=timedelta(hours=24)))
async def transfer(submission: semel.Submission, payment_id: str, cents: int) -> str:
    """Send the money. The provider remembers our key."""
    url, body = f"{PROVIDER}/keyed/transfer", {"payment_id": payment_id, "cents": cents}
    answer = await asyncio.to_thread(post, url, body, key=submission.key, timeout=submission.seconds_left)
    return str(answer["id"])


@app.task(intent=("order_id",), retry=semel.Retry(backoff=timedelta(seconds=0.1)))
async def pay(order_id: str) -> str:
    """Pay for an order."""
    return await transfer(f"{order_id}-{uuid.uuid4()}", 4200)  # WRONG: another one in each attempt; order_id is enough

"""Deliberately wrong: the handler changes the outside world itself, so nothing remembers that it did.

Run it in this folder: `semel crashtest effect_outside:app refund order-1 --sandbox`
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import semel
from semel.testing.provider import post

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:8025")

app = semel.App()


@app.effect(intent=("order_id",), material=("cents",), recovery=semel.Resend(within=timedelta(hours=24)))
async def pay_back(submission: semel.Submission, order_id: str, cents: int) -> str:
    """Give the money back. The provider remembers our key."""
    url, body = f"{PROVIDER}/keyed/refund", {"order_id": order_id, "cents": cents}
    answer = await asyncio.to_thread(post, url, body, key=submission.key, timeout=submission.seconds_left)
    return str(answer["id"])


@app.task(intent=("order_id",), retry=semel.Retry(backoff=timedelta(seconds=0.1)))
async def refund(order_id: str) -> str:
    """Tell the team, and give the money back."""
    note = {"text": f"refunding {order_id}"}
    await asyncio.to_thread(post, f"{PROVIDER}/opaque/post", note)  # WRONG: each attempt posts it again
    return await pay_back(order_id, 500)

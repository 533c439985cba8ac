"""Deliberately wrong: declared as sent again under one key, and the key is never sent.

Run it in this folder: `semel crashtest unsent_key:app order book-1 --sandbox`
"""

from __future__ import annotations

import os
from datetime import timedelta

import semel
from semel.testing.provider import post

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:8025")

app = semel.App()


@app.effect(intent=("item",), recovery=semel.Resend(within=timedelta(hours=24)))  # WRONG: its key is sent to nobody
def buy(submission: semel.Submission, item: str) -> str:
    """Buy it. The shop would remember a key: post(..., key=submission.key)."""
    return str(post(f"{PROVIDER}/opaque/buy", {"item": item}, timeout=submission.seconds_left)["id"])


@app.task(intent=("item",), retry=semel.Retry(backoff=timedelta(seconds=0.1)))
def order(item: str) -> str:
    """Order something."""
    return buy(item)

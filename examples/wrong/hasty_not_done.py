"""Deliberately wrong: a lost reply is declared to prove that nothing happened.

Run it in this folder: `semel crashtest hasty_not_done:app order book-1 --sandbox`
"""

from __future__ import annotations

import os
from datetime import timedelta

import semel
from semel.testing.provider import post

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:8025")

app = semel.App()


@app.effect(intent=("item",))
def buy(submission: semel.Submission, item: str) -> str:
    """Buy it, from a shop that can neither remember nor be asked."""
    try:
        return str(post(f"{PROVIDER}/opaque/buy", {"item": item}, timeout=submission.seconds_left)["id"])
    except OSError as error:  # WRONG: only ConnectionRefusedError proves that nothing was sent
        raise semel.NotDone("the shop does not answer") from error


@app.task(intent=("item",), retry=semel.Retry(backoff=timedelta(seconds=0.1)))
def order(item: str) -> str:
    """Order something."""
    return buy(item)

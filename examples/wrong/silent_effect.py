"""Deliberately wrong: the effect takes silence for success.

Run it in this folder: `semel crashtest silent_effect:app order book-1 --sandbox`
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta

import semel
from semel.testing.provider import post

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:8025")

app = semel.App()
log = logging.getLogger(__name__)


@app.effect(intent=("item",), recovery=semel.Resend(within=timedelta(hours=24)))
def buy(submission: semel.Submission, item: str) -> str:
    """Buy it. The provider remembers our key."""
    try:
        answer = post(f"{PROVIDER}/keyed/buy", {"item": item}, key=submission.key, timeout=submission.seconds_left)
    except OSError:  # WRONG: what is unknown goes on record as done
        log.warning("no answer, it will be all right")
        return "bought"
    return str(answer["id"])


@app.task(intent=("item",), retry=semel.Retry(backoff=timedelta(seconds=0.1)))
def order(item: str) -> str:
    """Order something."""
    return buy(item)

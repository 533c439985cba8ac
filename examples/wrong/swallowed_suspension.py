"""Deliberately wrong: the handler catches everything, the end of its own attempt too, and works on.

Run it in this folder: `semel crashtest swallowed_suspension:app close_month 2031-05 --sandbox`
"""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import timedelta

import semel
from semel.testing.provider import post

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:8025")

app = semel.App()
log = logging.getLogger(__name__)


@app.effect(intent=("month",))
async def tell_team(submission: semel.Submission, month: str) -> None:
    """Post to the team's channel, which can neither remember nor be asked: an unknown outcome waits for a person."""
    await asyncio.to_thread(post, f"{PROVIDER}/opaque/post", {"text": f"{month} is closed"}, timeout=submission.seconds_left)


@app.effect(intent=("month",), recovery=semel.Resend(within=timedelta(hours=24)))
async def book(submission: semel.Submission, month: str) -> str:
    """Book the month. The provider remembers our key."""
    answer = await asyncio.to_thread(post, f"{PROVIDER}/keyed/book", {"month": month}, key=submission.key)
    return str(answer["id"])


@app.task(intent=("month",), retry=semel.Retry(backoff=timedelta(seconds=0.1)))
async def close_month(month: str) -> str:
    """Tell the team, and book the month."""
    try:
        await tell_team(month)
    except BaseException:  # WRONG: semel.Suspended ends here too; `except Exception:` lets it pass
        log.warning("the team could not be told")
    return await book(month)

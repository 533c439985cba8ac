"""Deliberately wrong: the lookup could not ask, and says that nothing was found.

Run it in this folder: `semel crashtest deaf_lookup:app welcome ann@shop.example --sandbox`
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import semel
from semel.testing.provider import get, post

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:8025")

app = semel.App()


async def find_mail(submission: semel.Submission, to: str) -> semel.Verdict:
    """The mail bears our key as its marker."""
    try:
        found = await asyncio.to_thread(get, f"{PROVIDER}/looked/mail?marker={submission.key}", timeout=submission.seconds_left)
    except OSError:  # WRONG: no answer is no proof; without this clause it would be asked again
        return semel.NotFound()
    return semel.Confirmed(str(found[0]["id"])) if found else semel.NotFound()


@app.effect(intent=("to",), recovery=semel.Lookup(find_mail, settle=timedelta(seconds=0.5)))
async def send_mail(submission: semel.Submission, to: str) -> str:
    """Send the mail, marked with our key."""
    mail = {"marker": submission.key, "to": to}
    return str((await asyncio.to_thread(post, f"{PROVIDER}/looked/mail", mail, timeout=submission.seconds_left))["id"])


@app.task(intent=("to",), retry=semel.Retry(backoff=timedelta(seconds=0.1)))
async def welcome(to: str) -> str:
    """Welcome a customer."""
    return await send_mail(to)

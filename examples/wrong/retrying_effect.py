"""Deliberately wrong: the effect sends again by itself, and the provider remembers nothing.

Run it in this folder: `semel crashtest retrying_effect:app remind ann@shop.example --sandbox`
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

import semel
from semel.testing.provider import get, post

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:8025")

app = semel.App()


def stubborn(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Post until it is answered."""
    for _ in range(3):
        try:
            return post(url, body)  # WRONG: a lost reply proves nothing; the second post is a second mail
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(url)


def find_mail(submission: semel.Submission) -> semel.Verdict:
    """The mail bears our key as its marker."""
    found = get(f"{PROVIDER}/looked/mail?marker={submission.key}", timeout=submission.seconds_left)
    return semel.Confirmed(str(found[0]["id"])) if found else semel.NotFound()


@app.effect(intent=("to",), recovery=semel.Lookup(find_mail, settle=timedelta(seconds=0.5)))
def send_mail(submission: semel.Submission, to: str) -> str:
    """Send the mail, marked with our key."""
    return str(stubborn(f"{PROVIDER}/looked/mail", {"marker": submission.key, "to": to})["id"])


@app.task(intent=("to",), retry=semel.Retry(backoff=timedelta(seconds=0.1)))
def remind(to: str) -> str:
    """Remind a customer."""
    return send_mail(to)

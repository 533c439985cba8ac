"""A sound app that does without the watchdog, and names its tenant with each task."""

from __future__ import annotations

import os
from datetime import timedelta

import semel
from semel.testing.provider import get, post

PROVIDER = os.environ.get("ELSEWHERE", "")
app = semel.App(tenant=None, watchdog="never")


def find(submission: semel.Submission) -> semel.Verdict:
    rows = get(f"{PROVIDER}/looked/mail?marker={submission.key}")
    return semel.Confirmed(rows[0]["id"]) if rows else semel.NotFound()


@app.effect(intent=("name",), recovery=semel.Lookup(find, settle=timedelta(seconds=0.5)))
async def mail(submission: semel.Submission, name: str) -> str:
    return str(post(f"{PROVIDER}/looked/mail", {"marker": submission.key, "name": name})["id"])


@app.task()
async def work(name: str) -> str:
    return await mail(name)

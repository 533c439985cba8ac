"""Effects side by side, and a task that enqueues another, whose effects nobody can be asked about."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import semel
from semel.testing.provider import get, post

PROVIDER = os.environ.get("PROVIDER", "")
app = semel.App()


async def find(submission: semel.Submission) -> semel.Verdict:
    rows = await asyncio.to_thread(get, f"{PROVIDER}/looked/mail?marker={submission.key}")
    return semel.Confirmed(rows[0]["id"]) if rows else semel.NotFound()


@app.effect(intent=("n",), recovery=semel.Lookup(find, settle=timedelta(seconds=0.5)))
async def mail(submission: semel.Submission, n: int) -> str:
    body = {"marker": submission.key, "n": n}
    return str((await asyncio.to_thread(post, f"{PROVIDER}/looked/mail", body))["id"])


@app.effect(intent=("n",))
def tell(submission: semel.Submission, n: int) -> str:
    return str(post(f"{PROVIDER}/opaque/tell", {"n": n})["id"])


@app.task(intent=("name",))
def child(name: str) -> None:
    tell(1)
    tell(2)


@app.task(intent=("name",))
async def work(name: str) -> None:
    await asyncio.gather(mail(1), mail(2))
    await child.aenqueue(name)

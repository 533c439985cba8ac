"""Right code of many kinds, in which nothing may be found: each line here looks a little like a fault."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import subprocess
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

import semel
from semel.testing.provider import ProviderError, get, post, put

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:8025")
ARCHIVE = Path("archive")
SOON = semel.Retry(backoff=timedelta(seconds=0.05))

app = semel.App()
log = logging.getLogger("right")
log.addHandler(logging.FileHandler("right.log", delay=True))  # opened by the first line that is logged, in a handler
client = httpx.AsyncClient(timeout=5)


@app.step()
async def rates() -> int:
    """A step that reads over HTTP, with a client that keeps its connection."""
    return len((await client.get(f"{PROVIDER}/looked/mail", params={"marker": "none"})).json())


@app.step()
def version() -> str:
    """A step that runs a program, and notes when."""
    return subprocess.run(["/bin/echo", str(datetime.now())], capture_output=True, text=True, check=True).stdout


@app.effect(intent=("order_id",), recovery=semel.Resend(within=timedelta(hours=1)))
async def pay(submission: semel.Submission, order_id: str) -> str:
    """Over the same kept connection."""
    headers = {"Idempotency-Key": submission.key}
    answer = await client.post(f"{PROVIDER}/keyed/pay", json={"order_id": order_id}, headers=headers)
    return str(answer.raise_for_status().json()["id"])


def stored(submission: semel.Submission) -> semel.Verdict:
    """Look where it would be."""
    return semel.Confirmed("stored") if (ARCHIVE / submission.key).exists() else semel.NotFound()


@app.effect(intent=("order_id",), recovery=semel.Lookup(stored, settle=timedelta(seconds=0.3)))
def store(submission: semel.Submission, order_id: str) -> str:
    """A program that writes, in an effect."""
    ARCHIVE.mkdir(exist_ok=True)
    subprocess.run(["/bin/sh", "-c", f"echo {order_id} > {ARCHIVE / submission.key}"], check=True)
    return "stored"


def publish(submission: semel.Submission, path: str) -> str:
    """Create only; and after no answer, look whether it is there, and ours."""
    url = f"{PROVIDER}/named/reports/{submission.key}"
    try:
        put(url, {"text": path, "key": submission.key}, timeout=submission.seconds_left)
    except (ProviderError, OSError):
        if get(url, timeout=submission.seconds_left).get("key") == submission.key:
            raise semel.AlreadyDone(path) from None
        raise
    return path


@app.effect(intent=("path",), recovery=semel.Resend(within=None))
async def report(submission: semel.Submission, path: str) -> str:
    """On a pool's thread."""
    return await asyncio.get_running_loop().run_in_executor(None, publish, submission, path)


@app.effect(intent=("text",), recovery=semel.Repeat())
async def remark(submission: semel.Submission, text: str) -> None:
    """A duplicate of it is a shrug."""
    await asyncio.to_thread(post, f"{PROVIDER}/opaque/remark", {"text": text}, timeout=submission.seconds_left)


@app.task(intent=("order_id",), retry=SOON)
async def handle(order_id: str) -> str:
    """Effects one after the other and beside each other, and all that a handler may do besides."""
    log.info("begun")
    Path(__file__).read_text()
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "draft").write_text(order_id)
    with contextlib.closing(sqlite3.connect("file:known.db?mode=memory", uri=True)) as known:
        known.execute("SELECT 1").fetchone()
    await client.get(f"{PROVIDER}/looked/mail", params={"marker": "none"})  # it reads, in clear
    await rates()
    version()
    try:
        semel.sleep(timedelta(milliseconds=20))
        await asyncio.gather(pay(f"{order_id}-a"), pay(f"{order_id}-b"), pay(f"{order_id}-c"))
        await report(order_id)
    except Exception:
        log.exception("it failed")
        raise
    finally:
        await remark(f"looked at {order_id}")
    return "done"


@app.task(intent=("order_id",), retry=SOON)
def keep(order_id: str) -> str:
    """A plain handler; what it catches, it raises again."""
    log.info("begun")
    try:
        found = store(order_id)
    except BaseException:
        log.info("not now")
        raise
    with contextlib.suppress(TimeoutError):
        semel.wait_for("never", timeout=timedelta(milliseconds=20))
    return found


@app.task(intent=("order_id",), retry=SOON)
async def shuffled(order_id: str) -> int:
    """The same effects in each attempt, in whatever order."""
    done: list[Any] = []
    for one in {f"{order_id}{n}" for n in range(4)}:
        done.append(await pay(one))
    return len(done)

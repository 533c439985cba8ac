"""What the agents of the crash tests share: where the provider is, gates at which a test can stop them, and a diary."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import httpx

import semel
from semel.testing.provider import ProviderError, get, post, put

PROVIDER = os.environ["CRASH_PROVIDER"]
ROOM = Path(os.environ["CRASH_ROOM"])
CLIENT_SECONDS = 20.0  # the worst client: it neither reads seconds_left nor gives up
NOT_SENT = (ConnectionRefusedError, httpx.ConnectError)


def arrives(name: str) -> bool:
    """Whether a test has armed the gate `name`, and this process is the first to come to it."""
    try:
        (ROOM / f"{name}.armed").rename(ROOM / f"{name}.at.{os.getpid()}")
    except FileNotFoundError:
        return False
    return True


def is_open(name: str) -> bool:
    return (ROOM / f"{name}.open").exists()


def gate(name: str) -> None:
    """Wait here, if a test has armed it, until the test opens it."""
    if arrives(name):
        while not is_open(name):
            time.sleep(0.005)


async def agate(name: str) -> None:
    if arrives(name):
        while not is_open(name):
            await asyncio.sleep(0.005)


def note(text: str) -> None:
    """A line in the diary; lines of several processes do not mix."""
    diary = os.open(ROOM / "diary", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(diary, f"{os.getpid()} {text}\n".encode())
    os.close(diary)


def send(submission: semel.Submission, manner: str, action: str, body: dict[str, str]) -> str:
    """One POST, with a gate on each side of it. The id of what the provider did."""
    gate(f"before.{action}.{submission.number}")
    key, token = submission.key, submission.token
    reply = post(f"{PROVIDER}/{manner}/{action}", body, key=key, token=token, timeout=CLIENT_SECONDS)
    gate(f"after.{action}.{submission.number}")
    return str(reply["id"])


async def asend(submission: semel.Submission, manner: str, action: str, body: dict[str, str]) -> str:
    """The same with an async client."""
    await agate(f"before.{action}.{submission.number}")
    headers = {"Idempotency-Key": submission.key, "Semel-Token": str(submission.token), "Semel-Pid": str(os.getpid())}
    async with httpx.AsyncClient(timeout=CLIENT_SECONDS, trust_env=False) as client:
        reply = await client.post(f"{PROVIDER}/{manner}/{action}", json=body, headers=headers)
    reply.raise_for_status()
    await agate(f"after.{action}.{submission.number}")
    return str(reply.json()["id"])


def find(submission: semel.Submission, action: str) -> semel.Verdict:
    """Ask for what bears our key as its marker."""
    rows = get(f"{PROVIDER}/looked/{action}?marker={submission.key}", timeout=CLIENT_SECONDS)
    return semel.Confirmed(rows[0]["id"]) if rows else semel.NotFound()


def create(submission: semel.Submission, action: str, body: dict[str, str]) -> str:
    """Create only, under a name that is derived from the key; what is there already must bear it."""
    gate(f"before.{action}.{submission.number}")
    url = f"{PROVIDER}/named/{action}/{submission.key}"
    try:
        put(url, body, key=submission.key, token=submission.token, timeout=CLIENT_SECONDS)
    except ProviderError as error:
        if error.status != 412 or get(url)["ref"] != body["ref"]:
            raise
        raise semel.AlreadyDone(submission.key) from None
    gate(f"after.{action}.{submission.number}")
    return submission.key

"""The same over TLS, by three clients: what is sent can be read before it is encrypted. PROVIDER is the TLS server's URL."""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.request
from datetime import timedelta
from urllib.parse import urlsplit

import anyio
import httpx

import semel

PROVIDER = os.environ.get("PROVIDER", "https://127.0.0.1:8443")
SOON = semel.Retry(backoff=timedelta(seconds=0.05))

app = semel.App()
trusting = ssl.create_default_context()
trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE  # the test's server signs for itself


def send(path: str, key: str) -> str:
    """One request, by the standard library."""
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    request = urllib.request.Request(f"{PROVIDER}{path}", b"{}", headers)
    with urllib.request.urlopen(request, context=trusting, timeout=5) as answer:
        return str(json.load(answer)["id"])


@app.effect(intent=("name",), recovery=semel.Resend(within=timedelta(hours=1)))
def insist(submission: semel.Submission, name: str) -> str:
    """Again and again."""
    for _ in range(3):
        try:
            return send("/insist", submission.key)  # WRONG: sent POST /insist in the same submission
        except OSError:
            time.sleep(0.01)
    raise TimeoutError


@app.effect(intent=("name",), recovery=semel.Resend(within=timedelta(hours=1)))
async def forget(submission: semel.Submission, name: str) -> str:  # the decorator's line is the one that is told
    """No key."""
    async with httpx.AsyncClient(verify=trusting) as client:
        return str((await client.post(f"{PROVIDER}/forget", json={})).json()["id"])


@app.task(intent=("name",), retry=SOON)
async def secure(name: str) -> None:
    """What a handler sends over TLS, and what it reads."""
    async with httpx.AsyncClient(verify=trusting) as client:
        (await client.get(f"{PROVIDER}/prices")).raise_for_status()
        await client.post(f"{PROVIDER}/notify", json={})  # WRONG: sent POST /notify to 127.0.0.1
    with httpx.Client(verify=trusting) as plain:
        plain.get(f"{PROVIDER}/prices")
        plain.post(f"{PROVIDER}/plain", json={})  # WRONG: sent POST /plain to 127.0.0.1
    where = urlsplit(PROVIDER)
    assert where.hostname and where.port
    async with await anyio.connect_tcp(where.hostname, where.port, ssl_context=trusting, tls_standard_compatible=False) as raw:
        await raw.send(b"POST /raw HTTP/1.1\r\nHost: raw\r\nContent-Length: 0\r\n\r\n")  # WRONG: sent POST /raw to raw
        await raw.receive()
    await forget(name)


@app.task(intent=("name",), retry=SOON)
def insists(name: str) -> str:
    """One."""
    return insist(name)

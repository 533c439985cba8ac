"""The storm's agent: each errand has a keyed, a looked-up and an opaque effect, in either colour.

An effect's code idles a little before it sends and after it was answered, so that a kill at any moment finds some there;
and the agent thinks before each, so that some processes freeze with no call under way, and live to be told that they are
fenced.
"""

from __future__ import annotations

import asyncio
import random
import time
from datetime import timedelta

from wire import CLIENT_SECONDS, PROVIDER, find

import semel
from semel.testing.provider import post

IDLE_SECONDS = 0.04
THINK_SECONDS = 0.1
SETTLE = timedelta(seconds=0.6)  # several times the longest that the provider acts late in the storm
RETRY = semel.Retry(max_attempts=1000, max_crashes=1000, backoff=timedelta(0))  # doubled at each crash, it would be hours
app = semel.App(lease=timedelta(seconds=1))


def find_mail(submission: semel.Submission) -> semel.Verdict:
    return find(submission, "mail")


KEYED = semel.Resend(within=timedelta(hours=1))
LOOKED = semel.Lookup(find_mail, settle=SETTLE)
OPAQUE = semel.Ask(settle=timedelta(seconds=0.2))


def send(submission: semel.Submission, manner: str, action: str, ref: str) -> str:
    """One POST, with some idling around it."""
    time.sleep(random.uniform(0, IDLE_SECONDS))
    body = {"ref": ref, "marker": submission.key}
    url = f"{PROVIDER}/{manner}/{action}"
    reply = post(url, body, key=submission.key, token=submission.token, timeout=CLIENT_SECONDS)
    time.sleep(random.uniform(0, IDLE_SECONDS))
    return str(reply["id"])


@app.effect(intent=("ref",), recovery=KEYED)
def charge(submission: semel.Submission, ref: str) -> str:
    return send(submission, "keyed", "charge", ref)


@app.effect(intent=("ref",), recovery=LOOKED)
def mail(submission: semel.Submission, ref: str) -> str:
    return send(submission, "looked", "mail", ref)


@app.effect(intent=("ref",), recovery=OPAQUE)
def publish(submission: semel.Submission, ref: str) -> str:
    return send(submission, "opaque", "publish", ref)


@app.effect(intent=("ref",), recovery=KEYED)
async def acharge(submission: semel.Submission, ref: str) -> str:
    return await asyncio.to_thread(send, submission, "keyed", "charge", ref)


@app.effect(intent=("ref",), recovery=LOOKED)
async def amail(submission: semel.Submission, ref: str) -> str:
    return await asyncio.to_thread(send, submission, "looked", "mail", ref)


@app.effect(intent=("ref",), recovery=OPAQUE)
async def apublish(submission: semel.Submission, ref: str) -> str:
    return await asyncio.to_thread(send, submission, "opaque", "publish", ref)


@app.task(intent=("ref",), retry=RETRY)
def errand(ref: str) -> list[str]:
    done = []
    for effect in (charge, mail, publish):
        time.sleep(random.uniform(0, THINK_SECONDS))
        done.append(effect(ref))
    return done


@app.task(intent=("ref",), retry=RETRY)
async def aerrand(ref: str) -> list[str]:
    done = []
    for effect in (acharge, amail, apublish):
        await asyncio.sleep(random.uniform(0, THINK_SECONDS))
        done.append(await effect(ref))
    return done

"""The agent whose worker is killed: one effect in each of the provider's manners, for sync and for async handlers."""

from __future__ import annotations

import os
from datetime import timedelta

from wire import NOT_SENT, agate, asend, create, find, gate, send

import semel

SETTLE = timedelta(seconds=float(os.environ.get("CRASH_SETTLE", "1")))
RETRY = semel.Retry(max_attempts=5, max_crashes=5, backoff=timedelta(seconds=0.1))
app = semel.App(
    lease=timedelta(seconds=float(os.environ.get("CRASH_LEASE", "2"))),
    watchdog=os.environ.get("CRASH_WATCHDOG", "worker"),  # type: ignore[arg-type]
)


def find_mail(submission: semel.Submission) -> semel.Verdict:
    return find(submission, "mail")


KEYED = semel.Resend(within=timedelta(hours=1))
NAMED = semel.Resend(within=None)
LOOKED: list[semel.Recovery] = [semel.Lookup(find_mail, settle=SETTLE), semel.Ask(settle=timedelta(seconds=0.2))]
OPAQUE = semel.Ask(settle=timedelta(seconds=0.2))


@app.effect(intent=("ref",), recovery=KEYED, not_done=NOT_SENT)
def charge(submission: semel.Submission, ref: str, text: str) -> str:
    return send(submission, "keyed", "charge", {"ref": ref, "text": text})


@app.effect(intent=("ref",), recovery=KEYED, not_done=NOT_SENT)
async def acharge(submission: semel.Submission, ref: str, text: str) -> str:
    return await asend(submission, "keyed", "charge", {"ref": ref, "text": text})


@app.effect(intent=("ref",), recovery=LOOKED, not_done=NOT_SENT)
def mail(submission: semel.Submission, ref: str, text: str) -> str:
    return send(submission, "looked", "mail", {"ref": ref, "text": text, "marker": submission.key})


@app.effect(intent=("ref",), recovery=LOOKED, not_done=NOT_SENT)
async def amail(submission: semel.Submission, ref: str, text: str) -> str:
    return await asend(submission, "looked", "mail", {"ref": ref, "text": text, "marker": submission.key})


@app.effect(intent=("ref",), recovery=OPAQUE, not_done=NOT_SENT)
def publish(submission: semel.Submission, ref: str, text: str) -> str:
    return send(submission, "opaque", "publish", {"ref": ref, "text": text})


@app.effect(intent=("ref",), recovery=OPAQUE, not_done=NOT_SENT)
async def apublish(submission: semel.Submission, ref: str, text: str) -> str:
    return await asend(submission, "opaque", "publish", {"ref": ref, "text": text})


@app.effect(intent=("ref",), recovery=NAMED, not_done=NOT_SENT)
def store(submission: semel.Submission, ref: str, text: str) -> str:
    return create(submission, "store", {"ref": ref, "text": text})


SYNC = {"charge": charge, "mail": mail, "publish": publish, "store": store}
ASYNC = {"charge": acharge, "mail": amail, "publish": apublish}


@app.task(intent=("ref",), retry=RETRY)
def sync_work(action: str, ref: str) -> str:
    done = SYNC[action](ref, "good day")
    gate("recorded")
    return done


@app.task(intent=("ref",), retry=RETRY)
async def async_work(action: str, ref: str) -> str:
    done = await ASYNC[action](ref, "good day")
    await agate("recorded")
    return done

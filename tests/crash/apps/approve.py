"""Effects that people must approve, asked for in other words on each attempt."""

from __future__ import annotations

from agent import KEYED, LOOKED, RETRY, app
from wire import NOT_SENT, agate, asend, gate, send

import semel


@app.effect(intent=("ref",), recovery=KEYED, not_done=NOT_SENT, approve=True, name="approved_charge")
def charge(submission: semel.Submission, ref: str, text: str) -> str:
    return send(submission, "keyed", "charge", {"ref": ref, "text": text})


@app.effect(intent=("ref",), recovery=LOOKED, not_done=NOT_SENT, approve=True, name="approved_mail")
async def mail(submission: semel.Submission, ref: str, text: str) -> str:
    return await asend(submission, "looked", "mail", {"ref": ref, "text": text, "marker": submission.key})


@app.effect(intent=("ref",), recovery=KEYED, not_done=NOT_SENT, approve=True, scope="tenant", name="approved_once")
def charge_once(submission: semel.Submission, ref: str, text: str) -> str:
    return send(submission, "keyed", "charge", {"ref": ref, "text": text})


def words() -> str:
    return f"as attempt {semel.current().attempt} says"


@app.task(intent=("ref",), retry=RETRY)
def charging(ref: str) -> str:
    try:
        done = charge(ref, words())
    except BaseException:
        gate("asked")  # it is on record that it was asked for, and the task does not wait yet
        raise
    gate("recorded")
    return done


@app.task(intent=("ref",), retry=RETRY)
async def mailing(ref: str) -> str:
    try:
        done = await mail(ref, words())
    except BaseException:
        await agate("asked")
        raise
    await agate("recorded")
    return done


@app.task(retry=RETRY)
def sharing(ref: str) -> str:
    try:
        return charge_once(ref, words())
    except BaseException:
        gate("asked")
        raise

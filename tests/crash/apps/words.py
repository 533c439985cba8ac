"""Handlers whose model says something else on every attempt, or twice in one."""

from __future__ import annotations

from datetime import timedelta

from agent import ASYNC, KEYED, RETRY, SYNC, app, mail
from wire import NOT_SENT, agate, gate, send

import semel

WORDS = ["good day", "good evening", "good night", "good grief", "goodbye"]


@app.effect(intent=("ref",), material=("cents",), recovery=KEYED, not_done=NOT_SENT)
def pay(submission: semel.Submission, ref: str, cents: int) -> str:
    return send(submission, "keyed", "pay", {"ref": ref, "cents": str(cents)})


@app.task(intent=("ref",), retry=RETRY)
def letter(action: str, ref: str) -> str:
    """The same intent on each attempt, in other words."""
    done = SYNC[action](ref, WORDS[semel.current().attempt - 1])
    gate("recorded")
    return done


@app.task(intent=("ref",), retry=RETRY)
async def aletter(action: str, ref: str) -> str:
    done = await ASYNC[action](ref, WORDS[semel.current().attempt - 1])
    await agate("recorded")
    return done


@app.task(intent=("ref",), retry=semel.Retry(backoff=timedelta(seconds=0.1)))
def dearer(ref: str) -> str:
    """On the second attempt the model wants to pay another sum under the same key."""
    try:
        done = pay(ref, 500 * semel.current().attempt)
    except semel.Refused as refused:
        return f"refused: {refused.code}"
    gate("recorded")
    return done


@app.task(intent=("ref",), retry=RETRY)
def two_wordings(ref: str) -> list[str]:
    """One attempt: the same thing in two wordings, then again on purpose."""
    said = [mail(ref, "good day")]
    try:
        mail(ref, "good night")
    except semel.Refused as refused:
        said += [refused.code, refused.result]
    return [*said, mail.using(occurrence="after-fix")(ref, "good night"), mail(ref, "good day")]

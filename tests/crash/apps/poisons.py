"""Tasks that can never end well, and healthy ones that stand behind them."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

from agent import app
from wire import NOT_SENT, gate, note, send

import semel

SOON = timedelta(seconds=0.1)
KEYED = semel.Resend(within=timedelta(hours=1))


@app.effect(intent=("ref",), recovery=KEYED, not_done=NOT_SENT)
def serve(submission: semel.Submission, ref: str) -> str:
    return send(submission, "keyed", "serve", {"ref": ref})


@app.effect(intent=("reason",), recovery=KEYED, not_done=NOT_SENT, per_task=1)
def refund(submission: semel.Submission, reason: str) -> str:
    return send(submission, "keyed", "refund", {"reason": reason})


@app.task(intent=("ref",), retry=semel.Retry(backoff=SOON))
def healthy(ref: str) -> str:
    return serve(ref)


@app.task(intent=("ref",), retry=semel.Retry(max_attempts=4, backoff=SOON))
def rejected(ref: str) -> str:
    """Nothing that it is given is right."""
    raise ValueError("this will never do")


@app.task(intent=("ref",), retry=semel.Retry(max_crashes=3, backoff=SOON))
def deadly(ref: str) -> str:
    """Kills the worker that runs it, each time."""
    note(f"deadly {semel.current().attempt}")
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@app.task(intent=("ref",), retry=semel.Retry(max_attempts=4, backoff=SOON))
def creative(ref: str) -> str:
    """In each attempt another variant of the same act; what refuses it, it does not hear."""
    for variant in (refund, refund.using(occurrence=f"try {semel.current().attempt}")):
        try:
            variant(f"{ref} is unhappy, for reason {semel.current().attempt}")
        except semel.Refused:
            note("refused")
    raise RuntimeError("the customer is still unhappy")


@app.task(intent=("ref",), retry=semel.Retry(backoff=SOON), limits=semel.Limits(usd="0.50"))
def obsessed(ref: str) -> str:
    """It would think for ever, in one attempt, and swallows all that would stop it."""
    n = 0
    while n < 1000:
        n += 1
        try:
            semel.spend(usd="0.03", tokens=1200)
            refund(f"{ref} is unhappy, for reason {n}")
        except semel.Refused:
            continue
        except BaseException as stop:
            note(f"stopped {type(stop).__name__}")
            if n > 20:
                break
    return "I did what I could"


@app.task(intent=("ref",), retry=semel.Retry(backoff=SOON), limits=semel.Limits(usd="1"))
def spends(ref: str) -> str:
    """What a model call costs; then a test may kill it; then an effect, and another call."""
    semel.spend(usd="0.40", tokens=100)
    gate("spent")
    serve(ref)
    gate("served")
    return ref

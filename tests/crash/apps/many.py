"""Handlers with several effects, and tasks that kill their worker."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

from agent import LOOKED, RETRY, app, charge, mail
from wire import gate, note

import semel


@app.task(intent=("ref",), retry=RETRY)
def two_mails(ref: str) -> str:
    first = mail(f"{ref}-first", "good day")
    gate("recorded")
    return f"{first} {mail(f'{ref}-second', 'good night')}"


@app.task(intent=("ref",), retry=RETRY)
def many_charges(ref: str, count: int) -> int:
    """Charge after charge, a moment apart."""
    for n in range(count):
        charge(f"{ref}-{n}", "good day")
        time.sleep(0.1)
    return count


@app.task(intent=("ref",), retry=RETRY)
def slow_charge(ref: str) -> str:
    """A neighbour: it takes its time, and says when it is at it."""
    note(f"start {ref}")
    time.sleep(0.3)
    done = charge(ref, "good day")
    note(f"end {ref}")
    return done


@app.task(intent=("ref",), retry=semel.Retry(max_crashes=3, backoff=timedelta(seconds=0.1)))
def poison(ref: str) -> str:
    """Kills the worker that runs it, each time."""
    note(f"poison {semel.current().attempt}")
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@app.effect(intent=("ref",), recovery=LOOKED)
def deadly(submission: semel.Submission, ref: str) -> str:
    """Kills the worker in mid-effect, before anything is sent."""
    note("deadly")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@app.task(intent=("ref",), retry=semel.Retry(max_crashes=3, backoff=timedelta(seconds=0.1)))
def poisoned_effect(ref: str) -> str:
    return deadly(ref)

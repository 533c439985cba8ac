"""Apps with a mistake each, as a crash test must find them."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import semel
from semel.testing.provider import get, post

PROVIDER = os.environ.get("PROVIDER", "")
SETTLE = timedelta(seconds=0.5)
app = semel.App()


def find(submission: semel.Submission) -> semel.Verdict:
    rows = get(f"{PROVIDER}/looked/mail?marker={submission.key}")
    return semel.Confirmed(rows[0]["id"]) if rows else semel.NotFound()


def find_nothing(submission: semel.Submission) -> semel.Verdict:
    return semel.NotFound()


def cannot_say(submission: semel.Submission) -> semel.Verdict:
    raise RuntimeError("the mailbox is closed")


def send(submission: semel.Submission, name: str) -> str:
    return str(post(f"{PROVIDER}/looked/mail", {"marker": submission.key, "name": name})["id"])


@app.effect(intent=("name",), recovery=semel.Lookup(find, settle=SETTLE))
def twice(submission: semel.Submission, name: str) -> str:
    send(submission, name)
    return send(submission, name)


@app.effect(intent=("name",), recovery=semel.Lookup(find_nothing, settle=SETTLE))
def unseen(submission: semel.Submission, name: str) -> str:
    return send(submission, name)


@app.effect(intent=("name",), recovery=semel.Lookup(cannot_say, settle=SETTLE))
def unanswered(submission: semel.Submission, name: str) -> str:
    return send(submission, name)


@app.task(intent=("name",))
def mail_twice(name: str) -> str:
    return twice(name)


@app.task(intent=("name",))
def mail_unseen(name: str) -> str:
    return unseen(name)


@app.task(intent=("name",))
def mail_unanswered(name: str) -> str:
    return unanswered(name)


@app.task(intent=("name",), retry=semel.Retry(max_crashes=1))
def mail_impatient(name: str) -> str:
    return unseen(name)


@app.effect(intent=("name", "now"), recovery=semel.Lookup(find, settle=SETTLE))
def dated(submission: semel.Submission, name: str, now: str) -> str:
    return send(submission, name)


@app.task(intent=("name",))
def mail_dated(name: str) -> str:
    return dated(name, str(time.time_ns()))


@app.task(intent=("name",))
def fails(name: str) -> str:
    raise RuntimeError(f"there is no {name}")

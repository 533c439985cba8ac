"""The agent that buys as somebody: its profile, and who is logged in there, are two files that a test writes."""

from __future__ import annotations

from datetime import timedelta

from wire import NOT_SENT, ROOM, find, gate, send

import semel

app = semel.App(lease=timedelta(seconds=2))


def profile() -> str:
    return (ROOM / "profile").read_text()


def logged_in(ref: str) -> dict[str, str]:
    return {"profile": profile(), "account": (ROOM / "login").read_text()}


def find_order(submission: semel.Submission) -> semel.Verdict:
    return find(submission, "buy")


@app.effect(
    intent=("ref",), not_done=NOT_SENT, identity=logged_in, recovery=semel.Lookup(find_order, settle=timedelta(seconds=0.1))
)
def buy(submission: semel.Submission, ref: str) -> str:
    return send(submission, "looked", "buy", {"ref": ref, "marker": submission.key})


@app.task(retry=semel.Retry(max_attempts=50, max_crashes=50, backoff=timedelta(seconds=0.1)))
def shop(ref: str) -> str:
    semel.bind(profile=profile(), account="alice")
    gate("bound")
    return buy(ref)

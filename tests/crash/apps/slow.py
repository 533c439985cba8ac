"""A sync effect whose client does not heed its timeout: its thread goes on."""

from __future__ import annotations

from datetime import timedelta

from agent import OPAQUE, RETRY, SETTLE, app
from wire import NOT_SENT, find, send

import semel


def find_slow(submission: semel.Submission) -> semel.Verdict:
    return find(submission, "slow")


@app.effect(
    intent=("ref",),
    recovery=semel.Lookup(find_slow, settle=SETTLE),
    timeout=timedelta(seconds=0.4),
    not_done=NOT_SENT,
)
def slow(submission: semel.Submission, ref: str) -> str:
    return send(submission, "looked", "slow", {"ref": ref, "marker": submission.key})


@app.task(intent=("ref",), retry=RETRY)
def slow_work(ref: str) -> str:
    return slow(ref)


@app.effect(intent=("ref",), recovery=OPAQUE, timeout=timedelta(seconds=0.4), not_done=NOT_SENT)
def slow_opaque(submission: semel.Submission, ref: str) -> str:
    return send(submission, "opaque", "slow", {"ref": ref})


@app.task(intent=("ref",), retry=RETRY)
def slow_opaque_work(ref: str) -> str:
    return slow_opaque(ref)

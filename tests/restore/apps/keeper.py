"""The agent whose store is taken back: one effect in each of the provider's manners; gates by the task's name."""

from __future__ import annotations

import os
from datetime import timedelta

from wire import find, gate, send

import semel

app = semel.App(lease=timedelta(seconds=float(os.environ.get("CRASH_LEASE", "2"))))
RETRY = semel.Retry(max_attempts=20, max_crashes=20, backoff=timedelta(seconds=0.1))
SETTLE = timedelta(seconds=0.2)


def find_mail(submission: semel.Submission) -> semel.Verdict:
    return find(submission, "mail")


@app.effect(intent=("ref",), recovery=semel.Resend(within=timedelta(hours=24)))
def charge(submission: semel.Submission, ref: str) -> str:
    return calling(submission, "keyed", "charge", ref)


@app.effect(intent=("ref",), recovery=[semel.Resend(within=timedelta(seconds=8)), semel.Ask(settle=SETTLE)])
def fleeting(submission: semel.Submission, ref: str) -> str:
    """Its provider remembers a key for eight seconds: less two leases and the margin, it may be sent again for about three."""
    return calling(submission, "keyed", "fleeting", ref)


@app.effect(intent=("ref",), recovery=[semel.Lookup(find_mail, settle=SETTLE), semel.Ask(settle=SETTLE)])
def mail(submission: semel.Submission, ref: str) -> str:
    return calling(submission, "looked", "mail", ref)


@app.effect(intent=("ref",), recovery=semel.Ask(settle=SETTLE))
def publish(submission: semel.Submission, ref: str) -> str:
    return calling(submission, "opaque", "publish", ref)


@app.effect(intent=("ref",), recovery=semel.Resend(within=timedelta(hours=24)), scope="tenant")
def subscribe(submission: semel.Submission, ref: str) -> str:
    """One for the whole tenant."""
    return calling(submission, "keyed", "subscribe", ref)


@app.effect(
    intent=("ref",), recovery=[semel.Lookup(find_mail, settle=SETTLE), semel.Ask(settle=SETTLE)], scope="tenant", name="tell_all"
)
def mail_all(submission: semel.Submission, ref: str) -> str:
    """One for the whole tenant, that can be looked up."""
    return calling(submission, "looked", "mail", ref)


EFFECTS = {
    "charge": charge, "fleeting": fleeting, "mail": mail, "publish": publish, "subscribe": subscribe, "tell_all": mail_all,
}  # fmt: skip


def calling(submission: semel.Submission, manner: str, action: str, ref: str) -> str:
    done = send(submission, manner, action, {"ref": ref, "marker": submission.key})
    gate(f"flight.{ref}")
    return done


@app.task(intent=("action", "ref"), retry=RETRY)
def work(action: str, ref: str) -> str:
    gate(f"start.{ref}")
    done = EFFECTS[action](ref)
    gate(f"end.{ref}")
    return done

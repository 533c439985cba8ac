"""A tenant-scoped effect: many tasks, one key."""

from __future__ import annotations

from agent import KEYED, LOOKED, OPAQUE, RETRY, app
from wire import NOT_SENT, note, send

import semel


@app.effect(intent=("ref",), recovery=KEYED, not_done=NOT_SENT, scope="tenant", name="tenant_charge")
def charge_once(submission: semel.Submission, ref: str) -> str:
    return send(submission, "keyed", "charge", {"ref": ref})


@app.effect(intent=("ref",), recovery=LOOKED, not_done=NOT_SENT, scope="tenant", name="tenant_mail")
def mail_once(submission: semel.Submission, ref: str) -> str:
    return send(submission, "looked", "mail", {"ref": ref, "marker": submission.key})


@app.effect(intent=("ref",), recovery=OPAQUE, not_done=NOT_SENT, scope="tenant", name="tenant_publish")
def publish_once(submission: semel.Submission, ref: str) -> str:
    return send(submission, "opaque", "publish", {"ref": ref})


SHARED = {"charge": charge_once, "mail": mail_once, "publish": publish_once}


@app.task(retry=RETRY)
def shared_work(action: str, ref: str) -> str:
    return SHARED[action](ref)


@app.task(retry=RETRY)
def shared_swallowing(ref: str) -> str:
    """Another task may have the first in hand: then this attempt is over, whatever it catches."""
    done = []
    for effect, own in ((charge_once, ref), (mail_once, f"{ref}-mine")):
        try:
            done.append(effect(own))
        except BaseException as error:
            note(f"swallowed {type(error).__name__}")
    return " ".join(done)

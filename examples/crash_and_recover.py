"""Killed in the middle of a call: what is on record, and what the next process makes of it.

A child process sends a mail. The server has sent it and is slow to say so, and the child is killed (SIGKILL) while it
waits. This process then looks at what is known, and works on: the mail is looked up, found, and not sent again.

    python examples/crash_and_recover.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import semel
from semel.testing.provider import Provider, get, post

folder = Path(os.environ.get("EXAMPLE_FOLDER") or tempfile.mkdtemp(prefix="semel-example-"))
app = semel.App(f"sqlite:///{folder}/agent.db")  # parent and child have one store


def url() -> str:
    """Where the mail server is: the parent starts it, and tells the child."""
    return os.environ["PROVIDER"] + "/looked/mail"


def find_mail(submission: semel.Submission) -> semel.Verdict:
    """The mail bears our key as its marker."""
    found = get(f"{url()}?marker={submission.key}", timeout=submission.seconds_left)
    return semel.Confirmed(str(found[0]["id"])) if found else semel.NotFound()


@app.effect(intent=("invoice_id",), recovery=semel.Lookup(find_mail, settle=timedelta(seconds=1)), timeout=timedelta(seconds=60))
def send_invoice(submission: semel.Submission, invoice_id: str, to: str) -> str:
    """Send the invoice by mail."""
    mail = {"marker": submission.key, "invoice_id": invoice_id, "to": to}
    return str(post(url(), mail, token=submission.token, timeout=submission.seconds_left)["id"])


@app.task(intent=("invoice_id",))
def bill(invoice_id: str) -> str:
    """Bill one invoice."""
    return send_invoice(invoice_id, "ann@example.com")


def ledgers(ref: semel.Ref[str]) -> str:
    """The three ledgers, in one line."""
    task, effects = app.tasks.get(ref), app.effects.list(task=ref)
    return f"delivery {task.delivery}, execution {task.execution}, effect {', '.join(effect.state for effect in effects)}"


def main() -> None:
    with Provider.start(folder / "provider.db") as provider:
        os.environ.update(PROVIDER=provider.url, EXAMPLE_FOLDER=str(folder))
        provider.fault("late", action="mail", seconds=60)  # sent at once, said a minute later
        ref = bill.enqueue("inv_42")
        child = subprocess.Popen([sys.executable, __file__, "work"])
        provider.wait_for_request("mail", timeout=30)
        print(f"in the call: {ledgers(ref)}")
        child.kill()
        child.wait()
        print(f"killed:      {ledgers(ref)} (nobody has looked yet)")
        app.run_worker(until_idle=True)  # finds that the session's process is gone, and takes its task back
        print(f"worked on:   {ledgers(ref)}, attempt {app.tasks.get(ref).attempt}")
        print(f"mails sent:  {provider.count('mail')}; the task's result: {ref.result()}")
        for event in app.journal(ref):
            print(f"  {event.seq:2} {event.actor.partition(':')[0]:8} {event.kind}")


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        app.run_worker()
    else:
        main()

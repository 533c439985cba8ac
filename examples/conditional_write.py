"""Conditional writes: a provider that remembers no key, and refuses a second write of one name.

Two effects. `archive` writes under a name derived from the key, so nobody else's can be there: what is unknown is sent
again for ever, and a refusal is believed to be ours only after reading back whose it is. `release` wants a name that
others may take too: a lookup says whether it is ours, nobody's, or somebody else's, and then a person must look.

    python examples/conditional_write.py
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import semel
from semel.testing.provider import Provider, ProviderError, get, put

folder = Path(tempfile.mkdtemp(prefix="semel-example-"))
provider = Provider.start(folder / "provider.db")
app = semel.App(f"sqlite:///{folder}/agent.db")
EXISTS, MISSING = 412, 404


def create(submission: semel.Submission, path: str, text: str) -> str:
    """PUT, create only. Refused: it exists, and is ours if it bears our key."""
    url = f"{provider.url}/named/{path}"
    body = {"text": text, "key": submission.key}
    try:
        put(url, body, token=submission.token, timeout=submission.seconds_left)
    except ProviderError as error:
        if error.status != EXISTS:
            raise  # proves nothing
        there = get(url, timeout=submission.seconds_left)
        if there.get("key") == submission.key:
            raise semel.AlreadyDone(path) from error
        raise semel.NotDone(f"{path} is taken by somebody else", retry=False) from error
    return path


@app.effect(intent=("report",), recovery=semel.Resend(within=None))
def archive(submission: semel.Submission, report: str, text: str) -> str:
    """Store a report under a name of its own."""
    return create(submission, f"reports/{submission.key}", text)


def whose(submission: semel.Submission, version: str) -> semel.Verdict:
    """Read back what stands under the name."""
    try:
        there = get(f"{provider.url}/named/releases/{version}", timeout=submission.seconds_left)
    except ProviderError as error:
        return semel.NotFound() if error.status == MISSING else semel.Unavailable(str(error))
    if there.get("key") == submission.key:
        return semel.Confirmed(f"releases/{version}")
    return semel.Conflict(f"releases/{version} is there, and does not bear our key")


@app.effect(intent=("version",), recovery=semel.Lookup(whose, settle=timedelta(seconds=30)))
def release(submission: semel.Submission, version: str, text: str) -> str:
    """Publish a release under its version."""
    return create(submission, f"releases/{version}", text)


def cut_after_writing() -> None:
    provider.fault("cut_after", action="reports")
    with app.work("monday", kind="archivist"):
        print("archived as", archive("2031-05-01", "All is well."))
    sent = [request for request in provider.requests() if request.method == "PUT"]
    print(f"  {len(sent)} PUTs, {provider.count('reports')} written: the second found ours")


def taken_beforehand() -> None:
    put(f"{provider.url}/named/releases/1.0", {"text": "by hand"})
    with app.work("1.0", kind="releaser"):
        try:
            release("1.0", "Notes for 1.0")
        except semel.NotDone as no:
            print(f"not released: {no}")


def taken_meanwhile() -> None:
    provider.fault("cut_before", action="releases")  # our write never arrives, and we cannot know
    try:
        with app.work("1.1", kind="releaser", wait=timedelta(0)):
            release("1.1", "Notes for 1.1")
    except semel.Unsettled as parked:
        print(f"1.1 is {parked.why}: {app.tasks.get(parked.ref).why}")
    put(f"{provider.url}/named/releases/1.1", {"text": "by Bob"})
    try:
        with app.work("1.1", kind="releaser"):
            print("never printed: what is unknown is settled before anything else")
    except semel.Unsettled as parked:
        print(f"1.1 is {parked.why}: {app.tasks.get(parked.ref).why}")
    effect = app.effects.list(state="ambiguous")[0]
    app.review.resolve(effect.key, semel.Confirmed("releases/1.1"), by="ann", reason="Bob published the same notes")
    print(f"1.1 is {app.effects.get(effect.key).state}, on Ann's word")


def main() -> None:
    cut_after_writing()
    taken_beforehand()
    taken_meanwhile()


if __name__ == "__main__":
    with provider:
        main()

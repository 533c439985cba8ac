"""An agent that will not stop: it thinks again and again, and invents one variant of the same act after another.

It has 1 usd, and may refund once. Its money is counted over all attempts, one of which breaks down; what it may not, it is
told, and does not hear. In the end it is a dead letter, with the reason, and the provider has refunded once.

    python examples/limits.py
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import semel
from semel.testing.provider import Provider, post

folder = Path(tempfile.mkdtemp(prefix="semel-example-"))
provider = Provider.start(folder / "provider.db")
app = semel.App(f"sqlite:///{folder}/agent.db")
MAY = semel.Limits(usd="1", seconds=60)


@app.effect(intent=("reason",), recovery=semel.Resend(within=timedelta(hours=24)), per_task=1)
def refund(submission: semel.Submission, reason: str) -> str:
    """Refund the customer: once in a task, for whatever reason."""
    body = {"reason": reason}
    return str(post(f"{provider.url}/keyed/refund", body, key=submission.key, timeout=submission.seconds_left)["id"])


@app.step()
def ask_model(attempt: int, history: list[str]) -> str:
    """The next deed, and what it costs to hear of it. A step: what is on record is not paid for again."""
    semel.spend(usd="0.15", tokens=900)
    return f"refund, for reason {attempt}.{len(history)}"


def agent(attempt: int) -> None:
    """A loop that ends when the model is content. It never is."""
    history: list[str] = []
    while True:
        deed = ask_model(attempt, history)
        try:
            answer = refund(deed)
        except semel.Refused as no:
            answer = str(no)
        print(f"  {deed} -> {answer}")
        history.append(answer)
        if attempt == 1 and len(history) == 2:
            raise RuntimeError("the model's API is down")


def main() -> None:
    for _ in range(2):
        try:
            with app.work("ticket-7", kind="support", limits=MAY) as work:
                print(f"attempt {work.attempt}")
                agent(work.attempt)
        except RuntimeError as error:
            print(f"  broke down: {error}")
        except semel.Unsettled as end:
            print(f"{end.why}: {app.tasks.get(end.ref).why}")
    print(f"refunds made: {provider.count('refund')}")


if __name__ == "__main__":
    with provider:
        main()

"""Your own agent loop, no framework: `with app.work(...)` makes it an attempt.

A support agent refunds an order and tells the customer. The connection is cut while the refund is answered, and the loop
itself breaks down before it is through. It is entered again, and starts from the beginning, in other words, as a model
would. The provider's own record is counted at the end.

    python examples/own_loop.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import semel
from semel.testing.provider import Provider, get, post

folder = Path(tempfile.mkdtemp(prefix="semel-example-"))
provider = Provider.start(folder / "provider.db")
app = semel.App(f"sqlite:///{folder}/agent.db")


@app.effect(intent=("order_id",), material=("cents",), recovery=semel.Resend(within=timedelta(hours=24)))
def refund(submission: semel.Submission, order_id: str, cents: int) -> str:
    """Refund an order. This provider remembers our key, so what is unknown is sent again."""
    body = {"order_id": order_id, "cents": cents}
    url = f"{provider.url}/keyed/refund"
    return str(post(url, body, key=submission.key, token=submission.token, timeout=submission.seconds_left)["id"])


def find_reply(submission: semel.Submission) -> semel.Verdict:
    """The reply carries our key as its marker, so the help desk can be asked for it."""
    found = get(f"{provider.url}/looked/reply?marker={submission.key}", timeout=submission.seconds_left)
    return semel.Confirmed(str(found[0]["id"])) if found else semel.NotFound()


@app.effect(intent=("order_id",), recovery=semel.Lookup(find_reply, settle=timedelta(seconds=1)))
def reply(submission: semel.Submission, order_id: str, text: str) -> str:
    """Answer the customer."""
    body = {"marker": submission.key, "order_id": order_id, "text": text}
    return str(post(f"{provider.url}/looked/reply", body, token=submission.token, timeout=submission.seconds_left)["id"])


TOOLS: dict[str, Callable[..., str]] = {"refund": refund, "reply": reply}
SAYS = {1: "Dear Ann, your 5 USD are on their way.", 2: "Hello Ann! We refunded 5 USD today."}


def model(attempt: int, history: list[str]) -> tuple[str, dict[str, Any]] | None:
    """The next tool call, from a script: on every attempt the same deeds in other words; in the second it says too much."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("refund", {"order_id": "o-1", "cents": 500}),
        ("reply", {"order_id": "o-1", "text": SAYS[attempt]}),
        ("reply", {"order_id": "o-1", "text": "P.S. Sorry for the trouble!"}),
    ]
    if attempt == 1 and len(history) == 2:
        raise RuntimeError("the model's API is down")
    return calls[len(history)] if len(history) < len(calls) else None


def loop(attempt: int) -> None:
    """An agent loop as you would write it: ask the model, call the tool, tell the model what came of it."""
    history: list[str] = []
    while call := model(attempt, history):
        name, arguments = call
        try:
            answer = TOOLS[name](**arguments)
        except semel.Refused as no:  # the machine said no, and the model may read why
            answer = str(no)
        print(f"  {name}({', '.join(map(str, arguments.values()))}) -> {answer}")
        history.append(answer)


def main() -> None:
    provider.fault("cut_after", action="refund")  # it refunds, and the answer never arrives
    while True:
        try:
            with app.work("ticket-7", kind="support") as work:
                print(f"attempt {work.attempt}")
                loop(work.attempt)
            break
        except RuntimeError as error:
            print(f"  broke down: {error}")
    print(f"requests received: {len([r for r in provider.requests() if r.method == 'POST'])}")
    print(f"refunds made: {provider.count('refund')}, replies sent: {provider.count('reply')}")


if __name__ == "__main__":
    with provider:
        main()

"""An agent of Pydantic-AI whose tools are effects, as they are: the framework sees plain functions with a docstring.

The model is a script, so that this runs without a key. On the first attempt the connection is cut while the refund is
answered, and the model's API goes down before the agent is through. On the second attempt the model says the same in other
words, and asks for the mail twice. Counted at the provider: one refund, one mail.

    pip install pydantic-ai-slim
    python examples/pydantic_ai_agent.py
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import ParamSpec, TypeVar

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import semel
from semel.testing.provider import Provider, get, post

P = ParamSpec("P")
R = TypeVar("R")

folder = Path(tempfile.mkdtemp(prefix="semel-example-"))
provider = Provider.start(folder / "provider.db")
app = semel.App(f"sqlite:///{folder}/agent.db")


@app.effect(intent=("order_id",), material=("cents",), recovery=semel.Resend(within=timedelta(hours=24)))
async def refund(submission: semel.Submission, order_id: str, cents: int) -> str:
    """Refund an order, in cents."""
    answer = await asyncio.to_thread(
        post,
        f"{provider.url}/keyed/refund",
        {"order_id": order_id, "cents": cents},
        key=submission.key,
        token=submission.token,
        timeout=submission.seconds_left,
    )
    return str(answer["id"])


async def find_mail(submission: semel.Submission) -> semel.Verdict:
    """The mail bears our key as its marker."""
    url = f"{provider.url}/looked/mail?marker={submission.key}"
    found = await asyncio.to_thread(get, url, timeout=submission.seconds_left)
    return semel.Confirmed(str(found[0]["id"])) if found else semel.NotFound()


@app.effect(intent=("order_id",), recovery=semel.Lookup(find_mail, settle=timedelta(seconds=1)))
async def send_mail(submission: semel.Submission, order_id: str, text: str) -> str:
    """Send the customer of an order a mail."""
    mail = {"marker": submission.key, "order_id": order_id, "text": text}
    url = f"{provider.url}/looked/mail"
    answer = await asyncio.to_thread(post, url, mail, token=submission.token, timeout=submission.seconds_left)
    return str(answer["id"])


def readable(effect: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R | str]]:
    """The effect as a tool that tells the model what the machine refused; an exception would end the run."""

    @functools.wraps(effect)
    async def tool(*args: P.args, **kwargs: P.kwargs) -> R | str:
        try:
            return await effect(*args, **kwargs)
        except semel.Refused as no:
            return f"{no}. The recorded result is {no.result!r}"

    return tool


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What a model might say: the same deeds on each attempt, in other words."""
    attempt = semel.current().attempt
    parts = [part for message in messages for part in message.parts]
    for part in parts[-1:]:
        if isinstance(part, ToolReturnPart):
            print(f"  {part.tool_name} -> {part.content}")
    turn = sum(isinstance(part, ToolCallPart) for part in parts)
    if attempt == 1 and turn == 0:
        print("  tools:", *(f"{t.name}({', '.join(t.parameters_json_schema['properties'])})" for t in info.function_tools))
    if attempt == 1 and turn == 2:
        raise RuntimeError("the model's API is down")
    first, second = [("Dear Ann, 5 USD are on their way.",) * 2, ("Hi Ann! 5 USD refunded.", "P.S. Sorry!")][attempt - 1]
    calls = [
        ToolCallPart("refund", {"order_id": "o-1", "cents": 500}),
        ToolCallPart("send_mail", {"order_id": "o-1", "text": first}),
        ToolCallPart("send_mail", {"order_id": "o-1", "text": second}),
    ]
    return ModelResponse([calls[turn] if turn < len(calls) else TextPart("The customer has the money and knows it.")])


agent = Agent(FunctionModel(script), tools=[refund, readable(send_mail)])


@app.task(intent=("order_id",), retry=semel.Retry(backoff=timedelta(seconds=0.1)))
async def handle_complaint(order_id: str) -> str:
    """One complaint, from reading it to the customer's mail."""
    print(f"attempt {semel.current().attempt}")
    return (await agent.run(f"Order {order_id} arrived broken. Refund 5 USD and say so.")).output


def main() -> None:
    provider.fault("cut_after", action="refund")  # it refunds, and the answer never arrives
    ref = handle_complaint.enqueue("o-1")
    app.run_worker(until_idle=True)
    print(f"result: {ref.result()}")
    print(f"refunds made: {provider.count('refund')}, mails sent: {provider.count('mail')}")


if __name__ == "__main__":
    with provider:
        main()

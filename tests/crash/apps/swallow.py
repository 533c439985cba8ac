"""Agents that swallow what their tools raise, and go on."""

from __future__ import annotations

from agent import RETRY, amail, app, apublish, mail, publish
from wire import gate, note


@app.task(intent=("ref",), retry=RETRY)
def swallows_exception(ref: str) -> str:
    try:
        first = publish(ref, "good day")
    except Exception as error:
        note(f"swallowed {type(error).__name__}")
        first = "failed"
    return f"{first} {mail(ref, 'good day')}"


@app.task(intent=("ref",), retry=RETRY)
def swallows_everything(ref: str) -> str:
    try:
        first = publish(ref, "good day")
    except BaseException as error:
        note(f"swallowed {type(error).__name__}")
        gate("swallowed")
        first = "failed"
    try:
        second = mail(ref, "good day")
    except BaseException as error:
        note(f"second: {type(error).__name__}")
        second = "failed"
    return f"{first} {second}"


@app.task(intent=("ref",), retry=RETRY)
async def aswallows_everything(ref: str) -> str:
    try:
        first = await apublish(ref, "good day")
    except BaseException as error:
        note(f"swallowed {type(error).__name__}")
        first = "failed"
    try:
        second = await amail(ref, "good day")
    except BaseException as error:
        note(f"second: {type(error).__name__}")
        second = "failed"
    return f"{first} {second}"

"""Effects and steps as function tools of the OpenAI Agents SDK, invoked as its runner does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agents import FunctionTool, function_tool
from agents.tool_context import ToolContext
from framework_lab import CHARGE, MAIL, SEARCH, Lab, Receipt, without_submission

import semel

BOTH = pytest.mark.parametrize(
    ("name", "args"), [("charge", {"invoice_id": "i", "cents": 5, "note": ""}), ("mail", {"to": "a@b", "body": "x"})]
)


async def invoke(tool: FunctionTool, **arguments: Any) -> Any:
    """One call by the model."""
    text = json.dumps(arguments)
    context = ToolContext(context=None, tool_name=tool.name, tool_call_id="call-1", tool_arguments=text)
    return await tool.on_invoke_tool(context, text)


def test_the_schema_shows_the_docstring_and_no_submission(lab: Lab) -> None:
    told = ("Charge one invoice.", "Send a mail.", "Search the archive.")
    for fn, says, described in zip((lab.charge, lab.mail, lab.search), told, (CHARGE, MAIL, SEARCH), strict=True):
        tool = function_tool(fn)
        assert (tool.name, tool.description) == (fn.__name__, says)
        without_submission(tool.params_json_schema, described)


def test_each_tool_does_its_work_once(lab: Lab) -> None:
    charge, mail, search = function_tool(lab.charge), function_tool(lab.mail), function_tool(lab.search)

    async def handler() -> list[str]:
        for _ in range(2):
            receipt = await invoke(charge, invoice_id="i", cents=5, note="")
            assert receipt == Receipt(id="r-i", cents=5)
            assert await invoke(mail, to="a@b", body="x") == "mail to a@b"  # sync: the SDK runs it in a thread
        found = await invoke(search, query="q", limit=2)
        assert isinstance(found, list)
        return found

    task = lab.task(handler)
    assert task.run() == ["q", "q"] == task.run()
    assert lab.did == [("charge", "i"), ("mail", "a@b"), ("search", "q")] and lab.confirmed() == 2


@BOTH
def test_the_same_call_twice_in_parallel_is_one_effect_and_both_get_the_result(lab: Lab, name: str, args: dict[str, Any]) -> None:
    tool = function_tool(getattr(lab, name))

    async def handler() -> int:
        one, two = await asyncio.gather(invoke(tool, **args), invoke(tool, **args))
        assert one == two and "rror" not in str(one)
        return 1

    assert lab.task(handler).run() == 1
    assert len(lab.did) == 1 and lab.confirmed() == 1


def test_other_words_are_refused_whatever_the_sdk_tells_the_model(lab: Lab) -> None:
    by_default = function_tool(lab.mail)  # "please try again", says the SDK of any error, and keeps its words to itself
    open_hearted = function_tool(lab.mail, failure_error_function=lambda _, error: str(error))

    async def handler() -> str:
        await invoke(by_default, to="a@b", body="x")
        for _ in range(3):
            assert "rror" in await invoke(by_default, to="a@b", body="other words")
        return str(await invoke(open_hearted, to="a@b", body="other words"))

    assert "already_done" in lab.task(handler).run()
    assert len(lab.did) == 1


@BOTH
def test_an_unknown_outcome_is_not_swallowed_as_an_error_for_the_model(lab: Lab, name: str, args: dict[str, Any]) -> None:
    lab.breaks = True
    tool, heard = function_tool(getattr(lab, name)), list[str]()

    async def handler() -> None:
        heard.append(str(await invoke(tool, **args)))  # the SDK turns an Exception into a text for the model

    with pytest.raises(semel.Unsettled) as parked:
        lab.task(handler).run()
    assert parked.value.why == "blocked" and heard == []

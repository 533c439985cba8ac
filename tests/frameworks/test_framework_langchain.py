"""Effects and steps as LangChain tools."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from framework_lab import CHARGE, MAIL, SEARCH, Lab, Receipt, without_submission
from langchain_core.tools import BaseTool, tool

import semel


def test_the_schema_shows_the_docstring_and_no_submission(lab: Lab) -> None:
    told = ("Charge one invoice.", "Send a mail.", "Search the archive.")
    for fn, says, described in zip((lab.charge, lab.mail, lab.search), told, (CHARGE, MAIL, SEARCH), strict=True):
        plain, parsed = tool(fn), tool(fn, parse_docstring=True)
        assert (plain.name, parsed.name, parsed.description) == (fn.__name__, fn.__name__, says)
        assert plain.description.startswith(says) and "ubmission" not in str(schema(plain))
        assert list(schema(plain)["properties"]) == list(described)
        without_submission(schema(parsed), described)


def schema(made: BaseTool) -> dict[str, Any]:
    found = made.args_schema
    assert isinstance(found, type)
    return dict(found.model_json_schema())


def test_a_sync_tool_in_a_sync_handler_does_its_work_once(lab: Lab) -> None:
    mail = tool(lab.mail)

    def handler() -> str:
        return "; ".join(mail.invoke({"to": "a@b", "body": "x"}) for _ in range(2))

    assert lab.task(handler).run() == "mail to a@b; mail to a@b"
    assert lab.did == [("mail", "a@b")] and lab.confirmed() == 1


def test_tools_of_both_colours_in_an_async_handler_do_their_work_once(lab: Lab) -> None:
    charge, mail, search = tool(lab.charge), tool(lab.mail), tool(lab.search)

    async def handler() -> list[str]:
        for _ in range(2):
            assert await charge.ainvoke({"invoice_id": "i", "cents": 5}) == Receipt(id="r-i", cents=5)
            assert await mail.ainvoke({"to": "a@b", "body": "x"}) == "mail to a@b"
        return list(await search.ainvoke({"query": "q"}))

    task = lab.task(handler)
    assert task.run() == ["q"] * 3 == task.run()
    assert lab.did == [("charge", "i"), ("mail", "a@b"), ("search", "q")]


@pytest.mark.parametrize(("name", "args"), [("charge", {"invoice_id": "i", "cents": 5}), ("mail", {"to": "a@b", "body": "x"})])
def test_the_same_call_twice_in_parallel_is_one_effect_and_both_get_the_result(lab: Lab, name: str, args: dict[str, Any]) -> None:
    made = tool(getattr(lab, name))

    async def handler() -> int:
        one, two = await asyncio.gather(made.ainvoke(args), made.ainvoke(args))
        assert one == two and one
        return 1

    assert lab.task(handler).run() == 1
    assert len(lab.did) == 1 and lab.confirmed() == 1


def test_the_same_call_from_two_threads_is_one_effect(lab: Lab) -> None:
    mail = tool(lab.mail)

    def handler() -> list[str]:
        with ThreadPoolExecutor(2) as pool:
            calls = [pool.submit(copy_context().run, mail.invoke, {"to": "a@b", "body": "x"}) for _ in range(2)]
            return [call.result() for call in calls]

    assert lab.task(handler).run() == ["mail to a@b"] * 2
    assert len(lab.did) == 1 and lab.confirmed() == 1


def test_batched_calls_are_an_effect_each(lab: Lab) -> None:
    mail = tool(lab.mail)

    def handler() -> list[str]:
        return list(mail.batch([{"to": f"a{n}", "body": "x"} for n in range(4)]))  # in a pool, each in a copied context

    assert lab.task(handler).run() == [f"mail to a{n}" for n in range(4)]
    assert sorted(lab.did) == [("mail", f"a{n}") for n in range(4)]


@pytest.mark.parametrize(("name", "args"), [("charge", {"invoice_id": "i", "cents": 5}), ("mail", {"to": "a@b", "body": "x"})])
def test_an_unknown_outcome_is_not_swallowed_as_an_error_for_the_model(lab: Lab, name: str, args: dict[str, Any]) -> None:
    lab.breaks = True
    made, heard = tool(getattr(lab, name)), list[str]()
    made.handle_tool_error = True

    async def handler() -> None:
        heard.append(str(await made.ainvoke(args)))

    with pytest.raises(semel.Unsettled) as parked:
        lab.task(handler).run()
    assert parked.value.why == "blocked" and heard == []

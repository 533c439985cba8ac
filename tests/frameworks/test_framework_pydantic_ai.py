"""Effects and steps as tools of Pydantic-AI: its own models decide what to call, and how often."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from framework_lab import CHARGE, MAIL, SEARCH, Lab, without_submission
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

import semel

Calls = list[tuple[str, dict[str, Any]]]


def asks_for(*rounds: Calls) -> tuple[FunctionModel, list[list[Any]]]:
    """A model that makes these calls, round by round, all of a round in parallel; and what it was answered."""
    answers: list[list[Any]] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            answers.append([part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)])
        if len(answers) < len(rounds):
            return ModelResponse(parts=[ToolCallPart(name, json.dumps(args)) for name, args in rounds[len(answers)]])
        return ModelResponse(parts=[TextPart("done")])

    return FunctionModel(model), answers


def runs(lab: Lab, model: FunctionModel | TestModel) -> Callable[[], Any]:
    """A handler in which an agent with all three tools runs to its end."""
    agent = Agent(model, tools=[lab.charge, lab.mail, lab.search])

    async def handler() -> str:
        return str((await agent.run("go")).output)

    return handler


def test_the_schema_shows_the_docstring_and_no_submission(lab: Lab) -> None:
    model = TestModel(call_tools=[])
    Agent(model, tools=[lab.charge, lab.mail, lab.search]).run_sync("hello")
    assert model.last_model_request_parameters is not None
    tools = {tool.name: tool for tool in model.last_model_request_parameters.function_tools}
    assert {name: tool.description for name, tool in tools.items()} == {
        "charge": "Charge one invoice.", "mail": "Send a mail.", "search": "Search the archive.",
    }  # fmt: skip
    for name, described in (("charge", CHARGE), ("mail", MAIL), ("search", SEARCH)):
        without_submission(tools[name].parameters_json_schema, described)
    assert tools["charge"].parameters_json_schema["required"] == ["invoice_id", "cents"]


def test_a_model_that_calls_all_tools_gets_each_done_once(lab: Lab) -> None:
    task = lab.task(runs(lab, TestModel()))
    first = task.run()
    assert sorted(what for what, _ in lab.did) == ["charge", "mail", "search"]
    assert task.run() == first and len(lab.did) == 3 and lab.confirmed() == 2


@pytest.mark.parametrize(("name", "args"), [("charge", {"invoice_id": "i", "cents": 5}), ("mail", {"to": "a@b", "body": "x"})])
def test_the_same_call_twice_in_parallel_is_one_effect_and_both_get_the_result(lab: Lab, name: str, args: dict[str, Any]) -> None:
    model, answers = asks_for([(name, args), (name, args)], [(name, args)])
    assert lab.task(runs(lab, model)).run() == "done"
    assert len(lab.did) == 1 and lab.confirmed() == 1
    (one, two), (three,) = answers
    assert one == two == three and one


def test_different_calls_in_parallel_are_different_effects(lab: Lab) -> None:
    model, answers = asks_for([("charge", {"invoice_id": f"i{n}", "cents": n}) for n in range(5)])
    lab.task(runs(lab, model)).run()
    assert sorted(lab.did) == [("charge", f"i{n}") for n in range(5)]
    assert [receipt.cents for receipt in answers[0]] == list(range(5))


def test_an_unknown_outcome_ends_the_run_and_the_model_does_not_hear_of_it(lab: Lab) -> None:
    lab.breaks = True
    call = ("charge", {"invoice_id": "i", "cents": 5})
    model, answers = asks_for([call], [call])
    with pytest.raises(semel.Unsettled) as parked:
        lab.task(runs(lab, model)).run()
    assert parked.value.why == "blocked" and answers == [] and lab.did == []
    assert [view.state for view in lab.app.effects.list()] == ["ambiguous"]

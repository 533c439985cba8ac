"""Without any framework: gather, to_thread, and a pool with the context carried (or not)."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial

import pytest
from framework_lab import Lab, Receipt

import semel


def test_effects_and_steps_are_plain_functions_at_run_time(lab: Lab) -> None:
    for fn, is_async, names in ((lab.charge, True, ["invoice_id", "cents", "note"]), (lab.mail, False, ["to", "body"]),
                                (lab.search, True, ["query", "limit"])):  # fmt: skip
        assert inspect.isfunction(fn) and inspect.iscoroutinefunction(fn) is is_async
        assert list(inspect.signature(fn).parameters) == names
        assert list(fn.__annotations__) == [*names, "return"]
        assert fn.__doc__ and fn.__module__ == "framework_lab"
        assert not hasattr(fn, "__wrapped__"), "whoever unwraps it would find the submission"
    assert inspect.signature(lab.charge).return_annotation is Receipt
    assert inspect.isfunction(lab.charge.using(occurrence="again"))


def test_gather_of_the_same_call_is_one_effect(lab: Lab) -> None:
    async def handler() -> int:
        receipts = await asyncio.gather(*(lab.charge("i", 5) for _ in range(10)))
        assert receipts == [Receipt(id="r-i", cents=5)] * 10
        return len(receipts)

    assert lab.task(handler).run() == 10
    assert lab.did == [("charge", "i")] and lab.confirmed() == 1


def test_gather_of_different_calls_runs_them_side_by_side(lab: Lab) -> None:
    running, most = 0, 0

    async def one(n: int) -> Receipt:
        nonlocal running, most
        running += 1
        most = max(most, running)
        receipt = await lab.charge(f"i{n}", n)
        running -= 1
        return receipt

    async def handler() -> list[int]:
        return [receipt.cents for receipt in await asyncio.gather(*map(one, range(8)))]

    assert lab.task(handler).run() == list(range(8))
    assert len(lab.did) == 8 and most == 8


def test_a_sync_effect_in_to_thread_carries_the_context(lab: Lab) -> None:
    async def handler() -> list[str]:
        return list(await asyncio.gather(*(asyncio.to_thread(lab.mail, "a@b", "x") for _ in range(4))))

    assert lab.task(handler).run() == ["mail to a@b"] * 4
    assert lab.did == [("mail", "a@b")]


def test_a_pool_with_the_context_copied(lab: Lab) -> None:
    def handler() -> list[str]:
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(copy_context().run, lab.mail, f"a{n % 2}", "x") for n in range(8)]
            return [call.result() for call in calls]

    assert lab.task(handler).run() == ["mail to a0", "mail to a1"] * 4
    assert sorted(lab.did) == [("mail", "a0"), ("mail", "a1")] and lab.confirmed() == 2


def test_a_pool_without_the_context_is_misuse_and_nothing_is_done(lab: Lab) -> None:
    def handler() -> str:
        with ThreadPoolExecutor(1) as pool, pytest.raises(semel.Misuse, match="outside any work"):
            pool.submit(lab.mail, "a@b", "x").result()
        return "told"

    assert lab.task(handler).run() == "told"
    assert lab.did == [] and lab.app.effects.list() == []


def test_a_sync_effect_plainly_inside_the_loop_is_misuse_and_nothing_is_done(lab: Lab) -> None:
    async def handler() -> str:
        with pytest.raises(semel.Misuse, match=r"await asyncio\.to_thread\(mail"):
            lab.mail("a@b", "x")
        return "told"

    assert lab.task(handler).run() == "told"
    assert lab.did == []


def test_an_effect_within_an_effect_is_misuse(lab: Lab) -> None:
    @lab.app.effect(intent=("to",), name="outer")
    def outer(submission: semel.Submission, to: str) -> str:
        with pytest.raises(semel.Misuse, match="inside an effect"):
            lab.mail(to, "x")
        return "told"

    assert lab.task(partial_of(outer)).run() == "told"
    assert lab.did == []


def partial_of(outer: semel.Effect[[str], str]):  # type: ignore[no-untyped-def]
    call = partial(outer, "a@b")

    def handler() -> str:
        return call()

    return handler

"""The scenarios that are explored."""

from __future__ import annotations

from datetime import timedelta

import procs_shims as shims
from procs_world import SETTLE, TIMEOUT, Scenario

import semel
from semel.engine import declare
from semel.engine.declare import Effect, Registry, Work
from semel.model import Limits, Recovery, Retry


def pay(submission: semel.Submission, n: int) -> str:
    """What is done by the world."""
    raise AssertionError("the world answers")


def find(submission: semel.Submission, n: int) -> semel.Verdict:
    """What the world answers."""
    raise AssertionError("the world answers")


def work(key: str) -> str:
    """The handler: what its script says."""
    return shims.here().play(key)


def effect(name: str, recovery: Recovery | list[Recovery], scope: str = "task", tries: int = 2) -> Effect:
    """An effect as an app would declare it."""
    return declare.effect(
        pay, intent=("n",), material=(), recovery=recovery, scope=scope, not_done=(ConnectionRefusedError,), tries=tries,  # type: ignore[arg-type]
        timeout=timedelta(seconds=TIMEOUT), per_task=None, name=name, formerly=(),
    )  # fmt: skip


def registry(*effects: Effect) -> Registry[Effect]:
    found: Registry[Effect] = Registry("effect")
    for one in effects:
        found.add(one)
    return found


WORKS: Registry[Work] = Registry("task")
WORKS.add(declare.task(
    work, intent=("key",), queue="q", retry=Retry(backoff=timedelta(0)), limits=Limits(), timeout=None, name="work", formerly=(),
))  # fmt: skip
SETTLED = timedelta(seconds=SETTLE)
ASK, LOOKUP = semel.Ask(settle=SETTLED), semel.Lookup(find, settle=SETTLED)
RESEND, CREATE = semel.Resend(within=timedelta(hours=24)), semel.Resend(within=None)
RECOVERIES: dict[str, tuple[Recovery | list[Recovery], str]] = {
    "lookup": ([LOOKUP, ASK], "acts"),
    "ask": (ASK, "acts"),
    "resend": ([RESEND, ASK], "remembers"),
    "create": ([CREATE, ASK], "create"),
    "repeat": ([semel.Repeat(), ASK], "acts"),
}


def one(recovery: str, calls: int = 1, **more: object) -> Scenario:
    """One task that makes so many calls, each of which must wait for the one before to be known."""
    declared, manner = RECOVERIES[recovery]
    script = (tuple(("pay", n) for n in range(1, calls + 1)),)
    return Scenario(
        f"{recovery}, {calls}, {words(more)}", registry(effect("pay", declared)), WORKS, {"t1": script}, manner=manner,
        repeats=recovery == "repeat", **more,  # type: ignore[arg-type]
    )  # fmt: skip


def aside(recovery: str, **more: object) -> Scenario:
    """One task that makes two calls side by side, and a third one after the second."""
    declared, manner = RECOVERIES[recovery]
    script = ((("pay", 1),), (("pay", 2), ("pay", 3)))
    return Scenario(
        f"{recovery}, side by side, {words(more)}", registry(effect("pay", declared)), WORKS, {"t1": script}, manner=manner,
        repeats=recovery == "repeat", **more,  # type: ignore[arg-type]
    )  # fmt: skip


def shared(recovery: str, **more: object) -> Scenario:
    """Two tasks that make the same call, under one key of the tenant; one of them makes another beside it."""
    declared, manner = RECOVERIES[recovery]
    beside = ((("pay", 1),), (("mail", 2), ("mail", 3))) if more.pop("beside", False) else ((("pay", 1),),)
    return Scenario(
        f"{recovery}, shared, {words(more)}", registry(effect("pay", declared, scope="tenant"), effect("mail", declared)), WORKS,
        {"t1": ((("pay", 1),),), "t2": beside}, manner=manner, repeats=recovery == "repeat", **more,  # type: ignore[arg-type]
    )  # fmt: skip


def words(more: dict[str, object]) -> str:
    """Settings, for people."""
    return ", ".join(
        f"{name}={', '.join(sorted(value)) if isinstance(value, frozenset) else value}" for name, value in more.items()
    )

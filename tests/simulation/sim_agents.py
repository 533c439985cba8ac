"""The code that the simulated workers run: one effect for each manner of provider, and handlers that do what their task says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sim_outside import SETTLE, WITHIN, Outside, call, call_here, look

import semel

OUTSIDE: list[Outside] = []  # of the world that runs


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


app = semel.App("sqlite:///:memory:", tenant=None)
PERSON = semel.Ask(settle=seconds(SETTLE))
common: dict[str, Any] = {"intent": ("n",), "timeout": seconds(2), "not_done": (ConnectionRefusedError,)}


async def find(submission: semel.Submission) -> semel.Verdict:
    return await look(OUTSIDE[-1], submission)


def find_here(submission: semel.Submission) -> semel.Verdict:
    return OUTSIDE[-1].find(submission.key)


@app.effect(**common, material=("cents",), recovery=[semel.Resend(within=seconds(WITHIN)), PERSON])
async def charge(submission: semel.Submission, n: int, cents: int) -> str:
    return await call(OUTSIDE[-1], "charge", submission)


@app.effect(**common, recovery=[semel.Lookup(find, settle=seconds(SETTLE)), PERSON])
async def mail(submission: semel.Submission, n: int, cents: int) -> str:
    return await call(OUTSIDE[-1], "mail", submission)


@app.effect(**common, recovery=[semel.Resend(within=None), PERSON])
async def put(submission: semel.Submission, n: int, cents: int) -> str:
    return await call(OUTSIDE[-1], "put", submission)


@app.effect(**common, recovery=PERSON)
async def wire(submission: semel.Submission, n: int, cents: int) -> str:
    return await call(OUTSIDE[-1], "wire", submission)


@app.effect(**common, recovery=[semel.Resend(within=seconds(WITHIN)), semel.Lookup(find, settle=seconds(SETTLE)), PERSON])
async def pay(submission: semel.Submission, n: int, cents: int) -> str:
    return await call(OUTSIDE[-1], "pay", submission)


@app.effect(**common, scope="tenant", recovery=[semel.Lookup(find, settle=seconds(SETTLE)), PERSON])
async def invite(submission: semel.Submission, n: int, cents: int) -> str:
    return await call(OUTSIDE[-1], "invite", submission)


@app.effect(**common, scope="tenant", recovery=[semel.Resend(within=seconds(WITHIN)), PERSON])
async def refund(submission: semel.Submission, n: int, cents: int) -> str:
    return await call(OUTSIDE[-1], "refund", submission)


@app.effect(**common, approve=True, recovery=[semel.Lookup(find, settle=seconds(SETTLE)), PERSON])
async def gift(submission: semel.Submission, n: int, cents: int) -> str:
    return await call(OUTSIDE[-1], "gift", submission)


@app.effect(**common, recovery=[semel.Lookup(find_here, settle=seconds(SETTLE)), PERSON])
def ring(submission: semel.Submission, n: int, cents: int) -> str:
    return call_here(OUTSIDE[-1], "ring", submission)


@app.step()
async def think(what: str) -> str:
    return f"thought of {what}"


EFFECTS = {"charge": charge, "mail": mail, "put": put, "wire": wire, "pay": pay, "invite": invite, "refund": refund, "gift": gift}
OPAQUE = {"wire"}


async def does(op: list[Any]) -> str:
    """One thing that a task's plan says."""
    outside, (what, *rest) = OUTSIDE[-1], op
    if what in EFFECTS:
        return str(await EFFECTS[what](rest[0], 100))
    if what == "sleep":
        semel.sleep(seconds(rest[0]))
    elif what == "wait":
        try:
            semel.wait_for(rest[0], timeout=seconds(8))
            outside.counters["signals heard"] += 1
        except TimeoutError:
            outside.counters["waits that ran out"] += 1
    elif what == "step":
        return await think(rest[0])
    elif what == "spend":
        semel.spend(usd="0.6")
    elif what == "fail" and outside.chance(0.5):
        outside.counters["failures"] += 1
        raise ValueError("as the seed says")
    return what


async def job_of(plan: list[list[Any]]) -> list[str]:
    found = []
    for op in plan:
        try:
            found.append(await does(op))
        except (semel.Refused, semel.NotDone) as error:  # as an agent reads it
            found.append(type(error).__name__)
    return found


RETRY = semel.Retry(max_attempts=6, max_crashes=8, backoff=seconds(0.5))


@app.task(retry=RETRY)
async def job(plan: list[list[Any]]) -> list[str]:
    return await job_of(plan)


@app.task(retry=RETRY, limits=semel.Limits(effects=2, usd="1"))
async def thrifty(plan: list[list[Any]]) -> list[str]:
    return await job_of(plan)


@app.task(retry=RETRY)
def chore(plan: list[list[Any]]) -> list[str]:
    return [ring(op[1], 100) for op in plan]

"""The outside world: a network that delays, drops and delivers late, and providers that keep books of what they really did."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim_clockwork import Proc, Sim, sim

import semel

LATE = 3.0  # seconds: a request that was sent is acted upon within so long, or never
LAG = 1.0  # seconds: what was done is found within so long
WITHIN = 30.0  # seconds: so long a keyed provider remembers at least
CLOCKS = 25.0  # seconds: by so much all clocks together may be set back, which its memory must outlast
SETTLE = 5.0  # seconds, as the code declares it: more than LATE + LAG


class Declined(Exception):
    """The provider says no, and that nothing happened."""


@dataclass(frozen=True, slots=True)
class Act:
    """Something that really happened."""

    provider: str
    key: str
    sent: float
    at: float
    seen: float  # from then on a lookup finds it
    token: int
    result: str
    sender: str


@dataclass(slots=True)
class Request:
    """On its way, whatever becomes of its sender."""

    provider: str
    key: str
    token: int
    proc: Proc
    answer: Callable[[Any], None]  # of the sender; a result or an exception
    sent: float


class Outside:
    """The network and the books. faults: how bad the weather is, 0 to 1."""

    def __init__(self, world: Sim, counters: Counter[str], story: Callable[[str], None]) -> None:
        self.sim, self.counters, self.story = world, counters, story
        self.faults = 0.0
        self.acts: list[Act] = []
        self.by_key: dict[str, list[Act]] = {}
        self.declined: set[str] = set()
        self.senders: dict[tuple[str, int], set[str]] = {}  # by key and token
        self.under_way: Counter[str] = Counter()  # requests that may still be acted upon

    def chance(self, share: float) -> bool:
        return self.sim.random.random() < share * self.faults

    # --- a changing request ---

    def send(self, provider: str, submission: semel.Submission, answer: Callable[[Any], None]) -> None:
        """From the process that runs now. Raises ConnectionRefusedError: provably nothing left it."""
        lane, draw = self.sim.lane, self.sim.random
        assert lane is not None
        if self.chance(0.06):
            self.counters["refused"] += 1
            raise ConnectionRefusedError("nobody listens")
        request = Request(provider, submission.key, submission.token, lane.proc, answer, self.sim.now)
        self.senders.setdefault((request.key, request.token), set()).add(lane.proc.name)
        self.story(f"{lane.proc.name} sends {provider} {submission.key[:10]} #{submission.number}")
        delay = draw.uniform(0.005, 0.15)
        if self.chance(0.12):
            self.counters["requests lost"] += 1
            if draw.random() < 0.5:
                self.sim.at(self.sim.now + delay, lambda: self.reply(request, ConnectionResetError("cut")))
            return
        if self.chance(0.15):
            delay = draw.uniform(0.3, LATE)
        self.under_way[request.key] += 1
        self.sim.at(self.sim.now + delay, lambda: self.arrive(request))

    def arrive(self, request: Request) -> None:
        """The provider has it now."""
        self.under_way[request.key] -= 1
        if request.proc.dead:
            self.counters["late acts"] += 1
        result = self.act(request)
        if isinstance(result, str) and self.chance(0.2):
            self.counters["replies lost"] += 1
            if self.sim.random.random() < 0.6:
                return
            result = ConnectionResetError("cut after it was done")
        self.sim.at(self.sim.now + self.sim.random.uniform(0.005, 0.15), lambda: self.reply(request, result))

    def reply(self, request: Request, result: Any) -> None:
        if not request.proc.dead:
            request.answer(result)

    def act(self, request: Request) -> str | Exception:
        """By the manner of the provider."""
        key, name, now = request.key, request.provider, self.sim.now
        before = self.by_key.get(key, [])
        if name in ("charge", "pay", "refund"):
            if before and now - before[0].at < WITHIN + CLOCKS:
                self.counters["answered from the provider's memory"] += 1
                return before[0].result
        elif name == "put" and before:
            self.counters["create-only refusals"] += 1
            return semel.AlreadyDone(before[0].result)
        if key in self.declined or (not before and self.chance(0.02)):
            self.declined.add(key)
            self.counters["declined"] += 1
            return Declined("no such account")
        seen, sender = now + self.sim.random.uniform(0, LAG), request.proc.name
        found = Act(name, key, request.sent, now, seen, request.token, f"r{len(self.acts)}", sender)
        self.acts.append(found)
        self.by_key.setdefault(key, []).append(found)
        self.story(f"the world: {name} {key[:10]} happens")
        return found.result

    # --- asking ---

    def find(self, key: str) -> semel.Verdict:
        """What a lookup sees at this moment."""
        for act in self.by_key.get(key, []):
            if act.seen <= self.sim.now:
                self.counters["lookups: found"] += 1
                return semel.Confirmed(act.result)
        self.counters["lookups: not found"] += 1
        return semel.NotFound()

    def books(self, key: str) -> Act | None:
        """What a person reads there, who sees all of it."""
        found = self.by_key.get(key)
        return found[0] if found else None


async def call(outside: Outside, provider: str, submission: semel.Submission) -> str:
    """A request of an async effect's."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def told(result: Any) -> None:
        if not future.done():
            loop.call_soon_threadsafe(lambda: future.done() or future.set_result(result))

    outside.send(provider, submission, told)
    return judged(await future)


def call_here(outside: Outside, provider: str, submission: semel.Submission) -> str:
    """A request of a plain effect's: its thread waits, with a timeout of its own."""
    here = sim()
    lane, answers = here.lane, list[Any]()
    assert lane is not None

    def told(result: Any) -> None:
        answers.append(result)
        here.wake(lane)

    outside.send(provider, submission, told)
    if not answers and not here.block(submission.seconds_left + here.random.uniform(-0.2, 0.4)):
        raise TimeoutError("no answer")
    return judged(answers[0])


def judged(result: Any) -> str:
    if isinstance(result, Declined):
        raise semel.NotDone(str(result), retry=False)
    if isinstance(result, Exception):
        raise result
    return str(result)


async def look(outside: Outside, submission: semel.Submission) -> semel.Verdict:
    """An async lookup."""
    draw = outside.sim.random
    await asyncio.sleep(draw.uniform(0.005, 0.1))
    if outside.chance(0.15):
        outside.counters["lookups: unavailable"] += 1
        if draw.random() < 0.5:
            raise ConnectionResetError("cut")
        return semel.Unavailable("it is being moved")
    verdict = outside.find(submission.key)
    await asyncio.sleep(draw.uniform(0.005, 0.1) + (draw.uniform(0.5, 2.5) if outside.chance(0.1) else 0))
    return verdict

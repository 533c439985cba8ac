"""Work that can never end well becomes a dead letter within its limits, with the reason, and holds up nobody."""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal

import pytest
from lab import ROUNDS, Lab, until

import semel
from semel.engine import views
from semel.engine.queue import Order
from semel.machine.limits import Used

POISON = ("rejected", "deadly", "creative", "obsessed")
SECONDS_OF_A_KILL = 10  # far more than it takes to start a worker and to take back what the dead one held


def used(lab: Lab, ref: semel.Ref[str]) -> Used:
    return views.state_of(lab.app.runtime.desk, ref.tenant, ref.id).used


def enqueue_many(lab: Lab, name: str, count: int) -> list[semel.Ref[str]]:
    async def all_at_once() -> list[semel.Ref[str]]:
        orders = [Order("default", "healthy", f"{name}{n}", {"ref": f"{name}{n}"}, "default") for n in range(count)]
        return list(await asyncio.gather(*(lab.app.aaccept(order) for order in orders)))

    return asyncio.run(all_at_once())


def keep_working(lab: Lab) -> None:
    """Two workers; one that was killed is started again, as its supervisor would."""
    for _ in range(2 - sum(worker.alive for worker in lab.workers)):
        lab.worker("poisons", concurrency=40)


def serve_all(lab: Lab, name: str, count: int) -> tuple[list[semel.Ref[str]], float]:
    """Enqueue healthy tasks, and wait until all are done; how long that took, in seconds."""
    counts = lab.app.runtime.desk.store.counts
    began, before = time.monotonic(), counts(None)["execution"].get("succeeded", 0)
    refs = enqueue_many(lab, name, count)

    def done() -> bool:
        keep_working(lab)
        return counts(None)["execution"].get("succeeded", 0) == before + count

    until("the healthy are done", done, 120)
    return refs, time.monotonic() - began


def test_poison_becomes_a_dead_letter_within_its_limits_and_a_thousand_behind_it_are_not_delayed(lab: Lab, dialect: str) -> None:
    count = 1000 if dialect == "sqlite" or ROUNDS > 1 else 300
    keep_working(lab)
    healthy, alone = serve_all(lab, "a", count)  # the control: without poison, in the same run
    poison = {kind: lab.enqueue(kind, kind, ref=kind) for kind in POISON}
    behind, beside = serve_all(lab, "b", count)

    def over() -> bool:
        keep_working(lab)
        return all(lab.task(ref).delivery == "dead_lettered" for ref in poison.values())

    until("all poison is given up", over, 60)
    whys = {kind: lab.task(ref).why for kind, ref in poison.items()}
    assert whys["rejected"] == "failed 4 times: ValueError: this will never do"
    assert whys["deadly"] == "its worker died 3 times while running it, the last time alone"
    assert whys["creative"] == "failed 4 times: RuntimeError: the customer is still unhappy"
    assert whys["obsessed"].startswith("spent 0.") and whys["obsessed"].endswith(" usd of 0.50")
    assert [line for _, line in lab.diary() if line.startswith("deadly")] == ["deadly 1", "deadly 2", "deadly 3"]
    assert lab.events(poison["creative"], "declined"), "it was told, and did not hear"
    assert Decimal("0.50") < used(lab, poison["obsessed"]).usd < 2, "what it said that it had spent, to the last cent"

    assert beside < 3 * alone + 3 * SECONDS_OF_A_KILL, (alone, beside)
    ends = sorted(lab.events(ref, "finished")[0].at for ref in behind)
    for kind in ("rejected", "deadly", "creative"):
        first, last = lab.events(poison[kind], "claimed")[0].at, lab.events(poison[kind], "dead_lettered")[0].at
        served = sum(first < end < last for end in ends)
        assert served or ends[-1] < first, f"nobody was served while {kind} was tried again and again"
    refunds = len({act.key for act in lab.acts("refund")})
    assert refunds == 2, "one for each of the two agents, of all the variants that they invented"
    lab.proved(*healthy[:3], *behind[:3], *poison.values(), acts={"serve": 2 * count, "refund": 2})


@pytest.mark.long
def test_what_was_spent_before_a_kill_counts_and_the_limit_ends_the_task(lab: Lab) -> None:
    """Killed between a spending and the next intent, and after the effect: 0.40 each time, of 1."""
    ref = lab.enqueue("spends", "s", ref="s")
    for gate, spent in (("spent", "0.40"), ("served", "0.80")):
        lab.arm(gate)
        worker = lab.worker("poisons")
        lab.arrived(gate)
        until("it is on record", lambda spent=spent: used(lab, ref).usd == Decimal(spent))
        assert len(lab.events(ref, "intended")) == (0 if gate == "spent" else 1)
        worker.kill()
    lab.worker("poisons")
    state = lab.wait(ref)
    assert (state.delivery, state.why, state.attempt) == ("dead_lettered", "spent 1.20 usd of 1", 3)
    assert used(lab, ref).total[:2] == (Decimal("1.20"), 300)
    lab.app.review.replay(ref, by="ann", reason="it may cost one more")
    assert lab.result(ref) == "s"
    assert used(lab, ref).total[:2] == (Decimal("1.60"), 400)
    lab.proved(ref, acts={"serve": 1})

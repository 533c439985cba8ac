"""How a claim gets past what cannot be claimed, and comes back to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.machine.projection import ReadyRow
from semel.store.contract import Claims, ClaimUnit, Guard
from semel.store.passed import AGAIN_SECONDS, BEFORE_ALL, FEW, MOST_PASSED_OVER, SHARE, Asked, Found, Passed, Starts, Walk


class Queue:
    """Rows of one group in their order, of which none can be claimed; some because a rival is faster."""

    def __init__(self, count: int, *, seconds: float = 0.0, raced: Sequence[int] = ()) -> None:
        self.rows = [ReadyRow("q", "k", 0, n, "t", f"s{n}") for n in range(count)]
        self.now, self.seconds, self.raced = 0.0, seconds, set(raced)
        self.passed = Passed(lambda: self.now)
        self.asked: list[int] = []

    def find(self, limit: int, turns: int, starts: Starts) -> Found:
        return Found([row for row in self.rows if row[3:] > starts.get(("q", "k", 0), BEFORE_ALL)][:limit])

    def take(self, rows: Sequence[ReadyRow], most: int) -> list[Asked]:
        self.now += self.seconds
        self.asked += [row.due for row in rows]
        return [Asked(row, None, row.due not in self.raced) for row in rows]

    def claim(self, *, limit: int = 1, tenant: str | None = None, commits: bool = True) -> Walk:
        self.asked.clear()
        never: Any = None
        unit = ClaimUnit(Guard("s", 1, 0), 0, limit, never, tenant=tenant)
        walk = self.passed.walk(unit, self.find, self.take)
        if commits:
            self.passed.learn(walk)
        return walk


def test_a_claim_gives_up_and_the_next_goes_on_there() -> None:
    queue = Queue(2 * MOST_PASSED_OVER)
    first = queue.claim()
    assert first.claims == Claims((), more=True)
    assert MOST_PASSED_OVER < len(queue.asked) < 1.5 * MOST_PASSED_OVER
    last = queue.asked[-1]
    assert queue.claim().claims == Claims(())
    assert queue.asked == list(range(last + 1, 2 * MOST_PASSED_OVER))


def test_a_few_are_asked_for_by_every_claim() -> None:
    queue = Queue(FEW)
    for _ in range(3):
        queue.claim(limit=5)
        assert queue.asked == list(range(FEW))


def test_what_was_passed_over_is_asked_for_again() -> None:
    queue = Queue(100)
    queue.claim()
    queue.now += AGAIN_SECONDS - 0.1
    queue.claim()
    assert queue.asked == []
    queue.now += 0.2
    queue.claim()
    assert queue.asked == list(range(100))


def test_a_long_way_is_gone_less_often() -> None:
    queue = Queue(10 * MOST_PASSED_OVER, seconds=1.0)
    while queue.claim().gave_up:
        pass
    took = queue.now
    queue.now += took * (SHARE - 2)
    queue.claim()
    assert queue.asked == []
    queue.now += took * 2
    queue.claim()
    assert queue.asked[0] == 0


def test_a_claim_that_was_not_committed_says_nothing() -> None:
    queue = Queue(100)
    queue.claim(commits=False)
    queue.claim()
    assert queue.asked == list(range(100))


def test_what_a_rival_was_faster_at_is_asked_for_by_the_next_claim() -> None:
    queue = Queue(100, raced=[40])
    queue.claim()
    assert queue.asked == list(range(100)), "it does not stop at it"
    queue.claim()
    assert queue.asked == list(range(40, 100))


def test_what_one_tenant_passed_over_says_nothing_of_the_others() -> None:
    queue = Queue(100)
    queue.claim(tenant="a")
    queue.claim(tenant="b")
    assert len(queue.asked) == 100
    queue.claim(tenant="a")
    assert queue.asked == []

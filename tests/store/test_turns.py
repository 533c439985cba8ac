"""Whose turn it is: what is remembered between claims."""

from __future__ import annotations

from typing import Any

from semel.machine.projection import ReadyRow
from semel.store.contract import ClaimUnit, Guard
from semel.store.turns import AGAIN_SECONDS, LOOK_AHEAD, LOOKS, SHARE, Turns, one_by_one


class Waiting:
    """What waits, asked for its turns; which questions were asked."""

    def __init__(self, rows: list[ReadyRow], *, seconds: float = 0.0) -> None:
        self.rows, self.now, self.seconds = rows, 100.0, seconds  # that a look takes, for each line
        self.turns = Turns(lambda: self.now)
        self.looked = 0

    def next_line(self, place: tuple[Any, ...]) -> list[Any]:
        self.looked += 1
        self.now += self.seconds
        lines = {(row.queue, row.kind, row.tenant, row.rank): row.due for row in sorted(self.rows, reverse=True)}
        behind = sorted((line, due) for line, due in lines.items() if line[:2] == place[:2] and line > place)
        return [(*line[2:], due) for line, due in behind[:1]]

    def in_turn(self, asked: tuple[Any, ...]) -> list[Any]:
        *line, at, due, task, limit = asked
        found = [row for row in self.rows if [row.queue, row.kind, row.tenant, row.rank] == line and row.due <= at]
        return sorted(row for row in found if (row.due, row.task) > (due, task))[:limit]

    def claim(self, most: int, *, serves: str = "", refuses: str = "", queues: tuple[str, ...] = ("q",)) -> list[str]:
        never: Any = None
        unit = ClaimUnit(Guard("s", 1, 0), 50, 8, never, queues, ("k",))
        rows = one_by_one(self.turns, unit, most, lambda name, params: getattr(self, name)(params))
        for row in rows:
            claimed = not (refuses and row.task.startswith(refuses))
            self.turns.learn(row, claimed=claimed)
            if claimed:
                self.rows.remove(row)
        self.turns.after([serves] if serves else [], full=True)
        return [row.task for row in rows]


def ready(tenant: str, task: str, *, rank: int = 0, due: int = 1, queue: str = "q") -> ReadyRow:
    return ReadyRow(queue, "k", rank, due, tenant, task)


def test_each_tenant_has_one_and_then_all_have_another() -> None:
    waiting = Waiting([ready(name, f"{name}{n}") for name in "abcde" for n in range(2)])
    waiting.claim(1)
    got = [waiting.claim(2) for _ in range(7)]
    assert [task for one in got for task in one] == ["a0", "b0", "c0", "d0", "e0", "a1", "b1", "c1", "d1", "e1"]


def test_who_is_served_anyhow_has_no_turn_and_few_have_more() -> None:
    waiting = Waiting([ready(name, f"{name}{n}") for name in ("big", "small") for n in range(9)])
    waiting.claim(0, serves="big")
    waiting.claim(6, serves="big")
    assert waiting.claim(6, serves="big") == [f"small{n}" for n in range(6)]


def test_a_tenants_own_priorities_hold_and_what_is_not_due_keeps_nobody() -> None:
    waiting = Waiting([ready("a", "later", rank=-9, due=51), ready("a", "low", rank=5), ready("a", "high", rank=-1)])
    waiting.claim(1)
    assert waiting.claim(1) + waiting.claim(1) + waiting.claim(1) == ["high", "low"]


def test_many_are_found_so_many_at_a_time() -> None:
    waiting = Waiting([ready(f"t{n:04}", f"{n:04}") for n in range(3 * LOOK_AHEAD)])
    got, most = [], 0
    while len(got) < 3 * LOOK_AHEAD:
        before = waiting.looked
        got += waiting.claim(8)
        most = max(most, waiting.looked - before)
    assert got == [f"{n:04}" for n in range(3 * LOOK_AHEAD)]
    assert most <= LOOK_AHEAD


def test_what_cannot_be_claimed_keeps_nobody_behind_it_and_is_asked_for_again() -> None:
    rows = [ready("a", "no1", due=1), ready("a", "no2", due=2), ready("a", "yes", due=3), ready("a", "no3", rank=-1)]
    waiting = Waiting([*rows, ready("a", "calm", rank=1)])
    got = [task for _ in range(14) for task in waiting.claim(1, refuses="no")]
    assert got == ["no3", "no1", "no2", "yes", "calm"]
    waiting.now += AGAIN_SECONDS
    got = [task for _ in range(14) for task in waiting.claim(1, refuses="no")]
    assert got == ["no3", "no1", "no2"]


def test_a_claim_of_other_queues_takes_nothing_of_what_another_has_found() -> None:
    waiting = Waiting([ready("a", "mine"), ready("a", "other", queue="q2")])
    waiting.claim(1, queues=("q", "q2"))
    assert waiting.claim(1, queues=("q2",)) == ["other"]


def test_dear_looks_take_a_tenth_of_the_time_and_what_is_known_is_used_meanwhile() -> None:
    waiting = Waiting([ready(name, f"{name}{n:02}", due=n) for name in "ab" for n in range(30)], seconds=1.0)
    for _ in range(LOOKS):
        waiting.claim(2)
    looked, known = waiting.looked, 2 * (LOOKS - 1)
    took = looked / LOOKS
    assert [waiting.claim(2) for _ in range(3)] == [[f"a{n:02}", f"b{n:02}"] for n in range(known // 2, known // 2 + 3)]
    waiting.now += took * SHARE - 0.1
    waiting.claim(2)
    assert waiting.looked == looked
    waiting.now += 0.1
    waiting.claim(2)
    assert waiting.looked > looked

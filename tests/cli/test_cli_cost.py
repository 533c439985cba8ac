"""What a task has cost is shown wherever a person decides about it: `show`, `dead`, `why`, `replay`; and to programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_office import Office

import semel

LIMITS = semel.Limits(usd="2", tokens=5000, seconds=600)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """One task is beyond its money, one has no limit, one met that of its effects, one was replayed."""
    office = Office(tmp_path)
    app = semel.App(office.url, watchdog="never")

    def enter(key: str, *amounts: str, limits: semel.Limits = LIMITS) -> None:
        with app.work(key, kind="loop", limits=limits):
            for usd in amounts:
                semel.spend(usd=usd, tokens=1200)

    with pytest.raises(semel.Unsettled):
        enter("dear", "1.50", "0.53")
    enter("free", limits=semel.Limits())

    @app.effect(intent=("n",))
    def act(submission: semel.Submission, n: int) -> int:
        return n

    with pytest.raises(semel.Refused), app.work("acts", kind="loop", limits=semel.Limits(effects=0)):
        act(1)
    with pytest.raises(semel.Unsettled) as left:
        enter("again", "2.50")
    app.review.replay(left.value.ref, by="ann")
    enter("again", "0.25")
    app.close()
    yield office


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_dead_letter_says_what_it_has_cost(office: Office) -> None:
    shown = flat(office.look("dead").stdout)
    assert "why spent 2.03 usd of 2" in shown and "; 2.03 usd of 2, 2400 tokens of 5000, " in shown
    (dead,) = (one for one in office.json("dead")["dead"] if one["key"] == "dear")
    assert dead["used"]["usd"] == "2.03" and dead["used"]["limits"] == {"usd": "2", "tokens": 5000, "ran_ms": 600_000}


def test_show_tells_what_was_used_and_of_how_much(office: Office) -> None:
    assert "used 2.03 usd of 2, 2400 tokens of 5000, " in flat(office.look("show", "dear").stdout)
    assert " used " not in flat(office.look("show", "free").stdout)
    again = flat(office.look("show", "again").stdout)
    assert "used 0.25 usd of 2, 1200 tokens of 5000" in again
    assert "with what was before its replay: 2.75 usd, 2400 tokens" in again
    used = office.json("show", "again")["execution"]["used"]
    assert (used["usd"], used["counted"]["usd"], used["tokens"], used["counted"]["tokens"]) == ("2.75", "0.25", 2400, 1200)
    assert used["ran_ms"] >= used["counted"]["ran_ms"] >= 0


def test_the_story_tells_each_spending_and_the_end(office: Office) -> None:
    told = flat(office.look("why", "dear").stdout)
    assert "Attempt 1 has spent 1.50 usd and 1200 tokens." in told
    assert "dead-lettered: spent 2.03 usd of 2" in told
    assert "Next: if it may have as much again, then semel replay" in told
    told = flat(office.look("why", "acts").stdout)
    assert "Next: if it may do more, raise Limits(effects=) or per_task= in the code, then semel replay" in told


def test_who_replays_is_told_that_its_limits_count_afresh(office: Office) -> None:
    said = flat(office.look("replay", "dear", "--by", "ann").stdout)
    assert "is queued again, by ann. Its limits count afresh: 2 usd, 5000 tokens, 10 min of running. Its effects do not." in said
    assert "afresh" not in office.look("replay", "free", "--by", "ann").stdout

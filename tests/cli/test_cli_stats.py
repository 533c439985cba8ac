"""`semel stats`: what needs people first, the depth of queues last; at 80 columns and for programs."""

from __future__ import annotations

import re

from cli_office import Office


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def test_what_needs_people_comes_first_and_the_depth_of_queues_last(worked: Office) -> None:
    shown = worked.look("stats", "--all-tenants").stdout
    assert max(map(len, shown.splitlines())) <= 80
    parts = [
        "UNKNOWN 1 effect, the oldest for", ": semel unknown", "DEAD 2 letters: semel dead", "delivery 1 queued",
        "execution 1 not_started", "effects 1 not_attempted", "workers 0 alive", "QUEUE KIND WAITING LATE", "default count 1",
    ]  # fmt: skip
    places = [flat(shown).find(part) for part in parts]
    assert -1 not in places and places == sorted(places), shown
    assert "default count" not in worked.look("stats").stdout, "that is another tenant's"


def test_numbers_for_programs(worked: Office) -> None:
    data = worked.json("stats", "--all-tenants")
    counts = worked.json("tasks", "--all-tenants")["counts"]
    assert {state: many for state, many in data["delivery"].items() if many} == counts["delivery"]
    assert (data["unknown"], data["dead"], data["approvals"], data["paused"]) == (1, 2, 0, [])
    (waiting,) = data["waiting"]
    assert {**waiting, "late_ms": 0} == {"queue": "default", "kind": "count", "waiting": 1, "late_ms": 0}


def test_a_quiet_store_says_so(fresh: Office) -> None:
    fresh.python("import clerk; clerk.count.enqueue(1); clerk.app.close()")
    fresh.look("pause", "--kind", "count", "--by", "ann")
    told = flat(fresh.look("stats").stdout)
    assert told.startswith("NOTHING NEEDS YOU") and "paused kind count" in told and "default count 1" in told

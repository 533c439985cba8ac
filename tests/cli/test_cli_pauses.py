"""`semel pause`, `resume`, `drain`, `paused`: at 80 columns, for programs, with exit codes."""

from __future__ import annotations

import re
import time

from cli_office import Office

BY = ("--by", "ann")


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def test_pausing_and_resuming_is_told(office: Office) -> None:
    assert flat(office.look("paused").stdout) == "Nothing is paused."
    told = flat(office.look("pause", "--queue", "billing", *BY, "--reason", "the bank is down").stdout)
    assert re.fullmatch(r"queue billing: paused by ann .* ago the bank is down", told), told
    (one,) = office.json("paused")["paused"]
    assert {**one, "at": 0} == {
        "what": "queue", "name": "billing", "by": "ann", "why": "the bank is down", "at": 0, "at_work": 0,
    }  # fmt: skip
    assert "paused already, by ann" in flat(office.look("pause", "--queue", "billing", *BY, code=1).stderr)
    office.look("pause", "--all", *BY)
    told = flat(office.look("resume", "--queue", "billing", *BY).stdout)
    assert told.startswith("queue billing is not paused any more, by ann. Still paused: everything: paused by ann"), told
    assert "not paused" in flat(office.look("resume", "--kind", "bill", *BY, code=1).stderr)
    office.look("resume", "--all", *BY)
    assert office.json("paused") == {"paused": []}
    assert office.json("verify")["whole"] is True


def test_what_and_who_must_be_said(office: Office) -> None:
    for command in ("pause", "resume", "drain"):
        assert "one thing" in flat(office.look(command, *BY, code=2).stderr)
        assert "one thing" in flat(office.look(command, "--all", "--kind", "bill", *BY, code=2).stderr)
        assert "SEMEL_BY" in flat(office.look(command, "--all", code=2).stderr)


def test_a_drain_waits_for_what_runs_and_no_longer(fresh: Office) -> None:
    fresh.python("import clerk; clerk.dawdle.enqueue(2); clerk.dawdle.enqueue(3); clerk.app.close()")
    worker = fresh.start("worker", "clerk:app", "--concurrency", "1")
    until = time.monotonic() + 30
    while fresh.json("tasks")["counts"]["delivery"].get("leased", 0) == 0:
        assert time.monotonic() < until
        time.sleep(0.05)
    early = fresh.semel("drain", "--kind", "dawdle", "--seconds", "0", *BY, code=1)
    assert "NOT DRAINED kind dawdle: 1 attempt still under way." in flat(early.stdout)
    done = flat(fresh.semel("drain", "--kind", "dawdle", *BY).stdout)
    assert done.endswith("DRAINED Nothing of it runs: kind dawdle. It stays paused; to go on: semel resume --kind dawdle"), done
    states = fresh.json("tasks")["counts"]["delivery"]
    assert states == {"acknowledged": 1, "queued": 1}, "the second was not begun"
    assert fresh.json("drain", "--all", *BY)["at_work"] == 0
    assert worker.poll() is None

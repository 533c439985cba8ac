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
    fresh.python("import clerk; clerk.linger.enqueue('a'); clerk.linger.enqueue('b'); clerk.app.close()")
    worker = fresh.start("worker", "clerk:app", "--concurrency", "1")
    until = time.monotonic() + 60
    while fresh.json("tasks")["counts"]["delivery"].get("leased", 0) == 0:
        assert time.monotonic() < until
        time.sleep(0.05)
    early = fresh.look("drain", "--kind", "linger", "--seconds", "0", *BY, code=1)
    assert "NOT DRAINED kind linger: 1 attempt still under way." in flat(early.stdout)
    drain = fresh.start("drain", "--kind", "linger", *BY)
    while "still under way" not in fresh.log(1):
        assert time.monotonic() < until and drain.poll() is None
        time.sleep(0.05)
    (fresh.folder / "free").touch()
    assert drain.wait(60) == 0
    told = flat(fresh.log(1))
    assert told.endswith("DRAINED Nothing of it runs: kind linger. It stays paused; to go on: semel resume --kind linger"), told
    states = fresh.json("tasks")["counts"]["delivery"]
    assert states == {"acknowledged": 1, "queued": 1}, "the second was not begun"
    assert fresh.json("drain", "--all", *BY)["at_work"] == 0
    assert worker.poll() is None

"""`semel restore`: whether the store went back, and what a person says of it, at 80 columns and for programs."""

from __future__ import annotations

import json
import re
import shutil
import time
from datetime import datetime

import pytest
from cli_office import Office

WHO = ("--by", "ann", "--reason", "the disk of Monday 03:00 was put back")


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def take_back(office: Office) -> None:
    """The office as it was before one more task was accepted and done."""
    copy = office.folder / "backup.db"
    shutil.copy(office.store, copy)
    office.python("import clerk; clerk.bill.enqueue('inv_lost'); clerk.app.close()")
    for suffix in ("", "-wal", "-shm"):
        (office.folder / f"office.db{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, office.store)


@pytest.fixture
def back(office: Office) -> Office:
    take_back(office)
    return office


def test_a_store_that_never_went_back_says_so(office: Office) -> None:
    told = office.look("restore").stdout
    assert re.match(r"The store is in its first epoch \(\d+\): it never went back\.\n$", flat(told).strip() + "\n"), told
    data = office.json("restore")
    assert {**data, "epoch": 0, "witness": ""} == {
        "epoch": 0, "incarnation": "", "began": None, "by": None, "went_back_to": None, "doubt": False, "window": "closed",
        "watched": True, "missing": "", "witness": "",
    }  # fmt: skip
    assert data["witness"] == f"{office.store}.witness" and data["epoch"] > 1_700_000_000


def test_without_a_witness_it_says_that_too(office: Office) -> None:
    (office.folder / "office.db.witness").unlink()
    assert "This machine has no witness of it yet" in flat(office.look("restore").stdout)
    assert office.json("restore")["witness"] is None


def test_a_store_that_went_back_is_told_with_the_line_to_type(back: Office) -> None:
    done = back.look("restore", code=1)
    assert flat(done.stdout).startswith("WENT BACK The store does not hold row 1 of ")
    assert "  semel restore --old-is-down --by YOU --reason WHY" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    data = json.loads(back.look("restore", "--json", code=1).stdout)
    assert data["missing"].startswith("row 1 of ") and data["doubt"] is False


def test_a_person_says_it_and_closes_the_window_and_lifts_the_doubt(back: Office) -> None:
    before = json.loads(back.look("restore", "--json", code=1).stdout)["epoch"]
    told = back.look("restore", "--old-is-down", *WHO).stdout
    assert re.match(r"Epoch \d+ began at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, by ann\.\n", told), told
    assert "  why       the disk of Monday 03:00 was put back\n" in told
    assert "claims none yet: a worker, or semel restore --watch, watches the largest lease first" in flat(told)
    assert "  doubt     stands:" in told and "  window    open:" in told
    assert told.index("--close-window --by") < told.index("--lift-doubt --by")
    assert all(len(line) <= 80 for line in told.splitlines())
    data = back.json("restore")
    assert data["epoch"] > before and data["by"] == "person:ann" and data["missing"] == ""
    assert (data["doubt"], data["window"], data["watched"]) == (True, "open", False)
    assert data["went_back_to"] <= data["began"]
    closed = back.look("restore", "--close-window", *WHO).stdout
    assert "closed by ann" in closed and "--close-window --by" not in closed
    assert back.json("restore")["window"] == "closed"
    lifted = back.look("restore", "--lift-doubt", *WHO).stdout
    assert "  doubt     lifted by ann\n" in lifted and "--lift-doubt" not in lifted
    assert back.json("restore")["doubt"] is False
    again = back.look("restore", "--lift-doubt", *WHO, code=1)
    assert "stale_view: nothing in this store is in doubt" in again.stderr
    assert back.look("verify").stdout.startswith("WHOLE")


def test_what_a_person_says_is_on_record_for_why(back: Office) -> None:
    back.look("restore", "--old-is-down", *WHO)
    rows = [json.loads(line) for line in back.python(
        "import json, clerk; print(json.dumps([[r.kind, r.actor] for r in clerk.app.runtime.desk.store.rows('', 'store')]))"
    ).splitlines()]  # fmt: skip
    assert rows == [[["epoch_began", "person:ann"]]]


def test_an_epoch_is_above_what_a_person_knows_of(back: Office) -> None:
    back.look("restore", "--old-is-down", "--above", "5000000000", *WHO)
    assert back.json("restore")["epoch"] == 5_000_000_001


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--old-is-down", "--close-window", *WHO), "one statement at a time; write --old-is-down, then --watch"),
        (("--above", "7"), "--above goes with --old-is-down"),
        (("--old-is-down", "--above", "-1", *WHO), "--above -1 is no epoch; write the highest that was ever granted"),
        (("--old-is-down", "--above", "8589934591", *WHO), "is no epoch; write the highest that was ever granted"),
        (("--old-is-down", "--reason", "x"), "a decision is on record for ever and needs a name"),
        (("--old-is-down", "--by", "ann"), "it is on record for ever why: write --reason"),
        (("--close-window", "--by", "ann", "--reason", "  "), "it is on record for ever why: write --reason"),
        (("--lift-doubt", "--reason", "x"), "a decision is on record for ever and needs a name"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(back: Office, args: tuple[str, ...], said: str) -> None:
    assert said in flat(back.look("restore", *args, code=2).stderr)
    assert json.loads(back.look("restore", "--json", code=1).stdout)["began"] is None


@pytest.mark.parametrize("option", ["--close-window", "--lift-doubt"])
def test_where_nothing_is_in_doubt_there_is_nothing_to_end(office: Office, option: str) -> None:
    assert "stale_view: nothing in this store is in doubt" in office.look("restore", option, *WHO, code=1).stderr


def test_a_store_that_is_not_there_is_not_made(fresh: Office) -> None:
    fresh.look("restore", code=2)
    assert not fresh.store.exists()


def test_a_person_may_say_when_the_backup_was_made(office: Office) -> None:
    """Nothing is missing by this machine's witness: only they know. What was in doubt before, since when, stays."""
    office.python("import clerk; clerk.bill.enqueue('inv_now'); clerk.app.close()")
    soon = datetime.fromtimestamp(time.time() - 0.001).astimezone().isoformat()
    office.look("restore", "--old-is-down", *WHO, "--went-back-to", soon)
    said = office.json("restore")
    assert said["went_back_to"] % 1000 and time.time() * 1000 - said["went_back_to"] < 60_000
    office.look("restore", "--lift-doubt", *WHO)
    office.look("restore", "--old-is-down", *WHO)
    assert office.json("restore")["went_back_to"] == said_first(office) * 1000, "else it may have forgotten all since it was made"
    for time_, option in (("2040-01-01", "--old-is-down"), ("yesterday", "--old-is-down"), ("2026-01-01", "--close-window")):
        assert "--went-back-to" in office.look("restore", option, *WHO, "--went-back-to", time_, code=2).stderr


def said_first(office: Office) -> int:
    """The number of the first epoch."""
    program = """import clerk
from semel.machine import journal
row = clerk.app.runtime.desk.store.rows("", "store")[0]
print(journal.event_of(row).before)
clerk.app.close()
"""
    return int(office.python(program))


def test_it_watches_where_no_worker_lives_long_enough(back: Office) -> None:
    back.look("migrate", "--largest-lease", "1")
    back.look("restore", "--old-is-down", *WHO)
    assert back.json("restore")["watched"] is False
    told = flat(back.look("restore", "--watch").stdout)
    assert "what was under way before may still act for 1 s" in told and "claims" not in told
    assert back.json("restore")["watched"] is True
    assert "may still act" not in back.look("restore", "--watch").stdout, "once is enough"

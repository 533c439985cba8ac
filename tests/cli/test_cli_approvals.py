"""`semel approvals`, `approve`, `deny`: what would be sent is shown, a person decides, and the machine may refuse."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_office import Office

ASK = "import clerk\nclerk.remit.enqueue('inv_w')\nclerk.remit.enqueue('inv_c', 0)\nclerk.app.close()\n"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Office:
    """A store in which two tasks wait for approvals. Not to be changed."""
    office = Office(tmp_path_factory.mktemp("asked"))
    office.python(ASK)
    office.semel("worker", "clerk:app", "--until-idle")
    return office


@pytest.fixture
def office(asked: Office, tmp_path: Path) -> Office:
    """A copy of that store, to be changed."""
    copy = Office(tmp_path / "copy")
    shutil.copytree(asked.folder, copy.folder)
    return copy


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def key_of(office: Office, task: str) -> str:
    return str(next(one["key"] for one in office.json("approvals")["approvals"] if one["task_key"] == task))


def test_what_waits_is_listed_with_what_would_be_sent(office: Office) -> None:
    shown = office.look("approvals").stdout
    assert shown.startswith("APPROVALS  2 effects wait for people. Nothing is sent,")
    assert '  to send   {"invoice": "inv_w", "cents": 1200, "note": "due"}' in shown
    assert "  needs     2 different people; approved by nobody yet" in shown
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    (one,) = [x for x in office.json("approvals")["approvals"] if x["task_key"] == "inv_w"]
    assert set(one) == {"key", "tenant", "name", "task", "kind", "task_key", "args", "version", "approval"}
    assert set(one["approval"]) == {
        "waiting", "approvers", "since", "tasks", "asked_args", "edited", "approved", "denied",
    }  # fmt: skip
    tasks = office.look("tasks", "--delivery", "blocked").stdout
    assert tasks.count("blocked") >= 2 and "Next: semel approvals" in tasks
    assert "wire waits for approval" in office.look("show", "inv_w").stdout
    told = words(office.look("why", one["key"]).stdout)
    assert told.startswith("NOT ATTEMPTED wire of remit inv_w waits for approval, for")
    assert f"semel approve {one['key'][-8:]} --by YOU" in told
    assert "asks for wire, and a person must approve it: nothing is sent until then." in told


def test_approved_it_is_sent_and_the_story_says_by_whom(office: Office) -> None:
    key = key_of(office, "inv_w")
    done = office.look("approve", key[-8:], "--by", "ann", "--reason", "agreed", "--expires", "2h", "--yes")
    said = words(done.stdout)
    assert '{"invoice": "inv_w", "cents": 1200, "note": "due"}' in said
    assert (
        "On record: ann approves wire. Exactly this is sent, once, when a worker goes on with its task (none is running" in said
    )
    office.semel("worker", "clerk:app", "--until-idle")
    assert [line.partition(" sml_")[0] for line in office.world] == ["wire_1200_due inv_w"]
    told = words(office.look("why", key).stdout)
    assert "ann approves wire as it is on record, until" in told and "sends wire as it was approved" in told
    assert "approved  by ann" in office.look("show", "inv_w").stdout
    again = office.look("approve", key, "--by", "bob", "--yes", code=1)
    assert "stale_view: wire is not to be approved any more (it is confirmed)" in again.stderr
    assert office.look("verify").stdout.startswith("WHOLE")


def test_an_edit_is_shown_sent_and_on_record_beside_what_was_asked(office: Office) -> None:
    key = key_of(office, "inv_w")
    done = office.look("approve", key, "--by", "ann", "--yes", "--edit", '{"cents": 900}', "--app", "clerk:app")
    assert 'edited to {"invoice": "inv_w", "cents": 900, "note": "due"}' in words(done.stdout)
    shown = words(office.look("show", "inv_w").stdout)
    assert 'to send {"invoice": "inv_w", "cents": 900' in shown and 'asked {"invoice": "inv_w", "cents": 1200' in shown
    office.semel("worker", "clerk:app", "--until-idle")
    assert office.world[0].startswith("wire_900_due inv_w")


def test_denied_the_agent_is_told(office: Office) -> None:
    key = key_of(office, "inv_w")
    done = office.look("deny", key, "--by", "ann", "--reason", "not ours")
    assert "On record: ann denies wire. Nothing is sent; the agent is told so" in words(done.stdout)
    assert words(office.look("why", key).stdout).startswith(
        "NOT ATTEMPTED wire of remit inv_w is not sent: ann denied it: not ours."
    )
    office.semel("worker", "clerk:app", "--until-idle")
    assert office.json("show", "inv_w")["task"]["result"] == "denied: ann denied wire: not ours" and not office.world
    late = words(office.look("approve", key, "--by", "bob", "--yes").stdout)
    assert "if its task, which is acknowledged, is replayed (semel replay" in late


def test_two_different_people(office: Office) -> None:
    key = key_of(office, "inv_c")
    first = office.look("approve", key, "--by", "ann", "--yes")
    assert "It is sent when 1 other person has approved it too." in words(first.stdout)
    same = office.look("approve", key, "--by", "ANN", "--yes", code=1)
    assert "approval_required: ann approved close already: 1 other must, not the same" in same.stderr
    assert "approved by ann" in office.look("approvals").stdout
    data = office.json("approve", key, "--by", "bob", "--yes")
    assert not data["approval"]["waiting"] and data["delivery"] == "queued"


def test_nobody_approves_by_accident(office: Office) -> None:
    key = key_of(office, "inv_w")
    version = office.effect("inv_w", "wire")["version"]
    for args, code, said in (
        (["--yes"], 2, "needs a name; write --by YOU"),
        (["--by", "ann"], 2, "nobody is here to be asked"),
        (["--by", "ann", "--yes", "--seen", str(version - 1)], 1, "stale_view: wire has moved on since you looked"),
        (["--by", "ann", "--yes", "--edit", "{"], 2, "--edit is not JSON"),
        (["--by", "ann", "--yes", "--edit", "[1]"], 2, "--edit names arguments"),
        (["--by", "ann", "--yes", "--edit", '{"cent": 1}'], 2, "none of its arguments"),
        (["--by", "ann", "--yes", "--edit", '{"invoice": "inv_x"}'], 1, "an edit may not touch what wire is: invoice"),
        (["--by", "ann", "--yes", "--edit", '{"cents": "x"}', "--app", "clerk:app"], 2, "the edit does not fit effect wire"),
        (["--by", "ann", "--yes", "--expires", "soon"], 2, "no length of time; write 90s, 30m, 2h or 7d"),
    ):  # fmt: skip
        assert said in words(office.look("approve", key, *args, code=code).stderr), args
    assert (
        f"this is about one effect; write one of these: wire {key[-8:]}"
        in office.look("deny", "inv_w", "--by", "ann", code=2).stderr
    )
    assert "nobody is here to be asked" in office.look("approve", key, "--by", "ann", "--json", code=2).stderr
    assert office.effect("inv_w", "wire")["version"] == version


def test_nothing_waits(office: Office) -> None:
    for task in ("inv_w", "inv_c"):
        office.look("cancel", task, "--by", "ann")
    assert office.look("approvals").stdout.startswith("NOTHING WAITS")
    assert office.json("approvals") == {"approvals": []}


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("\n", 1)])
def test_a_person_at_a_terminal_is_asked(office: Office, typed: str, code: int) -> None:
    """What is shown is sent, and nothing but a yes is one."""
    key = key_of(office, "inv_w")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "semel", "approve", key, "--by", "ann"]
    person = subprocess.Popen(
        command, env=office.env, cwd=office.folder, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    said = words(person.communicate(timeout=60)[0])
    os.close(ours)
    assert person.returncode == code and "Approve exactly this? [y/N]" in said
    assert said.index('"cents": 1200') < said.index("Approve exactly this?")
    assert bool(office.json("show", "inv_w")["effects"][0]["approval"]["approved"]) == (code == 0)

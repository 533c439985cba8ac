"""`semel prune`: it counts, asks, exports, and takes away; and what is left is shown as what it is."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

from cli_office import Office

AGE = ("--older-than", "0s")


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_what_is_pruned_is_exported_and_still_shown_and_whole(office: Office) -> None:
    before = office.json("show", "inv_1")["task"]
    told = office.semel("prune", *AGE, "--export", "old.jsonl", "--by", "ann", "--yes").stdout
    assert told.startswith("PRUNED ") and "They are in old.jsonl" in told and "dead-lettered" in told
    assert (office.folder / "old.jsonl").read_text().count(before["id"]) >= 5
    after = office.json("show", "inv_1")["task"]
    assert (after["id"], after["result"], after["version"]) == (before["id"], before["result"], before["version"] + 1)
    shown = office.look("show", "inv_1").stdout
    assert "pruned  " in shown and "(pruned; " not in shown and "the rows that were exported" in words(shown)
    why = words(office.look("why", "inv_1").stdout)
    assert "rows before this one were exported and pruned by ann" in why
    assert [line for line in [*shown.splitlines(), *told.splitlines()] if len(line) > 80] == []
    assert office.look("verify").stdout.startswith("WHOLE ")
    again = office.json("prune", *AGE, "--export", str(office.folder / "old.jsonl"), "--by", "ann", "--yes")
    assert again["tasks"] == again["keys"] == again["rows"] == 0


def test_a_dry_run_says_how_much(office: Office) -> None:
    found = office.json("prune", *AGE, "--by", "ann", "--dry-run")
    assert found["dry_run"] and found["tasks"] > 1 and found["keys"] == 1 and found["export"] is None
    assert set(found) == {"dry_run", "tasks", "keys", "rows", "stayed", "export"}
    assert f"WOULD PRUNE  {found['tasks']} tasks and 1 tenant-scoped key" in office.look("prune", *AGE, "--dry-run").stdout
    dead = office.json("prune", *AGE, "--by", "ann", "--dry-run", "--dead", "--reason", "given up")
    assert dead["tasks"] > found["tasks"]
    assert office.json("prune", "--older-than", "90d", "--by", "ann", "--dry-run")["tasks"] == 0


def test_what_is_missing_is_said(office: Office) -> None:
    for args, said in (
        (AGE, "needs a name"), ((*AGE, "--by", "ann", "--export", "x"), "nobody is here to be asked"),
        ((*AGE, "--by", "ann", "--yes"), "exported first"), (("--older-than", "soon", "--by", "ann"), "is no length of time"),
        ((*AGE, "--by", "ann", "--dead", "--dry-run"), "on record why"),
    ):  # fmt: skip
        done = office.semel("prune", *args, code=2)
        assert said in words(done.stderr), done.stderr


def test_it_asks_first_and_a_no_is_a_no(office: Office) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "semel", "prune", *AGE, "--by", "ann", "--export", "old.jsonl"]
    asked = subprocess.Popen(command, env=office.env, cwd=office.folder, stdin=follower, stdout=subprocess.PIPE, text=True)
    os.write(leader, b"n\n")
    told, _ = asked.communicate(timeout=60)
    os.close(leader)
    os.close(follower)
    assert asked.returncode == 1 and "WOULD PRUNE" in told and told.endswith("Nothing was pruned.\n")
    assert not (office.folder / "old.jsonl").exists()

"""`semel replay --dead`, `purge`, `renew`: many at once, shown before they are done, with exit codes for scripts."""

from __future__ import annotations

import json
import re

from cli_office import Office


def test_a_dry_run_says_what_a_replay_would_do_and_changes_nothing(office: Office) -> None:
    before = office.json("tasks")
    shown = office.look("replay", "--dead", "--kind", "spoil", "--dry-run").stdout
    assert shown.startswith("FORECAST  1 dead letter to replay.") and re.search(r"^charge +1 *$", shown, re.MULTILINE)
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    told = office.json("replay", "--dead", "--dry-run")
    assert told["forecast"]["tasks"] == 2 and told["forecast"]["recorded"]["charge"] >= 1 and told["batch"].startswith("same:")
    assert office.json("replay", "inv_s", "--dry-run")["forecast"]["recorded"] == {"charge": 1}
    assert "charge" in office.look("replay", "inv_s", "--dry-run").stdout
    assert office.json("tasks") == before


def test_many_are_replayed_as_they_were_shown(office: Office) -> None:
    asks = office.look("replay", "--dead", "--by", "ann", code=2)
    assert "nobody is here to be asked; look first (--dry-run), then --yes" in asks.stderr
    done = office.look("replay", "--dead", "--by", "ann", "--yes", "--reason", "the printer is out").stdout
    assert "REPLAYED  2 of 2, by ann." in done and "No worker is running now" in done
    assert {task["delivery"] for task in office.json("tasks")["tasks"] if task["key"] in ("inv_s", "inv_g")} == {"queued"}
    assert office.look("dead").stdout.startswith("NONE")
    office.semel("worker", "clerk:app", "--until-idle")
    again = office.look("replay", "--dead", "--by", "ann", "--yes", "--reason", "the printer is out").stdout
    assert again.startswith("FORECAST  no dead letters to replay.") and "Passed over" in again and "--batch NAME" in again
    told = office.look("why", "inv_s").stdout
    assert "It may send, of effects that are not on record yet" in re.sub(r"\s+", " ", told)


def test_what_is_refused_is_listed_and_the_exit_code_says_so(office: Office) -> None:
    done = office.look("replay", "--dead", "--from-step", "nothing_like_it", "--by", "ann", "--yes", code=1)
    assert "REPLAYED  0 of 2" in done.stdout and "no recorded step 'nothing_like_it'" in done.stdout
    data = json.loads(office.look(
        "replay", "--dead", "--from-step", "nothing_like_it", "--by", "ann", "--yes", "--json", code=1
    ).stdout)  # fmt: skip
    assert data["replayed"] == [] and len(data["refused"]) == 2 and set(data["refused"][0]) == {"id", "why"}


def test_misuse_says_what_to_type(office: Office) -> None:
    for args, words in (
        (["replay", "--by", "ann"], "no task was named; write a TASK, or --dead for many"),
        (["replay", "inv_s", "--dead", "--by", "ann"], "a task and --dead was named"),
        (["replay", "inv_s", "--kind", "spoil", "--by", "ann"], "a filter goes with --dead"),
        (["replay", "--dead", "--by", "ann", "--at-most", "charge"], "write --at-most send_invoice=1"),
        (["replay", "--dead", "--by", "ann", "--since", "yesterday"], "write 2h or 7d (ago)"),
        (["replay", "--dead", "--effect", "lost", "--by", "ann"], "is no state of an effect"),
        (["purge", "inv_s", "--by", "ann"], "needs a reason; write --reason"),
        (["purge", "inv_s", "--dry-run"], "--dry-run goes with --dead"),
        (["purge", "inv_s", "--reason", "old"], "needs a name; write --by YOU"),
    ):
        assert words in office.look(*args, code=2).stderr, args


def test_filters_by_time(office: Office) -> None:
    assert office.json("replay", "--dead", "--since", "1h", "--dry-run")["forecast"]["tasks"] == 2
    assert office.json("replay", "--dead", "--until", "1h", "--dry-run")["forecast"]["tasks"] == 0
    assert office.json("replay", "--dead", "--until", "2020-01-31T03:00+01:00", "--dry-run")["forecast"]["tasks"] == 0


def test_a_limit_for_one(office: Office) -> None:
    office.look("replay", "inv_s", "--by", "ann", "--at-most", "charge=0", "--only-as-forecast")
    (replayed,) = [line for line in office.json("why", "inv_s")["story"] if line["kind"] == "replayed"]
    assert replayed["text"].endswith("that are not on record yet: none.")


def test_dead_letters_are_purged(office: Office) -> None:
    assert office.json("purge", "--dead", "--dry-run")["would"]
    done = office.look("purge", "inv_s", "--by", "ann", "--reason", "it is paid in cash").stdout
    assert "is purged, by ann. Its record and its keys stay." in re.sub(r"\s+", " ", done)
    assert office.look("why", "inv_s").stdout.startswith("PURGED  spoil inv_s: purged: by ann: it is paid in cash.")
    assert "PURGED  1 of 1" in office.look("purge", "--dead", "--by", "ann", "--reason", "old", "--yes").stdout
    assert office.look("dead").stdout.startswith("NONE") and office.look("verify").stdout.startswith("WHOLE")


def test_what_happened_is_not_renewed(office: Office) -> None:
    key = office.effect("inv_s", "charge")["key"]
    done = office.look("renew", key, "--by", "ann", "--reason", "again", code=1)
    assert "already_done: charge happened; to do it again on purpose: using(occurrence=...)" in done.stderr
    post = office.effect("inv_cut", "post")["key"]
    assert "settle it first" in office.look("renew", post, "--by", "ann", "--reason", "again", code=1).stderr


AHEAD = """
import clerk
task = clerk.remit.enqueue("inv_ahead")
clerk.app.review.approve(clerk.wire.planned(task, "inv_ahead", 1200), by="ann")
clerk.app.close()
"""


def test_what_was_approved_ahead_is_shown(office: Office) -> None:
    office.python(AHEAD)
    (ahead,) = office.json("show", "inv_ahead")["ahead"]
    assert ahead == {
        "name": "wire", "args": {"invoice": "inv_ahead", "cents": 1200, "note": "due"}, "by": "ann", "expires": None,
    }  # fmt: skip
    shown = re.sub(r"\s+", " ", office.look("show", "inv_ahead").stdout)
    assert "ahead wire" in shown and "is approved by ann, if it is called so" in shown
    told = re.sub(r"\s+", " ", office.look("why", "inv_ahead").stdout)
    assert "ann approves a call of wire before it is asked for. It counts if the call comes in exactly these words." in told

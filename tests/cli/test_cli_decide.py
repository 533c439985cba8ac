"""`semel resolve`, `cancel`, `replay`: a person decides, with a name, and the machine may refuse."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest
from cli_office import Office, until


def work(office: Office) -> None:
    office.semel("worker", "clerk:app", "--until-idle")


def test_a_person_settles_an_unknown_and_the_task_finishes(office: Office) -> None:
    post = office.effect("inv_cut", "post")
    done = office.look("resolve", post["key"][-8:], "--confirmed", '"letter 7"', "--by", "ann", "--reason", "it lies on the desk")
    assert f"This is about post of bill inv_cut:\n  post  ambiguous\n    key       {post['key']}" in done.stdout
    assert "On record: ann says that post happened." in done.stdout
    assert "No worker is running now: semel worker MODULE:app" in done.stdout
    assert "was not checked against the effect's type: --app MODULE:app" in done.stdout
    assert office.effect("inv_cut", "post")["settled_by"] == {
        "how": "person:ann", "reason": "it lies on the desk", "at": office.effect("inv_cut", "post")["settled_by"]["at"],
    }  # fmt: skip
    work(office)
    assert office.json("show", "inv_cut")["task"]["result"] == {"mail": "mail_inv_cut", "post": "letter 7"}
    assert sum(line.startswith("post inv_cut") for line in office.world) == 1
    told = office.look("why", post["key"]).stdout
    assert told.startswith("CONFIRMED  post of bill inv_cut happened: ann says so: it lies on the desk.")
    assert office.look("verify").stdout.startswith("WHOLE")


def test_not_found_takes_effect_after_settle_and_it_is_sent_again(office: Office) -> None:
    key = office.effect("inv_cut", "post")["key"]
    done = office.look("resolve", key, "--not-found", "--by", "ann")
    said = re.sub(r"\s+", " ", done.stdout)
    assert "ann says that post did not happen. Settle was over, so it takes effect when a worker claims the task." in said
    unknown = office.json("unknown")["unknown"][0]
    assert unknown["needs"]["who"] == "worker"
    assert "a worker believes the person who said that it did not happen; no worker is running" in unknown["needs"]["text"]
    work(office)  # believed, submitted again, and the connection is cut again
    post = office.effect("inv_cut", "post")
    assert len(post["submissions"]) == 2 and post["needs"]["who"] == "person"
    told = re.sub(r"\s+", " ", office.look("why", key).stdout)
    assert "Settle was over when ann looked: post did not happen. It had been unknown for" in told
    assert "Attempt 2 asks for post again, since nothing had happened: submission 2" in told


def test_a_verdict_is_taken_back_and_stays_on_record(office: Office) -> None:
    key = office.effect("inv_cut", "post")["key"]
    office.look("resolve", key, "--confirmed", '"letter 7"', "--by", "ann", "--reason", "it lies on the desk")
    work(office)
    done = re.sub(r"\s+", " ", office.look("correct", key[-8:], "--by", "bob", "--reason", "letter 7 is of inv_7").stdout)
    assert "On record: bob takes back that post happened. The verdict stays where it stands" in done
    assert "Its task has ended (acknowledged), and stays so" in done
    told = re.sub(r"\s+", " ", office.look("why", key).stdout)
    assert "that post happened: letter 7 is of inv_7. Nobody knows again whether it happened." in told
    assert "ann says that it happened: it lies on the desk" in told and told.startswith("UNKNOWN")
    assert office.effect("inv_cut", "post")["settled_by"] is None
    assert office.look("verify").stdout.startswith("WHOLE")
    again = office.look("correct", key, "--by", "bob", "--reason", "x", code=1)
    assert "there is nothing to take back" in again.stderr
    office.look("resolve", key, "--confirmed", '"letter 9"', "--by", "bob")
    assert office.effect("inv_cut", "post")["state"] == "confirmed" and office.json("unknown")["unknown"] == []
    assert sum(line.startswith("post inv_cut") for line in office.world) == 1


def test_what_a_provider_said_is_not_taken_back(worked: Office) -> None:
    key = worked.effect("inv_1", "charge")["key"]
    done = worked.look("correct", key, "--by", "bob", "--reason", "too much", code=1)
    assert "only a person's verdict can be taken back; undo it by its opposite" in done.stderr
    assert "write --reason 'that receipt" in worked.look("correct", key, "--by", "bob", code=2).stderr


def test_a_conflict_stays_unknown(office: Office) -> None:
    key = office.effect("inv_cut", "post")["key"]
    done = office.look("resolve", key, "--conflict", "a letter of somebody else", "--by", "ann")
    assert "post stays unknown until a person gives another verdict" in re.sub(r"\s+", " ", done.stdout)
    shown = office.look("unknown").stdout
    assert "  conflict  a letter of somebody else" in shown
    assert "a person's verdict (conflict: a letter of somebody else)" in shown


def test_a_verdict_on_what_has_moved_on_is_refused(office: Office) -> None:
    post = office.effect("inv_cut", "post")
    stale = office.look("resolve", post["key"], "--not-found", "--by", "ann", "--seen", str(post["version"] - 1), code=1)
    assert "stale_view: post has moved on since you looked" in stale.stderr and "Traceback" not in stale.stderr
    office.look("resolve", post["key"], "--confirmed", "null", "--by", "ann", "--seen", str(post["version"]))
    again = office.look("resolve", post["key"], "--confirmed", "null", "--by", "bob", code=1)
    assert "stale_view: post has moved on since you looked (it is confirmed)" in again.stderr
    assert office.effect("inv_cut", "post")["settled_by"]["how"] == "person:ann"


def test_the_result_is_checked_against_the_code_if_it_is_named(office: Office) -> None:
    key = office.effect("inv_cut", "post")["key"]
    wrong = office.semel("resolve", key, "--confirmed", '{"a": 1}', "--by", "ann", "--app", "clerk:app", code=2)
    assert "the result does not fit effect post: Input should be a valid string" in wrong.stderr
    assert office.effect("inv_cut", "post")["state"] == "ambiguous"
    right = json.loads(office.semel("resolve", key, "--confirmed", '"x"', "--by", "ann", "--app", "clerk:app", "--json").stdout)
    assert right["checked"] is True and right["state"] == "confirmed" and right["settled"] is True


def test_json_of_a_verdict(office: Office) -> None:
    post = office.effect("inv_cut", "post")
    done = office.json("resolve", post["key"], "--not-found", "--by", "ann")
    assert set(done) == {"key", "tenant", "name", "state", "settled", "seen", "version", "checked", "settle_ms"}
    assert done["seen"] == post["version"] < done["version"] and done["settled"] is False and done["state"] == "ambiguous"


def test_a_sender_that_nothing_fences_needs_the_word_that_it_has_stopped(fresh: Office) -> None:
    fresh.semel("enqueue", "clerk:app", "run_script", "inv_1")
    worker = fresh.start("worker", "clerk:app")
    until(lambda: fresh.world, "the effect is in mid-call")
    os.kill(int(re.findall(r"worker (\d+) works", fresh.log())[0]), signal.SIGKILL)
    until(lambda: fresh.task("inv_1")["delivery"] == "blocked", "it is taken back")
    worker.terminate()
    worker.wait(timeout=60)
    key = fresh.effect("inv_1", "script")["key"]
    assert fresh.json("unknown")["unknown"][0]["needs"]["process_stopped"] is True
    for command in (["unknown"], ["why", key]):
        assert f"semel resolve {key[-8:]} --by YOU --not-found --process-stopped" in fresh.look(*command).stdout
    refused = fresh.look("resolve", key, "--not-found", "--by", "ann", code=1).stderr
    assert "unknown_outstanding" in refused and "--process-stopped" in refused
    said = re.sub(r"\s+", " ", fresh.look("resolve", key, "--not-found", "--process-stopped", "--by", "ann").stdout)
    assert "You may have looked too early" in said and "asks you to look again" in said
    (fresh.folder / "world").open("a", encoding="utf-8").write("released\n")
    work(fresh)
    needs = fresh.json("unknown")["unknown"][0]["needs"]  # her word was when settle began, so that it counts from her next look
    assert "settle is over now" in needs["text"] and not needs["process_stopped"] and fresh.task("inv_1")["delivery"] == "blocked"
    fresh.look("resolve", key, "--not-found", "--by", "ann")
    work(fresh)
    assert fresh.task("inv_1")["execution"] == "succeeded"
    told = re.sub(r"\s+", " ", fresh.look("why", key).stdout)
    assert "Submission 1 of script makes a child process: nothing here can fence that." in told
    assert "The process that sent it is said to have stopped." in told
    assert "ann looked before that, which does not count. Whoever looks now is believed." in told
    assert len(fresh.effect("inv_1", "script")["submissions"]) == 2


BAD = [
    (["--by", "ann"], "no verdict was given; write --confirmed 'JSON'"),
    (["--by", "ann", "--not-found", "--conflict", "x"], "one verdict is wanted, and more were given"),
    (["--by", "ann", "--confirmed", "letter"], "is not JSON"),
    (["--by", "ann", "--confirmed", "NaN"], "is not JSON"),
    (["--by", "ann", "--conflict", " "], "--conflict says nothing"),
    (["--not-found"], "needs a name; write --by YOU, or export SEMEL_BY=YOU"),
    (["--not-found", "--by", "  "], "needs a name"),
]


@pytest.mark.parametrize(("args", "words"), BAD)
def test_a_decision_that_is_not_one_changes_nothing(worked: Office, args: list[str], words: str) -> None:
    before = worked.effect("inv_cut", "post")
    done = worked.look("resolve", before["key"], *args, code=2)
    assert words in done.stderr and done.stdout == ""
    assert worked.effect("inv_cut", "post") == before


def test_only_an_effect_is_resolved(worked: Office) -> None:
    key = worked.effect("inv_cut", "post")["key"]
    said = worked.look("resolve", "inv_cut", "--not-found", "--by", "ann", code=2).stderr
    assert "'inv_cut' is a task, and this is about one effect; write one of these: " in said
    assert f"post {key[-8:]} (ambiguous)" in said
    assert "(confirmed)" in worked.look("resolve", "inv_1", "--not-found", "--by", "ann", code=2).stderr
    assert "there is no task and no effect" in worked.look("resolve", "sml_none", "--not-found", "--by", "ann", code=2).stderr


def test_who_decides_may_come_from_the_environment(office: Office) -> None:
    office.more["SEMEL_BY"] = "eve"
    office.semel("cancel", "inv_cut", "--reason", "not needed")
    assert "cancelled by eve: not needed" in office.look("why", "inv_cut").stdout


def test_cancel_settles_the_unknown_first(office: Office) -> None:
    done = office.look("cancel", "inv_cut", "--by", "ann")
    assert "will be cancelled, by ann: it starts nothing more" in re.sub(r"\s+", " ", done.stdout)
    assert office.task("inv_cut")["execution"] == "unknown"
    office.look("resolve", office.effect("inv_cut", "post")["key"], "--confirmed", '"x"', "--by", "ann")
    work(office)
    assert office.task("inv_cut")["execution"] == "cancelled"
    assert office.look("why", "inv_cut").stdout.startswith("CANCELLED  bill inv_cut: cancelled by ann.")


def test_cancel_at_once_and_not_twice(office: Office) -> None:
    office.semel("enqueue", "clerk:app", "signed", "inv_new")
    assert "is cancelled, by ann." in re.sub(r"\s+", " ", office.look("cancel", "inv_new", "--by", "ann").stdout)
    assert "stale_view: the task is acknowledged already" in office.look("cancel", "inv_new", "--by", "ann", code=1).stderr


def test_replay_repeats_no_effect(office: Office) -> None:
    before = len(office.world)
    done = office.look("replay", "inv_1", "--by", "ann", "--reason", "for the auditor")
    assert "is queued again, by ann. No worker is running now" in re.sub(r"\s+", " ", done.stdout)
    assert "stale_view" in office.look("replay", "inv_1", "--by", "ann", code=1).stderr
    work(office)
    assert office.task("inv_1")["attempt"] == 2 and office.task("inv_1")["execution"] == "succeeded"
    assert len(office.world) == before
    assert "The task is replayed by ann: for the auditor." in re.sub(r"\s+", " ", office.look("why", "inv_1").stdout)


def test_replay_from_a_step(office: Office) -> None:
    assert "no recorded step 'nothing'" in office.look("replay", "inv_1", "--by", "ann", "--from-step", "nothing", code=1).stderr
    done = office.json("replay", "inv_1", "--by", "ann", "--from-step", "draft")
    assert set(done) == {"id", "tenant", "kind", "key", "delivery", "execution", "unknown", "why", "version"}
    assert done["delivery"] == "queued" and office.json("show", "inv_1")["execution"]["steps"] == 0

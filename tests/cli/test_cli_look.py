"""The commands that read: what they print, in which width, as which JSON, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_office import Office
from typer.testing import CliRunner

from semel.cli import main

READING = [["tasks"], ["show", "inv_1"], ["why", "inv_1"], ["unknown"], ["dead"], ["verify"]]
COMMANDS = sorted(
    (command.name or command.callback.__name__).replace("_", "-") for command in main.cli.registered_commands if command.callback
)


# --- how it looks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [*READING, ["tasks", "--all-tenants"], ["why", "inv_cut"], ["show", "inv_cut"], ["why", "inv_r"]]
)
def test_a_page_fits_80_columns_and_a_pipe_gets_no_colour(worked: Office, args: list[str]) -> None:
    done = worked.semel(*args)
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert [line for line in done.stdout.splitlines() if line != line.rstrip() and args[0] != "tasks"] == []


def test_a_terminal_gets_colour(worked: Office) -> None:
    coloured = Office(worked.folder, {"FORCE_COLOR": "1"})
    assert "\x1b[1;32mCONFIRMED" in coloured.semel("why", worked.effect("inv_1", "charge")["key"]).stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(fresh: Office, name: str) -> None:
    done = fresh.look(name, "--help")
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert f"semel {name}" in done.stdout


def test_every_option_is_explained(fresh: Office) -> None:
    assert {
        "cancel",
        "dead",
        "demo",
        "enqueue",
        "replay",
        "resolve",
        "show",
        "tasks",
        "unknown",
        "verify",
        "why",
        "worker",
    } <= set(COMMANDS)
    listed = fresh.look("--help").stdout
    assert len(listed.splitlines()) <= 64, "it is read on one screen"
    for name in COMMANDS:
        assert (f" {name} " in listed) == (name != "worker-process")
    for command in main.cli.registered_commands:
        assert command.callback is not None and command.callback.__doc__


def test_nothing_recorded_reaches_the_terminal_as_a_command(worked: Office) -> None:
    for args in (["show", "inv_acme"], ["why", "inv_acme"], ["tasks"]):
        shown = worked.look(*args, "--tenant", "acme").stdout
        assert not {c for c in shown if not c.isprintable()} - {"\n"}, args
    assert "\\u001b[31mred" in worked.look("show", "inv_acme", "--tenant", "acme").stdout


# --- what it says -----------------------------------------------------------------------------------------------------


def test_tasks_are_listed_newest_first_with_ids_to_copy(worked: Office) -> None:
    shown = worked.look("tasks").stdout
    for key in ("inv_1", "inv_cut", "inv_s", "inv_r", "inv_p", "inv_g"):
        row = next(line for line in shown.splitlines() if f" {key} " in line)
        found = worked.task(key)
        assert row.split()[0] == found["id"][-8:]
        assert found["delivery"] in row and found["execution"] in row
    ids = [task["id"] for task in worked.json("tasks")["tasks"]]
    assert ids == sorted(ids, reverse=True)
    assert "6 tasks in all: 3 acknowledged, 1 blocked, 2 dead_lettered." in shown


def test_tasks_can_be_chosen(worked: Office) -> None:
    def keys(*args: str) -> set[str]:
        return {task["key"] for task in worked.json("tasks", *args)["tasks"]}

    assert keys("--delivery", "dead_lettered") == {"inv_s", "inv_g"}
    assert keys("--execution", "unknown") == {"inv_cut"}
    assert keys("--kind", "bill") == keys("--queue", "billing") == {"inv_1", "inv_cut"}
    assert len(keys("--limit", "2")) == 2
    assert keys("--tenant", "acme") == {"inv_acme", "inv_later"}
    assert len(keys("--all-tenants")) == 8
    assert "it is one of queued, leased" in worked.look("tasks", "--delivery", "lost", code=2).stderr


def test_show_has_the_three_ledgers(worked: Office) -> None:
    found, charge = worked.task("inv_1"), worked.effect("inv_1", "charge")
    shown = worked.look("show", "inv_1").stdout
    for said in (found["id"], "acknowledged, succeeded", "DELIVERY", "EXECUTION", "EFFECTS", charge["key"], found["token"]):
        assert said in shown
    assert "send it again within 1 d, then ask a person (settle 5 min)" in shown
    assert "settled   its own answer says so" in shown
    assert "#1 by attempt 1" in shown
    assert "Attempt 1 finished the task." in shown


def test_show_takes_an_effect_too(worked: Office) -> None:
    charge = worked.effect("inv_1", "charge")
    assert worked.task("inv_1")["id"] in worked.look("show", charge["key"][-8:]).stdout


def test_unknown_says_what_is_needed_and_what_to_type(worked: Office) -> None:
    shown = worked.look("unknown").stdout
    post = worked.effect("inv_cut", "post")
    assert shown.startswith("UNKNOWN  1 effect is unknown, 1 for a person to settle.")
    for said in ("post of bill inv_cut", post["key"], worked.task("inv_cut")["id"], "a person's verdict: did it happen?"):
        assert said in shown
    assert f"semel resolve {post['key'][-8:]} --by YOU --not-found" in shown
    assert worked.look("unknown", "--tenant", "acme").stdout.startswith("NOTHING UNKNOWN")
    assert worked.look("unknown", "--all-tenants").stdout.count("  tenant  ") == 1


def test_dead_letters_say_why_and_what_was_done(worked: Office) -> None:
    shown = worked.look("dead").stdout
    assert shown.startswith("DEAD LETTERS  2 letters are here.")
    assert "failed 2 times: ValueError: the printer is on fire" in shown
    assert "2 failures, no crashes" in shown
    assert f"charge [{worked.effect('inv_s', 'charge')['key'][-8:]}] confirmed" in shown
    assert f"semel replay {worked.task('inv_s')['id'][-8:]} --by YOU" in shown
    assert worked.look("dead", "--limit", "1").stdout.count("  why  ") == 1
    assert worked.look("dead", "--tenant", "acme").stdout.startswith("NONE")


# --- JSON -------------------------------------------------------------------------------------------------------------

TASK = {
    "id", "tenant", "kind", "key", "queue", "delivery", "execution", "attempt", "token", "failures", "crashes", "unknown", "due",
    "why", "version",
}  # fmt: skip
EFFECT = {
    "key", "tenant", "name", "state", "version", "args", "result", "unrecorded", "occurrence", "generation", "recovery",
    "submissions", "evidence", "settled_by", "approval", "conflict", "unknown_since", "unknown_ms", "drifts", "needs",
}  # fmt: skip
UNKNOWN = {
    "key", "tenant", "task", "name", "since", "age_ms", "version", "args", "submissions", "conflict", "recovery", "needs",
}  # fmt: skip
DEAD = {
    "id", "tenant", "kind", "key", "queue", "states", "used", "cost", "why", "failures", "crashes", "attempts", "enqueued",
    "ended", "effects",
}  # fmt: skip
STORY = {"at", "elapsed_ms", "stream", "seq", "kind", "actor", "token", "attempt", "key", "text", "details"}


def test_json_has_stable_names(worked: Office) -> None:
    tasks = worked.json("tasks")
    assert set(tasks) == {"tasks", "counts"} and {frozenset(one) for one in tasks["tasks"]} == {frozenset(TASK)}
    shown = worked.json("show", "inv_cut")
    assert set(shown) == {"task", "delivery", "execution", "identity", "effects", "ahead"}
    assert {frozenset(x) for x in shown["effects"]} == {frozenset(EFFECT)}
    assert set(shown["execution"]["attempts"][0]) == {"attempt", "token", "session", "began", "ended", "end", "text"}
    told = worked.json("why", "inv_cut")
    assert set(told) == {"task", "identity", "verdict", "effects", "story"} and {frozenset(s) for s in told["story"]} == {
        frozenset(STORY)
    }
    told = worked.json("why", worked.effect("inv_cut", "post")["key"])
    assert set(told) == {"effect", "verdict", "story"} and set(told["effect"]) == EFFECT
    unknown = worked.json("unknown")
    assert set(unknown) == {"unknown", "count", "oldest_ms"} and unknown["count"] == 1
    assert [set(one) for one in unknown["unknown"]] == [UNKNOWN]
    assert set(unknown["unknown"][0]["needs"]) == {"who", "text", "process_stopped"}
    dead = worked.json("dead")
    assert set(dead) == {"dead"} and [set(one) for one in dead["dead"]] == [DEAD, DEAD]
    assert set(worked.json("verify")) == {"whole", "streams", "rows", "tables", "heads", "note", "wrong"}


def test_json_holds_whole_values_and_tokens_as_text(worked: Office) -> None:
    found = worked.json("show", "inv_acme", "--tenant", "acme")
    assert found["task"]["args"]["step"] == "\x1b[31mred\x1b[0m\n\u202etext"
    charge = worked.effect("inv_1", "charge")
    token = charge["submissions"][0]["token"]
    assert isinstance(token, str) and f"charge inv_1 {charge['key']} {token}" in worked.world


# --- whom somebody means ----------------------------------------------------------------------------------------------


def test_ids_may_be_given_by_their_ends_and_tasks_by_their_key(worked: Office) -> None:
    id, key = worked.task("inv_1")["id"], worked.effect("inv_1", "charge")["key"]
    for given in (id, id[-8:], id[-4:], id[:-1], "inv_1"):
        assert worked.json("why", given)["task"]["id"] == id
    for given in (key, key[-8:], key[:20], key.removeprefix("sml_")[:8]):
        assert worked.json("why", given)["effect"]["key"] == key


def test_what_is_not_there_or_not_one_is_said(worked: Office) -> None:
    id = worked.task("inv_1")["id"]
    many = worked.look("why", "sml_", code=2).stderr
    assert "is 11 things; write the whole id" in many and "\n  sml_" in many
    assert "there is no task and no effect 'nothing'" in worked.look("why", "nothing", code=2).stderr
    assert "write at least 4 characters" in worked.look("why", id[-3:], code=2).stderr
    assert "write --tenant acme" in worked.look("show", "inv_acme", code=2).stderr
    assert (
        "there is no task 'inv_1' of tenant 'acme'"
        in worked.look("cancel", "inv_1", "--tenant", "acme", "--by", "ann", code=2).stderr
    )
    assert "there is no task" in worked.look("cancel", worked.effect("inv_1", "charge")["key"], "--by", "ann", code=2).stderr


# --- a store that is not there ----------------------------------------------------------------------------------------

WRITING = [
    ["resolve", "sml_x", "--not-found", "--by", "ann"],
    ["cancel", "inv_1", "--by", "ann"],
    ["replay", "inv_1", "--by", "ann"],
]


@pytest.mark.parametrize("args", READING + WRITING)
def test_looking_makes_no_store(tmp_path: Path, args: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEMEL_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main.cli, args)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"semel: there is no store at {tmp_path}/semel.db")
    assert "--store sqlite:///path/to/it.db" in done.stderr and "SEMEL_STORE" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_other_places_are_refused(tmp_path: Path, worked: Office) -> None:
    empty, text, foreign = tmp_path / "empty.db", tmp_path / "text.db", tmp_path / "foreign.db"
    empty.touch()
    text.write_text("this is no database, but quite long enough to look like one " * 50, encoding="utf-8")
    worked.python(f"import sqlite3; c = sqlite3.connect({str(foreign)!r}); c.execute('create table t (a)'); c.close()")
    said = {
        f"sqlite:///{empty}": "is an empty file, not a store",
        f"sqlite:///{text}": "is not a SQLite database",
        f"sqlite:///{foreign}": "is a database of something else",
        f"sqlite:///{tmp_path}": "is a folder",
        "sqlite:///:memory:": "lives in its own process alone",
        "mysql://x/y": "no scheme that semel knows",
        "postgresql:///?nosuch=1": "the store's URL",
    }
    for url, words in said.items():
        done = CliRunner().invoke(main.cli, ["tasks", "--store", url])
        assert done.exit_code == 2 and words in done.stderr and "Traceback" not in done.stderr, (url, done.stderr)
    assert empty.stat().st_size == 0


def test_the_store_is_named_by_option_before_the_environment(worked: Office, tmp_path: Path) -> None:
    elsewhere = Office(worked.folder, {"SEMEL_STORE": f"sqlite:///{tmp_path}/none.db"})
    elsewhere.semel("tasks", code=2)
    assert "inv_1" in elsewhere.semel("tasks", "--store", worked.url).stdout


def test_looking_changes_nothing(office: Office) -> None:
    def rows() -> int:
        found: int = office.json("verify")["rows"]
        return found

    before = rows()
    for args in READING:
        office.look(*args)
    assert rows() == before
    assert office.python("import clerk; print(len(clerk.app.runtime.desk.store.sessions())); clerk.app.close()") == "0\n"


def test_the_version_is_said(fresh: Office) -> None:
    assert fresh.look("--version").stdout == "semel 0.1.0\n"
    assert "Usage: semel" in fresh.semel(code=None).stdout

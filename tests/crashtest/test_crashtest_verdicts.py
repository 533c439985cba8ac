"""What is wrong with an app is found, and named; what is sound passes, whatever counts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import psycopg
import pytest
from crashtest_bench import APPS, ROOT, SOURCE, Bench, verdicts
from typer.testing import CliRunner

import semel
from semel.cli.main import cli
from semel.engine.queue import Order
from semel.testing.crashtest.room import Room, Setting
from semel.testing.crashtest.world import Child

AFTER = ("--only", "killed after it")
ONE = "killed after it, before the record"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_two_sends_in_one_effect_are_a_duplicate(bench: Bench, tmp_path: Path) -> None:
    """Even unharmed: one effect, one key, and two mails."""
    junit = tmp_path / "out.xml"
    done = bench.run("careless:app", "mail_twice", "ann", "--sandbox", *AFTER, "--junit", str(junit), code=1)
    assert "INJECTION POINT" in done.stdout
    assert done.stdout.count("2 of 1   DUPLICATE") == 2
    assert "twice is there 2 times" in done.stdout
    assert "FAILED  0 of 2 runs passed, 2 DUPLICATE, 1 fault in your code" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    suite = ET.fromstring(junit.read_text())
    assert suite.attrib["failures"] == "3"
    assert {failure.attrib["type"] for failure in suite.iter("failure")} == {
        "DUPLICATE",
        "an effect function that retries by itself",
    }


def test_a_lookup_that_does_not_look_is_a_duplicate_and_is_named(bench: Bench) -> None:
    data = bench.data("careless:app", "mail_unseen", "ann", "--sandbox", *AFTER, code=1)
    assert verdicts(data) == {"nothing is harmed": "pass", f"unseen: {ONE}": "DUPLICATE"}
    assert "lookup:find_nothing had said that it was not there" in data["runs"][1]["why"]


def test_a_key_that_changes_between_attempts_is_a_duplicate(bench: Bench) -> None:
    """Unharmed there is one; killed after it, the next attempt sends another."""
    data = bench.data("careless:app", "mail_dated", "ann", "--sandbox", *AFTER, code=1)
    assert verdicts(data) == {"nothing is harmed": "pass", f"dated: {ONE}": "DUPLICATE"}
    assert "2 effects dated of different keys" in data["runs"][1]["why"]


@pytest.mark.proof
def test_an_app_without_the_watchdog_needs_a_persons_word_and_passes(bench: Bench) -> None:
    """What it sends nothing can stop: its lookup's not_found is not enough, and a person ends the frozen process."""
    order = ("unwatched:app", "work", "ann", "--key", "k1", "--tenant", "acme", "--sandbox", "--sandbox-env", "ELSEWHERE")
    data = bench.data(*order, "--only", "frozen before")
    assert verdicts(data) == {"nothing is harmed": "pass", "mail: frozen before it, woken after takeover": "pass"}
    assert data["runs"][1]["person"] == ["mail: not found"]
    assert data["runs"][1]["expected"] == "person?; succeeded"


def test_a_lookup_that_can_never_say_is_stuck(bench: Bench) -> None:
    data = bench.data("careless:app", "mail_unanswered", "ann", "--sandbox", *AFTER, "--timeout", "10", code=1)
    assert verdicts(data) == {"nothing is harmed": "pass", f"unanswered: {ONE}": "STUCK"}
    assert data["runs"][1]["counted"] == {"unanswered": 1}


def test_what_is_confirmed_and_not_there_is_a_loss(bench: Bench) -> None:
    """The probe is of a shelf, and the mail is not put there."""
    data = bench.data("shelf:app", "announce", "ann", "--probe", "shelf:count", "--only", "acknowledged", code=1)
    assert set(verdicts(data).values()) == {"LOSS"}
    assert "is confirmed, and the resource shows none" in data["runs"][0]["why"]


@pytest.mark.proof
def test_a_sound_app_passes_by_its_own_probe(bench: Bench) -> None:
    """A task without an intent, and an effect of the whole tenant."""
    data = bench.data("shelf:app", "stock", "ann", "labelled=true", "--probe", "shelf:count")
    found = verdicts(data)
    assert found.pop("label: its reply lost on arrival") == "not shown", "it writes a file"
    assert set(found.values()) == {"pass"}
    assert len(data["runs"]) == 13
    assert {run["counted"]["label"] for run in data["runs"]} == {1}
    assert data["counted_by"] == "probe"
    assert not (bench.folder / "own.db").exists(), "the store that the app names is left alone"


@pytest.mark.proof
@pytest.mark.timeout(400)
def test_effects_side_by_side_and_a_task_that_enqueues_another_pass(bench: Bench) -> None:
    data = bench.data("crowded:app", "work", "ann", "--sandbox", "--jobs", "6")
    assert set(verdicts(data).values()) == {"pass"}
    assert len(data["runs"]) == 35
    assert [run["counted"] for run in data["runs"]] == [{"mail": 2, "tell": 2}] * 35
    assert {run["of"] for run in data["runs"]} == {"", "mail #1", "mail #2", "tell #1", "tell #2", "work"}


def test_what_a_restored_store_has_forgotten_is_not_done_again(bench: Bench) -> None:
    """Of an effect that is looked up: each that is sent adds a byte."""
    data = bench.data("shelf:app", "stock", "ann", "labelled=true", "--probe", "shelf:count", "--only", "restored")
    assert verdicts(data) == {"nothing is harmed": "pass", "label: store restored to before it": "pass"}
    assert data["runs"][1]["counted"] == {"label": 1}
    assert not (bench.folder / "own.db").exists(), "the store that the app names is left alone"


@pytest.mark.proof
def test_what_a_restored_store_has_forgotten_and_is_done_again_under_another_key_is_a_duplicate(bench: Bench) -> None:
    """The probe counts by key, and the record knows the second key alone."""
    data = bench.data("shelf:app", "restock", "ann", "--probe", "shelf:count", "--only", "restored", code=1)
    assert verdicts(data) == {"nothing is harmed": "pass", "label: store restored to before it": "DUPLICATE"}
    assert data["runs"][1]["counted"] == {"label": 2}
    assert "one of them from before the store was restored" in data["runs"][1]["why"]
    assert [fault["name"] for fault in data["faults"]] == ["a key that changes between attempts"]


def test_a_probe_that_does_not_count_by_key_is_noticed_and_its_runs_go_one_by_one(bench: Bench) -> None:
    names = Path(bench.environment()["SHELF"]) / "list"
    names.write_text("ann\nbob\nann\n")
    data = bench.data("shelf:app", "announce", "ann", "--probe", "shelf:count_names", *AFTER)
    assert [run["counted"] for run in data["runs"]] == [{"enlist": 1}] * 2
    assert set(verdicts(data).values()) == {"pass"}
    assert any("does not count by key" in note for note in data["notes"])
    assert "3 runs, each really called enlist, under new keys." in data["notes"]
    assert names.read_text() == "ann\nbob\nann\n" + "ann\n" * 3, "the dry run twice, and one more"


def test_without_a_probe_it_says_what_was_not_looked_for(bench: Bench) -> None:
    done = bench.run("shelf:app", "announce", "ann", *AFTER)
    assert "No probe: only semel's own record was judged" in done.stdout
    assert "CALLS" in done.stdout
    assert "EFFECTS" not in done.stdout


def test_a_reply_that_could_not_be_lost_is_not_shown(bench: Bench) -> None:
    """The effect writes a file."""
    done = bench.run("shelf:app", "stock", "ann", "--probe", "shelf:count", "--only", "reply lost")
    assert "1 of 1   not shown" in done.stdout
    assert "place: its reply lost on arrival: no reply was lost" in done.stdout
    assert "PASSED  1 of 2 runs passed, 1 not shown" in done.stdout


def test_people_who_must_approve_are_played(bench: Bench) -> None:
    data = bench.data("shelf:app", "asks", "ann", "--probe", "shelf:count", *AFTER)
    assert verdicts(data) == {"nothing is harmed": "pass", f"place_approved: {ONE}": "pass"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["shelf:app", "stok", "ann"], "declares no task 'stok'; it has: announce, asks, jots, restock, stock"),
        (["shelf", "stock", "ann"], "write MODULE:app"),
        (["shelf:app", "stock", "name=ann", "ann"], "comes after a named argument"),
        (["shelf:app", "stock"], "name"),
        (["shelf:app", "stock", "ann", "--probe", "shelf"], "write --probe MODULE:function"),
        (["shelf:app", "stock", "ann", "--probe", "shelf:nothing"], "has no function nothing"),
        (["shelf:app", "stock", "ann", "--probe", "nowhere:count"], "cannot be imported"),
        (["shelf:app", "stock", "ann", "--probe", "shelf:count", "--sandbox"], "one of the two"),
        (["shelf:app", "stock", "ann", "--only", "brewed"], "each run really calls your effects"),
        (["shelf:app", "stock", "ann", "--probe", "shelf:count"], "then add --really"),
        (["shelf:app", "stock", "ann", "--store", "sqlite:///mine.db", "--really"], "leaves mine.db alone"),
        (["shelf:app", "stock", "ann", "--junit", "no/such/folder/x.xml"], "there is no folder"),
    ],
)
def test_wrong_usage_says_what_to_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: list[str], words: str) -> None:
    """Before anything is started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(APPS)
    done = CliRunner().invoke(cli, ["crashtest", *args])
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["shelf:app", "stock", "ann", "--probe", "shelf:vague"], 2, "as an int"),
        (["shelf:app", "stock", "ann", "--probe", "shelf:broken"], 1, "LookupError: no such shelf"),
        (["shelf:app", "stock", "ann", "--only", "brewed"], 2, "--only 'brewed' leaves nothing"),
        (["astray:app", "work", "ann", "--sandbox"], 2, "enlist happened, and never reached the sandbox provider at $PROVIDER"),
        (["hasty:app", "fails", "ann"], 1, "opens its own store while it is imported"),
        (["neighbours:app", "work", "ann"], 1, "neighbours:other is another app than neighbours:app, with a store of its own"),
        (["lengthy:hiding", "pays", "ann"], 1, "SEMEL_REDACTION_KEY is not set; make one once"),
        (["careless:app", "fails", "ann"], 1, "the dry run, in which nothing is harmed, did not end well: task fails failed"),
    ],
)
def test_what_the_dry_run_finds_is_said_plainly(bench: Bench, args: list[str], code: int, words: str) -> None:
    done = bench.run(*args, code=code)
    assert words in done.stderr
    assert done.stdout == ""
    assert bench.left() == {}
    assert not (bench.folder / "users_other.db").exists()


def test_a_neighbour_that_takes_the_store_it_is_given_is_let_alone(bench: Bench) -> None:
    assert set(verdicts(bench.data("neighbours:app", "asks", "ann", "--only", "not acknowledged")).values()) == {"pass"}


@pytest.mark.proof
def test_an_effect_of_a_name_too_long_for_a_file_is_killed_like_any_other(bench: Bench) -> None:
    data = bench.data("lengthy:app", "bill", "ann", "--only", "before the call")
    assert [run["verdict"] for run in data["runs"]] == ["pass", "pass"]


def test_gates_of_names_too_long_for_a_file_are_told_apart(tmp_path: Path) -> None:
    room, long = Room(tmp_path), "ü" * 200
    room.arm(f"{long}1 before")
    assert room.armed(f"{long}1 before")
    assert not room.armed(f"{long}2 before")


@pytest.mark.proof
def test_a_dry_run_that_fails_says_what_its_worker_wrote_where_it_is_kept_and_after_how_long(bench: Bench) -> None:
    began = time.monotonic()
    done = bench.run("lengthy:app", "lingers", "ann", "--timeout", "5", "--keep", code=1)
    assert time.monotonic() - began < 40, "the time that was asked for, not that of a dry run by itself"
    assert "not within 5 s" in done.stderr
    assert "its worker wrote: ConnectionError: no such shop; mend that first" in done.stderr
    (kept,) = bench.folder.glob("semel-crashtest-*")
    assert f"stores, journals and logs of the runs: {kept}" in done.stderr
    assert "no such shop" in (kept / "run1" / "worker1.log").read_text()


def test_a_database_that_holds_tasks_is_refused(bench: Bench, database: str) -> None:
    app = semel.App(database)
    ref = app.accept(Order("default", "mine", "1", {}, "default"))
    done = bench.run("shelf:app", "stock", "ann", "--store", database, code=2)
    assert "touches no store that holds work" in done.stderr
    assert app.tasks.get(ref).version == 1
    app.close()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.proof), signal.SIGKILL])
def test_when_it_is_ended_in_the_middle_no_process_is_left(bench: Bench, number: signal.Signals) -> None:
    """Workers, one of them frozen, and the provider: gone with it."""
    process = bench.start("careless:app", "mail_twice", "ann", "--sandbox", "--only", "frozen", "--jobs", "2")
    end = time.monotonic() + 60
    while sum("crashtest.inside" in line for line in bench.processes().values()) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert len(bench.processes()) >= 4, "it is in the middle"
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == (-number if number is signal.SIGKILL else 130), err
    assert bench.left() == {}
    assert out == ""
    assert "Traceback" not in err
    if number is not signal.SIGKILL:
        assert list(bench.folder.glob("semel-crashtest-*")) == [], "nor is its folder"


@pytest.mark.proof
@pytest.mark.timeout(120)
def test_when_it_is_cancelled_no_database_is_left(bench: Bench, make_database: Callable[[str], str]) -> None:
    url = make_database("cancelled")
    process = bench.start("careless:app", "mail_twice", "ann", "--sandbox", "--only", "frozen", "--jobs", "2", "--store", url)
    mine = f"semel_crashtest_{process.pid}_%"
    with psycopg.connect(url.rpartition("/")[0] + "/postgres", autocommit=True) as admin:

        def databases() -> int:
            return len(admin.execute("SELECT 1 FROM pg_database WHERE datname LIKE %s", (mine,)).fetchall())

        end = time.monotonic() + 60
        while (databases() < 2 or len(bench.processes()) < 4) and time.monotonic() < end:
            time.sleep(0.05)
        assert databases() >= 2, "it is in the middle"
        process.terminate()
        _, err = process.communicate(timeout=30)
        assert (process.returncode, databases()) == (130, 0), err
    assert bench.left() == {}


CHILD = """
import os, subprocess, sys, time
if sys.argv[1:]:
    from semel.testing.crashtest import inside
    inside.PARENT_SECONDS = 0.02
    inside.follow(os.getppid())
    print(os.getpid(), flush=True)
    time.sleep(60)
child = subprocess.Popen([sys.executable, "-c", os.environ["CHILD"], "x"], start_new_session=True, stdout=subprocess.PIPE)
print(child.stdout.readline().decode(), flush=True)
"""


def test_where_the_kernel_does_not_see_to_it_a_worker_ends_with_its_parent(bench: Bench) -> None:
    env = {**bench.environment(), "CHILD": CHILD}
    done = subprocess.run([sys.executable, "-c", CHILD], env=env, capture_output=True, text=True, timeout=60)
    assert int(done.stdout) > 0, done.stderr
    assert bench.left() == {}


def test_without_waitid_an_ended_worker_is_seen_and_what_it_started_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on macOS before Python 3.13. It ends at once, since its app is not there, and leaves a sleeper behind."""
    (tmp_path / "leaves.py").write_text("import subprocess\nsubprocess.Popen(['sleep', '60'])\nraise SystemExit(3)\n")
    monkeypatch.delattr(os, "waitid")
    env = {**bench.environment(), "PYTHONPATH": f"{SOURCE}{os.pathsep}{tmp_path}"}
    setting = Setting("leaves:app", "sqlite:///no.db", str(tmp_path), os.getpid(), str(tmp_path / "watch"), 2.0)
    child = Child(setting, env, tmp_path / "log")
    try:
        assert child.alive
        end = time.monotonic() + 30
        while child.alive and time.monotonic() < end:
            time.sleep(0.02)
        assert not child.alive
        assert child.process.returncode == 3, child.said()
        assert bench.left() == {}
    finally:
        child.kill()


TEST = """
import pytest
import semel
import shelf

def test_it_is_put_there_once(crashtest):
    report = crashtest(shelf.app, shelf.announce, "ann", probe=shelf.count_names, really=True, only="not acknowledged")
    report.assert_exactly_once()
    assert [row.point for row in report.rows][1:] == [
        "killed, its record not acknowledged", "killed, its finish not acknowledged"]

def test_one_text_is_no_list(crashtest):
    with pytest.raises(semel.Misuse, match="write harmless=."):
        crashtest(shelf.app, shelf.announce, "ann", harmless="shop.example")

def test_a_mistake_is_told(crashtest):
    report = crashtest("shelf:app", "stock", name="ann", probe=lambda effect, key, arguments: 0, really=True, only="its finish")
    report.assert_exactly_once()
"""


HARMLESS = """
import shelf

def test_what_is_harmless_is_no_fault(crashtest):
    told = crashtest(shelf.app, shelf.jots, "ann", only="not acknowledged")
    assert [fault.name for fault in told.faults] == ["effect outside @app.effect"]
    _, _, named = told.faults[0].mend.rpartition("--harmless ")
    crashtest(shelf.app, shelf.jots, "ann", only="not acknowledged", harmless=[named]).assert_exactly_once()
"""


def pytest_of(bench: Bench, tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_shelf.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "semel.testing.plugin", "-p", "no:cacheprovider", "test_shelf.py"]
    env = {**bench.environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=100)


def test_the_pytest_fixture_runs_it_and_tells_what_is_wrong(bench: Bench, tmp_path: Path) -> None:
    done = pytest_of(bench, tmp_path, TEST)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 2 passed" in done.stdout
    assert "LOSS  nothing is harmed: place is confirmed, and the resource shows none" in done.stdout
    assert bench.left() == {}


@pytest.mark.proof
def test_what_its_user_calls_harmless_is_no_fault(bench: Bench, tmp_path: Path) -> None:
    """In the words of the mend; by the fixture, and by the command."""
    done = pytest_of(bench, tmp_path, HARMLESS)
    assert done.returncode == 0, done.stdout + done.stderr
    order = ("shelf:app", "jots", "ann", "--only", "not acknowledged")
    bench.run(*order, "--harmless", "elsewhere", code=1)
    bench.run(*order, "--harmless", "elsewhere", "--harmless", str(bench.folder / "shelf"))


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"semel": "semel.testing.plugin"}
    assert (SOURCE / "semel/testing/plugin.py").exists()
    assert APPS.exists()

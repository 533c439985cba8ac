"""`semel worker`: supervised processes, real signals, exit codes; and `semel demo` as far as the command goes."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from cli_office import Office, until
from typer.testing import CliRunner

from semel.cli import main, work
from semel.engine import collector
from semel.errors import Misuse


def enqueue(office: Office, program: str) -> None:
    office.python(f"import clerk\n{program}\nclerk.app.close()")


def pids(office: Office) -> list[int]:
    return [int(pid) for pid in re.findall(r"semel: worker (\d+) works for", office.log())]


def gone(pid: int) -> bool:
    try:
        return f"/proc/{pid}" and Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")")[1].split()[0] == "Z"
    except OSError:
        return True


def test_until_idle_works_everything_off(fresh: Office) -> None:
    enqueue(fresh, "for n in range(20): clerk.bill.enqueue(f'inv_{n}')")
    done = fresh.semel("worker", "clerk:app", "--until-idle", "--processes", "2")
    assert fresh.json("tasks")["counts"] == {
        "delivery": {"acknowledged": 20}, "execution": {"succeeded": 20}, "effect": {"confirmed": 61},
    }  # fmt: skip
    assert len(fresh.world) == len(set(fresh.world)) == 61
    assert re.search(
        r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO    semel: worker \d+ works for clerk:app$", done.stderr, re.MULTILINE
    )
    assert done.stdout == ""
    assert fresh.python("import clerk; print(len(clerk.app.runtime.desk.store.sessions())); clerk.app.close()") == "0\n"


def test_only_the_queues_that_are_named(fresh: Office) -> None:
    enqueue(fresh, "clerk.bill.enqueue('inv_1'); clerk.spoil.enqueue('inv_2')")
    fresh.semel("worker", "clerk:app", "--until-idle", "--queues", "billing, slow")
    assert fresh.task("inv_1")["execution"] == "succeeded" and fresh.task("inv_2")["execution"] == "not_started"


COLLECTS = """
import gc, semel
app = semel.App()
@app.task(intent=("n",))
def say(n: int) -> None:
    open("said", "w").write(str(gc.get_threshold()))
"""


def test_a_worker_process_looks_for_cycles_less_often(fresh: Office) -> None:
    (fresh.folder / "collects.py").write_text(COLLECTS, encoding="utf-8")
    fresh.python("import collects; collects.say.enqueue(1); collects.app.close()")
    fresh.semel("worker", "collects:app", "--until-idle")
    assert (fresh.folder / "said").read_text(encoding="utf-8") == str((100 * collector.EACH, *gc.get_threshold()[1:]))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_gracefully(fresh: Office, number: int) -> None:
    enqueue(fresh, "clerk.think.enqueue('inv_1')")
    worker = fresh.start("worker", "clerk:app")
    until(lambda: fresh.world, "the effect is in mid-call")
    worker.send_signal(number)
    until(lambda: "stopping: still under way: 1 attempt" in fresh.log(), "the worker drains")
    (fresh.folder / "world").open("a", encoding="utf-8").write("released\n")
    assert worker.wait(timeout=60) == 0
    assert fresh.task("inv_1")["execution"] == "succeeded"
    assert re.search(r"INFO    semel: worker \d+ has stopped", fresh.log())


def test_a_killed_worker_is_started_again_and_a_killed_supervisor_takes_it_along(fresh: Office) -> None:
    enqueue(fresh, "clerk.count.enqueue(1)")
    worker = fresh.start("worker", "clerk:app")
    until(lambda: len(pids(fresh)) == 1, "it works")
    os.kill(pids(fresh)[0], signal.SIGKILL)
    until(lambda: len(pids(fresh)) == 2, "another works in its place")
    assert "was killed by SIGKILL; starting another" in fresh.log()
    worker.kill()
    worker.wait(timeout=30)
    until(lambda: gone(pids(fresh)[1]), "it dies with its supervisor")


def test_a_fenced_worker_exits_with_1_and_is_replaced(fresh: Office) -> None:
    fresh.more["CLERK_LEASE"] = "3"
    enqueue(fresh, "clerk.count.enqueue(1)")
    worker = fresh.start("worker", "clerk:app")
    until(lambda: fresh.json("tasks")["counts"]["delivery"] == {"acknowledged": 1}, "it works")
    enqueue(fresh, "store = clerk.app.runtime.desk.store\nfor s in store.sessions(): store.fence(s.id, None, 'watched')")
    until(lambda: "exited with 1; starting another" in fresh.log(), "it sees at its next beat that it is fenced, and ends")
    assert "semel: this worker was fenced" in fresh.log() and "Traceback" not in fresh.log()
    worker.terminate()
    worker.wait(timeout=60)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import semel\napp = semel.App()\n", "this app declares no task, so a worker has nothing to do"),
        ("import semel\napp = semel.App()\n@app.task()\ndef f(a) -> str: ...\n", "parameter 'a' has no annotation"),
        (
            "import semel\napp = semel.App('sqlite:////none/x.db')\n@app.task()\ndef f(a: str) -> str: ...\n",
            "does not exist",
        ),
        ("import semel\n", "it has no semel.App at all"),
        ("import semel\napp = 7\n", "'app' is a int"),
        ("import nowhere_at_all\n", "No module named 'nowhere_at_all'"),
    ],
)
def test_a_wrong_configuration_ends_it_with_2_and_one_message(fresh: Office, text: str, words: str) -> None:
    (fresh.folder / "wrong.py").write_text(text, encoding="utf-8")
    done = fresh.semel("worker", "wrong:app", code=2)
    assert words in done.stderr and "Traceback" not in done.stderr
    assert "its configuration is wrong, so it is not started again" in done.stderr


def test_what_can_be_seen_to_be_wrong_starts_no_process(fresh: Office) -> None:
    for args, words in (
        (["nowhere:app"], "there is no module 'nowhere'"),
        (["clerk"], "write MODULE:app"),
        (["clerk:app", "--queues", "a,,b"], "has an empty name"),
        (["clerk:app", "--processes", "0"], "processes"),
        (["clerk:app", "--concurrency", "0"], "concurrency"),
    ):
        done = fresh.semel("worker", *args, code=2)
        assert words in done.stderr and "exited with" not in done.stderr


def test_the_worker_process_is_not_for_people(fresh: Office) -> None:
    done = fresh.semel("worker-process", "clerk:app", code=2)
    assert "is started by its supervisor alone; write: semel worker clerk:app" in done.stderr
    other = Office(fresh.folder, {"SEMEL_SUPERVISOR": "1"})
    assert other.semel("worker-process", "clerk:app", code=1).stderr == "", "its supervisor is not its parent: it is gone"


def test_an_app_that_says_where_logs_go_is_obeyed(fresh: Office) -> None:
    (fresh.folder / "own.py").write_text(
        "import logging\nlogging.basicConfig(format='MINE %(message)s', level='INFO')\nfrom clerk import app\n", encoding="utf-8"
    )
    enqueue(fresh, "clerk.count.enqueue(1)")
    done = fresh.semel("worker", "own:app", "--until-idle")
    assert re.search(r"^MINE semel: worker \d+ works for own:app$", done.stderr, re.MULTILINE) and " INFO " not in done.stderr


def test_queue_names() -> None:
    assert work.queues_of(None) is None and work.queues_of("a, b") == ["a", "b"]
    with pytest.raises(Misuse):
        work.queues_of("")


# --- semel demo -------------------------------------------------------------------------------------------------------


def test_the_demo_gets_what_was_asked_and_gives_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    stub = types.ModuleType("semel.cli.demo")
    stub.run = lambda **given: asked.append(given) or 1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "semel.cli.demo", stub)
    assert CliRunner().invoke(main.cli, ["demo"]).exit_code == 1
    assert (
        CliRunner().invoke(main.cli, ["demo", "--seed", "7", "--tasks", "3", "--store", "x.db", "--seconds", "2.5"]).exit_code
        == 1
    )
    assert asked == [
        {"seed": None, "tasks": 40, "store": None}, {"seed": 7, "tasks": 3, "store": "x.db", "seconds": 2.5},
    ]  # fmt: skip


def test_a_missing_demo_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "semel.cli.demo", None)
    done = CliRunner().invoke(main.cli, ["demo"])
    assert done.exit_code == 2 and "the demo is not part of this installation" in done.stderr

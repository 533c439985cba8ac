"""The parent of workers: nothing of a dead one acts, and the next begins only then. Real processes, real signals."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from watchdog_lab import HERE, can_unshare, start, until

from semel.errors import Misuse
from semel.supervise import supervise
from semel.watchdog import Watchdog, read_stat

Start = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a subreaper is Linux's")


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Start]:
    """Start a supervisor; kill what is left of it afterwards (its workers die with it)."""
    started = []

    def begin(mode: str, processes: int = 1, directory: Path = tmp_path) -> subprocess.Popen[str]:
        started.append(start("supervisor.py", mode, directory, processes))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def files(directory: Path, pattern: str) -> list[Path]:
    return sorted(path for path in directory.glob(pattern) if ".tmp" not in path.name)


def gone(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is None or stat.state in "ZX"


def test_a_dead_workers_family_is_killed_before_the_next_worker_starts(begin: Start, tmp_path: Path) -> None:
    ours, control = tmp_path / "supervised", tmp_path / "alone"
    ours.mkdir()
    control.mkdir()
    supervisor = begin("family", 1, ours)
    alone = subprocess.Popen([sys.executable, "-S", str(HERE / "scripts" / "worker.py"), "family", str(control)])
    for directory in (ours, control):
        until((directory / "ready").exists)
        os.kill(int((directory / "first").read_text()), signal.SIGKILL)
    alone.wait()
    until((ours / "second").exists)
    assert (ours / "second").read_text() == "[]"  # what the second worker saw alive of the first one's family
    for directory in (ours, control):
        (directory / "go").touch()
    family = ["daemon.acted", "grandchild.acted", "plain.acted"]
    until(lambda: [path.name for path in files(control, "*.acted")] == family)  # without a supervisor all of them act
    assert files(ours, "*.acted") == []
    assert supervisor.poll() is None


def test_a_family_that_comes_out_one_by_one_is_gone_before_the_next_worker_starts(begin: Start, tmp_path: Path) -> None:
    assert begin("chain").wait(20) == 0
    assert len((tmp_path / "pids").read_text().split()) == 10
    assert (tmp_path / "second").read_text() == "[]"


def test_the_family_dies_at_a_clean_end_too(begin: Start, tmp_path: Path) -> None:
    supervisor = begin("family")
    until((tmp_path / "ready").exists)
    supervisor.terminate()  # the worker does not catch it
    assert supervisor.wait(20) == 128 + signal.SIGTERM
    assert all(gone(int(path.read_text())) for path in files(tmp_path, "*.pid"))


def test_one_sigterm_lets_workers_finish(begin: Start, tmp_path: Path) -> None:
    (tmp_path / "kind").write_text("graceful")
    supervisor = begin("stopping", 2)
    until(lambda: len(files(tmp_path, "up.*")) == 2)
    supervisor.terminate()
    assert supervisor.wait(20) == 0
    assert len(files(tmp_path, "finished.*")) == len(files(tmp_path, "up.*")) == 2


def test_a_second_sigterm_reaches_them_too(begin: Start, tmp_path: Path) -> None:
    (tmp_path / "kind").write_text("stubborn")
    supervisor = begin("stopping", 2)
    until(lambda: len(files(tmp_path, "up.*")) == 2)
    supervisor.send_signal(signal.SIGINT)
    until(lambda: len(files(tmp_path, "term1.*")) == 2)
    assert supervisor.poll() is None
    supervisor.terminate()
    assert supervisor.wait(20) == 7


def test_a_third_one_kills(begin: Start, tmp_path: Path) -> None:
    (tmp_path / "kind").write_text("deaf")
    supervisor = begin("stopping")
    until(lambda: files(tmp_path, "up.*"))
    for number in (1, 2):
        supervisor.terminate()
        until(functools.partial(files, tmp_path, f"term{number}.*"))
    supervisor.terminate()
    assert supervisor.wait(20) == 128 + signal.SIGKILL
    assert len(files(tmp_path, "up.*")) == 1


def test_a_killed_supervisor_takes_its_workers_along(begin: Start, tmp_path: Path) -> None:
    (tmp_path / "kind").write_text("deaf")
    supervisor = begin("stopping", 2)
    until(lambda: len(files(tmp_path, "up.*")) == 2)
    pids = [int(path.suffix[1:]) for path in files(tmp_path, "up.*")]
    supervisor.kill()
    supervisor.wait()
    until(lambda: all(gone(pid) for pid in pids))


def test_die_with_parent(begin: Start, tmp_path: Path) -> None:
    parent = begin("parent_and_worker")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    parent.kill()
    until(lambda: gone(int((tmp_path / "pid").read_text())))


def test_die_with_parent_at_once_if_it_is_dead_already(begin: Start) -> None:
    assert begin("wrong_parent").wait(20) == 1


def test_a_crashing_worker_is_started_again_more_and_more_slowly(begin: Start, tmp_path: Path) -> None:
    supervisor = begin("crashing")
    times = [float(path.name.removeprefix("start.")) for path in until(lambda: four(tmp_path))]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps[1] >= 0.1
    assert gaps[2] >= 0.2
    supervisor.terminate()
    assert supervisor.wait(20) in {1, 128 + signal.SIGTERM}


def four(directory: Path) -> list[Path] | None:
    found = files(directory, "start.*")
    return found[:4] if len(found) >= 4 else None


@pytest.mark.parametrize("code", [0, 2])
def test_a_finished_or_misconfigured_worker_is_not_started_again(begin: Start, tmp_path: Path, code: int) -> None:
    (tmp_path / "code").write_text(str(code))
    supervisor = begin("ending", 2)
    assert supervisor.wait(20) == code
    started = files(tmp_path, "start.*")
    assert len(started) == 2
    assert {path.read_text() for path in started} == {str(supervisor.pid)}


def test_a_command_that_is_not_there(begin: Start) -> None:
    assert begin("missing").wait(20) == 2


def test_a_function_as_worker(begin: Start, tmp_path: Path) -> None:
    supervisor = begin("callable_worker")
    assert supervisor.wait(20) == 0
    assert (tmp_path / "first").read_text() == str(supervisor.pid)
    assert (tmp_path / "second").read_text() == f"{supervisor.pid} True yes"


def test_the_callers_own_children_are_left_alone_and_everything_put_back(begin: Start, tmp_path: Path) -> None:
    (tmp_path / "code").write_text("0")
    assert begin("with_children_before").wait(20) == 0


def test_an_error_in_the_supervisor_leaves_no_worker(begin: Start) -> None:
    assert begin("raising_report").wait(20) == 42


@pytest.mark.skipif(not can_unshare(), reason="no PID namespaces for us here")
@pytest.mark.parametrize(("mount", "code"), [(("--mount-proc",), 0), ((), 42)])
def test_as_the_first_process_of_a_container(tmp_path: Path, mount: tuple[str, ...], code: int) -> None:
    """With another namespace's /proc it refuses: it would take other processes for its orphans."""
    process = start("supervisor.py", "first_process", tmp_path, 1, prefix=("unshare", "-pf", *mount))
    assert process.wait(20) == code
    if code == 0:
        assert (tmp_path / "seen").read_text() == f"1 {Watchdog(True).available}"


def test_wrong_uses() -> None:
    with pytest.raises(Misuse, match="at least one process"):
        supervise(["true"], 0)
    with pytest.raises(Misuse, match="as a list"):
        supervise("true", 1)
    caught = []

    def elsewhere() -> None:
        try:
            supervise(["true"], 1)
        except Misuse as error:
            caught.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in caught[0]

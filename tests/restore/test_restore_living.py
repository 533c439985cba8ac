"""Processes that live while their store goes back: they are fenced and do nothing; supervisors start others, and those begin."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from going_back import Place, known_here
from restore_lab import RestoreLab, until

import semel
from semel.machine import journal as j


@pytest.fixture
def lab(place: Place, tmp_path: Path) -> Iterator[RestoreLab]:
    known_here(place)
    made = RestoreLab(tmp_path / "lab", place)
    yield made
    made.close()


def supervised(lab: RestoreLab) -> int:
    """A worker under a supervisor; its pid."""
    before = set(lab.sessions())
    lab.worker("keeper", script="run_supervisor.py")
    (pid,) = until("it has come in", lambda: set(lab.sessions()) - before)
    return int(pid)


def test_a_living_worker_is_fenced_and_acts_no_more(lab: RestoreLab) -> None:
    """It is stopped before its call when the store goes back. Its neighbour is idle. One epoch begins, and all is done once."""
    supervised(lab)
    supervised(lab)
    lab.result(lab.give("charge", "first"))
    lab.back_up()
    until("they go on", lambda: len(lab.sessions()) == 2)
    lab.result(lab.give("mail", "second"))
    lab.arm("start.third")
    third = lab.give("publish", "third")
    holder = lab.arrived("start.third")
    requests = lab.requests_of(holder)
    lab.app.close()
    lab.place.go_back()
    lab.app = lab.open_app()
    until("it is noticed", lambda: not Path(f"/proc/{holder}").exists() or "is fenced" in said(lab))
    lab.open("start.third")
    until("an epoch begins", lambda: lab.has_begun() and lab.epoch().watched)
    assert lab.requests_of(holder) == requests, "it sent nothing more"
    second, third = lab.give("mail", "second"), lab.give("publish", "third")
    lab.result(second)
    assert lab.wait(third).delivery is semel.Delivery.BLOCKED
    assert lab.person(third, "publish") == "not_found"
    lab.result(third)
    assert sorted(act.body["ref"] for act in lab.acts()) == ["first", "second", "third"]
    rows = lab.app.runtime.desk.store.rows("", "store")
    assert [row.kind for row in rows] == [j.EpochBegan.kind, j.EpochWatched.kind]
    lab.whole()


def said(lab: RestoreLab) -> str:
    return "".join(worker.log.read_text() for worker in lab.workers)


@pytest.mark.only("postgres")
def test_who_only_accepts_tasks_goes_on_when_the_epoch_has_begun(lab: RestoreLab) -> None:
    """It is told that the store went back, its writes wait, and it need not be started again."""
    lab.give("charge", "first")
    lab.place.back_up()
    lab.give("charge", "second")
    lab.place.go_back()
    with pytest.raises(semel.StoreUnavailable, match=r"went back: it does not hold .* see: semel restore"):
        lab.app.tasks.list()
    worker = lab.keeper()
    until("an epoch begins", lambda: "begins" in worker.log.read_text())
    again = lab.give("charge", "second")
    lab.result(again)
    (accepted,) = lab.events(again, "enqueued")
    assert lab.epoch().doubt(None)
    assert [e.kind for e in lab.events(again)][:3] == ["enqueued", "claimed", "assumed"]
    assert accepted.seq == 1


@pytest.mark.only("sqlite")
@pytest.mark.parametrize("how", ["copied over", "moved over"])
def test_a_worker_notices_that_its_file_was_changed_under_it(lab: RestoreLab, how: str) -> None:
    """`cp` writes into the very file that is open, and only its log is another; nothing more is acknowledged."""
    worker = lab.keeper()
    lab.result(lab.give("charge", "first"))
    lab.back_up()
    lab.result(lab.give("charge", "second"))
    worker.freeze()
    lab.app.close()
    path = Path(lab.url.removeprefix("sqlite:///"))
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink()
    if how == "copied over":
        path.write_bytes(path.with_name("backup").read_bytes())
    else:
        path.with_name("backup").replace(path)
    if (log := path.with_name("backup-wal")).exists():
        log.replace(f"{path}-wal")
    lab.app = lab.open_app()
    lost = lab.give("charge", "third")
    os.kill(worker.pid, signal.SIGCONT)
    worker.exit_code()
    assert "is fenced" in worker.log.read_text() or worker.exit_code() == -signal.SIGKILL
    lab.keeper()
    lab.result(lost)
    lab.result(lab.give("charge", "second"))
    lab.whole()
    assert sorted(act.body["ref"] for act in lab.acts()) == ["first", "second", "third"]

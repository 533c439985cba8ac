"""Several machines, as far as one can play them: PID namespaces, clocks that jump, forks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import ENDED, Lab, until

import semel
from pgserver import emptied
from semel.store.contract import SessionRow
from semel.testing.postgres import Cluster

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
HOURS = [3600.0, -3600.0, 0.0]


def can_unshare() -> bool:
    """Whether this user may make PID namespaces here."""
    try:
        return subprocess.run(["unshare", "-pf", "--mount-proc", "true"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def living(lab: Lab) -> dict[str, SessionRow]:
    """The sessions that are not fenced."""
    return {row.id: row for row in lab.app.runtime.desk.store.sessions()}


# --- PID namespaces: two containers on one machine ---


def contained(lab: Lab) -> tuple[str, int]:
    """A supervised worker in a PID namespace of its own: its session, and its pid as it is seen from outside."""
    before = living(lab)
    unshare = ("unshare", "-pf", "--kill-child", "--mount-proc")
    container = lab.launch(*unshare, sys.executable, str(lab.apps / "run_supervisor.py"), "agent", "20", CRASH_PARENT="0")
    (session,) = until("it has come in", lambda: living(lab).keys() - before.keys())
    pid = container.pid
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    assert Path(f"/proc/{pid}/ns/pid").stat().st_ino == living(lab)[session].pid_ns
    return session, pid


@pytest.mark.only("postgres")
@pytest.mark.skipif(not can_unshare(), reason="no PID namespaces for us here")
@pytest.mark.parametrize("action", ["mail", "charge"])
def test_containers_with_one_boot_id_leave_each_other_alone_until_one_is_watched_out(lab: Lab, action: str) -> None:
    """Here the other's pid is one's own, or nobody's: that is no proof of death. A frozen one is taken over by watching (R14)."""
    outside = dict(contained(lab) for _ in range(2))
    one, other = living(lab).values()
    assert one.boot_id == other.boot_id
    assert one.pid_ns != other.pid_ns
    assert one.pid == other.pid, "which without the namespace would be a proof that one of them is dead"
    time.sleep(2.5)  # some beats, and more than a lease
    assert living(lab).keys() == outside.keys()
    lab.arm(f"before.{action}.1")
    ref = lab.enqueue("sync_work", "r1", action=action, ref="r1")
    lab.arrived(f"before.{action}.1")
    holder = lab.app.runtime.desk.store.task("default", ref.id).session  # type: ignore[union-attr]
    worker = outside[holder]
    container = [int(Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1]), worker]  # or its supervisor ...
    for pid in container:
        os.kill(pid, signal.SIGSTOP)  # ... would start another, which knows of its death
    lab.open(f"before.{action}.1")
    lab.result(ref)
    assert [event.body["proof"] for event in lab.events(ref, "lease_lost")] == ["watched"]
    for pid in reversed(container):
        os.kill(pid, signal.SIGCONT)
    until("the kernel has ended it before it could call", lambda: not Path(f"/proc/{worker}").exists())
    assert [request.method for request in lab.provider.requests()].count("POST") == 1
    lab.proved(ref, acts={action: 1})


# --- clocks ---


def ended(lab: Lab, refs: list[semel.Ref[str]]) -> bool:
    """Whether all have; a person is at hand."""
    lab.a_person_passes()
    return all(lab.task(ref).delivery in ENDED for ref in refs)


def work_through(lab: Lab, jump: Callable[[float], None]) -> None:
    """Tasks that wait for their provider to be asked again, while a clock jumps an hour ahead, two back, and home again.

    An hour is also how long a provider is asked in vain before a person is (the patience of a rung): one is at hand.
    """
    refs: list[semel.Ref[str]] = []
    lab.provider.fault("cut_after", action="mail", times=2)
    lab.provider.fault("error_before", action="mail", asks=True, times=5)
    for seconds in HOURS:
        more = [
            lab.enqueue(kind, f"{kind}{n}{seconds}", action="mail", ref=f"{kind}{n}{seconds}")
            for kind in ("sync_work", "async_work")
            for n in range(2)
        ]
        refs += more
        until("some wait, or are over", lambda more=more: any(lab.events(ref, "parked") for ref in more) or ended(lab, more))  # type: ignore[misc]
        jump(seconds)
    until("all have ended", lambda: ended(lab, refs))
    time.sleep(2.2)  # more than a lease: whoever would be fenced has been
    assert all(worker.alive for worker in lab.workers)
    assert len(living(lab)) == 2
    for ref in refs:
        lab.result(ref)
    lab.proved(*refs, acts={"mail": 12})


def test_the_clock_of_one_worker_jumps_an_hour_either_way(make_lab: Callable[..., Lab]) -> None:
    """It sets dates on the record, and no more: no duplicate, no stall, nobody fenced."""
    lab = make_lab(CRASH_HOLD="0.15")
    shift = lab.room / "shift"
    shift.write_text("0")
    lab.worker(CRASH_SHIFT=str(shift))
    lab.worker()
    until("both are there", lambda: len(living(lab)) == 2)
    work_through(lab, lambda seconds: shift.write_text(str(seconds)) and None)


if FAKETIME:  # Debian: apt-get install libfaketime

    @pytest.fixture
    def clock() -> Iterator[Path]:
        """What is added to a server's clock; the server, who is another user, reads it."""
        folder = Path(tempfile.mkdtemp(prefix="semel-clock-"))
        folder.chmod(0o755)
        (folder / "shift").write_text("+0")
        yield folder / "shift"
        shutil.rmtree(folder)

    @pytest.fixture
    def shifted(clock: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
        """A server whose wall clock the test moves."""
        with monkeypatch.context() as env:
            env.setenv("LD_PRELOAD", str(FAKETIME))
            env.setenv("FAKETIME_TIMESTAMP_FILE", str(clock))
            env.setenv("FAKETIME_NO_CACHE", "1")
            env.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            found = Cluster()
        yield found
        found.close()

    @pytest.mark.only("postgres")
    @pytest.mark.proof
    def test_the_databases_clock_jumps_an_hour_either_way(shifted: Cluster, clock: Path, make_lab: Callable[..., Lab]) -> None:
        """Nothing is asked of it (`test_postgres_clock.py` says so of each statement)."""
        import psycopg

        emptied(shifted.url)
        lab = make_lab(url=shifted.url, CRASH_HOLD="0.15")
        lab.worker(), lab.worker()
        until("both are there", lambda: len(living(lab)) == 2)

        def jump(seconds: float) -> None:
            clock.write_text(f"{seconds:+.0f}")
            with psycopg.connect(shifted.url) as raw:
                (behind,) = raw.execute("SELECT extract(epoch FROM clock_timestamp()) - %s", (time.time(),)).fetchone()  # type: ignore[misc]
                assert abs(float(behind) - seconds) < 60, "the clock has jumped"

        work_through(lab, jump)


# --- forks ---


def test_an_app_in_use_is_used_after_a_fork_by_both(lab: Lab) -> None:
    """The child opens connections of its own, and the parent's go on."""
    lab.worker()
    program = lab.start(str(lab.apps / "run_forks.py"))
    said, _ = program.communicate(timeout=40)
    assert program.returncode == 0
    for id in said.split():
        lab.result(lab.app.tasks.get(id).ref)
    lab.proved(acts={"mail": 4})

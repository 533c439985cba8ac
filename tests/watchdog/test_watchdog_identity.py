"""R14: when a process is provably dead, and when it only looks so."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from watchdog_lab import can_unshare, run, start, until

import semel.watchdog
from semel.watchdog import Identity, boottime, proof_of_death, read_stat

needs_namespaces = pytest.mark.skipif(not can_unshare(), reason="no PID namespaces for us here")
OWN = Identity.own()


def identity(pid: int) -> Identity:
    stat = read_stat(pid)
    assert stat is not None
    return replace(OWN, pid=pid, start_time=stat.start_time)


def state(pid: int) -> str | None:
    stat = read_stat(pid)
    return stat.state if stat else None


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until its stdin is closed."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()


def test_boottime_is_the_kernels() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boottime() <= before + 5


def test_own() -> None:
    assert OWN.pid == os.getpid()
    assert OWN.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert OWN.pid_ns == Path("/proc/self/ns/pid").stat().st_ino
    assert 0 < OWN.start_time / os.sysconf("SC_CLK_TCK") <= boottime()
    assert Identity.own() == OWN


def test_a_name_with_spaces_and_parentheses(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 0 (b"
    program.symlink_to("/bin/sh")
    process = subprocess.Popen([program, "-c", "read line"], stdin=subprocess.PIPE)
    try:
        # Until the exec the child bears our own name
        until(lambda: ") Z 0 (" in Path(f"/proc/{process.pid}/comm").read_text())
        stat = read_stat(process.pid)
        assert stat is not None
        assert (stat.parent, stat.threads) == (os.getpid(), 1)
        assert stat.state in "SRD"
        assert stat.start_time >= OWN.start_time
    finally:
        process.kill()
        process.wait()


def test_alive_is_not_dead(child: subprocess.Popen[bytes]) -> None:
    assert not proof_of_death(identity(child.pid), OWN)
    assert not proof_of_death(OWN, OWN)


def test_gone_is_dead(child: subprocess.Popen[bytes]) -> None:
    other = identity(child.pid)
    child.kill()
    child.wait()
    assert proof_of_death(other, OWN)
    assert proof_of_death(replace(other, start_time=0), OWN)  # ESRCH needs no start time


def test_a_zombie_is_dead(child: subprocess.Popen[bytes]) -> None:
    other = identity(child.pid)
    child.kill()
    until(lambda: state(child.pid) == "Z")
    assert proof_of_death(other, OWN)


def test_a_reused_number_is_dead(child: subprocess.Popen[bytes]) -> None:
    other = identity(child.pid)
    assert proof_of_death(replace(other, start_time=other.start_time - 1), OWN)
    assert not proof_of_death(replace(other, start_time=0), OWN)  # unknown is not another


@pytest.mark.parametrize(
    "change",
    [
        {"boot_id": "00000000-0000-0000-0000-000000000000"},
        {"boot_id": ""},
        {"pid_ns": OWN.pid_ns + 1},
        {"pid_ns": 0},
        {"time_ns": OWN.time_ns + 1},
        {"host": "elsewhere"},
        {"pid": 0},
        {"pid": -1},
        {"pid": 2**70},
    ],
)
def test_elsewhere_or_nonsense_is_no_proof(child: subprocess.Popen[bytes], change: dict[str, Any]) -> None:
    other = identity(child.pid)
    child.kill()
    child.wait()
    assert not proof_of_death(replace(other, **change), OWN)


def test_what_cannot_be_read_on_either_side_is_no_proof(child: subprocess.Popen[bytes]) -> None:
    other = identity(child.pid)
    child.kill()
    child.wait()
    for unread in ({"boot_id": ""}, {"pid_ns": 0}):
        assert not proof_of_death(replace(other, **unread), replace(OWN, **unread))


def test_not_permitted_is_no_proof(child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(identity(child.pid), start_time=1)

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not proof_of_death(other, OWN)


def test_unreadable_is_no_proof(child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(identity(child.pid), start_time=1)
    real = semel.watchdog.read_stat
    monkeypatch.setattr(semel.watchdog, "read_stat", lambda pid: real(pid) if pid == "self" else None)
    assert not proof_of_death(other, OWN)


@pytest.mark.skipif(platform.machine() not in {"x86_64", "aarch64"}, reason="needs the number of SYS_exit")
def test_a_zombie_leader_with_a_living_thread_is_not_dead() -> None:
    process = start("leader.py")
    try:
        until(lambda: state(process.pid) == "Z")
        stat = read_stat(process.pid)
        assert stat is not None
        assert stat.threads == 2
        other = identity(process.pid)
        assert not proof_of_death(other, OWN)
        process.stdin.close()  # type: ignore[union-attr]
        until(lambda: proof_of_death(other, OWN))
        assert state(process.pid) == "Z"  # not waited for yet: dead as a zombie, not as unknown
    finally:
        process.kill()
        process.wait()


@needs_namespaces
def test_another_pid_namespace_is_no_proof() -> None:
    process = start("identity.py", "show", prefix=("unshare", "-pf", "--kill-child"))
    try:
        other = Identity(**json.loads(process.stdout.readline()))  # type: ignore[union-attr]
        assert (other.boot_id, other.pid) == (OWN.boot_id, 1)
        assert other.pid_ns != OWN.pid_ns
        assert not proof_of_death(other, OWN)
        # The control: its number is somebody else's here, and only the namespace says that this means nothing
        assert proof_of_death(replace(other, pid_ns=OWN.pid_ns), OWN)
    finally:
        process.stdin.close()  # type: ignore[union-attr]
        process.wait()


@needs_namespaces
def test_the_proc_of_another_namespace_is_no_proof() -> None:
    seen = run("identity.py", "foreign_proc", prefix=("unshare", "-pf"))
    assert seen == {"same_namespace": True, "alive": False, "dead": True}


@needs_namespaces
def test_an_own_identity_kept_over_a_fork_is_no_proof() -> None:
    assert run("identity.py", "stale_own") == {"known": False, "proof": False}

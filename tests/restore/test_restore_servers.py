"""PostgreSQL servers that go back, and that fail over: to a moment, to a synchronous standby, to one that lacks the tail."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from clusters import Archiving, Fixed, Restored, Standby, ask, base_backup, store_on, tell, wait_for
from lab import ENDED
from restore_lab import RestoreLab, until

import semel
from semel.testing.postgres import Cluster

ACTIONS = ("charge", "mail", "publish")


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ExitStack]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ExitStack() as stack:
        yield stack


class Load:
    """Tasks that are given without end, and counted at the provider."""

    def __init__(self, lab: RestoreLab) -> None:
        self.lab = lab
        self.names = (f"{ACTIONS[n % 3]}.n{n}" for n in itertools.count())
        self.refs: dict[str, semel.Ref[Any]] = {}

    def give(self, seconds: float, pause: float = 0.02) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.give_one(next(self.names))
            time.sleep(pause)

    def give_one(self, name: str) -> None:
        action, ref = name.split(".")
        self.refs[name] = self.lab.give(action, ref)

    def all_again(self) -> None:
        """Whoever gave them asks again."""
        for name in self.refs:
            self.give_one(name)

    def ended(self) -> bool:
        """Whether all have; a person is at hand."""
        self.lab.a_person_passes()
        return all(self.lab.task(ref).delivery in ENDED for ref in self.refs.values())

    def acts(self) -> list[str]:
        return sorted(f"{act.action}.{act.body['ref']}" for act in self.lab.acts())

    def proved(self) -> None:
        """Each was done once, and nothing is stranded."""
        for ref in self.refs.values():
            self.lab.result(ref)
        assert self.acts() == sorted(self.refs)
        self.lab.whole()

    def no_intent_lost(self) -> None:
        """Whatever reached the provider has its intent on record."""
        on_record = {
            (event.body["key"], event.body["token"])
            for ref in self.refs.values()
            for event in self.lab.events(ref)
            if event.kind == "intended"
        }
        sent = {(r.key, r.token) for r in self.lab.provider.requests() if r.method != "GET"}
        assert sent <= on_record, sent - on_record


def lab_on(place: Fixed, folder: Path, closing: ExitStack, **env: str) -> RestoreLab:
    lab = RestoreLab(folder / "lab", place, **env)  # type: ignore[arg-type]
    closing.callback(lab.close)
    return lab


def test_a_point_in_time_restore_in_the_middle_of_work(closing: ExitStack, tmp_path: Path) -> None:
    """Some seconds are forgotten. Keyed and looked-up effects of that time are not done again, opaque ones wait for a person."""
    server = Archiving()
    closing.callback(server.close)
    lab = lab_on(store_on(server, server.url), tmp_path, closing)
    base = server.folder / "base"
    base_backup(server, base, "-X", "none")
    workers = [lab.keeper(), lab.keeper()]
    load = Load(lab)
    load.give(1.5)
    moment = ask(server, "SELECT clock_timestamp()")
    until("something is done before", lambda: len(lab.acts()) > 5)
    known = len(lab.acts())
    load.give(2.5)
    forgotten = len(lab.acts()) - known
    assert forgotten > 10
    sent = {act.body["ref"]: act for act in lab.acts("publish") if act.at > moment.timestamp()}
    server.archived()
    for worker in workers:
        worker.kill()
    lab.app.close()
    server.kill()
    restored = Restored(server, base, moment)
    closing.callback(restored.close)
    lab.app = lab.open_app()
    held = ask(restored, "SELECT count(*) FROM semel.task")
    assert 0 < held < len(load.refs)
    lab.keeper(), lab.keeper()
    until("an epoch begins", lambda: lab.has_begun() and lab.epoch().watched)
    load.all_again()
    blocked = until("opaque effects wait for a person", lambda: lab.app.tasks.list(delivery="blocked", limit=1000))
    assert {task.key.split(".")[0] for task in blocked} == {"publish"}
    until("all have ended", load.ended)
    load.proved()
    assert [lab.sent(ref) and len(lab.sent(ref)) for ref in sent] == [1] * len(sent)
    assert abs(lab.epoch().since - moment.timestamp() * 1000) < 1000


class Pair:
    """A primary and its standby; synchronous: a commit is acknowledged when the standby has it."""

    def __init__(self, closing: ExitStack, *, synchronous: bool) -> None:
        self.primary = Cluster()
        closing.callback(self.primary.close)
        self.standby = Standby(self.primary, "second")
        closing.callback(self.standby.close)
        self.url = f"postgresql://semel@127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}/postgres"
        wait_for(self.primary, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
        if synchronous:
            tell(self.primary, "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (second)'", "SELECT pg_reload_conf()")
            wait_for(self.primary, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'")

    def fail_over(self) -> None:
        """The primary's machine is lost."""
        self.primary.kill()
        self.standby.promote()


def test_a_failover_to_a_synchronous_standby_loses_nothing_and_alarms_nobody(closing: ExitStack, tmp_path: Path) -> None:
    pair = Pair(closing, synchronous=True)
    lab = lab_on(store_on(pair.primary, pair.url, largest_ttl_ms=60_000), tmp_path, closing, CRASH_LEASE="10")
    workers = [lab.keeper(), lab.keeper()]
    load = Load(lab)
    load.give(1.5)
    until("they are at it", lambda: len(lab.acts()) > 5 and len(lab.sessions()) == 2)
    before = lab.sessions()
    pair.fail_over()
    load.give(1.5)
    until("all have ended", load.ended)
    load.proved()
    load.no_intent_lost()
    assert lab.sessions() == before and all(worker.alive for worker in workers)
    assert not lab.has_begun()
    assert "went back" not in "".join(worker.log.read_text() for worker in workers)


def test_a_failover_that_lost_its_tail_is_noticed_and_waits_for_a_persons_word(closing: ExitStack, tmp_path: Path) -> None:
    """The control: with an asynchronous standby what was acknowledged is lost. semel stops until a person has spoken."""
    pair = Pair(closing, synchronous=False)
    lab = lab_on(store_on(pair.primary, pair.url), tmp_path, closing)
    workers = [lab.keeper(), lab.keeper()]
    load = Load(lab)
    load.give(1.0)
    until("they are at it", lambda: len(lab.acts()) > 5)
    tell(pair.standby, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")  # it receives no more
    wait_for(pair.standby, "SELECT count(*) = 0 FROM pg_stat_wal_receiver")
    load.give(1.5)
    until("the tail is done", lambda: all(lab.task(r).delivery in ENDED or "publish" in n for n, r in load.refs.items()))
    done = load.acts()
    accepted = len(load.refs)
    lab.app.close()
    pair.fail_over()
    assert ask(pair.standby, "SELECT count(*) FROM semel.task") < accepted, "acknowledged, and lost"
    for worker in workers:
        worker.exit_code()
        assert "went back" in worker.log.read_text()
    late = lab.keeper()
    late.says("semel restore --old-is-down --by YOU --reason WHY")
    time.sleep(2.5)
    lab.app = lab.open_app()
    assert not lab.has_begun()
    assert load.acts() == done
    assert restore(lab).returncode == 1
    said = restore(lab, "--old-is-down", "--by", "ann", "--reason", "the old primary burnt down")
    assert said.returncode == 0, said.stderr
    load.all_again()
    until("all have ended", load.ended)
    assert late.alive, "it went on by itself"
    load.proved()
    assert lab.epoch().doubtful


def restore(lab: RestoreLab, *options: str) -> subprocess.CompletedProcess[str]:
    """`semel restore`."""
    command = [sys.executable, "-m", "semel", "restore", *options]
    return subprocess.run(command, env=lab.env, capture_output=True, text=True, timeout=60)

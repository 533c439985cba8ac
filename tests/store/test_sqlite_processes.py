"""Several processes on one file, and processes that are killed or forked."""

from __future__ import annotations

from pathlib import Path

from store_lab import play

from semel.machine import journal as j
from semel.store.sqlite import SQLite
from semel.testing.conformance_claims import accept
from semel.testing.conformance_kit import TENANT, task


def test_eight_processes_that_open_at_once_make_one_store(tmp_path: Path) -> None:
    found = play("open_at_once", 8, tmp_path, 12)
    for n in range(12):
        assert len({tuple(process[n]) for process in found}) == 1
    assert len({tuple(store) for store in found[0]}) == 12


def test_racing_processes_build_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    found = play("race", 3, path, 100)
    assert [landed for landed, _ in found] == [100] * 3
    assert sum(stale for _, stale in found), "they did race"
    store = SQLite(str(path))
    rows = store.rows(TENANT, "s")
    store.close()
    assert len(rows) == 600
    assert j.broken(rows) is None


def test_processes_never_claim_the_same_task(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SQLite(str(path))
    accept(store, *(task(f"k{n}") for n in range(600)))
    store.close()
    found = play("claim_all", 2, path, 3)
    got = [key for keys, _ in found for key in keys]
    assert sorted(got) == sorted(f"k{n}" for n in range(600))
    assert [len(keys) for keys, _ in found] == [held for _, held in found]
    assert all(keys for keys, _ in found), "both had their share"


def test_no_process_starves_and_all_can_beat(tmp_path: Path) -> None:
    found = play("hammer", 3, tmp_path / "store.db", 2.5)
    for commits, beats, missed, longest in found:
        assert commits >= 20, found
        assert beats >= 5, found
        assert missed == 0, found
        assert longest < 11, f"a beat must be answered within 3/4 of the TTL: {found}"


def test_nothing_acknowledged_is_lost_when_its_process_is_killed(tmp_path: Path) -> None:
    ((acknowledged, lost, integrity),) = play("killed", 1, tmp_path / "store.db", 20, 1)
    assert acknowledged > 100
    assert lost == []
    assert integrity == ["ok"]


def test_a_forked_child_loses_nothing_when_its_parent_lets_go(tmp_path: Path) -> None:
    ((acknowledged, found),) = play("orphaned_by_fork", 1, tmp_path / "store.db")
    assert acknowledged == found == 6


def test_forks_amid_commits_harm_neither_side(tmp_path: Path) -> None:
    ((acknowledged, found, codes),) = play("forks_amid_commits", 1, tmp_path / "store.db", 40)
    assert codes == [0]
    assert acknowledged == found > 40


def test_a_child_cannot_use_its_parents_handle_and_the_parent_can(tmp_path: Path) -> None:
    assert play("used_after_a_fork", 1, tmp_path / "store.db") == [["StoreUnavailable", True]]


def test_a_child_forked_in_the_middle_of_a_write_may_not_open_the_file(tmp_path: Path) -> None:
    ((said, claimed),) = play("forked_in_a_write", 1, tmp_path / "store.db")
    assert "exec or spawn" in said
    assert claimed == ["k"], "the parent goes on"

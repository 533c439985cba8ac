"""A file that an older semel has written is read, verified and gone on with; what is left out since is no less proved."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import older_lab as lab
import tampering_lab
from semel.cli.verify import verify
from semel.engine import pages
from semel.machine.records import replace
from semel.store import sqlitefile
from semel.store.contract import Claims
from semel.store.sqlite import SQLite
from semel.testing.conformance_kit import TENANT, Known, claiming, one, session, task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def owner(path: Path, *statements: str) -> None:
    """Whoever owns the file, the triggers being gone."""
    raw = apsw.Connection(str(path))
    for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        raw.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        raw.execute(statement)
    raw.close()


def test_a_store_of_an_older_semel_is_read_verified_and_continued(path: Path) -> None:
    def age() -> None:
        raw = apsw.Connection(str(path))
        raw.execute("PRAGMA user_version=3")
        raw.close()

    assert sqlitefile.SCHEMA == 4, "or the version has to be another here"
    lab.is_read_verified_and_continued(f"sqlite:///{path}", lambda: SQLite(str(path)), age)
    tampering_lab.work_on(f"sqlite:///{path}")  # one that was done is replayed: what it did is taken from the record
    store = SQLite(str(path))
    assert verify(store).wrong == []
    store.close()


@pytest.mark.parametrize(
    ("done", "what"),
    [
        ("DELETE FROM journal WHERE seq = 4", "truncated"),  # the confirmation
        ("DELETE FROM journal WHERE seq >= 3", "truncated"),  # all that the task's own row says nothing of
        ("DELETE FROM journal WHERE seq >= 2", "truncated"),
        ("UPDATE effect SET version = 3, state = 'submitted'", "added"),
        ("UPDATE task SET version = 1", "table"),
        ("UPDATE task SET version = 3", ""),  # as an older semel left it
    ],
)  # fmt: skip
def test_where_a_stream_ends_is_known_while_its_task_runs(path: Path, done: str, what: str) -> None:
    """The row of its task is not written with each effect; those of the effects are."""
    store = SQLite(str(path))
    lab.begun(store)
    assert [row.version for row in store.tasks(TENANT)] == [2] and verify(store).wrong == []
    store.close()
    owner(path, done)
    store = SQLite(str(path))
    assert what in [found.what for found in verify(store).wrong] or (what, verify(store).wrong) == ("", [])
    store.close()


class Counted:
    """A store that counts what it is asked, and is told of it before it answers."""

    def __init__(self, store: SQLite, told: Callable[[str], None] = lambda name: None) -> None:
        self.store, self.told, self.asked = store, told, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self.asked[name] += 1
            self.told(name)
            return found(*args, **kwargs)

        return call


def at_work(store: SQLite, many: int) -> list[Known]:
    """So many tasks in the middle of their attempts, with an effect each, and two of a tenant that sorts before theirs."""
    for n in range(many):
        store.commit([task(f"k{n}", id=f"t{n}", tenant=TENANT if n > 1 else "aaa")[0]])
    taken = one(store, claiming(session(store, f"s{many}"), limit=many))
    assert isinstance(taken, Claims)
    return [works(store, Known(x.task, x.head, x.tenant)) for x in taken.tasks]


def works(store: SQLite, known: Known) -> Known:
    """One effect more."""
    sent, done = lab.call(f"sml_{known.state.id}-{known.head.seq}")
    return lab.written(store, known, replace(sent, task=known.state.id), done)


def test_all_leased_tasks_cost_one_walk_over_the_effects(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE", 5)
    asked = []
    for many in (4, 12):
        store = SQLite(str(path.with_name(f"{many}.db")))
        assert len(at_work(store, many)) == many
        counted = Counted(store)
        assert verify(counted).wrong == []  # type: ignore[arg-type]
        asked.append(counted.asked)
        store.close()
    assert (asked[0]["effects_after"], asked[1]["effects_after"]) == (4 // 5 + 2, 12 // 5 + 2)
    assert asked[1]["effects"] == asked[1]["head"] == 0, "nothing is asked for each of them"


@pytest.mark.parametrize("before", ["streams", "rows", "task", "effects_after"])
def test_who_works_on_meanwhile_is_not_called_broken(path: Path, before: str) -> None:
    """A worker's own effects come between any two reads."""
    store = SQLite(str(path))
    known, n = at_work(store, 3), 0

    def told(name: str) -> None:
        nonlocal n, known
        if name == before:
            n += 1
            known = [works(store, one) for one in known]

    found = verify(Counted(store, told))  # type: ignore[arg-type]
    assert found.wrong == [] and n
    store.close()


def test_who_works_on_hides_no_other_stream_that_lost_its_end(path: Path) -> None:
    store = SQLite(str(path))
    first, second, *_ = at_work(store, 4)
    owner(path, f"DELETE FROM journal WHERE stream = '{second.state.id}' AND seq > 2")
    known = first

    def told(name: str) -> None:
        nonlocal known
        if name in ("rows", "effects_after"):
            known = works(store, known)

    found = verify(Counted(store, told)).wrong  # type: ignore[arg-type]
    assert {one.stream for one in found if one.what == "truncated"} == {second.state.id}, found
    store.close()


def test_what_comes_while_the_surplus_is_named_is_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of which no journal tells is found; an effect that begins after its stream was read is not called one."""
    monkeypatch.setattr(pages, "PAGE", 1)
    store = SQLite(str(path))
    known, at, left = at_work(store, 2), "", 5
    with contextlib.closing(apsw.Connection(str(path))) as raw:
        names = [name for _, name, *_ in raw.execute("PRAGMA table_info(effect)")]
    rest = ", ".join(name for name in names if name not in ("tenant", "key"))
    owner(path, f"INSERT INTO effect (tenant, key, {rest}) SELECT tenant, 'sml_zzz', {rest} FROM effect LIMIT 1")

    def told(name: str) -> None:
        nonlocal known, at, left
        if name == "effects_after" and at == "heads" and left:
            known, left = [works(store, one) for one in known], left - 1
        at = "heads" if name == "heads" or (at == "heads" and name in ("effects_after", "rows")) else ""

    found = verify(Counted(store, told)).wrong  # type: ignore[arg-type]
    assert [one.stream for one in found if one.what == "table"] == ["sml_zzz"], found
    assert not left
    store.close()

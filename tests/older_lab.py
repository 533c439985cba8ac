"""Stores as an older semel left them: every field stood in the body, and each event moved the version of its task's row."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tampering_lab as lab
from semel.cli.verify import verify
from semel.machine import journal as j
from semel.machine import projection
from semel.machine.records import replace
from semel.machine.tasks import Task
from semel.store.contract import Claims, Landed, Store
from semel.testing.conformance_kit import TENANT, Known, claiming, one, session, task


def call(key: str) -> Sequence[j.Happened]:
    """One effect: it is submitted, and answers."""
    return j.Intended(key, 1, "pay", "t1", 1, 7, "s1", {"ref": key}, "d"), j.Confirmed(key, 1, "paid")


def as_older(patch: pytest.MonkeyPatch) -> None:
    """From now on what is written is what an older semel wrote."""
    short, small = j.body_of, projection.of_task

    def body_of(event: j.Happened, **said: Any) -> str:
        whole = {name: getattr(event, name) for name in j._LEFT_OUT[event.kind]}
        return json.dumps(whole | json.loads(short(event, **said)))

    def of_task(tenant: str, before: Task | None, after: Task, keys: Any) -> projection.Tables:
        row = projection.task_row(tenant, replace(after, behind=0))
        return small(tenant, before, after, keys)._replace(task=row)

    patch.setattr(j, "body_of", body_of)
    patch.setattr(projection, "of_task", of_task)


def written(store: Store, known: Known, *events: j.Happened) -> Known:
    """A task after these, each in a change of its own."""
    for event in events:
        change, known = known.then(event)
        assert one(store, change) == Landed()
    return known


def begun(store: Store) -> Known:
    """A task in the middle of its attempt."""
    created, _ = task("k1", id="t1")
    assert one(store, created) == Landed()
    taken = one(store, claiming(session(store, "s1")))
    assert isinstance(taken, Claims)
    return written(store, Known(taken.tasks[0].task, taken.tasks[0].head), *call("sml_1"))


def is_read_verified_and_continued(url: str, make: Callable[[], Store], age: Callable[[], None]) -> None:
    """age: gives the store the version of its schema that it had then."""
    with pytest.MonkeyPatch.context() as patch:
        as_older(patch)
        lab.work(url)
        store = make()
        known = begun(store)
        store.close()
    age()
    store = make()
    assert [json.loads(row.body).get("task") for row in store.rows(TENANT, "t1")] == ["t1", None, "t1", None]
    assert [row.version for row in store.tasks(TENANT)] == [4]
    assert verify(store).wrong == [], "in the middle of an attempt, too"
    known = written(store, known, *call("sml_2"))
    assert [row.version for row in store.tasks(TENANT)] == [4] and verify(store).wrong == []
    assert "task" not in json.loads(store.rows(TENANT, "t1")[4].body)
    written(store, known, j.Finished("done"))
    assert [row.version for row in store.tasks(TENANT)] == [7] and verify(store).wrong == []
    assert store.counts(None)["effect"]["ambiguous"] == 1
    store.close()

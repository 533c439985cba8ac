"""app.effects.list: of one task, whatever its scope, at the cost of that task."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import semel


@pytest.fixture
def app(tmp_path: Path) -> semel.App:
    return semel.App(f"sqlite:///{tmp_path}/listed.db", watchdog="never")


def counted(app: semel.App, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the store is asked for what."""
    store, asked = app.runtime.desk.store, Counter[str]()

    def count(name: str) -> None:
        found = getattr(store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            asked[name] += 1
            return found(*args, **kwargs)

        monkeypatch.setattr(store, name, call)

    for name in ("effects", "effect", "rows", "unknown"):
        count(name)
    return asked


def test_the_effects_of_a_task_are_found_by_its_journal(app: semel.App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.effect(intent=("ref", "n"))
    def pay(submission: semel.Submission, ref: str, n: int) -> str:
        return f"{ref}{n}"

    @app.effect(intent=("who",), scope="tenant")
    def greet(submission: semel.Submission, who: str) -> None:
        pass

    @app.task(intent=("ref",))
    def bill(ref: str) -> None:
        greet("bob")
        for n in range(3):
            pay(ref, n)

    refs = [bill.enqueue(f"r{n}") for n in range(3)]
    app.run_worker(until_idle=True, concurrency=1)
    walked = app.effects.list()
    asked = counted(app, monkeypatch)
    for ref in refs:
        of_it = app.effects.list(task=ref)
        assert of_it == [view for view in walked if view.task_id == ref.id] == app.effects.list(task=ref.id, tenant="default")
        assert app.effects.list(task=ref, state="ambiguous") == []
        assert app.effects.list(task=ref, after=of_it[0].key, limit=1) == of_it[1:2]
    assert [len(app.effects.list(task=ref)) for ref in refs] == [4, 3, 3], "of a key that they share, the one that sent it"
    assert asked["effects"] == asked["unknown"] == 0, "nobody else's are walked past"
    asked.clear()
    app.effects.list(task=refs[1])
    assert asked == {"rows": 2, "effect": 4}, "the journal is read twice, however many there are"
    assert app.effects.list(task="nobody", tenant="default") == []
    app.close()

"""R22: what was pruned is the same task, with its recorded result; and nothing is pruned that was not exported, or may yet matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.cli import verify
from semel.machine import export
from semel.machine import journal as j
from semel.machine.journal import Row

NOW = timedelta(0)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/agent.db" if request.param == "sqlite" else request.getfixturevalue("database")


class Shop:
    """An app and what it did. fails: the next calls of `charge` raise this."""

    def __init__(self, url: str, **more: Any) -> None:
        self.app = semel.App(url, **more)
        self.calls: list[Any] = []
        self.drafts = 0
        self.fails: list[Exception] = []

        @self.app.effect(intent=("n",), material=("cents",), recovery=semel.Repeat(), per_task=2)
        def charge(submission: semel.Submission, n: str, cents: int, text: str = "") -> str:
            self.calls.append((n, cents, text))
            if self.fails:
                raise self.fails.pop()
            return f"receipt {n}"

        @self.app.effect(intent=("who",), scope="tenant", recovery=semel.Repeat(), tries=1)
        def greet(submission: semel.Submission, who: str) -> str:
            self.calls.append(who)
            if self.fails:
                raise self.fails.pop()
            return f"hello {who}"

        @self.app.step()
        def draft(n: str) -> str:
            self.drafts += 1
            return f"draft {self.drafts}"

        @self.app.task(intent=("n",), retry=semel.Retry(max_attempts=1))
        def bill(n: str, text: str = "") -> str:
            return charge(n, 7, draft(n))

        @self.app.task(intent=("n",), retry=semel.Retry(max_attempts=1))
        def meet(n: str, who: str) -> str:
            return greet(who)

        self.charge, self.greet, self.bill, self.meet = charge, greet, bill, meet

    def rows(self, ref: semel.Ref[Any]) -> list[Row]:
        return self.app.runtime.desk.store.rows(ref.tenant, ref.id)

    def whole(self) -> None:
        """Chains, and tables against the journal."""
        report = verify.verify(self.app.runtime.desk.store)
        assert report.wrong == [] and report.note == ""


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    found = Shop(url)
    yield found
    found.app.close()


@pytest.fixture
def prune(shop: Shop, tmp_path: Path) -> Callable[..., Any]:
    def call(**more: Any) -> Any:
        given: dict[str, Any] = {"older_than": NOW, "export": tmp_path / "rows.jsonl", "by": "ann", **more}
        return shop.app.review.prune(**given)

    return call


def exported(tmp_path: Path) -> dict[str, list[Row]]:
    """The rows of the export, by stream."""
    found: dict[str, list[Row]] = {}
    for line in (tmp_path / "rows.jsonl").read_text().splitlines():
        row = export.row_of(line)
        found.setdefault(row.stream, []).append(row)
    return found


def test_a_pruned_task_enqueued_again_is_the_same_task_with_its_recorded_result(
    shop: Shop, prune: Callable[..., Any], tmp_path: Path
) -> None:
    assert shop.bill.run("a") == "receipt a"
    ref = shop.bill.enqueue("a")
    before = shop.rows(ref)
    done = prune(reason="a year is over")
    assert (done.tasks, done.keys, done.rows) == (1, 0, len(before))
    (stone,) = shop.rows(ref)
    assert stone.kind == "pruned" and stone.actor == "person:ann" and stone.seq == len(before) + 1
    assert exported(tmp_path) == {ref.id: before} and j.broken(before) is None
    assert shop.bill.enqueue("a") == ref and ref.result() == "receipt a" and shop.bill.run("a") == "receipt a"
    shop.app.run_worker(until_idle=True)
    assert len(shop.calls) == 1
    shop.whole()


def test_a_pruned_task_that_is_replayed_returns_its_effects_from_the_record_and_runs_its_steps_again(
    shop: Shop, prune: Callable[..., Any]
) -> None:
    shop.bill.run("a")
    ref = shop.bill.enqueue("a")
    prune()
    shop.app.review.replay(ref, by="ann")
    shop.app.run_worker(until_idle=True)
    assert shop.app.tasks.get(ref).execution == "succeeded" and ref.result() == "receipt a"
    assert len(shop.calls) == 1 and shop.drafts == 2, "the step ran again, and the other wording is drift"
    assert [event.kind for event in shop.app.journal(ref)][0] == "pruned"
    assert prune().tasks == 1, "and may be pruned again"
    assert ref.result() == "receipt a"
    shop.whole()


def test_direct_work_entered_again_after_a_prune_finds_its_effects_limits_and_refusals(shop: Shop, prune: Callable[..., Any]) -> None:
    with shop.app.work("k", kind="loop"):
        shop.charge("a", 7)
        shop.charge("b", 7)
    prune()
    with shop.app.work("k", kind="loop"):
        assert shop.charge("a", 7) == "receipt a"
        with pytest.raises(semel.Refused, match="already_done|in other words"):
            shop.charge("a", 7, "in other words")
        with pytest.raises(semel.Refused, match="material"):
            shop.charge("b", 8)
        with pytest.raises(semel.Refused, match="2 time"):
            shop.charge("c", 7)
    assert len(shop.calls) == 2
    shop.whole()


def test_a_tenant_scoped_key_that_was_pruned_is_returned_to_another_task(shop: Shop, prune: Callable[..., Any]) -> None:
    shop.meet.run("a", "bob")
    done = prune()
    assert (done.tasks, done.keys) == (1, 1)
    assert shop.meet.run("b", "bob") == "hello bob" and shop.calls == ["bob"]
    shop.whole()


def test_the_next_submission_of_a_pruned_clean_key_carries_a_higher_token(shop: Shop, prune: Callable[..., Any]) -> None:
    shop.fails.append(semel.NotDone("busy", retry=True))
    with pytest.raises(semel.NotDone), shop.app.work("k", kind="loop"):
        shop.greet("bob")
    with shop.app.work("k", kind="loop"):
        pass
    (row,) = shop.app.effects.list()
    first = row.version
    assert prune().keys == 1
    assert shop.meet.run("b", "bob") == "hello bob" and shop.calls == ["bob", "bob"]
    view = shop.app.effects.get(row.key)
    assert view.version > first and view.args == {"who": "bob"} and view.submissions == 2
    tokens = [event.token for event in shop.app.journal(row.key)]
    assert tokens == sorted(tokens) and tokens[-1] > tokens[0]
    shop.whole()

"""R22: a pruned task is the same task, with its recorded result; nothing goes that was not exported, or may yet matter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import semel
from semel.cli import verify
from semel.engine.exportfile import ExportFile
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
    assert shop.app.journal(ref)[0].kind == "pruned"
    assert prune().tasks == 1, "and may be pruned again"
    assert ref.result() == "receipt a"
    shop.whole()


def test_direct_work_entered_again_after_a_prune_finds_its_effects_limits_and_refusals(
    shop: Shop, prune: Callable[..., Any]
) -> None:
    with shop.app.work("k", kind="loop"):
        shop.charge("a", 7)
        shop.charge("b", 7)
    prune()
    with shop.app.work("k", kind="loop"):
        assert shop.charge("a", 7) == "receipt a"
        with pytest.raises(semel.Refused, match="in other words"):
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


# --- what stays -------------------------------------------------------------------------------------------------------


def test_what_has_not_ended_or_is_young_or_dead_lettered_stays(shop: Shop, prune: Callable[..., Any]) -> None:
    shop.bill.run("done")
    waiting, late = shop.bill.enqueue("waiting"), shop.bill.using(key="cancelled").enqueue("x")
    shop.app.review.cancel(late, by="ann")
    shop.fails.append(semel.NotDone("no", retry=False))
    with pytest.raises(semel.Unsettled):
        shop.bill.run("dead")
    dead = shop.bill.enqueue("dead")
    assert prune(older_than=timedelta(hours=1)).tasks == 0, "nothing is so old"
    done = prune()
    assert done.tasks == 2, "what is done, and what was cancelled"
    assert sum(done.stayed.values()) == 1 and "--dead" in next(iter(done.stayed))
    assert [shop.rows(ref)[0].kind for ref in (waiting, dead, late)] == ["enqueued", "enqueued", "pruned"]
    done = prune(dead=True, reason="written off")
    given_up = shop.app.tasks.get(dead)
    assert (done.tasks, done.stayed) == (1, {}) and (given_up.delivery, given_up.execution) == ("acknowledged", "failed")
    for which in (semel.DeadLetters(), semel.DeadLetters(until=datetime(2020, 1, 1, tzinfo=UTC))):
        assert shop.app.review.replay_many(which, by="bob").done == (), "what is given up is no dead letter"
    shop.app.review.cancel(waiting, by="ann")
    shop.app.review.replay(dead, by="ann")
    shop.app.run_worker(until_idle=True)
    assert shop.app.tasks.get(dead).execution == "failed", "a definite no is remembered"
    assert [n for n, *_ in shop.calls].count("dead") == 1
    shop.whole()


def test_what_is_unknown_stays(url: str, tmp_path: Path) -> None:
    app = semel.App(url)

    @app.effect(intent=(), scope="tenant")
    def send(submission: semel.Submission) -> str:
        raise ConnectionResetError

    @app.effect(intent=())
    def own(submission: semel.Submission) -> str:
        raise ConnectionResetError

    refs = []
    for key, call in (("a", send), ("b", own)):
        with pytest.raises(semel.Unsettled) as caught, app.work(key, kind="loop"):
            call()
        refs.append(caught.value.ref)
    for ref in refs:
        app.review.cancel(ref, by="ann")
    done = app.review.prune(older_than=NOW, export=tmp_path / "x", by="ann", dead=True, reason="all of it")
    assert (done.tasks, done.keys) == (0, 0)
    assert len(app.effects.list(state="ambiguous")) == 2
    app.close()


def test_a_task_that_moves_on_between_export_and_prune_stays(
    shop: Shop, prune: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.bill.run("a")
    shop.bill.run("b")
    ref, write = shop.bill.enqueue("a"), ExportFile.write

    def meanwhile(file: ExportFile, rows: Any) -> None:
        write(file, rows)
        if shop.rows(ref)[-1].kind == "finished":
            shop.app.review.replay(ref, by="bob")

    monkeypatch.setattr(ExportFile, "write", meanwhile)
    done = prune()
    assert (done.tasks, done.stayed) == (1, {"moved on meanwhile": 1})
    assert shop.rows(ref)[-1].kind == "replayed" and shop.rows(ref)[0].seq == 1
    shop.whole()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_somebody_has_tampered_with_stays_as_it_is(url: str, shop: Shop, prune: Callable[..., Any]) -> None:
    shop.bill.run("a")
    ref = shop.bill.enqueue("a")
    raw = apsw.Connection(url.removeprefix("sqlite:///"))
    raw.execute(
        "DROP TRIGGER journal_is_never_updated; UPDATE journal SET body = '{\"result\":\"other\"}' WHERE kind = 'finished'"
    )
    raw.close()
    before = shop.rows(ref)
    done = prune()
    assert done.tasks == 0 and "semel verify" in next(iter(done.stayed)) and shop.rows(ref) == before


def test_a_dry_run_counts_and_changes_nothing(shop: Shop, prune: Callable[..., Any], tmp_path: Path) -> None:
    shop.meet.run("a", "bob")
    ref = shop.meet.enqueue("a", "bob")
    before = shop.rows(ref)
    done = prune(dry_run=True)
    assert (done.tasks, done.keys) == (1, 1) and not (tmp_path / "rows.jsonl").exists()
    assert shop.rows(ref) == before and prune() == done


# --- who may, and how it is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"by": ""}, "needs a name"), ({"older_than": timedelta(days=-1)}, "time to come"), ({"dead": True}, "on record why"),
        ({"export": None}, "exported first"), ({"export": "/"}, "cannot be written"), ({"export": "/dev/null"}, "not a file"),
        ({"export": __file__}, "not an export of semel's"),
    ],
)  # fmt: skip
def test_a_prune_that_cannot_be_is_misuse_and_changes_nothing(
    shop: Shop, prune: Callable[..., Any], wrong: dict[str, Any], said: str
) -> None:
    shop.bill.run("a")
    text = Path(__file__).read_text(encoding="utf-8")
    with pytest.raises(semel.Misuse, match=said):
        prune(**wrong)
    assert prune(dry_run=True).tasks == 1 and Path(__file__).read_text(encoding="utf-8") == text


def test_an_agent_prunes_nothing(shop: Shop, prune: Callable[..., Any]) -> None:
    with shop.app.work("k", kind="loop"), pytest.raises(semel.Misuse, match="an agent cannot decide"):
        prune()


def test_an_app_prunes_one_tenants_tasks_alone(shop: Shop, prune: Callable[..., Any]) -> None:
    for tenant in ("acme", "globex"):
        with shop.app.work("k", kind="loop", tenant=tenant):
            shop.charge("a", 7)
    assert prune(tenant="acme").tasks == 1
    assert prune(tenant="acme").tasks == 0 and prune().tasks == 0 and prune(tenant="globex").tasks == 1
    shop.whole()


# --- the export -------------------------------------------------------------------------------------------------------


def test_two_at_once_do_not_write_one_export(shop: Shop, prune: Callable[..., Any], tmp_path: Path) -> None:
    with ExportFile(tmp_path / "rows.jsonl"), pytest.raises(semel.Misuse, match="another process writes"):
        prune()
    assert prune().tasks == 0


def test_a_torn_line_of_one_that_was_killed_is_taken_off_first(shop: Shop, prune: Callable[..., Any], tmp_path: Path) -> None:
    shop.bill.run("a")
    prune()
    file = tmp_path / "rows.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:100])
    shop.bill.run("b")
    prune()
    assert len(exported(tmp_path)) == 2 and file.read_bytes().startswith(whole)
    assert file.stat().st_mode & 0o077 == 0, "it holds arguments and results: its owner's alone"


KILLED = """
import os, signal, sys
from datetime import UTC, datetime, timedelta
import semel
from semel.engine import retention
from semel.engine.exportfile import ExportFile

retention.BATCH = 4
url, file, where, nth = sys.argv[1:]
what, when = where.split("-")
owner, name = (ExportFile, "write") if what == "write" else (retention._Pruning, "_take_away")
left, real = [int(nth)], getattr(owner, name)

def cut(*args):
    left[0] -= 1
    if when == "before" and not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*args)
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(owner, name, cut)
semel.App(url).review.prune(older_than=timedelta(0), export=file, by="ann")
"""


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("where", ["write-before", "write-after", "take-after"])
@pytest.mark.parametrize("nth", ["1", "2"])
def test_a_prune_that_is_killed_anywhere_has_pruned_nothing_that_is_not_exported(
    url: str, shop: Shop, prune: Callable[..., Any], tmp_path: Path, where: str, nth: str
) -> None:
    for n in range(10):
        shop.bill.run(str(n))
    refs = [shop.bill.enqueue(str(n)) for n in range(10)]
    before = {ref.id: shop.rows(ref) for ref in refs}
    command = [sys.executable, "-c", KILLED, url, str(tmp_path / "rows.jsonl"), where, nth]
    killed = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    there = exported(tmp_path)
    gone = [ref.id for ref in refs if shop.rows(ref)[0].kind == "pruned"]
    assert [id for id in gone if there.get(id) != before[id]] == []
    assert len(gone) == 4 * (int(nth) - 1) + (4 if where == "take-after" else 0)
    assert prune().tasks == 10 - len(gone)
    for id, rows in before.items():
        assert list({row.seq: row for row in exported(tmp_path)[id]}.values()) == rows, "some may stand there twice"
    assert [shop.bill.run(str(n)) for n in range(10)] == [f"receipt {n}" for n in range(10)] and len(shop.calls) == 10
    shop.whole()

"""R22: code that unfinished tasks would not recognise does not start; a task that it does not fit is not run by it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import semel
from semel.cli import verify
from semel.engine import startcheck
from semel.machine import declarations as d
from semel.machine import journal as j
from semel.store.contract import SessionRow
from semel.worker import Worker

Make = Callable[..., semel.App]
TRIES = semel.Retry(max_attempts=9, backoff=timedelta(0))


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLite, unless a test says that PostgreSQL matters."""
    on = getattr(request, "param", "sqlite")
    return f"sqlite:///{tmp_path}/agent.db" if on == "sqlite" else str(request.getfixturevalue("database"))


both = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def calls() -> list[str]:
    """What was done to the world."""
    return []


@pytest.fixture
def make(url: str, calls: list[str]) -> Iterator[Make]:
    """An app as one version of the code declares it. effect: how its effect is declared. stops: the handler fails after it."""
    made: list[semel.App] = []

    def code(*, effect: dict[str, Any] | None = None, task: dict[str, Any] | None = None, stops: bool = False) -> semel.App:
        app = semel.App(url)
        made.append(app)

        @app.effect(**{"intent": ("n",), "material": ("cents",), "name": "charge", **(effect or {})})
        def charge(submission: semel.Submission, n: str, cents: int, text: str = "") -> str:
            calls.append(f"charged {n}")
            return "receipt"

        @app.task(**{"intent": ("n",), "retry": TRIES, "name": "bill", **(task or {})})
        def bill(n: str) -> str:
            receipt = charge(n, 7)
            if stops:
                raise semel.NotDone("the printer is out of paper")
            return receipt

        @app.task(intent=("day",))
        def report(day: str) -> str:
            return day

        app.bill = bill  # type: ignore[attr-defined]
        return app

    yield code
    for app in made:
        app.close()


def begun(make: Make, n: str = "a") -> semel.Ref[str]:
    """A task that has charged, and has not ended: it waits for its next attempt."""
    old = make(stops=True)
    ref = old.bill.enqueue(n)  # type: ignore[attr-defined]
    with pytest.raises(semel.Unsettled):
        old.bill.run(n)  # type: ignore[attr-defined]
    start(old, limit=0)
    old.close()
    return ref


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def start(app: semel.App, limit: int | None = None) -> None:
    """Run a worker until nothing is due; limit 0: only let it start."""
    if limit == 0:
        app.run_worker(queues=["nobody's"], until_idle=True)
        app.close()
    else:
        app.run_worker(until_idle=True)


@both
def test_a_renamed_effect_without_formerly_does_not_start_and_says_what_to_do(make: Make, calls: list[str]) -> None:
    ref = begun(make)
    new = make(effect={"name": "charge_card"})
    with pytest.raises(semel.Misuse) as caught:
        start(new)
    said = str(caught.value)
    assert "effect 'charge' is on record, and this code does not declare it (renamed: formerly=('charge',))" in said
    assert f"1 unfinished task, as bill a [{ref.id[-8:]}]" in said and "semel cancel" in said and "--accept" in said
    assert calls == ["charged a"]


@both
def test_with_formerly_it_goes_on_and_nothing_is_charged_again(make: Make, calls: list[str]) -> None:
    ref = begun(make)
    new = make(effect={"name": "charge_card", "formerly": ("charge",)})
    start(new)
    assert new.tasks.get(ref).execution == "succeeded" and calls == ["charged a"]
    assert verify.verify(new.runtime.desk.store).wrong == []


@pytest.mark.parametrize(
    ("effect", "said"),
    [
        ({"intent": ("n", "text")}, "its intent or scope has changed"), ({"scope": "tenant"}, "its intent or scope has changed"),
        ({"material": ()}, "other material arguments"), ({"material": ("cents", "text")}, "other material arguments"),
    ],
)  # fmt: skip
def test_an_effect_that_identifies_itself_otherwise_does_not_start(
    make: Make, calls: list[str], effect: dict[str, Any], said: str
) -> None:
    begun(make)
    with pytest.raises(semel.Misuse, match=said):
        start(make(effect=effect))
    assert calls == ["charged a"]


def test_what_was_pruned_is_still_known_by_its_arguments(make: Make, calls: list[str], tmp_path: Path) -> None:
    old = make()
    old.bill.run("a")  # type: ignore[attr-defined]
    ref = old.bill.enqueue("a")  # type: ignore[attr-defined]
    assert old.review.prune(older_than=timedelta(0), export=tmp_path / "rows", by="ann").tasks == 1
    old.close()
    new = make(effect={"intent": ("n", "cents")})
    new.review.replay(ref, by="ann")
    with pytest.raises(semel.Misuse, match="its intent or scope has changed"):
        start(new)
    with pytest.raises(semel.Unsettled, match="the code has changed"):
        new.bill.run("a")  # type: ignore[attr-defined]
    assert calls == ["charged a"]


def test_an_effect_that_lost_a_guard_does_not_start_where_the_record_has_it_and_is_told_in_the_log(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMEL_REDACTION_KEY", "ab" * 32)
    calls: list[str] = []

    def code(stops: bool, **guards: Any) -> semel.App:
        app = semel.App(url)

        @app.effect(intent=("n",), **guards)
        def pay(submission: semel.Submission, n: str, card: str) -> str:
            calls.append(n)
            return "receipt"

        @app.task(intent=("n",), retry=TRIES)
        def bill(n: str) -> str:
            semel.bind(account="alice")
            receipt = pay(n, "4111222233334444")
            if stops:
                raise semel.NotDone("the printer is out of paper")
            return receipt

        app.bill = bill  # type: ignore[attr-defined]
        return app

    guards = {"identity": lambda: {"account": "alice"}, "redact": ("card",), "approve": lambda n: n == "much"}
    old = code(True, **guards)
    with pytest.raises(semel.Unsettled):
        old.bill.run("a")  # type: ignore[attr-defined]
    start(old, limit=0)
    for name, said in (("redact", "'card' redacted"), ("identity", "identity= is gone")):
        with pytest.raises(semel.Misuse, match=said):
            start(code(False, **{guard: given for guard, given in guards.items() if guard != name}))
    caplog.clear()
    new = code(False, **{**guards, "approve": False})
    start(new)
    assert "effect 'pay' has no approve= any more" in caplog.text and calls == ["a"]
    assert new.tasks.list(kind="bill")[0].execution == "succeeded"
    new.close()


def test_what_was_sent_as_somebody_is_not_gone_on_with_by_code_that_does_not_look(url: str) -> None:
    """Even if it was declared only after the work was bound."""

    def pay(submission: semel.Submission, n: str) -> str:
        return "receipt"

    old = semel.App(url)
    with old.work("w", kind="agent"):
        semel.bind(account="alice")
        old.effect(intent=("n",), identity=lambda: {"account": "alice"})(pay)("a")
    old.close()
    new = semel.App(url)
    new.effect(intent=("n",))(pay)
    with pytest.raises(semel.Misuse, match="identity= is gone"), new.work("w", kind="agent"):
        pass
    new.close()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "changed",
    [
        {"intent": ("n", "cents")}, {"scope": "tenant"}, {"material": ()}, {"intent": ("n", "cents"), "formerly": ("charge",)},
    ],
)  # fmt: skip
@both
def test_direct_work_does_not_do_again_what_its_code_declares_otherwise(url: str, changed: dict[str, Any], late: bool) -> None:
    calls: list[str] = []

    def declared(app: semel.App, **more: Any) -> Any:
        def charge(submission: semel.Submission, n: str, cents: int) -> str:
            calls.append(n)
            return "receipt"

        name = "charge_card" if "formerly" in more else "charge"
        return app.effect(**{"intent": ("n",), "material": ("cents",), "name": name, **more})(charge)

    old = semel.App(url)
    with old.work("w", kind="agent"):
        declared(old)("a", 7)
    old.close()
    new = semel.App(url)
    charge = None if late else declared(new, **changed)
    with pytest.raises(semel.Misuse, match="the code of work agent w has changed: effect 'charge'"), new.work("w", kind="agent"):
        charge = charge or declared(new, **changed)
        charge("a", 7)
    new.close()
    back = semel.App(url)
    charge = declared(back)
    with back.work("w", kind="agent") as work:
        assert charge("a", 7) == "receipt" and work.attempt == 3
    back.close()
    assert calls == ["a"]


def test_it_starts_once_nothing_unfinished_holds_the_old_one(make: Make, calls: list[str]) -> None:
    ref = begun(make)
    with pytest.raises(semel.Misuse):
        start(make(effect={"name": "charge_card"}))
    old = make()
    start(old)
    assert old.tasks.get(ref).execution == "succeeded"
    new = make(effect={"name": "charge_card"})
    start(new)
    new.bill.run("b")  # type: ignore[attr-defined]
    assert calls == ["charged a", "charged b"]


def test_a_task_whose_key_is_made_otherwise_does_not_start(make: Make, url: str) -> None:
    old = make()
    old.bill.enqueue("a")  # type: ignore[attr-defined]
    start(old, limit=0)
    with pytest.raises(semel.Misuse, match=r"task 'bill' had the intent \(n\), and has none"):
        start(make(task={"intent": None}))
    with pytest.raises(semel.Misuse, match=r"task 'bill' is not declared any more \(renamed: formerly=\('bill',\)\)"):
        start(make(task={"name": "invoice"}))
    start(make(task={"name": "invoice", "formerly": ("bill",)}))


def test_a_parameter_that_is_gone_or_newly_needed_does_not_start(url: str, make: Make) -> None:
    old = semel.App(url)

    @old.task(intent=("n",), name="bill")
    def before(n: str, cents: int = 5) -> str:
        return n

    ref = before.enqueue("a", 900)
    start(old, limit=0)
    old.close()
    with pytest.raises(semel.Misuse, match="the recorded argument 'cents' is no parameter of task bill in this code"):
        start(make())
    with pytest.raises(semel.Unsettled) as caught:
        make().bill.run("a")  # type: ignore[attr-defined]
    assert caught.value.why == "blocked" and caught.value.ref == ref
    needs = semel.App(url)

    @needs.task(intent=("n",), name="bill")
    def after(n: str, cents: int, address: str) -> str:
        return n

    with pytest.raises(semel.Misuse, match="nothing is on record for the parameter 'address'"):
        start(needs)
    needs.close()


def test_an_unknown_call_is_not_sent_again_without_an_argument_that_it_had(make: Make, calls: list[str], url: str) -> None:
    old = semel.App(url)
    sent: list[dict[str, Any]] = []

    @old.effect(intent=("n",), name="charge")
    def before(submission: semel.Submission, n: str, cents: int) -> str:
        sent.append({"cents": cents})
        raise ConnectionResetError

    with pytest.raises(semel.Unsettled) as caught, old.work("k", kind="loop"):
        before("a", 900)
    old.close()
    new = semel.App(url)

    @new.effect(intent=("n",), name="charge", recovery=semel.Resend(within=timedelta(hours=1)))
    def after(submission: semel.Submission, n: str, cents_of_euro: int = 0) -> str:
        sent.append({"cents_of_euro": cents_of_euro})
        return "receipt"

    new.review.replay(caught.value.ref, by="ann")
    with pytest.raises(semel.Unsettled) as caught, new.work("k", kind="loop"):
        pass
    assert caught.value.why == "blocked" and "'cents' is no parameter of effect charge" in str(caught.value)
    assert len(sent) == 1
    new.close()


# --- what must not be refused -------------------------------------------------------------------------------------------


def test_old_and_new_code_start_in_turn_while_tasks_are_under_way(make: Make, calls: list[str], url: str) -> None:
    """A rolling deploy: an effect and an optional parameter more."""
    begun(make)
    new = semel.App(url)

    @new.effect(intent=("n",), material=("cents",))
    def charge(submission: semel.Submission, n: str, cents: int, text: str = "", note: str = "") -> str:
        raise AssertionError

    @new.effect(intent=("n",))
    def mail(submission: semel.Submission, n: str) -> str:
        calls.append(f"mailed {n}")
        return "mail"

    @new.task(intent=("n",), retry=TRIES)
    def bill(n: str, copy: bool = False) -> str:
        charge(n, 7)
        mail(n)
        raise semel.NotDone("the printer is out of paper")

    for app in (new, make(), new, make()):
        start(app, limit=0)
    with pytest.raises(semel.Unsettled):
        bill.run("a")
    start(make(), limit=0)
    assert calls == ["charged a", "mailed a"]
    new.close()


def test_rolled_back_code_blocks_the_task_that_it_does_not_know_and_the_others_go_on(
    make: Make, calls: list[str], url: str, caplog: pytest.LogCaptureFixture
) -> None:
    start(make(), limit=0)
    new = semel.App(url)

    @new.effect(intent=("n",))
    def mail(submission: semel.Submission, n: str) -> str:
        calls.append(f"mailed {n}")
        return "mail"

    @new.task(intent=("n",), retry=TRIES)
    def bill(n: str) -> str:
        mail(n)
        raise semel.NotDone("the printer is out of paper")

    start(new, limit=0)
    with pytest.raises(semel.Unsettled) as caught:
        bill.run("a")
    new.close()
    old = make()
    other = old.bill.enqueue("b")  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING):
        start(old)
    assert "this code has run here before, and starts" in caplog.text and "'mail' is on record" in caplog.text
    left = old.tasks.get(caught.value.ref)
    assert left.delivery == "blocked" and left.why.startswith("the code has changed: effect 'mail' is on record")
    assert old.tasks.get(other).execution == "succeeded" and calls == ["mailed a", "charged b"]


def test_beside_other_workers_it_is_left_for_them_first(make: Make, url: str) -> None:
    ref = begun(make)
    new = make(effect={"name": "charge_card"})
    store = new.runtime.desk.store
    store.open_session(SessionRow("other", 0, "n", 15_000, store.info.epoch, "h", "b", 1, 2, 3, 4, "", 1))
    with pytest.raises(semel.Unsettled):
        new.bill.run("a")  # type: ignore[attr-defined]
    row = new.tasks.get(ref)
    assert (row.delivery, row.failures) == ("queued", 1) and row.why.startswith("left for other code: effect 'charge'")
    store.fence("other", None, "left")


def test_two_fleets_with_effects_of_one_name_do_not_meet(make: Make, url: str) -> None:
    begun(make)
    other = semel.App(url)

    @other.effect(intent=("to",), scope="tenant", name="charge")
    def theirs(submission: semel.Submission, to: str) -> str:
        return to

    @other.task(intent=("to",))
    def greet(to: str) -> str:
        return theirs(to)

    for _ in range(2):
        start(other)
        start(make(), limit=0)
    assert greet.run("bob") == "bob"
    other.close()


def test_what_has_not_changed_costs_one_read_and_writes_nothing(make: Make) -> None:
    begun(make)
    app = make()
    app.be_worker()
    store, asked = app.runtime.desk.store, []
    real = store.unfinished
    store.unfinished = lambda *args: asked.append(args) or real(*args)  # type: ignore[method-assign, func-returns-value]
    app.run_worker(queues=["nobody's"], until_idle=True)
    assert asked == [] and [row.kind for row in store.rows("", d.STREAM)] == ["declared"]


def test_all_that_has_begun_is_asked_whatever_lies_between_and_nothing_that_has_not(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, app = begun(make), make()
    for n in range(7):
        app.bill.enqueue(f"waits {n}")  # type: ignore[attr-defined]
    begun(make, "b")
    monkeypatch.setattr(startcheck, "VISITS", 3)
    new, handed = make(effect={"name": "charge_card"}), []
    new.be_worker()
    store = new.runtime.desk.store
    real = store.unfinished

    def counted(*args: Any) -> Any:
        page = real(*args)
        handed.append([row.key for row in page[0]])
        return page

    store.unfinished = counted  # type: ignore[method-assign]
    with pytest.raises(semel.Misuse, match=rf": 2 unfinished tasks, as bill a \[{first.id[-8:]}\]"):
        start(new)
    assert handed == [["a"], [], ["b"]] + [[]] * (len(handed) - 3)
    monkeypatch.setattr(startcheck, "LOOKED", 1)
    with pytest.raises(semel.Misuse, match="at least 1 unfinished task, as bill a"):
        start(new)


# --- a person answers for it -----------------------------------------------------------------------------------------


def test_what_a_person_accepts_goes_on_and_is_on_record(make: Make, calls: list[str]) -> None:
    ref = begun(make)
    new = make(effect={"name": "charge_card"})
    with pytest.raises(semel.Misuse):
        start(new)
    with pytest.raises(semel.Unsettled):
        new.bill.run("a")  # type: ignore[attr-defined]
    assert new.tasks.get(ref).delivery == "blocked"
    unfit = startcheck.check(new.runtime.desk, new.code, None, by="ann", reason="refunded by hand")
    assert unfit.count.total() == 1
    assert new.runtime.accepted() and not make(effect={"name": "take_money"}).runtime.accepted(), "only for that very code"
    new.review.replay(ref, by="ann")
    start(new)
    assert new.tasks.get(ref).execution == "succeeded" and calls == ["charged a", "charged a"], "as she said"
    last = new.runtime.desk.store.rows("", d.STREAM)[-1]
    assert last.actor == "person:ann" and j.event_of(last).accepted  # type: ignore[attr-defined]
    with pytest.raises(semel.Misuse, match="does not fit what is under way"):
        begun(make, "b")
        start(make(effect={"name": "charge_card", "intent": ("n", "text")}))
    assert verify.verify(new.runtime.desk.store).wrong == []


# --- records that this version of semel does not know ------------------------------------------------------------------


@both
def test_what_a_later_semel_wrote_is_left_with_a_word_and_the_others_go_on(
    make: Make, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = make()
    app.be_worker()
    strange, other = app.bill.enqueue("strange"), app.bill.enqueue("other")  # type: ignore[attr-defined]
    row = app.runtime.desk.store.rows("default", strange.id)[0]
    column = {"tenant": "default", "stream": strange.id, "seq": 2, "kind": "coloured", "actor": "x", "token": 0, "at": 1}
    later = j.chain(row.hash, **column, body="{}", id="i")  # type: ignore[arg-type]
    values = (*column.values(), "{}", "i", later)
    if url.startswith("sqlite"):
        raw = apsw.Connection(url.removeprefix("sqlite:///"))
        raw.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        raw.close()
    else:
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO semel.journal VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", values)
    with caplog.at_level(logging.WARNING):
        worker = Worker(app, queues=None, concurrency=2, until_idle=False)
        running = threading.Thread(target=lambda: asyncio.run(worker.run()))
        running.start()
        until(lambda: app.tasks.get(other).execution == "succeeded" and "newer semel" in caplog.text)
        time.sleep(0.3)  # it is looked at again meanwhile, and not told of
        worker._asked_to_stop()
        running.join(30)
    told = [record.message for record in caplog.records if "is left for a newer semel" in record.message]
    assert len(told) == 1 and strange.id in told[0] and "'coloured'" in told[0]
    assert app.tasks.get(other).execution == "succeeded" and app.tasks.get(strange).delivery == "queued"

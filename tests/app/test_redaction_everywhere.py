"""Redaction where other parts of semel write: identities, waits, signals, approvals ahead, people's reasons, observers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

import semel
from semel.observe.logs import Logs
from semel.observe.otel import Spans
from semel.observe.prometheus import Ledgers, Metrics
from semel.testing import Harness

CARD = "4929-1234-5678-9012"
NEVER = "sqlite:///never-made.db"
Do = Callable[["Desk"], Any]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMEL_REDACTION_KEY", "5e" * 32)


class Desk:
    """An app whose agent pays with a card, and does something before and after."""

    def __init__(self, url: str = NEVER) -> None:
        self.app = app = semel.App(url)
        self.before: Do = lambda desk: None
        self.then: Do = lambda desk: None
        self.sees: Callable[[], dict[str, Any]] = lambda: {"account": "alice"}
        self.paid: list[str] = []

        def who() -> dict[str, str]:
            return self.sees()

        @app.effect(intent=("ref",), redact=("card",))
        def pay(submission: semel.Submission, ref: str, card: str) -> str:
            self.paid.append(ref)
            if ref == "bad":
                raise semel.NotDone("not now", retry=False)
            if ref == "cut":
                raise ConnectionResetError("nobody knows")
            return "paid"

        @app.effect(intent=("text",), identity=who)
        def post(submission: semel.Submission, text: str) -> str:
            return "posted"

        @app.effect(intent=("text",), approve=True)
        def ask(submission: semel.Submission, text: str, note: str) -> str:
            return "asked"

        @app.task(retry=semel.Retry(max_attempts=1))
        def bill(ref: str) -> None:
            self.before(self)
            pay(ref, CARD)
            self.then(self)

        self.pay, self.post, self.ask, self.bill = pay, post, ask, bill

    def stored(self) -> str:
        """Every row of every task's journal, and what the views say."""
        tasks = self.app.tasks.list(limit=1000)
        rows = [str(event) for task in tasks for event in self.app.journal(task.ref)]
        return "\n".join([*rows, *map(str, tasks), *map(str, self.app.effects.list())])


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def h(desk: Desk) -> Iterator[Harness]:
    with Harness(desk.app) as harness:
        yield harness


def ended(desk: Desk, h: Harness, ref: str = "r1") -> semel.TaskView:
    task = desk.bill.using(key="t1").enqueue(ref)
    h.run()
    return desk.app.tasks.get(task)


def nested(desk: Desk) -> None:
    with desk.app.work(CARD, kind="other"):
        pass


def bind(desk: Desk) -> None:
    semel.bind(account=CARD)


def wait(desk: Desk) -> None:
    semel.wait_for(f"paid {CARD}")


def given_up(desk: Desk) -> None:
    with pytest.raises(TimeoutError):
        semel.wait_for(f"paid {CARD}", timeout=timedelta(0))


def tell(desk: Desk) -> None:
    desk.app.signal(semel.current().ref, f"paid {CARD}")


def post_as(desk: Desk) -> None:
    semel.bind(account=CARD)
    desk.sees = lambda: {"account": CARD}
    desk.post("hello")


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (lambda desk: desk.bill.using(key="t9").enqueue(CARD), "in clear in task bill: an argument, or its key, and that"),
        (tell, "in clear in the name of a signal, and that"),
        (nested, "in clear in the key of this work, and that"),
    ],
)
def test_what_the_handler_has_put_on_record_elsewhere(desk: Desk, h: Harness, before: Do, says: str) -> None:
    desk.before = before
    assert says in ended(desk, h).why and desk.paid == []


@pytest.mark.parametrize("before", [bind, given_up, tell, post_as, lambda desk: desk.ask.using(occurrence=CARD)("x", "y")])
def test_what_an_earlier_attempt_put_on_record_is_found_wherever_it_stands(desk: Desk, h: Harness, before: Do) -> None:
    def first(desk: Desk) -> None:
        desk.before = lambda desk: None
        before(desk)
        semel.sleep(timedelta(minutes=1))

    desk.before = first
    task = ended(desk, h).ref
    for waiting in desk.app.review.pending():
        desk.app.review.approve(waiting.key, by="ann")
    h.advance(timedelta(minutes=2))
    h.run()
    assert "a redacted value is in clear in what is on record of" in desk.app.tasks.get(task).why and desk.paid == []


def test_what_was_looked_through_is_looked_through_again_for_another_value(desk: Desk, h: Harness) -> None:
    with desk.app.work("w", kind="k"):
        desk.pay("r1", CARD)
        desk.pay("another-value", CARD)
        desk.pay("r2", CARD)
        with pytest.raises(semel.Misuse, match="in clear in the arguments of effect pay"):
            desk.pay("r3", "another-value")
    assert desk.paid == ["r1", "another-value", "r2"]


def test_what_was_approved_ahead_is_on_record(desk: Desk, h: Harness) -> None:
    task = desk.bill.using(key="t1").enqueue("r1")
    desk.app.review.approve(desk.ask.planned(task, "x", f"card {CARD}"), by="ann")
    h.run()
    assert "in clear in what is on record of the task: ahead" in desk.app.tasks.get(task).why and desk.paid == []


def test_a_replay_with_the_value_in_its_reason_is_found_by_the_next_attempt(desk: Desk, h: Harness) -> None:
    def breaks(desk: Desk) -> None:
        raise ValueError("early")

    desk.before = breaks
    task = ended(desk, h).ref
    desk.before = lambda desk: None
    desk.app.review.replay(task, by="ann", reason=f"card {CARD} is fine again")
    h.run()
    assert "in clear in what is on record of the task: why" in desk.app.tasks.get(task).why and desk.paid == []


@pytest.mark.parametrize(
    ("then", "says"),
    [
        (bind, "semel.bind() holds what"),
        (wait, "the event of semel.wait_for holds what"),
        (given_up, "the event of semel.wait_for holds what"),
        (tell, "the name of a signal holds what"),
        (nested, "the key of this work holds what"),
    ],
)
def test_what_would_put_it_on_record_afterwards(desk: Desk, h: Harness, then: Do, says: str) -> None:
    desk.then = then
    assert says in ended(desk, h).why
    assert CARD not in desk.stored() and desk.paid == ["r1"]


def raises(desk: Desk) -> dict[str, Any]:
    raise ValueError("x" * (300 - len("ValueError: ") - 12) + CARD)


@pytest.mark.parametrize(
    ("sees", "says"),
    [
        (lambda desk: {"account": f"card {CARD}"}, "returned account='card [redacted]', and a redacted value is no identity"),
        (lambda desk: {CARD: "alice"}, "and a redacted value is no identity"),
        (lambda desk: {"x" * 190 + CARD: "alice"}, "is not at most 200 printable characters"),
        (lambda desk: {"x" * 190 + CARD: 1}, "returned int for"),
        (raises, "xx[redacted]"),
    ],
)
def test_what_is_observed_shows_no_value_and_is_no_identity(
    desk: Desk, h: Harness, sees: Callable[[Desk], dict[str, Any]], says: str
) -> None:
    def then(desk: Desk) -> None:
        semel.bind(account="card [redacted]")  # what is compared is what was seen, and not what would be recorded
        desk.sees = lambda: sees(desk)
        desk.post("hello")

    desk.then = then
    task = ended(desk, h)
    assert task.delivery == "blocked" and says in desk.stored()
    assert CARD[:6] not in desk.stored() and [x.name for x in desk.app.effects.list()] == ["pay"]


# --- what people say ---

Say = Callable[[Any, semel.EffectView, str], Any]
SAID: dict[str, tuple[str, Say]] = {
    "resolve": ("cut", lambda review, x, why: review.resolve(x.key, semel.NotFound(), by="ann", reason=why)),
    "conflict": ("cut", lambda review, x, why: review.resolve(x.key, semel.Conflict(why), by="ann")),
    "result": ("cut", lambda review, x, why: review.resolve(x.key, semel.Confirmed(why), by="ann")),
    "by": ("cut", lambda review, x, why: review.resolve(x.key, semel.NotFound(), by=why)),
    "renew": ("bad", lambda review, x, why: review.renew(x.key, by="ann", reason=why)),
    "replay": ("bad", lambda review, x, why: review.replay(x.task_id, by="ann", reason=why)),
    "batch": ("bad", lambda review, x, why: review.replay(x.task_id, by="ann", from_step=why)),
    "purge": ("bad", lambda review, x, why: review.purge(x.task_id, by="ann", reason=why)),
    "cancel": ("cut", lambda review, x, why: review.cancel(x.task_id, by="ann", reason=why)),
}


@pytest.mark.parametrize("said", SAID)
def test_no_word_of_a_persons_puts_it_on_record(desk: Desk, h: Harness, said: str) -> None:
    how, say = SAID[said]
    ended(desk, h, how)
    (paid,) = desk.app.effects.list()
    with pytest.raises(semel.Misuse, match="holds a value that was redacted in this task"):
        say(desk.app.review, paid, f"card {CARD} it was" if said != "batch" else CARD)
    assert CARD not in desk.stored()
    say(desk.app.review, paid, "another card") if said != "batch" else None


def test_a_correction_and_a_new_value_of_what_is_bound(desk: Desk, h: Harness) -> None:
    desk.before = lambda desk: semel.bind(account="alice")
    task = ended(desk, h, "cut").ref
    (paid,) = desk.app.effects.list()
    desk.app.review.resolve(paid.key, semel.Conflict("two of them"), by="ann")
    desk.app.review.resolve(paid.key, semel.Confirmed("paid"), by="ann")
    with pytest.raises(semel.Misuse, match="redacted in this task"):
        desk.app.review.correct(paid.key, by="ann", reason=f"{CARD} was never charged")
    with pytest.raises(semel.Misuse, match="redacted in this task"):
        desk.app.review.replay(task, by="ann", identity={"account": CARD})
    assert CARD not in desk.stored()


def test_of_many_tasks_only_those_are_refused_in_which_it_was_redacted(desk: Desk, h: Harness) -> None:
    ended(desk, h, "bad")
    desk.before = lambda desk: 1 / 0
    other = desk.bill.using(key="t2").enqueue("r2")
    h.run()
    handled = desk.app.review.purge_many(semel.DeadLetters(), by="ann", reason=f"{CARD} is closed")
    assert [ref.id for ref in handled.done] == [other.id]
    assert [why.split(";")[0] for _, why in handled.refused] == [
        "what was written holds a value that was redacted in this task, and it would be on record"
    ]


def test_a_reason_to_prune_stands_without_it(tmp_path: Path) -> None:
    desk = Desk(f"sqlite:///{tmp_path}/desk.db")
    task = desk.bill.using(key="t1").enqueue("r1")
    desk.app.run_worker(until_idle=True)
    pruned = desk.app.review.prune(
        older_than=timedelta(0), export=tmp_path / "old.jsonl", by="ann", reason=f"card {CARD} is closed"
    )
    (stone,) = desk.app.journal(task)
    assert pruned.tasks == 1 and stone.body["reason"] == "card [redacted] is closed"
    desk.app.close()


# --- keys ---


def test_a_key_that_is_none_does_not_matter_where_nothing_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    app = semel.App(NEVER)

    def find(submission: semel.Submission) -> semel.Verdict:
        return semel.Confirmed("found")

    @app.effect(intent=("order",), recovery=semel.Lookup(find, settle=timedelta(0)))
    def buy(submission: semel.Submission, order: str) -> str:
        raise OSError("reset")

    @app.task()
    def shop(order: str) -> str:
        return buy(order)

    monkeypatch.setenv("SEMEL_REDACTION_KEY", "nonsense")
    with Harness(app) as h:
        task = shop.using(key="a").enqueue("o1")
        h.run()
        assert task.result() == "found" and app.tasks.get(task).attempt == 1
        app.review.replay(task, by="ann", reason="once more")


# --- observers ---


def test_no_observer_is_told_at_any_level(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    spans, provider, registry = InMemorySpanExporter(), TracerProvider(), CollectorRegistry()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    desk = Desk(f"sqlite:///{tmp_path}/desk.db")
    desk.app.observers += [Logs(), Logs(as_json=True), Spans(provider.get_tracer("semel")), Metrics(registry)]
    registry.register(Ledgers(desk.app))

    def breaks(desk: Desk) -> None:
        raise ValueError(f"card {CARD}")

    desk.then = breaks
    for ref in ("r1", "bad", "cut"):
        desk.bill.using(key=ref).enqueue(ref)
    desk.app.run_worker(until_idle=True)
    metrics = generate_latest(registry).decode()
    desk.app.close()
    told = " ".join([*(record.getMessage() + str(vars(record)) for record in caplog.records), metrics])
    told += " ".join(span.to_json() for span in spans.get_finished_spans())
    assert "card [redacted]" in told and "semel:redacted" in told and "execute_tool pay" in told and "semel_dead_letters" in told
    assert CARD not in told

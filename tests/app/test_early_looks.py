"""R4, end to end: a person looks before settle is over, finds nothing, and then the request acts. It happens once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

import semel
from semel.testing import Harness

SETTLE = timedelta(minutes=5)
books: list[str] = []  # what the provider has really done
under_way: list[str] = []  # what was sent, and may still be acted upon
app = semel.App("sqlite:///never-made.db")


def find(submission: semel.Submission) -> semel.Verdict:
    return semel.Confirmed(books[-1]) if books else semel.Unavailable("the books are closed")


@app.effect(intent=("ref",), recovery=semel.Ask(settle=SETTLE))
def pay(submission: semel.Submission, ref: str) -> str:
    raise NotImplementedError


@app.effect(intent=("ref",), recovery=[semel.Lookup(find, settle=2 * SETTLE), semel.Ask(settle=SETTLE)])
def wire(submission: semel.Submission, ref: str) -> str:
    raise NotImplementedError


@app.task(intent=("ref",))
def bill(ref: str) -> str:
    return pay(ref)


@app.task(intent=("ref",))
def transfer(ref: str) -> str:
    return wire(ref)


def is_cut(ref: str) -> str:
    under_way.append(ref)
    raise ConnectionResetError


def acts(ref: str) -> str:
    books.append(ref)
    return ref


@pytest.fixture
def h() -> Iterator[Harness]:
    books.clear()
    under_way.clear()
    with Harness(app) as harness:
        yield harness


def looked_and_found_nothing(task: semel.Ref[str]) -> semel.EffectView:
    """What alice saw, and said, of what is unknown of the task."""
    (seen,) = app.effects.list(state="ambiguous", task=task)
    assert not books
    app.review.resolve(seen.key, semel.NotFound(), by="alice", seen=seen.version)
    return seen


def test_what_acts_after_an_early_look_is_found_at_the_next_and_not_sent_again(h: Harness) -> None:
    h.fake(pay, is_cut)
    task = bill.enqueue("r1")
    h.run()
    looked_and_found_nothing(task)
    h.run()
    books.extend(under_way)  # within settle, and after her look
    h.fake(pay, acts)
    h.advance(SETTLE)
    h.run()
    assert app.tasks.get(task).delivery == "blocked" and "look again" in app.tasks.get(task).why
    (unknown,) = app.effects.list(state="ambiguous", task=task)
    app.review.resolve(unknown.key, semel.Confirmed(books[0]), by="alice", seen=unknown.version)
    h.run()
    assert task.result() == "r1" and books == ["r1"]


def test_whoever_looks_again_when_settle_is_over_is_believed_at_once(h: Harness) -> None:
    h.fake(pay, is_cut)
    task = bill.enqueue("r1")
    h.run()
    looked_and_found_nothing(task)
    h.advance(SETTLE)
    h.fake(pay, acts)
    h.run()
    assert books == []
    looked_and_found_nothing(task)
    h.run()
    assert task.result() == "r1" and books == ["r1"]
    kinds = [event.kind for event in app.journal(task) if event.kind in ("answered", "watched", "found")]
    assert kinds == ["answered", "watched", "answered", "found"]


def test_settle_of_a_lookup_that_could_not_be_asked_holds_for_the_person_behind_it(h: Harness) -> None:
    h.fake(wire, is_cut, own_lookup=True)
    task = transfer.enqueue("r1")
    h.run()
    (unknown,) = app.effects.list(state="ambiguous", task=task)
    app.review.resolve(unknown.key, semel.NotFound(), by="alice", seen=unknown.version)
    h.advance(SETTLE + timedelta(minutes=1))  # that of `Ask` is over, and that of the lookup is not
    h.run()
    books.extend(under_way)
    h.advance(2 * SETTLE)
    h.run()
    assert task.result() == "r1" and books == under_way == ["r1"], "the lookup was asked again, and found it"

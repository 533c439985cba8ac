"""What goes out with a submission, and when it may go out (R12, R13, R18)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import semel


@pytest.fixture
def app(tmp_path: Path) -> Iterator[semel.App]:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    yield app
    app.close()


def on_record(app: semel.App) -> list[int]:
    (task,) = app.tasks.list()
    return [event.token for event in app.journal(task.ref) if event.kind == "intended"]


def test_r18_the_token_on_record_goes_out_with_every_submission(app: semel.App) -> None:
    sent: list[int] = []

    @app.effect(intent=(), recovery=semel.Resend(within=timedelta(hours=24)))
    def send(submission: semel.Submission) -> str:
        sent.append(submission.token)
        if len(sent) < 3:
            raise ConnectionResetError
        return "sent"

    with app.work("k", kind="loop"):
        assert send() == "sent"
    assert sent == on_record(app) and len(sent) == 3 and sent[0] > 0


def test_r18_a_lookup_is_told_the_token_of_what_it_looks_for(app: semel.App) -> None:
    sent: list[int] = []
    asked: list[tuple[int, int]] = []

    def find(submission: semel.Submission) -> semel.Verdict:
        asked.append((submission.number, submission.token))
        return semel.Confirmed("sent")

    @app.effect(intent=(), recovery=semel.Lookup(find, settle=timedelta(0)))
    def send(submission: semel.Submission) -> str:
        sent.append(submission.token)
        raise ConnectionResetError

    with app.work("k", kind="loop"):
        assert send() == "sent"
    assert asked == [(1, sent[0])] and sent == on_record(app)


def test_r12_a_submission_is_one_call_whatever_comes_of_it(app: semel.App) -> None:
    calls: list[int] = []

    @app.effect(intent=(), recovery=semel.Resend(within=timedelta(hours=24)))
    def send(submission: semel.Submission) -> str:
        calls.append(submission.number)
        if len(calls) < 4:
            raise TimeoutError
        return "sent"

    with app.work("k", kind="loop"):
        send()
    assert calls == [1, 2, 3, 4]


def test_r13_a_submission_whose_time_went_by_before_its_call_is_not_sent(app: semel.App) -> None:
    """Its time counts from before its intent's commit, however long that or the arming took: the retention does not wait."""
    calls: list[int] = []

    @app.effect(intent=(), timeout=timedelta(seconds=0.2), tries=1)
    def send(submission: semel.Submission) -> str:
        calls.append(1)
        return "sent"

    arm = app.runtime.entering

    def slow(*args: Any) -> Any:
        time.sleep(0.3)
        return arm(*args)

    app.runtime.entering = slow  # type: ignore[method-assign]
    with app.work("k", kind="loop"), pytest.raises(semel.NotDone, match="its time was over"):
        send()
    assert calls == [] and [effect.state for effect in app.effects.list()] == ["not_attempted"]

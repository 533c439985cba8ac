"""Code changes while work is on record: renames keep keys, what no longer fits goes to a person, and can be gone on with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import semel


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/agent.db"


@pytest.fixture
def apps(url: str) -> Iterator[list[semel.App]]:
    made: list[semel.App] = []
    yield made
    for app in made:
        app.close()


def test_a_renamed_effect_keeps_its_key(url: str, apps: list[semel.App]) -> None:
    calls: list[str] = []
    old = semel.App(url)

    @old.effect(intent=("n",))
    def charge(submission: semel.Submission, n: int) -> str:
        calls.append("old")
        return "receipt"

    with old.work("k", kind="loop"):
        charge(1)
    old.close()
    new = semel.App(url)
    apps.append(new)

    @new.effect(intent=("n",), name="charge_card", formerly=("charge",))
    def charge_card(submission: semel.Submission, n: int) -> str:
        calls.append("new")
        return "receipt"

    with new.work("k", kind="loop"):
        assert charge_card(1) == "receipt"
    assert calls == ["old"]


def test_a_renamed_task_is_the_same_task(url: str, apps: list[semel.App]) -> None:
    old = semel.App(url)

    @old.task(intent=("n",))
    def bill(n: str) -> str:
        return n

    ref = bill.enqueue("a")
    old.close()
    new = semel.App(url)
    apps.append(new)

    @new.task(intent=("n",), name="invoice", formerly=("bill",))
    def invoice(n: str) -> str:
        return n + "!"

    assert invoice.enqueue("a") == ref
    new.run_worker(until_idle=True)
    assert new.tasks.get(ref).execution == "succeeded" and invoice.run("a") == "a!"


def test_a_definite_no_to_a_resend_goes_to_a_person_and_is_not_sent_again(url: str, apps: list[semel.App]) -> None:
    """Resend(within=None): the name is a stranger's. The first try is as unknown as before (R1), and sending is over."""
    app = semel.App(url)
    apps.append(app)
    calls: list[int] = []

    @app.effect(intent=(), recovery=semel.Resend(within=None))
    def put(submission: semel.Submission) -> str:
        calls.append(submission.number)
        if len(calls) == 1:
            raise ConnectionResetError
        raise semel.NotDone("412, and what is there does not bear our key", retry=False)

    with pytest.raises(semel.Unsettled) as caught, app.work("k", kind="loop"):
        put()
    assert caught.value.why == "blocked" and "does not bear our key" in str(caught.value)
    assert calls == [1, 2]


def test_a_task_blocked_by_a_mistake_in_the_code_goes_on_after_a_replay(url: str, apps: list[semel.App]) -> None:
    app = semel.App(url)
    apps.append(app)
    verdicts: list[object] = [None]

    def find(submission: semel.Submission) -> semel.Verdict:
        return verdicts[-1]  # type: ignore[return-value]

    @app.effect(intent=(), recovery=semel.Lookup(find, settle=timedelta(0)))
    def send(submission: semel.Submission) -> str:
        raise ConnectionResetError

    @app.task(intent=("n",))
    def bill(n: str) -> str:
        return send()

    with pytest.raises(semel.Unsettled) as caught:
        bill.run("a")
    assert caught.value.why == "blocked"
    verdicts.append(semel.Confirmed("msg-1"))  # the mend
    app.review.replay(caught.value.ref, by="ann", reason="the lookup is mended")
    assert bill.run("a") == "msg-1"


WORKER = """
import os, semel
app = semel.App(os.environ["SEMEL_STORE"], lease=__import__("datetime").timedelta(seconds=1))
@app.task(intent=("n",))
async def bill(n: str) -> str:
    return n
"""


def test_a_restarted_worker_makes_no_new_store_in_the_place_of_one_that_was_removed(url: str, tmp_path: Path) -> None:
    (tmp_path / "office.py").write_text(WORKER)
    env = {**os.environ, "SEMEL_STORE": url, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    worker = subprocess.Popen([sys.executable, "-m", "semel", "worker", "office:app"], env=env, stderr=subprocess.PIPE, text=True)
    try:
        file = tmp_path / "agent.db"
        end = time.monotonic() + 60
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1.0)  # let it come into the store
        for path in tmp_path.glob("agent.db*"):
            path.unlink()
        assert worker.wait(60) == 2
        assert not file.exists()
        assert worker.stderr is not None and "is gone" in worker.stderr.read()
    finally:
        if worker.poll() is None:
            worker.send_signal(signal.SIGKILL)
        worker.wait()

"""R17: the end of one claim does not let go of the next one of the same task."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import semel
from semel import direct
from semel.engine import drive
from semel.engine.attempt import Attempt
from semel.engine.held import Held
from semel.engine.requests import Raised, Request, Returned
from semel.model import Limits


def test_each_claim_is_let_go_by_itself() -> None:
    held = Held()
    held.add("t", "a", 1)
    held.add("t", "a", 2)
    held.drop("t", "a", 1)
    assert ("t", "a") in held and ("t", "b") not in held
    held.drop("t", "a", 1)
    assert len(held) == 1
    held.drop_all({("t", "a", 2), ("t", "b", 1)})
    assert not held and ("t", "a") not in held


def test_work_of_ones_own_that_ends_while_another_thread_claims_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    retry = semel.Retry(max_attempts=5, backoff=timedelta(0))
    again: list[Any] = []

    @app.task(intent=("n",), retry=retry)
    def work(n: int) -> None:
        raise ValueError("again")

    end = Attempt.end

    def ending(self: Attempt, reply: Returned | Raised, encode: Callable[[Any], Any]) -> Generator[Request, Any, None]:
        yield from end(self, reply, encode)
        ref: semel.Ref[Any] = semel.Ref(self.ledger.state.id, self.ledger.tenant)
        again.append(drive.run(direct.take(self.runtime, ref, retry, Limits(), timedelta(0))))

    monkeypatch.setattr(Attempt, "end", ending)
    with pytest.raises(semel.Unsettled):
        work.run(1)
    (ledger,) = again
    session = app.runtime.session()
    assert (ledger.tenant, ledger.state.id) in session.held
    for _ in range(2):
        session.check_own()
    assert app.runtime.desk.store.rows(ledger.tenant, ledger.state.id)[-1].kind == "claimed"
    app.close()

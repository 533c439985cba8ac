"""Where parts meet: what each promises by itself must hold of all of them at once."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.testing import Harness
from semel.verbs import Review

CARD = "4929123456789012"
SHORT = timedelta(seconds=0)
LOOKS = {"apending", "pending", "forecast", "paused"}  # they decide nothing


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[semel.App]:
    monkeypatch.setenv("SEMEL_REDACTION_KEY", "5e" * 32)
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    yield app
    app.close()


def guarded(app: semel.App, **how: Any) -> tuple[Any, list[str], list[str]]:
    """An effect that is redacted and observed, whose lookup and whose identity ask for different arguments."""
    acts: list[str] = []
    seen: list[str] = []

    def find(submission: semel.Submission) -> semel.Verdict:
        return semel.Confirmed(acts[-1]) if acts else semel.NotFound()

    def who(shop: str) -> dict[str, str]:
        seen.append(shop)
        return {"account": "alice"}

    @app.effect(
        intent=("order",), redact=("card",), identity=who, recovery=semel.Lookup(find, settle=SHORT), **how,
    )  # fmt: skip
    def buy(submission: semel.Submission, order: str, shop: str, card: str) -> str:
        acts.append(f"bought {order} at {shop}")
        raise ConnectionResetError("no answer")

    @app.task(intent=("order",), retry=semel.Retry(max_attempts=2, backoff=SHORT))
    def shop(order: str) -> str:
        semel.bind(account="alice")
        return str(buy(order, "corner", CARD))

    return shop, acts, seen


def test_a_lookup_of_a_redacted_call_is_observed_with_the_arguments_that_identity_asks_for(app: semel.App) -> None:
    shop, acts, seen = guarded(app)
    ref = shop.enqueue("o1")
    app.run_worker(until_idle=True)
    assert ref.result(timedelta(seconds=20)) == "bought o1 at corner"
    assert acts == ["bought o1 at corner"] and seen == ["corner", "corner"], "before it was sent, and before it was looked up"


def test_an_approved_redacted_call_is_observed_before_it_is_sent(app: semel.App) -> None:
    shop, acts, seen = guarded(app, approve=True)
    ref = shop.enqueue("o1")
    app.run_worker(until_idle=True)
    (effect,) = app.review.pending()
    assert not acts and not seen and CARD not in str(effect)
    app.review.approve(effect.key, by="ann", seen=effect.version)
    app.run_worker(until_idle=True)
    assert ref.result(timedelta(seconds=20)) == "bought o1 at corner"
    assert len(acts) == 1 and set(seen) == {"corner"}


def test_identity_cannot_ask_for_what_is_redacted(app: semel.App) -> None:
    def who(card: str) -> dict[str, str]:
        return {}

    with pytest.raises(semel.Misuse, match="its identity function asks for 'card', which is redacted"):

        @app.effect(intent=(), redact=("card",), identity=who)
        def pay(submission: semel.Submission, card: str) -> None: ...


def test_no_agent_does_what_only_people_may(app: semel.App) -> None:
    """Every verb of app.review that decides, with arguments of the right shape; what is asked for does not exist."""
    wanted = {"verdict": semel.NotFound(), "older_than": timedelta(days=1), "export": "x", "of": "t", "by": "ann", "reason": "r",
              "key": "k", "everything": True}  # fmt: skip
    verbs = [name for name, fn in inspect.getmembers(Review, inspect.isfunction) if not name.startswith("_")]
    plain = [name for name in verbs if not inspect.iscoroutinefunction(getattr(Review, name)) and name not in LOOKS]
    assert {"approve", "deny", "resolve", "correct", "renew", "cancel", "replay", "purge", "prune", "pause"} <= set(plain)
    with app.work("w", kind="agent"):
        for name in plain:
            asked = inspect.signature(getattr(Review, name)).parameters
            given = {n: wanted[n] for n, p in asked.items() if n in wanted and (p.default is p.empty or n == "everything")}
            if name.endswith("_many"):
                given["of"] = semel.DeadLetters()
            with pytest.raises(semel.Misuse, match="inside the work of an agent"):
                getattr(app.review, name)(**given)


def test_what_breaks_outside_the_handler_waits_for_a_person_and_not_in_a_loop(
    app: semel.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(intent=("n",))
    def work(n: int) -> int:
        return n

    from semel.engine import fits

    monkeypatch.setattr(fits, "unfit", lambda *of: 1 / 0)
    ref = work.enqueue(1)
    app.run_worker(until_idle=True)
    stands = app.tasks.get(ref)
    assert (stands.delivery, stands.attempt) == ("blocked", 1)
    assert stands.why == "broke outside its handler: ZeroDivisionError: division by zero"
    monkeypatch.undo()
    app.review.replay(ref, by="ann")
    app.run_worker(until_idle=True)
    assert ref.result() == 1


class Twice:
    """A tenant's key that task a could not do, and that a person has opened anew; task b never had the act."""

    def __init__(self, app: semel.App, **limits: Any) -> None:
        self.may = False

        @app.effect(intent=("inv",), scope="tenant", tries=1, **limits)
        def charge(submission: semel.Submission, inv: str) -> str: ...

        @app.task(retry=semel.Retry(max_attempts=1))
        def a(inv: str) -> str:
            return charge(inv)

        @app.task(retry=semel.Retry(max_attempts=1))
        def b(inv: str) -> str:
            if not self.may:
                raise ValueError("not yet")
            charge("other")
            return charge(inv)

        self.charge, self.a, self.b = charge, a, b

    def act(self, inv: str) -> str:
        if inv == "one" and not self.may:
            raise semel.NotDone("closed")
        return f"paid {inv}"


@pytest.mark.parametrize("promise", [False, True])
def test_a_key_of_the_tenant_that_was_renewed_is_new_to_a_task_that_never_had_it(promise: bool) -> None:
    app = semel.App("sqlite:///never-made.db")
    twice = Twice(app, **({} if promise else {"per_task": 1}))
    with Harness(app) as h:
        h.fake(twice.charge, twice.act)
        twice.a.using(key="a").enqueue("one")
        h.run()
        app.review.renew(app.effects.list()[0].key, by="ann", reason="it is open again")
        ref = twice.b.using(key="b").enqueue("one")
        h.run()
        twice.may = True
        tried = len(h.sent(twice.charge))
        app.review.replay(ref, by="ann", at_most={"charge": 1} if promise else None)
        h.run()
        assert len(h.sent(twice.charge)) == tried + 1, "only the other one"
        stands = app.tasks.get(ref)
        assert stands.delivery == "dead_lettered" and ("more than was forecast" if promise else "per task") in stands.why

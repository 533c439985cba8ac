"""An app and its tenant: one that may name any, one that must name one, and one that is bound and reaches no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.errors import Misuse, Unsettled

DAY = timedelta(days=1)
BOUND = r"bound to tenant 'acme' and reaches no other, so not 'globex'.*semel\.App\(\.\.\., tenant='default'\)"


class Shop:
    """An app with one task of one effect, on a store that others share. sent: (tenant, key) of what was really done."""

    def __init__(self, url: str, tenant: str | None) -> None:
        self.app = semel.App(url, tenant=tenant, lease=timedelta(seconds=2))
        self.sent: list[tuple[str, str]] = []
        self.lose = False

        @self.app.effect(intent=("invoice",))
        def charge(submission: semel.Submission, invoice: str) -> str:
            self.sent.append((submission.tenant, submission.key))
            if self.lose:
                raise TimeoutError("no answer")
            return f"paid {invoice}"

        @self.app.task(intent=("invoice",), retry=semel.Retry(backoff=timedelta(0)))
        def bill(invoice: str) -> str:
            return charge(invoice)

        self.charge, self.bill = charge, bill


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Callable[[str | None], Shop]]:
    made: list[Shop] = []

    def open_shop(tenant: str | None) -> Shop:
        made.append(Shop(f"sqlite:///{tmp_path}/shop.db", tenant))
        return made[-1]

    yield open_shop
    for one in made:
        one.app.close()


def test_the_same_key_in_two_tenants_is_two_tasks_and_two_effects(shop: Callable[[str | None], Shop]) -> None:
    every = shop("default")
    refs = [every.bill.using(tenant=name).enqueue("inv") for name in ("acme", "globex")]
    assert refs[0].id != refs[1].id
    assert every.bill.using(tenant="acme").enqueue("inv") == refs[0]
    every.app.run_worker(until_idle=True)
    assert sorted(tenant for tenant, _ in every.sent) == ["acme", "globex"]
    assert len({key for _, key in every.sent}) == 2, "two keys, so the provider takes them for two"
    assert [ref.result(DAY) for ref in refs] == ["paid inv"] * 2


NAMED: dict[str, Callable[[Shop, semel.Ref[Any], str], object]] = {
    "using": lambda s, ref, key: s.bill.using(tenant="globex").enqueue("x"),
    "run": lambda s, ref, key: s.bill.using(tenant="globex").run("x"),
    "work": lambda s, ref, key: s.app.work("x", kind="loop", tenant="globex"),
    "journal by name": lambda s, ref, key: s.app.journal(ref.id, tenant="globex"),
    "journal of a ref": lambda s, ref, key: s.app.journal(ref),
    "tasks.get by name": lambda s, ref, key: s.app.tasks.get(ref.id, tenant="globex"),
    "tasks.get of a ref": lambda s, ref, key: s.app.tasks.get(ref),
    "tasks.list": lambda s, ref, key: s.app.tasks.list(tenant="globex"),
    "effects.get": lambda s, ref, key: s.app.effects.get(key, tenant="globex"),
    "effects.list": lambda s, ref, key: s.app.effects.list(tenant="globex"),
    "effects.list of unknowns": lambda s, ref, key: s.app.effects.list(state="ambiguous", tenant="globex"),
    "effects.list of a ref": lambda s, ref, key: s.app.effects.list(task=ref),
    "review.resolve": lambda s, ref, key: s.app.review.resolve(key, semel.NotFound(), by="eve", tenant="globex"),
    "review.cancel by name": lambda s, ref, key: s.app.review.cancel(ref.id, by="eve", tenant="globex"),
    "review.cancel of a ref": lambda s, ref, key: s.app.review.cancel(ref, by="eve"),
    "review.replay by name": lambda s, ref, key: s.app.review.replay(ref.id, by="eve", tenant="globex"),
    "review.replay of a ref": lambda s, ref, key: s.app.review.replay(ref, by="eve"),
    "result": lambda s, ref, key: semel.Ref(ref.id, ref.tenant, app=s.app).result(timedelta(0)),
}


@pytest.mark.parametrize("how", NAMED)
def test_a_bound_app_reaches_no_other_tenant(shop: Callable[[str | None], Shop], how: str) -> None:
    every = shop("default")
    every.lose = True
    ref = every.bill.using(tenant="globex").enqueue("inv")
    every.app.run_worker(until_idle=True)
    (effect,) = every.app.effects.list(tenant="globex")
    before = [event.hash for event in every.app.journal(ref)]
    with pytest.raises(Misuse, match=BOUND):
        NAMED[how](shop("acme"), ref, effect.key)
    assert [event.hash for event in every.app.journal(ref)] == before
    assert len(every.app.tasks.list(tenant="globex")) == 1


def test_what_a_bound_app_lists_is_its_own(shop: Callable[[str | None], Shop]) -> None:
    every, bound = shop("default"), shop("acme")
    every.lose = True
    for name in ("default", "acme", "globex"):
        every.bill.using(tenant=name).enqueue("inv")
    every.app.run_worker(until_idle=True)
    assert [view.ref.tenant for view in bound.app.tasks.list()] == ["acme"]
    assert [view.tenant for view in bound.app.effects.list()] == ["acme"]
    assert [view.tenant for view in bound.app.effects.list(state="ambiguous")] == ["acme"]
    (theirs,) = every.app.effects.list(tenant="globex")
    with pytest.raises(Misuse, match="there is no effect"):
        bound.app.effects.get(theirs.key)
    with pytest.raises(Misuse, match="there is no effect"):
        bound.app.review.resolve(theirs.key, semel.NotFound(), by="eve")
    (mine,) = bound.app.effects.list()
    bound.app.review.resolve(mine.key, semel.Confirmed("paid"), by="ann")
    assert bound.app.tasks.get(mine.task_id, tenant="acme").ref.tenant == "acme", "its own may be named"


def test_a_bound_worker_claims_its_tenants_tasks_alone_and_idles(
    shop: Callable[[str | None], Shop], caplog: pytest.LogCaptureFixture
) -> None:
    every, bound = shop("default"), shop("acme")
    theirs = [every.bill.using(tenant="globex", priority=9).enqueue(f"inv{n}") for n in range(5)]
    mine = bound.bill.enqueue("inv")
    with every.app.work("x", kind="other-kind", tenant="globex"):
        pass
    with caplog.at_level(logging.WARNING, "semel"):
        bound.app.run_worker(until_idle=True)  # it comes to its end, although others' tasks are due
    assert caplog.text == ""
    assert mine.result(DAY) == "paid inv" and [tenant for tenant, _ in bound.sent] == ["acme"]
    assert {every.app.tasks.get(ref).delivery for ref in theirs} == {semel.Delivery.QUEUED}
    every.app.run_worker(until_idle=True)
    assert [tenant for tenant, _ in every.sent] == ["globex"] * 5


def test_a_bound_app_takes_back_its_own_tasks_alone(shop: Callable[[str | None], Shop]) -> None:
    """Fencing the dead is everybody's duty; writing into a tenant's journal is its own."""
    dead, bound, every = shop("default"), shop("acme"), shop("default")
    works = [dead.app.work("pr", kind="loop", tenant=name) for name in ("acme", "globex")]
    for work in works:
        work.__enter__()
    session = dead.app.runtime.session()
    session.stop(leave=False)  # as if its process had died
    assert bound.app.runtime.desk.store.fence(session.id, None, "dead")
    bound.app.runtime.session().sweep()

    def delivery(n: int) -> str:
        return every.app.tasks.get(works[n].ref).delivery

    assert (delivery(0), delivery(1)) == ("queued", "leased")
    every.app.runtime.session().sweep()
    assert delivery(1) == "queued"
    for work in works:
        work._left()


def test_an_app_of_no_tenant_must_name_one_and_sees_all(shop: Callable[[str | None], Shop]) -> None:
    every, none = shop("default"), shop(None)
    with pytest.raises(Misuse, match="bound to no tenant"):
        none.bill.enqueue("inv")
    with pytest.raises(Misuse, match="bound to no tenant"):
        none.app.work("x", kind="loop")
    refs = [none.bill.using(tenant=name).enqueue("inv") for name in ("acme", "globex")]
    assert {view.ref.tenant for view in none.app.tasks.list()} == {"acme", "globex"}
    assert [view.ref for view in none.app.tasks.list(tenant="acme")] == refs[:1]
    assert every.app.tasks.list() == [] and every.app.tasks.get(refs[0]).ref == refs[0]
    with pytest.raises(Unsettled):
        refs[0].result(timedelta(0))

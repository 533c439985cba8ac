"""The same on PostgreSQL, with real workers: what was forecast is what happens, and what is unknown is settled first."""

from __future__ import annotations

import threading

import pytest
from dead_lab import Billing
from test_replay_thousand import DEAD, effects, happened

import semel


@pytest.mark.parametrize("many", [100, pytest.param(1000, marks=pytest.mark.proof)])
def test_exactly_what_was_forecast_happens(database: str, many: int) -> None:
    shop = Billing(database)
    shop.mended = True
    shop.bill.enqueue("done-0")
    shop.app.run_worker(until_idle=True)
    shop.mended, shop.bank = False, "refuses"
    dead = [f"i{n}" for n in range(many - 10)] + [f"r{n}" for n in range(10)]
    for order in dead:
        shop.bill.enqueue(order)
    shop.app.run_worker(until_idle=True)
    shop.bank = "muddles"
    for order in dead[-10:]:
        shop.collect.enqueue(order)
    shop.app.run_worker(until_idle=True)
    before, acts = effects(shop.app), shop.count()

    told = shop.app.review.forecast(DEAD, from_step="render")
    tenth = (many - 10) // 10
    assert (told.unknown, told.again, told.new_most) == ({"charge": 10}, {"charge": tenth}, {"send": many})
    shop.bank, shop.mended = "open", True
    done = shop.app.review.replay_many(DEAD, by="ann", from_step="render")
    assert len(done.done) == many and done.forecast == told

    worker = threading.Thread(target=shop.app.run_worker, kwargs={"until_idle": True})
    worker.start()
    unknown = [x for x in before.values() if x.state == "ambiguous"]
    for x in unknown:  # the replayed tasks wait for them, and for nothing less
        assert ("send", x.args["order"]) not in shop.acts
        shop.app.review.resolve(x.key, semel.Confirmed(f"ch_{x.args['order']}"), by="ann", reason="seen at the bank")
    worker.join(120)
    did = happened(before, effects(shop.app))
    assert (did["unknown"], did["again"], did["new"]) == (told.unknown, told.again, told.new_most)
    assert shop.count() - acts == {"charge": tenth, "send": many}
    assert {shop.app.tasks.get(ref).execution for ref in done.done} == {"succeeded"}
    shop.app.close()

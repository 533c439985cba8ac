"""Replay of many dead letters from a step: what the dry run says is what happens, counted at the provider."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from dead_lab import Billing

import semel
from semel.testing import Harness

DEAD = semel.DeadLetters(kind="bill")


def effects(app: semel.App) -> dict[str, semel.EffectView]:
    """Every effect on record, by key."""
    found: dict[str, semel.EffectView] = {}
    while page := app.effects.list(after=max(found, default=""), limit=1000):
        found |= {x.key: x for x in page}
    return found


def happened(before: dict[str, semel.EffectView], after: dict[str, semel.EffectView]) -> dict[str, Counter[str]]:
    """What a replay did, by what the record said before: settled, sent again, sent as new."""
    did: dict[str, Counter[str]] = {"unknown": Counter(), "again": Counter(), "new": Counter()}
    for key, now in after.items():
        was = before.get(key)
        if was is None:
            did["new"][now.name] += 1
        elif was.state == "ambiguous":
            did["unknown"][now.name] += 1
            assert now.state == "confirmed" and now.submissions == was.submissions, "it was settled, and not sent again"
        elif now.submissions > was.submissions:
            did["again"][now.name] += 1
    return did


def test_of_a_thousand_dead_letters_exactly_what_was_forecast_happens() -> None:
    shop = Billing()
    with Harness(shop.app) as h:
        shop.finished(h)
        shop.died(h, *(f"i{n}" for n in range(950)))  # a tenth each: reply lost, cut before, refused for good
        shop.bank = "refuses"
        shop.died(h, *(f"r{n}" for n in range(50)))
        shop.bank = "loses"  # another task charges the same orders, and nobody can be asked what came of it
        for n in range(50):
            shop.collect.enqueue(f"r{n}")
        h.run()
        before, acts = effects(shop.app), shop.count()

        told = shop.app.review.forecast(DEAD, from_step="render")
        assert effects(shop.app) == before and len(shop.app.tasks.list(delivery="dead_lettered", limit=2000)) == 1000
        assert (told.tasks, told.siblings, told.steps_kept, told.steps_anew) == (1000, 3, 1000, 0)
        assert told.recorded == {"charge": 855} and told.again == {"charge": 95} and told.unknown == {"charge": 50}
        assert told.new_least == told.new_most == {"send": 1000}

        shop.bank, shop.mended = "open", True
        done = shop.app.review.replay_many(DEAD, by="ann", from_step="render", reason="the template is mended")
        assert len(done.done) == 1000 and not done.refused and done.forecast == told
        for _ in range(3):  # the other tasks ask the bank again after a while, and then those which wait for them go on
            h.run()
            h.advance(timedelta(minutes=1))
        h.run()
        assert {ref.result()[:5] for ref in done.done} == {"mail_"}

        did = happened(before, effects(shop.app))
        assert (did["unknown"], did["again"], did["new"]) == (told.unknown, told.again, told.new_most)
        more = shop.count() - acts
        assert more == {"charge": 95, "send": 1000} and not any(more[name] > n for name, n in told.most.items())
        assert set(Counter(shop.acts[i] for i in range(len(shop.acts)) if shop.acts[i][0] != "lookup").values()) == {1}
        for n in range(50):
            assert shop.acts.index(("lookup", f"r{n}")) < shop.acts.index(("send", f"r{n}")), "settled before anything was sent"

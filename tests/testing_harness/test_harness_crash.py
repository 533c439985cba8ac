"""A process that dies before, during and after the call, for every recovery: what was really called, and how it ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from shop import COLOURS, DAY, SETTLE, SHOP, app, asked, buy, charge, ship, ship_both, stubborn, swallowed

import semel
from semel.testing import Died, Harness
from semel.testing.stage import PLACES, Place

SECOND = timedelta(seconds=1)
colours = pytest.mark.parametrize("colour", COLOURS)
places = pytest.mark.parametrize("at", PLACES)


def plays(order: str, cents: int) -> int:
    return cents


def begun(h: Harness, colour: str, recovery: str, at: Place) -> tuple[Any, semel.Ref[int]]:
    """The effect, faked, and a task in which its first call kills the process; run until idle."""
    effect, task = SHOP[colour, recovery]
    h.fake(effect, plays)
    h.crash(effect, at=at)
    ref = task.enqueue("o1")
    h.run()
    return effect, ref


def kinds(ref: semel.Ref[Any]) -> list[str]:
    return [event.kind for event in app.journal(ref)]


@colours
@places
@pytest.mark.parametrize("recovery", ["resend", "write"])
def test_a_provider_that_remembers_keys_is_sent_the_same_again_and_acts_once(colour: str, recovery: str, at: Place) -> None:
    with Harness(app) as h:
        effect, ref = begun(h, colour, recovery, at)
        assert ref.result() == 42
        (sent,) = h.sent(effect)
        assert sent.arguments == {"order": "o1", "cents": 42}
        story = kinds(ref)
        assert story.count("intended") == 2 and story.count("lease_lost") == 1 and story.count("claimed") == 2
        (view,) = app.effects.list(task=ref)
        assert (view.state, view.key, view.submissions) == ("confirmed", sent.key, 2)
        tokens = [event.token for event in app.journal(ref) if event.kind == "claimed"]
        assert sent.token == tokens[1 if at == "before" else 0] and tokens[0] < tokens[1]


@colours
def test_a_lookup_that_finds_nothing_is_believed_only_after_settle(colour: str) -> None:
    with Harness(app) as h:
        effect, ref = begun(h, colour, "lookup", "before")
        for _ in range(2):
            assert h.sent(effect) == []
            with pytest.raises(semel.Unsettled) as parked:
                ref.result()
            assert parked.value.why == "unknown"
            h.advance(SETTLE / 2 - SECOND / 100)
            h.run()
        h.advance(SECOND)
        h.run()
        assert ref.result() == 42
        assert len(h.sent(effect)) == 1
        assert kinds(ref).count("found") == 1


@colours
@pytest.mark.parametrize("at", ["during", "after"])
def test_a_lookup_that_finds_it_settles_at_once(colour: str, at: Place) -> None:
    with Harness(app) as h:
        effect, ref = begun(h, colour, "lookup", at)
        assert ref.result() == 42
        assert len(h.sent(effect)) == 1
        found = [event.body for event in app.journal(ref) if event.kind == "found"]
        assert [(body["verdict"], body["how"]) for body in found] == [("confirmed", f"lookup:{'a' * (colour == 'async')}find")]


@colours
def test_own_lookup_asks_the_declared_function(colour: str) -> None:
    with Harness(app) as h:
        effect, task = SHOP[colour, "lookup"]
        h.fake(effect, plays, own_lookup=True)
        h.crash(effect, at="before")
        asked.clear()
        ref = task.enqueue("o1")
        h.run()
        assert asked == [app.effects.list(task=ref)[0].key]
        h.advance(SETTLE)
        h.run()
        assert len(asked) == 2 and ref.result() == 42


@colours
def test_a_person_who_says_not_found_is_believed_if_they_looked_after_settle(colour: str) -> None:
    with Harness(app) as h:
        effect, ref = begun(h, colour, "ask", "before")
        assert app.tasks.get(ref).delivery == "blocked" and h.sent(effect) == []
        (unknown,) = app.effects.list(state="ambiguous")
        app.review.resolve(unknown.key, semel.NotFound(), by="ada", reason="the bank says so")
        h.run()
        h.advance(timedelta(minutes=5))
        h.run()
        again = app.tasks.get(ref)
        assert h.sent(effect) == [] and again.delivery == "blocked" and "look again" in again.why
        (unknown,) = app.effects.list(state="ambiguous")
        app.review.resolve(unknown.key, semel.NotFound(), by="ada", reason="the bank still says so", seen=unknown.version)
        h.run()
        assert ref.result() == 42 and len(h.sent(effect)) == 1
        assert [event.kind for event in app.journal(ref)].count("watched") == 1


@colours
def test_who_answers_what_they_saw_before_the_end_of_settle_must_look_again(colour: str) -> None:
    """The worker lives, and has put on record that settle is over while they still thought about it."""
    with Harness(app) as h:
        effect, ref = begun(h, colour, "ask", "before")
        (early,) = app.effects.list(state="ambiguous")
        h.advance(timedelta(minutes=5))
        with pytest.raises(semel.Refused, match="stale_view"):
            app.review.resolve(early.key, semel.NotFound(), by="ada", seen=early.version)
        app.review.resolve(early.key, semel.NotFound(), by="ada")
        h.run()
        assert ref.result() == 42 and len(h.sent(effect)) == 1


@colours
@pytest.mark.parametrize("at", ["during", "after"])
def test_a_person_who_says_confirmed_is_believed_at_once(colour: str, at: Place) -> None:
    with Harness(app) as h:
        effect, ref = begun(h, colour, "ask", at)
        assert app.tasks.get(ref).delivery == "blocked" and len(h.sent(effect)) == 1
        (unknown,) = app.effects.list(state="ambiguous")
        app.review.resolve(unknown.key, semel.Confirmed(43), by="ada")
        h.run()
        assert ref.result() == 43 and len(h.sent(effect)) == 1


@colours
@pytest.mark.parametrize(("at", "times"), [("before", 1), ("during", 2), ("after", 2)])
def test_a_shrug_happens_again(colour: str, at: Place, times: int) -> None:
    with Harness(app) as h:
        effect, ref = begun(h, colour, "repeat", at)
        assert ref.result() == 42 and len(h.sent(effect)) == times
        assert len({sent.key for sent in h.sent(effect)}) == 1


@pytest.mark.parametrize(("waits", "ends"), [(DAY / 2, "resent"), (DAY, "asked")])
def test_past_what_the_provider_remembers_nothing_is_sent_again(waits: timedelta, ends: str) -> None:
    with Harness(app) as h:
        h.fake(charge, plays)
        h.crash(charge, at="after")
        with pytest.raises(Died):
            buy.run("o1")  # this process dies, and none takes over until so much time has passed
        h.advance(waits)
        h.run()
        (view,) = app.effects.list()
        assert len(h.sent(charge)) == 1
        assert (view.state, view.submissions) == (("confirmed", 2) if ends == "resent" else ("ambiguous", 1))


def test_direct_work_dies_and_is_entered_again() -> None:
    with Harness(app) as h:
        h.crash(charge, at="before")
        with pytest.raises(Died), app.work("k", kind="loop") as first:
            charge("o1", 7)
        assert first.attempt == 1 and h.sent(charge) == []
        with app.work("k", kind="loop") as second:
            assert (charge("o1", 7), second.attempt) == (7, 2)
        assert len(h.sent(charge)) == 1


def test_it_dies_as_often_as_it_is_told_to() -> None:
    with Harness(app) as h:
        h.fake(charge, plays)
        for at in ("before", "during", "after", "after"):
            h.crash(charge, at=at)  # type: ignore[arg-type]
        ref = buy.enqueue("o1")
        h.run()
        h.advance(timedelta(minutes=1))  # a task that kills its workers waits longer each time
        h.run()
        assert ref.result() == 42 and len(h.sent(charge)) == 1
        assert kinds(ref).count("lease_lost") == 4


@places
def test_a_neighbour_in_the_same_attempt_happens_once_too(at: Place) -> None:
    with Harness(app) as h:
        h.fake(ship, lambda order, item: f"{order}/{item}")
        h.crash(ship, at=at)
        ref = ship_both.enqueue("o1")
        h.run()
        assert ref.result() == ["o1/a", "o1/b"]
        assert sorted(sent.arguments["item"] for sent in h.sent(ship)) == ["a", "b"]


def test_a_dead_process_does_nothing_more_whatever_its_handler_catches() -> None:
    with Harness(app) as h:
        swallowed.clear()
        h.fake(charge, plays)
        h.crash(charge, at="after")
        ref = stubborn.enqueue("o1")
        h.run()
        assert swallowed == ["Died"]
        assert ref.result() == 1, "the second life was told the recorded result, and the first one's handler did not go on"
        assert [sent.arguments["order"] for sent in h.sent(charge)] == ["o1"]


def test_what_a_dead_process_held_is_taken_back_with_proof_of_death() -> None:
    with Harness(app) as h:
        _, ref = begun(h, "sync", "ask", "after")
        lost = [event.body for event in app.journal(ref) if event.kind in ("lost", "lease_lost")]
        assert [body.get("dead", body.get("proof")) for body in lost] == [True, "dead"]
        (view,) = app.effects.list(task=ref)
        assert view.why == "its outcome is unknown"

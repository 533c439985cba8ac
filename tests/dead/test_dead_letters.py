"""Dead letters: replayed within what was forecast, one or many, or given up for good."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from dead_lab import Billing

import semel
from semel import verbs
from semel.testing import Harness

DEAD = semel.DeadLetters(kind="bill")


@pytest.fixture
def shop() -> Billing:
    return Billing()


@pytest.fixture
def h(shop: Billing) -> Iterator[Harness]:
    with Harness(shop.app) as harness:
        yield harness


def refused(code: str, call: Callable[[], object]) -> str:
    with pytest.raises(semel.Refused) as caught:
        call()
    assert caught.value.code == code
    return str(caught.value)


# --- the promise ------------------------------------------------------------------------------------------------------


def test_what_was_not_forecast_is_refused_and_the_task_is_a_dead_letter_again(shop: Billing, h: Harness) -> None:
    shop.finished(h)
    (ref,) = shop.died(h, "i1")
    shop.mended, shop.greedy = True, {"i1"}  # mended, and "creative": a second mail, whose error it would swallow
    shop.app.review.replay_many(DEAD, by="ann", from_step="render")
    h.run()
    letter = shop.app.tasks.get(ref)
    assert letter.delivery == "dead_lettered" and "more than was forecast at replay: send may be new 1 time" in letter.why
    assert shop.acts.count(("send", "i1")) == 1
    declined = [event for event in shop.app.journal(ref) if event.kind == "declined"]
    assert [event.body["code"] for event in declined] == ["limit_reached"]
    shop.app.review.replay(ref, by="ann", at_most={"send": 1})  # a person lets it have one more
    h.run()
    assert shop.app.tasks.get(ref).execution == "succeeded" and shop.acts.count(("send", "i1")) == 2


def test_a_replay_of_one_has_no_limit_unless_it_is_told(shop: Billing, h: Harness) -> None:
    (ref,) = shop.died(h, "i1")
    shop.mended = True
    shop.app.review.replay(ref, by="ann", at_most={})
    h.run()
    assert "send may be new 0 times" in shop.app.tasks.get(ref).why and not shop.acts.count(("send", "i1"))
    shop.app.review.replay(ref, by="ann")
    h.run()
    assert ref.result() == "mail_i1"


def test_where_no_sibling_has_finished_nothing_new_is_foreseen_and_nothing_new_is_sent(shop: Billing, h: Harness) -> None:
    (ref,) = shop.died(h, "i1")
    told = shop.app.review.forecast(DEAD)
    assert (told.siblings, told.new_most, told.recorded) == (0, {}, {"charge": 1})
    shop.mended = True
    shop.app.review.replay_many(DEAD, by="ann")
    h.run()
    assert "more than was forecast" in shop.app.tasks.get(ref).why and ("send", "i1") not in shop.acts
    done = shop.app.review.replay_many(DEAD, by="ann", at_most={"send": 1}, batch="with one mail")
    h.run()
    assert len(done.done) == 1 and ref.result() == "mail_i1"


def test_beyond_the_forecast_if_a_person_says_so(shop: Billing, h: Harness) -> None:
    (ref,) = shop.died(h, "i1")
    shop.mended = True
    shop.app.review.replay_many(DEAD, by="ann", only_as_forecast=False)
    h.run()
    assert ref.result() == "mail_i1"


@pytest.mark.parametrize("most", [-1, True, "1"])
def test_a_limit_that_is_none(shop: Billing, h: Harness, most: int) -> None:
    (ref,) = shop.died(h, "i1")
    with pytest.raises(semel.Misuse, match="write how many new send a task may send"):
        shop.app.review.replay(ref, by="ann", at_most={"send": most})


def test_siblings_that_differ_give_a_range(shop: Billing, h: Harness) -> None:
    shop.greedy = {"done1-0"}
    shop.finished(h)
    shop.died(h, "i1")
    told = shop.app.review.forecast(DEAD, from_step="render")
    assert (told.new_least, told.new_most) == ({"send": 1}, {"send": 2})


# --- from a step ------------------------------------------------------------------------------------------------------


def test_from_a_step_that_it_has_not_come_to_all_that_is_recorded_stays(shop: Billing, h: Harness) -> None:
    shop.finished(h)
    (ref,) = shop.died(h, "i1")
    assert shop.app.review.forecast(ref, from_step="render").steps_kept == 1
    assert shop.app.review.forecast(ref).steps_anew == 1
    shop.mended = True
    shop.app.review.replay(ref, by="ann", from_step="render")
    h.run()
    steps = [event.body["name"] for event in shop.app.journal(ref) if event.kind == "stepped"]
    assert steps == ["draft", "render"]


def test_a_step_that_nobody_has_is_refused_one_by_one(shop: Billing, h: Harness) -> None:
    shop.finished(h)
    (ref,) = shop.died(h, "i1")
    assert "no recorded step 'rendr'" in refused("stale_view", lambda: shop.app.review.replay(ref, by="ann", from_step="rendr"))
    done = shop.app.review.replay_many(DEAD, by="ann", from_step="rendr")
    assert not done.done and [why for _, why in done.refused] == ["stale_view: the task has no recorded step 'rendr'"]


# --- many -------------------------------------------------------------------------------------------------------------


def test_filters(shop: Billing, h: Harness) -> None:
    shop.finished(h)
    shop.died(h, "i1", "i2", "i8")
    then = h.now + timedelta(hours=1)
    h.advance(timedelta(hours=2))
    shop.died(h, "j1")

    def count(**which: object) -> int:
        return shop.app.review.forecast(semel.DeadLetters(**which)).tasks  # type: ignore[arg-type]

    assert count() == count(kind="bill") == count(queue="default") == count(why="TEMPLATE is") == 4
    assert count(kind="collect") == count(queue="q") == count(why="another") == 0
    assert (count(since=then), count(until=then)) == (1, 3)
    assert count(effect="ambiguous") == 0 and shop.app.review.forecast(DEAD, limit=2).tasks == 2
    naive = datetime.fromisoformat("2026-01-01")
    for mistake, words in (({"since": naive}, "has no time zone"), ({"effect": "lost"}, "is no state of an effect")):
        with pytest.raises(semel.Misuse, match=words):
            semel.DeadLetters(**mistake)  # type: ignore[arg-type]


def test_the_same_call_again_passes_over_what_it_has_replayed(shop: Billing, h: Harness) -> None:
    shop.finished(h)
    (first,) = shop.died(h, "i1")
    assert len(shop.app.review.replay_many(DEAD, by="ann").done) == 1
    h.run()  # not mended: it dies again
    (second,) = shop.died(h, "i2")
    done = shop.app.review.replay_many(DEAD, by="ann")
    assert (done.done, done.passed) == ((second,), (first,))
    other = shop.app.review.replay_many(DEAD, by="ann", reason="now it is mended")
    assert other.done == (first,) and other.batch != done.batch


def test_what_has_moved_on_since_the_plan_is_refused(shop: Billing, h: Harness) -> None:
    shop.finished(h)
    one, two = shop.died(h, "i1", "i2")
    chosen = verbs.plan(shop.app, DEAD)
    shop.mended = True
    shop.app.review.replay(one, by="bob")
    h.run()
    done = verbs.replay_plan(shop.app, chosen, by="ann", reason="", at_most=None, only_as_forecast=True)
    assert done.done == (two,) and [ref for ref, _ in done.refused] == [one] and "moved on since you looked" in done.refused[0][1]
    assert shop.app.tasks.get(one).execution == "succeeded"


KILLED = """
import os, signal, sys
sys.path.insert(0, {here!r})
from dead_lab import Billing
import semel
from semel import verbs
from semel.testing import Harness
shop = Billing({url!r})
def progress(done, of):
    if {kill} and done >= 100:
        os.kill(os.getpid(), signal.SIGKILL)
which = semel.DeadLetters(kind="bill")
from semel.engine.dead import batch_of
chosen = verbs.plan(shop.app, which, from_step="render", batch=batch_of(which, "render", "ann", ""))
done = verbs.replay_plan(shop.app, chosen, by="ann", reason="", at_most={{"send": 1}}, only_as_forecast=True, progress=progress)
print(len(done.done), len(done.refused), len(done.passed))
shop.app.close()
"""


def test_killed_in_the_middle_the_same_again_replays_the_rest(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/dead.db"
    shop = Billing(url)
    for n in range(250):
        shop.bill.enqueue(f"i{n}a")
    shop.app.run_worker(until_idle=True)

    def replay(kill: bool) -> subprocess.CompletedProcess[str]:
        program = KILLED.format(here=str(Path(__file__).parent), url=url, kill=kill)
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=os.environ)

    assert replay(True).returncode == -signal.SIGKILL
    assert len(shop.app.tasks.list(delivery="queued", limit=1000)) == 100
    shop.app.run_worker(until_idle=True)  # not mended yet: they die again
    done = replay(False)
    assert done.stdout.split() == ["150", "0", "100"], done.stderr
    shop.mended = True
    shop.app.run_worker(until_idle=True)
    assert shop.count() == {"charge": 250, "send": 150}
    replays = [[event.kind for event in shop.app.journal(task.ref)].count("replayed") for task in shop.app.tasks.list(limit=1000)]
    assert replays == [1] * 250
    shop.app.close()


# --- given up for good ------------------------------------------------------------------------------------------------


def test_a_purged_task_leaves_the_list_and_keeps_its_keys(shop: Billing, h: Harness) -> None:
    (ref,) = shop.died(h, "i1")
    with pytest.raises(semel.Misuse, match="needs a reason"):
        shop.app.review.purge(ref, by="ann", reason=" ")
    shop.app.review.purge(ref, by="ann", reason="the customer has left")
    task = shop.app.tasks.get(ref)
    assert (task.delivery, task.execution, task.why) == ("acknowledged", "failed", "purged: by ann: the customer has left")
    assert not shop.app.tasks.list(delivery="dead_lettered")
    with pytest.raises(semel.Unsettled) as caught:
        ref.result()
    assert caught.value.why == "dead_lettered" and "the customer has left" in str(caught.value)
    shop.mended = True
    assert shop.bill.enqueue("i1") == ref, "the same key is the same task"
    h.run()
    assert shop.count() == {"charge": 1}
    assert "only a dead letter can be purged" in refused("stale_view", lambda: shop.app.review.purge(ref, by="ann", reason="x"))
    shop.app.review.replay(ref, by="ann")  # they come back
    h.run()
    assert ref.result() == "mail_i1" and shop.count() == {"charge": 1, "send": 1}


def test_what_is_unknown_is_settled_before_it_is_given_up(shop: Billing, h: Harness) -> None:
    shop.bank = "refuses"
    (ref,) = shop.died(h, "r1")
    shop.bank = "loses"
    shop.collect.enqueue("r1")
    h.run()
    assert "settle it first" in refused("unknown_outstanding", lambda: shop.app.review.purge(ref, by="ann", reason="x"))
    done = shop.app.review.purge_many(DEAD, by="ann", reason="x")
    assert not done.done and [code.partition(":")[0] for _, code in done.refused] == ["unknown_outstanding"]


def test_many_are_given_up(shop: Billing, h: Harness) -> None:
    refs = shop.died(h, "i1", "i2", "i3")
    done = shop.app.review.purge_many(DEAD, by="ann", reason="too old", limit=2)
    assert len(done.done) == 2 and len(shop.app.tasks.list(delivery="dead_lettered")) == 1
    assert {event.actor for ref in refs for event in shop.app.journal(ref) if event.kind == "purged"} == {"person:ann"}


def test_an_agent_replays_and_purges_nothing(shop: Billing, h: Harness) -> None:
    (ref,) = shop.died(h, "i1")
    tried: list[str] = []

    @shop.app.task(intent=("n",))
    def meddle(n: int) -> None:
        for call in (
            lambda: shop.app.review.replay_many(DEAD, by="ann"),
            lambda: shop.app.review.purge(ref, by="ann", reason="x"),
            lambda: shop.app.review.purge_many(DEAD, by="ann", reason="x"),
        ):
            try:
                call()
            except semel.Misuse as error:
                tried.append(str(error))

    meddle.enqueue(1)
    h.run()
    assert len(tried) == 3 and all("inside the work of an agent" in words for words in tried)
    assert shop.app.tasks.get(ref).delivery == "dead_lettered"

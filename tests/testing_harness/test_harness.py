"""The harness: its clock, its fakes, its record, and what it leaves behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from shop import DAY, FILE, SHOP, app, buy, charge, fails, refused, ship

import semel
from semel.testing import Harness, VirtualClock

MINUTE = timedelta(minutes=1)


def test_effects_run_as_they_are_unless_they_are_faked() -> None:
    with Harness(app) as h:
        ref = buy.enqueue("o1")
        h.run()
        assert ref.result() == 42
        h.fake(charge, lambda order, cents: 43)
        other = buy.enqueue("o2")
        h.run()
        assert other.result() == 43
        assert [sent.arguments["order"] for sent in h.sent(charge)] == ["o1", "o2"]


async def acharge(order: str, cents: int) -> int:
    await asyncio.sleep(0)
    return cents + 1


async def kcharge(submission: semel.Submission, order: str, cents: int) -> int:
    return len(submission.key)


def with_default(order: str, cents: int = 0, currency: str = "EUR") -> int:
    return cents + 2


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize(
    "fake", [acharge, kcharge, with_default, lambda order, cents: cents + 3, lambda **given: given["cents"] + 4]
)
def test_a_fake_may_be_of_either_colour_and_take_the_submission(colour: str, fake: object) -> None:
    effect, task = SHOP[colour, "resend"]
    with Harness(app) as h:
        h.fake(effect, fake)
        ref = task.enqueue("o1")
        h.run()
        assert ref.result() > 42 or ref.result() == len(h.sent(effect)[0].key)
        assert h.sent(effect)[0].arguments == {"order": "o1", "cents": 42}


@pytest.mark.parametrize("fake", [lambda order: 1, lambda submission, order: 1, lambda order, cents, more: 1, "a string"])
def test_a_fake_that_cannot_be_called_so_is_misuse(fake: object) -> None:
    with Harness(app) as h, pytest.raises(semel.Misuse, match=r"order: str, cents: int"):
        h.fake(charge, fake)


def test_a_fake_with_a_result_of_another_type_is_told_as_a_real_one_is() -> None:
    with Harness(app) as h:
        h.fake(charge, lambda order, cents: "forty-two")
        ref = buy.enqueue("o1")
        h.run()
        with pytest.raises(semel.Unsettled):
            ref.result()
        assert "cannot be recorded" in app.tasks.get(ref).why


def test_a_fake_that_says_not_done_is_tried_as_often_as_declared() -> None:
    with Harness(app) as h:
        answers: list[object] = [semel.NotDone("busy"), semel.NotDone("busy"), 42]

        def busy(order: str, cents: int) -> int:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return cents

        h.fake(charge, busy)
        before = h.now
        ref = buy.enqueue("o1")
        h.run()
        assert ref.result() == 42 and len(h.sent(charge)) == 3
        assert h.now - before == timedelta(seconds=0.6)  # its backoff, waited for in place, made the time pass


def test_a_fake_that_raises_leaves_it_unknown_and_is_called_again() -> None:
    with Harness(app) as h:
        errors = [TimeoutError("no answer")]

        def cut(order: str, cents: int) -> int:
            if errors:
                raise errors.pop()
            return cents

        h.fake(charge, cut)
        ref = buy.enqueue("o1")
        h.run()
        assert ref.result() == 42 and len(h.sent(charge)) == 2
        assert [event.body["why"] for event in app.journal(ref) if event.kind == "lost"] == ["TimeoutError: no answer"]


def test_an_effect_may_have_an_occurrence_and_a_refusal_is_the_real_one() -> None:
    with Harness(app) as h:
        with app.work("k", kind="loop"):
            charge("o1", 1)
            charge.using(occurrence="again")("o1", 1)
            with pytest.raises(semel.Refused, match="already_done"):
                charge("o1", 2)
            with pytest.raises(semel.NotDone, match="declined"):
                refused("o1")
        assert len(h.sent(charge)) == 2 and len({sent.key for sent in h.sent(charge)}) == 2


def test_time_stands_still_unless_it_is_moved() -> None:
    with Harness(app) as h:
        assert abs(h.now.timestamp() - datetime.now().timestamp()) < 600
        before, boot = h.now, h.clock.boot()
        buy.enqueue("o1")
        h.run()
        assert (h.now, h.clock.boot()) == (before, boot)
        h.advance(MINUTE)
        assert (h.now - before, h.clock.boot() - boot) == (MINUTE, pytest.approx(60))
        with pytest.raises(semel.Misuse, match="only goes on"):
            h.advance(-MINUTE)


def test_what_is_due_later_waits_for_its_time() -> None:
    with Harness(app) as h:
        ref = buy.using(run_at=h.now + DAY).enqueue("o1")
        h.run()
        h.advance(DAY - MINUTE)
        h.run()
        assert h.sent(charge) == []
        with pytest.raises(semel.Unsettled) as waits:
            ref.result(timeout=timedelta(hours=1))  # nobody works here while anybody waits: it says so at once
        assert waits.value.why == "queued"
        h.advance(MINUTE)
        h.run()
        assert ref.result() == 42


def test_a_failing_task_is_tried_after_its_backoff_and_then_given_up() -> None:
    with Harness(app) as h:
        ref = fails.enqueue("o1")
        attempts = []
        for _ in range(6):
            h.run()
            attempts.append(app.tasks.get(ref).attempt)
            h.run()
            h.advance(MINUTE)
        assert attempts == [1, 2, 3, 4, 5, 5]
        with pytest.raises(semel.Unsettled, match="no luck") as dead:
            ref.result()
        assert dead.value.why == "dead_lettered"


def test_each_harness_is_a_world_of_its_own_and_the_app_is_as_it_was() -> None:
    before = set(threading.enumerate())
    for _ in range(2):
        with Harness(app) as h:
            ref = buy.enqueue("o1")
            h.run()
            assert app.tasks.get(ref).attempt == 1 and len(h.sent(charge)) == 1
    assert app._runtime is None and app._stage is None and not app._is_worker
    assert not FILE.exists(), "the app's own store was touched"
    until = time.monotonic() + 10
    while left := {t.name for t in set(threading.enumerate()) - before} & {"semel-writer", "semel-beat", "semel-tend"}:
        assert time.monotonic() < until, left
        time.sleep(0.01)


def test_an_app_that_is_open_already_is_open_again_afterwards(tmp_path: Path) -> None:
    mine = semel.App(f"sqlite:///{tmp_path}/a.db")

    @mine.task(intent=())
    def work() -> int:
        return 1

    outside = work.using(key="k").enqueue()
    with Harness(mine) as h:
        assert mine.tasks.list() == []
        work.using(key="k").enqueue()
        h.run()
    assert [task.id for task in mine.tasks.list()] == [outside.id]
    mine.close()


def test_a_crash_that_never_comes_is_told() -> None:
    with pytest.raises(semel.Misuse, match="never came: resend_sync after"), Harness(app) as h:
        h.crash(charge, at="after")
    with pytest.raises(ZeroDivisionError), Harness(app) as h:
        h.crash(charge, at="after")
        raise ZeroDivisionError  # the test's own failure comes first


def test_misuse_of_the_harness_says_what_to_write() -> None:
    other = semel.App("sqlite:///never.db")
    with Harness(app) as h:
        with pytest.raises(semel.Misuse, match="already"), Harness(app):
            pass
        with pytest.raises(semel.Misuse, match="no effect and no step"):
            h.fake(buy, lambda order: 1)
        with pytest.raises(semel.Misuse, match="no effect and no step"):
            h.sent(len)
        with pytest.raises(semel.Misuse, match="another app"):
            Harness(other).crash(charge, at="after")
        with pytest.raises(semel.Misuse, match="'before', 'during' or 'after'"):
            h.crash(charge, at="later")  # type: ignore[arg-type]
        h.run()  # it is whole all the same
    with pytest.raises(semel.Misuse, match="not open"):
        Harness(other).run()
    assert not Path("never.db").exists()


def test_in_a_loop_it_is_awaited() -> None:
    async def main() -> None:
        with Harness(app) as h:
            ref = await buy.aenqueue("o1")
            with pytest.raises(semel.Misuse, match=r"await harness\.arun\(\)"):
                h.run()
            h.fake(ship, lambda order, item: item)
            h.crash(charge, at="after")
            await h.arun()
            assert await ref.aresult() == 42
            async with app.work("k", kind="loop"):
                assert await ship("o1", "a") == "a"

    asyncio.run(main())


def test_the_clock_is_safe_to_move_from_many_threads() -> None:
    clock = VirtualClock()
    began = clock.boot()
    movers = [threading.Thread(target=lambda: [clock.move(1) for _ in range(1000)]) for _ in range(8)]
    for mover in movers:
        mover.start()
    for mover in movers:
        mover.join()
    assert clock.boot() - began == pytest.approx(8000)


def test_the_sandbox_provider_is_imported_without_the_harness() -> None:
    code = "import semel.testing.provider, sys; print([m for m in sys.modules if m in ('semel.testing.stage', 'semel.worker')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_an_app_that_is_closed_in_the_block_goes_on_with_the_same_store() -> None:
    with Harness(app) as h:
        ref = buy.enqueue("o1")
        app.close()
        h.run()
        app.close()
        assert ref.result() == 42 and len(h.sent(charge)) == 1

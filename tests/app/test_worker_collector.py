"""A worker lets the garbage collector wait for more, by how much runs beside each other, and only while it runs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import semel
from semel.engine import collector


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def during(folder: Path, concurrency: int) -> list[tuple[int, int, int]]:
    """The thresholds while a handler of a worker ran."""
    app, seen = semel.App(f"sqlite:///{folder}/agent.db"), []

    @app.task()
    async def look() -> None:
        seen.append(gc.get_threshold())

    look.using(key="once").enqueue()
    app.run_worker(until_idle=True, concurrency=concurrency)
    return seen


@pytest.mark.parametrize("first", collector.OWN)
def test_the_collector_waits_for_more_while_a_worker_runs(tmp_path: Path, first: int) -> None:
    gc.set_threshold(first, 9, 8)
    assert during(tmp_path, 200) == [(200 * collector.EACH, 9, 8)]
    assert gc.get_threshold() == (first, 9, 8)


def test_few_attempts_do_not_make_it_look_more_often(tmp_path: Path) -> None:
    gc.set_threshold(700, 10, 10)
    assert during(tmp_path, 1) == [(700, 10, 10)]


@pytest.mark.parametrize("first", [0, 501, 5000])
def test_what_somebody_has_set_stays(tmp_path: Path, first: int) -> None:
    gc.set_threshold(first, 10, 10)
    assert during(tmp_path, 200) == [(first, 10, 10)]
    assert gc.get_threshold() == (first, 10, 10)


def test_what_a_handler_sets_stays() -> None:
    gc.set_threshold(700, 10, 10)
    with collector.beside(200):
        gc.set_threshold(1234, 5, 5)
    assert gc.get_threshold() == (1234, 5, 5)


def test_of_several_the_most_counts_and_with_the_last_it_is_as_it_was() -> None:
    gc.set_threshold(700, 10, 10)
    many, worker = collector.beside(50), collector.beside(200)
    with many:
        with worker:
            assert gc.get_threshold()[0] == 200 * collector.EACH
        assert gc.get_threshold()[0] == 50 * collector.EACH
    assert gc.get_threshold() == (700, 10, 10)


def test_who_comes_while_it_is_raised_keeps_it_so() -> None:
    gc.set_threshold(700, 10, 10)
    many, worker = collector.beside(50), collector.beside(200)
    many.__enter__()
    with worker:
        many.__exit__(None, None, None)
        assert gc.get_threshold()[0] == 200 * collector.EACH
    assert gc.get_threshold() == (700, 10, 10)


def test_a_collector_that_is_off_is_left_alone(tmp_path: Path) -> None:
    gc.set_threshold(700, 10, 10)
    gc.disable()
    try:
        assert during(tmp_path, 200) == [(700, 10, 10)]
    finally:
        gc.enable()


@pytest.mark.parametrize("concurrency", [10**6, 10**9])
def test_a_concurrency_without_measure_lets_it_wait_for_no_more_than_so_much(tmp_path: Path, concurrency: int) -> None:
    gc.set_threshold(700, 10, 10)
    assert during(tmp_path, concurrency) == [(collector.MOST, 10, 10)]


def test_one_that_was_left_in_the_middle_ends_while_another_is_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector may end it at any allocation, also where the lock is held."""
    gc.set_threshold(700, 10, 10)
    left, set_them = collector.beside(200), gc.set_threshold
    left.__enter__()
    seen: list[int] = []

    def finalized(*wanted: int) -> None:
        seen.append(wanted[0])
        if seen[1:] == [200 * collector.EACH]:  # the other ends, and `left` just before that is set
            left.__exit__(None, None, None)
        set_them(*wanted)

    def at_it() -> None:
        with collector.beside(500):
            pass

    monkeypatch.setattr(gc, "set_threshold", finalized)
    thread = threading.Thread(target=at_it, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "it waits for itself, and all others for it"
    assert seen == [50_000, 20_000, 700] and gc.get_threshold() == (700, 10, 10)

"""A Signal happens once, whoever sets it and whoever looks on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from semel.store import writer
from semel.store.writer import Signal


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads give way to each other as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_it_happens_once() -> None:
    signal, called = Signal(), list[int]()
    assert not signal.is_set
    signal.then(lambda: called.append(1))
    signal.set("value")
    signal.set("another")
    assert (signal.is_set, signal.value) == (True, "value")
    signal.then(lambda: called.append(2))
    assert called == [1, 2], "at once, if it has happened"


def test_callbacks_run_in_their_order() -> None:
    signal, called = Signal(), list[int]()
    for n in range(10):
        signal.then(lambda n=n: called.append(n))  # type: ignore[misc]
    signal.set()
    assert called == list(range(10))


def test_waiting_ends_with_it_or_with_its_time() -> None:
    signal = Signal()
    assert not signal.wait(0.01)
    assert not signal.wait(0)
    assert not signal.wait(-1)
    waiter = threading.Thread(target=signal.wait)
    waiter.start()
    signal.set()
    waiter.join(20)
    assert not waiter.is_alive()
    assert signal.wait()
    assert signal.wait(0)


def test_its_value_is_there_before_it_shows_as_set() -> None:
    """`is_set` is read without the lock: whoever sees it must see the value too."""
    seen: list[bool] = []

    class Watched(Signal):
        @property
        def value(self) -> object:
            return None

        @value.setter
        def value(self, value: object) -> None:
            seen.append(self.is_set)

    signal = Watched()
    seen.clear()
    signal.set(1)
    assert seen == [False]


def race() -> None:
    signal, start, called, read = Signal(), threading.Barrier(6), list[int](), list[object]()

    def set_it(n: int) -> None:
        start.wait()
        signal.set(n)

    def look(n: int) -> None:
        start.wait()
        signal.then(lambda: called.append(n))
        assert signal.wait(20)
        read.append(signal.value)

    crew = [threading.Thread(target=work, args=(n,)) for work in (set_it, look) for n in (1, 2, 3)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    assert sorted(called) == [1, 2, 3]
    assert len(read) == 3
    assert set(read) == {signal.value}


def test_threads_that_race_see_one_value_and_each_callback_once(hasty: None) -> None:
    for _ in range(150):
        race()


def test_an_interrupt_is_not_swallowed_and_takes_nobody_along() -> None:
    signal, called = Signal(), list[int]()

    def interrupted() -> None:
        raise KeyboardInterrupt

    signal.then(interrupted)
    signal.then(lambda: called.append(1))
    with pytest.raises(KeyboardInterrupt):
        signal.set()
    assert called == [1]


def test_what_comes_in_between_on_the_same_thread_may_set_another() -> None:
    first, second = Signal(), Signal()

    def finalizer() -> None:
        with writer._changing:  # as the garbage collector may run one there
            second.then(lambda: first.set(1))
            second.set()

    thread = threading.Thread(target=finalizer, daemon=True)
    thread.start()
    assert first.wait(5)
    thread.join()

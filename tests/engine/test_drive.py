"""The driver on an event loop: nobody is cancelled by mistake, nothing begins in a loop that ends, and what is quick is exact."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semel
from semel.engine import data, drive
from semel.engine.requests import Await, Call, Returned
from semel.store.sqlite import SQLite
from semel.store.writer import Signal, Writer


@pytest.fixture
def app(tmp_path: Path) -> Iterator[semel.App]:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    yield app
    app.close()


@pytest.mark.parametrize("tidy", [True, False], ids=["asyncio.run", "a loop that is just closed"])
def test_r17_what_is_not_durable_when_its_loop_ends_is_never_called(
    app: semel.App, monkeypatch: pytest.MonkeyPatch, tidy: bool
) -> None:
    calls, held, go_on = [], threading.Event(), threading.Event()
    commit = SQLite.commit

    @app.effect(intent=())
    async def send(submission: semel.Submission) -> None:
        calls.append(1)

    def slowly(self: SQLite, units: Any) -> Any:
        held.set()
        assert go_on.wait(10)
        return commit(self, units)

    async def main() -> None:
        task = asyncio.ensure_future(send())
        await asyncio.to_thread(held.wait, 10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)  # R11: its call is not cancelled; but the loop is about to end

    with app.work("k", kind="loop"):
        monkeypatch.setattr(SQLite, "commit", slowly)
        if tidy:
            asyncio.run(main())
        else:
            loop = asyncio.new_event_loop()
            loop.run_until_complete(main())
            loop.close()
        go_on.set()
        app.runtime.desk.writer.barrier().wait(10)
        app.runtime.desk.writer.barrier().wait(10)
    (effect,) = app.effects.list()
    assert (calls, effect.state) == ([], "not_attempted") and not app.runtime.codes


def test_r2_what_acted_and_is_thrown_away_with_its_loop_is_a_loss_whatever_its_code_makes_of_that(
    app: semel.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, held, go_on = [], threading.Event(), threading.Event()
    commit = SQLite.commit

    @app.effect(intent=("n",), not_done=(ValueError, LookupError))
    async def send(submission: semel.Submission, n: int) -> None:
        calls.append(n)
        try:
            await asyncio.sleep(30)
        except GeneratorExit:
            raise LookupError("no such thing") from None

    def slowly(self: SQLite, units: Any) -> Any:
        held.set()
        assert go_on.wait(10)
        return commit(self, units)

    async def main() -> None:
        first = asyncio.ensure_future(send(1))
        while not calls:
            await asyncio.sleep(0.01)
        monkeypatch.setattr(SQLite, "commit", slowly)
        second = asyncio.ensure_future(send(2))
        await asyncio.to_thread(held.wait, 10)
        assert not first.done() and not second.done()

    def states() -> dict[Any, str]:
        return {effect.args["n"]: effect.state for effect in app.effects.list() if isinstance(effect.args, dict)}

    with pytest.raises(semel.Unsettled), app.work("k", kind="loop"):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
        go_on.set()  # the second one's intent becomes durable, and shows that the loop is closed
        end = time.monotonic() + 10
        while states().get(2) != "not_attempted" and time.monotonic() < end:  # else it is lost with the first, at the work's end
            time.sleep(0.01)
        gc.collect()  # now the first one's coroutine goes, in a context that is not its own
    assert (states(), calls) == ({1: "ambiguous", 2: "not_attempted"}, [1])


@pytest.mark.parametrize("rung", [False, True])
def test_leaving_work_does_not_wait_for_what_was_under_way_in_a_loop_that_was_just_closed(app: semel.App, rung: bool) -> None:
    calls: list[int] = []

    @app.effect(intent=())
    async def send(submission: semel.Submission) -> None:
        calls.append(1)
        await asyncio.sleep(30)

    async def main() -> None:
        task = asyncio.ensure_future(send())
        while not calls:
            await asyncio.sleep(0.01)
        assert not task.done()

    def leave() -> None:
        with pytest.raises(semel.Unsettled), app.work("k", kind="loop"):
            loop = asyncio.new_event_loop()
            loop.run_until_complete(main())
            if rung:
                drive._mailboxes[loop].ring()  # and the loop never looks
            loop.close()
        gc.collect()  # its coroutine goes
        left.set()

    left = threading.Event()
    threading.Thread(target=leave, daemon=True).start()
    assert left.wait(10)


def test_r17_a_task_whose_loop_was_just_closed_is_held_no_more(app: semel.App) -> None:
    began: list[int] = []

    @app.task(intent=("n",))
    async def job(n: int) -> None:
        began.append(1)
        await asyncio.sleep(30)

    async def main() -> None:
        task = asyncio.ensure_future(job.arun(1))
        while not began:
            await asyncio.sleep(0.01)
        assert not task.done()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    session = app.runtime.session()
    assert session.held
    session.tend()
    gc.collect()  # its coroutine goes
    assert not session.held


def test_a_loop_that_was_rung_and_then_closed_is_known_to_be_closed() -> None:
    loop, closed = asyncio.new_event_loop(), []

    def procedure() -> Any:
        try:
            yield Await(Signal())
        finally:
            closed.append(1)

    async def main() -> None:
        task = asyncio.ensure_future(drive.arun(procedure()))
        await asyncio.sleep(0)
        assert not task.done()

    loop.run_until_complete(main())
    box = drive._mailboxes[loop]
    box.ring()
    loop.close()
    assert not closed
    box.ring()
    assert closed


def test_a_call_that_begins_while_its_loop_ends_is_ended_with_it() -> None:
    """Its caller is cancelled, and what it waits for comes all the same, in the last turns of the loop."""
    happens, told, late = Signal(), [], []

    async def fn() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            told.append("ended")

    def procedure() -> Any:
        try:
            yield Await(happens)
            yield Call(fn, True, late=late.append)
        finally:
            told.append("closed")

    async def main() -> None:
        begun = [asyncio.ensure_future(drive.arun_shielded(procedure())), asyncio.ensure_future(lingers())]
        await asyncio.sleep(0)
        assert not any(task.done() for task in begun)

    async def lingers() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            happens.set()
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert sorted(told) == ["closed", "ended"] and len(late) == 1


@pytest.mark.parametrize("shielded", [True, False])
def test_a_coroutine_that_cancels_itself_has_ended_and_its_caller_goes_on(shielded: bool) -> None:
    async def fn() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(30)

    def procedure() -> Any:
        reply = yield Call(fn, True, seconds=20.0)
        return reply

    async def main() -> Any:
        return await (drive.arun_shielded if shielded else drive.arun)(procedure())

    assert isinstance(asyncio.run(main()).error, TimeoutError)


def test_what_is_on_record_lets_others_run() -> None:
    turns: list[str] = []

    def procedure() -> Any:
        return "known"
        yield

    async def others() -> None:
        turns.append("others")

    async def main() -> None:
        task = asyncio.ensure_future(others())
        turns.append(await drive.arun_shielded(procedure()))
        await task

    asyncio.run(main())
    assert turns == ["others", "known"]


def test_an_error_that_nobody_is_left_to_read_is_not_logged_with_what_it_says() -> None:
    said: list[str] = []

    def procedure() -> Any:
        raise ValueError("what was redacted")
        yield

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: said.append(what["message"]))
        task = asyncio.ensure_future(drive.arun_shielded(procedure()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    gc.collect()
    assert not said


def test_a_procedure_whose_caller_is_closed_is_closed_now() -> None:
    closed: list[int] = []

    def procedure() -> Any:
        try:
            yield Await(Signal())
        finally:
            closed.append(1)

    async def main() -> None:
        caller = drive.arun(procedure())
        caller.send(None)
        caller.close()
        assert closed

    asyncio.run(main())


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_r17_nothing_is_sent_again_in_a_loop_that_its_code_interrupts(app: semel.App, interrupt: type[BaseException]) -> None:
    calls: list[int] = []

    @app.effect(intent=(), recovery=semel.Resend(within=timedelta(hours=1)))
    async def send(submission: semel.Submission) -> None:
        calls.append(submission.number)
        await asyncio.sleep(0)
        if len(calls) == 1:
            raise interrupt

    async def main() -> None:
        async with app.work("k", kind="loop"):
            await send()

    with pytest.raises(interrupt):
        asyncio.run(main())
    app.runtime.desk.writer.barrier().wait(10)
    (effect,) = app.effects.list()
    assert (effect.state, calls) == ("ambiguous", [1]) and not app.runtime.codes


def test_a_loop_that_has_ended_is_forgotten() -> None:
    happens = Signal()
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    def procedure() -> Any:
        yield Await(happens)

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(drive.arun(procedure()), 0.01)

    asyncio.run(main())
    happens.set()
    gc.collect()
    assert loops[0]() is None


class Bell:
    """Notes what is put and how often it is rung."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []
        self.rung = 0

    def put(self, call: Callable[[], object]) -> None:
        self.calls.append(call)

    def ring(self) -> None:
        self.rung += 1


def test_a_loop_is_woken_once_for_a_batch(tmp_path: Path) -> None:
    store, committed, go_on, bell, told = SQLite(str(tmp_path / "agent.db")), threading.Event(), threading.Event(), Bell(), []

    def waits(units: Any, outcomes: Any) -> None:
        committed.set()
        assert go_on.wait(10)

    writer = Writer(store, committed=waits)
    first = writer.barrier()
    assert committed.wait(10)
    for n in range(20):
        writer.barrier().hand(bell, lambda n=n: told.append(n))  # type: ignore[misc]
    go_on.set()
    assert first.wait(10) and writer.barrier().wait(10)
    for call in bell.calls:
        call()
    assert told == list(range(20)) and bell.rung == 1
    writer.close()
    store.close()


def test_what_fails_in_a_mailbox_takes_nobody_along() -> None:
    seen: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: seen.append(what["exception"]))
        box = drive._mailbox(loop)
        for call in (lambda: 1 / 0, lambda: seen.append("after")):
            box.put(call)
        box.ring()
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert isinstance(seen[0], ZeroDivisionError) and seen[1:] == ["after"]


# --- what is quick is exact ---


def plain(a: int, b: str = "b") -> None: ...
def positional(a: int, /, b: str = "b") -> None: ...
def named(a: int, *, b: str = "b") -> None: ...


BOUND = [data.Parameters(fn, "f", first=0) for fn in (plain, positional, named)]
VALUES = st.one_of(st.integers(0, 3), st.text(max_size=2))


@given(st.sampled_from(BOUND), st.lists(VALUES, max_size=3), st.dictionaries(st.sampled_from("abc"), VALUES))
def test_binding_is_what_the_signature_says(parameters: data.Parameters, args: list[Any], kwargs: dict[str, Any]) -> None:
    try:
        bound = parameters.signature.bind(*args, **kwargs)
    except TypeError:
        with pytest.raises(semel.Misuse):
            parameters._given(tuple(args), kwargs)
    else:
        bound.apply_defaults()
        assert list(parameters._given(tuple(args), kwargs).items()) == list(bound.arguments.items())


LIMIT = data.SIZE_LIMIT >> 6
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.just("\0" * (LIMIT - 1)),
    st.just("x" * data.SIZE_LIMIT),
    st.just("\ud800"),
    st.just(10**5000),
)


@settings(max_examples=50)
@given(st.lists(ODD, max_size=data.MOST_SMALL - 1))
def test_what_is_surely_small_is_json_within_the_limit(values: list[Any]) -> None:
    small = [value for value in values if data._is_small(value)]
    data.check_size({f"p{n}": value for n, value in enumerate(small)}, "it")
    for value in small:
        data.check_size(value, "it")


def declared(a: int, b: str, c: bool = False, d: None = None) -> None:
    """What most arguments are."""


@settings(max_examples=100)
@given(st.lists(ODD, max_size=5), st.dictionaries(st.sampled_from("abcd"), ODD, max_size=2))
def test_what_is_read_is_what_is_bound_and_encoded(args: list[Any], kwargs: dict[str, Any]) -> None:
    parameters = data.Parameters(declared, "task declared", first=0)

    def said(read: Callable[[], dict[str, Any]]) -> object:
        try:
            return [(name, type(value), value) for name, value in read().items()]
        except semel.Misuse as error:
            return str(error)

    whole = said(lambda: parameters.encode(parameters.bind(tuple(args), kwargs)))
    assert said(lambda: parameters.read(tuple(args), kwargs)) == whole


def test_the_value_of_a_call_is_its_answer() -> None:
    async def fn() -> int:
        return 7

    def procedure() -> Any:
        return (yield Call(fn, True))

    async def main() -> Any:
        return await drive.arun(procedure())

    assert asyncio.run(main()) == Returned(7)


def test_an_attempt_whose_loop_ends_has_not_failed(app: semel.App) -> None:
    started = asyncio.Event()

    @app.task(intent=("n",))
    async def job(n: int) -> None:
        if n == 9:
            started.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            if n % 2:
                raise  # the others return, though what they did was cut off

    async def main() -> None:
        refs.extend([await job.aenqueue(n) for n in range(10)])
        works = asyncio.ensure_future(app.arun_worker())
        await asyncio.wait_for(started.wait(), 10)
        assert not works.done()

    refs: list[semel.Ref[None]] = []
    asyncio.run(main())
    app.runtime.desk.writer.barrier().wait(10)
    states = [app.tasks.get(ref) for ref in refs]
    assert {(state.delivery, state.failures) for state in states} == {("leased", 0)}, "the session's end tells, and not a guess"


def test_r17_what_was_stopped_with_its_caller_is_a_loss_and_is_not_sent_again_in_that_loop(app: semel.App) -> None:
    calls: list[int] = []

    @app.effect(intent=(), recovery=semel.Resend(within=timedelta(hours=1)))
    async def send(submission: semel.Submission) -> None:
        calls.append(submission.number)
        await asyncio.sleep(30)

    async def main() -> None:
        task = asyncio.ensure_future(send())
        while not calls:
            await asyncio.sleep(0.01)
        assert not task.done()

    with pytest.raises(semel.Unsettled), app.work("k", kind="loop") as work:
        asyncio.run(main())
        app.runtime.desk.writer.barrier().wait(10)
    (effect,) = app.effects.list()
    kinds = [row.kind for row in app.journal(work.ref)]
    assert (effect.state, calls, kinds.count("intended"), kinds.count("lost")) == ("ambiguous", [1], 1, 1)
    assert not app.runtime.codes

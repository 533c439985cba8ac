"""Where streams stand is remembered from one commit to the next: what is answered is what the file holds all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semel.machine.records import replace
from semel.store import sqlitewrite
from semel.store.contract import Broken, Change, Fenced, Landed, Outcome, Stale
from semel.store.sqlite import SQLite
from semel.testing.conformance_kit import TENANT, Stream, bad, change_id, session

Pair = tuple[SQLite, SQLite]
STEPS = ("commit", "behind", "both", "refused", "broken", "beneath", "beat", "forgotten")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two handles of one file, as two processes have them. It need not survive the machine."""
    path = str(tmp_path_factory.mktemp("pair") / "store.db")
    handles = SQLite(path), SQLite(path)
    for handle in handles:
        handle._writer.raw.execute("PRAGMA synchronous=OFF")
    yield handles
    for handle in handles:
        handle.close()


class World:
    """Some streams, as the file holds them, and as they were before."""

    def __init__(self, handles: Pair) -> None:
        self.handles = handles
        name = change_id()
        self.now = [Stream(f"{name}-{n}") for n in range(3)]
        self.before = list(self.now)

    def moved(self, at: int, to: Stream) -> None:
        self.before[at], self.now[at] = self.now[at], to

    def step(self, what: str, handle: SQLite, at: int) -> None:
        """Do it, and say what must come of it."""
        change, after = self.now[at].then()
        if what == "commit":
            assert handle.commit([change]) == [Landed()]
            self.moved(at, after)
        elif what == "behind":
            late, _ = self.before[at].then()
            behind = self.before[at] != self.now[at]
            assert handle.commit([late]) == ([Stale(late.parts[0].stream)] if behind else [Landed()])
            if not behind:
                self.moved(at, Stream(after.name, head=_head(late)))
        elif what == "both":
            more, last = after.then()
            assert handle.commit([change, more]) == [Landed(), Landed()]
            self.moved(at, after)
            self.moved(at, last)
        elif what == "refused":  # by the disk, say, when all was written
            handle._writer.raw.set_commit_hook(lambda: True)
            try:
                assert isinstance(handle.commit([change])[0], Broken)
            finally:
                handle._writer.raw.set_commit_hook(None)
        elif what == "broken":
            assert [type(one) for one in handle.commit([change, bad(after)])] == [Landed, Broken]
            self.moved(at, after)
        elif what == "beneath":  # somebody else, by the very same connection
            row = change.parts[0].rows[0]
            values = (row.tenant, row.stream, row.seq, row.kind, row.actor, row.token, row.at, row.body, row.id, row.hash)
            handle._writer.raw.execute(sqlitewrite.SQL["insert_journal"], values)
            self.moved(at, after)
        elif what == "beat":
            guard = session(handle)
            assert handle.beat(guard.session, ["n0"], "n1", 1)
        else:
            handle._writing.facts.heads.clear()


def _head(change: Change) -> sqlitewrite.Head:
    row = change.parts[0].rows[-1]
    return sqlitewrite.Head(row.seq, row.hash)


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1), st.integers(0, 2)), max_size=12))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_two_handles_do_each_change_is_judged_on_what_the_file_holds(
    pair: Pair, steps: list[tuple[str, int, int]]
) -> None:
    world = World(pair)
    for what, handle, at in steps:
        world.step(what, pair[handle], at)
    for stream in world.now:
        assert pair[0].head(TENANT, stream.name) == stream.head


def asked(store: SQLite, change: Change, what: str = "head") -> tuple[list[Outcome], int]:
    """What comes of it, and how often the tables were asked where a stream stands (or another such question)."""
    asked: list[str] = []
    store._writer.raw.set_exec_trace(lambda cursor, sql, values: asked.append(sql) or True)
    try:
        return store.commit([change]), asked.count(sqlitewrite.SQL[what])
    finally:
        store._writer.raw.set_exec_trace(None)


def test_a_stream_that_this_handle_has_written_is_not_read_again_until_somebody_else_writes(pair: Pair) -> None:
    mine, other = pair
    stream = Stream(change_id())
    for reads in (1, 0, 0):
        change, stream = stream.then()
        assert asked(mine, change) == ([Landed()], reads)
    assert other.commit([Stream(change_id()).then()[0]]) == [Landed()]
    change, stream = stream.then()
    assert asked(mine, change) == ([Landed()], 1), "whatever it wrote, elsewhere too"


def test_no_more_streams_are_remembered_than_so_many(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlitewrite, "MOST_HEADS", 5)
    for _ in range(20):
        assert pair[0].commit([Stream(change_id()).then()[0] for _ in range(3)]) == [Landed()] * 3
        assert len(pair[0]._writing.facts.heads) <= 8


def test_what_was_refused_at_its_commit_is_not_remembered(pair: Pair) -> None:
    store = pair[0]
    change, after = Stream(change_id()).then()
    assert store.commit([change]) == [Landed()]
    again, _ = after.then()
    store._writer.raw.set_commit_hook(lambda: True)  # the disk, say
    try:
        assert isinstance(store.commit([again])[0], Broken)
    finally:
        store._writer.raw.set_commit_hook(None)
    assert store.commit([again]) == [Landed()]


@pytest.mark.parametrize("who", ["beside", "elsewhere", "in memory"])
def test_whether_a_session_lives_is_asked_again_once_anybody_has_written(pair: Pair, who: str) -> None:
    mine, other = pair if who != "in memory" else (SQLite(":memory:"), None)
    guard = session(mine)
    stream = Stream(change_id())
    for reads in (1, 0, 0):
        change, stream = stream.then(guard=guard)
        assert asked(mine, change, "guard") == ([Landed()], reads)
    fencing = other if who == "elsewhere" and other is not None else mine
    assert fencing.beat(guard.session, ["n0"], "n1", 1)
    change, stream = stream.then(guard=guard)
    assert asked(mine, change, "guard") == ([Landed()], 1)
    assert fencing.fence(guard.session, None, "watched")
    change, _ = stream.then(guard=guard)
    assert [type(one) for one in mine.commit([change])] == [Fenced]
    if other is None:
        mine.close()


def test_in_a_new_epoch_no_session_is_remembered(pair: Pair) -> None:
    store = pair[0]
    guard, stream = session(store), Stream(change_id())
    change, stream = stream.then(guard=guard)
    assert store.commit([change]) == [Landed()]
    begun, _ = Stream(change_id()).then()
    assert store.commit([replace(begun, epoch=guard.epoch + 1)]) == [Landed()]
    change, _ = stream.then(guard=guard)
    assert [type(one) for one in store.commit([change])] == [Fenced]

"""A batch is written hopefully first, in one round trip. Whatever a batch meets, the answer is the careful way's."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Generator, Sequence

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors

from semel.errors import StoreUnavailable
from semel.machine import journal as j
from semel.machine import projection, tasks
from semel.store import pgwrite
from semel.store.batch import Facts
from semel.store.contract import Broken, Change, ClaimUnit, Exists, Fenced, Guard, Head, Landed, Outcome, Stale
from semel.store.pgexpect import expected
from semel.store.pgpipe import Pipe, statement
from semel.store.postgres import Postgres
from semel.testing.conformance_kit import TENANT, Stream, broken_guards, claimed, claiming, session, task

Make = Callable[[], Postgres]
Step = tuple[str, int, int]  # what, of which stream, under which guard
KINDS = ("append", "create", "claim", "check", "late", "gap", "other")
GUARDS = 10
NONE = GUARDS


def commit(store: Postgres, units: Sequence[Change | ClaimUnit], *, careful: bool) -> tuple[list[Outcome], int]:
    """The outcomes, and how many round trips they took."""
    store._careful_until = math.inf if careful else 0.0
    before = store._writer.trips
    return store.commit(units), store._writer.trips - before


class World:
    """One history, written by one way; what it makes bears its name."""

    def __init__(self, store: Postgres, name: str, guards: Sequence[Guard]) -> None:
        self.store, self.name, self.guards = store, name, guards
        self.streams = {n: Stream(f"{name}{n}") for n in range(3)}

    def unit(self, step: Step, at: int) -> Change | ClaimUnit:
        """Right changes move the stream that their caller knows; a wrong one does not."""
        what, n, guard = step
        known = self.streams[n]
        under = self.guards[guard] if guard < len(self.guards) else None
        if what == "create":
            return task(f"k{n}", kind=self.name, queue=self.name, id=f"{self.name}-{n}-{at}")[0]
        if what == "claim":
            return claiming(self.guards[guard % len(self.guards)], limit=2, queues=[self.name], kinds=[self.name])
        if what == "check":
            other = self.streams[(n + 1) % 3]
            change, self.streams[n] = known.then(guard=under, checks=((TENANT, other.name, other.head.seq),), id=f"c{at}")
        elif what == "late":
            return known.then(id=f"l{at}", checks=((TENANT, known.name, known.head.seq + 1),))[0]
        elif what == "gap":
            return dataclasses.replace(known, head=Head(known.head.seq + 1, known.head.hash)).then(id=f"g{at}")[0]
        elif what == "other":
            return dataclasses.replace(known, head=Head(known.head.seq, b"x" * 32)).then(id=f"o{at}")[0]
        else:
            change, self.streams[n] = known.then(guard=under, id=f"a{at}")
        return change

    def told(self, units: Sequence[Change | ClaimUnit], *, careful: bool) -> list[str]:
        """The outcomes, in words in which the world's name does not count."""
        outcomes, _ = commit(self.store, units, careful=careful)
        words = [" ".join(claimed(one)) if isinstance(unit, ClaimUnit) and hasattr(one, "tasks") else repr(one)
                 for unit, one in zip(units, outcomes, strict=True)]  # fmt: skip
        for n in self.streams:  # what its caller thought to have landed may not have
            self.streams[n] = dataclasses.replace(self.streams[n], head=self.store.head(TENANT, f"{self.name}{n}"))
        return [word.replace(self.name, "") for word in words]

    def rows(self) -> list[list[tuple[int, str]]]:
        """What became of the streams."""
        found = [self.store.rows(TENANT, stream.name) for stream in self.streams.values()]
        assert not any(map(j.broken, found))
        return [[(row.seq, row.id) for row in rows] for rows in found]


STEPS = st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.sampled_from([*[0] * 8, *range(GUARDS), NONE, NONE]))


@pytest.fixture
def meet(make_store: Make) -> Callable[[list[list[Step]]], None]:
    """Writes the same history both ways, and compares what was answered and what came of it."""
    store = make_store()
    good = session(store)
    seen, warm = Stream("warm").then()
    store.commit([seen])
    held = (TENANT, "warm", *warm.head)
    guards = [good, *(dataclasses.replace(good, seen=row) for row in (held, (*held[:2], 2, held[3]), (*held[:3], b"x" * 32)))]
    guards += broken_guards(store)
    assert len(guards) == GUARDS
    count = itertools.count()

    def both(batches: list[list[Step]]) -> None:
        at = next(count)
        hope, care = World(store, f"h{at}.", guards), World(store, f"c{at}.", guards)
        for m, batch in enumerate(batches):
            numbered = [(step, m * 10 + n) for n, step in enumerate(batch)]
            mine = hope.told([hope.unit(*one) for one in numbered], careful=False)
            assert mine == care.told([care.unit(*one) for one in numbered], careful=True)
        assert hope.rows() == care.rows()

    return both


def test_whatever_is_wrong_hope_and_care_say_the_same(meet: Callable[[list[list[Step]]], None]) -> None:
    right = ("append", 0, 0)
    for guard in range(GUARDS):
        meet([[("append", 0, guard)], [("claim", 0, guard)]])
    for what in KINDS:
        meet([[(what, 0, NONE)], [right, (what, 0, 0)], [(what, 0, NONE)], [right, (what, 0, NONE)]])


def test_whatever_a_batch_meets_hope_and_care_say_the_same(meet: Callable[[list[list[Step]]], None]) -> None:
    meeting = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
    meeting(given(st.lists(st.lists(STEPS, min_size=1, max_size=5), min_size=1, max_size=3))(meet))()


def test_hope_is_one_round_trip_and_in_vain_it_is_left_alone_for_a_while(make_store: Make) -> None:
    store = make_store()
    guard = session(store)
    first, s = Stream("s").then(guard=guard)
    assert commit(store, [Stream("warm").then()[0]], careful=False)[0] == [Landed()]
    assert commit(store, [first, task("k")[0]], careful=False) == ([Landed()] * 2, 1)
    assert commit(store, [s.then(guard=guard)[0]], careful=True) == ([Landed()], 2)
    taken, stale = task("k")[0], s.then(guard=guard)[0]
    outcomes, trips = commit(store, [taken, stale, Stream("t").then()[0]], careful=False)
    assert [type(outcome) for outcome in outcomes] == [Exists, Stale, Landed]
    assert trips >= 4, "the hope, its end, and the careful way"
    before = store._writer.trips
    assert store.commit([Stream("u").then()[0]]) == [Landed()]
    assert store._writer.trips - before == 2, "each hope in vain writes into the server's log"


def test_a_birth_is_asked_for_by_the_insert_of_its_key_alone(make_store: Make) -> None:
    store = make_store()
    assert store.commit([Stream("warm").then()[0]]) == [Landed()]
    (one, known), (two, _) = task("one", id="one"), task("two", id="two")
    follows, after = known.then(j.Cancelled("enough"))
    assert expected([one, two, follows], []) == (Facts(), [])
    assert commit(store, [one, two, follows], careful=False) == ([Landed()] * 3, 1)
    births = [task("one", id="three")[0], task("three", id="one")[0]]  # its key; its id
    taken = [Change(birth.id, birth.parts, create=birth.create) for birth in births]
    for careful in (False, True):
        assert commit(store, taken, careful=careful)[0] == [Exists("one"), Stale("one")]
        exists, broken = commit(store, births, careful=careful)[0]
        assert exists == Exists("one")
        assert isinstance(broken, Broken), "no other task has its id, so nobody asks; the journal refuses it all the same"
    assert store.holds(projection.of_task(TENANT, None, after.state, ())) == []
    for not_born in (Stream("s").then()[0], dataclasses.replace(one, create=None), dataclasses.replace(one, create=two.create)):
        found = expected([not_born], [])
        assert found is not None and found[1], "what begins without a key of its own is asked for"


def test_what_fails_after_its_last_statement_is_no_success(database: str) -> None:
    """A statement that is a transaction by itself is committed once it has been answered, and that may fail."""
    with psycopg.connect(database, autocommit=True) as raw:
        raw.execute("CREATE TEMP TABLE late (n int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")
        pipe = Pipe(raw, {"put": statement("put", b"INSERT INTO late VALUES (%s)")}, prepared=True)
        assert pipe.run([("put", (1,))])[0].changed == 1
        for calls in ([("put", (1,))], [("put", (2,)), ("put", (1,))]):
            with pytest.raises(errors.UniqueViolation):
                pipe.run(calls)
        assert raw.execute("SELECT n FROM late").fetchall() == [(1,)]


def test_values_go_as_they_are_and_what_no_text_can_hold_is_refused(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as raw:
        text = b"SELECT %(a)s::text, %(b)s::bigint, %(c)s::bytea, %(d)s::boolean, %(a)s::text"
        pipe = Pipe(raw, {"all": statement("all", text)}, prepared=False)
        values = {"a": "'\u20ac\\", "b": -(2**63), "c": b"\0x", "d": False}
        assert pipe.run([("all", values), ("all", dict.fromkeys("abcd"))])[0].rows == [(*values.values(), values["a"])]
        for wrong, error in (("a\0b", psycopg.DataError), (1.5, TypeError)):
            with pytest.raises(error):
                pipe.run([("all", {**values, "a": wrong})])
        assert pipe.run([("all", values)])[0].tag == "SELECT 1"


@pytest.mark.parametrize("wrong", [None, "a\0b"])  # the server refuses it; it cannot even be sent
@pytest.mark.parametrize("careful", [False, True])
def test_a_claim_by_itself_passes_over_what_breaks_a_rule(make_store: Make, careful: bool, wrong: str | None) -> None:
    store = make_store()
    unit = claiming(session(store), limit=1, queues=["q"], kinds=["job"])

    def decide(tenant: str, rows: list[j.Row]) -> tuple[Change, tasks.Task] | None:
        decided = unit.decide(tenant, rows)
        if decided is None or decided[1].key != "poison":
            return decided
        part = decided[0].parts[0]
        bad = dataclasses.replace(part, rows=(dataclasses.replace(part.rows[0], actor=wrong),))  # type: ignore[arg-type]
        return dataclasses.replace(decided[0], parts=(bad,)), decided[1]

    store.commit([task("poison", queue="q", kind="job", priority=9)[0], task("sound", queue="q", kind="job")[0]])
    (outcome,), _ = commit(store, [dataclasses.replace(unit, decide=decide)], careful=careful)
    assert claimed(outcome) == ["sound"]


def test_a_connection_on_which_nothing_is_prepared_any_more_is_given_up(make_store: Make) -> None:
    store = make_store()
    first, s = Stream("s").then()
    assert store.commit([first]) == [Landed()]
    assert store._writer._raw is not None
    store._writer._raw.execute("DEALLOCATE ALL")
    with pytest.raises(StoreUnavailable, match="prepared statement"):
        store.commit([s.then()[0]])
    assert store.commit([s.then(id="again")[0]]) == [Landed()]


def test_an_interrupt_is_told_as_such_and_ends_the_connection(database: str) -> None:
    """Else what was asked before it would be read as the answer to what is asked next."""
    with psycopg.connect(database, autocommit=True) as raw:
        pipe = Pipe(raw, {"one": statement("one", b"SELECT 1")}, prepared=True)

        def interrupted(gen: Generator[object, object, object]) -> None:
            gen.send(None)
            raise KeyboardInterrupt

        raw.wait = interrupted  # type: ignore[method-assign, assignment]
        with pytest.raises(KeyboardInterrupt):
            pipe.run([("one", None)])
        assert raw.closed


def test_who_is_stopped_while_he_makes_what_he_writes_holds_no_lock(make_store: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a pipeline the server would wait for the rest without any timeout, and nobody could fence him (R14)."""
    store, other = make_store(), make_store()
    guard, made, outcomes = session(store, "stopped"), pgwrite._born, list[Outcome]()

    def stopped(births: Sequence[Change]) -> dict[str, str]:
        if births[-1].create == last.create and not outcomes:  # most of it is made
            outcomes.append(other.commit([task(first.create[2], id="theirs")[0]])[0])
            assert other.fence("stopped", "n0", "it stands still")
        return made(births)

    births = [task(f"k{n:03}", id=f"t{n:03}")[0] for n in range(2 * pgwrite._TOGETHER)]
    first, last = births[0], births[-1]
    assert first.create is not None
    monkeypatch.setattr(pgwrite, "_born", stopped)
    told, _ = commit(store, [Stream("s").then(guard=guard)[0], *births], careful=False)
    assert outcomes == [Landed()]
    assert isinstance(told[0], Fenced) and told[1] == Exists("theirs") and set(map(type, told[2:])) == {Landed}

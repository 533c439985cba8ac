"""What a store makes of a birth is what it makes of a change that says the same; whatever else is in its transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from history import snapshot

from pgserver import emptied
from semel.machine import journal as j
from semel.store.contract import Birth, Broken, Change, Exists, Landed, Outcome, Stale, Store
from semel.store.postgres import Postgres
from semel.store.sqlite import SQLite
from semel.testing.conformance_kit import AT, KIND, TENANT, Known, Stream, commit, task

MANY = 150  # births; more than go into one statement


def plain(change: Change) -> Change:
    """The same, and nothing is known of it."""
    return Change(change.id, change.parts, change.guard, change.checks, change.create, change.epoch)


def begun(n: int) -> tuple[Change, Known]:
    queue, tenant = ("" if n % 7 == 0 else f"q{n % 2}"), f"t{n % 3}"
    return task(f'k"\\{n}', tenant=tenant, kind=f"kind{n % 2}", queue=queue, priority=n % 5 - 2, due=AT + n, id=f"task-{n:04}")


def batches() -> list[list[Change]]:
    """Births alone, a second of some keys, and births beside other changes: some go on from what is born in the same batch."""
    births = [begun(n) for n in range(MANY)]
    again = [task(known.state.key, tenant=known.tenant, kind=known.state.kind, id=f"other-{n}")[0]
             for n, (_, known) in enumerate(births[::50])]  # fmt: skip
    beside: list[Change] = []
    for n in range(MANY, MANY + 30):
        change, known = begun(n)
        beside.append(change)
        if n % 3 == 0:
            told, known = known.then(j.Signalled("paid", n))
            taken, _ = known.then(j.Claimed(1, n, "s1"))  # it waits no more
            beside += [told, taken]
        if n % 4 == 0:
            beside.append(Stream(f"stream-{n}", known.tenant).then()[0])
    twice = [begun(MANY + 30)[0], task(begun(MANY + 30)[1].state.key, tenant=begun(MANY + 30)[1].tenant,
             kind=begun(MANY + 30)[1].state.kind, id="second")[0]]  # fmt: skip
    return [[c for c, _ in births], again, beside, twice, [births[3][0], beside[0]]]


def written(store: Store, given: Sequence[Sequence[Change]]) -> list[list[Outcome]]:
    return [commit(store, *batch) for batch in given]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_birth_lands_as_the_change_that_it_is(dialect: str, tmp_path: Path, own_database: str) -> None:
    def store(name: str) -> Store:
        return SQLite(str(tmp_path / name)) if dialect == "sqlite" else Postgres(emptied(own_database))

    given = batches()
    assert all(type(change) is Birth for change in given[0])
    told, found = [], []
    for name, changes in (("one", given), ("other", [[plain(change) for change in batch] for batch in given])):
        opened = store(name)
        told.append(written(opened, changes))
        found.append(snapshot(opened))
        opened.close()
    assert told[0] == told[1]
    assert told[0][0] == [Landed()] * MANY
    assert told[0][1] == [Exists(f"task-{n:04}") for n in range(0, MANY, 50)]
    assert told[0][3:] == [[Landed(), Exists(f"task-{MANY + 30:04}")], [Landed(), Landed()]]
    for name in found[0]:
        assert found[0][name] == found[1][name], name


def no_actor(row: j.Row) -> j.Row:
    return replace(row, actor=None)  # type: ignore[arg-type]


def no_text(row: j.Row) -> j.Row:
    return replace(row, body=b"no text")  # type: ignore[arg-type]


@pytest.mark.parametrize("spoilt", [no_actor, no_text])
@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_birth_that_breaks_a_rule_takes_nobody_along(
    dialect: str, spoilt: Callable[[j.Row], j.Row], tmp_path: Path, own_database: str
) -> None:
    store: Store = SQLite(str(tmp_path / "a.db")) if dialect == "sqlite" else Postgres(emptied(own_database))
    births = [begun(n)[0] for n in range(MANY)]
    (part,) = births[-1].parts  # not in the first statement
    births[-1] = replace(births[-1], parts=(replace(part, rows=(spoilt(part.rows[0]),)),))
    outcomes = commit(store, *births)
    assert outcomes[:-1] == [Landed()] * (MANY - 1)
    assert isinstance(outcomes[-1], Broken)
    assert len(store.tasks(None, limit=1000)) == MANY - 1
    store.close()


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_what_was_asked_of_a_stream_before_it_was_born_is_not_remembered(dialect: str, tmp_path: Path, own_database: str) -> None:
    store: Store = SQLite(str(tmp_path / "a.db")) if dialect == "sqlite" else Postgres(emptied(own_database))
    birth, known = begun(1)
    more = known.then(j.Signalled("paid", 1))[0]
    assert [commit(store, one)[0] for one in (more, birth, more)] == [Stale("task-0001"), Landed(), Landed()]
    store.close()


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_of_two_births_under_one_id_one_lands_and_the_other_is_told(dialect: str, tmp_path: Path, own_database: str) -> None:
    store: Store = SQLite(str(tmp_path / "a.db")) if dialect == "sqlite" else Postgres(emptied(own_database))
    first, second, third = [task(key, id="same")[0] for key in ("k1", "k2", "k3")]
    outcomes = [*commit(store, first, begun(1)[0], second), *commit(store, third)]
    assert outcomes[:2] == [Landed(), Landed()]
    assert [type(outcome) for outcome in outcomes[2:]] == [Broken, Broken], "nothing is accepted that nobody will ever do"
    assert [row.key for row in store.tasks(None, kind=KIND)] == ["k1"]
    assert [store.find_task(TENANT, KIND, key) for key in ("k1", "k2", "k3")] == ["same", None, None]
    store.close()

"""Many lives, many cuts: what `make test`, `make proof` and run.py have in common."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from powercut_disk import DELETE, VFS, WRITE, Disk, Image, Platter
from powercut_life import Dump, Mark, Noted, Tally, Violation, Ways, Work, check_history, dump, history, judge, seeded

from semel.store import sqlitefile
from semel.store.contract import Witnessed
from semel.store.sqlite import SQLite

LOG, JOURNAL, MAIN = "agent.db-wal", "agent.db-journal", "agent.db"
NOBODY = Witnessed(0, None, None)
DEEP = 0.02  # of the cuts: integrity_check, and the tables against the journal
Tell = Callable[[str], None]
WAYS = Ways()


@functools.cache
def prepared() -> tuple[tuple[str, bytes], ...]:
    """A disk with an empty store on it, so that not each has to be made."""
    return _image(lambda store: None)


@functools.cache
def of_schema_1() -> tuple[tuple[str, bytes], ...]:
    """A disk with a store of the first schema that has worked: whoever opens it migrates it."""

    def take_back(store: SQLite) -> None:
        Work(store, 1, 900, history.NOW).run(6)
        raw = store._writer.raw
        raw.execute("DROP INDEX ready_turn")
        raw.execute("DROP TRIGGER journal_is_never_deleted")
        first = sqlitefile.text(sqlitefile.MIGRATIONS[1])
        begin = first.index("CREATE TRIGGER journal_is_never_deleted")
        raw.execute(first[begin : first.index("END;", begin) + 4])
        raw.execute("PRAGMA user_version=1")

    return _image(take_back)


def _image(then: Callable[[SQLite], None]) -> tuple[tuple[str, bytes], ...]:
    disk = Disk()
    with seeded(0):
        store = SQLite(disk.place, vfs=VFS)
        then(store)
    store.close()
    disk.remove()
    return tuple((name, bytes(disk.files[node])) for name, node in disk.names.items())


@dataclass
class Left:
    """What a cut has left, on which the next life goes on."""

    image: Image
    held: Dump
    seen: Witnessed
    opening: str = "opened"  # what the next life does to it first


def run(seed: int, ways: Ways, tell: Tell = lambda line: None) -> Tally:
    """Some lives on one disk, and the cuts of each. Raises `Violation`."""
    prepared(), of_schema_1()  # whichever seed comes first: they are the same for all
    with seeded(seed):
        return _run(seed, ways, tell)


def _run(seed: int, ways: Ways, tell: Tell) -> Tally:
    dice, tally = random.Random(seed), Tally()
    start = dice.choices(("made", "migrated", "opened"), (8, 8, 84))[0]
    image: Image = {"made": {}, "migrated": dict(of_schema_1()), "opened": dict(prepared())}[start]
    left = Left(image, [], NOBODY, start)
    for life in range(ways.lives):
        tell(f"life {life}: on {', '.join(f'{name} of {len(data)} bytes' for name, data in left.image.items()) or 'nothing'}")
        going_on = _life(seed, life, left, ways, dice, tally, tell)
        if going_on is None:
            break
        left = going_on
    return tally


def _before(left: Left) -> Mark | None:
    """What the disk held as the life began."""
    if left.opening == "made":
        return None
    if left.held:
        return Mark("the life before", 0, 0, left.held, left.seen)
    disk = Disk(left.image)
    store = SQLite(disk.place, vfs=VFS)
    held = dump(store)
    store.close()
    disk.remove()
    return Mark("the disk as it was given", 0, 0, held, left.seen)


def _life(seed: int, life: int, left: Left, ways: Ways, dice: random.Random, tally: Tally, tell: Tell) -> Left | None:
    disk = ways.kind(left.image, lies=ways.lies, sector=dice.choice((4096, 4096, 512)))
    store = Noted(disk, pages=dice.choice((6, 15, 40)), synchronous=ways.synchronous, before=_before(left))
    try:
        work = Work(store, seed * 100 + life, life, history.NOW + life * 10_000_000)
        opened = len(disk.log)
        work.run(ways.batches)
        closing = len(disk.log)
        if dice.random() < 0.3:
            store.close()
        check_history(store.marks)
        return _told(store, work, (left.opening, opened, closing), ways, dice, tally, tell)
    finally:
        for connection in store._connections:
            connection.raw.close(True)
        disk.remove()


def _told(
    store: Noted, work: Work, edges: tuple[str, int, int], ways: Ways, dice: random.Random, tally: Tally, tell: Tell
) -> Left | None:
    disk = store.disk
    tally.lives += 1
    tally.acked += len(store.marks)
    tally.intents += sum(1 for row in store.marks[-1].after if row[0] == "journal" and row[4] == "intended")
    tally.seen.update(work.done)
    tell(f"  {len(store.marks)} transactions, {len(disk.log)} operations of the disk: {dict(work.done)}")
    return _cuts(disk, store.marks, edges, ways, dice, tally, tell)


def _cuts(
    disk: Disk, marks: list[Mark], edges: tuple[str, int, int], ways: Ways, dice: random.Random, tally: Tally, tell: Tell
) -> Left | None:
    """Cut at some of the operations, most where something is not synced yet; one of what they leave."""
    rate = ways.cuts / max(1, len(disk.log)) * 1.2
    going_on: Left | None = None
    platter, kept = Platter(disk.image), 0
    for at, op in enumerate(disk.log, 1):
        platter.step(op)
        wanted = rate if not platter.calm else rate * 0.05
        for _ in range(int(wanted) + (dice.random() < wanted % 1)):
            image = platter.cut(dice)
            _count(platter, at, edges, tally)
            held = judge(image, marks, at, tally, ways, deep=dice.random() < DEEP)
            tally.cuts += 1
            tell(f"  cut at operation {at} of {len(disk.log)} ({op[0]}): {'all there' if held is not None else tally.lost[-1]}")
            kept += 1
            if held is not None and dice.random() < 1 / kept:
                seen = [mark.seen for mark in marks if mark.acked <= at]
                going_on = Left(image, held, seen[-1] if seen else NOBODY, "opened" if held else "made")
    tally.seen.update(platter.seen)
    return going_on


def _count(platter: Platter, at: int, edges: tuple[str, int, int], tally: Tally) -> None:
    """Where the cut fell."""
    waiting = {platter.called[node]: ops for node, ops in platter.waiting.items()}
    opening, opened, closing = edges
    if at <= opened:
        tally.seen[f"cut as the store was {opening}"] += 1
    elif waiting.get(MAIN):
        tally.seen["cut in a checkpoint"] += 1
    if any(op[0] == WRITE and op[2] == 0 for op in waiting.get(LOG, [])):
        tally.seen["cut as the log begins anew"] += 1
    if at > closing:
        tally.seen["cut in closing"] += 1
    if any(op[0] == DELETE for op in platter.of_folder):
        tally.seen["cut as a name goes"] += 1
    if platter.calm:
        tally.seen["cut in a calm"] += 1


def many(first: int, cuts: int, ways: Ways = WAYS) -> tuple[Tally, float, int]:
    """Seeds from `first` on, until there were so many cuts; what they did, the processor's seconds, how many seeds."""
    tally, began, seed = Tally(), time.process_time(), first
    while tally.cuts < cuts:
        try:
            tally.add(run(seed, ways))
        except Exception as error:
            real = " --real" if ways.kind is not Disk else ""
            raise Violation(f"seed {seed}: {error}; replay it: python tests/powercut/run.py --seed {seed}{real}") from error
        seed += 1
    return tally, time.process_time() - began, seed - first

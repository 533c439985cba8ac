"""Conformance: the tables beside the journal, and what is read from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semel.machine import epochs
from semel.machine import journal as j
from semel.machine.projection import EffectRow, InflightRow, ReadyRow, Tables, TaskRow, UnknownRow
from semel.store.around import asked_singly
from semel.store.contract import Depth, Guard, Landed, Store, Tally
from semel.testing.conformance_claims import accept
from semel.testing.conformance_kit import AT, KIND, QUEUE, TENANT, Stream, claiming, commit, one, session, task

Make = Callable[[], Store]

TASK = TaskRow(TENANT, "t1", KIND, "k", QUEUE, 3, AT, "queued", "not_started", 1, 2, "", 4, 5, 6, 1, "why")
READY = ReadyRow(QUEUE, KIND, -3, AT, TENANT, "t1")
HELD = InflightRow("s1", TENANT, "t1")
EFFECT = EffectRow(TENANT, "e1", "t1", "t1", "charge", "submitted", 1)
UNKNOWN = UnknownRow(TENANT, "e1", "t1", "charge", AT)
ALL = Tables(task=TASK, ready=READY, inflight=HELD, effects=(EFFECT,), unknown=(UNKNOWN,))


def write(store: Store, *many: Tables) -> None:
    """Each by a change of its own, all in one transaction."""
    stream = Stream("tables", head=store.head(TENANT, "tables"))
    changes = []
    for tables in many:
        change, stream = stream.then(tables=tables)
        changes.append(change)
    assert commit(store, *changes) == [Landed()] * len(many)


def sizes(store: Store, **but: int) -> bool:
    """Whether the tables are empty, but for those."""
    found = store.sizes()
    return found == {"task": 0, "ready": 0, "inflight": 0, "effect": 0, "unknown": 0, "task_key": 0} | but


class Projections:
    """Written with the journal in one transaction; read by those who look for work, for unknowns, for the dead."""

    # --- writing ---

    def test_rows_are_inserted_and_read_back(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        write(store, ALL)
        assert other.task(TENANT, "t1") == TASK
        assert other.effect(TENANT, "e1") == EFFECT
        assert other.unknown(TENANT) == [UNKNOWN]
        assert other.held("s1") == [HELD]
        assert other.holds(ALL) == []
        assert sizes(other, task=1, ready=1, inflight=1, effect=1, unknown=1)

    def test_a_task_and_an_effect_are_one_row_each_however_often_they_change(self, make_store: Make) -> None:
        store = make_store()
        leased = TASK._replace(
            due=AT + 1, delivery="leased", execution="running", attempt=2, token=9, session="s1", failures=1, crashes=2,
            unknown=0, version=2, why="",
        )  # fmt: skip
        confirmed = EFFECT._replace(state="confirmed", version=2, task="t2")
        write(store, ALL)
        write(store, Tables(task=leased, effects=(confirmed,)))
        assert store.holds(Tables(task=leased, effects=(confirmed,))) == []
        write(store, Tables(task=TASK, effects=(EFFECT,)), Tables(task=leased, effects=(confirmed,)))
        assert store.holds(Tables(task=leased, effects=(confirmed,))) == [], "of one batch the last counts"
        assert sizes(store, task=1, ready=1, inflight=1, effect=1, unknown=1)

    def test_pointers_come_and_go(self, make_store: Make) -> None:
        store = make_store()
        write(store, ALL)
        moved = READY._replace(due=AT + 5)
        write(store, Tables(ready_gone=READY, ready=moved, inflight_gone=HELD, unknown_gone=((TENANT, "e1"),)))
        assert store.holds(Tables(ready=moved)) == []
        assert store.next_due([QUEUE], [KIND]) == AT + 5
        assert store.held("s1") == []
        assert store.unknown(TENANT) == []
        write(store, Tables(ready_gone=moved))
        assert sizes(store, task=1, effect=1)

    def test_pointers_that_come_and_go_in_one_batch(self, make_store: Make) -> None:
        store = make_store()
        come = Tables(ready=READY, inflight=HELD, unknown=(UNKNOWN,))
        gone = Tables(ready_gone=READY, inflight_gone=HELD, unknown_gone=((TENANT, "e1"),))
        write(store, come, gone)
        assert sizes(store)
        write(store, come, gone, come)
        assert sizes(store, ready=1, inflight=1, unknown=1)
        write(store, gone, come)
        assert store.holds(come) == []
        write(store, gone, come, gone)
        assert sizes(store)

    def test_an_unknown_is_lost_again_with_another_date(self, make_store: Make) -> None:
        store = make_store()
        write(store, Tables(unknown=(UNKNOWN,)))
        again = UNKNOWN._replace(since=AT + 9)
        write(store, Tables(unknown_gone=((TENANT, "e1"),), unknown=(again,)))
        assert store.unknown(TENANT) == [again]

    def test_texts_are_kept_exactly(self, make_store: Make) -> None:
        store = make_store()
        odd = "Grüße, 'Ω' \"\\ %s $1 {} --\n\t\U0001f9fe"
        row = TASK._replace(key=odd, why=odd, token=(1 << 62) + 1, priority=-1000, due=0)
        write(store, Tables(task=row))
        assert store.task(TENANT, "t1") == row
        change, stream = Stream(odd, odd).then(j.Stepped(odd, odd, {"text": odd}))
        assert one(store, change) == Landed()
        assert store.rows(odd, odd) == list(change.parts[0].rows)
        assert store.head(odd, odd) == stream.head

    # --- proving ---

    def test_every_difference_is_told(self, make_store: Make) -> None:
        store = make_store()
        write(store, ALL)
        row: Any
        for row in (TASK, EFFECT, UNKNOWN):
            for field in set(row._fields) - {"tenant"}:
                value = getattr(row, field)
                other = row._replace(**{field: value + 1 if isinstance(value, int) else f"{value}?"})
                tables = {"TaskRow": Tables(task=other), "EffectRow": Tables(effects=(other,))}.get(
                    type(row).__name__, Tables(unknown=(other,))
                )
                assert len(store.holds(tables)) == 1, field
        assert len(store.holds(Tables(ready=READY._replace(rank=0)))) == 1
        assert len(store.holds(Tables(inflight=HELD._replace(session="s2")))) == 1

    def test_each_row_that_is_missing_is_told(self, make_store: Make) -> None:
        assert len(make_store().holds(ALL)) == 5

    def test_a_row_too_many_shows_in_the_sizes(self, make_store: Make) -> None:
        store = make_store()
        write(store, ALL)
        write(store, Tables(ready=READY._replace(task="ghost"), inflight=HELD._replace(task="ghost")))
        assert store.holds(ALL) == []
        assert sizes(store, task=1, ready=2, inflight=2, effect=1, unknown=1)

    # --- reading ---

    def test_tasks_are_listed_newest_first_by_pages_and_by_state(self, make_store: Make) -> None:
        store = make_store()
        rows = [
            TASK._replace(
                task=f"t{n}", key=f"k{n}", kind=("bill", "ship")[n % 2], queue=f"q{n % 3}", delivery=("queued", "leased")[n // 4],
                execution=("not_started", "unknown")[n // 7], tenant="other" if n == 7 else TENANT,
            )
            for n in range(8)
        ]  # fmt: skip
        write(store, *(Tables(task=row) for row in rows))
        newest = rows[::-1]
        assert store.tasks(None) == newest
        assert store.tasks(TENANT) == newest[1:]
        assert store.tasks(None, limit=3) == newest[:3]
        assert store.tasks(None, limit=3, after=newest[2].task) == newest[3:6]
        lie = sorted(newest, key=lambda row: row[:2])
        assert store.tasks_after(("", ""), 99) == lie and store.tasks_after(lie[2][:2], 3) == lie[3:6]
        assert store.tasks(TENANT, kind="ship") == [row for row in newest[1:] if row.kind == "ship"]
        assert store.tasks(TENANT, queue="q1") == [row for row in newest[1:] if row.queue == "q1"]
        assert store.tasks(None, delivery="leased") == newest[:4]
        assert store.tasks(None, delivery="leased", execution="unknown", kind="ship") == newest[:1]
        assert store.tasks("nobody") == []
        assert store.tasks("other") == newest[:1] and store.tasks(TENANT, limit=3, after=newest[2].task) == newest[3:6]

    def test_of_one_tenants_tasks_all_are_listed_alike(self, make_store: Make) -> None:
        store = make_store()
        assert store.tasks(None) == store.tasks("") == []
        rows = [TASK._replace(tenant="", task=f"t{n}", key=f"k{n}", kind=("bill", "ship")[n % 2]) for n in range(5)]
        write(store, *(Tables(task=row) for row in rows))
        for tenant in (None, ""):
            assert store.tasks(tenant) == rows[::-1]
            assert store.tasks(tenant, limit=2, after="t3") == [rows[2], rows[1]]
            assert store.tasks(tenant, kind="ship", after="t3") == [rows[1]]

    def test_unfinished_tasks_are_walked_through_in_order_and_only_what_matters_is_handed_over(self, make_store: Make) -> None:
        store = make_store()
        states = ("queued", "leased", "blocked", "acknowledged", "dead_lettered")
        rows = [
            TASK._replace(
                tenant=tenant, task=f"t{n:02}", key=f"k{n}", kind=kind, attempt=n % 2, delivery=states[n // 2 % 5],
            )
            for tenant in (TENANT, "other", "z")
            for n, kind in enumerate(["bill"] * 10 + ["ship"] * 10 + ["mail"] * 10)
        ]  # fmt: skip
        write(store, *(Tables(task=row) for row in rows))
        want = [
            row for row in rows
            if row.delivery in states[:3] and (row.kind == "ship" or (row.kind == "bill" and row.attempt > 0))
        ]  # fmt: skip
        assert len(want) == 3 * (3 + 6)
        for visits in (1, 7, 1000):
            for tenant in (None, TENANT, "other", "z", "nobody"):
                found: list[TaskRow] = []
                pages = 0
                after: tuple[str, str] | None = ("", "")
                while after is not None:
                    page, after = store.unfinished(tenant, ["bill"], ["ship"], after, visits)
                    found, pages = found + page, pages + 1
                    assert len(page) <= visits
                whose = [row for row in rows if tenant in (None, row.tenant)]
                assert found == [row for row in want if tenant in (None, row.tenant)]
                assert pages == len(whose) // visits + 1
        assert store.unfinished(None, [], [], ("", ""), 90) == ([], ("z", "t29"))

    def test_effects_are_listed_by_key_by_pages_and_by_state(self, make_store: Make) -> None:
        store = make_store()
        states = ("submitted", "ambiguous")
        rows = [EFFECT._replace(key=f"e{n}", task=f"t{n % 3}", state=states[n % 2]) for n in range(6)]
        rows.append(EFFECT._replace(key="e9", tenant="other"))
        write(store, Tables(effects=tuple(rows)))
        assert store.effects(None) == rows
        assert store.effects(TENANT) == rows[:6]
        assert store.effects(TENANT, state="ambiguous") == rows[1:6:2]
        assert store.effects(TENANT, task="t1") == rows[1:6:3]
        assert store.effects(TENANT, limit=2) == rows[:2]
        assert store.effects(TENANT, limit=2, after="e1") == rows[2:4]
        assert store.effects_after(("", ""), 9) == sorted(rows) and store.effects_after((TENANT, "e3"), 2) == sorted(rows)[4:6]

    def test_an_effect_is_found_by_its_key_with_or_without_its_tenant(self, make_store: Make) -> None:
        store = make_store()
        write(store, ALL)
        assert store.effect(TENANT, "e1") == store.effect(None, "e1") == EFFECT
        assert store.effect("other", "e1") is store.effect(None, "e2") is None

    def test_unknowns_are_listed_oldest_first(self, make_store: Make) -> None:
        store = make_store()
        rows = [UNKNOWN._replace(key=f"e{n}", since=AT + since) for n, since in enumerate((5, 1, 3))]
        rows.append(UNKNOWN._replace(key="e9", since=AT + 2, tenant="other"))
        write(store, Tables(unknown=tuple(rows)))
        assert [row.key for row in store.unknown(None)] == ["e1", "e9", "e2", "e0"]
        assert [row.key for row in store.unknown(TENANT, limit=2)] == ["e1", "e2"]

    def test_states_are_counted_by_ledger(self, make_store: Make) -> None:
        store = make_store()
        write(
            store,
            Tables(task=TASK, effects=(EFFECT, EFFECT._replace(key="e2", state="confirmed"))),
            Tables(task=TASK._replace(task="t2", delivery="leased", execution="running")),
            Tables(task=TASK._replace(task="t3", tenant="other")),
        )
        assert store.counts(None) == {
            "delivery": {"queued": 2, "leased": 1},
            "execution": {"not_started": 2, "running": 1},
            "effect": {"submitted": 1, "confirmed": 1},
        }
        assert store.counts("other") == {"delivery": {"queued": 1}, "execution": {"not_started": 1}, "effect": {}}

    def test_what_an_operator_looks_at_first_is_tallied(self, make_store: Make) -> None:
        store = make_store()
        assert store.tally(None) == Tally(0, 0, 0, 0, {}, ())
        asks = TASK._replace(task="t2", delivery="blocked", why="charge waits for approval")
        write(
            store,
            Tables(task=TASK, ready=READY, inflight=HELD, unknown=(UNKNOWN, UNKNOWN._replace(key="e2", since=AT - 5))),
            Tables(task=asks, ready=READY._replace(task="t2", due=AT - 7)),
            Tables(task=asks._replace(tenant="other"), ready=READY._replace(tenant="other", task="t4", queue="a")),
            Tables(task=asks._replace(task="t3", why="waits for a person")),
        )
        session(store)
        assert store.fence(session(store).session, None, "left")
        mine = Depth(QUEUE, KIND, 2, AT - 7)
        all_of_them = tuple(sorted([mine, Depth("a", KIND, 1, AT)]))
        assert store.tally(None) == Tally(2, AT - 5, 2, 1, {"": 1, "left": 1}, all_of_them)
        assert store.tally(TENANT) == Tally(2, AT - 5, 1, 1, {"": 1, "left": 1}, (mine,))

    def test_streams_are_walked_in_order_by_pages(self, make_store: Make) -> None:
        store = make_store()
        names = [("a", "z"), ("b", "a"), ("b", "b"), ("c", "a")]
        assert commit(store, *(Stream(name, tenant).then(j.Void(), j.Void())[0] for tenant, name in reversed(names))) == (
            [Landed()] * 4
        )
        assert store.streams(("", ""), 10) == names
        assert store.streams(("", ""), 3) == names[:3]
        assert store.streams(names[2], 3) == names[3:]
        assert store.streams(names[3], 3) == []
        heads = store.heads(("", ""), 10)
        assert [head[:2] for head in heads] == names
        assert all((seq, hash) == store.head(tenant, stream) for tenant, stream, seq, hash in heads)
        assert store.heads(names[1], 1) == heads[2:3] and store.heads(names[3], 3) == []

    def test_the_next_due_is_the_earliest_of_any_priority(self, make_store: Make) -> None:
        store = make_store()
        assert store.next_due([QUEUE], [KIND]) is None
        accept(
            store,
            task("a", priority=9, due=AT + 30), task("b", due=AT + 10), task("c", kind="ship", due=AT + 5),
            task("d", queue="other", due=AT + 1),
        )  # fmt: skip
        assert store.next_due([QUEUE], [KIND]) == AT + 10
        assert store.next_due([QUEUE], [KIND, "ship"]) == AT + 5
        assert store.next_due([QUEUE, "other"], [KIND, "ship"]) == AT + 1
        assert store.next_due([], [KIND]) is store.next_due([QUEUE], []) is None

    def test_foreign_kinds_are_told_by_queue(self, make_store: Make) -> None:
        store = make_store()
        accept(store, task("a"), task("b", kind="ship"), task("c", kind="post"), task("d", kind="far", queue="other"))
        assert sorted(store.foreign([QUEUE], [KIND])) == [(QUEUE, "post"), (QUEUE, "ship")]
        assert sorted(store.foreign([QUEUE, "other", "none"], [KIND, "ship"])) == [(QUEUE, "post"), ("other", "far")]
        assert store.foreign([QUEUE], [KIND, "ship", "post"]) == []

    # --- the dead ---

    def held_by(self, store: Store, guard: Guard, *keys: str) -> list[InflightRow]:
        """Have these tasks claimed by a session."""
        known = accept(store, *(task(key, kind=guard.session) for key in keys))
        outcome = one(store, claiming(guard, kinds=(guard.session,), limit=len(keys)))
        assert sorted(store.held(guard.session)) == sorted(InflightRow(guard.session, TENANT, k.state.id) for k in known), outcome
        return sorted(store.held(guard.session))

    def test_what_the_fenced_and_the_missing_hold_is_found(self, make_store: Make) -> None:
        store, other = make_store(), make_store()
        alive, dead, watched = (session(store, name) for name in ("b-alive", "a-dead", "c-watched"))
        self.held_by(store, alive, "k0", "k1")
        of_dead, of_watched = self.held_by(store, dead, "k2"), self.held_by(store, watched, "k3", "k4")
        ghost = InflightRow("d-ghost", TENANT, "t")
        write(store, Tables(inflight=ghost))
        assert other.orphans(None, 10) == [(ghost, "missing")]
        assert other.fence(dead.session, None, "dead")
        assert other.fence(watched.session, None, "watched")
        assert store.orphans(None, 10) == [
            *((row, "dead") for row in of_dead), *((row, "watched") for row in of_watched), (ghost, "missing")
        ]  # fmt: skip
        paged, after = list[tuple[InflightRow, str]](), None
        while page := store.orphans(after, 2):
            paged, after = [*paged, *page], page[-1][0]
        assert paged == other.orphans(None, 10)

    def test_orphans_come_by_pages_so_that_one_that_stays_starves_none_behind_it(self, make_store: Make) -> None:
        store = make_store()
        guard = session(store)
        rows = self.held_by(store, guard, *(f"k{n}" for n in range(7)))
        assert store.fence(guard.session, None, "left")
        assert [row for row, _ in store.orphans(None, 3)] == rows[:3]
        assert [row for row, _ in store.orphans(rows[2], 3)] == rows[3:6], "whether or not the first ones were taken back"
        assert [row for row, _ in store.orphans(rows[5], 3)] == rows[6:]
        assert store.orphans(rows[6], 3) == []
        write(store, Tables(inflight_gone=rows[1]))
        assert [row for row, _ in store.orphans(None, 3)] == [rows[0], *rows[2:4]]

    def test_what_a_session_looks_at_in_one_is_what_it_would_be_told_singly(self, make_store: Make) -> None:
        store = make_store()
        own, dead = session(store, 'own "s\\ é\u2028'), session(store)
        assert store.around(own.session, None, 10) == asked_singly(store, own.session, None, 10)
        self.held_by(store, own, "k0", "k1")
        assert not store.around(own.session, None, 10).orphans
        self.held_by(store, dead, "k2")
        assert store.fence(dead.session, None, "dead")
        write(store, *(Tables(unknown=(UNKNOWN._replace(key=f"e{n}", since=AT - n),)) for n in range(3)))
        write(store, Tables(unknown=(UNKNOWN._replace(tenant="other", name="o'ne\t"),)))
        assert commit(store, Stream(epochs.STREAM, tenant=epochs.TENANT).then()[0]) == [Landed()]
        for asked in ((own.session, None, 10), (own.session, TENANT, 2), (own.session, "other", 2), ("nobody", None, 1)):
            assert store.around(*asked) == asked_singly(store, *asked), asked
        seen = store.around(own.session, None, 3)
        assert (len(seen.sessions), len(seen.held), seen.orphans, len(seen.unknown)) == (1, 2, True, 3)
        assert (seen.standing.seq, seen.info) == (1, store.reread())

    def test_journals_are_read_together(self, make_store: Make) -> None:
        store = make_store()
        accept(store, *(task(f"k{n}", id=f"t{n}") for n in range(3)), task("k", id="t1", tenant="other"))
        streams = [(TENANT, "t2"), ("other", "t1"), (TENANT, "none"), (TENANT, "t1")]
        assert store.journals(streams) == {stream: store.rows(*stream) for stream in streams}
        assert [len(rows) for rows in store.journals(streams).values()] == [1, 1, 0, 1]

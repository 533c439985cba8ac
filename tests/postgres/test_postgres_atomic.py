"""`Atomic()` on PostgreSQL: what the effect writes in the ledger's database and its confirm are there together, or neither."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from psycopg.rows import dict_row
from rivals import Doing, Rival, until
from tenant_roles import role_of
from typer.testing import CliRunner

import semel
from pgproxy import Proxy
from semel.cli import main
from semel.cli.verify import verify
from semel.engine.ledger import Ledger
from semel.engine.session import land
from semel.machine import effects as e
from semel.machine import journal as j
from semel.machine import tasks
from semel.model import EffectState
from semel.observe import Commit, Record
from semel.observe.otel import Spans
from semel.store import pgatomic
from semel.store.contract import Landed
from semel.store.postgres import Postgres
from semel.testing import Harness
from semel.testing.conformance_kit import Stream

TABLE = "DROP TABLE IF EXISTS public.paid; CREATE TABLE public.paid (n bigserial, id text, key text)"
INSERT = "INSERT INTO paid (id, key) VALUES (%s, %s)"


@pytest.fixture
def database(empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database in which nobody has been: whoever makes the store need not watch whether it went back (R19)."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return empty_database


@pytest.fixture
def paid(database: str) -> Callable[[], list[str]]:
    """The user's own table: what stands in it."""
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(TABLE)

    def read() -> list[str]:
        with psycopg.connect(database) as look:
            return [row[0] for row in look.execute("SELECT id FROM public.paid ORDER BY n")]

    return read


class Office:
    """An app with one Atomic effect, whose body a test may change."""

    def __init__(
        self, url: str, *, scope: Any = "task", timeout: float = 20.0, tenant: str = "default", lease: float = 15
    ) -> None:
        self.app = semel.App(url, tenant=tenant, lease=timedelta(seconds=lease))
        self.calls = 0
        self.body: Callable[[semel.Submission, str], str] = lambda submission, id: "paid"

        @self.app.effect(
            intent=("id",), recovery=semel.Atomic(), scope=scope, timeout=timedelta(seconds=timeout), name="pay", tries=2
        )
        def pay(submission: semel.Submission, id: str) -> str:
            self.calls += 1
            submission.connection.execute(INSERT, (id, submission.key))
            return self.body(submission, id)

        self.pay = pay

        @self.app.task(intent=("id",), retry=semel.Retry(backoff=timedelta(milliseconds=10)), name="bill")
        def bill(id: str) -> str:
            return pay(id)

        self.bill = bill

    def effect(self) -> Any:
        (found,) = self.app.effects.list()
        return found

    def kinds(self, ref: Any) -> list[str]:
        return [event.kind for event in self.app.journal(ref)]


@pytest.fixture
def make_office(database: str, paid: Any) -> Iterator[Callable[..., Office]]:
    made: list[Office] = []

    def make(url: str = database, **how: Any) -> Office:
        made.append(Office(url, **how))
        assert made[-1].app.tasks.list() == []  # the schema is there
        return made[-1]

    yield make
    for office in made:
        office.app.close()


@pytest.fixture
def office(make_office: Callable[..., Office]) -> Office:
    return make_office()


# --- together, or neither ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["task", "tenant"])
def test_what_it_writes_is_there_with_its_confirm(make_office: Any, paid: Any, database: str, scope: str) -> None:
    office = make_office(scope=scope)
    seen: list[Any] = []

    def body(submission: semel.Submission, id: str) -> str:
        with psycopg.connect(database) as other:
            seen.append(other.execute("SELECT state FROM semel.effect").fetchall())
            seen.append(other.execute("SELECT count(*) FROM public.paid").fetchone())
        return "r1"

    office.body = body
    assert office.bill.run("o1") == "r1"
    assert seen == [[("submitted",)], (0,)], "its intent was durable before, and nothing of it was there"
    assert paid() == ["o1"] and office.effect().state is EffectState.CONFIRMED
    assert office.bill.run("o1") == "r1" and office.calls == 1
    with psycopg.connect(database) as look:
        assert look.execute("SELECT count(*) FROM semel.unconfirmed").fetchone() == (0,)


def test_an_async_effect_gets_an_async_connection(database: str, paid: Any) -> None:
    app = semel.App(database)

    @app.effect(intent=("id",), recovery=semel.Atomic())
    async def pay(submission: semel.Submission, id: str) -> str:
        assert isinstance(submission.connection, psycopg.AsyncConnection)
        async with submission.connection.transaction():
            await submission.connection.execute(INSERT, (id, submission.key))
        if id == "bad":
            raise ValueError("no")
        return id

    async def main() -> None:
        async with app.work("k", kind="loop"):
            assert await asyncio.gather(*(pay(f"o{n}") for n in range(5))) == [f"o{n}" for n in range(5)]
            with pytest.raises(ValueError, match="no"):
                await pay("bad")
        await app.aclose()

    asyncio.run(main())
    assert sorted(paid()) == [f"o{n}" for n in range(5)]


def test_an_error_undoes_it_with_proof_and_is_the_callers(office: Office, paid: Any) -> None:
    def body(submission: semel.Submission, id: str) -> str:
        raise ValueError("the form is wrong")

    office.body = body
    with pytest.raises(semel.Unsettled):
        office.bill.run("o1")
    assert paid() == [] and office.effect().state is EffectState.NOT_ATTEMPTED and office.calls == 1
    office.body = lambda submission, id: "r2"
    assert office.bill.run("o1") == "r2" and paid() == ["o1"]


def test_not_done_already_done_and_trouble_that_passes(office: Office, paid: Any) -> None:
    with office.app.work("k", kind="loop"):

        def refuses(submission: semel.Submission, id: str) -> str:
            raise semel.NotDone("no money", retry=False)

        def found(submission: semel.Submission, id: str) -> str:
            raise semel.AlreadyDone("there")

        def deadlock_once(submission: semel.Submission, id: str) -> str:
            if office.calls == calls + 1:
                raise psycopg.errors.DeadlockDetected("by chance")
            return "second"

        office.body = refuses
        for _ in range(2):
            with pytest.raises(semel.NotDone, match="no money"):
                office.pay("no")
        assert office.calls == 1 and paid() == []
        office.body = found
        assert office.pay("there") == "there" and paid() == ["there"]
        calls = office.calls
        office.body = deadlock_once
        assert office.pay("deadlock") == "second" and paid() == ["there", "deadlock"]


def test_a_result_that_cannot_be_recorded_undoes_it(office: Office, paid: Any) -> None:
    office.body = lambda submission, id: object()  # type: ignore[arg-type, return-value]
    with office.app.work("k", kind="loop"), pytest.raises(semel.Misuse, match="rolled back"):
        office.pay("o1")
    assert paid() == [] and office.effect().state is EffectState.NOT_ATTEMPTED


def test_a_confirm_that_a_rival_overtakes_is_decided_again_in_the_same_transaction(office: Office, paid: Any) -> None:
    def body(submission: semel.Submission, id: str) -> str:
        task = semel.Ref(submission.task_id, "default")
        rival = threading.Thread(target=lambda: office.app.review.cancel(task, by="ann"))  # written behind this attempt's back
        rival.start()
        rival.join()
        return "r"

    office.body = body
    ref = office.bill.enqueue("o1")
    with contextlib.suppress(semel.Unsettled):
        office.bill.run("o1")
    assert office.calls == 1 and paid() == ["o1"]
    assert "ending" in office.kinds(ref) and office.effect().state is EffectState.CONFIRMED
    assert j.broken(office.app.runtime.desk.store.rows("default", ref.id)) is None


def test_a_task_is_enqueued_in_the_transaction_of_an_effect(office: Office, paid: Any) -> None:
    @office.app.task(intent=("id",), queue="later")
    def ship(id: str) -> None: ...

    def body(submission: semel.Submission, id: str) -> str:
        ref = ship.using(transaction=submission.connection).enqueue(id)
        if id == "bad":
            raise ValueError("no")
        return ref.id

    office.body = body
    with office.app.work("k", kind="loop"):
        shipped = office.pay("good")
        with pytest.raises(ValueError, match="no"):
            office.pay("bad")
    assert [view.id for view in office.app.tasks.list(queue="later")] == [shipped] and paid() == ["good"]


def test_in_a_harness_it_is_faked_or_refused(office: Office) -> None:
    with Harness(office.app) as rig:
        ref = office.bill.enqueue("o1")
        rig.run()
        with pytest.raises(semel.Unsettled, match="this ledger is SQLite"):
            ref.result()
    with Harness(office.app) as rig:
        rig.fake(office.pay, lambda id: f"faked {id}")
        rig.crash(office.pay, at="after")
        ref = office.bill.enqueue("o1")
        rig.run()
        assert ref.result() == "faked o1"
        assert len(rig.sent(office.pay)) == 2, "what was not committed is undone, and done again; nobody is asked"


def test_a_tenants_role_does_it_too(office: Office, database: str, paid: Any) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("GRANT ALL ON public.paid, public.paid_n_seq TO PUBLIC")
    with role_of(database, "acme") as url:
        its = Office(url, tenant="acme", lease=1)  # so long it watches whether the store went back (R19)
        its.body = lambda submission, id: str(submission.connection.execute("SELECT current_user").fetchone()[0])
        ran = its.bill.using(wait=timedelta(seconds=20)).run("o1")
        assert ran.startswith("semel_acme") and paid() == ["o1"]
        its.app.close()
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute("REVOKE ALL ON public.paid, public.paid_n_seq FROM PUBLIC")


# --- what the function may not do -------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[Any], Any]] = {
    "commit": lambda c: c.commit(),
    "rollback": lambda c: c.rollback(),
    "close": lambda c: c.close(),
    "with": lambda c: c.__exit__(None, None, None),
    "autocommit": lambda c: c.set_autocommit(True),
    "sql commit": lambda c: c.execute("COMMIT"),
    "sql commit and more": lambda c: c.execute("COMMIT; BEGIN; INSERT INTO paid (id) VALUES ('more'); COMMIT"),
}


@pytest.mark.parametrize("how", ENDS)
def test_it_cannot_commit_or_roll_back_by_itself(office: Office, paid: Any, how: str) -> None:
    office.body = lambda submission, id: ENDS[how](submission.connection)
    with office.app.work("k", kind="loop"), pytest.raises((semel.Misuse, psycopg.Error)) as error:
        office.pay("o1")
    assert paid() == [] and office.effect().state is EffectState.NOT_ATTEMPTED
    if how in ("commit", "rollback", "close", "with"):
        assert "is committed by semel" in str(error.value)


@pytest.mark.parametrize("how", ["ROLLBACK", "ROLLBACK; BEGIN; INSERT INTO paid (id) VALUES ('by itself'); COMMIT"])
@pytest.mark.parametrize("swallows", [True, False])
def test_one_that_ends_its_transaction_all_the_same_waits_for_a_person(
    office: Office, paid: Any, how: str, swallows: bool
) -> None:
    """SQL text can roll back what keeps it from committing, and then nobody but a person can tell what happened."""

    def body(submission: semel.Submission, id: str) -> str:
        with contextlib.suppress(semel.Misuse if swallows else ()):
            submission.connection.execute(how)
        return "r"

    office.body = body
    with pytest.raises(semel.Unsettled) as parked:
        office.bill.run("o1")
    assert parked.value.why == "blocked" and office.effect().state is EffectState.AMBIGUOUS
    assert "ended its transaction by itself" in str(parked.value)


def test_a_failed_statement_that_is_swallowed_is_no_success(office: Office, paid: Any) -> None:
    def body(submission: semel.Submission, id: str) -> str:
        with contextlib.suppress(psycopg.Error):
            submission.connection.execute("SELECT 1/0")
        return "r"

    office.body = body
    with office.app.work("k", kind="loop"), pytest.raises(semel.Misuse, match="let the error out"):
        office.pay("o1")
    assert paid() == []


def test_a_connection_that_was_kept_is_dead(office: Office, paid: Any) -> None:
    kept: list[Any] = []
    office.body = lambda submission, id: kept.append(submission.connection) or "r"  # type: ignore[func-returns-value]
    with office.app.work("k", kind="loop"):
        office.pay("o1")
        office.body = lambda submission, id: kept[0].execute(INSERT, ("sneaked in", "")) and "r"
        with pytest.raises(semel.Misuse, match="has ended"):
            office.pay("o2")
    assert paid() == ["o1"]


def test_nothing_of_one_effect_is_left_for_the_next(office: Office, paid: Any) -> None:
    def leaves(submission: semel.Submission, id: str) -> str:
        c = submission.connection
        c.row_factory = dict_row
        c.execute("SET statement_timeout = '7s'; CREATE TEMP TABLE mine (x int); SELECT pg_advisory_lock(7)")
        c.execute("SELECT 1", prepare=True)
        return str(c.info.backend_pid)

    def finds(submission: semel.Submission, id: str) -> str:
        c = submission.connection
        c.execute("SELECT 1", prepare=True)
        left = "SELECT to_regclass('pg_temp.mine'), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"
        assert c.execute(left).fetchone() == (None, 0)
        assert c.execute("SHOW search_path").fetchone() == ('"$user", public',), "it finds its role's own settings"
        return str(c.info.backend_pid)

    with office.app.work("k", kind="loop"):
        office.body = leaves
        pid = office.pay("o1")
        office.body = finds
        assert office.pay("o2") == pid, "it is the same connection"


def test_a_deferred_constraint_of_the_users_own_undoes_both(office: Office, paid: Any, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("ALTER TABLE public.paid ADD CONSTRAINT once UNIQUE (id) DEFERRABLE INITIALLY DEFERRED")
        admin.execute("INSERT INTO public.paid (id) VALUES ('o1')")
    with office.app.work("k", kind="loop"), pytest.raises(psycopg.errors.UniqueViolation):
        office.pay("o1")
    assert paid() == ["o1"] and office.effect().state is EffectState.NOT_ATTEMPTED


# --- R7: a COMMIT that is not answered --------------------------------------------------------------------------------


@pytest.fixture
def behind(make_office: Callable[..., Office], proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Office:
    """An office of which the Atomic connections alone go through the proxy."""
    connect = pgatomic.OneLink._connect

    def through(link: Any) -> Any:
        where = link.where
        port = proxy.url.rsplit(":", 1)[1].split("/")[0]
        object.__setattr__(link, "where", type(where)({**where.params, "host": "127.0.0.1", "port": port}, True, where.place))
        return connect(link)

    monkeypatch.setattr(pgatomic.OneLink, "_connect", through)
    return make_office()


@pytest.mark.parametrize("scope", ["task", "tenant"])
def test_a_commit_that_landed_finds_itself(behind: Office, proxy: Proxy, paid: Any, scope: str) -> None:
    def body(submission: semel.Submission, id: str) -> str:
        proxy.cut_at_reply = b"COMMIT\0"
        return "r"

    behind.body = body
    ref = behind.bill.enqueue("o1")
    assert behind.bill.run("o1") == "r"
    assert proxy.cuts == 1 and behind.calls == 1 and paid() == ["o1"]
    assert "void" not in behind.kinds(ref) and behind.kinds(ref)[-2:] == ["confirmed", "finished"]


def test_a_commit_that_never_arrived_is_voided_and_done_again(behind: Office, proxy: Proxy, paid: Any, database: str) -> None:
    """Its place in the journal is taken, so that it cannot land any more; nothing of it was there, and it is done anew."""

    def body(submission: semel.Submission, id: str) -> str:
        if behind.calls == 1:
            proxy.cut_at_request = b"COMMIT\0"
        return f"r{behind.calls}"

    behind.body = body
    ref = behind.bill.enqueue("o1")
    assert behind.bill.run("o1") == "r2"
    assert proxy.cuts == 1 and behind.calls == 2 and paid() == ["o1"]
    kinds = behind.kinds(ref)
    assert kinds[kinds.index("void") :] == ["void", "disproved", "intended", "confirmed", "finished"]
    report = verify(behind.app.runtime.desk.store)
    assert report.wrong == [] and report.want == report.found, "the chain is whole, and the tables are what it says"
    told = CliRunner().invoke(main.cli, ["why", ref.id, "--store", database])
    assert "A change whose reply was lost is ruled out for good." in " ".join(told.output.split()), told.output


def test_the_void_waits_for_a_commit_that_is_still_under_way(behind: Office, proxy: Proxy, paid: Any, rival: Rival) -> None:
    """The confirm's row is there, uncommitted, when the connection is cut: a bare re-read would prove nothing."""
    rival.admin.execute("""
        CREATE OR REPLACE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF NEW.kind = 'confirmed' THEN PERFORM pg_sleep(1.0); END IF; RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON semel.journal DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION public.slow()""")
    try:

        def body(submission: semel.Submission, id: str) -> str:
            proxy.cut_after_request = b"COMMIT\0"
            return "r"

        behind.body = body
        ref = behind.bill.enqueue("o1")
        assert behind.bill.run("o1") == "r"
        assert proxy.cuts == 1 and behind.calls == 1 and paid() == ["o1"] and "void" not in behind.kinds(ref)
    finally:
        rival.admin.execute("DROP TRIGGER slow ON semel.journal")


def test_a_connection_cut_before_the_commit_is_proof(behind: Office, proxy: Proxy, paid: Any, rival: Rival) -> None:
    def body(submission: semel.Submission, id: str) -> str:
        if behind.calls == 1:
            rival.admin.execute("SELECT pg_terminate_backend(%s, 5000)", (submission.connection.info.backend_pid,))
        return f"r{behind.calls}"

    behind.body = body
    ref = behind.bill.enqueue("o1")
    assert behind.bill.run("o1") == "r2" and paid() == ["o1"]
    assert "void" not in behind.kinds(ref) and "disproved" in behind.kinds(ref)


# --- deadlines, fences ------------------------------------------------------------------------------------------------


def test_one_that_outlives_its_timeout_can_never_land(make_office: Callable[..., Office], paid: Any, rival: Rival) -> None:
    """Nor does it hold its locks: the server ends a transaction that stands still."""
    office = make_office(timeout=0.6)
    go_on, ended = threading.Event(), threading.Event()

    def body(submission: semel.Submission, id: str) -> str:
        if office.calls == 1:
            try:
                go_on.wait(20)
                submission.connection.execute("SELECT 1")
            finally:
                ended.set()
        return f"r{office.calls}"

    office.body = body
    ref = office.bill.enqueue("o1")
    assert office.bill.run("o1") == "r2"
    sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel atomic' AND state = 'idle in transaction'"
    until(lambda: rival.admin.execute(sql).fetchone() == (0,), "the server has ended it", 5)
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(10)
    assert paid() == ["o1"] and "void" in office.kinds(ref)


@pytest.mark.parametrize("scope", ["task", "tenant"])
def test_what_was_ruled_out_while_it_ran_can_never_land(make_office: Callable[..., Office], paid: Any, scope: str) -> None:
    """Its session lives, and holds the task; but its place in the journal was taken, as after a timeout."""
    office = make_office(scope=scope)

    def body(submission: semel.Submission, id: str) -> str:
        if office.calls == 1:
            desk = office.app.runtime.desk
            ledger = Ledger.read(desk, "default", submission.task_id, "session:same")
            assert ledger is not None
            token = ledger.state.token
            assert land(ledger, e.Lose(submission.key, submission.number, submission.token, "no answer", False))
            assert land(ledger, e.Void(submission.key, submission.number, token))
        return f"r{office.calls}"

    office.body = body
    assert office.bill.run("o1") == "r2" and paid() == ["o1"]
    assert verify(office.app.runtime.desk.store).wrong == []


def test_one_whose_task_was_given_back_lands_nothing(office: Office, paid: Any) -> None:
    """Its session lives, and its place in the journal is its own: but its token is not the task's any more (R2)."""

    def body(submission: semel.Submission, id: str) -> str:
        if office.calls == 1:
            ledger = Ledger.read(office.app.runtime.desk, "default", submission.task_id, "session:same")
            assert ledger is not None and land(ledger, tasks.Park(ledger.state.token, "its session holds it no more", 0))
        return f"r{office.calls}"

    office.body = body
    with pytest.raises(semel.Unsettled):
        office.bill.run("o1")
    assert paid() == []
    assert office.bill.run("o1") == "r2" and paid() == ["o1"]


def test_a_statement_may_take_as_long_as_the_effect(make_office: Callable[..., Office], paid: Any, rival: Rival) -> None:
    office = make_office(timeout=0.6)
    office.body = lambda submission, id: submission.connection.execute("SELECT pg_sleep(20)") and "r"
    with pytest.raises(semel.Unsettled):
        office.bill.run("o1")
    sql = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(20)' AND state = 'active'"
    until(lambda: rival.admin.execute(sql).fetchone() == (0,), "the server has ended it", 5)
    assert paid() == []


@pytest.mark.parametrize("settled", [True, False])
def test_a_fenced_session_lands_nothing(office: Office, paid: Any, make_store: Any, settled: bool) -> None:
    """Fenced in mid-call; and, or not yet, its task taken back."""

    def body(submission: semel.Submission, id: str) -> str:
        runtime = office.app.runtime
        session = runtime.open_session
        assert session is not None
        assert make_store().fence(session.id, None, "watched"), "no guard is held while the function runs"
        if settled:
            ledger = Ledger.read(runtime.desk, "default", submission.task_id, "session:other")
            assert ledger is not None
            assert land(ledger, tasks.LoseLease(session.id, "watched", runtime.desk.clock.wall_ms()))
        return "r"

    office.body = body
    with pytest.raises(semel.Unsettled):
        office.bill.run("o1")
    assert paid() == [] and office.calls == 1
    assert office.effect().state is not EffectState.CONFIRMED


def test_more_than_two_at_a_time_wait_for_one_and_they_are_closed_when_idle(
    office: Office, paid: Any, rival: Rival, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pgatomic, "IDLE_SECONDS", 0.3)
    sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel atomic' AND datname = current_database()"

    def count() -> int:
        return int(rival.admin.execute(sql).fetchone()[0])  # type: ignore[index]

    seen: list[int] = []
    office.body = lambda submission, id: (seen.append(count()), time.sleep(0.05)) and "r"
    running = [Doing(lambda n=n: office.bill.run(f"o{n}")) for n in range(6)]  # type: ignore[misc]
    assert [doing.result() for doing in running] == ["r"] * 6
    assert max(seen) == 2 and sorted(paid()) == [f"o{n}" for n in range(6)]
    until(lambda: count() == 0, "they are closed when nobody needs them", 5)
    assert office.bill.run("o9") == "r"


# --- killed -----------------------------------------------------------------------------------------------------------

WORKER = Path(__file__).parent / "scripts" / "atomic_worker.py"


@pytest.mark.parametrize("at", ["written", "confirmed", "committed"])
def test_a_worker_killed_around_its_commit(database: str, paid: Any, at: str, tmp_path: Path) -> None:
    """Before COMMIT, the confirm written or not: neither is there. After it: both are, and it is not done again."""
    env = {**os.environ, "SEMEL_TEST_URL": database, "SEMEL_TEST_DIE_AT": at, "SEMEL_TEST_DIED": str(tmp_path / "died")}
    subprocess.run([sys.executable, str(WORKER), "enqueue"], env=env, check=True, timeout=60)
    first = subprocess.run([sys.executable, str(WORKER), "work"], env=env, timeout=60, check=False)
    assert first.returncode == -signal.SIGKILL
    assert (tmp_path / "died").exists() and paid() == (["o1"] if at == "committed" else [])
    second = subprocess.run(
        [sys.executable, str(WORKER), "work"], env=env, timeout=60, check=False, capture_output=True, text=True
    )
    assert second.returncode == 0, second.stderr
    assert paid() == ["o1"]
    with semel_app(database) as app:
        (view,) = app.tasks.list()
        assert (view.delivery, view.execution, view.crashes) == ("acknowledged", "succeeded", 1), "nobody was asked"
        kinds = [event.kind for event in app.journal(view.ref)]
        assert ("void" in kinds) is (at != "committed") and kinds.count("confirmed") == 1


@contextlib.contextmanager
def semel_app(url: str) -> Iterator[semel.App]:
    app = semel.App(url)
    yield app
    app.close()


def test_a_storm_of_killed_backends_neither_loses_nor_doubles(
    make_office: Callable[..., Office], paid: Any, rival: Rival
) -> None:
    """Server processes are killed anywhere in Atomic transactions, commits included; each order is paid once, by the journal."""
    office = make_office()
    office.body = lambda submission, id: time.sleep(random.random() * 0.01) or id  # type: ignore[func-returns-value]
    refs = [office.bill.enqueue(f"o{n}") for n in range(60)]
    over = threading.Event()

    def kill() -> int:
        killed = 0
        sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'semel atomic' AND random() < 0.3"
        while not over.is_set():
            killed += len(rival.admin.execute(sql).fetchall())
            time.sleep(random.random() * 0.02)
        return killed

    killing = Doing(kill)
    working = Doing(lambda: office.app.run_worker(until_idle=True, concurrency=8))
    until(lambda: working.done or len(paid()) > 40, "most are paid under fire", 60)
    over.set()
    assert killing.result() > 5
    working.result(60)
    assert [ref.result(timedelta(seconds=20)) for ref in refs] == [f"o{n}" for n in range(60)]
    assert sorted(paid()) == sorted(f"o{n}" for n in range(60))
    report = verify(office.app.runtime.desk.store)
    assert report.wrong == [] and report.want == report.found


# --- where it is refused ----------------------------------------------------------------------------------------------


def test_it_is_the_only_rung(database: str) -> None:
    app = semel.App(database)
    with pytest.raises(semel.Misuse, match=r"recovery=semel.Atomic\(\)"):

        @app.effect(intent=(), recovery=[semel.Atomic(), semel.Ask()])
        def pay(submission: semel.Submission) -> None: ...


def test_on_sqlite_it_is_refused_before_anything_is_on_record(tmp_path: Path) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/a.db")

    @app.effect(intent=(), recovery=semel.Atomic())
    def pay(submission: semel.Submission) -> None: ...

    with app.work("k", kind="loop"), pytest.raises(semel.Misuse, match=r"semel.App\('postgresql://"):
        pay()
    assert app.effects.list() == []
    app.close()


def test_what_an_atomic_effect_spends_is_on_record_and_its_confirm_is_not_in_the_way(office: Office, paid: Any) -> None:
    """The spending is a change of the task's stream of its own; the confirm is decided again behind it, in its transaction."""

    def spends(submission: semel.Submission, id: str) -> str:
        semel.spend(usd="0.03", tokens=12)
        return "paid"

    office.body = spends
    assert office.bill.run("a") == "paid"
    ref = office.app.tasks.list()[0].ref
    assert paid() == ["a"] and office.calls == 1
    assert [kind for kind in office.kinds(ref) if kind in ("intended", "spent", "confirmed")] == [
        "intended",
        "spent",
        "confirmed",
    ]


def test_observers_are_told_of_what_landed_with_its_own_writes(database: str, paid: Callable[[], list[str]]) -> None:
    office, kept, provider = Office(database), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    told: list[Record] = []
    office.app.observers += [told.append, Spans(provider.get_tracer("test"))]
    with office.app.work("w", kind="k") as work:
        assert office.pay("a") == "paid"
    office.app.close()
    seen = [row.kind for record in told if isinstance(record, Commit) for row in record.rows if row.stream == work.ref.id]
    assert seen == ["enqueued", "intended", "confirmed", "finished"] and paid() == ["a"]
    ((span,),) = [[one for one in kept.get_finished_spans() if one.name == "execute_tool pay"]]
    assert span.attributes is not None and span.attributes["semel.effect.state"] == "confirmed"


@pytest.mark.parametrize("how", ["SET client_encoding = 'latin1'", "SET LOCAL client_encoding = 'latin1'"])
def test_whatever_encoding_it_leaves_its_confirm_is_written_as_it_is(make_store: Callable[[], Postgres], how: str) -> None:
    store = make_store()
    first, s = Stream("caf\u00e9").then()
    assert store.commit([first]) == [Landed()]
    lent = store.lend(5, 5)
    try:
        lent.connection(False).execute(how)
        assert lent.land(s.then(j.Purged("d\u00e9j\u00e0 vu"))[0]) == Landed()
    finally:
        lent.end()
    rows = store.rows(s.tenant, s.name)
    assert len(rows) == 2 and j.broken(rows) is None

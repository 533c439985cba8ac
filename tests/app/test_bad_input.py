"""Bad input: a clear error that names the field and the mend, and nothing is changed."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import apsw
import pytest
from pydantic import BaseModel

import semel


@pytest.fixture
def app(tmp_path: Path) -> Iterator[semel.App]:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db")
    yield app
    app.close()


def refused(match: str, call: Callable[[], Any]) -> semel.Misuse:
    """The Misuse that `call` raises: what happened, and the line to type."""
    with pytest.raises(semel.Misuse, match=match) as caught:
        call()
    return caught.value


# --- at import ---


def test_an_intent_that_names_no_parameter(app: semel.App) -> None:
    def send(submission: semel.Submission, to: str) -> str:
        return to

    refused("intent names 'invoice', which is no parameter of it; it has to", lambda: app.effect(intent=("invoice",))(send))
    refused("material names 'cents'", lambda: app.effect(intent=("to",), material=("cents",))(send))


def test_an_intent_that_is_a_string(app: semel.App) -> None:
    def send(submission: semel.Submission, to: str) -> str:
        return to

    refused(r"intent must be a tuple .* write intent=\('to',\)", lambda: app.effect(intent="to")(send))  # type: ignore[arg-type]


def test_an_effect_whose_first_parameter_is_no_submission(app: semel.App) -> None:
    def send(to: str) -> str:
        return to

    def late(to: str, submission: semel.Submission) -> str:
        return to

    class Mailer:
        def send(self, submission: semel.Submission, to: str) -> str:
            return to

    for fn in (send, late, Mailer.send):
        refused("first parameter must be a semel.Submission", lambda fn=fn: app.effect(intent=("to",))(fn))


def test_missing_annotations(app: semel.App) -> None:
    def no_type(submission: semel.Submission, to) -> str:  # type: ignore[no-untyped-def]
        return str(to)

    def no_result(submission: semel.Submission, to: str):  # type: ignore[no-untyped-def]
        return to

    def task_no_type(to) -> str:  # type: ignore[no-untyped-def]
        return str(to)

    refused("parameter 'to' has no annotation; write to: str", lambda: app.effect(intent=("to",))(no_type))
    refused("result has no annotation", lambda: app.effect(intent=("to",))(no_result))
    refused("parameter 'to' has no annotation", lambda: app.task(intent=("to",))(task_no_type))
    refused("result has no annotation", lambda: app.step()(no_result_step))


def no_result_step(to: str):  # type: ignore[no-untyped-def]
    return to


def test_arguments_that_are_not_data(app: semel.App) -> None:
    def send(submission: semel.Submission, to: str, client: threading.Lock) -> str:  # type: ignore[valid-type]
        return to

    def starred(submission: semel.Submission, *to: str) -> str:
        return ",".join(to)

    refused("not data that semel can record", lambda: app.effect(intent=("to",))(send))
    refused("name each parameter", lambda: app.effect(intent=())(starred))


def test_a_lookup_that_asks_for_what_the_effect_does_not_have(app: semel.App) -> None:
    def find(submission: semel.Submission, invoice: str) -> semel.Verdict:
        return semel.NotFound()

    def send(submission: semel.Submission, to: str) -> str:
        return to

    lookup = semel.Lookup(find, settle=timedelta(seconds=1))
    refused("lookup find asks for 'invoice'", lambda: app.effect(intent=("to",), recovery=lookup)(send))


def test_exceptions_that_prove_nothing_cannot_be_declared_as_proof(app: semel.App) -> None:
    def send(submission: semel.Submission, to: str) -> str:
        return to

    for kind in (Exception, OSError, TimeoutError, ConnectionError):
        refused("proof that nothing happened", lambda kind=kind: app.effect(intent=("to",), not_done=(kind,))(send))


def test_two_handlers_of_one_name(app: semel.App) -> None:
    def one(submission: semel.Submission, to: str) -> str:
        return to

    def two(submission: semel.Submission, to: str) -> str:
        return to

    app.effect(intent=("to",), name="mail")(one)
    refused("two effects are called 'mail'", lambda: app.effect(intent=("to",), name="mail")(two))


def test_durations_and_numbers(app: semel.App) -> None:
    def send(submission: semel.Submission, to: str) -> str:
        return to

    refused("settle is negative", lambda: semel.Ask(settle=timedelta(seconds=-1)))
    refused("within=0", lambda: semel.Resend(within=timedelta(0)))
    refused("tries=0", lambda: app.effect(intent=("to",), tries=0)(send))
    refused("timeout", lambda: app.effect(intent=("to",), timeout=timedelta(0))(send))
    refused("max_attempts=0", lambda: semel.Retry(max_attempts=0))
    refused("lease=0:00:00.500000 is too short", lambda: semel.App(lease=timedelta(seconds=0.5)))
    refused("concurrency=0", lambda: app.run_worker(concurrency=0))


# --- at the call ---


class Big(BaseModel):
    text: str


@pytest.fixture
def shop(app: semel.App) -> Any:
    class Shop:
        calls: ClassVar[list[object]] = []

        @staticmethod
        @app.effect(intent=("invoice", "amount"))
        def pay(submission: semel.Submission, invoice: str, amount: Any) -> Any:
            Shop.calls.append((invoice, amount))
            return amount

        @staticmethod
        @app.effect(intent=("n",))
        def big(submission: semel.Submission, n: int) -> Big:
            Shop.calls.append(n)
            return Big(text="x" * n)

        @staticmethod
        @app.task(intent=("invoice",))
        def bill(invoice: str, cents: int) -> str:
            return invoice

        @staticmethod
        @app.task()
        def keyless(note: str) -> str:
            return note

    Shop.calls = []
    return Shop


@pytest.mark.parametrize("amount", [0.1, float("nan"), 2**53, -(2**60), {"a": [1, 0.5]}])
def test_an_intent_that_cannot_identify(app: semel.App, shop: Any, amount: Any) -> None:
    with app.work("k", kind="loop"):
        refused("amount", lambda: shop.pay("inv", amount))
    assert shop.calls == [] and app.effects.list() == []


def test_arguments_that_do_not_fit(app: semel.App, shop: Any) -> None:
    with app.work("k", kind="loop"):
        refused("invoice is not a str", lambda: shop.pay(7, 1))
        refused("missing a required argument: 'amount'", lambda: shop.pay("inv"))
        refused("unexpected keyword argument 'submission'", lambda: shop.pay("inv", 1, submission=None))
        refused("cannot be recorded", lambda: shop.pay("inv", object()))
    assert shop.calls == [] and app.effects.list() == []


def test_enqueue_is_checked_against_the_handler(app: semel.App, shop: Any) -> None:
    refused("missing a required argument: 'cents'", lambda: shop.bill.enqueue("inv"))
    refused("cents is not a int", lambda: shop.bill.enqueue("inv", "many"))
    refused("unexpected keyword argument 'nope'", lambda: shop.bill.enqueue("inv", 1, nope=2))
    refused(r"nothing says which work this is.*using\(key='...'\)", lambda: shop.keyless.enqueue("hello"))
    refused("key must be text", lambda: shop.keyless.using(key="").enqueue("hello"))
    refused("time zone", lambda: shop.bill.using(run_at=datetime(2030, 1, 1)))
    refused("priority must be an int", lambda: shop.bill.using(priority=5.5))
    refused("transaction", lambda: shop.bill.using(transaction=object()))
    refused("a task is not called|is not called, it is accepted", lambda: shop.bill("inv", 1))
    assert app.tasks.list() == []


def test_a_result_that_is_too_large_leaves_the_effect_confirmed(app: semel.App, shop: Any) -> None:
    with app.work("k", kind="loop"):
        refused("happened and is confirmed, but its result cannot be recorded: the result is .* bytes", lambda: shop.big(2 << 20))
        refused("happened, but its result was not recorded", lambda: shop.big(2 << 20))
    (effect,) = app.effects.list()
    assert effect.state == "confirmed" and shop.calls == [2 << 20]


def test_a_result_of_another_type_leaves_the_effect_confirmed(app: semel.App) -> None:
    @app.effect(intent=("n",))
    def wrong(submission: semel.Submission, n: int) -> int:
        return "many"  # type: ignore[return-value]

    with app.work("k", kind="loop"):
        refused("cannot be recorded", lambda: wrong(1))
    assert [effect.state for effect in app.effects.list()] == ["confirmed"]


def test_an_effect_outside_work_and_inside_another(app: semel.App, shop: Any) -> None:
    refused("outside any work", lambda: shop.pay("inv", 1))

    @app.effect(intent=("n",))
    def outer(submission: semel.Submission, n: int) -> str:
        with pytest.raises(semel.Misuse, match="inside an effect"):
            shop.pay("inv", n)
        return "ok"

    with app.work("k", kind="loop"):
        assert outer(1) == "ok"
    assert shop.calls == []


def test_a_lookup_that_returns_nothing_goes_to_a_person(app: semel.App) -> None:
    def find(submission: semel.Submission) -> semel.Verdict:
        return None  # type: ignore[return-value]

    @app.effect(intent=(), recovery=semel.Lookup(find, settle=timedelta(0)))
    def send(submission: semel.Submission) -> str:
        raise TimeoutError

    with pytest.raises(semel.Unsettled) as caught, app.work("k", kind="loop"):
        send()
    assert caught.value.why == "blocked" and "lookup find returned NoneType, not a verdict" in str(caught.value)


def test_plain_calls_inside_a_running_loop_name_their_twin(app: semel.App, shop: Any) -> None:
    async def inside() -> None:
        refused("await bill.aenqueue", lambda: shop.bill.enqueue("inv", 1))
        refused("await bill.arun", lambda: shop.bill.run("inv", 1))
        refused("async with app.work", lambda: app.work("k", kind="loop").__enter__())
        refused("await app.arun_worker", lambda: app.run_worker())
        refused("await app.tasks.alist", lambda: app.tasks.list())
        refused("await app.effects.aget", lambda: app.effects.get("k"))
        refused("await app.ajournal", lambda: app.journal("k"))
        refused("await app.review.aresolve", lambda: app.review.resolve("k", semel.NotFound(), by="me"))
        async with app.work("k", kind="loop"):
            refused("await asyncio.to_thread", lambda: shop.pay("inv", 1))
            assert await asyncio.to_thread(shop.pay, "inv", 1) == 1

    asyncio.run(inside())
    assert shop.calls == [("inv", 1)]


# --- the store ---


@pytest.mark.parametrize("url", ["redis://x", "agent.db", "sqlite:agent.db", "sqlite://", "sqlite:///", "mysql://u@h/d"])
def test_a_store_url_that_semel_does_not_know(url: str) -> None:
    refused("sqlite:///agent.db", lambda: semel.App(url))


def test_a_foreign_a_newer_and_an_unreadable_database(tmp_path: Path) -> None:
    foreign, newer, garbage = tmp_path / "foreign.db", tmp_path / "newer.db", tmp_path / "garbage.db"
    with apsw.Connection(str(foreign)) as other:
        other.execute("CREATE TABLE t (x)")
    ours = semel.App(f"sqlite:///{newer}")
    ours.tasks.list()
    ours.close()
    with apsw.Connection(str(newer)) as other:
        other.execute("PRAGMA user_version=99")
    garbage.write_bytes(b"not a database, and longer than a header" * 100)
    before = {path: path.read_bytes() for path in (foreign, garbage)}
    refused("database of something else", lambda: semel.App(f"sqlite:///{foreign}").tasks.list())
    refused("schema version 99, and this semel knows", lambda: semel.App(f"sqlite:///{newer}").tasks.list())
    refused("is not a SQLite database", lambda: semel.App(f"sqlite:///{garbage}").tasks.list())
    refused("folder .* does not exist; make it: mkdir -p", lambda: semel.App(f"sqlite:///{tmp_path}/no/agent.db").tasks.list())
    refused("is a folder", lambda: semel.App(f"sqlite:///{tmp_path}").tasks.list())
    assert {path: path.read_bytes() for path in (foreign, garbage)} == before


def test_a_store_that_cannot_be_written() -> None:
    folder = Path(tempfile.mkdtemp())  # not pytest's, which nobody but its owner may enter
    folder.chmod(0o555)
    code = (
        "import os, sys, semel, semel.app, apsw, semel.store.sqlite\n"
        "if os.getuid() == 0:\n    os.setuid(65534)\n"
        f"try:\n    semel.App('sqlite:///{folder}/agent.db').tasks.list()\n"
        "except semel.Misuse as error:\n    print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=readable_env()
    )
    assert "cannot be written" in said.stdout, said


def readable_env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(semel.__file__).parent.parent)}


def test_the_standard_librarys_sqlite3_may_not_open_the_file(app: semel.App, tmp_path: Path) -> None:
    app.tasks.list()
    refused("drop the store's locks", lambda: sqlite3.connect(tmp_path / "agent.db"))
    refused("drop the store's locks", lambda: (tmp_path / "agent.db").read_bytes())
    sqlite3.connect(tmp_path / "other.db").close()


def test_modules_that_cannot_be_imported() -> None:
    refused("run it where `import no.such` works", lambda: semel.App(modules=("no.such",)).run_worker())
    refused(r"modules=\('billing',\)", lambda: semel.App(modules="billing"))  # type: ignore[arg-type]


def test_an_app_bound_to_no_tenant(tmp_path: Path) -> None:
    app = semel.App(f"sqlite:///{tmp_path}/agent.db", tenant=None)

    @app.task(intent=("n",))
    def t(n: str) -> str:
        return n

    refused("every call must name one", lambda: t.enqueue("a"))
    assert t.using(tenant="acme").enqueue("a").tenant == "acme"
    app.close()

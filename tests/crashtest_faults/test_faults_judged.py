"""The judgement itself, over records that a test writes: what counts as a fault, what does not, and where it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from semel.testing.crashtest import faults, reading
from semel.testing.crashtest.records import Run

AT = 1_900_000_000.0  # 2030-03-17


def run(folder: Path, *records: dict[str, Any], journal: list[dict[str, Any]] | None = None, counted: Any = None) -> Run:
    log = folder / f"log{len(list(folder.iterdir()))}.jsonl"
    whole = [{"at": AT + n, "pid": 1, "task": "t", "name": "bill", **record} for n, record in enumerate(records)]
    log.write_text("".join(json.dumps(record) + "\n" for record in whole))
    return Run("a test", [log], counted or {}, journal or [])


def call(attempt: int, key: str, intent: dict[str, Any], line: int = 5) -> dict[str, Any]:
    return {
        "what": "call", "effect": "pay", "key": key, "intent": intent, "occurrence": "", "attempt": attempt,
        "frames": [["/nowhere/app.py", line, "bill"]],
    }  # fmt: skip


def ended(attempt: int, how: str = "returned") -> dict[str, Any]:
    return {"what": "ended", "attempt": attempt, "how": how}


def outside(act: str, to: str, line: int = 7, **more: Any) -> dict[str, Any]:
    return {"what": "outside", "act": act, "to": to, "attempt": 1, "frames": [["/nowhere/app.py", line, "bill"]], **more}


@pytest.mark.parametrize(
    ("was", "now", "looks"),
    [
        ("3f2a9c4e-6c7b-4c1e-9a61-0d5f6ab1c001", "b0c1d2e3-1111-4222-8333-444455556666", "a uuid"),
        ("order-3f2a9c4e6c7b4c1e9a610d5f6ab1c001", "order-b0c1d2e3111142228333444455556666", "a uuid"),
        (1_900_000_001, 1_900_000_002, "the time"),
        (1_900_000_001_500, 1_900_000_002_500, "the time"),
        ("2030-03-17T17:46:40", "2030-03-17T17:46:43", "the time"),
        ("run-1900000001", "run-1900000003", "the time"),
        ("try-1", "try-2", "the attempt's number"),
        (1, 2, "the attempt's number"),
        (774_123, 120_931, "a random number"),
        ("Dear Ann, it is done.", "Hello Ann! All is done.", "words that are written anew"),
    ],
)
def test_what_a_changed_value_looks_like(was: Any, now: Any, looks: str, tmp_path: Path) -> None:
    told = faults.found([run(tmp_path, call(1, "k1", {"id": was}), ended(1, "raised"), call(2, "k2", {"id": now}), ended(2))])
    assert [(fault.name, fault.where) for fault in told] == [(faults.CHANGES, "app.py:5")]
    assert f"it looks like {looks}" in told[0].what
    assert repr(was) in told[0].what
    assert repr(now) in told[0].what


@pytest.mark.parametrize(("result", "steps"), [("3f2a9c4e", True), ({"id": "3f2a9c4e"}, True), ("Dear Ann", False), ("3", False)])
def test_what_comes_from_a_step_already_is_not_to_be_made_in_one(result: Any, steps: bool, tmp_path: Path) -> None:
    """The store was restored, and the step ran again."""
    calls = [call(1, "k1", {"id": "order-774123aa"}), call(2, "k2", {"id": "order-3f2a9c4e"}), ended(2)]
    stepped = [{"kind": "stepped", "at": 1, "body": {"key": "s", "name": "draw", "result": result}}]
    told = faults.found([run(tmp_path, *calls, journal=stepped)])
    assert len(told) == 1
    assert ("in a step" not in told[0].mend) == steps
    assert ("a step's result can be lost when the store is restored" in told[0].mend) == steps
    assert "derive" in told[0].mend


def test_the_same_keys_in_another_order_are_no_change(tmp_path: Path) -> None:
    calls = [call(1, "k1", {"id": 1}), call(1, "k2", {"id": 2}), call(2, "k2", {"id": 2}), call(2, "k1", {"id": 1}), ended(2)]
    assert faults.found([run(tmp_path, *calls)]) == []


def test_an_attempt_that_was_cut_short_proves_no_change(tmp_path: Path) -> None:
    calls = [call(1, "k1", {"id": 1}), call(2, "k2", {"id": 2})]
    assert faults.found([run(tmp_path, *calls, ended(2, "suspended"))]) == []
    assert faults.found([run(tmp_path, *calls)]) == []
    assert [fault.name for fault in faults.found([run(tmp_path, *calls, ended(2))])] == [faults.CHANGES]


def test_one_more_effect_in_the_second_attempt_is_no_change(tmp_path: Path) -> None:
    calls = [call(1, "k1", {"id": 1}), call(2, "k1", {"id": 1}), call(2, "k2", {"id": 2}), ended(2)]
    assert faults.found([run(tmp_path, *calls)]) == []


def test_reading_in_clear_and_asking_a_model_are_no_effects(tmp_path: Path) -> None:
    records = [
        outside("connect", "shop.example:80", pipe=1),
        outside("read", "shop.example", request="GET /prices", pipe=1),
        outside("connect", "api.openai.com:443", 8, pipe=2),
        outside("request", "api.openai.com", 8, request="POST /v1/responses", pipe=3),
    ]
    assert faults.found([run(tmp_path, *records)]) == []


def test_a_connection_whose_bytes_cannot_be_read_is_named_as_what_it_is(tmp_path: Path) -> None:
    told = faults.found([run(tmp_path, outside("connect", "shop.example:443", pipe=1))])
    assert [(fault.name, fault.where) for fault in told] == [(faults.OUTSIDE, "app.py:7")]
    assert "bill opened a connection to shop.example:443, outside any effect or step" in told[0].what
    assert "if it only reads: @app.step()" in told[0].mend


@pytest.mark.parametrize(
    ("act", "to", "harmless"),
    [
        ("connect", "10.0.0.5:11434", "10.0.0.5:11434"),
        ("connect", "models.internal:443", "models.internal"),
        ("request", "hooks.internal:8443", "hooks.internal"),
        ("process", "/usr/bin/git", "git"),
        ("process", "/usr/bin/git", "/usr/bin/git"),
        ("write", "/var/cache/agent/x", "/var/cache/agent"),
    ],
)
def test_what_the_user_calls_harmless_is_left_alone(act: str, to: str, harmless: str, tmp_path: Path) -> None:
    runs = [run(tmp_path, outside(act, to))]
    (told,) = faults.found(runs)
    named = told.mend.rpartition("if a second time does no harm: --harmless ")[2]
    assert named
    assert faults.found(runs, [named]) == [], "what it says to write is what helps"
    assert faults.found(runs, [harmless]) == []
    assert len(faults.found(runs, ["elsewhere"])) == 1


def test_a_sqlite_file_that_the_user_calls_harmless_is_left_alone(tmp_path: Path) -> None:
    runs = [run(tmp_path, outside("sql", "insert into t values ( …", file="cache.db"))]
    (told,) = faults.found(runs)
    assert told.mend.endswith("--harmless cache.db")
    assert faults.found(runs, ["cache.db"]) == []
    assert faults.found(runs, [str(Path("cache.db").absolute())]) == []
    assert len(faults.found(runs, ["other.db"])) == 1


def test_a_not_found_from_before_it_happened_is_believed(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("def find(submission):\n    found = ask()\n    return Confirmed(found) if found else NotFound()\n")
    lookup = {"key": "k", "file": str(app), "line": 1, "function": "find", "acts": 2, "lost": False}
    happened = {"what": "effect_ended", "key": "k", "n": 2, "how": "returned", "clear": False, "key_sent": False, "writes": 0}
    asked = {"what": "verdict", "verdict": "not_found", **lookup}

    def row(at: float) -> list[dict[str, Any]]:
        return [{"kind": "found", "at": int(at * 1000), "body": {"key": "k", "verdict": "not_found", "how": "lookup:find"}}]

    logs = tmp_path / "logs"
    logs.mkdir()
    assert faults.found([run(logs, asked, happened, journal=row(AT + 0.5))]) == []
    told = faults.found([run(logs, happened, asked, journal=row(AT + 2))])
    assert [(fault.name, fault.where) for fault in told] == [(faults.MISSES, "app.py:3")]
    assert faults.found([run(logs, happened, asked)]) == [], "the engine did not believe it, so settle has done its work"


def test_two_acts_of_one_submission_are_a_retry(tmp_path: Path) -> None:
    begun = {"what": "effect", "key": "k", "n": 1, "rungs": ["ask"], "file": "/nowhere/app.py", "line": 12}
    once = [{"kind": "intended", "at": 0, "body": {"key": "k", "n": 1}}]
    twice = [*once, {"kind": "intended", "at": 1, "body": {"key": "k", "n": 2}}]
    told = faults.found([run(tmp_path, begun, journal=once, counted={"k": 2})])
    assert [(fault.name, fault.where) for fault in told] == [(faults.RETRIES, "app.py:12")]
    assert faults.found([run(tmp_path, begun, journal=once, counted={"k": 1})]) == []
    assert faults.found([run(tmp_path, begun, journal=twice, counted={"k": 2})]) == []
    other = {**begun, "key": "k2"}
    assert faults.found([run(tmp_path, begun, other, journal=once, counted={"k": 2})]) == [], "the probe may count both as one"
    one = {"what": "effect_ended", "key": "k", "n": 1, "how": "raised", "clear": True, "key_sent": True, "writes": 1}
    assert faults.found([run(tmp_path, begun, one, journal=once, counted={"k": 2})]) == [], "it was seen to send one request"
    posts = outside("request", "127.0.0.1:1", request="POST /x")
    names = [fault.name for fault in faults.found([run(tmp_path, begun, posts, journal=once, counted={"k": 2})])]
    assert names == [faults.OUTSIDE], "the handler has done the other"


def test_reading_back_after_a_lost_reply_is_no_retry(tmp_path: Path) -> None:
    same = {"key": "k", "n": 1}
    begun = {"what": "effect", "rungs": ["ask"], "file": "/nowhere/app.py", "line": 12, **same}
    lost = {"what": "lost", "request": "PUT /x", "frames": [], **same}
    again = {"what": "again", "request": "", "to": "shop.example:80", "frames": [["/nowhere/app.py", 14, "put"]], **same}
    end = {
        "what": "effect_ended",
        "how": "returned",
        "error": "",
        "after": 1,
        "clear": True,
        "key_sent": True,
        "writes": 1,
        **same,
    }
    assert faults.found([run(tmp_path, begun, lost, again, {**end, "after_reads": 1})]) == []
    told = faults.found([run(tmp_path, begun, lost, again, {**end, "after_reads": 0})])
    assert [(fault.name, fault.where) for fault in told] == [(faults.RETRIES, "app.py:14")]


def test_a_line_that_a_kill_has_torn_is_passed_over(tmp_path: Path) -> None:
    one = run(tmp_path, outside("process", "make coffee"))
    with one.logs[0].open("a") as log:
        log.write('{"what": "outside", "act": "proc')
    assert len(faults.found([one])) == 1


def test_each_fault_is_told_once(tmp_path: Path) -> None:
    runs = [run(tmp_path, outside("process", "make coffee")) for _ in range(3)]
    assert len(faults.found(runs)) == 1


SOURCE = """
@app.effect(intent=("payment_id",))
def pay(submission, payment_id, note=""):
    try:
        send()
    except BaseException:
        return "paid"

@app.task()
async def bill(order_id):
    payment_id = f"{order_id}-{uuid.uuid4()}"
    pay(payment_id)
    pay(uuid.uuid4(), datetime.now())
    pay(order_id, note=str(time.time()))
    try:
        pay(order_id)
    except:
        pass
    try:
        pay(order_id)
    except BaseException as error:
        log(error)
        raise error
    try:
        pay(order_id)
    except semel.Suspended:
        raise
    except BaseException:
        pass

def find(submission):
    try:
        return Confirmed(ask(submission.key))
    except Exception:
        return NotFound()

def other():
    try:
        bill()
    except BaseException:
        pass

RECOVERY = semel.Lookup(find, settle=hour)
"""


def test_what_a_look_at_the_source_suspects(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(SOURCE)
    told = [(fault.name.removeprefix(faults.SUSPECTED), fault.where) for fault in faults.read(app)]
    assert told == [
        (faults.SWALLOWS, "app.py:6"),
        (faults.CHANGES, "app.py:13"),
        (faults.SWALLOWS, "app.py:17"),
        (faults.ERRS, "app.py:34"),
    ]
    assert all(fault.name.startswith(faults.SUSPECTED) for fault in faults.read(app))
    assert reading.source_of(str(app), 12) == ("uuid", 11, "uuid.uuid4()")


@pytest.mark.parametrize(
    ("body", "nobody"),
    [
        ("return semel.NotFound()", True),
        ("return semel.Confirmed(1) if submission.key in SENT else semel.NotFound()", True),
        ("return semel.NotFound() if ask(submission.key) else semel.Confirmed(1)", False),
        ("return semel.Confirmed(1) if ORDER.sent else semel.NotFound()", False),
        ("return semel.Confirmed(1) if TABLE[submission.key] else semel.NotFound()", False),
    ],
)
def test_a_lookup_that_might_ask_is_not_said_to_ask_nobody(body: str, nobody: bool, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(f"def find(submission):\n    {body}\n")
    assert reading.asks_nobody(str(tmp_path / "app.py"), 1) is nobody


def test_a_file_that_cannot_be_parsed_suspects_nothing(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def broken(:")
    assert faults.read(tmp_path / "app.py") == []
    assert faults.read(tmp_path / "missing.py") == []
